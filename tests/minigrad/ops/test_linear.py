"""Laws of minigrad/ops/linear.py, minigrad/ops/fast/linear.py, linear_loops.py and minigrad/nn/linear.py:
a linear layer and the activation that follows it are one op.
"""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minigrad import nn, ops
from minigrad.testing import DEVICE, c_order, fortran_order, reversed_order, with_gaps
from tests.minigrad.ops import linear_laws

ACTIVATIONS = st.sampled_from(["none", "relu", "gelu"])


@given(
    activation=ACTIVATIONS,
    leading=st.lists(st.integers(0, 7), max_size=3),
    n_in=st.integers(1, 5),
    n_out=st.sampled_from([1, 3, 40]),
    dtype=st.sampled_from([np.float32, np.float64]),
    orders=st.tuples(*[st.sampled_from([c_order, fortran_order, with_gaps, reversed_order])] * 3),
    bias=st.booleans(),
)
@example("relu", [70], 2, 3, np.float32, (c_order, c_order, with_gaps), True)
@example("gelu", [2, 35], 2, 3, np.float64, (with_gaps, c_order, c_order), True)
@example("relu", [3, 33], 2, 40, np.float32, (c_order, fortran_order, c_order), True)
def test_a_linear_layer_computes_its_activation(activation, leading, n_in, n_out, dtype, orders, bias):
    rng, of_x, of_w, of_g = np.random.default_rng(len(leading)), *orders
    shapes = (*leading, n_in), (n_out, n_in), (*leading, n_out), (n_out,)
    x, w, g, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    inputs = (of_x(x), of_w(w), of_w(b))[: 3 if bias else 2]
    linear_laws.computes_its_activation(ops.linear, activation, of_g(g), *inputs)


@given(ACTIVATIONS, st.sampled_from([(40, 8), (4, 10, 8)]))
def test_a_linear_layer_holds_its_rows_and_one_array(activation, shape):
    linear_laws.holds_its_rows_and_one_array(ops.linear, activation, np.ones(shape), 16)


@given(ACTIVATIONS, st.sampled_from([(6, 3), (6, 2, 3)]), st.integers(0, 99))
def test_its_weights_may_wait(activation, shape, seed):
    x, w, b = (np.random.default_rng(seed).normal(size=s) for s in (shape, (4, 3), (4,)))
    linear_laws.weights_wait(ops.linear, activation, x, w, b)


class Doubled(nn.GELU):
    def forward(self, x):
        return super().forward(x) * 2.0


LAYERS = {
    "relu": (nn.ReLU, True),
    "gelu": (nn.GELU, DEVICE == "numpy"),
    "gelu by tanh": (lambda: nn.GELU("tanh"), False),
    "doubled": (Doubled, False),
    "silu": (nn.SiLU, False),
}


@given(
    st.lists(st.sampled_from(list(LAYERS)), max_size=3),
    st.sampled_from([(5, 3), (2, 5, 3), (0, 3), (3,), (1, 5000, 3)]),
    st.sampled_from([(np.float32, 2e-4), (np.float64, 1e-11)]),
)
def test_a_sequential_computes_the_activation_with_the_layer(names, shape, dtype):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype[0])
    taken = int(bool(names) and LAYERS[names[0]][1])
    layers = [LAYERS[name][0]() for name in names]
    linear_laws.takes_the_activations_it_can(layers, taken, x, rtol=dtype[1], atol=dtype[1] * 10)


def test_a_spy_on_the_activation_is_asked():
    layer, shapes = nn.ReLU(), []
    layer.forward = lambda x: shapes.append(x.shape) or ops.relu(x)
    linear_laws.takes_the_activations_it_can([layer], 0, np.ones((2, 3)))
    assert shapes == [(2, 4), (2, 4)]


def test_an_unknown_activation_is_refused():
    with pytest.raises(ValueError, match="unknown activation 'tanh'; choose one of relu, gelu, none"):
        ops.linear(np.ones((2, 3)), np.ones((4, 3)), activation="tanh")
