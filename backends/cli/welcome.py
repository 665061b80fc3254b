"""What ``minigrad`` alone prints: what it is, and three commands to try first, with the time that each takes.

The times are those of two idle cores.
"""

from __future__ import annotations

import os
import sys

from ..process.launcher import say
from .refusal import in_one_line

WELCOME = """\
minigrad: a small autograd whose parallel training strategies are proved to
compute the gradients of one serial machine; with lessons and assignments.

Try these first:

  minigrad train --data 2   15 seconds: two ranks learn handwritten digits
  minigrad prove --data 2    5 seconds: are their gradients one machine's?
  minigrad lesson 01        50 minutes: how a network learns, with questions;
                            its program runs for 35 seconds

minigrad lesson lists all lessons, minigrad grade all assignments, and
minigrad --help all commands; minigrad doctor says what this machine offers.
"""


def show(text: str) -> None:
    """Print it; a full disk ends in one line, and a reader who has left in the status of a broken pipe."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        leave_reader()
    except OSError as error:
        say(in_one_line(error))
        sys.exit(1)


def leave_reader() -> None:
    """End with the status of a broken pipe: whoever read the output has seen enough, as head."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the end of Python writes nothing to it
    sys.exit(128 + 13)
