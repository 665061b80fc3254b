"""After which step all ranks stop, although each may hear the request to stop at another one.

Lecture section: parallelism at scale, what fails. Lesson: 15_scale. A rank that stopped by itself would leave
the others waiting in their next all-reduce, and a checkpoint needs all ranks at the same step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..comm import Communicator
from ..process.signals import SIGNALS


class StopAgreement:
    """One all-reduce of a few integers after each step, which is finished after the next one.

    So no rank waits for it, and all ranks stop at the latest one step after the first one heard the request.
    """

    def __init__(self, comm: Communicator):
        self.comm = comm
        self.finish: Callable[[], np.ndarray] | None = None

    def after_step(self, request: int | None, *, last: bool) -> int | None:
        """The signal on which all ranks stop after this step, or None; all ranks call after every step.

        ``request`` is the signal that this rank has heard. After the ``last`` step nothing is left open.
        """
        if self.comm.size == 1:
            return request
        earlier = self.finish
        self.finish = self.comm.start_allreduce(np.array([request == number for number in SIGNALS], np.int64))
        requests = np.zeros(len(SIGNALS), np.int64) if earlier is None else earlier()
        if last or requests.any():
            requests = self.finish()  # includes earlier requests, which stay set
            self.finish = None
        return SIGNALS[int(requests.argmax())] if requests.any() else None

    def close(self) -> None:
        """Leave nothing open, where no step was said to be the last one; all ranks call."""
        finish, self.finish = self.finish, None
        if finish is not None:
            finish()
