"""Laws of minigrad/bfloat16.py: all kinds of numbers, all ops, layers, segments that run again, threads."""

import threading

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from minigrad import Tape, Tensor, nn, ops
from minigrad.bfloat16 import OPEN, bfloat16, rounded
from minigrad.device import to_host
from minigrad.recompute import recomputed
from minigrad.testing import DEVICE, on_device
from tests.minigrad import bfloat16_laws as laws
from tests.minigrad.ops.op_table import TABLE, Case

FEWER = max(settings().max_examples // 10, 3)
COMPOSED = {"einsum", "soft_cross_entropy"}  # several ops, each of which rounds
SPECIAL = [
    0, 1, 0x8000, 0x8001, 0x18000, 0x7F7F8000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7F80FFFF, 0x7FFFFFFF,
    0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x00800000, 0x007FFFFF, 0x007F8000,
]  # fmt: skip
PATTERNS = np.array([*SPECIAL, *(bits | 1 << 31 for bits in SPECIAL)], np.uint32)


def test_numbers_go_to_the_nearest():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 200_000, np.uint32)
    ties = (bits[:50_000] & 0xFFFF0000) | rng.choice([0x7FFF, 0x8000, 0x8001, 0], 50_000).astype(np.uint32)
    subnormal = bits[:20_000] & 0x807FFFFF
    for patterns in (bits, ties, subnormal, PATTERNS):
        laws.rounds_like_integers(rounded, patterns)
    for patterns in (bits[:2_000], ties[:2_000], subnormal[:1_000], PATTERNS):
        laws.rounds_like_fractions(rounded, patterns)


@given(st.integers(0, (1 << 32) - 1))
def test_any_number_goes_to_the_nearest(bits):
    laws.rounds_like_fractions(rounded, np.array([bits], np.uint32))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.bool_])
def test_shape_and_dtype_stay(shape, dtype):
    x = on_device(np.full(shape, 1.01).astype(dtype))
    y = rounded(x)
    expected = 1.0078125 if np.dtype(dtype).kind == "f" else 1
    assert y.shape == shape and y.dtype == dtype and (to_host(y) == expected).all()


def test_a_double_is_rounded_to_a_single_first():
    above = 1 + 2.0**-8 + 2.0**-40  # nearer to 1 + 2 ** -7; as a float32 it is the middle
    assert rounded(np.array(above)) == 1
    assert laws.nearest(above) == 1 + 2.0**-7


@pytest.mark.parametrize("case", [c for c in TABLE if c.name not in COMPOSED], ids=lambda case: case.name)
@settings(max_examples=FEWER)
@given(data=st.data())
def test_an_op_rounds_its_value_and_the_gradients(case: Case, data):
    f, inputs = case.draw(data)
    with np.errstate(all="ignore"):
        laws.is_rounded_to_bfloat16(f, *inputs)


def net(rng):
    return nn.Sequential(
        nn.Linear(6, 5, rng=rng), nn.ReLU(), nn.LayerNorm(5), nn.Linear(5, 5, rng=rng), nn.Tanh(),
        nn.Dropout(0.3, rng=rng), nn.Linear(5, 3, rng=rng),
    )  # fmt: skip


def mean_of_squares(y):
    return ops.mse(y, on_device(np.ones(y.shape, np.float32)))


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("segments", [None, 2])
def test_a_net_is_rounded_also_where_backward_comes_later(segments, later):
    rng = np.random.default_rng(0)
    model = net(rng) if segments is None else recomputed(net(rng), segments)
    x = on_device(rng.normal(size=(7, 6)).astype(np.float32))
    laws.trains_in_bfloat16(model, mean_of_squares, x, later=later)


def test_evaluation_without_a_tape_is_rounded():
    with bfloat16():
        laws.all_are_bfloat16(ops.exp(on_device(np.array([0.3, 0.7], np.float32))).data)
    assert OPEN.count == 0


def test_segments_have_the_gradients_of_the_whole_net():
    grads = []
    for segments in (None, 3):
        rng = np.random.default_rng(1)
        model = net(rng) if segments is None else recomputed(net(rng), segments)
        model.to(dtype="bfloat16", device=DEVICE)
        x = Tensor(on_device(rng.normal(size=(7, 6)).astype(np.float32)))
        with bfloat16(), Tape() as tape:
            y = mean_of_squares(model(x))
        tape.backward(y)
        grads.append([p.grad for p in model.parameters()])
    assert all(np.array_equal(to_host(a), to_host(b)) for a, b in zip(*grads, strict=True))


def test_a_thread_has_its_own():
    values = []

    def compute():
        values.append(float(ops.exp(np.array([0.3], np.float32)).data[0]))

    with bfloat16():
        other = threading.Thread(target=compute)
        other.start()
        other.join()
        compute()
        with bfloat16(False):
            compute()
    assert values[0] == values[2] != values[1]


def test_parameters_are_rounded_and_statistics_are_not():
    model = nn.Sequential(nn.Linear(3, 4, rng=0), nn.BatchNorm(4))
    model[1].running_mean += np.float32(1.01)
    model.to(dtype="bfloat16")
    laws.all_are_bfloat16(*(p.data for p in model.parameters()))
    assert all(p.dtype == np.float32 for p in model.parameters())
    assert (model[1].running_mean == np.float32(1.01)).all()


def test_a_tape_has_no_fewer_bytes_than_in_float32():
    counts = []
    for on in (False, True):
        model, x = net(np.random.default_rng(2)), Tensor(on_device(np.ones((7, 6), np.float32)))
        model.to(device=DEVICE)
        with bfloat16(on), Tape() as tape:
            mean_of_squares(model(x))
        counts.append(tape.nbytes)
    assert counts[1] >= counts[0]
