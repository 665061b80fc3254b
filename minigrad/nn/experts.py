"""A mixture of experts: each token is transformed by the few networks that a gate chooses for it.

Lecture section: data and model parallelism together. Lesson: 18_experts.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..device import array_module
from ..forward_pass import current_pass
from ..integer_settings import integer
from ..lookup import check_choice
from ..module import Module
from ..own_state import OwnState
from ..routing import Routes, route
from ..tensor import Parameter, Tensor
from ..tensor_base import as_tensor
from ..tokens import Tokens, current_tokens
from .attention import check_tokens
from .init import Rng, generator, uniform

Transform = Callable[[Tensor, list[int]], Tensor]
"""What experts make of rows (n, width), of which expert e has the next ``counts[e]``."""
Exchange = Callable[[Tensor, list[int], Transform], Tensor]
"""What the experts of all ranks make of rows; the ``Transform`` is what those of this rank make of some."""


class Experts(Module, OwnState):
    """Tokens (B, S, width) go to a few of ``experts``, networks of ``hidden`` neurons with a GELU.

    The gates of a token are the softmax of its products with ``gate``, and the ``choices`` of largest gates
    are its experts. Its result is the sum of what they make of it, weighted by their gates (Fedus et al.
    2021, Switch, with one choice), which with several choices are divided by their sum (Lepikhin et al. 2020,
    GShard). Each row gives an expert ``capacity`` times the places of an even share (see ``route``); a choice
    without a place, and padding, gives 0. So the result of a token depends on the length of its row, and with
    several choices on later tokens too, whose first choices come before its second one: a row is then not
    causal. With ``capacity_per`` "batch" instead of "sample" all tokens of a call are one row, so a token
    depends on who else is there, as with a batch-norm: on its rank, and in its micro-batch.

    In the steps of a strategy the loss has ``penalty`` * E sum_e f_e P_e as a further term, the mean over
    rows (Fedus et al. 2021): f_e is the share of the tokens whose first choice is e, before any is dropped
    and without a gradient, and P_e the mean gate. It is ``penalty`` where tokens and gates are even, and
    ``penalty`` * E where all have chosen one expert with the gate 1. With a tape by hand there is none,
    unless it is inside a ``ForwardPass``, to whose ``penalties`` the value is appended.

    ``routed`` and ``dropped`` count choices, and those without a place. ``hidden`` is by default 4 width.
    Raises ValueError for settings out of range, and for x without these axes.

    >>> from minigrad import nn
    >>> nn.Experts(8, 4, rng=0)(np.zeros((3, 5, 8))).shape
    (3, 5, 8)
    """

    own_state = ("routed", "dropped")
    token_wise = True
    exchange: Exchange | None = None  # where other ranks hold the other experts

    def __init__(
        self,
        width: int,
        experts: int,
        *,
        hidden: int | None = None,
        choices: int = 1,
        capacity: float = 1.25,
        penalty: float = 0.01,
        capacity_per: str = "sample",
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        width, experts = integer(width, "width", 1), integer(experts, "experts", 1)
        hidden = 4 * width if hidden is None else integer(hidden, "hidden", 1)
        check_mixture(experts, integer(choices, "choices", 1), capacity, penalty)
        check_choice("capacity_per", capacity_per, ("sample", "batch"))
        self.capacity_per = capacity_per
        rng = generator(self, rng)
        self.choices, self.capacity, self.penalty = choices, capacity, penalty
        self.routed = self.dropped = 0
        self.gate = Parameter(uniform(rng, (experts, width), width, dtype))
        self.weight1 = Parameter(uniform(rng, (experts, hidden, width), width, dtype))
        self.bias1 = Parameter(uniform(rng, (experts, hidden), width, dtype))
        self.weight2 = Parameter(uniform(rng, (experts, width, hidden), hidden, dtype))
        self.bias2 = Parameter(uniform(rng, (experts, width), hidden, dtype))

    @property
    def stacks(self) -> list[Parameter]:
        """The parameters of the experts that are here, each with an expert on axis 0."""
        return [self.weight1, self.bias1, self.weight2, self.bias2]

    @property
    def is_whole(self) -> bool:
        return self.exchange is None

    def share(self, own: slice, exchange: Exchange, capacity_per: str) -> None:
        """Keep only the experts ``own``; ``exchange`` leads the rows of tokens to all experts, and back."""
        for parameter in self.stacks:
            if len(parameter.data) == len(self.gate.data):  # mixtures may share one, which is cut already
                parameter.data, parameter.grad = parameter.data[own].copy(), None
        self.exchange, self.capacity_per = exchange, capacity_per

    def forward(self, x: Any) -> Tensor:
        x = as_tensor(x)
        check_tokens(x.shape, "a mixture of experts")
        tokens = current_tokens()
        tokens = Tokens() if tokens is None else tokens
        if self.capacity_per == "batch":
            rows, length, width = x.shape
            one_row = ops.reshape(x, shape=(1, rows * length, width))
            return ops.reshape(self.of_rows(one_row, tokens.in_one_row()), shape=x.shape)
        return self.of_rows(x, tokens)

    def of_rows(self, x: Tensor, tokens: Tokens) -> Tensor:
        """What becomes of tokens x, of which each row brings its own places."""
        gates = self.gates(x)
        routes = route(gates.data, choices=self.choices, capacity=self.capacity, tokens=tokens)
        self.routed += routes.choices
        self.dropped += routes.dropped
        return self.carrying_penalty(self.mixture(x, gates, routes), gates, routes)

    def gates(self, x: Tensor) -> Tensor:
        """The gates (B, S, E), from a product for each row, so that they are equal wherever the row is."""
        return ops.softmax(ops.matmul(x, ops.transpose(self.gate)), axis=2)

    def mixture(self, x: Tensor, gates: Tensor, routes: Routes) -> Tensor:
        """The weighted sum of what the experts make of tokens."""
        xp, (rows, length, width), k = array_module(x.data), x.shape, self.choices
        tokens, slots = xp.asarray(routes.tokens), xp.asarray(routes.slots)
        weights = ops.gather(gates, xp.asarray(routes.experts), axis=2)
        if k > 1:
            weights = weights / ops.sum(weights, axis=2, keepdims=True)
        sent = ops.embedding(ops.reshape(x, shape=(rows * length, width)), tokens)
        y = self.transform(sent, routes.counts.tolist())
        y = y * ops.embedding(ops.reshape(weights, shape=(rows * length * k, 1)), slots)
        return ops.reshape(ops.segment_sum(y, tokens, count=rows * length), shape=x.shape)

    def transform(self, x: Tensor, counts: list[int]) -> Tensor:
        """What the experts make of rows x (n, width), of which expert e has the next ``counts[e]``."""
        return self.own(x, counts) if self.exchange is None else self.exchange(x, counts, self.own)

    def own(self, x: Tensor, counts: list[int]) -> Tensor:
        """What the experts that are here make of rows, as ``transform``."""
        h = ops.gelu(ops.grouped_linear(x, self.weight1, self.bias1, counts=counts))
        return ops.grouped_linear(h, self.weight2, self.bias2, counts=counts)

    def carrying_penalty(self, y: Tensor, gates: Tensor, routes: Routes) -> Tensor:
        """``y``, which in a forward pass carries the penalty of unbalanced experts to the loss."""
        current = current_pass.get()
        if current is None or not self.penalty:
            return y
        rows, _, n_experts = gates.shape
        factors = routes.shares / np.maximum(routes.lengths, 1)[:, None]  # the mean over a row, with its f
        factors = factors[:, None] * routes.counted[:, :, None] * (self.penalty * n_experts / max(rows, 1))
        if gates.dtype.itemsize == 2:  # where the factors of a long row would be 0
            gates = ops.astype(gates, dtype=np.float32)
        penalty = ops.sum(gates * array_module(gates.data).asarray(factors, gates.dtype))
        current.penalties.append(penalty.data)
        return ops.with_penalty(y, penalty, weight=current.weight)

    def describe(self) -> str:
        hidden, here, there = self.weight1.shape[1], len(self.weight1.data), len(self.gate.data)
        experts = there if self.is_whole else f"{here} of {there}"
        return (
            f"{self.gate.shape[1]}, {experts}, hidden={hidden}, choices={self.choices}, "
            f"capacity={self.capacity}, penalty={self.penalty}"
        )


def share_dropped(model: Module, evaluate: Callable[[], object]) -> float | None:
    """The share of choices that find no place in ``evaluate()``; None for a model without experts."""
    mixtures = {module for module in model.modules() if isinstance(module, Experts)}
    before = [(mixture, mixture.routed, mixture.dropped) for mixture in mixtures]
    if not before:
        return None
    evaluate()
    routed = sum(mixture.routed - earlier for mixture, earlier, _ in before)
    return sum(mixture.dropped - earlier for mixture, _, earlier in before) / max(routed, 1)


def check_mixture(experts: int, choices: int, capacity: float, penalty: float) -> None:
    """Raise ValueError unless tokens can choose so many of the experts, with such capacity and penalty."""
    if choices > experts:
        raise ValueError(f"each token can choose at most the {experts} experts that there are, not {choices}")
    for name, value in (("capacity", capacity), ("penalty", penalty)):
        if not isinstance(value, numbers.Real) or not 0 <= value < math.inf:  # NaN too
            raise ValueError(f"{name} is a number of at least 0, got {value}")
