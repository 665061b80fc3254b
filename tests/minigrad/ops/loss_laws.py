"""Laws of minigrad/ops/loss.py: what losses with settings are, as in PyTorch, written out for one row or
pixel after the other.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import Tensor
from minigrad.testing import on_device

Loss = Callable[..., Tensor]


def reduced(each: np.ndarray, reduction: str, divisor: float) -> Any:
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / divisor if divisor else math.nan


def cross_entropy_is_by_the_book(
    cross_entropy: Loss,
    logits: np.ndarray,
    labels: np.ndarray,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> None:
    """Labels are integers, or probabilities of the logits' shape."""
    classes, soft = logits.shape[1], labels.dtype.kind == "f"
    w = np.ones(classes) if weight is None else np.asarray(weight)
    each = np.zeros((logits.shape[0], *logits.shape[2:]))
    divisor = 0.0
    for place in np.ndindex(each.shape):
        index = (place[0], slice(None), *place[1:])
        log_p = logits[index] - math.log(np.exp(logits[index]).sum())
        if not soft and labels[place] == ignore_index:
            continue
        target = labels[index] if soft else np.eye(classes)[labels[place]]
        divisor += 1 if soft else float(w[labels[place]])
        smoothed = (1 - label_smoothing) * target + label_smoothing / classes
        each[place] = -(smoothed * w * log_p).sum()
    settings: dict[str, Any] = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
    value = cross_entropy(on_device(logits), on_device(labels), **settings, label_smoothing=label_smoothing)
    expected = reduced(each, reduction, divisor)
    np.testing.assert_allclose(value.numpy(), expected, rtol=1e-12, atol=1e-12, err_msg="cross-entropy")


def huber(d: float, delta: float) -> float:
    return d * d / 2 if abs(d) <= delta else delta * (abs(d) - delta / 2)


def of_pairs(f: Callable[[float, float], float], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    pairs = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    return np.array([f(a, b) for a, b in pairs]).reshape(x.shape)


def binary(x: float, t: float, weight: float, positive: float) -> float:
    p = 1 / (1 + math.exp(-x))
    return -weight * (positive * t * math.log(p) + (1 - t) * math.log(1 - p))


def divergence(x: float, t: float) -> float:
    return t * (math.log(t) - x) if t else 0.0


PAIRS: dict[str, tuple[Callable[[float, float], float], dict[str, Any]]] = {
    "mse": (lambda x, y: (x - y) ** 2, {}),
    "l1_loss": (lambda x, y: abs(x - y), {}),
    "huber_loss": (lambda x, y: huber(x - y, 0.75), {"delta": 0.75}),
    "smooth_l1_loss": (lambda x, y: huber(x - y, 0.75) / 0.75, {"beta": 0.75}),
    "kl_div": (divergence, {}),
    "binary_cross_entropy_with_logits": (
        lambda x, t: binary(x, t, 0.5, 3.0),
        {"weight": 0.5, "pos_weight": 3},
    ),
}


def a_loss_of_pairs_is_by_the_book(
    loss: Loss, name: str, x: np.ndarray, y: np.ndarray, reduction: str
) -> None:
    f, settings = PAIRS[name]
    divisor = len(x) if reduction == "batchmean" else x.size
    value = loss(on_device(x), on_device(y), **settings, reduction=reduction).numpy()
    np.testing.assert_allclose(value, reduced(of_pairs(f, x, y), reduction, divisor), rtol=1e-12, atol=1e-12)
