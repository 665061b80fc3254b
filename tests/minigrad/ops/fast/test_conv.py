"""Laws of minigrad/ops/fast/conv.py, depthwise.py, dilation.py, groups.py, im2col.py, im2col_kernels.py,
images.py, kernel_rows.py, phases.py, winograd.py and winograd_rows.py: every fast form of convolution is
the readable one, forward and backward.
"""

from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import exact_convolutions, loops, ops, testing
from minigrad.device import to_host
from minigrad.memory import base_of, retained_arrays
from minigrad.ops.conv import direct
from minigrad.ops.fast import (
    depthwise,
    dilation,
    im2col,
    im2col_kernels,
    kernel_rows,
    winograd,
    winograd_rows,
)
from minigrad.ops.fast.conv import ALGORITHMS, fastest
from minigrad.ops.fast.winograd_rows import of_kernel, of_outputs
from minigrad.ops.geometry import Geometry
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops import op_laws, window_laws

ANY = [name for name, way in ALGORITHMS.items() if way.for_host and name != "depthwise"]
LAYOUTS = [testing.c_order, op_laws.channels_last, testing.with_gaps, testing.reversed_order]


class Convolution(NamedTuple):
    """An image and a kernel as the algorithms take them, and what comes back."""

    x: Any
    w: Any
    g: Any
    geometry: Geometry

    def __repr__(self):
        return f"x {self.x.shape} {self.x.dtype}, w {self.w.shape}, {self.geometry}"

    def by(self, name):
        """Value, input gradient and weight gradient."""
        y, (to_image, to_kernel) = ALGORITHMS[name](self.x, self.w, self.geometry)
        return y, to_image(self.g), to_kernel(self.g)

    def magnitudes(self):
        return self._replace(x=abs(self.x), w=abs(self.w), g=abs(self.g))


def integers(rng, shape):
    return rng.integers(-4, 5, shape).astype(float)


def normal(rng, shape):
    return rng.normal(size=shape)


@st.composite
def geometries(draw, kernel=(1, 4), stride=(1, 3), padding=(0, 4), dilation=(1, 2), groups=(1, 3)):
    def two(least, most):
        return draw(st.tuples(st.integers(least, most), st.integers(least, most)))

    settings = two(*kernel), two(*stride), two(*padding), two(*dilation)
    return Geometry(*settings, draw(st.integers(*groups)))


@st.composite
def convolutions(draw, values, drawn_geometries, sizes=(10, 4)):
    """With at most ``sizes`` channels and filters in a group."""
    geometry = draw(drawn_geometries)
    spans = zip(geometry.kernel, geometry.padding, geometry.dilation, strict=True)
    height, width = (max(d * (k - 1) + 1 - 2 * p, 1) + draw(st.integers(0, 7)) for k, p, d in spans)
    channels, filters = (draw(st.integers(1, most)) for most in sizes)
    shape = draw(st.integers(0, 5)), height, width, channels * geometry.groups
    rng, dtype = np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from("fd"))
    x, w, g = (
        on_device(values(rng, s).astype(dtype))
        for s in (
            shape,
            (filters * geometry.groups, channels, *geometry.kernel),
            (shape[0], *geometry.output(height, width), filters * geometry.groups),
        )
    )
    return Convolution(x, draw(st.sampled_from(LAYOUTS))(w), g, geometry)


def assert_same(c, name, other="direct"):
    for what, a, b in zip(
        ("value", "input gradient", "weight gradient"), c.by(name), c.by(other), strict=True
    ):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype} {a.shape}, {b.dtype} {b.shape}"
        assert np.array_equal(to_host(a), to_host(b)), f"{name}'s {what} differs from {other}'s"


@settings(max_examples=5 * settings().max_examples)
@given(
    c=convolutions(integers, geometries()),
    cache=st.sampled_from([1, 2000, im2col.COLUMN_BYTES]),
    few=st.sampled_from([0, im2col.FEW_CHANNELS]),
    small=st.sampled_from([1000, im2col.SMALL]),
    large=st.sampled_from([0, im2col.LARGE]),
)
def test_im2col_is_direct(c, cache, few, small, large):
    """Bitwise, since sums of small integers are exact: in blocks of one image, of some, of all."""
    with (
        patch.multiple(im2col, COLUMN_BYTES=cache, FEW_CHANNELS=few, SMALL=small, LARGE=large),
        patch.object(im2col_kernels, "MOST_BYTES", cache),
    ):
        assert_same(c, "im2col")


@settings(max_examples=2 * settings().max_examples)
@given(c=convolutions(integers, geometries(groups=(2, 9)), sizes=(1, 1)), by_loops=st.booleans())
def test_depthwise_is_direct(c, by_loops):
    """Bitwise, as above."""
    assert depthwise.can_take(c.w.shape, c.geometry)
    with patch.object(loops, "available", return_value=by_loops and loops.available()):
        assert_same(c, "depthwise")


@pytest.mark.skipif(
    DEVICE != "numpy" or not loops.available(), reason="the readable form takes none together"
)
@given(c=convolutions(integers, geometries(groups=(600, 700)), sizes=(1, 1)))
def test_depthwise_with_many_channels_is_direct(c):
    """Bitwise: a pixel is as long as what is taken together."""
    assert_same(c, "depthwise")


@settings(max_examples=2 * settings().max_examples)
@given(
    c=convolutions(integers, geometries().map(lambda g: g._replace(dilation=(g.dilation[0], 1)))),
    cache=st.sampled_from([1, 2000, kernel_rows.IMAGE_BYTES]),
    small=st.sampled_from([1000, kernel_rows.SMALL]),
)
def test_kernel_rows_are_direct(c, cache, small):
    """Bitwise, as above, in bands of one row of an image, of some, of some images."""
    with patch.multiple(kernel_rows, IMAGE_BYTES=cache, SMALL=small):
        assert_same(c, "kernel_rows")


@given(rows=st.integers(1, 400), inner=st.integers(1, 40), filters=st.integers(1, 8))
def test_a_product_is_cut_into_equal_parts_or_not_at_all(rows, inner, filters):
    with patch.object(im2col, "SMALL", 500):
        n, m = im2col.parts_of(rows, inner, filters)
    assert n * m == rows and (n == 1 or (m >= 16 and m * inner * filters <= 500))


@settings(max_examples=3 * settings().max_examples)
@given(
    c=convolutions(normal, geometries(kernel=(3, 3), stride=(1, 1))),
    cache=st.sampled_from([1, winograd.TILE_BYTES]),
)
def test_winograd_is_direct_up_to_rounding(c, cache):
    """By running error analysis: the same steps on magnitudes bound each element's rounding.

    An element is at most two transforms of 6 terms each, a sum over the terms of one product, two more
    transforms, and the matrices' own rounding: each sum of n terms costs n roundings of its magnitude.
    """
    with patch.object(winograd, "TILE_BYTES", cache):
        fast = c.by("winograd")
    magnitudes = {name: abs(getattr(winograd, name)) for name in ("BT", "G", "AT")}
    with patch.multiple(winograd, **magnitudes):
        bounds = c.magnitudes().by("winograd")
    n, height, width, _ = c.g.shape
    count, rows, columns = dilation.smaller(n, height, width, c.geometry.dilation)
    tiles = count * -(-rows // 4) * -(-columns // 4)
    assert_within_rounding(c, fast, bounds, (c.w.shape[1], c.w.shape[0], tiles))


@given(
    c=convolutions(normal, geometries(kernel=(3, 5), stride=(1, 1), dilation=(1, 1))),
    cache=st.sampled_from([1, 2000, kernel_rows.IMAGE_BYTES]),
    sizes=st.fixed_dictionaries(
        {"MANY": st.sampled_from([1, 3, 128]), "SMALL": st.sampled_from([20, 10**6])}
    ),
)
def test_winograd_rows_are_direct_up_to_rounding(c, cache, sizes):
    """The bound of ``winograd``, with products that add up kw times as many terms."""
    with patch.object(kernel_rows, "IMAGE_BYTES", cache), patch.multiple(winograd_rows, **sizes):
        fast = c.by("winograd_rows")
    matrices = {
        "BT": abs(winograd.BT),
        "of_kernel": lambda rows: abs(of_kernel(rows)),
        "of_outputs": lambda rows: abs(of_outputs(rows)),
    }
    with patch.multiple(winograd_rows, **matrices):
        bounds = c.magnitudes().by("winograd_rows")
    kw = c.geometry.kernel[1]
    assert_within_rounding(c, fast, bounds, (kw * c.w.shape[1], kw * c.w.shape[0], c.g[..., 0].size))


def assert_within_rounding(c, fast, bounds, terms):
    for a, b, bound, n in zip(fast, c.by("direct"), bounds, terms, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        slack = (n + 50) * np.finfo(to_host(a).dtype).eps * to_host(bound)
        assert np.all(abs(to_host(a) - to_host(b)) <= slack)


def test_the_matrices_of_winograd_rows_are_winograd_s():
    assert np.array_equal(of_kernel(3), winograd.G) and np.array_equal(of_outputs(3).T, winograd.AT)


@given(c=convolutions(normal, geometries(kernel=(3, 3), stride=(1, 1), dilation=(1, 1), groups=(1, 1))))
def test_winograd_in_float64_is_direct_to_twelve_digits(c):
    c = c._replace(x=c.x.astype("d"), w=c.w.astype("d"), g=c.g.astype("d"))
    for by_winograd, by_sums in zip(c.by("winograd"), c.by("direct"), strict=True):
        a, b = to_host(by_winograd), to_host(by_sums)
        assert np.allclose(a, b, rtol=0, atol=1e-12 * (1 + abs(b).max(initial=0)))


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("padding", [0, 1, 3])
@pytest.mark.parametrize("channels", [2, 8])
def test_channels_last_in_channels_last_out(name, padding, channels):
    x, w, b = (np.random.default_rng(0).normal(size=s) for s in ((2, channels, 6, 7), (4, channels, 3, 3), 4))
    op_laws.channels_last_is_kept(
        lambda *inputs: ops.conv2d(*inputs, padding=padding, algorithm=name), *map(on_device, (x, w, b))
    )


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout_gives_the_same(name, layout):
    rng = np.random.default_rng(0)
    x, w, b = (on_device(integers(rng, s)) for s in ((2, 3, 6, 7), (4, 3, 3, 3), 4))
    value, entry = op_laws.pullbacks_of(
        lambda *inputs: ops.conv2d(*inputs, padding=1, algorithm=name), [layout(x), layout(w), b]
    )
    expected, slow = op_laws.pullbacks_of(
        lambda *inputs: ops.conv2d(*inputs, padding=1, algorithm="direct"), [x, w, b]
    )
    assert np.allclose(value.numpy(), expected.numpy(), rtol=0, atol=1e-11)
    g = on_device(integers(rng, value.shape))
    for (_, _, fast), (_, _, plain) in zip(entry, slow, strict=True):
        assert np.allclose(to_host(fast(layout(g))), to_host(plain(g)), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["im2col", "kernel_rows", "winograd", "winograd_rows"])
def test_backward_holds_the_image_and_the_kernel_and_no_columns(name):
    x, w = on_device(np.ones((4, 6, 6, 8))), on_device(np.ones((8, 8, 3, 3)))
    _, pullbacks = ALGORITHMS[name](x, w, Geometry((3, 3), (1, 1), (1, 1), (1, 1)))
    ids = {id(base_of(a)) for a in retained_arrays(list(pullbacks)) if a.size > winograd.BT.size}
    assert ids <= {id(x), id(w)}


def test_auto_takes_what_pays_and_winograd_only_where_it_is_not_asked_to_be_exact():
    def choice(channels, filters, kernel=3, stride=1, groups=1, dtype="f", n=4, size=8):
        geometry = Geometry((kernel, kernel), (stride, stride), (1, 1), (1, 1), groups)
        return fastest(
            np.ones((n, size, size, channels), dtype),
            np.ones((filters, channels // groups, kernel, kernel), dtype),
            geometry,
        )

    assert choice(32, 32) == "winograd"
    assert choice(64, 64, groups=2) == "winograd"
    assert choice(64, 64, n=32, size=7) == "winograd"
    assert choice(64, 64, n=4, size=7) == choice(64, 64, n=5, size=5) == "im2col"
    assert choice(64, 64, kernel=5) == choice(64, 64, stride=2) == choice(7, 64) == choice(64, 7) == "im2col"
    assert choice(31, 64) == choice(64, 64, n=1) == "im2col"
    others = [choice(31, 64, n=8), choice(64, 31, n=8), choice(64, 64, kernel=5, size=32)]
    assert {*others, choice(64, 64, groups=4, n=8), choice(4, 4, size=32)} == {"winograd_rows"}
    assert {choice(64, 64, dtype="d", n=8), choice(64, 64, kernel=7, size=32)} == {"kernel_rows"}
    with exact_convolutions():
        assert choice(32, 32) == "im2col" and choice(32, 32, n=8) == choice(16, 16, n=16) == "kernel_rows"
        with exact_convolutions(False):
            assert choice(32, 32) == "winograd"
    assert choice(32, 32) == "winograd"


def test_integer_images_and_mixed_widths_give_the_wider_type():
    x, w = on_device(np.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6)), on_device(np.ones((4, 3, 3, 3)))
    ys = [ops.conv2d(x, w, algorithm=name).data for name in ANY]
    assert all(y.dtype == np.float64 and np.allclose(to_host(y), to_host(ys[0])) for y in ys)


def test_an_algorithm_that_does_not_exist_or_fit_is_refused():
    x, w = on_device(np.ones((1, 1, 8, 8))), on_device(np.ones((1, 1, 3, 3)))
    with pytest.raises(ValueError, match="'fft'.*auto, direct, im2col, implicit, kernel_rows, winograd"):
        ops.conv2d(x, w, algorithm="fft")
    with pytest.raises(ValueError, match=r"3 x 3.*stride.*\(2, 2\)"):
        ops.conv2d(x, w, stride=2, algorithm="winograd")
    with pytest.raises(
        ValueError, match=r"3 to 5 rows at stride and dilation 1, got \(3, 3\) at stride \(2, 1\)"
    ):
        ops.conv2d(x, w, stride=(2, 1), algorithm="winograd_rows")
    with pytest.raises(ValueError, match=r"dilation 1 along the rows of images, got 2"):
        ops.conv2d(x, w, dilation=(1, 2), algorithm="kernel_rows")


@given(convolutions(integers, geometries(groups=(1, 2))))
def test_direct_is_the_sum_over_each_window(c):
    """The definition, window by window."""
    y, _ = direct(c.x, c.w, c.geometry)
    (ph, pw), (sh, sw), (dh, dw) = c.geometry.padding, c.geometry.stride, c.geometry.dilation
    padded = np.pad(to_host(c.x), ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    w, (kh, kw) = to_host(c.w), c.geometry.kernel
    per_group = len(w) // c.geometry.groups
    for n, i, j, f in np.ndindex(*y.shape):
        first = f // per_group * w.shape[1]
        window = padded[n, i * sh :: dh, j * sw :: dw, first : first + w.shape[1]][:kh, :kw]
        assert y[n, i, j, f] == (window * w[f].transpose(1, 2, 0)).sum()


@pytest.mark.parametrize("name", ANY)
def test_integers_are_numbers(name):
    window_laws.integers_are_numbers(partial(ops.conv2d, algorithm=name))
