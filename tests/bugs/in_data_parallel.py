"""Bugs of data parallelism: with nearly all of them the loss falls, and the gradients are wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.data_parallel import DataParallel, backup_workers
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.serial import Serial
from tests import nets
from tests.backends import hook_laws
from tests.backends.data_parallel import averaging_laws, backup_worker_laws, diloco_laws
from tests.backends.data_parallel.averaging_laws import equals_the_textbook
from tests.backends.data_parallel.bucketed_laws import (
    Branching,
    processes_of_one_machine_do_what_the_replicated_form_does,
)
from tests.backends.data_parallel.trained_apart import OPTIMIZERS as APART
from tests.backends.data_parallel.zero.sharded_laws import OPTIMIZERS
from tests.bugs.bug import Bug
from tests.nets import Reusing, convolutional

# Laws


def trains(
    strategy: Any, ranks: int = 3, sizes=(7, 5), build: Any = Reusing, optimizer="momentum", **how
) -> None:
    """Uneven shards of uneven batches; samples are far from 0."""
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(0.5, 2, (n, 1, 2, 3)), rng.integers(0, 3, n)) for n in sizes]

    def work(comm):
        trains_like_serial(
            strategy, comm, build, ops.cross_entropy, batches, optimizer=OPTIMIZERS[optimizer], **how
        )

    run_ranks(ranks, work)


def replicated_trains_like_serial() -> None:
    trains(DataParallel)
    trains(partial(DataParallel, micro_batches=2), sizes=(8, 5), build=convolutional)


def bucketed_trains_like_serial() -> None:
    for nbytes in (40, 200, 1 << 20):
        how = {"bucket_bytes": nbytes, "first_bucket_bytes": nbytes, "progress": "blocking"}
        trains(partial(Bucketed, **how))


def ranks_may_take_their_own_way_back() -> None:
    """Which layers run, and in which order, depends on a rank's samples."""
    trains(DataParallel, sizes=(5, 4, 6, 3), build=Branching)
    for nbytes in (1, 100):
        how = {"bucket_bytes": nbytes, "first_bucket_bytes": nbytes, "progress": "blocking"}
        trains(partial(Bucketed, **how), sizes=(5, 4, 6, 3), build=Branching)


def buckets_go_by_machines() -> None:
    for nodes in ([0, 0], [0, 1]):
        processes_of_one_machine_do_what_the_replicated_form_does(nodes)


def sharded_trains_like_serial() -> None:
    for stage in (1, 2, 3):
        trains(partial(Sharded, stage=stage, bucket_bytes=300))


def gradients_of_steps_add_up() -> None:
    for strategy in (DataParallel, partial(Sharded, stage=2, bucket_bytes=300), SharedMemoryDataParallel):
        trains(strategy, sizes=(7, 5, 4, 6), zero_every=4, update_every=2)


def sharded_clips_like_serial() -> None:
    trains(partial(Sharded, stage=2), optimizer="clipped")


def normalised(rng: np.random.Generator) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, rng=rng), nn.BatchNorm(3), nn.Flatten(), nn.Linear(18, 3, rng=rng)
    )


def grouped(groups: int, rng: np.random.Generator) -> nn.Module:
    model: Any = normalised(rng)
    model.layers[1] = nn.GhostBatchNorm(3, groups=groups)
    return model


def synchronized_batch_norm_is_the_whole_batchs() -> None:
    trains(partial(DataParallel, batch_norm="synchronized"), sizes=(7, 8), build=normalised)


def batch_norm_of_ranks_is_that_of_groups() -> None:
    trains(DataParallel, sizes=(10, 11), build=normalised, oracle=partial(grouped, 3), bound=1e-11)


def local_sgd_is_the_textbooks() -> None:
    def work(comm):
        equals_the_textbook(lambda c: LocalSGD(c, period=2), comm, [7, 2, 5], APART["momentum"], 2)

    run_ranks(3, work)


def diloco_is_the_textbooks() -> None:
    strategy = lambda c: DiLoCo(c, period=2, outer_rate=0.7, outer_momentum=0.9)  # noqa: E731
    run_ranks(3, lambda comm: diloco_laws.is_the_textbook(strategy, comm, [7, 2, 5, 4], 2, 0.7, 0.9))


def the_spring_conserves_the_sum() -> None:
    strategy = lambda c: ElasticAveraging(c, alpha=0.5, period=2)  # noqa: E731
    run_ranks(3, lambda comm: averaging_laws.conserves(strategy, comm))


def an_update_is_serial_on_its_contributors() -> None:
    sizes, make = [9, 10, 11, 1, 8, 7], backup_worker_laws.clipped
    world = VirtualCluster(5, Link(0.01, 1e5), slowness={3: 1.5, 4: 3.2})
    runs = world.run(backup_worker_laws.training(sizes, make, backup_workers, 2))
    backup_worker_laws.is_serial_on_its_contributors(runs, sizes, make, 2)


def micro_batches_are_the_whole_batch() -> None:
    trains(lambda comm: Serial(3), ranks=1, sizes=(7, 2))


def the_hooks_alone_train_like_serial() -> None:
    hook_laws.the_hooks_alone_train_like_serial(2, nets.small_images_of([5, 3]), nets.convolutional)


def traits_together_depart_where_one_does() -> None:
    for members in ([{"resumable"}, set()], [set(), {"may_lag"}], [{"equals_serial"}, {"outermost_only"}]):
        hook_laws.traits_together_depart_where_one_does(members)


# Bugs

SERIAL = "of its scale on rank"

BUGS = [
    Bug("the hooks alone count the ranks and not their samples", "Backend.work", "len(mine) / len(batch)",
        "1 / self.size", the_hooks_alone_train_like_serial, "Not equal"),
    Bug("a trait holds where one strategy has it", "Traits.of_all", "(all if serial[k] else any)", "any",
        traits_together_depart_where_one_does, "depart in"),
    Bug("a trait holds where all strategies have it", "Traits.of_all", "(all if serial[k] else any)", "all",
        traits_together_depart_where_one_does, "depart in"),
    Bug("a mean of means for uneven shards", "Strategy.loss_weight", "return len(mine) / len(batch)",
        "return bool(len(mine)) / getattr(self, 'size', 1)", replicated_trains_like_serial, SERIAL),
    Bug("the sum of means, as the weight is missing", "Strategy.loss_weight", "return len(mine) / len(batch)",
        "return 1.0", replicated_trains_like_serial, SERIAL),
    Bug("micro-batches of unlike sizes count the same", "Work.split",
        "weight = self.loss_weight * (len(batch) / len(self.batch))", "weight = self.loss_weight * (1 / n)",
        micro_batches_are_the_whole_batch, SERIAL),
    Bug("the gradient of the step before is summed over ranks once more", "PlacedState.accumulate",
        "for parameter in model.parameters():", "for parameter in ():", gradients_of_steps_add_up, SERIAL),
    Bug("the gradient of the step before is forgotten", "PlacedState.accumulate",
        "        parameter.grad = g\n", "", gradients_of_steps_add_up, SERIAL),
    Bug("owners forget the sum of the step before", "ShardedState.accumulate",
        "        flat_of[parameter].owned_gradient(parameter)[...] += g\n", "        pass\n",
        gradients_of_steps_add_up, SERIAL),
    Bug("a rank forgets what it had of the step before", "SharedMemoryState.accumulate",
        "            view += earlier[parameter]\n", "            pass\n", gradients_of_steps_add_up, SERIAL),
    Bug("ranks start from their own parameters", "SynchronousDataParallel.place",
        "    broadcast_model(self.comm, model)\n", "", replicated_trains_like_serial, SERIAL),
    Bug("the gradient stays this rank's", "DataParallel.finish", "sums = self.reduce()\n",
        "sums = self.reduce()\n    sums[0][: -len(summary)] = self.buckets[0].message[: -len(summary)]\n",
        replicated_trains_like_serial, SERIAL),
    Bug("what this loss did not reach keeps the last gradient", "Bucket.fill", "            view[...] = 0\n",
        "            pass\n", ranks_may_take_their_own_way_back, SERIAL),
    Bug("what some rank did not reach is no gradient", "StepSummary.unpack",
        "reached = [*map(bool, figures[start:end])]",
        "reached = [x == self.size for x in figures[start:end]]",
        ranks_may_take_their_own_way_back, SERIAL),
    Bug("a parameter never announced is summed as it was", "DataParallel.finish",
        "        bucket.fill(bucket.missing)\n", "        pass\n", ranks_may_take_their_own_way_back, SERIAL),
    Bug("a bucket leaves before its last gradient", "Bucketed.on_grad",
        "len(self.waiting) > 1 and not self.waiting[0].missing",
        "len(self.waiting) > 1 and len(self.waiting[0].missing) < 2", bucketed_trains_like_serial, SERIAL),
    Bug("buckets leave in the order in which a rank fills them", "Bucketed.on_grad",
        "    while len(self.waiting) > 1 and not self.waiting[0].missing:\n        "
        "self.send(self.waiting.popleft())\n",
        "    if not bucket.missing and bucket is not self.buckets[-1]:\n        "
        "self.waiting.remove(bucket)\n        self.send(bucket)\n", ranks_may_take_their_own_way_back,
        f"{SERIAL}|make both sides agree"),
    Bug("a bucket is refilled while it is complete", "DataParallel.finish",
        "        bucket.missing = set(bucket.views)\n", "        bucket.missing = set()\n",
        bucketed_trains_like_serial, "announced twice in one step"),
    Bug("buckets overlap on one machine, too", "cores_are_shared", "len(set(comm.nodes)) == 1",
        "comm.size == 1", buckets_go_by_machines, r"on machines \[0, 0\] a step calls"),
    Bug("buckets never overlap between processes", "cores_are_shared", " and len(set(comm.nodes)) == 1", "",
        buckets_go_by_machines, r"on machines \[0, 1\] a step calls"),
    Bug("each rank clips by the norm of its part", "ShardedState.global_square_norms",
        "return self.backend.sum(squares)", "return squares", sharded_clips_like_serial, SERIAL),
    Bug("weights are fetched before the update", "Sharded.update", "    optimizer.step(\n",
        "    for flat in self.flats:\n        flat.start_all_gather()\n    optimizer.step(\n",
        sharded_trains_like_serial, SERIAL),
    Bug("a flat parameter is reduced at its first gradient", "Sharded.on_grad", "lambda one: not one.missing",
        "lambda one: one in self.waiting and (not one.missing or self.stage == 3)",
        sharded_trains_like_serial, SERIAL),
    Bug("every rank takes the first part", "FlatParameter.__init__",
        "self.segments = self.layout.segments(comm.rank)", "self.segments = self.layout.segments(0)",
        sharded_trains_like_serial, SERIAL),
    Bug("batch-norm by this rank's variance", "merged",
        "(squares + counts * (means - mean) ** 2).sum(axis=0)", "squares.sum(axis=0)",
        synchronized_batch_norm_is_the_whole_batchs, SERIAL),
    Bug("batch-norm's gradient by this rank's sums", "batch_norm",
        "total, along = xp.sum(xp.stack(gather(xp.stack([total, along]))), axis=0)",
        "gather(xp.stack([total, along]))", synchronized_batch_norm_is_the_whole_batchs, SERIAL),
    Bug("a millionth of the sums of batch-norm's gradient is lost", "batch_norm",
        "total, along = xp.sum(xp.stack(gather(xp.stack([total, along]))), axis=0)",
        "total, along = xp.sum(xp.stack(gather(xp.stack([total, along]))), axis=0) * (1 - 1e-6)",
        synchronized_batch_norm_is_the_whole_batchs, SERIAL),
    Bug("running statistics are a mean of means", "StepSummary.pack",
        "weighted(figures, statistics, fraction)",
        "weighted(figures, statistics, 1 / self.size)",
        batch_norm_of_ranks_is_that_of_groups, SERIAL),
    Bug("models count alike, whatever they saw", "ParallelSGD.average", "float(self.samples))", "1.0)",
        local_sgd_is_the_textbooks, "Not equal to tolerance"),
    Bug("models that meet keep their momentum", "LocalSGD.update",
        "if self.average_momentum and self.optimizer", "if False and self.optimizer",
        local_sgd_is_the_textbooks, "Not equal to tolerance"),
    Bug("the outer velocity starts again", "DiLoCo.exchange",
        "self.velocity = self.outer_momentum * self.velocity + change", "self.velocity = change",
        diloco_is_the_textbooks, "Not equal to tolerance"),
    Bug("the centre is pulled by one rank only", "ElasticAveraging.exchange",
        "self.center += self.allreduce(self.comm, pull)",
        "self.center += self.allreduce(self.comm, pull) / self.size", the_spring_conserves_the_sum,
        "Arrays are not equal"),
    Bug("a late gradient is taken for a fresh one", "BackupWorkers.collect",
        "if version != self.version:", "if False:", an_update_is_serial_on_its_contributors,
        "Not equal to tolerance"),
    Bug("the mean is over all workers, not over the first", "BackupWorkers.collect",
        "    mean /= self.figures(mean)[1]\n", "", an_update_is_serial_on_its_contributors,
        "Not equal to tolerance"),
]  # fmt: skip
