"""Which errors are a refusal, said to the user in one line, and which are a fault of the program."""

from __future__ import annotations

import dis
import sys
from types import TracebackType

RAISE = dis.opmap["RAISE_VARARGS"]
ALWAYS = (OSError, FloatingPointError, MemoryError)  # of files, diverging training, memory: never a fault
WHERE_RAISED = (ValueError, TypeError, RuntimeError)
SILENT = {"numpy", *sys.stdlib_module_names}  # packages whose errors do not speak to a user of minigrad
LONGEST = 2000


def is_refusal(error: BaseException) -> bool:
    """Whether ``error`` was raised on purpose: by a ``raise`` statement, with words for the user.

    A ValueError, TypeError or RuntimeError of NumPy or Python themselves shows a fault of the program, which
    keeps its traceback.
    """
    if isinstance(error, ALWAYS):
        return True
    if not isinstance(error, WHERE_RAISED) or (last := innermost(error.__traceback__)) is None:
        return False
    package = last.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    return package not in SILENT and last.tb_frame.f_code.co_code[last.tb_lasti] == RAISE


def innermost(trace: TracebackType | None) -> TracebackType | None:
    """Where the error was raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def in_one_line(error: BaseException) -> str:
    """The error's words, at most 2,000 characters of them."""
    text = str(error)
    if isinstance(error, MemoryError):
        text = f"out of memory{f' ({text})' if text else ''}; take a smaller --batch, or fewer ranks"
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... ({len(text):,} characters) ... {text[-LONGEST // 2 :]}"
    return text
