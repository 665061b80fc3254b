"""``minigrad``, also ``python -m backends``: a signal ends it in one line, even while modules are loading."""

import os
import signal


def end_at_once(number: int, _: object) -> None:
    """Handle Ctrl-C before ``entry.main`` has installed its handler, and after it has removed it."""
    os.write(2, b"minigrad: was interrupted by SIGINT while Python was starting or ending\n")
    os._exit(128 + number)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nohup ignores the signal
    signal.signal(signal.SIGINT, end_at_once)

from .entry import main  # noqa: E402 - the import takes a while, in which the handler must be there

if __name__ == "__main__":
    main()
