"""Laws of ops at extreme inputs: offsets, long tails, infinities, NaN, ties. They take the op under test.

Values and gradients are compared with closed forms in extended precision (where the machine has it), and with
PyTorch's conventions, element by element, written out in Python.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minigrad import Tape, Tensor
from minigrad.device import to_host
from minigrad.testing import is_float, on_device

Op = Callable[..., Tensor]


def value_and_gradients(f: Op, *inputs: Any, seed: Any = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """The value of ``f``, and the gradients of the float inputs."""
    with Tape() as tape, np.errstate(all="ignore"):
        leaves = [Tensor(on_device(x), requires_grad=is_float(x)) for x in inputs]
        y = f(*leaves)
        tape.backward(y, None if seed is None else on_device(seed))
    return y.numpy(), [to_host(x.grad) for x in leaves if x.grad is not None]


def near(actual: np.ndarray, exact: Any, tolerance: Any, what: str) -> None:
    """``actual`` has ``exact``'s infinities and NaN, and elsewhere at most ``tolerance`` besides."""
    exact = np.asarray(exact, np.longdouble)
    assert actual.shape == exact.shape, f"{what} has shape {actual.shape}, not {exact.shape}"
    finite = np.isfinite(exact)
    assert np.array_equal(actual[~finite], exact[~finite], equal_nan=True), f"{what}: {actual} for {exact}"
    wrong = ~(np.abs(actual[finite] - exact[finite]) <= np.broadcast_to(tolerance, exact.shape)[finite])
    assert not wrong.any(), f"{what}: {actual[finite][wrong]} for {exact[finite][wrong]}"


# Softmax and what is made of it. Shifting by the maximum rounds a logit by half an eps of its distance; the
# exponentials, their sum and its logarithm add a few eps more for each of at most 8 classes.


def softmax_survives_offsets(softmax: Op, log_softmax: Op, x: np.ndarray, axis: int) -> None:
    shifted = exact_shift(x, axis)
    logs = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    bound = 32 * np.finfo(x.dtype).eps * (1 + np.abs(logs))
    y = log_softmax(on_device(x), axis=axis).numpy()
    near(y, logs, bound, "log_softmax")
    assert not (y > 0).any(), "log_softmax gives a probability above 1"
    near(softmax(on_device(x), axis=axis).numpy(), np.exp(logs), bound, "softmax")


def logsumexp_survives_offsets(logsumexp: Op, x: np.ndarray, axis: Any) -> None:
    """The result is as large as the offset, and so is its rounding; the gradient is the softmax."""
    shifted = exact_shift(x, axis)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    exact = (np.log(total) + x.max(axis=axis, keepdims=True).astype(np.longdouble)).sum(axis=axis)
    eps = np.finfo(x.dtype).eps
    y, (dx,) = value_and_gradients(lambda x: logsumexp(x, axis=axis), x, seed=np.ones(exact.shape))
    near(y, exact, 32 * eps * (1 + np.abs(exact)), "logsumexp")
    near(dx, np.exp(shifted) / total, 32 * eps * (1 + np.abs(shifted)), "the gradient of logsumexp")


def variance_survives_offsets(var: Op, x: np.ndarray, axis: Any) -> None:
    """Deviations from a rounded mean are few eps off, and so is what they have in common taken away again."""
    eps, deviations = np.finfo(x.dtype).eps, x.astype(np.longdouble)
    for _ in range(2):
        deviations = deviations - deviations.mean(axis=axis, keepdims=True)
    exact = (deviations**2).mean(axis=axis)
    y, (dx,) = value_and_gradients(lambda x: var(x, axis=axis), x, seed=np.ones(np.shape(exact)))
    rest = (x.size * eps) ** 2 * np.abs(x).max()
    near(y, exact, 64 * eps * exact + rest**2, "var")
    bound = 64 * eps * np.abs(deviations).max() + rest
    near(dx, 2 * deviations * (exact.size / x.size), bound, "the gradient of var")


def normalisation_survives_offsets(
    norm: Op, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, g: np.ndarray, axis: int
) -> None:
    """Deviations along ``axis`` lose as many digits as the mean is larger than they are, and no more."""
    wide, w, b, seed = (a.astype(np.longdouble) for a in (x, weight, bias, g))
    mean = wide.mean(axis=axis, keepdims=True)
    scale = 1 / np.sqrt(((wide - mean) ** 2).mean(axis=axis, keepdims=True) + 1e-5)
    normal, gw = (wide - mean) * scale, seed * w
    along = (gw * normal).mean(axis=axis, keepdims=True)
    exact = scale * (gw - gw.mean(axis=axis, keepdims=True) - normal * along)
    y, (dx, dw, db) = value_and_gradients(norm, x, weight, bias, seed=g)
    lost = 32 * np.finfo(x.dtype).eps * float(1 + (np.abs(mean) * scale).max())
    near(y, normal * w + b, lost * (np.abs(w) * (1 + np.abs(normal)) + np.abs(b)), "the value")
    near(dx, exact, lost * float((scale * np.abs(gw).max()).max()), "the gradient of x")
    near(dw, (seed * normal).sum(axis=0), lost * np.abs(seed).sum(axis=0), "the gradient of the weight")
    near(db, seed.sum(axis=0), lost * np.abs(seed).sum(axis=0), "the gradient of the bias")


def cross_entropy_survives_offsets(cross_entropy: Op, x: np.ndarray, labels: np.ndarray) -> None:
    shifted = exact_shift(x, 1)
    p = np.exp(shifted)
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(x))
    losses = -shifted[rows, labels] + np.log(np.exp(shifted).sum(axis=1))
    eps = np.finfo(x.dtype).eps
    y, (dx,) = value_and_gradients(lambda x: cross_entropy(x, on_device(labels)), x)
    near(y, losses.mean(), 32 * eps * (1 + np.abs(losses).mean()), "cross_entropy")
    p[rows, labels] -= 1
    near(dx, p / len(x), 32 * eps * (1 + np.abs(shifted)), "the gradient of cross_entropy")


def exact_shift(x: np.ndarray, axis: Any) -> np.ndarray:
    x = x.astype(np.longdouble)
    return x - x.max(axis=axis, keepdims=True)


def logsumexp_knows_infinities(logsumexp: Op, row: np.ndarray) -> None:
    """-inf counts nothing, inf is all, NaN is NaN; the infinitely smaller have no share in the gradient."""
    y, (dx,) = value_and_gradients(logsumexp, row)
    if np.isnan(row).any():
        assert np.isnan(y)
    elif not row.size or row.max() == -np.inf:
        assert y == -np.inf
    elif row.max() == np.inf:
        assert y == np.inf and not dx[row < np.inf].any()
    else:
        exact = np.log(np.exp(row.astype(np.longdouble) - row.max()).sum()) + row.max()
        near(y, exact, 32 * np.finfo(row.dtype).eps * (1 + abs(exact)), "logsumexp")
        assert not dx[row == -np.inf].any() and abs(dx.sum() - 1) < 32 * np.finfo(row.dtype).eps


# The logistic function. Exponential, sum and quotient round by a few eps of the result, however small it is.


def logistic(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x.astype(np.longdouble)))
    return np.where(x < 0, e, 1) / (1 + e)


def sigmoid_keeps_its_tail(sigmoid: Op, x: np.ndarray) -> None:
    """Value and, below 0, gradient have all their digits; above, 1 - y has those that y leaves it."""
    exact, eps, least = logistic(x), np.finfo(x.dtype).eps, np.finfo(x.dtype).tiny
    y, (dx,) = value_and_gradients(sigmoid, x, seed=np.ones(x.shape))
    near(y, exact, 8 * eps * exact + least, "sigmoid")
    slope = exact * logistic(-x)
    near(dx, slope, 16 * eps * np.where(x < 0, slope, 1) + least, "the gradient of sigmoid")


def gelu_keeps_its_tail(gelu: Op, x: np.ndarray) -> None:
    """x times the share of it; the exponent of the share rounds by some eps of itself."""
    wide = x.astype(np.longdouble)
    z = 2 * np.sqrt(2 / np.longdouble(np.pi)) * (wide + 0.044715 * wide**3)
    eps, least = np.finfo(x.dtype).eps, np.finfo(x.dtype).tiny
    bound = 16 * eps * (1 + np.abs(z)) * np.abs(wide) * logistic(z) + least * (1 + np.abs(wide))
    near(gelu(on_device(x)).numpy(), wide * logistic(z), bound, "gelu")


def exact_gelu_keeps_its_tail(gelu: Op, x: np.ndarray) -> None:
    """Value and slope are x Phi(x) and Phi(x) + x phi(x), but for a rounding of x by some eps."""
    wide, eps, least = x.astype(np.longdouble), np.finfo(x.dtype).eps, np.finfo(x.dtype).tiny
    share = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in x.astype(float).ravel()]).reshape(x.shape)
    with np.errstate(invalid="ignore"):  # infinity times 0 is NaN
        density = wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.longdouble(np.pi))
        value = wide * share
    rounding = 16 * eps * (1 + wide * wide)
    y, (dx,) = value_and_gradients(gelu, x, seed=np.ones(x.shape))
    near(y, value, rounding * np.abs(value) + least * (1 + np.abs(wide)), "gelu")
    bound = rounding * (share + np.abs(density)) + least * (1 + wide * wide)
    near(dx, share + density, bound, "the gradient of gelu")


def binary_cross_entropy_keeps_its_tail(loss: Op, x: np.ndarray, targets: np.ndarray) -> None:
    """Also the confident and right have a loss and, where the target is 0, a gradient."""
    wide, eps, least = x.astype(np.longdouble), np.finfo(x.dtype).eps, np.finfo(x.dtype).tiny
    each = np.where(x > 0, wide * (1 - targets), -wide * targets) + np.log1p(np.exp(-np.abs(wide)))
    y, (dx, *_) = value_and_gradients(loss, x, targets)
    near(y, each.mean(), 16 * eps * each.mean() + least, "binary cross-entropy")
    exact = (logistic(x) - targets) / x.size
    near(dx, exact, 16 * eps * np.where(targets == 0, exact, 1 / x.size) + least, "its gradient")


# Powers and quotients


def power_has_pytorchs_gradients(power: Op, x: np.ndarray, y: np.ndarray) -> None:
    value, (dx, dy) = value_and_gradients(power, x, y, seed=np.ones(x.shape))
    with np.errstate(all="ignore"):
        log = np.where((x == 0) & (y >= 0), 0, np.log(x))
        exact = np.where(y == 0, 0, y * np.power(x, np.where(y == 0, 1, y) - 1))
        near(value, np.power(x, y), 16 * np.finfo(x.dtype).eps * np.abs(np.power(x, y)), "power")
        near(dx, exact, 16 * np.finfo(x.dtype).eps * np.abs(exact), "the gradient of the base")
        near(
            dy, value * log, 16 * np.finfo(x.dtype).eps * np.abs(value * log), "the gradient of the exponent"
        )


def quotients_gradient_overflows_last(divide: Op, x: np.ndarray, y: np.ndarray) -> None:
    """-x / y ** 2 is there where the quotient and its quotient are, though y ** 2 has left the range."""
    _, (dx, dy) = value_and_gradients(divide, x, y, seed=np.ones(x.shape, x.dtype))
    wide, eps, least = x.astype(np.longdouble), np.finfo(x.dtype).eps, np.finfo(x.dtype).tiny
    inside = np.abs(wide / y / y) < np.finfo(x.dtype).max / 2
    inside &= np.abs(wide / y) > least
    near(dx, 1 / y, 4 * eps / np.abs(y) + least, "the gradient of a numerator")
    exact = -wide / y / y
    near(dy[inside], exact[inside], 8 * eps * np.abs(exact[inside]) + least, "the gradient of a denominator")


# NaN, infinities and ties, by PyTorch's conventions: what is not taken gets 0, whatever comes back.


def relu_slope(x: float, g: float) -> float:
    return 0.0 if x <= 0 else g


def abs_slope(x: float, g: float) -> float:
    return g * ((x > 0) - (x < 0))


def clip_slope(x: float, g: float) -> float:
    return g if -1 <= x <= 1 else 0.0


def larger_share(x: float, y: float, g: float) -> float:
    if x == y:
        return g / 2
    return 0.0 if x < y else g


def follows(f: Op, slopes: list[Callable[..., float]], g: np.ndarray, *inputs: np.ndarray) -> None:
    """The k-th gradient is ``slopes[k](*elements, g)``, one element at a time."""
    _, gradients = value_and_gradients(f, *inputs, seed=g)
    for k, (slope, d) in enumerate(zip(slopes, gradients, strict=True)):
        by_hand = [
            slope(*map(float, elements)) for elements in zip(*map(np.ravel, (*inputs, g)), strict=True)
        ]
        assert np.array_equal(d, np.reshape(by_hand, g.shape), equal_nan=True), (
            f"gradient {k} is {d} for {by_hand}, of {inputs} and {g}"
        )


def choice_shields(where: Op, condition: np.ndarray, x: np.ndarray, y: np.ndarray, g: np.ndarray) -> None:
    """What is not chosen gets 0, what is chosen all; anything that is not 0 chooses x."""
    value, (dx, dy) = value_and_gradients(lambda x, y: where(on_device(condition), x, y), x, y, seed=g)
    chosen = condition.astype(bool)
    assert np.array_equal(value, np.where(chosen, x, y), equal_nan=True)
    assert np.array_equal(dx, np.where(chosen, g, 0), equal_nan=True), f"x gets {dx} of {g} where {chosen}"
    assert np.array_equal(dy, np.where(chosen, 0, g), equal_nan=True), (
        f"y gets {dy} of {g} where not {chosen}"
    )


def pooling_takes_one(
    max_pool2d: Op, x: np.ndarray, g: np.ndarray, kernel: int, stride: int, padding: int = 0
) -> None:
    """Each window's gradient goes to its first largest pixel, or to its last NaN, and nowhere else."""
    settings = {"kernel": kernel, "stride": stride, "padding": padding}
    value, (dx,) = value_and_gradients(lambda x: max_pool2d(x, **settings), x, seed=g)
    expected = np.zeros_like(x)
    for n, c, i, j in np.ndindex(*g.shape):
        pixels = [(i * stride - padding + a, j * stride - padding + b) for a, b in np.ndindex(kernel, kernel)]
        pixels = [p for p in pixels if all(0 <= k < size for k, size in zip(p, x.shape[2:], strict=True))]
        largest, place = -math.inf, pixels[0]
        for pixel in pixels:
            v = x[n, c, *pixel]
            if v > largest or np.isnan(v):
                largest, place = v, pixel
        assert value[n, c, i, j] == largest or np.isnan(largest) and np.isnan(value[n, c, i, j])
        with np.errstate(invalid="ignore"):
            expected[n, c, *place] += g[n, c, i, j]
    assert np.array_equal(dx, expected, equal_nan=True), f"{dx} for {expected}, of {x} and {g}"


def extremum_is_shared(f: Op, row: np.ndarray, sign: int) -> None:
    """Equal extrema share the gradient; where there is NaN it is the extremum, and NaN share."""
    value, (dx,) = value_and_gradients(f, row)
    takers = np.isnan(row) if np.isnan(row).any() else sign * row == (sign * row).max()
    assert np.array_equal(value, row[takers][0], equal_nan=True)
    assert np.array_equal(dx, takers / row.dtype.type(takers.sum())), f"{dx} for {takers}"


# What one place gets.


def extrema_at_places_are_exact(scatter_reduce: Op, reduce: str) -> None:
    """One of 1 and the next float64 is the extremum, and what meets NaN is NaN and has no gradient."""
    beside = 1 + (1 if reduce == "amax" else -1) * 2.0**-40
    x, places = np.array([1.0, 1, 5, 1]), np.array([0, 0, 1, 1, 3, 3])
    values = np.array([beside, 1, np.nan, 2, 0, np.nan])
    op = partial(scatter_reduce, axis=0, reduce=reduce)
    y, (to_x, to_values) = value_and_gradients(op, x, places, values, seed=np.ones(4))
    assert np.array_equal(y, [beside, np.nan, 5, np.nan], equal_nan=True), f"{reduce} is {y}"
    assert to_x.tolist() == [0, 0, 1, 0], f"the gradient is {to_x}"
    assert to_values.tolist() == [1, 0, 0, 0, 0, 0], f"the gradient of the values is {to_values}"


# Products, whose gradients are products too: nothing is divided.


def products_have_the_gradients_of_their_factors(prod: Op, cumprod: Op, x: np.ndarray, g: np.ndarray) -> None:
    """A row has infinities, or factors whose product is none of the dtype; it is checked factor by factor."""
    with np.errstate(all="ignore"):
        ahead = [
            [math.prod(x[k] for k in range(j + 1) if k != i) for j in range(len(x))] for i in range(len(x))
        ]
        others = [float(g[-1]) * row[-1] for row in ahead]
        sums = [sum(float(g[j]) * row[j] for j in range(i, len(x))) for i, row in enumerate(ahead)]
    bound = 16 * np.finfo(x.dtype).eps
    _, (dx,) = value_and_gradients(lambda x: prod(x, axis=0), x, seed=g[-1])
    near(dx, others, bound * np.abs(np.nan_to_num(others)), "the gradient of a product")
    _, (dx,) = value_and_gradients(lambda x: cumprod(x, axis=0), x, seed=g)
    near(dx, sums, bound * np.abs(np.nan_to_num(sums)), "the gradient of running products")
