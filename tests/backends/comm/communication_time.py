"""How long a rank of a trace communicated, and how much of that its computing hid."""

from backends.comm.spans import BLOCKING, Trace, covered, is_communication


def communicating(trace: Trace, rank: int) -> float:
    """Seconds in which ``rank`` had any communication under way; those of several at once count once."""
    return covered(s for s in trace.spans if s.rank == rank and is_communication(s.what))


def hidden(trace: Trace, rank: int) -> float:
    """Seconds in which ``rank`` had communication under way and was not blocked in it."""
    blocked = covered(s for s in trace.spans if s.rank == rank and s.what in BLOCKING)
    return communicating(trace, rank) - blocked
