"""Laws of backends/planner/: estimates of drawn nets and layouts are what ranks count."""

from functools import cache

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from backends.comm.collectives.link import Link
from backends.partition import optimal
from backends.planner import Hardware, Layout, TransformerSizes, best_first, layouts
from backends.planner.counted_sizes import CountedSizes
from backends.planner.net_sizes import NetSizes
from minigrad.models import NETS
from tests.backends.lanes import thorough
from tests.backends.planner import planner_laws as laws


@st.composite
def transformers(draw) -> TransformerSizes:
    """Sizes; of experts each token takes all, as then every one has as many."""
    heads, blocks = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    symbols = draw(st.sampled_from([5, 11, 900]))  # the table of many is split
    length, width, experts = draw(st.integers(2, 6)), heads * draw(st.integers(1, 4)), draw(st.integers(0, 3))
    experts = 0 if experts == 1 else experts
    return TransformerSizes(symbols, length, width, heads, blocks, experts=experts, choices=experts or 1)


@st.composite
def small_layouts(draw, net: NetSizes, batch: int, *, pipes: bool = True) -> Layout:
    """A layout of at most 8 ranks, which all have work; those that share experts have as many samples."""
    drawn = [layout for layout in layouts(net, draw(st.integers(1, 8)), batch) if pipes or layout.pipe == 1]
    layout = draw(st.sampled_from(drawn or [Layout()]))
    micro = draw(st.integers(1, min(batch // layout.data, 4))) if pipes else 1
    alike = batch % (layout.data * micro) == 0
    return layout._replace(micro=micro, expert_parallel=layout.expert_parallel and alike)


@settings(max_examples=settings().max_examples // 2)
@given(st.data(), transformers(), st.integers(1, 8))
def test_ranks_send_what_a_step_counts(data, sizes, batch):
    layout = data.draw(small_layouts(sizes, batch))
    laws.sends_what_ranks_send(sizes, laws.net_of(sizes), layout, batch)


@pytest.mark.skipif(not laws.HOLDS_IN_LOOPS, reason="readable ops hold other numbers than loops")
@settings(max_examples=settings().max_examples // 2)
@given(st.data(), transformers(), st.integers(1, 8))
def test_ranks_hold_what_their_tapes_hold(data, sizes, batch):
    layout = data.draw(small_layouts(sizes, batch, pipes=False))
    laws.holds_what_tapes_hold(sizes, laws.net_of(sizes), layout, batch)


@given(transformers())
def test_operations_are_counted_by_loops(sizes):
    laws.computes_what_loops_count(sizes)


@given(st.data(), transformers(), st.integers(1, 8))
def test_the_parts_of_all_ranks_are_the_whole(data, sizes, batch):
    laws.shares_the_work(sizes, data.draw(small_layouts(sizes, batch)), batch)


@given(st.sampled_from(["ring", "ulysses"]), st.integers(1, 4), st.integers(1, 3))
def test_a_sequence_divides_activations(form, sequence, batch):
    sizes = TransformerSizes(11, 2 * sequence * 3, 4 * sequence, 2 * sequence, 2)
    laws.divides_activations(sizes, Layout(sequence=sequence, form=form), batch)


@given(st.integers(1, 5), st.integers(1, 9))
def test_equal_stages_wait_as_the_formula_says(stages, micros):
    laws.waits_as_schedules_do(stages, micros, TransformerSizes(1, 8, 8, 2, stages))


@given(transformers(), st.integers(2, 4), st.integers(1, 9))
def test_the_table_is_split_as_the_default_plan_splits_it(sizes, ranks, rows):
    laws.splits_as_the_default_plan(sizes, ranks, rows)


@cache
def counted_sizes(name: str) -> CountedSizes:
    net = NETS[name]
    model = net.build(np.random.default_rng(0))
    return CountedSizes(model, net.sample, net.loss, states=2, targets=net.targets)  # pyright: ignore


@pytest.mark.parametrize("name", ["mlp", "lenet", thorough("vgg")])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 2)])
def test_nets_for_images_send_what_a_step_counts(name, shape):
    sizes = counted_sizes(name)
    bounds = tuple(optimal(sizes.work(), shape[1])) if shape[1] > 1 else ()
    layout = Layout(*shape, micro=shape[1], bounds=bounds)
    laws.sends_what_ranks_send(sizes, NETS[name], layout, 8)


@pytest.mark.skipif(not laws.HOLDS_IN_LOOPS, reason="readable ops hold other numbers than loops")
@pytest.mark.parametrize("name", ["mlp", "lenet", thorough("vgg")])
def test_nets_for_images_hold_what_their_tape_holds(name):
    laws.holds_what_tapes_hold(counted_sizes(name), NETS[name], Layout(), 8)


HARDWARE = Hardware(1e9, Link(1e-5, 1e8), np.inf)


@settings(max_examples=settings().max_examples // 4)
@given(transformers(), st.integers(1, 8), st.sampled_from([2, 8, 24]), st.floats(0.0, 1.5))
def test_the_best_stands_first(sizes, ranks, batch, share):
    """Memory is a share of what the layout that is best without a limit needs."""
    plans = best_first(sizes, ranks, HARDWARE, batch)
    assume(plans.fitting)
    laws.finds_the_best(sizes, ranks, HARDWARE._replace(memory=share * plans.fitting[0].memory.total), batch)


@pytest.mark.parametrize("experts", [0, 4])
@pytest.mark.parametrize("memory", [np.inf, 300e3])
def test_the_best_layouts_of_sixteen_ranks_are_those_of_brute_force(experts, memory):
    sizes = TransformerSizes(92, 32, 32, 4, 2, experts=experts, choices=min(experts, 2) or 1)
    laws.equals_brute_force(sizes, 16, HARDWARE._replace(memory=memory), 32)


@settings(max_examples=settings().max_examples // 4)
@given(transformers(), st.integers(1, 6), st.integers(1, 40))
def test_the_layout_that_holds_least_is_named(sizes, ranks, batch):
    assume(any(layouts(sizes, ranks, batch)))
    laws.refuses_by_the_least(sizes, ranks, batch)


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_the_best_of_a_net_for_images_stands_first(name):
    laws.finds_the_best(counted_sizes(name), 4, HARDWARE._replace(memory=3e6), 16)


def test_more_ranks_than_heads_or_tokens_or_samples_are_no_layout():
    sizes = TransformerSizes(11, 6, 12, 3, 2)
    reasons = {
        Layout(data=9): "9 ranks share 8 samples",
        Layout(pipe=6): "6 stages have 5 layers",
        Layout(data=2, micro=5): "5 micro-batches have 4 samples",
        Layout(model=4): "4 ranks share 3 heads",
        Layout(sequence=4, form="ulysses"): "4 ranks share 3 heads",
        Layout(sequence=4): "4 ranks share 6 tokens",
        Layout(sequence=3, model=3, split_tokens=True): "3 ranks share 2 tokens",
    }
    for layout, reason in reasons.items():
        assert sizes.reason_against(layout, 8) == reason
    assert counted_sizes("mlp").reason_against(Layout(sequence=2), 8) == "an image has no tokens"
    for layout in (Layout(data=8), Layout(pipe=5), Layout(model=3), Layout(sequence=3), Layout()):
        assert sizes.reason_against(layout, 8) is None


def test_experts_are_shared_by_ranks():
    """Four experts on two ranks: each rank has two of them, and sums no gradient of theirs."""
    sizes = TransformerSizes(11, 8, 4, 2, 1, experts=4, choices=2)
    whole, half = (
        laws.RankStep(sizes, Layout(data=2, expert_parallel=own), laws.Place(), 4).largest
        for own in (False, True)
    )
    one = 2 * 4 * 16 + 16 + 4
    assert whole.parameters - half.parameters == 2 * one and half.own_experts == 2 * one
    (exchange,) = half.experts[0]
    rows = 2 * 8 * 2  # of a rank, half of them for the other's experts
    assert exchange.nbytes(0, 4) == 2 * 4 * 4 * (rows // 2 + rows // 2) + 8 * 2
    best = best_first(sizes, 2, HARDWARE, 4)
    assert any(e.layout.expert_parallel for e in best.fitting)
