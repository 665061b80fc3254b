"""Laws of backends/precision_laws.py: drawn layouts, batches and steps that overflow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.precision_laws import (
    UNITS,
    ScaleRule,
    bound_of,
    differences_in_precision,
    overflowing_factor,
    unequal,
)
from minigrad import nn, optim
from minigrad.loss_scale import StaticScale
from minigrad.master_weights import PRECISIONS
from tests.backends.precision_laws import LAYOUTS, build, losses_are_checked_without_rounding, samples, trains


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=settings().max_examples // 2)
@given(
    n=st.integers(1, 9),
    steps=st.lists(st.booleans(), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    precision=st.sampled_from(PRECISIONS),
)
def test_ranks_train_in_sixteen_bits_as_one(layout, n, steps, seed, precision):
    trains(layout, n, steps, seed=seed, precision=precision)


@pytest.mark.parametrize("layout", ["data", "buckets"])
def test_clipping_by_the_norm_of_unscaled_gradients(layout):
    trains(layout, optimizer=lambda p: optim.SGD(p, 0.5, momentum=0.9).clipped(0.1))


def test_a_constant_scale_that_overflows_is_refused():
    with pytest.raises(ValueError, match="overflow with a loss scale of 1,000,000,000; take a smaller one"):
        trains("data", scale=lambda: StaticScale(1e9))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_part_that_is_left_out_exceeds_the_bound(precision):
    """Each of two ranks has about half of the sum, and the bound is below that for 30 smooth layers."""
    model = build(np.random.default_rng(0))
    assert bound_of(model, precision, 3) == 3 * np.sqrt(UNITS[precision] * np.sqrt(2 * 5 + 3))
    assert bound_of(model, precision, 2) < 0.5
    smooth = nn.Sequential(*[nn.Tanh()] * 30)
    assert bound_of(smooth, precision, 4) == 4 * 8 * UNITS[precision] < 0.5


def test_one_rank_equals_the_serial_run_bit_for_bit():
    comparison = run_ranks(
        1,
        lambda comm: differences_in_precision(
            DataParallel, comm, build, nn.CrossEntropyLoss(), samples(4), scale=lambda: StaticScale(64.0)
        ),
    )[0]
    assert not any(d.absolute or d.unequal for d in comparison.differences)
    assert [d.name for d in comparison.differences[-2:]] == ["loss", "loss scale"]
    assert (comparison.rule.steps, comparison.rule.skipped, comparison.rule.value) == (4, 1, 64.0)


@given(st.floats(1e-6, 6e4))
def test_a_factor_makes_the_largest_gradient_overflow(largest):
    gradients = [np.zeros(0), np.array([largest / 2, -largest]), np.array([largest / 4])]
    factor = overflowing_factor(gradients, "float16")
    with np.errstate(over="ignore"):
        assert [np.isinf(np.float16(x)) for x in (largest * factor, largest / 2 * factor)] == [True, False]
    assert overflowing_factor(gradients, "bfloat16") == overflowing_factor([], "float16") == np.inf


def test_losses_are_checked_without_rounding():
    losses_are_checked_without_rounding()


def test_bits_are_compared():
    x = np.array([0.0, 1.0], np.float32)
    assert unequal(x, x.copy()) == 0
    assert unequal(x, np.array([-0.0, 1.0], np.float32)) == 1
    assert unequal(x, x.astype(np.float16)) == 2


def test_the_rule_of_the_scale():
    rule = ScaleRule(8.0, grows=True)
    for finite in (False, *[True] * 1999, False, *[True] * 2000):
        rule.count(finite)
    assert (rule.value, rule.skipped, rule.steps) == (4.0, 2, 4001)
