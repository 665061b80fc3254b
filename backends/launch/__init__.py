"""Starting ranks, as threads or processes, and ending all of them.

Every rank of an MPI job imports this package before it starts MPI, so it imports Python's own library only.
"""

from ..process.launcher import only_rank_0

__all__ = ["only_rank_0"]
