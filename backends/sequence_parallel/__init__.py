"""Every rank holds the whole model and some tokens of each row."""

from minigrad.environment import variable

from .sequence_parallel import SequenceParallel

if variable("MINIGRAD_OPS") != "readable":
    from . import fast_tiles as fast_tiles

__all__ = ["SequenceParallel"]
