"""A server's end of the line under observation: whom it answers, when, and with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
from minigrad_course.grading import Wrong

from backends.comm import Communicator, Wrapper


class Watched(Wrapper):
    """``comm`` as a server sees it, which raises Wrong at the first answer or wait that breaks the rules.

    It receives what the server receives, in the same order, and so knows what the server should hold:
    ``weights`` of ``version``, and ``staleness``. ``bound`` None is the asynchronous server. When all workers
    have ended, it may send and receive what it likes.
    """

    def __init__(self, comm: Communicator, workers: int, part: np.ndarray, rate: float, bound: int | None):
        super().__init__(comm)
        self.workers, self.rate, self.bound = workers, rate, bound
        self.me = f"server {comm.rank - workers}"
        self.weights, self.version = part.copy(), 0
        self.clocks = dict.fromkeys(range(workers), 0)  # of the workers that have not ended
        self.waiting: set[int] = set()
        self.staleness: Counter[int] = Counter()

    def send(self, x: np.ndarray, to: int, tag: int = 0) -> None:
        self.answers(x, to)
        self.comm.send(x, to, tag)

    def start_send(self, x: np.ndarray, to: int, tag: int = 0) -> Callable[[], None]:
        self.answers(x, to)
        return self.comm.start_send(x, to, tag)

    def recv(self, source: int, tag: int = 0, expect: np.ndarray | None = None) -> np.ndarray:
        self.waits(source)
        return self.takes(source, self.comm.recv(source, tag, expect))

    def start_recv(
        self, source: int, tag: int = 0, expect: np.ndarray | None = None
    ) -> Callable[[], np.ndarray]:
        finish = self.comm.start_recv(source, tag, expect)

        def finish_and_take() -> np.ndarray:
            self.waits(source)
            return self.takes(source, finish())

        return finish_and_take

    def recv_any(self, tag: int = 0) -> tuple[int, np.ndarray]:
        self.waits()
        source, x = self.comm.recv_any(tag)
        return source, self.takes(source, x)

    # What is held against the server

    def takes(self, worker: int, message: np.ndarray) -> np.ndarray:
        if not self.clocks:
            return message
        if worker >= self.workers:
            raise Wrong(
                f"{self.me} takes the last part of server {worker - self.workers} while it still receives "
                "pushes: give such messages a tag of their own"
            )
        if worker not in self.clocks or worker in self.waiting:
            why = "before it is answered" if worker in self.clocks else "after its end"
            raise Wrong(f"worker {worker} sends {self.me} a message {why}")
        if not message.size:
            del self.clocks[worker]
            return message
        check_message(message, self.weights.size, f"worker {worker}'s push to {self.me}", "gradient")
        self.clocks[worker] += 1
        self.waiting.add(worker)
        self.staleness[self.version - int(message[0])] += 1
        self.version += 1
        self.weights -= self.rate * message[1:]
        return message

    def ahead(self, worker: int) -> int:
        """By how many pushes a worker leads the slowest that is still there."""
        return self.clocks[worker] - min(self.clocks.values())

    def free(self) -> Iterable[int]:
        """Who waits and may go on."""
        return (w for w in sorted(self.waiting) if self.bound is None or self.ahead(w) <= self.bound)

    def waits(self, source: int | None = None) -> None:
        worker = next(iter(self.free()), None)
        if worker is None:
            others = self.clocks.keys() - self.waiting - {source}
            if source is not None and others:
                raise Wrong(
                    f"{self.me} waits for rank {source} alone, while worker {min(others)} may come first: "
                    "receive from any"
                )
            return
        if self.bound is None:
            raise Wrong(f"{self.me} waits for the next message before it has answered worker {worker}")
        raise Wrong(
            f"{self.me} waits for the next message and has not answered worker {worker}, which is "
            f"{self.ahead(worker)} ahead of the slowest that has not ended; the bound is {self.bound}"
        )

    def answers(self, x: np.ndarray, worker: int) -> None:
        if not self.clocks:
            return
        if worker not in self.waiting:
            raise Wrong(f"{self.me} sends rank {worker} a message that answers no push")
        if worker not in self.free():
            raise Wrong(
                f"{self.me} answers worker {worker}, which is {self.ahead(worker)} ahead of the slowest "
                f"that has not ended; the bound is {self.bound}"
            )
        self.waiting.remove(worker)
        check_message(x, self.weights.size, f"{self.me}'s answer to worker {worker}", "parameters")
        if x[0] != self.version:
            raise Wrong(
                f"{self.me}'s answer to worker {worker} is of version {x[0]:g}, "
                f"but it had received {self.version} gradients"
            )
        if not np.array_equal(x[1:], self.weights):
            raise Wrong(
                f"{self.me}'s answer to worker {worker} holds {list(x[1:])}; after the {self.version} "
                f"gradients that it had received the parameters are {list(self.weights)}"
            )


def check_message(x: object, elements: int, what: str, content: str) -> None:
    """Raise Wrong unless ``x`` is a version and so many elements, in float64."""
    if not isinstance(x, np.ndarray):
        raise Wrong(f"{what} is {type(x).__name__}, not an array")
    if (x.dtype, x.shape) != (np.float64, (1 + elements,)):
        raise Wrong(
            f"{what} is {x.dtype} of shape {x.shape}, it should be float64 of shape {(1 + elements,)}: "
            f"the version, and {elements} element{'' if elements == 1 else 's'} of the {content}"
        )
