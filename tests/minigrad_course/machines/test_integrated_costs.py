"""Laws of lessons/minigrad_course/machines/integrated_costs.py: our evaluation of the published formulas for
AlexNet stays as it is, the limits are pure data and pure model parallelism, and the search finds the least.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.integrated_costs import (
    ALEXNET,
    LayerSize,
    Network,
    batch_seconds,
    best_rows,
    domain_seconds,
    integrated_seconds,
    model_seconds,
)

CRAY = Network(alpha=2e-6, beta=4 / 6e9)  # seconds a message and a float32, as published
FULLY_CONNECTED = [False] * 5 + [True] * 3

layers = st.lists(st.builds(LayerSize, st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=5)
networks = st.builds(Network, st.floats(0, 1e-3), st.floats(0, 1e-6))


@pytest.mark.parametrize(
    ("rows", "seconds"), [(1, 0.0833), (2, 0.0470), (4, 0.0367), (8, 0.0474), (16, 0.0844), (512, 2.69)]
)
def test_alexnet_on_512_ranks_with_2048_samples(rows, seconds):
    assert float(f"{integrated_seconds(CRAY, ALEXNET, rows, 512, 2048):.3g}") == seconds


def test_the_best_split_is_neither_pure_batch_nor_pure_model():
    assert best_rows(CRAY, ALEXNET, 512, 2048)[0] == 4
    rows, seconds = best_rows(CRAY, ALEXNET, 512, 512)
    assert rows == 8 and seconds == pytest.approx(0.0198, abs=5e-5)


def test_only_the_linear_layers_split_is_better_still():
    """Where the convolutions share the batch alone, the first linear layer's input is what was pooled."""
    rows, seconds = best_rows(CRAY, ALEXNET, 512, 2048, only=FULLY_CONNECTED)
    assert rows == 32 and seconds == pytest.approx(0.0112, abs=5e-5)
    pure = batch_seconds(CRAY, ALEXNET, 512, 2048)
    assert pure / seconds == pytest.approx(7.4, abs=0.05)


@given(net=networks, layers=layers, log=st.integers(0, 6), per_rank=st.integers(1, 4))
def test_the_limits_are_pure_batch_and_pure_model(net, layers, log, per_rank):
    ranks = 2**log
    batch = ranks * per_rank
    pure = batch_seconds(net, layers, ranks, batch)
    assert integrated_seconds(net, layers, 1, ranks, batch) == pytest.approx(pure, rel=1e-12)
    split = model_seconds(net, layers, ranks, batch)
    assert integrated_seconds(net, layers, ranks, ranks, batch) == pytest.approx(split, rel=1e-12)


@given(net=networks, layers=layers, log=st.integers(0, 6))
def test_the_best_is_the_smallest_of_all(net, layers, log):
    ranks = 2**log
    all_rows = [2**i for i in range(log + 1)]
    costs = [integrated_seconds(net, layers, rows, ranks, ranks) for rows in all_rows]
    rows, seconds = best_rows(net, layers, ranks, ranks)
    assert seconds == min(costs) and costs[all_rows.index(rows)] == seconds


def test_one_rank_costs_nothing():
    for cost in (batch_seconds, model_seconds, domain_seconds):
        assert cost(CRAY, ALEXNET, 1, 8) == 0


@given(
    weights=st.integers(1, 10**6),
    inputs=st.integers(1, 10**4),
    outputs=st.integers(1, 10**4),
    b=st.integers(1, 64),
)
def test_a_layer_is_better_split_where_its_weights_are_more_than_the_batchs_activations(
    weights, inputs, outputs, b
):
    """2 |W| against B (d_i + 2 d_(i-1)), with no latency."""
    net, chain = Network(0.0, 1.0), [LayerSize(0, inputs), LayerSize(weights, outputs)]
    split = model_seconds(net, chain, 8, b) - 7 / 8 * b * inputs  # without the first layer's own all-gather
    assert (split < 2 * 7 / 8 * weights) == (b * (outputs + 2 * inputs) < 2 * weights)


@pytest.mark.parametrize(("layer", "batch"), [(2, 11.7), (3, 13.6), (4, 10.2)])
def test_a_convolution_is_better_split_for_few_samples_only(layer, batch):
    """3 x 3 on 13 x 13, 256 -> 384 -> 384 -> 256 channels: about 12 samples in the paper."""
    before = 13 * 13 * (256 if layer == 2 else 384)  # pooled, in front of the first
    weights, outputs = ALEXNET[layer][:2]
    assert 2 * weights / (outputs + 2 * before) == pytest.approx(batch, abs=0.05)


def test_halos_grow_with_the_image_and_not_with_the_ranks():
    layer = LayerSize(weights=0, outputs=1, halo_in=100, halo_out=50)
    net = Network(alpha=1.0, beta=0.1)
    for ranks in (2, 4, 64):
        latency = 2 * math.ceil(math.log2(ranks))  # of the empty all-reduce
        assert domain_seconds(net, [layer], ranks, 3) == pytest.approx(2 + 0.1 * 3 * 150 + latency)


def test_more_ranks_than_samples_need_the_model_split():
    with pytest.raises(ValueError, match="512 ranks cannot share a batch of 256 samples; take at most 256"):
        batch_seconds(CRAY, ALEXNET, 512, 256)
    with pytest.raises(ValueError, match="256 ranks .* a batch of 100 samples; let at least 6 share the"):
        integrated_seconds(CRAY, ALEXNET, 2, 512, 100)
    assert best_rows(CRAY, ALEXNET, 512, 100)[0] >= 6
    with pytest.raises(ValueError, match="3 ranks that share the model must divide all 8 ranks"):
        integrated_seconds(CRAY, ALEXNET, 3, 8, 8)
    with pytest.raises(ValueError, match="no Pr lets 512 ranks share a batch of 256 samples"):
        best_rows(CRAY, ALEXNET, 512, 256, only=FULLY_CONNECTED)
