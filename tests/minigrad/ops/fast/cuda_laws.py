"""Laws of minigrad/ops/fast/cuda_kernels.py and columns.py: kernels in CUDA C++ compute what the
readable forms do, whichever thread of a block is first.

They run where ``cupy`` is the double and g++ is there, which compiles the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import Parameter, Tape, Tensor
from minigrad.device import compiles_cuda, to_device, to_host
from minigrad.pullback import OpResult
from minigrad.tape import undo_broadcast
from minigrad.testing import with_gaps
from tests.minigrad.gpu_laws import counted

LARGEST = {np.dtype(np.float64): 1e-14, np.dtype(np.float32): 1e-6}
"""How far a number may be off, as a part of the largest one."""


def kernels_are_the_readable_form(
    function: Callable[..., OpResult],
    readable: Callable[..., OpResult],
    most: int,
    g: np.ndarray,
    *arrays: np.ndarray,
    steepest: float = 1.0,
    infinity_is_nan: bool = False,
    **settings: Any,
) -> None:
    """Value and gradients in ``most`` launches besides products, none of which adds up one long chain.

    ``readable`` computes in float64; rounding of an input may become ``steepest`` times as large. Three
    orders of a block's threads give the same bits. With ``infinity_is_nan`` forms may differ in what is not
    finite.
    """
    from cupy import _raw  # pyright: ignore[reportMissingImports]

    assert compiles_cuda()  # which is tried by a launch
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        y, pullbacks = readable(*wide, **settings)
        pairs = [(pull, a) for pull, a in zip(pullbacks, wide, strict=True) if pull is not None]
        expected = [y, *(undo_broadcast(pull(g.astype(np.float64)), a.shape) for pull, a in pairs)]
    runs = []
    for order in range(3):
        _raw.order = order
        there, d = [to_device(a, "cupy") for a in arrays], to_device(g, "cupy")
        try:
            with counted() as calls:
                value, pullbacks = function(*there, **settings)
                results = [value, *(pull(d) for pull in pullbacks if pull is not None)]
        finally:
            _raw.order = 0
        assert calls["launch"] <= most, f"{calls['launch']} launches, more than {most}"
        assert not calls["long chains"], f"{calls['long chains']} sums are long chains"
        runs.append([to_host(result) for result in results])
    for i, (result, right) in enumerate(zip(runs[0], expected, strict=True)):
        what = f"gradient {i}" if i else "the value"
        assert result.dtype == g.dtype and result.shape == right.shape, (
            f"{what}: {result.dtype} {result.shape}"
        )
        same = all(run[i].tobytes() == result.tobytes() for run in runs[1:])
        assert same, f"{what} depends on the order of threads"
        finite = np.abs(right[np.isfinite(right)])
        near = (
            steepest * LARGEST[g.dtype] * max(finite.max(initial=0), np.abs(g[np.isfinite(g)]).max(initial=0))
        )
        if infinity_is_nan:
            result, right = (np.where(np.isfinite(a), a, np.nan) for a in (result, right))
        np.testing.assert_allclose(result, right, rtol=0, atol=near, err_msg=what)


def gradients_are_those_of_the_host(
    f: Callable[..., Tensor], g: np.ndarray, *arrays: np.ndarray, others: Sequence[np.ndarray] = ()
) -> None:
    """The gradients of sum(f(*arrays) g), whatever dtype and memory order g and the ``others`` of f have."""
    results = []
    for move in (np.asarray, lambda a: to_device(a, "cupy")):
        parameters = [Parameter(move(a.copy())) for a in arrays]
        with Tape() as tape:
            y = (f(*parameters, *(with_gaps(move(a)) for a in others)) * with_gaps(move(g))).sum()
        tape.backward(y)
        results.append([to_host(p.grad) for p in parameters])
    for i, (right, d) in enumerate(zip(*results, strict=True)):
        near = 1e-5 * np.abs(right).max()
        np.testing.assert_allclose(d, right, rtol=0, atol=near, err_msg=f"the gradient of input {i}")


def random_arrays(seed: int, dtype: Any, *shapes: tuple[int, ...], special: bool = False) -> list[np.ndarray]:
    """Arrays of these shapes, with 0, and in the first two with NaN and infinity if ``special``."""
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    for a in arrays[:2]:
        a[rng.random(a.shape) < 0.1] = 0
        if special:
            a[rng.random(a.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    return arrays


def steepest_of(x: np.ndarray, axis: int | tuple[int, ...]) -> float:
    """How much a normalisation of x over ``axis`` may enlarge rounding: twice by the largest scale."""
    variances = x.astype(np.float64).var(axis)[np.isfinite(x).all(axis)]
    return 1 / min(variances.min(initial=1) + 1e-5, 1)
