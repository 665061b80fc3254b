"""Laws of backends/expert_parallel/exchange.py, expert_parallel.py, own_experts.py and naive.py: any
number of ranks trains any number of experts as one machine, in stacks too.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.zero.sharded import Sharded
from backends.expert_parallel import ExpertParallel
from backends.expert_parallel.exchange import exchange
from backends.expert_parallel.naive import NaiveExpertParallel, exchange_all
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn
from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.recompute import recomputed
from minigrad.serial import Serial
from minigrad.tokens import Tokens
from tests.backends.expert_parallel import expert_laws as laws
from tests.backends.expert_parallel.expert_laws import LOSS, Net, batches_of, trains

few = settings(max_examples=max(settings().max_examples // 10, 3))
EXCHANGES = pytest.mark.parametrize("form", [exchange, exchange_all], ids=["exchange", "exchange_all"])


@st.composite
def counts(draw):
    """Rows of each rank for each expert; many are 0."""
    ranks, experts = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    some = st.integers(0, 3) | st.just(0)
    return [draw(st.lists(some, min_size=experts, max_size=experts)) for _ in range(ranks)]


@EXCHANGES
@given(counts=counts())
def test_no_token_is_lost_between_ranks(form, counts):
    laws.conserves_tokens(form, counts)


@given(counts())
def test_rows_and_counts_are_all_that_is_sent(counts):
    laws.sends(exchange, counts)


@st.composite
def nets(draw):
    experts = draw(st.integers(1, 5))
    return Net(
        experts=experts,
        choices=draw(st.integers(1, min(experts, 2))),
        capacity=draw(st.sampled_from([0, 0.25, 0.5, 1, 1.25, 10])),
        penalty=draw(st.sampled_from([0, 0.3])),
        blocks=draw(st.integers(1, 2)),
    )


SIZES = st.lists(st.integers(1, 7), min_size=1, max_size=2)


@pytest.mark.parametrize("strategy", [ExpertParallel, NaiveExpertParallel])
@few
@given(net=nets(), ranks=st.integers(1, 5), sizes=SIZES)
def test_it_trains_like_serial(strategy, net, ranks, sizes):
    trains(strategy, ranks, net, sizes)


@pytest.mark.parametrize("strategy", [ExpertParallel, NaiveExpertParallel])
@pytest.mark.parametrize(("ranks", "experts"), [(2, 3), (4, 2), (3, 1)])
def test_it_trains_like_serial_where_ranks_have_no_expert(strategy, ranks, experts):
    trains(strategy, ranks, Net(experts=experts, choices=1))


@few
@given(nets(), st.integers(1, 3), st.integers(1, 3), SIZES)
def test_micro_batches_train_like_serial(net, ranks, micro, sizes):
    trains(lambda comm: ExpertParallel(comm, micro_batches=micro), ranks, net, sizes)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_places_for_each_rank_are_those_of_a_serial_run_over_groups(ranks):
    def strategy(comm):
        return ExpertParallel(comm, capacity_per="rank")

    of_batch = Net(capacity_per="batch")
    trains(strategy, ranks, Net(), oracle=of_batch.build, serial=Serial(ranks))
    trains(ExpertParallel, ranks, of_batch, serial=Serial(ranks))
    if ranks > 1:
        with pytest.raises(AssertionError, match="differs by"):  # it is another mixture
            trains(strategy, ranks, Net())
        assert not run_ranks(ranks, strategy)[0].traits.equals_serial
    assert run_ranks(1, strategy)[0].traits.equals_serial


@pytest.mark.parametrize("strategy", [ExpertParallel, NaiveExpertParallel])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_mixtures_may_have_the_same_experts(strategy, ranks):
    trains(strategy, ranks, laws.TiedNet())


@pytest.mark.parametrize("strategy", [ExpertParallel, NaiveExpertParallel])
def test_experts_that_another_module_uses_are_refused(strategy):
    words = "weight is also a parameter of a mixture, .* give LeakyNet a parameter of its own"
    with pytest.raises(ValueError, match=words):
        run_ranks(2, lambda comm: strategy(comm).place(laws.LeakyNet(np.random.default_rng(0))))


@pytest.mark.parametrize("setting", ["choices", "capacity", "penalty"])
def test_ranks_with_other_settings_are_refused(setting):
    def work(comm):
        net = Net(**{setting: 1 + comm.rank})
        DataParallel(comm).place(net.build(np.random.default_rng(0)))

    with pytest.raises(ValueError, match="built different models: the layer 1.feed_forward is Experts"):
        run_ranks(2, work)


def batches_with_padding(sizes):
    """Rows of which each has one token less than the one before it."""
    batches = []
    for batch in batches_of(sizes):
        document = np.where(np.arange(6) < 6 - np.arange(len(batch))[:, None], 0, -1)
        targets = np.where(document < 0, -1, batch.y)
        batches.append(Batch(batch.x, targets, tokens=Tokens(document=document)))
    return batches


def test_padding_takes_no_place_on_any_rank():
    def work(comm):
        batches = batches_with_padding([5, 3, 1])
        laws.trains_like_serial(ExpertParallel, comm, Net(capacity=0.5).build, LOSS, batches)

    run_ranks(3, work)


def stack(comm, *, outer=1, micro=1, recompute=False, schedule="1f1b", plan=None, form="ring", **axes):
    """Data by experts by tokens by layers by neurons, as far as they have several ranks."""
    grid = Grid(comm, **axes)
    data = grid.data
    inner = data.size // outer
    members = [DataParallel(data.split(data.rank % inner, data.rank // inner))] if outer > 1 else []
    members += [ExpertParallel(data.split(data.rank // inner, data.rank % inner), micro_batches=micro)]
    if "sequence" in axes:
        members += [SequenceParallel(grid.sequence, form=form)]
    if "pipe" in axes:
        members += [Pipeline(grid.pipe, micro_batches=2, recompute=recompute, schedule=schedule)]
    if "model" in axes:
        members += [ModelParallel(grid.model, plan, sample=(6,))]
    return Stack(*members)


LAYOUTS = {
    "data 2 x expert 2": {"data": 4, "outer": 2, "micro": 2},
    "expert 2 x pipe 2": {"data": 2, "pipe": 2},
    "expert 2 x pipe 2, again": {"data": 2, "pipe": 2, "recompute": True, "schedule": "zb-h1"},
    "data 2 x expert 2 x pipe 2": {"data": 4, "outer": 2, "pipe": 2},
    "expert 2 x model 2": {"data": 2, "model": 2},
    "expert 2 x sequence 2": {"data": 2, "sequence": 2},
    "data 2 x expert 2 x sequence 2": {"data": 4, "outer": 2, "sequence": 2, "form": "ulysses"},
    "expert 2 x sequence 2 x pipe 2": {"data": 2, "sequence": 2, "pipe": 2, "recompute": True},
    "expert 2 x pipe 2 x model 2": {"data": 2, "pipe": 2, "model": 2, "plan": {"1.attention": "heads"}},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stacks_train_like_serial(layout):
    axes = LAYOUTS[layout]
    ranks = int(np.prod([axes.get(axis, 1) for axis in ("data", "pipe", "sequence", "model")]))
    trains(lambda comm: stack(comm, **axes), ranks, Net(), sizes=(7, 1))


@pytest.mark.parametrize(
    "outer",
    [partial(Bucketed, bucket_bytes=100), *(partial(Sharded, stage=stage) for stage in (1, 2, 3))],
    ids=["bucketed", "sharded 1", "sharded 2", "sharded 3"],
)
@pytest.mark.parametrize("experts", [1, 3])
def test_any_data_parallelism_may_stand_outside(outer, experts):
    def strategy(comm):
        data = outer(comm.split(comm.rank % 2, comm.rank // 2))
        return Stack(data, ExpertParallel(comm.split(comm.rank // 2, comm.rank % 2)))

    trains(strategy, 4, Net(experts=experts, choices=1), (7, 1))


def test_experts_on_a_middle_stage_report_their_penalty():
    def build(rng):
        layers = [nn.Linear(4, 4, rng=rng), nn.Experts(4, 3, penalty=0.5, rng=rng), nn.Linear(4, 3, rng=rng)]
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(n, 5, 4)), rng.integers(0, 3, (n, 5))) for n in (5, 1)]

    def strategy(comm):
        grid = Grid(comm, data=2, pipe=3)
        return Stack(ExpertParallel(grid.data), Pipeline(grid.pipe, bounds=(0, 2, 3, 5), micro_batches=2))

    def work(comm):
        laws.trains_like_serial(strategy, comm, build, LOSS, batches)

    run_ranks(6, work)


@pytest.mark.parametrize("segments", [(1, 3), (0, 2, 4)])
def test_blocks_with_experts_run_twice_like_serial(segments):
    def again(rng):
        return recomputed(Net().build(rng), segments)

    def work(comm):
        batches = batches_of((5, 1))
        laws.trains_like_serial(ExpertParallel, comm, again, LOSS, batches, oracle=Net().build)

    run_ranks(3, work)


@pytest.mark.parametrize(("ranks", "micro", "rows"), [(1, 1, 4), (2, 1, 4), (3, 2, 4), (4, 1, 2)])
def test_each_mixture_sends_five_messages_to_each_rank(ranks, micro, rows):
    laws.layer_sends(lambda comm: ExpertParallel(comm, micro_batches=micro), ranks, rows, Net())


@few
@given(nets(), st.integers(1, 4), st.sampled_from(["ring", "ulysses"]), st.booleans())
def test_ranks_with_some_tokens_of_each_row_route_whole_rows(net, ranks, form, padded):
    batches = batches_with_padding((4, 1)) if padded else batches_of((4, 1))

    def work(comm):
        strategy = SequenceParallel(comm, form=form)
        laws.trains_like_serial(lambda comm: strategy, comm, net.build, LOSS, batches)

    run_ranks(ranks, work)


def test_ranks_with_some_tokens_of_each_row_have_no_places_for_all():
    def work(comm):
        of_batch = Net(capacity_per="batch")
        laws.trains_like_serial(SequenceParallel, comm, of_batch.build, LOSS, batches_of([4]))

    with pytest.raises(ValueError, match="some tokens of each row cannot have places for all"):
        run_ranks(2, work)


@pytest.mark.parametrize(("ranks", "on"), [(2, 1), (1, 4), (4, 3)])
def test_a_checkpoint_is_that_of_a_serial_run(ranks, on):
    laws.resumes(ExpertParallel, ranks, ExpertParallel, on)


def test_a_checkpoint_of_a_stack_is_that_of_a_serial_run():
    laws.resumes(lambda comm: stack(comm, data=2, pipe=2), 4, ExpertParallel, 2)
    laws.resumes(ExpertParallel, 2, lambda comm: stack(comm, data=4, outer=2, pipe=2), 8)


def placed(comm):
    return ExpertParallel(comm).place(Net().build(np.random.default_rng(0)))


def test_a_rank_with_some_experts_says_so():
    models = run_ranks(2, placed)
    assert "Experts(4, 1 of 3, hidden=16" in repr(models[0]) and "2 of 3" in repr(models[1])
    with pytest.raises(RuntimeError, match="holds only a part of the model"):
        models[0].state_dict()


def placed_twice(comm):
    return ExpertParallel(comm).place(placed(comm))


def without_a_gate(comm):
    mixture = nn.Experts(4, 2, rng=0)
    mixture.gate.requires_grad = False
    return ExpertParallel(comm).place(nn.Sequential(mixture))


def captured(comm):
    return Captured().place(Net().build(np.random.default_rng(0)))


def without_a_flush(comm):
    backend = AsynchronousPipeline(comm)
    model = backend.place(nn.Sequential(nn.Experts(4, 2, rng=0), nn.Linear(4, 3, rng=0)))
    return backend.step(model, Batch(np.ones((2, 3, 4)), np.zeros((2, 3), int)), LOSS)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (placed_twice, "experts are shared among ranks already, .*; build the model anew"),
        (without_a_gate, "nothing to train but experts, .*; train a gate, too"),
        (captured, "a mixture of experts .* a captured step has fixed shapes; train without capture"),
        (without_a_flush, "have a penalty; choose a timetable such as 1f1b, or a penalty of 0"),
        (lambda comm: ExpertParallel(comm, capacity_per="token"), "capacity_per 'token'.* sample, rank"),
        (lambda comm: stack(comm, data=1, model=2, plan={"1": "heads"}).place(
            Net().build(np.random.default_rng(0))), "would compute Experts as Sequential, .*; name other"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says) as refusal:
        run_ranks(2, call)
    assert "\n" not in str(refusal.value)
