"""Laws of backends/sequence_parallel/sequence_parallel.py and split_tokens.py: training with shared tokens,
alone and in stacks of three axes.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.data_parallel import DataParallel
from backends.expert_parallel import ExpertParallel
from backends.grid import Grid
from backends.sequence_parallel import SequenceParallel
from backends.sequence_parallel.split_tokens import SplitTokens
from backends.sequence_parallel.token_order import ORDERS, columns_of
from backends.stack import Stack
from minigrad import Tensor, nn, ops
from minigrad.data import Batch
from minigrad.nn import CrossEntropyLoss
from minigrad.weighted_mean import WeightedMean
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Net
from tests.backends.sequence_parallel import sequence_laws as laws

NET = Net()
FORMS = [{}, {"form": "ulysses"}, {"order": "contiguous"}, {"micro_batches": 3}]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("how", FORMS, ids=str)
def test_trains_like_serial(ranks, how):
    laws.trains(lambda comm: SequenceParallel(comm, **how), ranks, NET)


@given(
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from(FORMS),
    st.booleans(),
    st.integers(1, 7),
)
def test_any_rows_train_like_serial(ranks, tokens, heads, how, documents, rows):
    net = Net(heads=heads, size=2, tokens=tokens, blocks=1)
    laws.trains(lambda comm: SequenceParallel(comm, **how), ranks, net, sizes=(rows, 2), documents=documents)


STACKS = [
    {"data": 2, "sequence": 2, "model": 2},
    {"pipe": 2, "sequence": 2, "model": 2},
    {"data": 2, "pipe": 2, "sequence": 2},
    {"data": 3, "sequence": 2},
    {"sequence": 4, "model": 2},
]


@pytest.mark.parametrize("form", ["ring", "ulysses"])
@pytest.mark.parametrize("axes", STACKS, ids=str)
def test_stacks_train_like_serial(axes, form):
    laws.trains_in_a_stack(axes, form=form)


@pytest.mark.parametrize("axes", [STACKS[0], STACKS[1]], ids=str)
def test_both_splits_of_tokens_together_train_like_serial(axes):
    laws.trains_in_a_stack(axes, split_tokens=True, documents=True)


def test_stages_that_run_again_train_like_serial():
    laws.trains_in_a_stack(STACKS[2], recompute=True, documents=True)


@pytest.mark.parametrize("form", ["ring", "ulysses"])
@pytest.mark.parametrize("kind", ["segments", "core"])
def test_layers_that_run_again_train_like_serial(kind, form):
    laws.trains(lambda comm: SequenceParallel(comm, form=form), 3, NET, build=laws.again(NET, kind))


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("form", ["ring", "ulysses"])
def test_documents_of_a_keyword_are_gathered(ranks, form):
    batches = laws.packed_batches(NET, (5, 3, 1))
    laws.trains(
        lambda comm: SequenceParallel(comm, form=form),
        ranks,
        NET,
        batches=batches,
        build=lambda rng: laws.Packed(NET, rng),
    )


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_experts_have_places_for_whole_rows(ranks, documents):
    """A rank asks the others whom their tokens have chosen."""
    laws.trains(
        lambda comm: SequenceParallel(comm, micro_batches=2), ranks, NET,
        documents=documents, build=laws.with_experts(NET),
    )  # fmt: skip


@pytest.mark.parametrize("outer", [DataParallel, ExpertParallel])
def test_experts_stand_in_stacks_with_shared_tokens(outer):
    def strategy(comm):
        grid = Grid(comm, data=2, sequence=2)
        return Stack(outer(grid.data), SequenceParallel(grid.sequence))

    laws.trains(strategy, 4, NET, build=laws.with_experts(NET))


LOSSES = {
    "no settings": CrossEntropyLoss(class_axis=-1),
    "smoothed": CrossEntropyLoss(class_axis=-1, label_smoothing=0.1),
    "weights": CrossEntropyLoss(class_axis=-1, weight=np.arange(1.0, 10.0)),
    "sum": CrossEntropyLoss(class_axis=-1, reduction="sum"),
    "own": WeightedMean(lambda out, y: (out[:, :, 0] * (y >= 0)).sum(), lambda y: (y >= 0).sum() + 1),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("axes", [{"sequence": 3}, STACKS[0]], ids=str)
def test_a_loss_is_per_token(axes, loss):
    batches = [Batch(batch.x, np.abs(batch.y)) for batch in NET.batches(5, 1)]
    ranks = int(np.prod([*axes.values()]))
    laws.trains(lambda c: laws.stack(c, NET, **axes), ranks, NET, loss=LOSSES[loss], batches=batches)


def test_labels_that_are_probabilities():
    rng = np.random.default_rng(0)
    batches = [Batch(batch.x, rng.dirichlet(np.ones(9), batch.y.shape)) for batch in NET.batches(4, 2)]
    laws.trains(SequenceParallel, 3, NET, loss=LOSSES["no settings"], batches=batches)


def test_a_rank_with_padding_only():
    batches = NET.batches(3, 2)
    for batch in batches:
        batch.y[:, [0, 5]] = -1  # the tokens of rank 0 of 3
    laws.trains(SequenceParallel, 3, NET, batches=batches)


def test_rows_of_padding():
    """One row, which is a micro-batch; without any label the loss is that of one machine, and no number."""
    batches = NET.batches(3, 2)
    for batch in batches:
        batch.y[0] = -1
    laws.trains(lambda comm: SequenceParallel(comm, micro_batches=3), 2, NET, batches=batches)
    batches[0].y[:] = -1

    def work(comm):
        backend = SequenceParallel(comm)
        return backend.step(backend.place(NET.build(np.random.default_rng(0))), batches[0], TOKEN_LOSS)

    assert np.isnan(run_ranks(2, work)).all()


def test_the_all_reduce_is_a_setting():
    laws.trains(lambda comm: SequenceParallel(comm, ring_allreduce), 3, NET)


def split_tokens(comm, length, order):
    return SplitTokens(comm=comm, columns=columns_of(length, comm.size, order))


@given(st.integers(1, 4), st.integers(0, 11), st.sampled_from(ORDERS))
def test_masks_are_columns_of_whole_ones(ranks, length, order):
    laws.draws_whole_masks(split_tokens, ranks, length, order)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_holds_its_share(ranks):
    """A ring holds the columns of all ranks too; of an all-to-all two layers hold the joined heads."""
    net = Net(heads=4, tokens=16, p=0.0)
    for form, more in (("ring", net.tokens), ("ulysses", 2 * net.tokens // ranks * net.width)):
        order = "zigzag" if form == "ring" else "contiguous"
        laws.holds_a_share(
            lambda comm, length, form=form, order=order: SplitTokens(
                comm=comm, columns=columns_of(length, comm.size, order), form=form
            ),
            net,
            ranks,
            more,
        )


class Own(nn.Module):
    """A layer of which nobody says what it does."""

    def forward(self, x):
        return Tensor(x) if not isinstance(x, Tensor) else x


class Shifted(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, x):
        return super().forward(x + ops.sum(x, axis=1, keepdims=True))


class Scaled(nn.Linear):
    """A linear layer whose forward says that it is of each token."""

    token_wise = True

    def forward(self, x):
        return super().forward(x * 2.0)


MIXING = {
    "BatchNorm": lambda rng: nn.BatchNorm(8),
    "Conv1d": lambda rng: nn.Conv1d(8, 8, 3, padding=1, rng=rng),
    "Flatten": lambda rng: nn.Flatten(),
    "Own": lambda rng: Own(),
    "Shifted": lambda rng: Shifted(8, 8, rng=rng),
}


@pytest.mark.parametrize("name", MIXING)
def test_layers_that_may_mix_tokens_are_refused(name):
    def build(rng):
        return nn.Sequential(*NET.build(rng).layers[:-1], nn.Sequential(MIXING[name](rng)))

    words = f"{name} may mix the tokens of a row, .* say so: token_wise = True in class {name}"
    laws.refuses(SequenceParallel, build, words, NET.batches(2)[0])


def test_layers_that_say_so_are_taken():
    def build(rng):
        first, *rest = NET.build(rng).layers
        return nn.Sequential(first, Scaled(8, 8, rng=rng), *rest)

    laws.trains(SequenceParallel, 2, NET, build=build)


def test_wrong_labels_and_losses_are_refused():
    batch = NET.batches(2)[0]
    words = "shares tokens x .* a label of a whole row belongs to no rank"
    laws.refuses(SequenceParallel, NET.build, words, Batch(batch.x, batch.y[:, 0]))
    words = "gives each rank some tokens, whose mean loss .* take nn.CrossEntropyLoss"

    def loss(out, y):
        return TOKEN_LOSS(out, y)

    for strategy in (SequenceParallel, lambda comm: Stack(SequenceParallel(comm))):
        laws.refuses(strategy, NET.build, words, batch, loss)
    with pytest.raises(ValueError, match="so there is nothing to balance; leave order out"):
        run_ranks(1, lambda comm: SequenceParallel(comm, form="ulysses", order="zigzag"))


NO_SUMS = {
    "a mean of each row": lambda out, y: ops.sum(ops.mean(out * out, axis=1)),
    "a difference of neighbors": lambda out, y: ops.sum((out[:, 1:] - out[:, :-1]) ** 2),
    "the last token": lambda out, y: ops.sum(out[:, -1] ** 2),
}


@pytest.mark.parametrize("name", NO_SUMS)
def test_totals_that_are_no_sums_over_tokens_are_refused(name):
    batch = NET.batches(2)[0]
    loss = WeightedMean(NO_SUMS[name], len)
    laws.refuses(
        SequenceParallel, NET.build, "the total over tokens is .* it is no sum over tokens", batch, loss
    )


def test_a_sum_over_tokens_is_trained_like_serial():
    loss = WeightedMean(lambda out, y: ops.sum(out * out), np.size)
    laws.trains(SequenceParallel, 2, NET, loss=loss)


def test_a_backend_trains_the_model_that_it_placed_last():
    batch = NET.batches(2)[0]

    def work(comm):
        backend = SequenceParallel(comm)
        first, second = (backend.place(NET.build(np.random.default_rng(0))) for _ in range(2))
        with pytest.raises(ValueError, match="make a backend for each model"):
            backend.step(first, batch, TOKEN_LOSS)
        backend.step(second, batch, TOKEN_LOSS)
        other = Batch(batch.x, batch.y if comm.rank else batch.y * 0)
        with pytest.raises(ValueError, match="rank 1 was given another batch than rank 0"):
            backend.step(second, other, TOKEN_LOSS)
        backend.close()

    run_ranks(2, work)


class MeanByCall(nn.Linear):
    """It mixes tokens around an inherited forward."""

    def __call__(self, x):
        return super().__call__(x + ops.mean(x, axis=1, keepdims=True))


def test_a_call_of_its_own_may_mix_tokens():
    assert nn.Linear.token_wise and not MeanByCall.token_wise


def test_tokens_are_shared_once_and_after_rows():
    for inner, words in (
        (SequenceParallel, "tokens can be shared once"),
        (DataParallel, "put DataParallel first"),
    ):
        with pytest.raises(ValueError, match=words):
            run_ranks(1, lambda comm, inner=inner: Stack(SequenceParallel(comm), inner(comm)))


def test_masks_by_hand_and_other_shapes_are_refused():
    def work(comm, what):
        tokens = split_tokens(comm, 6, "zigzag")
        x = np.zeros((2, 3, 1, 3))
        if what == "mask":
            tokens.self_attention(x, causal=True, mask=np.ones((3, 3), bool))
        elif what == "dropout":
            tokens.mask(laws.RandomMask(0), 6).keep((6, 4), 0.5)
        elif what == "flat":
            tokens.mask(laws.RandomMask(0), 2).keep((6, 3), 0.5)
        else:
            tokens.places((2, 6))

    words = {
        "mask": "other ranks|elsewhere",
        "dropout": "dropout of tokens",
        "flat": "in 2 rows",
        "places": "positions of tokens",
    }
    for what, text in words.items():
        with pytest.raises(ValueError, match=text):
            run_ranks(2, lambda comm, what=what: work(comm, what))


def test_different_batches_are_told():
    def work(comm):
        backend = SequenceParallel(comm)
        model = backend.place(NET.build(np.random.default_rng(0)))
        one, two = NET.batches(2, 2)
        backend.step(model, one, TOKEN_LOSS)
        backend.step(model, one if comm.rank else two, TOKEN_LOSS)

    with pytest.raises(ValueError, match="was given another batch"):
        run_ranks(2, work)


def test_evaluation_computes_whole_rows_alone():
    def work(comm):
        model = SequenceParallel(comm).place(NET.build(np.random.default_rng(0)))
        if comm.rank == 0:  # and the other rank sends nothing
            batch = NET.batches(2)[0]
            with batch.evaluation_pass(), nn.evaluation_mode(model):
                assert model(Tensor(batch.x)).shape == (2, 6, 9)

    run_ranks(2, work)
