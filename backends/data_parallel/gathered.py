"""Weights that are whole only while a layer computes: gathered before, given back after, on both ways.

Lecture section: data lifetimes. Lesson: 06_data_parallel. What a tape needs for it is what it has: an op
whose pullback runs before the layer's own, and a leaf whose gradient is final after them.

    forward     gather | layer              | give back
    tape               | Entered, layer's.. | gathered_again
    backward           | give back, ..layer | gather
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.op import OpResult, op
from minigrad.tape import current_tape
from minigrad.tensor import Parameter, Tensor

from .unit import Unit


class Lender:
    """Opens units for layers; with ``ahead`` it fetches the next one while one is in use.

    Next is what came next in the step before. All ranks take the same way through the model, so all fetch the
    same; nothing is fetched beyond the end of a step, where the weights change.
    """

    def __init__(self, *, ahead: bool = False):
        self.ahead = ahead
        self.before: list[Unit] = []
        self.now: list[Unit] = []

    def open(self, units: list[Unit], *, in_step: bool = True) -> None:
        for unit in units:
            closed = not unit.users
            unit.open()
            if self.ahead and closed and in_step:
                self.fetch_after(unit)

    def fetch_after(self, unit: Unit) -> None:
        i = len(self.now)
        self.now.append(unit)
        if self.before[i : i + 1] != [unit]:
            self.before = []  # another way through the model than before
        elif i + 1 < len(self.before):
            self.before[i + 1].fetch()

    def close(self, units: list[Unit]) -> None:
        for unit in units:
            unit.close()

    def end_step(self, units: list[Unit]) -> None:
        """Forget what was fetched and not used: after the update it is old."""
        for unit in units:
            unit.fetched()
        self.before, self.now = self.now, []


class Entered(Tensor):
    """Stands on the tape where a call of a layer begins: its gradient is final when the call is undone."""

    __slots__ = ("leave",)

    def __init__(self, leave: Callable[[], None]):
        super().__init__(np.zeros(0), requires_grad=True)
        self.leave = leave

    def accumulate_grad(self, g: Array, *, private: bool = True) -> None:
        self.leave()


@op
def gathered_again(out: Array, entered: Array, *, gather: Callable[[], None], lent: list[Array]) -> OpResult:
    """``out`` as it is, or a copy where it lies in memory that is lent; on the way back, gather first."""

    def to_out(g: Array) -> Array:
        gather()
        return g

    inside = any(array_module(out).may_share_memory(out, array) for array in lent)
    return out.copy() if inside else out, (to_out, lambda g: np.zeros(0))


def lend(layer: Module, units: list[Unit], lender: Lender) -> None:
    """Let ``layer.forward`` open ``units`` while it runs, and again while its pullbacks run.

    Raises TypeError, when called, where it returns anything but a Tensor.
    """
    forward = layer.forward

    def around(*inputs: Any, **settings: Any) -> Tensor:
        tape = current_tape.get()
        entered = Entered(lambda: lender.close(units))
        if tape is not None:
            tape.index_of(entered)
        lender.open(units, in_step=tape is not None)
        try:
            out = forward(*inputs, **settings)
            if not isinstance(out, Tensor):
                raise TypeError(
                    f"forward returned {type(out).__name__}; weights are gathered for layers that return one "
                    "Tensor: let it do so, or use stage=2"
                )
            leads_back = tape is not None and tape.index_of(out) is not None
            start = entered if leads_back else entered.data
            lent = [unit.whole for unit in units]
            return gathered_again(out, start, gather=lambda: lender.open(units), lent=lent)
        finally:
            lender.close(units)

    layer.forward = around


def lend_to_layers(model: Module, unit_of: dict[Tensor, Unit], lender: Lender) -> list[Module]:
    """Lend each module the units of the parameters that it holds itself; these modules."""
    needs: dict[Module, list[Unit]] = {}
    for _, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        unit = unit_of.get(value) if isinstance(value, Parameter) else None
        if unit is not None and unit not in needs.setdefault(owner, []):
            needs[owner].append(unit)
    for layer, units in needs.items():
        lend(layer, units, lender)
    return list(needs)
