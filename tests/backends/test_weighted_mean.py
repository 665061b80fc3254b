"""Laws of minigrad/weighted_mean.py: a loss that is divided by the weights of its labels trains on
every backend as on one machine.
"""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.data_parallel import DataParallel, NaiveDataParallel, Sharded
from backends.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from minigrad import nn, ops
from minigrad.serial import Serial
from minigrad.weighted_mean import WeightedMean
from tests.backends.weighted_mean_laws import (
    a_part_is_refused,
    gradients_are_of_the_whole_batch,
    nothing_counts,
)

STRATEGIES = {
    "naive": NaiveDataParallel,
    "micro-batches": partial(DataParallel, micro_batches=2),
    "sharded": partial(Sharded, stage=3),
    "pipeline": lambda comm: Pipeline(comm, "1f1b", micro_batches=3),
    "layer-wise": LayerWise,
    "neurons": ModelParallel,
}
LOSSES = {
    "weight": nn.CrossEntropyLoss(weight=[0.2, 1.0, 3.0]),
    "ignored": nn.CrossEntropyLoss(ignore_index=0),
    "all": nn.CrossEntropyLoss(weight=[0.2, 1.0, 3.0], ignore_index=0, label_smoothing=0.25),
    "smooth": nn.CrossEntropyLoss(label_smoothing=0.25),
    "sum": nn.CrossEntropyLoss(reduction="sum"),
    "plain": nn.CrossEntropyLoss(),
    "one's own": WeightedMean(
        lambda out, y: (ops.cross_entropy(out, y, reduction="none") * (y + 1)).sum(), lambda y: (y + 1).sum()
    ),
}


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=8)
@given(
    ranks=st.integers(2, 3),
    loss=st.sampled_from(list(LOSSES)),
    sizes=st.lists(st.integers(3, 9), min_size=1, max_size=2),
)
def test_gradients_are_of_the_whole_batch(name, ranks, loss, sizes):
    gradients_are_of_the_whole_batch(
        STRATEGIES[name], 2 if name == "layer-wise" else ranks, LOSSES[loss], sizes
    )


@pytest.mark.parametrize("name", [*STRATEGIES, "serial"])
def test_where_no_label_counts_nothing_is_learned(name):
    strategy = STRATEGIES.get(name, lambda comm: Serial(2))
    own = WeightedMean(lambda out, y: ((out[:, 0] - y) ** 2 * (y > 0)).sum(), lambda y: (y > 0).sum())
    for loss in (LOSSES["ignored"], LOSSES["all"], own):
        nothing_counts(strategy, 1 if name == "serial" else 2, loss)


PLAIN = {
    "weight": (partial(ops.cross_entropy, weight=[0.2, 1.0, 3.0]), "the mean cross_entropy with weight"),
    "ignored": (partial(ops.cross_entropy, ignore_index=0), "the mean cross_entropy with ignore_index"),
    "sum": (partial(ops.cross_entropy, reduction="sum"), 'cross_entropy with reduction="sum"'),
    "regression": (lambda x, y: ops.mse(x[:, 0], y * 1.0, reduction="sum"), 'mse with reduction="sum"'),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_function_that_is_no_mean_over_samples_is_refused(name):
    loss, words = PLAIN[name]
    a_part_is_refused(DataParallel, loss, words)
    gradients_are_of_the_whole_batch(NaiveDataParallel, 1, loss, [5])  # which is the whole batch


def test_a_mean_over_samples_is_not_refused():
    for loss in (
        partial(ops.cross_entropy, label_smoothing=0.5),
        lambda out, y: ops.cross_entropy(out, ops.softmax(out.data * 2.0), weight=[1.0, 2.0, 3.0]),
        lambda out, y: ops.kl_div(ops.log_softmax(out), ops.softmax(out.data * 2.0), reduction="batchmean"),
    ):
        gradients_are_of_the_whole_batch(DataParallel, 2, loss, [5])


def test_a_weighted_mean_of_part_of_a_batch_outside_a_step_is_that_of_the_part():
    loss, plain = LOSSES["weight"], ops.cross_entropy
    x, y = [[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]], [0, 2]
    assert loss(x, y).item() == plain(x, y, weight=[0.2, 1.0, 3.0]).item()
