"""Starting a training again from its newest checkpoint when one of its processes has died.

Lecture section: parallelism at scale, what fails. Lesson: 15_scale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..checkpoint.checkpoints import newest_step
from ..process.signals import Interrupted
from ..process.stopped import Stopped, resuming
from .supervise import Ending, saved_in


@dataclass(frozen=True)
class Restarts:
    """At most ``limit`` new starts of a training that writes its checkpoints into ``folder``."""

    limit: int
    folder: Path

    def run(self, start: Callable[[list[str]], Ending]) -> int:
        """Call ``start`` with this command's arguments, and again where a process has died; the exit status.

        An interrupt of this process names the newest checkpoint, is passed on, and starts nothing again.
        """
        arguments, restarts = sys.argv[1:], 0
        try:
            while (ending := start(arguments)).crashed and restarts < self.limit:
                restarts, newest = restarts + 1, newest_step(self.folder)
                arguments = sys.argv[1:] if newest is None else resuming(sys.argv[1:], self.folder)
                way = "from the beginning" if newest is None else f"from step {newest[1]}"
                reason = ending.reason or f"the job ended with status {ending.status}"
                line = f"{ending.progress_end}minigrad: {reason}; restart {restarts} of {self.limit}, {way}"
                print(line, file=sys.stderr, flush=True)
        except Stopped:
            raise
        except Interrupted as signal:
            if newest_step(self.folder) is None:
                raise
            raise Interrupted(signal.number, saved_in(None, self.folder)) from None
        if newest_step(self.folder) is not None:
            ending = ending._replace(saved=saved_in(None, self.folder))
        return ending.report()
