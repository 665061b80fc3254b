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

from ..comm.communicator import Communicator
from .schedule import Backward, Forward, Timetable, Weight

FIRST_TAG, TAGS = 10_000, 20_000
Shape = tuple[int, ...]


class Hop(NamedTuple):
    """A micro-batch that comes to a stage, on its way forward or back."""

    kind: type[Forward] | type[Backward]
    micro: int
    stage: int

    @property
    def before(self) -> Hop:
        """The stop that it comes from."""
        return self._replace(stage=self.stage - 1 if self.kind is Forward else self.stage + 1)

    @property
    def next(self) -> Hop:
        """The stop that it goes to."""
        return self._replace(stage=self.stage + 1 if self.kind is Forward else self.stage - 1)


class PendingSend(NamedTuple):
    """A send that was started: to whom, which of its instructions receives it, and how to finish."""

    to: int
    where: int
    finish: Callable[[], None]


class PipelineComm:
    """One rank's messages; from the ``shape`` of a micro-batch's samples follows what comes, once it came.

    Gradients are not sent to stages before ``first``. Raises ValueError for more messages than tags.
    """

    def __init__(self, comm: Communicator, table: Timetable, first: int):
        if 2 * table.micros * table.stages > TAGS:
            raise ValueError(
                f"{table.micros} micro-batches in {table.stages} stages need more than {TAGS} tags; take at "
                f"most {TAGS // 2 // table.stages} micro-batches"
            )
        self.comm, self.table, self.first = comm, table, first
        self.positions = {
            Hop(type(i), i.micro, table.stage(i.micro, rank, i.chunk)): (rank, n)
            for rank, instructions in enumerate(table.instructions)
            for n, i in enumerate(instructions)
            if not isinstance(i, Weight)
        }
        self.shapes: dict[tuple[object, int, Shape], Array] = {}
        self.local: dict[Hop, Array] = {}  # from another chunk of this rank
        self.posted: dict[Hop, Callable[[], Array]] = {}
        self.sent: list[PendingSend] = []

    def comes(self, hop: Hop) -> bool:
        """Whether another stage has something for this one."""
        return 0 <= hop.before.stage < self.table.stages and (hop.kind is Forward or self.goes(hop.before))

    def goes(self, hop: Hop) -> bool:
        """Whether a stage has something for the next one."""
        return 0 <= hop.next.stage < self.table.stages and (hop.kind is Forward or hop.stage > self.first)

    def post(self, hop: Hop, shape: Shape) -> None:
        """Start to receive what comes to a stop from another rank, unless that was done before."""
        source = self.positions[hop.before][0] if self.comes(hop) else self.comm.rank
        if source != self.comm.rank and hop not in self.posted:
            like = self.shapes.get((hop.kind, hop.stage, shape))
            self.posted[hop] = self.comm.start_recv(source, self.tag(hop), like)

    def receive(self, hop: Hop, shape: Shape) -> Array:
        """What comes to a stop, which was posted."""
        if hop in self.local:
            return self.local.pop(hop)
        x = self.posted.pop(hop)()
        self.expect(hop, shape, x)
        source, then = self.positions[hop.before]
        done = [sent for sent in self.sent if sent.to == source and sent.where <= then]
        self.sent = [sent for sent in self.sent if sent not in done]
        for sent in done:  # it was received before this was sent
            sent.finish()
        return x

    def expect(self, hop: Hop, shape: Shape, like: Array) -> None:
        """At this stop come arrays like this one for a micro-batch whose samples have this shape."""
        xp = array_module(like)
        self.shapes[hop.kind, hop.stage, shape] = xp.broadcast_to(xp.zeros((), like.dtype), like.shape)

    def send(self, hop: Hop, x: Array) -> None:
        """Hand on what was made at a stop; leave ``x`` alone from now on."""
        to, where = self.positions[hop.next]
        if to == self.comm.rank:
            self.local[hop.next] = x
        else:
            self.sent.append(PendingSend(to, where, self.comm.start_send(x, to, self.tag(hop.next))))

    def finish(self) -> None:
        """Wait until all that was sent has been taken."""
        for sent in self.sent:
            sent.finish()
        self.sent.clear()

    def tag(self, hop: Hop) -> int:
        return FIRST_TAG + 2 * (hop.micro * self.table.stages + hop.stage) + (hop.kind is Backward)
