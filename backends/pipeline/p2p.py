"""One rank's messages in a step of a pipeline: activations go forward, their gradients back.

Lecture section: pipelining. Lesson: 13_pipeline. The messages follow from the timetable. No rank waits for
the receiver of a send: a send is finished when a later message from its receiver has arrived. Receives are
started ahead, each into separate memory, because tapes refer to it until the micro-batch goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minigrad.device import Array, without_memory

from ..comm.communicator import Communicator
from .timetable import Backward, Forward, Timetable, Weight

FIRST_TAG, TAGS = 10_000, 20_000
Shape = tuple[int, ...]


class Hop(NamedTuple):
    """The arrival of a micro-batch at a stage, on its way forward or back."""

    kind: type[Forward] | type[Backward]
    micro: int
    stage: int

    @property
    def before(self) -> Hop:
        """The hop from which this one receives."""
        return self._replace(stage=self.stage - 1 if self.kind is Forward else self.stage + 1)

    @property
    def next(self) -> Hop:
        """The hop to which this one sends."""
        return self._replace(stage=self.stage + 1 if self.kind is Forward else self.stage - 1)


class PipelineComm:
    """One rank's messages; arrays for micro-batches of the same ``shape`` are expected to be alike.

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
        self.local: dict[Hop, Array] = {}  # between chunks of this rank
        self.posted: dict[Hop, Callable[[], Array]] = {}
        self.sends: dict[Hop, Callable[[], None]] = {}  # by the hop that receives: how to finish

    def comes(self, hop: Hop) -> bool:
        """Whether a hop receives anything from another stage."""
        return 0 <= hop.before.stage < self.table.stages and (hop.kind is Forward or self.goes(hop.before))

    def goes(self, hop: Hop) -> bool:
        """Whether a hop sends anything to another stage."""
        return 0 <= hop.next.stage < self.table.stages and (hop.kind is Forward or hop.stage > self.first)

    def post(self, hop: Hop, shape: Shape) -> None:
        """Start to receive a hop's array, once, if it comes from another rank."""
        source = self.positions[hop.before][0] if self.comes(hop) else self.comm.rank
        if source != self.comm.rank and hop not in self.posted:
            like = self.shapes.get((hop.kind, hop.stage, shape))
            self.posted[hop] = self.comm.start_recv(source, self.tag(hop), like)

    def receive(self, hop: Hop, shape: Shape) -> Array:
        """A hop's array, whose receive was posted."""
        if hop in self.local:
            return self.local.pop(hop)
        x = self.posted.pop(hop)()
        self.expect(hop, shape, x)
        source, position = self.positions[hop.before]
        arrived = [to for to in self.sends if (source, 0) <= self.positions[to] <= (source, position)]
        for to in arrived:  # the source received it before it sent this
            self.sends.pop(to)()
        return x

    def expect(self, hop: Hop, shape: Shape, like: Array) -> None:
        """Expect arrays like this one at a hop's stage, for micro-batches whose samples have this shape."""
        self.shapes[hop.kind, hop.stage, shape] = without_memory(like)

    def send(self, hop: Hop, x: Array) -> None:
        """Send a hop's result; ``x`` must not change from now on."""
        to, _ = self.positions[hop.next]
        if to == self.comm.rank:
            self.local[hop.next] = x
        else:
            self.sends[hop.next] = self.comm.start_send(x, to, self.tag(hop.next))

    def finish(self) -> None:
        """Wait until all sends have been received."""
        for finish in self.sends.values():
            finish()
        self.sends.clear()

    def tag(self, hop: Hop) -> int:
        return FIRST_TAG + 2 * (hop.micro * self.table.stages + hop.stage) + (hop.kind is Backward)
