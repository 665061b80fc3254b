"""Laws of minigrad/dtypes.py and half.py: float32 stays float32, also beside Python numbers
and NumPy scalars, also in 0-d.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import nn, ops, optim, testing
from minigrad.data import Batch
from minigrad.serial import Serial
from tests.minigrad.ops import op_laws
from tests.minigrad.ops.op_table import TABLE, Case

FEWER = max(settings().max_examples // 3, 4)
every_op = pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name)


@every_op
@settings(max_examples=FEWER)  # a type depends on the op and its settings, hardly on shapes and numbers
@given(data=st.data())
def test_float32_in_float32_out_and_back(case: Case, data):
    f, inputs = case.draw(data)
    op_laws.dtype_is_kept(f, *inputs)


NUMBERS = [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0, np.float32)]
EXPRESSIONS = {
    "x + n": lambda x, n: x + n,
    "n - x": lambda x, n: n - x,
    "x * n": lambda x, n: x * n,
    "n / x": lambda x, n: n / x,
    "x ** n": lambda x, n: x**n,
    "n ** x": lambda x, n: n**x,
    "mean of x / n": lambda x, n: (x / n).mean(),
    "n * sum": lambda x, n: n * x.sum() / n,
}


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_number_does_not_widen_float32(name, number, shape):
    x = testing.on_device(np.full(shape, 1.5))
    if isinstance(number, np.ndarray):
        number = testing.on_device(number)
    op_laws.dtype_is_kept(lambda x: EXPRESSIONS[name](x, number), x)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)], ids=str)
@given(st.sampled_from("efdilB?"), st.sampled_from("efdilB?"))
def test_astype_gives_the_dtype_that_is_asked_for(shape, dtype, other):
    op_laws.astype_is_numpys(ops.astype, np.full(shape, 2.75).astype(dtype), other)


def twentieths(*shape):
    return np.random.default_rng(len(shape)).integers(0, 200, shape)


LABELS = np.array([0, 3, 2, 1])
ROWS, PAIR, IMAGES = (
    (twentieths(4, 6),),
    (twentieths(4, 6), twentieths(4, 6)[::-1]),
    (twentieths(2, 3, 4, 6),),
)
WITH_PARAMETERS = (*ROWS, np.ones(6), np.arange(6))
UNARY = """exp log sqrt tanh sin cos sigmoid gelu silu softplus log_sigmoid elu hardswish
    mean var std logsumexp softmax log_softmax"""
OF_FRACTIONS = {name: (getattr(ops, name), ROWS) for name in UNARY.split()} | {
    "mse": (ops.mse, PAIR),
    "l1_loss": (ops.l1_loss, PAIR),
    "huber_loss": (ops.huber_loss, PAIR),
    "smooth_l1_loss": (ops.smooth_l1_loss, PAIR),
    "kl_div": (ops.kl_div, PAIR),
    "binary_cross_entropy": (ops.binary_cross_entropy_with_logits, PAIR),
    "weighted": (partial(ops.binary_cross_entropy_with_logits, pos_weight=3), PAIR),
    "cross_entropy": (lambda x: ops.cross_entropy(x, LABELS), ROWS),
    "smoothed": (lambda x: ops.cross_entropy(x, LABELS, label_smoothing=0.1), ROWS),
    "nll_loss": (lambda x: ops.nll_loss(x, LABELS), ROWS),
    "batch_norm": (ops.batch_norm, WITH_PARAMETERS),
    "layer_norm": (ops.layer_norm, WITH_PARAMETERS),
    "rms_norm": (ops.rms_norm, WITH_PARAMETERS[:2]),
    "group_norm": (partial(ops.group_norm, groups=2), WITH_PARAMETERS),
    "instance_norm": (ops.instance_norm, IMAGES),
    "avg_pool2d": (partial(ops.avg_pool2d, kernel=2), IMAGES),
    "interpolate": (partial(ops.interpolate, scale_factor=1.5, mode="bilinear"), IMAGES),
    "a negative power": (lambda x: ops.power(x, -2), (1 + twentieths(3, 4) % 5,)),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "bool"])
@pytest.mark.parametrize("name", OF_FRACTIONS)
def test_integers_have_the_values_of_floats(name, dtype):
    f, inputs = OF_FRACTIONS[name]
    with np.errstate(all="ignore"):  # logarithms of 0
        op_laws.integers_are_floats(f, *inputs, dtype=dtype)


def test_the_largest_of_booleans_is_one():
    x = testing.on_device(np.array([[[[False, True], [False, False]]]]))
    assert ops.max_pool2d(x, kernel=2).numpy().tolist() == [[[[True]]]]
    assert ops.max_pool2d(x, kernel=2, padding=1).numpy().tolist() == [[[[False, True], [False, False]]]]


HALVES = {
    "layer_norm": (ops.layer_norm, (12, 6), 1),
    "rms_norm": (partial(ops.rms_norm, eps=1e-3), (12, 6), 1),
    "group_norm": (partial(ops.group_norm, groups=2), (12, 6), 1),
    "instance_norm": (ops.instance_norm, (2, 3, 4, 4), 0),
    "batch_norm": (ops.batch_norm, (12, 6), 1),
    "var": (ops.var, (12, 6), 0),
    "std of columns": (partial(ops.std, axis=0), (12, 6), 0),
    "logsumexp": (ops.logsumexp, (12, 6), 0),
    "softmax": (ops.softmax, (3, 600), 0),
    "log_softmax": (ops.log_softmax, (3, 600), 0),
    "l1_loss": (ops.l1_loss, (3000,), 1),
    "huber_loss": (ops.huber_loss, (3000,), 1),
    "cross_entropy": (lambda x: ops.cross_entropy(x, np.arange(400) % 6), (400, 6), 0),
    "binary_cross_entropy": (ops.binary_cross_entropy_with_logits, (3000,), 1),
    "avg_pool2d": (partial(ops.avg_pool2d, kernel=(60, 50)), (1, 3, 60, 50), 0),
    "adaptive_avg_pool2d": (partial(ops.adaptive_avg_pool2d, output_size=(2, 3)), (1, 3, 61, 50), 0),
}


OF_LOSSES = {"l1_loss", "huber_loss", "cross_entropy", "binary_cross_entropy"}


@pytest.mark.parametrize("name", HALVES)
@given(seed=st.integers(0, 99), level=st.sampled_from([0.0, 3.0]), spread=st.sampled_from([0.5, 8.0]))
def test_half_precision_adds_in_single(name, seed, level, spread):
    f, shape, parameters = HALVES[name]
    rng = np.random.default_rng(seed)
    width = shape if len(shape) == 1 else shape[1:2]
    more = rng.uniform(0.5, 1, (2, *width))[
        : parameters if name in ("rms_norm",) or len(shape) == 1 else 2 * parameters
    ]
    value, x = np.float32 if name in OF_LOSSES else np.float16, level + spread * rng.normal(size=shape)
    op_laws.half_precision_loses_only_its_own_digits(f, x, *more, value=value)


NEAR_300 = np.array([[299.0, 300.0, 301.0, 303.0]])


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm"])
def test_squares_that_half_precision_cannot_hold_are_normalised(name):
    f, _, parameters = HALVES[name]
    ones = [np.ones(4)] * (1 if name == "rms_norm" else 2)
    with np.errstate(over="raise", invalid="raise"):
        op_laws.half_precision_loses_only_its_own_digits(f, NEAR_300, *ones)
    assert parameters == 1


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.uint8, np.int64])
@pytest.mark.parametrize("name", op_laws.LAYERS)
def test_a_layer_computes_in_the_dtype_of_its_weights(name, kind):
    f, *shapes = op_laws.LAYERS[name]
    x, *parameters = (np.random.default_rng(i).normal(2, 1, shape) for i, shape in enumerate(shapes))
    parameters = [a.astype(np.float32) for a in parameters]
    op_laws.has_the_dtype_of_a_layer(f, np.dtype(np.float32), x.astype(kind), *parameters)


LOSSES = {
    "mse": ops.mse,
    "l1_loss": ops.l1_loss,
    "huber_loss": ops.huber_loss,
    "smooth_l1_loss": ops.smooth_l1_loss,
    "binary_cross_entropy": ops.binary_cross_entropy_with_logits,
    "kl_div": ops.kl_div,
}  # fmt: skip


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("kind", [np.float64, np.uint8, np.int64, np.bool_])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_computes_in_the_dtype_of_the_outputs(name, kind, reduction):
    out, targets = (np.random.default_rng(i).uniform(0, 1, (5, 2)) for i in range(2))
    loss = partial(LOSSES[name], reduction=reduction)
    f = lambda x: loss(x, testing.on_device(targets.astype(kind)))  # noqa: E731
    op_laws.has_the_dtype_of_a_layer(f, np.dtype(np.float32), out.astype(np.float32))


@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_a_model_trains_on_samples_of_another_dtype_as_on_those_of_its_own(kind):
    """Bit by bit: the numbers are rounded where they enter."""
    ends, rng = [], np.random.default_rng(0)
    x, y = (
        rng.integers(-3, 4, (6, 1, 6, 6)).astype(kind) / (3 if kind is np.float64 else 1),
        rng.normal(size=(6, 2)),
    )
    for samples, targets in ((x.astype(kind), y), (x.astype(np.float32), y.astype(np.float32))):
        rng = np.random.default_rng(1)
        model = nn.Sequential(
            nn.Conv2d(1, 2, 3, rng=rng), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2, rng=rng)
        )
        model.to(device=testing.DEVICE)
        optimizer = optim.SGD(model.parameters(), 0.1)
        batch = Batch(testing.on_device(samples), testing.on_device(targets))
        loss = Serial().step(model, batch, ops.mse)
        optimizer.step()
        ends.append([np.float64(loss), *model.state_dict().values()])
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(*ends, strict=True))
