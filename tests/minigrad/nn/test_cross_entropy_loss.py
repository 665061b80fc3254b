"""Laws of minigrad/nn/loss.py: with the classes last it is the mean over the tokens that count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Tape, Tensor, nn
from tests.minigrad.token_loss_laws import is_the_mean_over_tokens


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6)),
    weighted=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.25]),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_it_is_the_mean_over_the_tokens_that_count(seed, shape, weighted, smoothing, reduction):
    is_the_mean_over_tokens(nn.CrossEntropyLoss, shape, seed, weighted, smoothing, reduction)


def test_rows_without_an_axis_of_tokens_are_those_of_the_op():
    x, y = np.array([[1.0, 2.0], [0.5, 0.0]]), np.array([1, 0])
    loss = nn.CrossEntropyLoss(class_axis=-1)
    assert loss(x, y).item() == nn.CrossEntropyLoss()(x, y).item()


def test_soft_labels_of_tokens():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 4)), rng.dirichlet(np.ones(4), size=(2, 3))
    log_p = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    loss = nn.CrossEntropyLoss(class_axis=-1)
    assert math.isclose(loss(x, y).item(), -(y * log_p).sum(axis=-1).mean(), rel_tol=1e-12)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="class_axis must be 1 or -1, got 2; transpose the logits"):
        nn.CrossEntropyLoss(class_axis=2)
    x = Tensor(np.zeros((2, 3, 4))).data
    with pytest.raises(ValueError, match=r"the classes last need labels \(2, 3\), got \(2, 4\)"):
        nn.CrossEntropyLoss(class_axis=-1)(x, np.zeros((2, 4), int))


def test_without_tokens_there_is_a_loss_that_backward_takes():
    x = Tensor(np.zeros((0, 3, 4)), requires_grad=True)
    with Tape() as tape:
        loss = nn.CrossEntropyLoss(class_axis=-1).sum(x, np.zeros((0, 3), int))
    tape.backward(loss)
    assert x.grad is not None
    assert x.grad.shape == (0, 3, 4)
