"""Tells errors that are a message to the user, printed in one line, from faults of the program."""

from __future__ import annotations

import dis
import errno
import os
import sys

RAISE = dis.opmap["RAISE_VARARGS"]
ALWAYS = (OSError, FloatingPointError, MemoryError)  # files, diverging training, memory: not our fault
WHERE_RAISED = (ValueError, TypeError, RuntimeError)
SILENT = {"numpy", *sys.stdlib_module_names}  # packages whose errors are not written for a user of minigrad
LONGEST = 2000


def is_refusal(error: BaseException) -> bool:
    """Whether ``error`` was raised on purpose: by a ``raise`` statement, with words for the user.

    A ValueError, TypeError or RuntimeError that NumPy or Python raises shows a fault of the program, and its
    traceback is printed.
    """
    if isinstance(error, ALWAYS):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next  # where the error was raised
    if not isinstance(error, WHERE_RAISED) or last is None:
        return False
    package = last.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    return package not in SILENT and last.tb_frame.f_code.co_code[last.tb_lasti] == RAISE


def in_one_line(error: BaseException) -> str:
    """The error's text, at most 2,000 characters."""
    text = str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        text = "cannot write what the command prints: No space left on device; print it somewhere else"
    elif isinstance(error, FileNotFoundError) and error.filename is None and not os.stat(".").st_nlink:
        text = "the working folder is there no more; change into another one"
    elif isinstance(error, OSError) and error.filename is not None:  # Python's own words begin with a number
        advice = (
            "name a file in it" if error.errno == errno.EISDIR else "check the path, and your rights there"
        )
        text = f"{error.filename}: {error.strerror}; {advice}"
    if isinstance(error, MemoryError):
        text = f"out of memory{f' ({text})' if text else ''}; take a smaller --batch, or fewer ranks"
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... ({len(text):,} characters) ... {text[-LONGEST // 2 :]}"
    return text
