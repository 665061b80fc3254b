"""Laws of minigrad/nn/init.py: initial numbers are those of the papers, for weights of any shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigrad import Parameter, nn
from minigrad.nn import init
from tests.minigrad.nn.init_laws import has_the_spread, kaiming_is_by_the_book, xavier_is_by_the_book

SHAPES = st.one_of(
    st.tuples(st.integers(20, 50), st.integers(20, 50)),
    st.tuples(st.integers(10, 20), st.integers(10, 20), st.integers(1, 3), st.integers(2, 3)),
)


@settings(max_examples=settings().max_examples // 2)
@given(shape=SHAPES, gain=st.sampled_from([1.0, 0.5]))
def test_xavier_is_by_the_book(shape, gain):
    xavier_is_by_the_book(init, shape, gain)


@settings(max_examples=settings().max_examples // 2)
@given(
    shape=SHAPES,
    mode=st.sampled_from(["fan_in", "fan_out"]),
    name=st.sampled_from(["relu", "tanh", "linear", "leaky_relu"]),
    a=st.sampled_from([0.0, 0.5]),
)
def test_kaiming_is_by_the_book(shape, mode, name, a):
    kaiming_is_by_the_book(init, shape, mode, name, a)


def test_plain_numbers():
    has_the_spread(lambda p, rng: init.normal_(p, 2.0, 0.5, rng=rng), (40, 30), 0.5, uniform=False, mean=2.0)
    std = 2 / 12**0.5
    has_the_spread(lambda p, rng: init.uniform_(p, 1.0, 3.0, rng=rng), (999,), std, uniform=True, mean=2.0)
    p = Parameter(np.zeros(3, np.float32))
    assert [fill(p).numpy().tolist() for fill in (init.ones_, init.zeros_)] == [[1.0] * 3, [0.0] * 3]
    assert init.constant_(p, 0.5).numpy().tolist() == [0.5] * 3 and p.dtype == np.float32


def test_the_weights_of_linear_layers_are_kaimings_of_the_square_root_of_5():
    layer = nn.Linear(7, 5, rng=3)
    again = init.kaiming_uniform_(
        Parameter(np.zeros((5, 7), np.float32)), a=5**0.5, rng=np.random.default_rng(3)
    )
    np.testing.assert_allclose(layer.weight.numpy(), again.numpy(), rtol=1e-6)


def test_what_has_no_fan_is_refused():
    with pytest.raises(ValueError, match=r"got \(3,\); take normal_"):
        init.xavier_normal_(Parameter(np.zeros(3)), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="unknown nonlinearity 'gelu'; choose one of linear, sigmoid"):
        init.kaiming_normal_(Parameter(np.zeros((2, 3))), nonlinearity="gelu", rng=np.random.default_rng(0))


@pytest.mark.parametrize("fill", [init.uniform_, init.normal_, init.xavier_uniform_, init.kaiming_normal_])
def test_a_seed_is_its_generator_and_anything_else_is_refused(fill):
    by_seed, by_generator = (
        fill(Parameter(np.zeros((3, 4))), rng=rng).numpy() for rng in (7, np.random.default_rng(7))
    )
    np.testing.assert_array_equal(by_seed, by_generator)
    with pytest.raises(TypeError, match=r"got rng=None; write rng = np.random.default_rng\(0\)"):
        fill(Parameter(np.zeros((3, 4))), rng=None)
