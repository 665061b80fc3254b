"""Laws of minigrad/ops/loss.py, cross_entropy.py and minigrad/ops/fast/loss.py: losses with settings are
those of the book, element by element.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, ops
from minigrad.device import to_host
from minigrad.testing import on_device
from tests.minigrad.ops import loss_laws
from tests.minigrad.ops.extremes import value_and_gradients
from tests.minigrad.ops.fast.fast_form_laws import in_both_forms, readable_forms
from tests.minigrad.ops.op_inputs import PIXELS, normal, of_shape, with_label_options


@given(of_shape(PIXELS, normal).flatmap(with_label_options), st.booleans())
def test_cross_entropy(drawn, soft):
    (logits, labels), settings = drawn
    logits, labels = to_host(logits), to_host(labels)
    if soft:
        labels, settings["ignore_index"] = np.random.default_rng(0).random(logits.shape), None
    if logits.size or settings["reduction"] != "mean":
        in_both_forms(loss_laws.cross_entropy_is_by_the_book, ops.cross_entropy, logits, labels, **settings)


def label_losses(x, *inputs, **settings):
    """Value and gradient of the loss of labels, and of the negative log-likelihood."""
    nll_settings = {name: setting for name, setting in settings.items() if name != "label_smoothing"}
    losses = partial(ops.cross_entropy, **settings), partial(ops.nll_loss, **nll_settings)
    return [value_and_gradients(loss, x, *inputs, seed=np.ones(loss(x, *inputs).shape)) for loss in losses]


@given(of_shape(PIXELS, normal).flatmap(with_label_options), st.sampled_from([np.float32, np.float64]))
def test_labels_as_places(drawn, dtype):
    (logits, labels), settings = drawn
    logits, labels = to_host(logits).astype(dtype), to_host(labels)
    with np.errstate(invalid="ignore"):  # the mean where no label counts
        picked = label_losses(logits, labels, **settings)
        with readable_forms():
            readable = label_losses(logits, labels, **settings)
    for (value, (d, *_)), (other, (other_d, *_)) in zip(picked, readable, strict=True):
        assert value.dtype == d.dtype == dtype == other.dtype == other_d.dtype
        np.testing.assert_allclose(value, other, rtol=1000 * np.finfo(dtype).eps)
        np.testing.assert_allclose(d, other_d, rtol=0, atol=1000 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", loss_laws.PAIRS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_of_pairs(name, reduction):
    rng = np.random.default_rng(0)
    x, y = 2 * rng.normal(size=(4, 3)), rng.choice([0.0, 0.25, 1.0], (4, 3))
    in_both_forms(loss_laws.a_loss_of_pairs_is_by_the_book, getattr(ops, name), name, x, y, reduction)
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
