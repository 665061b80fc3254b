"""Ops as NumPy computes them, or as a loop over all elements does. The law takes the op under test."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import ops
from minigrad.device import to_host
from tests.minigrad.ops.extremes import value_and_gradients


def equals_its_form(op: Callable[..., Any], name: str, *inputs: Any, **settings: Any) -> None:
    """The op's value is that of ``FORMS[name]``: sums in another order are some roundings off."""
    expected = FORMS[name](*map(to_host, inputs), **settings)
    value = op(*inputs, **settings).numpy()
    assert value.shape == expected.shape, f"{name} has shape {value.shape}, not {expected.shape}"
    assert np.allclose(value, expected, 1e-12, 1e-12, equal_nan=True), f"{name} is {value}, not {expected}"


def of_numbers_too(form: Callable[..., Any]) -> Callable[..., Any]:
    """A function along an axis, which takes a number as one element."""
    return lambda x, *, axis=-1, **settings: form(np.atleast_1d(x), axis=axis, **settings).reshape(
        np.shape(x)
    )


def sort(x, *, axis=-1, descending=False):
    return np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)


def topk(x, *, k, axis=-1, largest=True):
    return np.take(sort(x, axis=axis, descending=largest), np.arange(k), axis)


def places(indices, axis):
    """Each place in ``indices``, and the one that it names."""
    for place in np.ndindex(indices.shape):
        target = list(place)
        if target:
            target[axis] = indices[place]
        yield place, tuple(target)


def gather(x, indices, *, axis):
    y = np.empty(indices.shape)
    for place, source in places(indices, axis):
        y[place] = x[source]
    return y


def scatter(x, indices, values, *, axis):
    y = x.copy()
    for place, target in places(indices, axis):
        y[target] = values[place]
    return y


def scatter_add(x, indices, values, *, axis):
    y = x.copy()
    for place, target in places(indices, axis):
        y[target] += values[place]
    return y


def scatter_reduce(x, indices, values, *, axis, reduce, include_self):
    y, f = x.copy(), {"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min}[reduce]
    for target in np.ndindex(x.shape):
        there = [values[place] for place, to in places(indices, axis) if to == target]
        y[target] = f([x[target]] * (include_self or not there) + there)
    return y


def einsum(*operands, subscripts):
    """NumPy sums no axes that stand only in "...", as PyTorch does."""
    return np.einsum(subscripts.replace("i...,i->", "ij,i->"), *operands)


FORMS: dict[str, Callable[..., Any]] = {
    "cumprod": of_numbers_too(np.cumprod),
    "cumsum": of_numbers_too(np.cumsum),
    "diagonal": lambda x, **settings: np.diagonal(x, **{"axis1": 0, **settings}),
    "einsum": einsum,
    "flip": np.flip,
    "gather": gather,
    "linear_of_any_axes": lambda x, w, b: x @ w.T + b,
    "masked_fill": lambda x, mask, *, value: np.where(mask, value, x),
    "pad_with_its_own": lambda x, *, width, mode: np.pad(x, width, mode),
    "prod": np.prod,
    "repeat": np.repeat,
    "roll": np.roll,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "sort": of_numbers_too(sort),
    "std": np.std,
    "tile": np.tile,
    "topk": topk,
    "tril": np.tril,
    "triu": np.triu,
    "var_ddof": np.var,
}


def a_constant_has_no_deviation_and_no_slope():
    y, (g,) = value_and_gradients(lambda x: ops.std(x, axis=1), np.ones((2, 3)), seed=np.ones(2))
    assert y.tolist() == [0, 0] and not g.any()
