"""Laws of minigrad/ops/pool.py, resize.py and conv.py: each op of windows is its definition, pixel by
pixel.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from minigrad import Parameter, Tape, Tensor, ops
from minigrad.device import to_host
from minigrad.faster import faster
from minigrad.ops import pool
from minigrad.testing import on_device

Op = Callable[..., Tensor]


@contextmanager
def readable_pools() -> Iterator[None]:
    """Pools are computed by their readable forms inside."""
    with ExitStack() as stack:
        for function in (
            pool.max_of_windows,
            pool.mean_of_windows,
            inspect.unwrap(ops.adaptive_max_pool2d, stop=lambda f: isinstance(f, faster)),
            inspect.unwrap(ops.adaptive_avg_pool2d, stop=lambda f: isinstance(f, faster)),
        ):
            stack.enter_context(patch.object(function, "forms", []))
        yield


def windows_along(
    n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> list[range]:
    """The places of each window on ``n`` pixels from 0 on, some of them in the padding or behind it."""
    extent = dilation * (kernel - 1) + 1
    starts = range(-padding, n, stride)  # a window begins on the image, or in the padding before it
    fitting = [a for a in starts if a + extent - (stride if ceil_mode else 1) < n + padding]
    return [range(a, a + extent, dilation) for a in fitting]


def pool_is_its_definition(op: Op, x: np.ndarray, mean: bool, **settings: Any) -> None:
    """``op`` of images x (N, C, H, W), with pairs in its settings, is the mean or maximum of each window."""
    count_padding = settings.get("count_include_pad", True)
    kernel = settings["kernel"]
    (rows, columns), borders = (
        [
            windows_along(
                x.shape[2 + i],
                kernel[i],
                settings["stride"][i],
                settings["padding"][i],
                settings.get("dilation", (1, 1))[i],
                settings.get("ceil_mode", False),
            )
            for i in range(2)
        ],
        settings["padding"],
    )
    expected = np.zeros((*x.shape[:2], len(rows), len(columns)))
    for i, j in np.ndindex(*expected.shape[2:]):
        inside = [
            [k for k in w if 0 <= k < n] for w, n in zip((rows[i], columns[j]), x.shape[2:], strict=True)
        ]
        window = x[:, :, inside[0]][:, :, :, inside[1]]
        counted = [
            len([k for k in w if -p <= k < n + p])
            for w, n, p in zip((rows[i], columns[j]), x.shape[2:], borders, strict=True)
        ]
        count = counted[0] * counted[1] if count_padding else len(inside[0]) * len(inside[1])
        expected[:, :, i, j] = window.sum((2, 3)) / count if mean else window.max((2, 3), initial=-np.inf)
    np.testing.assert_allclose(op(on_device(x), **settings).numpy(), expected, rtol=1e-12, atol=1e-12)


def pool_of_rows(op: Op) -> Op:
    """``op`` of signals as one of images with a single row: of a setting's pair the second one counts."""

    def pool(x: Any, **settings: Any) -> Tensor:
        own = {name: value if isinstance(value, bool) else value[1] for name, value in settings.items()}
        return op(x[:, :, 0], **own)[:, :, None]

    return pool


def adaptive_pool_is_its_definition(op: Op, x: np.ndarray, size: tuple[int, int], mean: bool) -> None:
    """Value and gradient; the maximum's goes to the first of equal elements."""
    leaf = Parameter(on_device(x))
    with Tape() as tape:
        y = op(leaf, output_size=size)
    g = np.random.default_rng(0).integers(1, 9, y.shape).astype(x.dtype)
    tape.backward(y, on_device(g))
    expected, slope = np.zeros((*x.shape[:2], *size)), np.zeros(x.shape)
    for n, c, i, j in np.ndindex(*expected.shape):
        limits = [
            (k * m // out, -(-(k + 1) * m // out))
            for k, m, out in zip((i, j), x.shape[2:], size, strict=True)
        ]
        (a, b), (left, right) = limits
        window = x[n, c, a:b, left:right]
        if mean:
            expected[n, c, i, j] = window.mean()
            slope[n, c, a:b, left:right] += g[n, c, i, j] / window.size
        else:
            k, m = np.unravel_index(window.argmax(), window.shape)
            expected[n, c, i, j] = window.max()
            slope[n, c, a + k, left + m] += g[n, c, i, j]
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-12, atol=1e-12)
    assert leaf.grad is not None
    np.testing.assert_allclose(to_host(leaf.grad), slope, rtol=1e-12, atol=1e-12)


def transposed_is_the_adjoint(transposed: Op, convolution: Op, seed: int, **settings: Any) -> None:
    """(transposed x, z) = (x, convolution of z) for x, z and kernels of small integers, so exactly.

    They are images or signals, which have as many axes as the settings have numbers.
    """
    rng = np.random.default_rng(seed)
    groups, axes = settings["groups"], len(settings["stride"])
    several = int(rng.choice([2, 4 * math.prod(settings["stride"])]))  # im2col treats these differently
    channels, filters, kernel = several * groups, groups, rng.integers(1, 4, axes)

    def drawn(*shape: int) -> np.ndarray:
        return on_device(rng.integers(-4, 5, shape).astype(float))

    x, w = drawn(2, channels, *rng.integers(3, 6, axes)), drawn(channels, filters // groups, *kernel)
    y = transposed(x, w, **settings)
    others = (settings[name] for name in ("stride", "padding", "dilation", "output_padding"))
    parts = zip(x.shape[2:], kernel.tolist(), *others, strict=True)
    sizes = tuple((n - 1) * s - 2 * p + d * (k - 1) + more + 1 for n, k, s, p, d, more in parts)
    assert y.shape[2:] == sizes, f"the output has {y.shape[2:]} pixels, not {sizes}, for {settings}"
    z = drawn(*y.shape)
    others = {name: value for name, value in settings.items() if name != "output_padding"}
    window_sums = convolution(z, w, **others).numpy()[tuple(map(slice, x.shape))]
    left, right = (to_host(z) * y.numpy()).sum(), (to_host(x) * window_sums).sum()
    assert left == right, f"<transposed x, z> is {left}, <x, convolution of z> {right} for {settings}"


def same_is_padding_at_the_end(
    convolution: Op, x: np.ndarray, w: np.ndarray, dilation: tuple[int, int]
) -> None:
    """Padding "same" has the larger half of the border below and on the right."""
    border = [
        (d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for d, k in zip(dilation, w.shape[2:], strict=True)
    ]
    padded = on_device(np.pad(x, [(0, 0), (0, 0), *border]))
    y = convolution(on_device(x), on_device(w), padding="same", dilation=dilation).numpy()
    assert y.shape[2:] == x.shape[2:], f"{y.shape} is not as large as {x.shape}"
    expected = convolution(padded, on_device(w), dilation=dilation).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


def integers_are_numbers(convolution: Op) -> None:
    """A kernel of integers, or images of integers, give what the same numbers give as fractions."""
    x, w = np.arange(64.0).reshape(1, 1, 8, 8), np.arange(9.0).reshape(1, 1, 3, 3)
    value = convolution(on_device(x), on_device(w)).numpy()
    for dtype in (np.int64, np.uint8):
        for image, kernel in ((x, w.astype(dtype)), (x.astype(dtype), w)):
            of_integers = convolution(on_device(image), on_device(kernel)).numpy()
            np.testing.assert_allclose(of_integers, value, 1e-12, err_msg=f"{image.dtype}, {kernel.dtype}")
    narrow = convolution(on_device(x.astype(np.uint8)), on_device(w.astype(np.float32)))
    assert narrow.dtype == np.float32, narrow.dtype
    np.testing.assert_allclose(narrow.numpy(), value, 1e-5)


def interpolation_is_its_definition(op: Op, x: np.ndarray, **settings: Any) -> None:
    """Rows first, then columns: the output's pixel i has its center at (i + 1/2) / scale."""
    mode, aligned = settings["mode"], settings.get("align_corners", False)

    def along(a: np.ndarray, axis: int) -> np.ndarray:
        n = a.shape[axis]
        if "size" in settings:
            m = settings["size"][axis - 2]
            ratio = n / m
        else:
            ratio = 1 / settings["scale_factor"][axis - 2]
            m = int(n / ratio + 1e-9)
            ratio = 1 if m == n else ratio
        centres = (np.arange(m) + 0.5) * ratio - 0.5
        if mode != "bilinear":
            centres += 0.5 if mode == "nearest-exact" else 0.5 - ratio / 2
            return a.take(np.minimum((centres + 1e-9).astype(int), n - 1), axis)
        if aligned:
            centres = np.linspace(0, n - 1, m) if m > 1 else np.zeros(1)
        before = np.floor(centres).astype(int)
        share = (centres - before).reshape([-1 if i == axis else 1 for i in range(a.ndim)])
        first, second = (a.take(np.clip(k, 0, n - 1), axis) for k in (before, before + 1))
        return first * (1 - share) + second * share

    y = op(on_device(x), **settings).numpy()
    np.testing.assert_allclose(y, along(along(x, 2), 3), rtol=1e-12, atol=1e-12)


def is_convolution_pooling_and_relu(
    op: Op, inputs: Sequence[np.ndarray], *, pool: Any, padding: Any, relu: bool, bits: bool = True
) -> None:
    """Value and gradients of ``op`` are those of the three ops, to the bit or to a billionth."""

    def one_by_one(*tensors: Tensor) -> Tensor:
        y = ops.max_pool2d(ops.conv2d(*tensors, padding=padding), kernel=pool)
        return ops.relu(y) if relu else y

    def results(function: Op) -> list[Any]:
        tensors = [Parameter(x) for x in inputs]
        with Tape() as tape, np.errstate(invalid="ignore"):
            y = function(*tensors)
        g = np.random.default_rng(0).integers(-9, 10, y.shape).astype(y.dtype)
        with np.errstate(invalid="ignore"):
            tape.backward(y, g)
        return [y.data, *(x.grad for x in tensors)]

    values = results(lambda *tensors: op(*tensors, pool=pool, padding=padding, relu=relu))
    names = "value", "gradient of the images", "gradient of the kernel", "gradient of the bias"
    for name, a, b in zip(names, values, results(one_by_one), strict=False):
        if name.endswith("kernel") and not np.isfinite(inputs[0]).all():
            continue  # one by one, a NaN that no pooling window sees is multiplied by its gradient, 0
        assert a.dtype == b.dtype and a.shape == b.shape, f"{name}: {a.dtype} {a.shape}, {b.dtype} {b.shape}"
        np.testing.assert_allclose(a, b, 0 if bits else 1e-9, 0 if bits else 1e-9, err_msg=f"the {name}")


def is_the_transpose(f: Op, x: np.ndarray) -> None:
    """(f of x, g) = (x, gradient for g) of a linear op f, for small integers x and g."""
    leaf = Parameter(on_device(x))
    with Tape() as tape:
        y = f(leaf)
    g = np.random.default_rng(1).integers(-4, 5, y.shape).astype(x.dtype)
    tape.backward(y, on_device(g))
    assert leaf.grad is not None
    left, right = (y.numpy() * g).sum(), (x * to_host(leaf.grad)).sum()
    assert abs(left - right) < 1e-9 * max(abs(g).sum(), 1), f"<f of x, g> is {left}, <x, gradient> {right}"


def pool_holds(op: Op, x: np.ndarray, bytes_each: int) -> None:
    """For backward ``op`` stores so many bytes for each number of its value, beside the tape's own shapes."""
    leaf = Parameter(on_device(x))
    with Tape() as tape:
        y = op(leaf + 1.0, kernel=2)
    most = bytes_each * y.data.size
    assert tape.nbytes == most, f"the tape holds {tape.nbytes} bytes, not {most}"


def interpolation_spreads_to_neighbours_only(op: Op, value: float) -> None:
    """One ``value`` that is no finite number makes 4 x 4 pixels such, and its gradient 3 x 3.

    Where pixels stay where they are, it makes none.
    """
    x = np.zeros((1, 1, 4, 6))
    x[0, 0, 1, 1] = value
    leaf = Parameter(on_device(x))
    with Tape() as tape:
        y = op(leaf, scale_factor=2, mode="bilinear")
    tape.backward(y, y.data)
    assert leaf.grad is not None
    for what, array, most in (("the value", y.data, 16), ("the gradient", leaf.grad, 9)):
        count = (~np.isfinite(to_host(array))).sum()
        assert count == most, f"{what} of {value} at one pixel is not finite at {count}, not {most}"
    same = op(on_device(x), scale_factor=1, mode="bilinear").numpy()
    np.testing.assert_array_equal(same, x, "images of the same size")
