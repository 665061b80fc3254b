"""Laws of backends/first_difference.py and recording.py: in a right step nothing differs, and a fault is
named where it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch, shares
from minigrad.device import array_module
from minigrad.forward_pass import current_pass
from minigrad.module import Module
from minigrad.op import OpResult, op
from minigrad.serial import Serial
from minigrad.tensor import Tensor
from tests import nets
from tests.backends import proof_layouts

WIDTHS = (4, 6, 5, 3, 6, 3)
"""The numbers of features between the linear layers of the net."""
KINDS = ("forward", "backward", "weight", "bias")


class Fault(NamedTuple):
    """What goes wrong: in a layer, on a rank, and for one sample of the batch, by less than 1e-5."""

    kind: str
    layer: int
    rank: int
    sample: int


@op
def faulty(x: Any, *, kind: str, rows: np.ndarray) -> OpResult:
    """x, to which, or to whose gradient, something is added in the ``rows``."""
    wrong = 1e-6 * array_module(x).asarray(rows.reshape(-1, 1), x.dtype)
    return x + wrong * (kind == "forward"), (lambda g: g + wrong * (kind == "backward"),)


@op
def faulty_parameter(p: Any, *, share: float) -> OpResult:
    """p, to whose gradient something is added."""
    return p * 1.0, (lambda g: g + 1e-6 * share,)


class Layer(Module):
    """A linear layer and a tanh; a ``fault`` of its own, which some rank may have."""

    def __init__(self, n_in: int, n_out: int, rng: np.random.Generator, fault: Fault | None):
        inner = nn.Linear(n_in, n_out, rng=rng)
        self.weight, self.bias, self.fault = inner.weight, inner.bias, fault

    def forward(self, x: Any) -> Tensor:
        weight, bias, current = self.weight, self.bias, current_pass.get()
        if self.fault is None or current is None:
            return ops.tanh(ops.linear(x, weight, bias))
        kind, rows = self.fault.kind, np.asarray(current.places) == self.fault.sample
        if kind == "weight":
            weight = faulty_parameter(weight, share=rows.sum())
        if kind == "bias":
            bias = faulty_parameter(bias, share=rows.sum())
        x = faulty(x, kind=kind, rows=rows) if kind == "backward" else x
        y = ops.tanh(ops.linear(x, weight, bias))
        return faulty(y, kind=kind, rows=rows) if kind == "forward" else y


def net(rng: np.random.Generator, fault: Fault | None = None) -> nn.Sequential:
    layers = [
        Layer(n, m, rng, fault if fault is not None and fault.layer == i else None)
        for i, (n, m) in enumerate(zip(WIDTHS, WIDTHS[1:], strict=False))
    ]
    return nn.Sequential(*layers, nn.Linear(3, 3, rng=rng))


class Ranks(NamedTuple):
    """How many share the batch, the layers, and the last layer, and the micro-batches of a pipeline."""

    data: int
    pipe: int
    model: int
    micro: int

    def strategy(self, comm: Communicator) -> Stack:
        grid = Grid(comm, data=self.data, pipe=self.pipe, model=self.model)
        return Stack(
            DataParallel(grid.data),
            Pipeline(grid.pipe, micro_batches=self.micro, bounds=self.bounds),
            ModelParallel(grid.model, {"5": "column"}),
        )

    def shows(self, fault: Fault, samples: int) -> bool:
        """Whether the faulty rank computes the layer for the sample, and its result counts."""
        data, pipe = divmod(fault.rank // self.model, self.pipe)
        mine, bounds = shares(samples, self.data)[data], self.bounds
        reached = fault.kind != "backward" or fault.layer > 0  # nothing needs the gradient of the batch
        layers = range(bounds[pipe], bounds[pipe + 1])
        return reached and fault.layer in layers and mine.start <= fault.sample < mine.stop

    @property
    def bounds(self) -> tuple[int, ...]:
        return (0, *(share.stop for share in shares(len(WIDTHS), self.pipe)))

    def micro_of(self, fault: Fault, samples: int) -> int:
        """The number of the sample's micro-batch on its ranks."""
        mine = shares(samples, self.data)[fault.rank // (self.pipe * self.model)]
        parts = [share for share in shares(mine.stop - mine.start, self.micro) if share.stop > share.start]
        place = fault.sample - mine.start
        return next(n for n, share in enumerate(parts) if share.start <= place < share.stop)


def names_the_fault(first_difference: Any, ranks: Ranks, fault: Fault, samples: int) -> None:
    """The layer, the rank, the direction and the micro-batch; nothing where the fault does not show."""
    rng = np.random.default_rng(samples)
    batch = Batch(rng.normal(size=(samples, 4)), rng.integers(0, 3, samples))

    def work(comm: Communicator) -> Any:
        build = partial(net, fault=fault if comm.rank == fault.rank else None)
        how = {"oracle": net, "serial": Serial(ranks.micro)}
        return first_difference(ranks.strategy, comm, build, ops.cross_entropy, batch, **how)

    located = run_ranks(ranks.data * ranks.pipe * ranks.model, work)
    assert all(one == located[0] for one in located), "ranks do not agree where the first difference is"
    first = located[0].first
    if not ranks.shows(fault, samples):
        assert first is None, f"nothing is wrong, and it says {first}"
        return
    assert first is not None, f"{fault} is not seen"
    if fault.kind in ("weight", "bias"):
        said = (first.direction, first.name, "before ranks reduce" in first.what)
        assert said == ("parameters", f"{fault.layer}.{fault.kind}", True), f"{said} of {fault}"
        return
    end = {"forward": "output", "backward": "input"}[fault.kind]
    said = (first.direction, first.name, first.end, first.rank, first.micro)
    expected = (fault.kind, str(fault.layer), end, fault.rank, ranks.micro_of(fault, samples))
    assert said == expected, f"{said} of {fault}"


def agrees(name: str) -> None:
    """In the step of a layout, which is right, nothing differs, and nearly everything is compared."""
    layout = proof_layouts.LAYOUTS[name]
    located = layout.locate()
    assert located.first is None, f"{name}: {located.first}"
    assert located.left_out <= located.compared / 10, f"{located} leaves much out"


def sees_every_layer(first_difference: Any, name: str, layers: int) -> None:
    """Of a Sequential: two tensors of each layer and their gradients, but for that of the batch."""
    layout = proof_layouts.LAYOUTS[name]
    how = {"serial": Serial(layout.micro)}
    step = layout.strategy, layout.build, layout.loss, layout.batch

    def work(comm: Communicator) -> Any:
        strategy, build, loss, batch = step
        parameters = len(build(np.random.default_rng(0)).named_parameters())
        micro = strategy(comm).micro_batches
        located = first_difference(strategy, comm, build, loss, batch, **how)
        return located.compared, comm.size * micro * (4 * layers - 1) + parameters

    compared, expected = run_ranks(layout.ranks, work)[0]
    assert compared == expected, f"compared {compared} tensors of {expected}"


class WithoutSum(DataParallel):
    """Each rank keeps its own gradient of one parameter."""

    def finish(self, model: Any, loss: float) -> float:
        weight = model.last.weight
        own = weight.grad.copy()
        loss = super().finish(model, loss)
        weight.grad = own
        return loss


def names_a_missing_sum(first_difference: Any) -> None:
    """The parameter's terms add up to the serial gradient, which it is not after the reduction."""

    def work(comm: Communicator) -> Any:
        return first_difference(
            WithoutSum, comm, nets.Reusing, ops.cross_entropy, proof_layouts.REUSING
        ).first

    first = run_ranks(3, work)[0]
    assert (first.direction, first.name) == ("parameters", "last.weight"), first
    assert "after ranks reduce it" in first.what, first.what
