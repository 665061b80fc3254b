"""Laws of minigrad/half.py and minigrad/product.py: 16 bits to store, 32 to compute with, for all ops."""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.environment import variable
from minigrad.half import rounded
from minigrad.product import product
from minigrad.recompute import recomputed
from minigrad.serial import Serial
from minigrad.sums import axis_sums
from minigrad.tape import finish_weights
from minigrad.testing import DEVICE, on_device
from tests.double import check_on_double, needs_double
from tests.minigrad.ops import half_laws, op_laws
from tests.minigrad.ops.op_table import CONSTANTS, TABLE, Case

FEWER = max(settings().max_examples // 5, 4)
LOSSES = {
    "cross_entropy", "cross_entropy_options", "nll_loss", "soft_cross_entropy", "kl_div",
    "kl_div_of_logarithms", "mse", "l1_loss", "huber_loss", "smooth_l1_loss",
    "binary_cross_entropy_with_logits",
}  # fmt: skip
SOME_STEPS = {
    "multiply": "products of repeated inputs are rounded before they are summed",
    "divide": "as is x / y / y, which is rounded on its way",
    "matmul": "as are the products of stacks that share a matrix",
    "sin": "the slope is rounded, and then its product with g",
    "cos": "the slope is rounded, and then its product with g",
    "einsum": "several ops, each of which rounds",
    "pad_with_its_own": "the sums along each axis are rounded",
}
if DEVICE != "numpy":  # where cuBLAS adds up in float32, and rounds before a bias is added
    SOME_STEPS |= dict.fromkeys(("linear", "linear_bias", "linear_of_any_axes", "grouped_linear"), "a bias")
BY_VALUE = {
    "exp": lambda y, g: g * y,
    "sqrt": lambda y, g: g / (2 * y),
    "tanh": lambda y, g: g * (1 - y * y),
    "sigmoid": lambda y, g: g * y * (1 - y),
    "softmax": lambda y, g, axis: y * (g - (g * y).sum(axis=axis, keepdims=True)),
    "log_softmax": lambda y, g, axis: g - np.exp(y) * g.sum(axis=axis, keepdims=True),
}
AS_IT_IS = {  # where the table's function rounds inputs itself, or takes a setting from their dtype
    "soft_cross_entropy": ops.cross_entropy,
    "rms_norm": partial(ops.rms_norm, eps=1e-3),
}
ONCE = [case for case in TABLE if case.name not in {*SOME_STEPS, *BY_VALUE}]


@pytest.mark.parametrize("case", ONCE, ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_of_halves_is_that_of_singles_rounded_once(case: Case, data):
    f, inputs = case._replace(op=AS_IT_IS.get(case.name, case.op)).draw(data)
    value = np.float32 if case.name in LOSSES else np.float16
    with np.errstate(all="ignore"):
        half_laws.is_the_rounded_op(f, *inputs, value=value)


@pytest.mark.parametrize("case", [c for c in TABLE if c.name in SOME_STEPS], ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_of_a_few_steps_rounds_each(case: Case, data):
    f, inputs = case.draw(data)
    half_laws.rounds_some_steps(f, *inputs)


@pytest.mark.parametrize("case", [c for c in TABLE if c.name in BY_VALUE], ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_a_gradient_is_computed_from_the_rounded_value(case: Case, data):
    (x,), own = data.draw(case.inputs)
    half_laws.goes_back_from_the_value(case.op, BY_VALUE[case.name], x, **own)


@needs_double
@pytest.mark.thorough
@pytest.mark.skipif(DEVICE != "numpy", reason="these laws run on a GPU already")
def test_no_kernel_for_floats_and_doubles_gets_a_half(monkeypatch, pytestconfig):
    """The double's kernels raise an error for arrays of another dtype."""
    monkeypatch.setenv("MINIGRAD_DEVICE", "cupy")
    check_on_double(__file__, pytestconfig)


def test_every_op_has_a_law():
    assert {*SOME_STEPS, *BY_VALUE, *AS_IT_IS} <= {case.name for case in TABLE}
    assert set(ops.__all__) <= {case.name for case in TABLE} | CONSTANTS


# Numbers


def test_the_numbers_of_half_precision():
    half = np.float16
    with np.errstate(over="ignore"):
        assert (half(65504), half(65519), half(65520)) == (65504, 65504, np.inf)
    assert (half(2.0**-24), half(2.0**-25), half(2.0**-25 * (1 + 2.0**-10))) == (2.0**-24, 0, 2.0**-24)
    assert half(1) + half(2.0**-11) == 1 and half(1) - half(2.0**-12) == 1
    assert half(1) + half(2.0**-10) > 1 and half(1) - half(2.0**-11) < 1


def test_numbers_are_rounded_as_by_numpy():
    rng = np.random.default_rng(0)
    steps = (np.arange(-9_000, 9_000) * 2.0**-26).astype(np.float32)  # four to a step of float16 near 0
    sizes = rng.normal(size=9_000) * 2.0 ** rng.integers(-30, 18, 9_000)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65519, 65520, 2.0**-25, -(2.0**-25), 2.0**-14])
    neighbors = [np.nextafter(steps, np.float32(side)) for side in (-1, 1)]
    for x in (steps, *neighbors, sizes.astype(np.float32), special.astype(np.float32)):
        half_laws.rounds_like_numpy(rounded, x)
    half_laws.rounds_like_numpy(rounded, steps.reshape(4, 90, 50).transpose(0, 2, 1))


def test_the_gradient_of_a_loss_may_be_scaled_by_more_than_a_half_can_hold():
    half_laws.overflows_in_silence(ops.mse)


# Sums and products


@given(n=st.sampled_from([1, 70, 3_000, 70_000]), seed=st.integers(0, 9))
@settings(max_examples=FEWER)
def test_sums_of_halves_are_rounded_once(n, seed):
    half_laws.sums_are_rounded_once(axis_sums, n, seed)
    half_laws.sums_are_rounded_once(lambda x, axes: ops.sum(x, axis=axes).data, n, seed)
    half_laws.sums_are_rounded_once(lambda x, axes: ops.cumsum(x, axis=axes[0]).data[-1], n, seed)


@given(sizes=st.tuples(*[st.integers(0, 5)] * 3), seed=st.integers(0, 9))
def test_a_product_of_halves_is_that_of_singles(sizes, seed):
    half_laws.multiplies_in_single(product, sizes, seed)


@pytest.mark.skipif(DEVICE != "numpy", reason="cuBLAS rounds a product before its bias is added")
def test_a_long_row_of_a_layer_is_added_up_in_single():
    half_laws.a_long_row_and_its_bias_are_rounded_once(ops.linear)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu"])
@given(seed=st.integers(0, 99))
@settings(max_examples=FEWER)
def test_a_layer_with_an_activation_is_the_two_one_after_the_other(activation, seed):
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(4, 3)), rng.normal(size=(5, 3)), rng.normal(size=5)
    after = {"none": lambda y: y, "relu": ops.relu, "gelu": ops.gelu}[activation]
    results = []
    for f in (partial(ops.linear, activation=activation), lambda *xs: after(ops.linear(*xs))):
        leaves = half_laws.parameters_of(*drawn)
        with Tape() as tape:
            y = f(*leaves)
        tape.backward(y, half_laws.seed_like(y))
        results.append([y.data, *(leaf.grad for leaf in leaves)])
    for a, b in zip(*results, strict=True):
        assert a is not None and b is not None
        assert a.dtype == np.float16 and np.array_equal(to_host(a), to_host(b))


# Bytes


@given(
    sizes=st.lists(st.integers(1, 9), min_size=3, max_size=5),
    samples=st.integers(1, 9),
    activation=st.sampled_from([nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid]),
)
@settings(max_examples=FEWER)
def test_a_perceptron_takes_half_the_bytes(sizes, samples, activation):
    layers, rng = [], np.random.default_rng(0)
    for n, m in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(n, m, rng=rng), activation()]
    x, labels = np.random.default_rng(1).normal(size=(samples, sizes[0])), np.arange(samples) % sizes[-1]
    model = nn.Sequential(*layers[:-1])
    half_laws.takes_half_the_bytes(model, lambda y: ops.cross_entropy(y, on_device(labels)), x, labels)


@given(order=st.sampled_from(["pool", "norm pool", "norm relu pool", "relu pool"]), samples=st.integers(1, 4))
@settings(max_examples=FEWER)
def test_lenet_takes_half_the_bytes(order, samples):
    layers, rng, channels = [], np.random.default_rng(0), (1, 4, 8)
    for n, m in zip(channels, channels[1:], strict=False):
        more = {"norm": nn.BatchNorm(m), "relu": nn.ReLU(), "pool": nn.MaxPool2d(2)}
        layers += [nn.Conv2d(n, m, 5, rng=rng), *(more[name] for name in order.split())]
        layers += [] if "relu" in order else [nn.ReLU()]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 16, 10, rng=rng))
    x, labels = np.random.default_rng(1).normal(size=(samples + 1, 1, 28, 28)), np.arange(samples + 1)
    running = 2 * sum(channels[1:]) if "norm" in order else 0
    half_laws.takes_half_the_bytes(
        model, lambda y: ops.cross_entropy(y, on_device(labels)), x, labels, running
    )


@given(
    blocks=st.integers(1, 2), heads=st.integers(1, 3), length=st.integers(1, 9), p=st.sampled_from([0.0, 0.2])
)
@settings(max_examples=FEWER)
def test_a_transformer_takes_half_the_bytes(blocks, heads, length, p):
    rng, width = np.random.default_rng(0), 4 * heads
    table = nn.TokenEmbedding(11, width, 9, rng=rng)
    some = [nn.TransformerBlock(width, heads, p=p, rng=rng) for _ in range(blocks)]
    model = nn.Sequential(table, *some, nn.LayerNorm(width), nn.Unembedding(table))
    x = on_device(np.random.default_rng(1).integers(0, 11, (3, length)))
    half_laws.takes_half_the_bytes(
        model, lambda y: ops.cross_entropy(ops.reshape(y, shape=(-1, 11)), x.reshape(-1)), x, x
    )


# Layers


@pytest.mark.parametrize("how", ["later", "buffers", "segments"])
def test_gradients_are_equal_however_they_are_computed(how):
    models = [half_laws.small_net(0) for _ in range(2)]
    x = on_device(np.random.default_rng(1).normal(size=(9, 6)).astype(np.float16))
    running = [model[1] for model in models]
    if how == "segments":
        models[1] = recomputed(models[1], 3)
    expected = half_laws.gradients(models[0], x)
    again = half_laws.gradients(models[1], x, later=how == "later", buffers=how == "buffers")
    for a, b in zip(expected, again, strict=True):
        assert a.dtype == b.dtype == np.float16 and np.array_equal(a, b)
    assert np.array_equal(to_host(running[0].running_var), to_host(running[1].running_var))


def test_micro_batches_share_one_product_whose_sum_is_rounded_once():
    layer, rng = nn.Linear(3, 2, rng=0), np.random.default_rng(0)
    layer.to(dtype="float16", device=DEVICE)
    xs, later = [rng.normal(size=(4, 3)).astype(np.float16) for _ in range(3)], []
    for x in xs:
        with Tape() as tape:
            y = layer(on_device(x))
        later += tape.backward(y, on_device(np.ones((4, 2), np.float16)), weights_later=True)
    finish_weights(later)
    exact = np.concatenate(xs).astype(np.float64).sum(axis=0)
    roundings = 3 if variable("MINIGRAD_OPS") == "readable" else 1  # where there are three products
    bound = 1.01 * roundings * half_laws.U * sum(abs(x.sum(axis=0, dtype=float)) for x in xs)
    assert (
        abs(to_host(layer.weight.grad) - exact) <= (abs(exact) * half_laws.U if roundings == 1 else bound)
    ).all()


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.uint8])
@pytest.mark.parametrize("name", op_laws.LAYERS)
def test_a_layer_of_halves_rounds_its_samples(name, kind):
    f, *shapes = op_laws.LAYERS[name]
    x, *parameters = (np.random.default_rng(i).normal(2, 1, shape) for i, shape in enumerate(shapes))
    parameters = [a.astype(np.float16) for a in parameters]
    op_laws.has_the_dtype_of_a_layer(f, np.dtype(np.float16), x.astype(kind), *parameters)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_running_statistics_stay_single_and_take_small_steps(dtype):
    half_laws.small_steps_of_running_statistics_count(nn.BatchNorm(2, momentum=2.0**-13, dtype=dtype))


def test_statistics_are_passed_on_once_and_other_ranks_asked_once_each_way():
    half_laws.asks_once_each_way(ops.batch_norm)


def test_an_eps_that_a_half_cannot_hold_counts():
    half_laws.a_small_eps_counts(ops.layer_norm)


def test_scores_that_are_masked_by_a_number_that_a_half_cannot_hold():
    x = on_device(np.zeros((2, 4), np.float16))
    with np.errstate(over="ignore"):
        scores = ops.masked_fill(x, on_device(np.tri(2, 4, dtype=bool)), value=-1e30)
    p = to_host(ops.softmax(scores).data)
    assert (p[0, 0], p[1, :2].tolist()) == (0, [0, 0]) and abs(p.sum(axis=1) - 1).max() < 1e-3


def test_a_net_of_halves_learns_as_one_of_singles():
    losses = []
    for dtype in ("float32", "float16"):
        model, rng = half_laws.small_net(3, dtype), np.random.default_rng(4)
        x = rng.normal(size=(16, 6)).astype(dtype)
        loss = np.inf
        for _ in range(30):
            batch = Batch(on_device(x), on_device(x[:, :3].copy()))
            loss = Serial().step(model, batch, ops.mse)
            for p in model.parameters():
                assert p.grad is not None
                p.data -= p.data.dtype.type(0.1) * p.grad
                p.grad = None
        losses.append(float(loss))
    assert losses[0] < 0.6 and abs(losses[1] - losses[0]) < 0.05 * losses[0]


def test_a_mixture_of_experts_computes_in_halves():
    layer = nn.Experts(4, 3, hidden=5, rng=0)
    layer.to(dtype="float16", device=DEVICE)
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float16)
    with Tape() as tape:
        y = layer(Tensor(on_device(x)))
        loss = ops.mse(y, on_device(np.zeros(y.shape)))
    tape.backward(loss, 2.0**8)
    assert y.dtype == np.float16
    assert all(p.grad is not None and p.grad.dtype == np.float16 for p in layer.parameters())


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_layers_choose_alike_in_a_row(precision):
    half_laws.layers_choose_alike_in_a_row(precision)
