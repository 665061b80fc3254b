"""What is said of a process that ended before there was a verdict."""

from __future__ import annotations

import signal


def ending(status: int | None, seconds: float) -> str:
    """What it ended by, in words."""
    if status is None:
        return f"did not end in {seconds:g} s, and was ended"
    if status in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return f"computed for more than {seconds:g} s"
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "was ended by the system; did it take all the memory, or compute without end?"
    if status < 0:
        return f"the process was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"the process ended with status {status} before there was a verdict; does it call exit?"
