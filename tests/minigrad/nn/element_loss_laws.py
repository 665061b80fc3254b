"""Laws of minigrad/nn/loss.py: a loss is its formula, also of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Tensor, nn
from minigrad.data import shares

Make = Callable[..., Any]


def huber(d: np.ndarray, delta: float) -> np.ndarray:
    return np.where(abs(d) <= delta, d * d / 2, delta * (abs(d) - delta / 2))


FORMULAS: dict[str, tuple[Make, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "MSELoss": (nn.MSELoss, lambda x, y: (x - y) ** 2),
    "L1Loss": (nn.L1Loss, lambda x, y: abs(x - y)),
    "HuberLoss": (lambda **s: nn.HuberLoss(delta=0.4, **s), lambda x, y: huber(x - y, 0.4)),
    "SmoothL1Loss": (lambda **s: nn.SmoothL1Loss(beta=0.4, **s), lambda x, y: huber(x - y, 0.4) / 0.4),
    "BCEWithLogitsLoss": (
        lambda **s: nn.BCEWithLogitsLoss(pos_weight=2.0, weight=[0.5, 1.0, 3.0], **s),
        lambda x, y: np.array([0.5, 1, 3]) * (2 * y * np.log1p(np.exp(-x)) + (1 - y) * np.log1p(np.exp(x))),
    ),
}


def is_by_the_book(name: str, x: np.ndarray, y: np.ndarray, reduction: str, parts: int = 2) -> None:
    """The loss of a batch, and what a backend makes of its parts, are the formula's mean or sum."""
    make, formula = FORMULAS[name]
    loss, each = make(reduction=reduction), formula(x, y)
    expected = each.mean() if reduction == "mean" else each.sum()
    np.testing.assert_allclose(loss(Tensor(x), y).item(), expected, rtol=1e-12)
    np.testing.assert_allclose(loss.total(Tensor(x), y).item() / loss.divisor(y), expected, rtol=1e-12)
    of_parts = loss.for_parts_of(y)
    terms = [
        len(y[s]) / len(y) * of_parts(Tensor(x[s]), y[s]).item() for s in shares(len(y), parts) if len(y[s])
    ]
    np.testing.assert_allclose(sum(terms), expected, rtol=1e-12)


def nll_is_by_the_book(
    make: Make, log_p: np.ndarray, labels: np.ndarray, weight: Any, ignored: int | None
) -> None:
    """The mean of -log p of labels, weighted, without those that are ignored."""
    factors = np.array([0.0 if y == ignored else 1.0 if weight is None else weight[y] for y in labels])
    terms = [-f * row[y] for f, row, y in zip(factors, log_p, labels, strict=True)]
    loss = make(weight=weight, ignore_index=ignored)
    expected = sum(terms) / factors.sum()
    np.testing.assert_allclose(loss(Tensor(log_p), labels).item(), expected, rtol=1e-12)
    of_parts = loss.for_parts_of(labels)
    halves = [s for s in shares(len(labels), 2) if s.stop > s.start]
    parts = [len(labels[s]) / len(labels) * of_parts(Tensor(log_p[s]), labels[s]).item() for s in halves]
    np.testing.assert_allclose(sum(parts), expected, rtol=1e-12)
