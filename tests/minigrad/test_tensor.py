"""Laws of minigrad/tensor.py: tensors and parameters as values."""

from importlib.metadata import version

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minigrad
from minigrad import Parameter, Tape, Tensor
from minigrad.testing import on_device


def test_a_tensor_shows_the_array_it_wraps():
    x = Tensor(on_device([[1.0, 2.0, 3.0]]))
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((1, 3), 2, 3, np.float64, 1)
    assert type(x.numpy()) is np.ndarray
    assert x.numpy().tolist() == [[1.0, 2.0, 3.0]]
    assert x[0, 1].item() == 2.0


def test_its_representation_names_shape_dtype_and_whether_it_requires_grad():
    assert repr(Tensor([1.0, 2.0])) == "Tensor([1. 2.], dtype=float64)"
    assert repr(Parameter(np.float32(3))) == "Parameter(3., dtype=float32, requires_grad=True)"


def test_a_tensor_wraps_without_copying_and_a_parameter_copies():
    x = on_device(np.ones(3))
    assert Tensor(x).data is x
    parameter = Parameter(x)
    parameter.data += 1
    assert x.tolist() == [1, 1, 1]


def test_a_parameter_is_in_c_order_whatever_it_was_made_from():
    assert Parameter(on_device(np.ones((3, 4)).T)).data.flags.c_contiguous


def test_a_tensor_of_a_tensor_shares_its_array_and_is_a_leaf():
    with Tape():
        x = Tensor(on_device([1.0]), requires_grad=True) * 2.0
    y = Tensor(x)
    assert y.data is x.data
    assert y.tape is None
    assert not y.requires_grad


def test_results_require_grad_when_an_input_does():
    with Tape():
        x = Parameter(on_device([1.0]))
        assert (x * 2.0).requires_grad
        assert not (Tensor(on_device([1.0])) * 2.0).requires_grad


def test_integers_are_values_but_never_leaves():
    assert (Tensor(on_device([1, 2])) + 1).numpy().tolist() == [2, 3]
    with pytest.raises(TypeError, match="int64.*astype"):
        Tensor(on_device(np.array([1, 2], np.int64)), requires_grad=True)


def test_a_tensor_can_be_walked_and_unpacked():
    a, b = Tensor(on_device([[1.0], [2.0]]))
    assert (a.shape, b.item()) == ((1,), 2.0)


@given(
    x=st.floats(-1e6, 1e6),
    shape=st.sampled_from([(), (1,), (1, 1)]),
    spec=st.sampled_from([".3f", "8.2e", "g"]),
)
def test_a_tensor_of_one_element_is_that_number_also_under_a_tape(x, shape, spec):
    with Tape():
        loss = Parameter(on_device(np.full(shape, x))) * 2.0
    assert (float(loss), int(loss), format(loss, spec)) == (2 * x, int(2 * x), format(2 * x, spec))
    assert f"{loss}" == repr(loss)


@pytest.mark.parametrize("shape", [(2,), (0,), (2, 1)])
@pytest.mark.parametrize("convert", [float, int, "{:.3f}".format])
def test_a_tensor_of_several_elements_is_not_one_number(shape, convert):
    with pytest.raises(TypeError, match=r"a tensor of shape .* is not one number; take \.mean\(\)"):
        convert(Tensor(on_device(np.ones(shape))))


def test_the_package_has_a_version():
    assert minigrad.__version__ == version("minigrad-course")
    with pytest.raises(AttributeError, match="minigrad.*no attribute 'version'"):
        minigrad.version  # noqa: B018
