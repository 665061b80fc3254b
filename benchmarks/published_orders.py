"""What a published figure says of its rows: which trains better than which, and by how much at least."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """What one row measured with each seed: train loss, inf where training diverged, and test accuracy."""

    losses: list[float]
    accuracies: list[float]

    @property
    def mean(self) -> float:
        """The mean loss, inf where one seed diverged: a run that was lost is not left out."""
        return sum(self.losses) / len(self.losses)


class Order(NamedTuple):
    """The mean loss of the row ``better`` is below ``factor`` times that of ``worse``.

    A factor below 1 asks for a clear gap; one above 1 says that both are about as good.
    """

    better: str
    worse: str
    factor: float = 1.0

    def holds(self, means: Mapping[str, float]) -> bool:
        """Whether it does; a mean that is not finite is never the better one.

        Raises ValueError for a row that was not measured, and for a mean that is no loss.
        """
        better, worse = (self.mean(means, name) for name in (self.better, self.worse))
        return math.isfinite(better) and better < self.factor * worse

    def mean(self, means: Mapping[str, float], name: str) -> float:
        if name not in means:
            raise ValueError(f"no row is called {name!r}; measured were {', '.join(means)}")
        if math.isnan(means[name]) or means[name] < 0:
            raise ValueError(f"{name!r} has the loss {means[name]}; give a number from 0 to inf")
        return means[name]

    def __str__(self) -> str:
        factor = "" if self.factor == 1 else f"{self.factor:g} x "
        return f"{self.better} < {factor}{self.worse}"


def chain(*names: str, factor: float = 1.0) -> tuple[Order, ...]:
    """Each row is better than the next."""
    return tuple(Order(a, b, factor) for a, b in zip(names, names[1:], strict=False))


def verdicts(orders: Iterable[Order], rows: Mapping[str, Row]) -> list[tuple[Order, bool]]:
    """Each order, and whether it holds for the rows' means."""
    means = {name: row.mean for name, row in rows.items()}
    return [(order, order.holds(means)) for order in orders]
