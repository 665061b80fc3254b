"""The entry point of ``minigrad``, which loads nothing heavy before a signal can end it in one line."""

import os
import sys

from .process import rank
from .process.cores import let_idle_threads_sleep
from .process.signals import SIGNALS, guarded


def main() -> None:
    """Run the command of ``sys.argv``; a signal to a rank of an MPI job ends the whole job at once."""
    let_idle_threads_sleep()
    if os.environ.get("COLUMNS", "").strip() in ("", "0"):  # as of a serial console: tables would be empty
        os.environ.pop("COLUMNS", None)
    if rank.number() is None:
        guarded(load_and_run)
    else:
        rank.listen_for(SIGNALS)
        load_and_run()


def load_and_run() -> None:
    if sys.argv[1:] in ([], ["--version"]):  # which need none of what the other commands load
        from importlib.metadata import version

        from .cli.welcome import WELCOME, show

        show(f"minigrad {version('minigrad-course')}\n" if sys.argv[1:] else WELCOME)
        return
    from .cli.main import command

    command()
