"""Laws of minigrad/ops/fast/implicit.py: convolution by CUDA kernels, which a C++ compiler runs on the host;
without the double of CuPy one test runs this file there.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minigrad import exact_convolutions, nn
from minigrad.device import compiles_cuda, to_device, to_host
from minigrad.ops.conv_pool import conv_pool2d
from minigrad.ops.fast import implicit
from minigrad.ops.fast.conv import fastest
from minigrad.ops.geometry import Geometry
from tests.bugs import in_implicit
from tests.bugs.bug import hunt
from tests.double import ON_DOUBLE, check_on_double, needs_double
from tests.minigrad.gpu_laws import counted
from tests.minigrad.ops.fast.implicit_laws import is_pooled_convolution

needs_compiler = pytest.mark.skipif(
    not (ON_DOUBLE and compiles_cuda()), reason="needs the double of CuPy and a C++ compiler"
)


@pytest.mark.double
@pytest.mark.skipif(ON_DOUBLE, reason="this is the double")
@needs_double
def test_this_file_on_the_double(pytestconfig):
    check_on_double(__file__, pytestconfig)


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def convolutions(draw):
    """Images, weights, a geometry, a bias, a ReLU or none, and the side of a pooling window."""
    kernel, stride, dilation = draw(pairs(1, 4)), draw(pairs(1, 3)), draw(pairs(1, 2))
    groups, pool = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([1, 2]))
    geometry = Geometry(kernel, stride, draw(pairs(0, 4)), dilation, groups)
    channels, filters = draw(st.sampled_from([1, 3, 4, 8, 17])), draw(st.sampled_from([1, 2, 4, 12, 33]))
    n, height, width = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(1, 12))
    assume(min(geometry.output(height, width)) >= pool)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    shapes = (n, height, width, channels * groups), (filters * groups, channels, *kernel), (filters * groups,)
    if draw(st.booleans()):
        x, w, bias = (rng.integers(-2, 3, shape) for shape in shapes)  # exact, with ties
    else:
        x, w, bias = (rng.normal(size=shape) for shape in shapes)
    return [x, w, geometry, bias, draw(st.booleans()), pool]


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(max_examples=max(settings().max_examples // 2, 8))
@given(convolutions())
def test_any_convolution_with_pooling_and_relu(dtype, drawn):
    x, w, geometry, bias, relu, pool = drawn
    arrays = x.astype(dtype), w.astype(dtype), geometry, bias.astype(dtype)
    is_pooled_convolution(implicit.convolve_and_pool, *arrays, relu, pool)


@needs_compiler
@pytest.mark.parametrize("tile", implicit.TILES, ids=lambda tile: f"{tile.BM}x{tile.BN}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_tile(tile, dtype):
    """More filters, terms and outputs than one tile has."""
    if dtype == np.float64 and tile.BM == 128:
        tile = tile._replace(BK=8)  # 48 KB of shared memory
    rng = np.random.default_rng(0)
    x, w, bias = (rng.normal(size=s).astype(dtype) for s in ((2, 13, 12, 12), (70, 12, 3, 3), (70,)))
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    is_pooled_convolution(implicit.convolve_and_pool, x, w, geometry, bias, True, 2, tile=tile)


@needs_compiler
def test_nan_wins_and_passes_the_relu():
    x = np.ones((1, 2, 2, 1), np.float32)
    x[0, 0, 1, 0] = np.nan
    w, geometry = np.ones((4, 1, 1, 1), np.float32), Geometry((1, 1), (1, 1), (0, 0), (1, 1))
    arrays = (to_device(a, "cupy") for a in (x, w, np.zeros(4, np.float32)))
    x_there, w_there, bias = arrays
    y, (to_images, *_) = implicit.convolve_and_pool(x_there, w_there, geometry, bias, True, 2)
    d = to_host(to_images(to_device(np.ones((1, 1, 1, 4), np.float32), "cupy")))
    assert np.isnan(to_host(y)).all() and d.reshape(-1).tolist() == [0, 4, 0, 0]


@needs_compiler
def test_no_images():
    x, w = (to_device(np.ones(s, np.float32), "cupy") for s in ((0, 5, 5, 3), (4, 3, 3, 3)))
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    y, pullbacks = implicit.convolve_and_pool(x, w, geometry, None, True, 2)
    g = to_device(np.ones((0, 2, 2, 4), np.float32), "cupy")
    assert y.shape == (0, 2, 2, 4) and [pull(g).shape for pull in pullbacks] == [x.shape, w.shape, (4,)]
    assert all(float(abs(pull(g)).sum()) == 0 for pull in pullbacks[1:])


def layers(rng):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, rng=rng), nn.ReLU(),
        nn.Conv2d(16, 8, 3, stride=2, padding="valid", groups=2, rng=rng), nn.MaxPool2d(2), nn.ReLU(),
    )  # fmt: skip


@needs_compiler
def test_a_network_takes_a_launch_for_each_group_of_layers():
    """Two each forward, to arrange the weights and to convolve; and the value is that of the ops."""
    model = layers(np.random.default_rng(0))
    x = np.random.default_rng(1).normal(size=(4, 3, 20, 20)).astype(np.float32)
    expected: Any = x
    with exact_convolutions():
        for layer in model.layers:
            expected = layer(expected)
    there = model.to(device="cupy")
    x_there = to_device(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), "cupy").transpose(0, 3, 1, 2)
    with counted() as calls:
        y = there(x_there)
    assert calls["launch"] == 4 and not calls["gemm"], calls
    np.testing.assert_allclose(to_host(y.data), expected.data, rtol=0, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("pool", [1, 2, 3])
def test_what_does_not_fit_is_left_to_others(dtype, pool):
    """Another dtype, another pooling, and too little work to compile for."""
    images, w = (to_device(np.ones(s, dtype), "cupy") for s in ((8, 9, 9, 8), (16, 8, 3, 3)))
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    with counted() as calls:
        y = conv_pool2d(images.transpose(0, 3, 1, 2), w, pool=pool, relu=True).data
    assert float(y.max()) == 72 and y.shape == (8, 16, 7 // pool, 7 // pool) and y.dtype == dtype
    in_one = dtype != np.float16 and pool < 3
    assert (calls["launch"] == 2 and not calls["gemm"]) is in_one, calls
    assert float(implicit.implicit(images, w, geometry)[0].max()) == 72
    assert fastest(images, w, geometry) == "implicit" and fastest(images[:1, :3], w, geometry) == "im2col"


@needs_compiler
@given(seed=st.integers(0, 99))
def test_gradients_of_weights_and_bias_are_one_product(seed):
    """Two launches for both, of whichever is asked for first, and one for that of the images."""
    rng = np.random.default_rng(seed)
    x, w, bias = (to_device(rng.normal(size=s), "cupy") for s in ((1, 5, 5, 3), (4, 3, 3, 3), (4,)))
    y, pullbacks = implicit.convolve_and_pool(x, w, Geometry((3, 3), (1, 1), (1, 1), (1, 1)), bias, True, 1)
    with counted() as calls:
        for i in rng.permutation(3):
            pullbacks[i](y)
    assert calls["launch"] == 3, f"{calls['launch']} launches"


@needs_compiler
@pytest.mark.parametrize("bug", in_implicit.BUGS, ids=lambda bug: bug.name)
def test_its_law_catches_the_bug(bug):
    hunt(bug)
