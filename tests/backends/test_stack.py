"""Laws of backends/stack.py and grid.py: strategies stacked on a grid train like serial, data by model, by
layers, by all three, and by space.
"""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import allreduce, broadcast
from backends.data_parallel import BackupWorkers, DataParallel, ProportionalDataParallel
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.layer_wise import LayerWise
from backends.stack import Stack, StackState
from minigrad import ops
from minigrad.optim import Part
from minigrad.placed_state import PlacedState
from minigrad.serial import Serial
from minigrad.work import forward_backward_pass
from tests.backends.stack_laws import OPTIMIZERS, PLANS, batches_of, images, law, mlp, plain_images, stack

grids = st.tuples(st.integers(1, 3), st.integers(1, 3)).filter(lambda g: g[0] * g[1] <= 6)
uneven = st.lists(st.integers(1, 7), min_size=2, max_size=3)


lists = st.fixed_dictionaries(
    {
        "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
        "left_out": st.integers(0, 4),
        "seed": st.integers(0, 99),
    }
)


@given(grid=grids, plan=st.sampled_from(PLANS), sizes=uneven, trained=lists)
def test_data_by_model(grid, plan, sizes, trained):
    law((grid[0], 1, grid[1]), plan, sizes, **trained)


@given(grid=grids, sizes=uneven, trained=lists, data=st.sampled_from([DataParallel, Sharded]))
def test_data_by_layers(grid, sizes, trained, data):
    law((*grid, 1), {}, sizes, data=data, **trained)


@pytest.mark.parametrize("stage", [1, 2])
@given(grid=grids, plan=st.sampled_from(PLANS), trained=lists)
def test_shards_by_model(stage, grid, plan, trained):
    law((grid[0], 1, grid[1]), plan, data=partial(Sharded, stage=stage, bucket_bytes=150), **trained)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("plan", PLANS)
def test_data_by_layers_by_model(plan, optimizer):
    law((2, 2, 2), plan, optimizer=optimizer)
    law((1, 2, 2), plan, optimizer=optimizer)


def test_images_by_filters_and_by_rows():
    for plan in ({"0": "filters", "2": "channels", "5": "row"}, {"0": "rows", "1": "rows", "2": "rows"}):
        for shape in ((2, 1, 2), (1, 1, 3), (2, 2, 2)):
            law(shape, plan, build=plain_images, sample=(2, 4, 4))


@pytest.mark.parametrize(
    "plan",
    [
        {"0": "filters", "3": "channels", "6": "row"},
        {"6": "classes"},
        {"0": "rows", "1": "rows", "2": "rows", "3": "rows"},
    ],
)
@pytest.mark.parametrize("shape", [(2, 1, 2), (3, 2, 1), (2, 2, 2)])
def test_batch_norm_over_all_samples_goes_through_layers_and_models(shape, plan):
    """Ranks meet in forward along the data axis: those without samples go through every pass."""
    synchronized = partial(DataParallel, batch_norm="synchronized")
    law(shape, plan, (4, 2, 3), images, (2, 4, 4), data=synchronized)


@given(outer=st.integers(1, 3), inner=st.integers(1, 3))
def test_micro_batches_of_both_members(outer, inner):
    law(
        (2, 1, 2),
        {"1": "column", "3": "row"},
        data=partial(DataParallel, micro_batches=outer),
        model=partial(ModelParallel, micro_batches=inner),
    )


class Eager(DataParallel):
    """Sends every gradient as soon as it is told of it and takes the sum in the end, as buckets do.

    Every rank has samples.
    """

    def on_grad(self, parameter):
        if parameter.requires_grad and parameter.size:
            vars(self).setdefault("sums", {})[parameter] = self.allreduce(self.comm, parameter.grad)

    def finish(self, model, loss):
        for parameter, total in self.sums.items():
            parameter.grad = total
        self.sums = {}
        return float(self.allreduce(self.comm, np.array([loss]))[0])


class OwnersState(PlacedState):
    def global_square_norms(self, model, squares):
        return allreduce(self.backend.comm, squares)


class Owners(DataParallel):
    """Each rank updates some of the parameters and tells the others, as shards do."""

    state_class = OwnersState

    def update(self, model, optimizer):
        own = [p.requires_grad and i % self.size == self.rank for i, p in enumerate(optimizer.parameters)]
        parts = (Part(i, p.data, p.grad) for i, p in enumerate(optimizer.parameters) if own[i])
        optimizer.step(parts, partial(self.state.total_squares, model, optimizer))
        for i, p in enumerate(optimizer.parameters):
            p.data[...] = broadcast(self.comm, p.data, i % self.size)


@pytest.mark.parametrize("plan", [{"0": "rows", "2": "rows"}, {"0": "filters", "2": "channels"}])
def test_a_partial_gradient_is_announced_once_the_model_axis_has_summed_it(plan):
    for shape in ((2, 1, 2), (2, 1, 3), (2, 2, 2)):
        law(shape, plan, (4, 2), plain_images, (2, 4, 4), data=Eager)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_strategy_that_updates_its_own_parts_knows_the_norms_of_wholes(optimizer):
    for shape in ((2, 1, 2), (3, 1, 2), (2, 2, 1), (2, 2, 2)):
        law(shape, PLANS[0], data=Owners, optimizer=optimizer)


def test_averaged_models_clip_by_whole_norms_too():
    """Local SGD on one data rank is serial, whatever stands inside."""
    for shape in ((1, 1, 3), (1, 3, 1), (1, 2, 2)):
        law(shape, PLANS[0], data=partial(LocalSGD, period=2), optimizer="clipped")


def test_serial_outside_and_model_alone():
    law((1, 1, 3), PLANS[0], data=lambda comm: Serial())
    batch = batches_of((8,), (3,))
    alone = lambda comm: Stack(ModelParallel(comm, PLANS[0]))  # noqa: E731
    run_ranks(2, lambda comm: trains_like_serial(alone, comm, mlp, ops.cross_entropy, batch))


def test_what_a_stack_says_of_itself():
    def work(comm):
        grid = Grid(comm, data=2, pipe=2, model=2)
        made = stack(grid, {}, data=partial(DataParallel, micro_batches=3))
        averaged = Stack(LocalSGD(grid.data), ModelParallel(grid.model))
        return (
            made.rank,
            made.size,
            made.micro_batches,
            made.traits.equals_serial,
            averaged.traits.equals_serial,
        )

    assert run_ranks(8, work) == [(rank, 8, 3, True, False) for rank in range(8)]


def test_every_rank_evaluates_the_whole_model():
    x = batches_of((2, 2, 2), (5,))[0].x
    expected = mlp(np.random.default_rng(0)).to(dtype=np.float64)(x).data

    def work(comm):
        backend = stack(Grid(comm, data=2, pipe=2, model=2), {"1": "column", "3": "row", "5": "classes"})
        return backend.place(mlp(np.random.default_rng(comm.rank)).to(dtype=np.float64)).eval()(x).data

    for actual in run_ranks(8, work):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (lambda grid: (), "needs at least one strategy"),
        (lambda grid: (Stack(Serial()), Serial()), "a stack inside a stack is one stack"),
        (lambda grid: (ModelParallel(grid.model), LocalSGD(grid.data)), "LocalSGD updates .*put it first"),
        (
            lambda grid: (Sharded(grid.data, stage=3), ModelParallel(grid.model)),
            "Sharded gathers weights when modules are called",
        ),
        (
            lambda grid: (ProportionalDataParallel(grid.data), ModelParallel(grid.model)),
            "ProportionalDataParallel goes by how fast",
        ),
        (lambda grid: (BackupWorkers(grid.data, backups=1), LayerWise(grid.model)), "BackupWorkers goes by"),
    ],
)
def test_what_cannot_be_stacked_is_refused(members, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(6, lambda comm: Stack(*members(Grid(comm, data=3, model=2))))


def test_backup_workers_without_backups_can_be_stacked():
    law((3, 1, 2), PLANS[0], data=BackupWorkers)


# Seeded bugs


class AllIsFinal(ModelParallel):
    def on_grad(self, parameter):
        return True


class AnnouncesNothingLater(Stack):
    def announce(self, parameter, outer):
        return outer == len(self.members) and super().announce(parameter, outer)


class TotalsOfTheOutermostOnly(Stack):
    def update(self, model, optimizer):
        self.members[0].enclose(())
        super().update(model, optimizer)


class SharesByTheWorld(Stack):
    """Every rank of the grid takes a share of its own: ranks of one model then see different samples."""

    def shard(self, batch):
        n, size = len(batch), self.size
        return batch[n * self.rank // size : n * (self.rank + 1) // size]


class SkipsTheInnerRuns(Stack):
    """The outermost runs its own passes, and nobody knows of the classes that are cut."""

    def loss_for(self, model, loss_fn):
        return loss_fn

    def forward_backward(self, work, inner=forward_backward_pass):
        return self.members[0].forward_backward(work, inner)


class WeighsByTheInnerMemberOnly(Stack):
    def loss_weight(self, mine, batch):
        return 1.0


class FinishesTheOutermostOnly(Stack):
    def finish(self, model, loss):
        return self.members[0].finish(model, loss)


class UnjoinedState(StackState):
    def unshard(self, model, values):
        return values


class JoinsNothing(Stack):
    state_class = UnjoinedState


IMAGES = {"build": plain_images, "sample": (2, 4, 4), "plan": {"0": "rows", "2": "rows"}}
BUGS = {
    AllIsFinal: {"model": AllIsFinal, "data": Eager, **IMAGES},
    AnnouncesNothingLater: {"data": Eager, **IMAGES},
    TotalsOfTheOutermostOnly: {"optimizer": "clipped"},
    SharesByTheWorld: {"sizes": (4, 4)},
    SkipsTheInnerRuns: {"plan": PLANS[1]},
    WeighsByTheInnerMemberOnly: {},
    FinishesTheOutermostOnly: IMAGES,
    JoinsNothing: {},
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    settings = {"shape": (2, 1, 2), "plan": PLANS[0], "sizes": (4, 2)} | BUGS[bug]
    if bug is not AllIsFinal:
        settings["made"] = bug
    with pytest.raises((AssertionError, ValueError)) as caught:
        law(**settings)
    assert isinstance(caught.value, AssertionError) or bug in (SkipsTheInnerRuns,)
