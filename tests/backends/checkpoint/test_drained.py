"""Laws of backends/checkpoint/training_checkpoints.py: servers, backup workers and pipelines without a
flush drain what is on its way, and resume from there.
"""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel.backup_workers import BackupWorkers
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.pipeline.asynchronous import RULES, AsynchronousPipeline
from backends.pipeline.pipeline import Pipeline
from backends.stack import Stack
from tests.backends.checkpoint.drain_laws import (
    another_layout_holds_what_was_saved,
    cluster,
    every_sample_counts_once,
    is_serial_on_the_listed_contributors,
    nobody_waits_for_a_late_rank,
)
from tests.backends.checkpoint.resume_laws import (
    Layout,
    goes_on_in_another_layout,
    goes_on_with_the_same_bits,
    training,
)
from tests.backends.checkpoint.resumed_layouts import OPTIMIZERS, SIZES, layouts
from tests.nets import MODELS, batches_of, dropping, images, mlp, sample_of, tied

SPEEDS = st.lists(st.sampled_from([1.0, 1.37, 1.93, 2.21, 3.71]), min_size=4, max_size=4, unique=True)
SERVER_RULES = [
    {}, {"softsync": 1}, {"softsync": 2}, {"staleness": 0}, {"staleness": 1}, {"staleness": 2},
    {"stale_rate": "divided"}, {"stale_rate": "naive"},
]  # fmt: skip
PLAIN = st.sampled_from(sorted(set(OPTIMIZERS) - {"lars", "clipped"}))  # these need joint norms
fewer = settings(max_examples=settings().max_examples // 2)


@fewer
@given(
    rule=st.sampled_from(SERVER_RULES),
    workers=st.integers(2, 4),
    servers=st.integers(1, 3),
    speeds=SPEEDS,
    optimizer=PLAIN,
    sizes=SIZES,
    data=st.data(),
)
def test_servers_resume_with_the_same_bits(rule, workers, servers, speeds, optimizer, sizes, data):
    """On a virtual clock, where the same gradients meet at the same versions, also asynchronous ones."""
    k = data.draw(st.integers(0, len(sizes)))
    strategy = partial(ParameterServer, servers=servers, **rule)
    layout = Layout(workers + servers, strategy, cluster(*speeds[:workers]))
    goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS[optimizer], batches_of(sizes), k, drained=True)


@fewer
@given(
    workers=st.integers(1, 4),
    servers=st.integers(1, 3),
    sizes=SIZES,
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_every_gradient_is_applied_once_in_any_order(workers, servers, sizes, seed, data):
    strategy = partial(ParameterServer, servers=servers, stale_rate="naive")
    layout = Layout(workers + servers, strategy, partial(run_ranks, seed=seed))
    every_sample_counts_once(layout, sizes, data.draw(st.integers(0, len(sizes))))


@fewer
@given(
    ranks=st.integers(2, 5),
    backups=st.integers(0, 3),
    speeds=SPEEDS,
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    sizes=SIZES,
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_backup_workers_resume(ranks, backups, speeds, optimizer, sizes, seed, data):
    """With the same bits on a virtual clock, and in any turns as the serial run on the contributors."""
    k, batches = data.draw(st.integers(0, len(sizes))), batches_of(sizes)
    strategy = partial(BackupWorkers, backups=min(backups, ranks - 2))
    timed = Layout(ranks, strategy, cluster(1.0, *speeds))
    goes_on_with_the_same_bits(timed, mlp, OPTIMIZERS[optimizer], batches, k, drained=True)
    in_turns = Layout(ranks, strategy, partial(run_ranks, seed=seed))
    is_serial_on_the_listed_contributors(in_turns, mlp, OPTIMIZERS[optimizer], batches, k)


@fewer
@given(
    versions=st.sampled_from(sorted(RULES)),
    ranks=st.integers(1, 4),
    build=st.sampled_from([mlp, images, dropping]),
    optimizer=PLAIN,
    sizes=st.lists(st.integers(4, 9), min_size=2, max_size=5),
    seed=st.none() | st.integers(0, 99),
    data=st.data(),
)
def test_pipelines_without_a_flush_resume_with_the_same_bits(
    versions, ranks, build, optimizer, sizes, seed, data
):
    ranks = min(ranks, 3) if build is images else ranks  # which has three layers to train
    layout = Layout(ranks, partial(AsynchronousPipeline, versions=versions), partial(run_ranks, seed=seed))
    k, batches = data.draw(st.integers(0, len(sizes))), batches_of(sizes, sample_of(build))
    goes_on_with_the_same_bits(layout, build, OPTIMIZERS[optimizer], batches, k, drained=True)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_shares_by_speed_go_on_with_the_speeds_that_there_were(k):
    """On a virtual clock with the same bits, and without a drain."""
    layout = Layout(3, partial(ProportionalDataParallel, every=2), cluster(1, 2, 4))
    goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS["adam"], batches_of([7, 5, 9, 8, 3]), k)


SYNCHRONOUS = st.one_of(
    st.integers(2, 5).map(lambda ranks: Layout(ranks, partial(ParameterServer, staleness=0))),
    st.integers(1, 5).map(lambda ranks: Layout(ranks, BackupWorkers)),
)
"""The layouts that train like one machine."""


@fewer
@given(
    build=st.sampled_from([mlp, images]),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    sizes=SIZES,
    data=st.data(),
)
def test_any_layout_goes_on_where_synchronous_ones_stopped_and_the_reverse(build, optimizer, sizes, data):
    before, after = data.draw(
        st.permutations([data.draw(SYNCHRONOUS), data.draw(SYNCHRONOUS | layouts(build))])
    )
    k, batches = data.draw(st.integers(0, len(sizes))), batches_of(sizes, sample_of(build))
    goes_on_in_another_layout(before, after, build, OPTIMIZERS[optimizer], batches, k)


STALE = {
    "server": Layout(4, partial(ParameterServer, servers=2)),
    "stale server": Layout(4, partial(ParameterServer, staleness=2)),
    "backup workers": Layout(4, partial(BackupWorkers, backups=1)),
    "pipedream": Layout(3, AsynchronousPipeline),
    "2bw": Layout(2, partial(AsynchronousPipeline, versions="2bw")),
    "proportional": Layout(3, partial(ProportionalDataParallel, every=2)),
    "pipedream, vertical": Layout(3, partial(AsynchronousPipeline, versions="vertical")),
}
SAME = {
    "replicated": Layout(3, DataParallel),
    "sharded": Layout(2, partial(Sharded, stage=3)),
    "stages": Layout(2, lambda comm: Pipeline(comm, schedule="1f1b", micro_batches=2)),
}


@pytest.mark.parametrize("one", STALE)
def test_what_a_stale_strategy_has_trained_is_any_layouts(one):
    names = list(STALE)
    others = [*SAME.values(), STALE[names[names.index(one) - 1]]]
    for other in others:
        for before, after in ((STALE[one], other), (other, STALE[one])):
            another_layout_holds_what_was_saved(
                before, after, mlp, OPTIMIZERS["adam"], batches_of([7, 5, 9, 8])
            )


@pytest.mark.parametrize("build", [tied, MODELS["frozen first"], MODELS["frozen but the last"]])
def test_tied_and_frozen_weights_go_on(build):
    batches, adam = batches_of([5, 4, 6]), OPTIMIZERS["adam"]
    servers = Layout(4, partial(ParameterServer, staleness=0, servers=2))
    workers = Layout(3, BackupWorkers)
    goes_on_with_the_same_bits(servers, build, adam, batches, 1)
    goes_on_in_another_layout(servers, workers, build, adam, batches, 2)
    goes_on_in_another_layout(workers, servers, build, adam, batches, 1)


def replicas(comm, **rule):
    """Two workers and a server, each a pipeline of two ranks."""
    grid = Grid(comm, data=3, pipe=2)
    return Stack(ParameterServer(grid.data, **rule), Pipeline(grid.pipe, micro_batches=2))


def test_servers_of_replicas_resume():
    batches = batches_of([7, 5, 9, 8])
    for rule in ({"staleness": 0}, {"softsync": 1}, {}):
        layout = Layout(6, partial(replicas, **rule), cluster(*[1.0, 1.0, 1.37, 1.37]))
        goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS["adam"], batches, 2, drained=True)
    synchronous = Layout(6, partial(replicas, staleness=0))
    for pair in ((synchronous, SAME["sharded"]), (SAME["stages"], synchronous)):
        goes_on_in_another_layout(*pair, mlp, OPTIMIZERS["momentum"], batches, 2)


def test_running_statistics_are_the_workers_mean():
    """So are the statistics in a checkpoint, and a server goes on with them."""
    layout = Layout(4, partial(ParameterServer, staleness=0, servers=1))
    goes_on_with_the_same_bits(layout, dropping, OPTIMIZERS["adam"], batches_of([9, 7, 8]), 1, drained=True)


def test_a_loss_that_shows_late_is_that_of_its_step():
    """Also after a drain, and in a run that is resumed from one, by the same ranks or by fewer."""
    batches = batches_of([7, 5, 9, 8, 6])
    batches[4].x[...] = np.nan
    layout, sgd = Layout(3, AsynchronousPipeline), OPTIMIZERS["sgd"]
    for ranks, drained, resumed in ((3, {2}, 0), (3, set(), 3), (2, set(), 3)):
        with TemporaryDirectory() as folder, np.errstate(invalid="ignore"):
            if resumed:
                training(layout, mlp, sgd, batches[:resumed], Path(folder))
            with pytest.raises(FloatingPointError, match="the loss is nan at step 4;"):
                training(
                    layout._replace(ranks=ranks), mlp, sgd, batches[resumed:], Path(folder),
                    resume=resumed > 0, same_layout=ranks == layout.ranks, drained=drained,
                )  # fmt: skip


def test_a_server_whose_workers_may_leave_resumes_and_writes_none():
    batches = batches_of([7, 5, 9, 8])
    before = Layout(3, partial(ParameterServer, staleness=0))
    after = Layout(3, partial(ParameterServer, staleness=0, survive=True))
    with pytest.raises(ValueError, match="may leave.*a checkpoint is written by all"):
        goes_on_in_another_layout(before, after, mlp, OPTIMIZERS["adam"], batches, 2)


@pytest.mark.parametrize("strategy", [partial(BackupWorkers, backups=1), ParameterServer])
def test_nobody_waits_for_a_late_rank_between_checkpoints(strategy):
    """The last worker, or the server's slow one, takes 20 s for a step; it is waited for once, for a save."""
    slowness = (1.0, 1.0, 20.0, 1.0) if strategy is ParameterServer else (1.0, 1.0, 1.0, 20.0)
    steps, wait = 4, 4 * 20 if strategy is ParameterServer else 20
    layout = Layout(4, strategy, cluster(*slowness))
    nobody_waits_for_a_late_rank(layout, batches_of([6] * (steps + 3)), steps, wait + 3 + 1)


def test_single_precision():
    for strategy in (partial(ParameterServer, staleness=0), BackupWorkers, AsynchronousPipeline):
        batches = [type(b)(b.x.astype(np.float32), b.y) for b in batches_of([7, 5, 9])]
        layout = Layout(3, strategy, cluster(1.0, 1.37, 1.93))
        goes_on_with_the_same_bits(layout, mlp, OPTIMIZERS["adam"], batches, 2, np.float32, drained=True)
