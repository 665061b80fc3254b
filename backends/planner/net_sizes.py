"""What a net costs on a rank: numbers to hold, operations to compute, and what ranks send one another.

Lecture section: what a cluster would do. Lesson: 15_scale, by ``estimate.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from .layout import Layout, Place
from .transfers import Transfer

Passes = tuple[Counter[Transfer], Counter[Transfer]]
"""How often a stage makes each transfer forward, and backward."""


def passes(forward: Iterable[Transfer] = (), backward: Iterable[Transfer] = ()) -> Passes:
    return Counter(forward), Counter(backward)


@dataclass(frozen=True)
class StageCosts:
    """Some layers on one rank, for one micro-batch.

    ``parameters`` are numbers, in so many ``tensors``; ``forward`` and ``backward`` are operations, and those
    of ``core_forward`` and ``core_backward`` among them hide the messages of a ring; ``activations`` are the
    bytes that a tape holds between the two. ``model``, ``sequence`` and ``experts`` are the transfers of
    these axes; those of experts are both passes together. After a step ranks that split tokens sum
    ``partial`` numbers; ``own_experts`` of the parameters, in ``own_tensors``, are not summed over data.
    """

    parameters: int = 0
    tensors: int = 0
    forward: float = 0.0
    backward: float = 0.0
    core_forward: float = 0.0
    core_backward: float = 0.0
    activations: float = 0.0
    partial: int = 0
    own_experts: int = 0
    own_tensors: int = 0
    model: Passes = field(default_factory=passes)
    sequence: Passes = field(default_factory=passes)
    experts: Passes = field(default_factory=passes)

    def plus(self, other: StageCosts, times: int = 1) -> StageCosts:
        """The costs of both, of the other's ``times`` as many."""
        mine, theirs = vars(self), vars(other)
        total = {}
        for name, one in mine.items():
            if isinstance(one, tuple):
                total[name] = tuple(
                    a + Counter({transfer: times * n for transfer, n in b.items()})
                    for a, b in zip(one, theirs[name], strict=True)
                )
            else:
                total[name] = one + times * theirs[name]
        return StageCosts(**total)


class NetSizes(ABC):
    """Consecutive layers; for each number, of ``itemsize`` bytes, the optimizer holds ``states`` others."""

    itemsize: int
    states: int

    @abstractmethod
    def work(self) -> Sequence[float]:
        """The operations of each layer forward, for one sample."""

    @cached_property
    def layers(self) -> int:
        """How many there are."""
        return len(self.work())

    @abstractmethod
    def output(self, layer: int, layout: Layout, place: Place) -> int:
        """The numbers of one sample that a stage at ``place`` whose last layer this is gives to the next."""

    def tied(self, layout: Layout, place: Place, batch: int) -> int:
        """The numbers of this rank that the first layer shares with the last."""
        return 0

    @abstractmethod
    def stage(self, layers: range, layout: Layout, place: Place, rows: int, batch: int) -> StageCosts:
        """The costs of ``layers`` at one place, for ``rows`` of the ``batch`` samples of a step."""

    def reason_against(self, layout: Layout, batch: int) -> str | None:
        """Why ranks of this layout would have nothing to do, or cannot be; None if all have."""
        rows, layers = batch // layout.data, self.layers
        if rows < 1:
            return f"{layout.data} ranks share {batch} samples"
        if layout.pipe > layers:
            return f"{layout.pipe} stages have {layers} layers"
        if rows < layout.micro:
            return f"{layout.micro} micro-batches have {rows} samples"
        return None
