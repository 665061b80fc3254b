"""Laws of minigrad/nn/experts.py, minigrad/routing.py and minigrad/ops/grouped_linear.py: a mixture is three
loops, over rows, choices and tokens.

The loops compute with complex numbers too, whose imaginary part is then the derivative along a direction,
exact to rounding: choices go by real parts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minigrad import Tape, Tensor, nn, ops
from minigrad.device import to_host
from minigrad.forward_pass import ForwardPass
from minigrad.recompute import recomputed
from minigrad.testing import DEVICE, on_device
from minigrad.tokens import Tokens

STEP = 1e-40  # of a derivative; nothing is subtracted, so it may be as small


class Mixture(NamedTuple):
    """Sizes and settings of a drawn mixture; ``padding`` are tokens at the ends of rows."""

    rows: int = 2
    length: int = 5
    experts: int = 3
    choices: int = 2
    capacity: float = 1.0
    width: int = 2
    hidden: int = 3
    ties: bool = False
    padding: int = 0
    penalty: float = 0.3
    seed: int = 0

    def values(self, *shape: int, seed: int) -> np.ndarray:
        """Numbers, of which with ``ties`` sums are exact and often equal."""
        rng = np.random.default_rng([self.seed, seed])
        return rng.integers(-1, 2, shape).astype(float) if self.ties else rng.normal(size=shape)

    def layer(self, kind: type[nn.Experts] = nn.Experts) -> nn.Experts:
        settings = {"choices": self.choices, "capacity": self.capacity, "penalty": self.penalty}
        layer = kind(self.width, self.experts, hidden=self.hidden, **settings, rng=0, dtype=np.float64)
        for i, p in enumerate(layer.parameters()):
            p.data[...] = self.values(*p.shape, seed=i + 1)
        layer.to(device=DEVICE)
        return layer

    def x(self) -> np.ndarray:
        return self.values(self.rows, self.length, self.width, seed=0)

    def counted(self) -> np.ndarray:
        """Which tokens are no padding: the first row has more of it than the others."""
        counted = np.ones((self.rows, self.length), bool)
        for row in range(self.rows):
            counted[row, max(self.length - self.padding + row, 0) :] = False
        return counted

    def tokens(self) -> Tokens:
        """Two documents in a row, and padding."""
        document = np.where(self.counted(), np.arange(self.length)[None] // 3, -1)
        return Tokens(document=on_device(document)) if self.padding else Tokens()


def gelu(x: Any) -> Any:
    """x Phi(x), and in the imaginary part its derivative times that of x."""
    value = np.real(x)
    phi = np.array([(1 + math.erf(v / math.sqrt(2))) / 2 for v in value.ravel()]).reshape(value.shape)
    slope = phi + value * np.exp(-(value**2) / 2) / math.sqrt(2 * math.pi)
    return value * phi + 1j * slope * np.imag(x)


def by_loops(mixture: Mixture, x: Any, gate: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> tuple[Any, Any, int]:
    """The result (B, S, width), the penalty, and the number of dropped choices."""
    n_experts, y, penalty, dropped = len(gate), np.zeros(x.shape, complex), 0.0, 0
    x = np.asarray(x)
    for row, counted in zip(range(len(x)), mixture.counted(), strict=True):
        places = [token for token in range(x.shape[1]) if counted[token]]
        gates, ranking = {}, {}
        for token in places:
            scores = np.array([sum(x[row, token] * gate[e]) for e in range(n_experts)], complex)
            powers = np.exp(scores - np.real(scores).max())
            gates[token] = powers / sum(powers)
            by_gate = sorted(range(n_experts), key=lambda e, token=token: (-gates[token][e].real, e))
            ranking[token] = by_gate[: mixture.choices]
        room = [math.ceil(mixture.capacity * mixture.choices * len(places) / n_experts)] * n_experts
        for choice in range(mixture.choices):
            for token in places:
                e = ranking[token][choice]
                if not room[e]:
                    dropped += 1
                    continue
                room[e] -= 1
                all_chosen = sum(gates[token][other] for other in ranking[token])
                weight = gates[token][e] / (1 if mixture.choices == 1 else all_chosen)
                y[row, token] += weight * (w2[e] @ gelu(w1[e] @ x[row, token] + b1[e]) + b2[e])
        for e in range(n_experts) if places else ():
            share = sum(ranking[token][0] == e for token in places) / len(places)
            penalty += share * sum(gates[token][e] for token in places) / len(places)
    return y, penalty * mixture.penalty * n_experts / max(len(x), 1), dropped


def is_loops(mixture: Mixture, weight: float = 0.25, again: bool = False, layer: Any = None) -> int:
    """A layer has the value, the penalty and all gradients of the loops; returns the dropped choices.

    With ``again`` the layer runs a second time in backward.
    """
    layer = layer or mixture.layer()
    model = recomputed(nn.Sequential(layer), 1) if again else layer
    x, parameters = mixture.x(), [to_host(p.data).copy() for p in layer.parameters()]
    leaf = Tensor(on_device(x.copy()), requires_grad=True)
    forward_pass = ForwardPass(0, range(mixture.rows), tokens=mixture.tokens(), weight=weight)
    with forward_pass, Tape() as tape:
        y = model(leaf)
    seed = np.random.default_rng(7).normal(size=x.shape)
    tape.backward(y, on_device(seed))
    expected, penalty, dropped = by_loops(mixture, x, *parameters)
    np.testing.assert_allclose(to_host(y.data), expected.real, rtol=1e-13, atol=1e-13)
    assert abs(forward_pass.penalty() - np.real(penalty)) < 1e-13
    assert (layer.dropped, layer.routed) == (dropped, mixture.counted().sum() * mixture.choices)
    for i, tensor in enumerate([leaf, *layer.parameters()]):
        direction = np.random.default_rng(i).normal(size=tensor.shape)
        inputs: list[Any] = [x, *parameters]
        inputs[i] = inputs[i] + 1j * STEP * direction
        moved, moved_penalty, _ = by_loops(mixture, *inputs)
        slope = ((moved * seed).sum() + weight * moved_penalty).imag / STEP
        assert tensor.grad is not None, f"input {i} has no gradient"
        gradient = (to_host(tensor.grad) * direction).sum()
        assert abs(gradient - slope) < 1e-11 * (1 + abs(slope)), f"input {i} has {gradient}, not {slope}"
    return dropped


def one_expert_is_dense(mixture: Mixture) -> None:
    """One expert with room is two linear layers and a GELU, on the host bit for bit; its gate stays."""
    layer = mixture._replace(experts=1, choices=1, capacity=1.0, penalty=0.0).layer()
    x = on_device(mixture.x())
    leaves = [Tensor(x, requires_grad=True) for _ in range(2)]
    gate, *dense = layer.parameters()
    w1, b1, w2, b2 = (nn.Parameter(p.data[0].copy()) for p in dense)
    with Tape() as tape:
        y = layer(leaves[0])
    tape.backward(y, x)
    with Tape() as tape:
        z = ops.linear(ops.gelu(ops.linear(leaves[1], w1, b1)), w2, b2)
    tape.backward(z, x)
    bound = 0 if DEVICE == "numpy" else 1e-14  # cuBLAS has other products for stacks
    np.testing.assert_allclose(to_host(y.data), to_host(z.data), rtol=bound, atol=bound)
    assert gate.grad is not None and not gate.grad.any()
    for p, other in zip([*dense, leaves[0]], [w1, b1, w2, b2, leaves[1]], strict=True):
        assert p.grad is not None and other.grad is not None
        of_one = p.grad if p is leaves[0] else p.grad[0]
        np.testing.assert_allclose(to_host(of_one), to_host(other.grad), rtol=1e-14, atol=1e-14)


def penalty_of(layer: nn.Experts, x: np.ndarray) -> float:
    """The penalty that a layer adds to the loss of tokens x."""
    with ForwardPass(0, range(len(x))) as forward_pass:
        layer(on_device(x))
    return forward_pass.penalty()
