"""Laws of backends/pipeline/layer_wise.py and backends/placement.py: layers on consecutive ranks train
like serial; b d_i numbers cross a boundary each way.
"""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import broadcast
from backends.comm.trace import Traced
from backends.laws import trains_like_serial
from backends.pipeline.layer_wise import LayerWise
from backends.placement import LayersOfRanks
from minigrad import nn, ops
from minigrad.work import Work
from tests.backends.pipeline.layer_wise_nets import OPTIMIZERS, batches_of, build
from tests.bugs.mutant import mutant

WIDTHS = (4, 6, 5, 7, 3)


def images(rng):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 1, rng=rng),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(16, 3, rng=rng),
    )


def law(
    ranks, strategy=LayerWise, build=build, shape=(4,), optimizer="momentum", rendezvous=False, **settings
):
    def work(comm):
        trains_like_serial(
            lambda comm: strategy(comm, **settings),
            comm,
            build,
            ops.cross_entropy,
            batches_of(*shape),
            optimizer=OPTIMIZERS[optimizer],
        )

    run_ranks(ranks, work, rendezvous=rendezvous)


@given(ranks=st.integers(1, 5), optimizer=st.sampled_from(sorted(OPTIMIZERS)), rendezvous=st.booleans())
def test_trains_like_serial(ranks, optimizer, rendezvous):
    law(ranks, optimizer=optimizer, rendezvous=rendezvous)


@given(data=st.data(), ranks=st.integers(1, 4))
def test_with_any_bounds(data, ranks):
    inner = data.draw(st.sampled_from(list(combinations((1, 2, 3, 4, 5, 6), ranks - 1))))
    bounds = (0, *inner, 8)
    trained = (0, 2, 5, 6, 7)
    if all(any(a <= i < b for i in trained) for a, b in pairwise(bounds)):
        law(ranks, bounds=bounds)
    else:
        with pytest.raises(
            ValueError, match="without a trained layer; there are trained layers 0, 2, 5, 6, 7"
        ):
            law(ranks, bounds=bounds)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_images_and_micro_batches(ranks):
    law(ranks, build=images, shape=(1, 4, 4))
    law(ranks, build=images, shape=(1, 4, 4), micro_batches=3)
    law(ranks, build=images, shape=(1, 4, 4), micro_batches=7)  # more than there are samples


@given(n=st.integers(1, 6), ranks=st.integers(2, 4))
def test_activations_cross_each_boundary_once_and_their_gradients_come_back(n, ranks):
    def work(comm):
        traced = Traced(comm)
        backend = LayerWise(traced)
        model = backend.place(plain(np.random.default_rng(0)).to(dtype=np.float64))
        before = traced.record.ledger.sent()
        loss_fn = backend.loss_for(model, ops.cross_entropy)
        backend.forward_backward(Work(model, batches_of(4, sizes=(n,))[0], loss_fn))
        after = traced.record.ledger.sent()
        return after[0] - before[0], after[1] - before[1], backend.bounds or ()

    def plain(rng):
        return nn.Sequential(*(nn.Linear(a, b, rng=rng) for a, b in pairwise(WIDTHS)))

    for rank, (messages, nbytes, bounds) in enumerate(run_ranks(ranks, work)):
        crossed = [WIDTHS[bounds[rank + 1]]] * (rank < ranks - 1) + [WIDTHS[bounds[rank]]] * (rank > 0)
        assert (messages, nbytes) == (len(crossed), 8 * n * sum(crossed))


def test_a_rank_holds_its_own_layers_only():
    """The serial model that was placed keeps nothing of the others either."""
    serial = build(np.random.default_rng(0))

    def work(comm):
        model = build(np.random.default_rng(comm.rank))
        backend = LayerWise(comm)
        placed = backend.place(model)
        names = backend.state.full_parameters(placed).keys(), backend.state.full_state(placed).keys()
        own = set(placed.named_parameters().keys())
        return own, {id(p) for p in model.parameters()}, placed.parameters(), names

    results = run_ranks(3, work)
    assert set.union(*(own for own, *_ in results)) == set(serial.named_parameters().keys())
    assert sum(len(own) for own, *_ in results) == len(serial.parameters())
    for _, left, parameters_of_rank, (parameters, state) in results:
        assert left == {id(p) for p in parameters_of_rank}
        assert parameters | state == serial.state_dict().keys()


def test_every_rank_evaluates_the_whole_model():
    serial = images(np.random.default_rng(0)).to(dtype=np.float64)
    x = batches_of(1, 4, 4)[0].x

    def work(comm):
        model = LayerWise(comm).place(images(np.random.default_rng(comm.rank)).to(dtype=np.float64))
        return model.eval()(x).data

    for results in run_ranks(3, work):
        np.testing.assert_array_equal(results, serial.eval()(x).data)


# Who gets which layers


def test_by_default_the_bytes_of_parameters_are_balanced():
    def bounds(comm):
        backend = LayerWise(comm)
        backend.place(build(np.random.default_rng(0)))
        return backend.bounds

    assert run_ranks(2, bounds) == [(0, 5, 8)] * 2  # 65 numbers and 73
    assert run_ranks(4, bounds) == [(0, 2, 5, 6, 8)] * 4


def tied(rng):
    model = nn.Sequential(
        nn.Linear(4, 4, rng=rng), nn.Tanh(), nn.Linear(4, 4, rng=rng), nn.Linear(4, 3, rng=rng)
    )
    vars(model[2])["weight"] = vars(model[0])["weight"]
    return model


class NotASequential(nn.Module):
    def __init__(self, rng):
        self.layer = nn.Linear(4, 3, rng=rng)


@pytest.mark.parametrize(
    ("ranks", "settings", "message"),
    [
        (6, {}, r"6 ranks .* a model that has 5 \(layers 0, 2, 5, 6, 7\); take at most 5 ranks"),
        (2, {"bounds": (0, 8)}, "bounds of 2 stages are 3 numbers that rise from 0 to the 8 layers, got"),
        (2, {"bounds": (0, 3, 9)}, "rise from 0 to the 8 layers, got"),
        (2, {"bounds": (0, 9, 8)}, "rise from 0 to the 8 layers, got"),
        (2, {"bounds": (0, 0, 8)}, "rise from 0 to the 8 layers, got"),
        (2, {"micro_batches": 0}, "micro_batches must be at least 1, got 0"),
        (2, {"build": NotASequential}, "where a model is a Sequential, not NotASequential; make it one, or"),
        (
            2,
            {"build": tied, "bounds": (0, 1, 4)},
            "0.weight and 2.weight are one parameter, on ranks 0, 1; ch",
        ),
    ],
)
def test_what_cannot_be_is_refused(ranks, settings, message):
    with pytest.raises(ValueError, match=message):
        law(ranks, **settings)


def test_tied_layers_on_one_rank_train_like_serial():
    law(2, build=tied, bounds=(0, 3, 4))


def test_ranks_with_different_bounds_are_told():
    with pytest.raises(ValueError, match="rank 0 has bounds = .*0, 2, 8.*, rank 1 has .*0, 3, 8"):
        run_ranks(
            2, lambda comm: LayerWise(comm, (0, 2 + comm.rank, 8)).place(build(np.random.default_rng(0)))
        )


# Seeded bugs


class KnowsItsOwnNorm(LayerWise):
    def update(self, model, optimizer):
        optimizer.step(total=lambda squares: squares)


class KeepsItsOwnLoss(LayerWise):
    def finish(self, model, loss):
        return loss


class SendsTheLossOfRankZero(LayerWise):
    def finish(self, model, loss):
        return float(broadcast(self.comm, np.array([loss]), 0)[0])


class StateWithoutTheLast(LayersOfRanks):
    def unshard_values(self, model, values):
        return dict(list(super().unshard_values(model, values).items())[:-1])


class ForgetsTheLastArray(LayerWise):
    state_class = StateWithoutTheLast


def broken(name, *change):
    """LayerWise out of a source in which one line is wrong."""
    module = mutant("backends.pipeline.layer_wise", change)
    return pytest.param(module.LayerWise, id=name)


BUGS = [
    KnowsItsOwnNorm,
    KeepsItsOwnLoss,
    SendsTheLossOfRankZero,
    broken("keeps its own start", "        broadcast_model(self.comm, model)\n", ""),
    ForgetsTheLastArray,
    broken("halves what comes", "source=comm.rank - 1)", "source=comm.rank - 1) * 0.5"),
    broken(
        "every rank starts from the batch",
        "y = self.model(x)",
        "y = self.model(x if comm.rank else Tensor(x.data * 2))",
    ),
]


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    law(3, optimizer="clipped", bounds=(0, 2, 5, 8))
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(3, bug, optimizer="clipped", bounds=(0, 2, 5, 8))
