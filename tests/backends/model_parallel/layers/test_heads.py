"""Laws of backends/model_parallel/layers/heads.py and sequential.py: a transformer by heads, columns and
rows is the serial one.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import loops, nn, ops
from minigrad.recompute import RecomputedModule, recomputed
from tests.backends.lanes import by_turns, thorough
from tests.backends.model_parallel.transformer_laws import (
    CHANGES,
    FORMS,
    Net,
    Turned,
    changed_block,
    holds,
    keeps_inputs,
    refuses,
    sees_masks,
    sends,
    splits_heads,
    stacks,
    trains,
)
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

NETS = st.builds(
    Net,
    heads=st.integers(1, 4),
    size=st.sampled_from([2, 4]),
    hidden=st.integers(1, 5),
    tokens=st.integers(1, 6),
    symbols=st.integers(2, 9),
    blocks=st.integers(1, 2),
    p=st.sampled_from([0.0, 0.2]),
).filter(lambda net: net.width > 2)  # a norm of two numbers gives signs
FEW = settings(max_examples=settings().max_examples // 2)


@FEW
@given(
    form=st.sampled_from(sorted(FORMS)),
    net=NETS,
    ranks=st.integers(1, 4),
    vocabulary=st.booleans(),
    micro=st.integers(1, 3),
    sizes=st.sampled_from([(7, 5, 1), (1, 2), (3, 1)]),
)
def test_any_split_trains_like_serial(form, net, ranks, vocabulary, micro, sizes):
    splits_heads(form, net, ranks, vocabulary=vocabulary, micro=micro, sizes=sizes)


@pytest.mark.parametrize("form", FORMS)
def test_more_ranks_than_heads_neurons_and_tokens(form):
    splits_heads(form, Net(heads=1, hidden=2, tokens=3, symbols=3), 4, vocabulary=True, micro=2)


@pytest.mark.parametrize(("form", "recompute"), by_turns(FORMS, [False, True]))
def test_stacks_of_three_axes_train_like_serial(form, recompute):
    stacks(form, Net(blocks=3), recompute=recompute)


OTHER_SCHEDULES = by_turns(["zb-h1"], FORMS) + [
    thorough(schedule, form) for schedule in ("interleaved", "chimera") for form in FORMS
]


@pytest.mark.parametrize(("schedule", "form"), OTHER_SCHEDULES)
def test_other_schedules_of_stages_train_like_serial(schedule, form):
    """Also one that computes gradients of weights later, for which tokens are gathered then."""
    stacks(form, Net(blocks=3, tokens=5), schedule=schedule)


class Mixed(Net):
    """Other layers between, before and inside of nested blocks."""

    def build(self, rng):
        embedding = nn.TokenEmbedding(self.symbols, self.width, self.tokens, rng=rng)
        embedding.weight.data *= 10
        return nn.Sequential(
            embedding,
            nn.LayerNorm(self.width),
            nn.Dropout(0.2, rng=rng),
            nn.Sequential(self.block(rng), nn.RMSNorm(self.width)),
            nn.GELU(),
            self.block(rng),
            nn.Linear(self.width, 5, rng=rng),
            nn.Linear(5, self.width, rng=rng),
            nn.LayerNorm(self.width),
            nn.Unembedding(embedding),
        )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "plan",
    [
        {"0": "vocabulary", "3.0": "heads", "5": "heads", "6": "column", "7": "row", "9": "vocabulary"},
        {"3.0": "heads", "5": "heads", "6": "row", "7": "gathered"},
        {"5": "heads"},
        None,
    ],
    ids=str,
)
def test_other_layers_around_blocks_train_like_serial(form, plan):
    net = Mixed(heads=3, tokens=5)
    for sample in (None, (5,)):
        trains(net, 2, lambda c, s=sample: ModelParallel(c, plan, sample=s, **FORMS[form]))


@pytest.mark.parametrize("form", FORMS)
def test_recomputed_blocks_train_like_serial(form):
    net = Net(heads=3, tokens=5)
    for segments in (None, (1, 2, 3), (0, 5)):
        build = lambda rng, segments=segments: recomputed(net.build(rng), segments)  # noqa: E731
        plan = net.plan(vocabulary=segments != (0, 5))
        trains(net, 2, lambda c, plan=plan: ModelParallel(c, plan, **FORMS[form]), build=build)
    stacks(form, Net(), segments=(1, 3))


@pytest.mark.parametrize("form", FORMS)
def test_a_segment_keeps_its_input_alone(form):
    keeps_inputs(form, Net(blocks=1, tokens=8), 2)


@pytest.mark.parametrize("form", FORMS)
def test_layers_inside_of_a_block_can_be_named(form):
    net = Net(heads=3, hidden=5)
    trains(net, 2, lambda comm: ModelParallel(comm, net.inner_plan(), **FORMS[form]))


@pytest.mark.parametrize(
    ("masks", "form"), by_turns(["documents", "heads", "samples and heads", "one for all"], FORMS)
)
def test_a_block_in_any_module_is_split_and_sees_masks(masks, form):
    for ranks in (2, 4):
        sees_masks(form, Net(heads=3), ranks, masks)


@pytest.mark.parametrize("form", FORMS)
def test_ranks_refuse_what_one_machine_refuses(form):
    net = Net(heads=3)
    for shape in ((6,), (1, 2, 6), (1, 7)):
        refuses(form, net.build, net.plan(vocabulary=True), np.zeros(shape, int))
    for shape in ((6, 12), (1, 2, 6, 12)):
        refuses(form, net.block, {"attention": "heads"}, np.zeros(shape))
        refuses(form, lambda rng: nn.Sequential(net.block(rng)), {"0": "heads"}, np.zeros(shape))
    for heads in (2, 6):
        mask, x = np.ones((heads, 6, 6), bool), np.zeros((1, 6, 12))
        refuses(form, net.block, {"attention": "heads"}, x, words="cannot take a mask", mask=mask)


@FEW
@given(form=st.sampled_from(sorted(FORMS)), net=NETS, ranks=st.integers(1, 4), samples=st.integers(1, 3))
def test_messages_and_bytes_are_the_closed_forms(form, net, ranks, samples):
    sends(form, net, ranks, samples)


@FEW
@given(
    form=st.sampled_from(sorted(FORMS)),
    net=NETS,
    ranks=st.integers(1, 4),
    samples=st.integers(1, 3),
    recompute=st.sampled_from(["", "core", "block"]),
)
def test_memory_is_the_table(form, net, ranks, samples, recompute):
    arguments = form, net, ranks, samples, recompute
    holds(*arguments, tiles=True, statistics=4 if loops.available() else 2)
    with readable_forms():
        holds(*arguments, tiles=False, statistics=2)


@pytest.mark.parametrize("form", FORMS)
def test_a_recomputed_core_trains_like_serial(form):
    net = Net(heads=3, tokens=5)

    def build(rng):
        model = net.build(rng)
        for i in range(net.blocks):
            attention: Any = model[i + 1].children()["attention"]
            attention.core = RecomputedModule(attention.core)
        return model

    trains(net, 2, lambda c: ModelParallel(c, net.plan(vocabulary=True), **FORMS[form]), build=build)


def test_the_core_gets_the_heads_of_its_rank():
    shapes = {}

    class Core(nn.Module):
        def __init__(self, rank):
            self.rank = rank

        def forward(self, qkv):
            shapes[self.rank] = qkv.shape
            return ops.self_attention(qkv, causal=True)

    def work(comm):
        block = Net(heads=3).block(np.random.default_rng(0))
        block.attention.core = Core(comm.rank)
        placed = ModelParallel(comm, {"0": "heads"}).place(nn.Sequential(block))
        placed(np.ones((2, 6, 12), np.float32))

    run_ranks(4, work)
    assert shapes == {rank: (2, 6, int(rank > 0), 12) for rank in range(4)}


@pytest.mark.parametrize(("change", "form"), by_turns(CHANGES, FORMS))
def test_a_changed_block_trains_like_serial_or_is_refused(change, form):
    """By the plan as by the default one, which leaves such a block whole."""
    for plan in (
        {"0": "vocabulary", "1": "heads", "2": "heads", "4": "vocabulary"},
        {"1.attention": "heads"},
    ):
        changed_block(form, change, plan)
    changed_block(form, change, None)


def test_what_cannot_be_split_by_heads_is_refused():
    class Own(nn.TransformerBlock):
        def forward(self, x, **masks):
            return super().forward(x, **masks) * 2

    def changed(name, layer):
        made = Net().block(np.random.default_rng(0))
        setattr(made, name, layer)
        return made

    three = nn.Sequential(nn.Linear(8, 8, rng=0), nn.Linear(8, 8, rng=0), nn.Linear(8, 8, rng=0))
    for block, message in (
        (Own(8, 2, rng=0), "cannot be split by 'heads'; name layers inside of it"),
        (changed("attention", Turned(8, 2, rng=0)), "compute Turned as Attention, whose forward it does not"),
        (changed("feed_forward", nn.Linear(8, 8, rng=0)), "compute Linear as Sequential, whose forward"),
        (changed("feed_forward", three), "two linear layers"),
    ):
        with pytest.raises(ValueError, match=message):
            run_ranks(2, lambda c, b=block: ModelParallel(c, {"0": "heads"}).place(nn.Sequential(b)))


def test_a_sequential_with_a_forward_of_its_own_runs_it():
    class Twice(nn.Sequential):
        def forward(self, x):
            return super().forward(x) * 2.0

    net = Net()
    for form in FORMS.values():
        build = lambda rng: Twice(*net.build(rng).layers)  # noqa: E731
        trains(net, 2, lambda c, f=form: ModelParallel(c, {"1": "heads"}, **f), build=build)
        build = lambda rng: nn.Sequential(*(layers := net.build(rng).layers)[:1], Twice(*layers[1:]))  # noqa: E731
        trains(net, 2, lambda c, f=form: ModelParallel(c, {"1.1": "heads"}, **f), build=build)
