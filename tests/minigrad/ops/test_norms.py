"""Laws of minigrad/ops/group_norm.py, layer_norm.py and batch_norm.py: normalisations of samples are their
definitions, whatever axes they have.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import ops
from minigrad.testing import on_device
from tests.minigrad.ops import norm_laws

SHAPES = st.tuples(st.integers(0, 3), st.sampled_from([2, 4]), st.integers(2, 3), st.sampled_from([1, 2, 37]))


@given(shape=SHAPES, axes=st.integers(2, 4), groups=st.sampled_from([1, 2]))
def test_groups_of_channels_are_normalized(shape, axes, groups):
    x = np.random.default_rng(0).normal(3, 2, shape[:axes])
    norm_laws.normalizes_groups(ops.group_norm, x, groups, groups=groups)
    if axes > 2:
        norm_laws.normalizes_groups(ops.instance_norm, x, shape[1])
        plain, ones = ops.instance_norm(on_device(x)).numpy(), on_device(np.ones(shape[1]))
        np.testing.assert_array_equal(plain, ops.instance_norm(on_device(x), ones, ones * 0).numpy())


@pytest.mark.parametrize(
    "op", [ops.batch_norm, ops.layer_norm, partial(ops.group_norm, groups=2), ops.instance_norm]
)
def test_backward_holds_one_array_of_the_size_of_x(op):
    norm_laws.holds_one_array(op, np.random.default_rng(0).normal(size=(64, 16, 8, 16)))


@given(shape=SHAPES, axes=st.integers(1, 3), eps=st.sampled_from([None, 1e-3]))
def test_the_root_mean_square_of_the_last_axes(shape, axes, eps):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=shape), rng.normal(size=shape[-axes:])
    norm_laws.divides_by_the_root_mean_square(ops.rms_norm, x, weight, eps)
    norm_laws.several_axes_are_one(ops.rms_norm, x, weight)
    norm_laws.several_axes_are_one(ops.layer_norm, x, weight, weight + 1)


@given(shape=SHAPES)
def test_batch_norm_takes_signals_as_images_of_one_row(shape):
    x, channels = np.random.default_rng(0).normal(size=shape[:3]), on_device(np.arange(1.0, shape[1] + 1))
    y = ops.batch_norm(on_device(x), channels, channels).numpy()
    images = ops.batch_norm(on_device(x[:, :, None]), channels, channels).numpy()
    np.testing.assert_array_equal(y, images[:, :, 0])


def test_where_there_is_nothing_to_normalize_nothing_comes_back():
    for op, shape, parameters in (
        (ops.instance_norm, (2, 0, 3), []),
        (partial(ops.group_norm, groups=2), (2, 4, 0), [4, 4]),
        (ops.rms_norm, (3, 0), [0]),
    ):
        y = op(on_device(np.zeros(shape)), *(on_device(np.ones(n)) for n in parameters))
        assert y.shape == shape
