"""Python imports this at its start if this folder is on the path: the figures of a lesson are checked."""

import sys
from pathlib import Path

if any(Path(word).name == "lesson.py" for word in sys.orig_argv):
    from matplotlib.figure import Figure

    from tests.lessons.figure_laws import faults

    write = Figure.savefig

    def savefig(figure, *args, **settings):
        write(figure, *args, **settings)
        assert not (wrong := faults(figure)), "\n".join(wrong)

    Figure.savefig = savefig  # pyright: ignore[reportAttributeAccessIssue]
