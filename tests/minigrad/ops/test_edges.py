"""Laws of minigrad/ops/: laws of minigrad/ops/: conventions at kinks and ties, and arrays
without elements.
"""

import numpy as np
import pytest

from minigrad import Parameter, Tape, ops
from minigrad.testing import on_device
from tests.minigrad.ops.op_laws import gradients


@pytest.mark.parametrize("op", [ops.relu, ops.abs, ops.leaky_relu])
def test_at_zero_the_gradient_of_relu_and_abs_is_zero_and_of_leaky_relu_its_slope(op):
    assert gradients(op, [0.0]) == [0.01 if op is ops.leaky_relu else 0.0]


@pytest.mark.parametrize("op", [ops.maximum, ops.minimum])
def test_equal_operands_share_the_gradient(op):
    assert gradients(op, [1.0, 2.0], [1.0, 2.0]) == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("op", [ops.max, ops.min])
def test_equal_extrema_share_the_gradient(op):
    assert gradients(lambda x: op(x, axis=1), [[4.0, 4.0], [4.0, 4.0]]) == [[0.5, 0.5], [0.5, 0.5]]


def test_max_pooling_gives_ties_to_the_first():
    x = np.ones((1, 1, 2, 2))
    assert gradients(lambda x: ops.max_pool2d(x, kernel=2), x) == [[[[1.0, 0.0], [0.0, 0.0]]]]


def test_clip_passes_the_gradient_inside_and_on_the_bounds():
    assert gradients(lambda x: ops.clip(x, low=-1, high=1), [-2, -1, 0, 1, 2.0]) == [0, 1, 1, 1, 0]


def test_powers_at_zero():
    with np.errstate(all="raise"):
        assert gradients(lambda x: x**2, [0.0]) == [0.0]
        assert gradients(lambda x: x**1, [0.0]) == [1.0]
        assert gradients(lambda x: x**0, [0.0]) == [0.0]
        assert gradients(lambda x, y: x**y, [0.0], [2.0]) == [[0.0], [0.0]]


def test_a_power_of_a_negative_number_with_a_whole_exponent():
    assert gradients(lambda x: x**3, [-2.0]) == [12.0]


def test_repeated_indices_add_up():
    assert gradients(lambda x: x[np.array([0, 0, 2, 0])], [1.0, 2.0, 3.0]) == [3.0, 0.0, 1.0]
    table = [[1.0], [2.0]]
    assert gradients(lambda w: ops.embedding(w, on_device([1, 1, 0, 1])), table) == [[1.0], [3.0]]


def test_a_mask_index_lets_the_gradient_through_where_it_holds():
    assert gradients(lambda x: x[np.array([True, False, True])], [1.0, 2.0, 3.0]) == [1.0, 0.0, 1.0]


def test_a_dropped_element_has_no_gradient_and_a_kept_one_the_scale():
    rng = np.random.default_rng(0)
    g = gradients(lambda x: ops.dropout(x, p=0.75, rng=rng), np.ones(100))
    assert set(g) == {0.0, 4.0}


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize(
    "f", [lambda x: x.sum(), lambda x: (x * x + 1.0).sum(0).sum(), lambda x: x.exp().flatten().sum()]
)
def test_an_array_without_elements_has_an_empty_gradient(f, shape):
    x = Parameter(on_device(np.zeros(shape)))
    with Tape() as tape:
        loss = f(x)
    tape.backward(loss)
    assert x.grad is not None
    assert x.grad.shape == shape


def test_a_loss_over_no_samples_is_zero_and_so_are_the_gradients():
    w = Parameter(on_device(np.ones((4, 3))))
    with Tape() as tape:
        loss = ops.cross_entropy(ops.linear(on_device(np.ones((0, 3))), w), on_device(np.zeros(0, int)))
    tape.backward(loss)
    assert loss.item() == 0
    assert w.grad is not None
    assert w.grad.tolist() == np.zeros((4, 3)).tolist()


def test_labels_may_be_of_any_integer_type():
    x = np.array([[1.0, 2.0, 3.0]])
    values = {ops.cross_entropy(on_device(x), on_device(np.array([1], kind))).item() for kind in "bBhiq"}
    assert len(values) == 1


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "filters"), [(0, 2), (3, 0), (0, 0)])
def test_a_convolution_of_no_channels_or_filters_gives_zeros(channels, filters, stride):
    shapes = (2, channels, 5, 4), (filters, channels, 3, 3), (filters,)
    leaves = [Parameter(on_device(np.zeros(shape))) for shape in shapes]
    with Tape() as tape:
        y = ops.conv2d(*leaves, stride=stride, padding=1)
    tape.backward(y, 1.0)
    assert y.shape == (2, filters, *((5, 4) if stride == 1 else (3, 2)))
    assert not y.numpy().any()
    assert [leaf.grad.shape for leaf in leaves if leaf.grad is not None] == list(shapes)


def test_batch_norm_of_no_channels():
    grads = gradients(ops.batch_norm, np.zeros((2, 0, 3, 3)), np.zeros(0), np.zeros(0))
    assert grads == [[[], []], [], []]
