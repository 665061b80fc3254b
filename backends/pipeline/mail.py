"""What one rank of a pipeline sends and receives in a step: activations forward, their gradients back.

Lecture section: pipelining. Lesson: 13_pipeline. Which message goes where follows from the timetable. No rank
waits for another to take what it sends: sends are started, and finished once something that the other did
later has arrived. Receives are posted ahead, each into memory of its own, since tapes refer to it until the
micro-batch goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minigrad.device import Array, array_module

from ..comm.protocol import Comm
from .schedule import Backward, Forward, Timetable, Weight

FIRST_TAG, TAGS = 10_000, 20_000
Shape = tuple[int, ...]


class Stop(NamedTuple):
    """A micro-batch that comes to a stage, on its way forward or back."""

    kind: type[Forward] | type[Backward]
    micro: int
    stage: int

    @property
    def before(self) -> Stop:
        """The stop that it comes from."""
        return self._replace(stage=self.stage - 1 if self.kind is Forward else self.stage + 1)

    @property
    def next(self) -> Stop:
        """The stop that it goes to."""
        return self._replace(stage=self.stage + 1 if self.kind is Forward else self.stage - 1)


class Sent(NamedTuple):
    """A send that was started: to whom, which of its instructions receives it, and how to finish."""

    to: int
    where: int
    finish: Callable[[], None]


class Mail:
    """One rank's messages; from the ``shape`` of a micro-batch's samples follows what comes, once it came.

    Gradients are not sent to stages before ``first``. Raises ValueError for more messages than tags.
    """

    def __init__(self, comm: Comm, table: Timetable, first: int):
        if 2 * table.micros * table.stages > TAGS:
            raise ValueError(
                f"{table.micros} micro-batches in {table.stages} stages need more than {TAGS} tags; take at "
                f"most {TAGS // 2 // table.stages} micro-batches"
            )
        self.comm, self.table, self.first = comm, table, first
        self.positions = {
            Stop(type(i), i.micro, table.stage(i.micro, rank, i.chunk)): (rank, n)
            for rank, instructions in enumerate(table.instructions)
            for n, i in enumerate(instructions)
            if not isinstance(i, Weight)
        }
        self.shapes: dict[tuple[object, int, Shape], Array] = {}
        self.kept: dict[Stop, Array] = {}  # from another chunk of this rank
        self.posted: dict[Stop, Callable[[], Array]] = {}
        self.sent: list[Sent] = []

    def comes(self, stop: Stop) -> bool:
        """Whether another stage has something for this one."""
        return 0 <= stop.before.stage < self.table.stages and (stop.kind is Forward or self.goes(stop.before))

    def goes(self, stop: Stop) -> bool:
        """Whether a stage has something for the next one."""
        return 0 <= stop.next.stage < self.table.stages and (stop.kind is Forward or stop.stage > self.first)

    def post(self, stop: Stop, shape: Shape) -> None:
        """Start to receive what comes to a stop from another rank, unless that was done before."""
        source = self.positions[stop.before][0] if self.comes(stop) else self.comm.rank
        if source != self.comm.rank and stop not in self.posted:
            like = self.shapes.get((stop.kind, stop.stage, shape))
            self.posted[stop] = self.comm.start_recv(source, self.tag(stop), like)

    def receive(self, stop: Stop, shape: Shape) -> Array:
        """What comes to a stop, which was posted."""
        if stop in self.kept:
            return self.kept.pop(stop)
        x = self.posted.pop(stop)()
        self.expect(stop, shape, x)
        source, then = self.positions[stop.before]
        done = [sent for sent in self.sent if sent.to == source and sent.where <= then]
        self.sent = [sent for sent in self.sent if sent not in done]
        for sent in done:  # it was received before this was sent
            sent.finish()
        return x

    def expect(self, stop: Stop, shape: Shape, like: Array) -> None:
        """At this stop come arrays like this one for a micro-batch whose samples have this shape."""
        xp = array_module(like)
        self.shapes[stop.kind, stop.stage, shape] = xp.broadcast_to(xp.zeros((), like.dtype), like.shape)

    def send(self, stop: Stop, x: Array) -> None:
        """Hand on what was made at a stop; leave ``x`` alone from now on."""
        to, where = self.positions[stop.next]
        if to == self.comm.rank:
            self.kept[stop.next] = x
        else:
            self.sent.append(Sent(to, where, self.comm.start_send(x, to, self.tag(stop.next))))

    def finish(self) -> None:
        """Wait until all that was sent has been taken."""
        for sent in self.sent:
            sent.finish()
        self.sent.clear()

    def tag(self, stop: Stop) -> int:
        return FIRST_TAG + 2 * (stop.micro * self.table.stages + stop.stage) + (stop.kind is Backward)
