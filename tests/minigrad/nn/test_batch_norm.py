"""Laws of minigrad/nn/norm.py, dropout.py, minigrad/ops/batch_norm.py and dropout.py: training and eval
mode of batch normalisation and dropout.
"""

import warnings
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Tape, loops, nn, ops, testing
from minigrad.data import shares
from minigrad.device import to_host
from minigrad.ops.batch_norm import merged
from minigrad.testing import DEVICE, on_device
from tests.minigrad.ops import norm_laws, op_laws

SHAPES = [(6, 3), (2, 3, 4, 5)]


def layer():
    made = nn.BatchNorm(3, momentum=0.3, dtype=np.float64).to(device=DEVICE)
    assert isinstance(made, nn.BatchNorm)
    return made


def drawn(shape):
    x = np.random.default_rng(0).normal(3, 2, shape)
    return x, x.swapaxes(0, 1).reshape(3, -1)  # and by channel


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_training_mode_it_uses_the_batchs_statistics(shape):
    x, _ = drawn(shape)
    y = layer()(on_device(x)).numpy()
    by_channel = y.swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_allclose(by_channel.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(by_channel.var(1), 1, rtol=1e-4)  # eps is 1e-5 beside a variance of 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_running_statistics_move_towards_the_batchs_unbiased_ones(shape):
    x, by_channel = drawn(shape)
    norm = layer()
    for _ in range(2):
        norm(on_device(x))
    share = 1 - 0.7**2
    np.testing.assert_allclose(to_host(norm.running_mean), share * by_channel.mean(1), rtol=1e-12)
    expected = 0.7**2 + share * by_channel.var(1, ddof=1)
    np.testing.assert_allclose(to_host(norm.running_var), expected, rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_eval_mode_it_uses_the_running_ones_and_leaves_them(shape):
    x, _ = drawn(shape)
    norm = layer().eval()
    norm.running_mean += 1.0
    norm.running_var += 3.0
    before = norm.state_dict()
    expected = (x - 1) / np.sqrt(4 + 1e-5)
    np.testing.assert_allclose(norm(on_device(x)).numpy(), expected, rtol=1e-12)
    assert all(np.array_equal(before[name], value) for name, value in norm.state_dict().items())


@given(images=st.integers(0, 3), height=st.integers(1, 2), width=st.integers(1, 2), training=st.booleans())
def test_training_on_one_value_per_channel_is_said(images, height, width, training):
    """The output of such a batch is the bias, and the gradient of what comes before it is 0."""
    x = on_device(np.ones((images, 3, height, width)))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        layer().train(training)(x)
    assert len(heard) == (training and images * height * width == 1)
    assert all("one value per channel" in str(one.message) for one in heard)


def test_one_sample_does_not_spoil_the_running_variance():
    norm = layer()
    with Tape():
        norm(on_device(np.ones((1, 3))))
    assert np.isfinite(to_host(norm.running_var)).all()


def test_no_samples_leave_the_running_statistics_alone():
    norm = layer()
    before = norm.state_dict()
    with Tape():
        norm(on_device(np.ones((0, 3))))
    assert all(np.array_equal(before[name], value) for name, value in norm.state_dict().items())


# Statistics gathered from several holders of the batch


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), offset=st.sampled_from([0.0, 1e4])
)
def test_the_statistics_of_parts_make_those_of_the_whole(counts, offset):
    rng = np.random.default_rng(0)
    parts = [offset + rng.normal(size=(n, 3)) for n in counts]
    rows = [
        np.concatenate(
            [[len(x)], x.sum(0) / max(len(x), 1), ((x - x.mean(0)) ** 2).sum(0) if len(x) else 3 * [0]]
        )
        for x in parts
    ]
    whole = np.concatenate(parts)
    n, mean, squares = merged([on_device(row) for row in rows])
    assert n == len(whole)
    np.testing.assert_allclose(to_host(mean), whole.mean(0), rtol=1e-13, atol=1e-13)
    expected = ((whole - whole.mean(0)) ** 2).sum(0)
    np.testing.assert_allclose(to_host(squares), expected, rtol=1e-8 if offset else 1e-12, atol=1e-12)


def alone(*arrays):
    """Batch-norm that asks all ranks, of which there is one."""
    return ops.batch_norm(*arrays, gather=lambda a: [a])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gathered_from_one_it_is_batch_norm(shape):
    inputs = [on_device(a) for a in (drawn(shape)[0], np.arange(1.0, 4), np.arange(3.0))]
    testing.gradient_matches_difference(alone, *inputs)
    op_laws.pullbacks_keep_the_contract(alone, *inputs)
    op_laws.dtype_is_kept(alone, *inputs)
    np.testing.assert_allclose(alone(*inputs).numpy(), ops.batch_norm(*inputs).numpy(), rtol=1e-12)
    if len(shape) == 4:
        op_laws.channels_last_is_kept(alone, *inputs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gathering_keeps_no_memory_for_backward(shape):
    sizes = []
    for gather in (None, lambda a: [a]):
        norm = layer()
        if gather is not None:
            norm.synchronize("data", gather)
        with Tape() as tape:
            norm(on_device(drawn(shape)[0]))
        sizes.append(tape.nbytes)
    assert sizes[0] == sizes[1]


# With the ReLU behind it


@pytest.mark.filterwarnings("ignore:batch_norm of one value")
@given(
    shape=st.sampled_from([(0, 3), (1, 3), (8, 3), (4, 3, 5), (1, 3, 1, 2), (3, 3, 4, 2)]),
    order=st.sampled_from(
        [testing.c_order, testing.fortran_order, testing.with_gaps, testing.reversed_order]
    ),
    dtype=st.sampled_from("fd"),
    statistics=st.sampled_from(["own", "gathered", "fixed"]),
    by_loops=st.booleans(),
)
def test_it_takes_the_relu_behind_it(shape, order, dtype, statistics, by_loops):
    rng = np.random.default_rng(0)
    x, g = (order(rng.integers(-2, 3, shape).astype(dtype)) for _ in range(2))
    weight, bias = np.array([1, 0, -2], dtype), np.array([0, -1, 1], dtype)
    settings = {"gathered": {"gather": lambda a: [a, a]}, "own": {}}.get(
        statistics, {"statistics": (on_device(bias), on_device(weight**2))}
    )
    with patch.object(loops, "available", return_value=by_loops and loops.available()):
        norm_laws.takes_the_relu_behind_it(ops.batch_norm, g, x, weight, bias, **settings)


class Doubled(nn.BatchNorm):
    """A batch-norm of another kind, which computes no ReLU."""

    def forward(self, x):
        return super().forward(x) * 2.0


@pytest.mark.parametrize("training", [True, False])
def test_a_sequential_computes_a_relu_with_the_batch_norm_before_it(training):
    first, other, last = (kind(3, dtype=np.float64) for kind in (nn.BatchNorm, Doubled, nn.BatchNorm))
    model = nn.Sequential(first, nn.ReLU(), other, nn.ReLU(), last)
    model.to(device=DEVICE).train(training)
    norm_laws.stands_for_its_layers(model, on_device(drawn((2, 3, 4, 5))[0]), ops_less=1)


# Groups


def ghost(groups):
    made = nn.GhostBatchNorm(3, groups, momentum=0.3, dtype=np.float64).to(device=DEVICE)
    assert isinstance(made, nn.GhostBatchNorm)
    return made


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 4, 9])
def test_each_group_is_normalised_by_itself(shape, groups):
    x, _ = drawn(shape)
    norm = ghost(groups)
    means, variances = [], []
    with Tape():
        y = norm(on_device(x)).numpy()
    for share in shares(len(x), groups):
        part = on_device(x[share])
        if not len(part):
            continue
        one = layer()
        with Tape():
            np.testing.assert_allclose(y[share], one(part).numpy(), rtol=1e-12, atol=1e-12)
        means.append(len(part) / len(x) * to_host(one.running_mean))
        variances.append(len(part) / len(x) * to_host(one.running_var))
    np.testing.assert_allclose(to_host(norm.running_mean), sum(means), rtol=1e-12)
    np.testing.assert_allclose(to_host(norm.running_var), sum(variances), rtol=1e-12)


def test_one_group_is_batch_norm_bit_for_bit():
    x = on_device(drawn((6, 3))[0])
    one, norm = ghost(1), layer()
    with Tape():
        np.testing.assert_array_equal(one(x).numpy(), norm(x).numpy())
    assert all(np.array_equal(one.state_dict()[name], value) for name, value in norm.state_dict().items())


def test_groups_have_gradients_of_their_own():
    norm = ghost(2)
    inputs = on_device(drawn((6, 3))[0])
    testing.gradient_matches_difference(lambda x: norm.normalize(x, norm.observe), inputs)


def test_in_eval_mode_groups_do_not_matter():
    x = on_device(drawn((6, 3))[0])
    np.testing.assert_array_equal(ghost(4).eval()(x).numpy(), layer().eval()(x).numpy())


def test_there_is_at_least_one_group():
    with Tape(), pytest.raises(ValueError, match="at least 1 part, got 0"):
        ghost(0)(on_device(np.ones((2, 3))))


def test_dropout_is_the_identity_in_eval_mode():
    x = on_device(np.ones(50))
    layer = nn.Dropout(0.5, rng=np.random.default_rng(0))
    assert set(np.unique(layer(x).numpy())) == {0.0, 2.0}
    with Tape():
        assert layer.eval()(x).data is x


def test_dropout_draws_anew_each_time_and_the_same_for_the_same_seed():
    x, draws = on_device(np.ones(50)), []
    for _ in range(2):
        layer = nn.Dropout(0.5, rng=np.random.default_rng(0))
        with Tape():
            draws.append([layer(x).numpy().tolist() for _ in range(2)])
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]
