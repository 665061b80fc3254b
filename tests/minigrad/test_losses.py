"""Losses with settings are those of the book, element by element."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, ops
from minigrad.device import to_host
from minigrad.testing import on_device
from tests.minigrad import loss_laws
from tests.minigrad.op_inputs import PIXELS, normal, of_shape, with_label_options


@given(of_shape(PIXELS, normal).flatmap(with_label_options), st.booleans())
def test_cross_entropy(drawn, soft):
    (logits, labels), settings = drawn
    logits, labels = to_host(logits), to_host(labels)
    if soft:
        labels, settings["ignore_index"] = np.random.default_rng(0).random(logits.shape), None
    if logits.size or settings["reduction"] != "mean":
        loss_laws.cross_entropy_is_by_the_book(ops.cross_entropy, logits, labels, **settings)


@pytest.mark.parametrize("name", loss_laws.PAIRS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_pairs(name, reduction):
    rng = np.random.default_rng(0)
    x, y = 2 * rng.normal(size=(4, 3)), rng.choice([0.0, 0.25, 1.0], (4, 3))
    loss_laws.a_loss_of_pairs_is_by_the_book(getattr(ops, name), name, x, y, reduction)
    if name == "kl_div":
        loss_laws.a_loss_of_pairs_is_by_the_book(ops.kl_div, name, x, y, "batchmean")


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_where_no_label_counts_the_mean_is_nan_and_the_gradient_0(smoothing):
    x = Parameter(on_device(np.ones((2, 3))))
    with Tape() as tape:
        loss = ops.cross_entropy(x, on_device([-1, -1]), ignore_index=-1, label_smoothing=smoothing)
    tape.backward(loss)
    assert np.isnan(loss.item())
    assert x.grad is not None and to_host(x.grad).tolist() == np.zeros((2, 3)).tolist()
