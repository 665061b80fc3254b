"""Laws of backends/comm/gradient_types.py and typed_tape.py: a forward pass is refused exactly where
gradients are not those of one machine; each rule is what its op does with values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from backends import laws
from backends.comm import differentiable, run_ranks
from backends.comm.communicator import Communicator
from backends.comm.gradient_types import REPLICATED, SPLIT, SPLIT_INPUTS, GradientType
from backends.comm.typed_tape import GradientTypeError, TypedTape
from minigrad import ops
from minigrad.data import shares
from minigrad.device import Array
from minigrad.tape import Tape
from minigrad.tensor import Parameter, Tensor

# Rules

OPS: Mapping[str, Callable[..., Tensor]] = {
    name: getattr(differentiable, name) for name in (
        "fan_out", "fan_in", "all_reduce", "share_out", "join_in", "all_gather", "reduce_scatter",
        "all_to_all", "broadcast", "sum_to", "scatter", "gather",
    )
}  # fmt: skip
"""Collectives, by name."""


def as_said(arrays: Sequence[Array], spread: str) -> bool:
    """Whether ranks hold the same array exactly where it is replicated."""
    return (spread == "replicated") == all(np.array_equal(arrays[0], x) for x in arrays)


def rule_holds(name: str, rule: tuple[GradientType, GradientType], ranks: int, seed: int) -> None:
    """Assert that an op makes of a value, and its pullback of a gradient, what ``rule`` says.

    <y, g> = <x, d> in sums over ranks, where what is replicated, as its gradient is, counts once.
    """
    takes, gives = rule

    def work(comm: Communicator) -> tuple[Array, Array, float]:
        own, n = seed + 1000 + comm.rank, 2 * comm.size
        x = Tensor(laws.integers((n, 2), seed if takes.value == "replicated" else own), requires_grad=True)
        tape = TypedTape({x: {comm: takes}})
        with tape:
            y = OPS[name](x, comm=comm)
        types = tape.types_of(y)
        assert types == ({} if gives == REPLICATED else {comm: gives}), f"{name} gave {types}"
        g = laws.integers(y.shape, seed + 1 if gives.gradient == "replicated" else own + 50)
        tape.backward(y, g)
        assert x.grad is not None
        difference = share(gives, comm) * (y.data * g).sum() - share(takes, comm) * (x.data * x.grad).sum()
        return y.data, x.grad, difference

    values, gradients, differences = zip(*run_ranks(ranks, work), strict=True)
    assert as_said(values, gives.value), f"{name}: a value that is not {gives.value}"
    assert as_said(gradients, takes.gradient), f"{name}: a gradient that is not {takes.gradient}"
    assert abs(sum(differences)) < 1e-9, f"{name}: the pullback from {gives} to {takes} is no adjoint"


def share(kind: GradientType, comm: Communicator) -> float:
    return 1 / comm.size if kind == REPLICATED else 1.0


# Blocks of two layers, every way to sum and not to sum

FRONTS = ("nothing", "fan_out")
ENDS = ("nothing", "fan_in", "all_reduce", "fan_in, fan_out", "fan_in, fan_in")
BIASES = (
    "none",
    "in each term",
    "in each term, through fan_out",
    "after the sum",
    "after the sum, through fan_out",
)
RESIDUALS = ("none", "of x", "of what the columns get")
MIDDLES = ("linear layers", "a tanh of the terms")


class Block(NamedTuple):
    """y = tanh(x W1.T) W2.T, with W1 split by its outputs and W2 by its inputs, and how it communicates."""

    front: str
    end: str
    bias: str
    residual: str
    middle: str

    def output(self, comm: Communicator, x: Tensor, w1: Tensor, w2: Tensor, b: Tensor) -> Tensor:
        """``comm`` of one rank: the block of one machine."""
        alone = comm.size == 1
        fan_out = lambda t: t if alone else differentiable.fan_out(t, comm=comm)  # noqa: E731
        front = x if self.front == "nothing" else fan_out(x)
        terms = {"in each term": (b,), "in each term, through fan_out": (fan_out(b),)}
        bias = terms.get(self.bias, ())
        y = ops.linear(ops.tanh(ops.linear(front, w1)), w2, *bias)
        if self.middle == "a tanh of the terms":
            y = ops.tanh(y)
        if not alone:
            for end in () if self.end == "nothing" else self.end.split(", "):
                y = getattr(differentiable, end)(y, comm=comm)
        if self.bias == "after the sum":
            y = y + b
        elif self.bias == "after the sum, through fan_out":
            y = y + fan_out(b)
        residual = {"none": None, "of x": x, "of what the columns get": front}[self.residual]
        return y if residual is None else y + residual


BLOCKS = [Block(*way) for way in product(FRONTS, ENDS, BIASES, RESIDUALS, MIDDLES)]


def arrays(seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in ((3, 4), (5, 4), (4, 5), (4,))]


def step(comm: Communicator, block: Block) -> tuple[str, dict[str, Array]]:
    """What the types say of a block, nothing if it is right; its loss and this rank's gradients."""
    x, w1, w2, b = arrays()
    own = shares(5, comm.size)[comm.rank]
    leaves = {"x": Tensor(x, requires_grad=True)}
    leaves |= {"w1": Parameter(w1[own]), "w2": Parameter(w2[:, own]), "b": Parameter(b)}
    types: Any = {leaves["w1"]: {comm: SPLIT}, leaves["w2"]: {comm: SPLIT_INPUTS}}

    def loss() -> Tensor:
        y = block.output(comm, *leaves.values())
        return ops.sum(y * y)

    said = ""
    try:
        with TypedTape(types, leaves) as typed:
            value = loss()
        typed.check_loss(value)
    except GradientTypeError as error:
        said = str(error)
    with Tape() as tape:
        value = loss()
    tape.backward(value)
    grads = {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    return said, grads | {"loss": value.data}


def block_is_refused_exactly_where_it_is_wrong(block: Block, ranks: int) -> str:
    """Compare the verdict, on every rank alike, with gradients of one machine; returns the verdict."""
    [(_, serial)] = run_ranks(1, lambda comm: step(comm, block))
    results = run_ranks(ranks, lambda comm: step(comm, block))
    verdicts = {said for said, _ in results}
    assert len(verdicts) == 1, f"ranks say different things of {block}: {verdicts}"
    right = True
    for own, (_, grads) in zip(shares(5, ranks), results, strict=True):
        parts = {"w1": own, "w2": (slice(None), own)}
        for name, g in grads.items():
            right = right and np.allclose(g, serial[name][parts.get(name, ...)], rtol=1e-10, atol=1e-12)
    (said,) = verdicts
    assert right == (not said), f"{block} is {'right' if right else 'wrong'}, and the types say {said!r}"
    return said
