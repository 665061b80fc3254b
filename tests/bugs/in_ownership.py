"""Bugs of what a backend owns, and of what it demands of an optimizer's list, a loss and a batch."""

from __future__ import annotations

from functools import partial

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import BackupWorkers, DataParallel
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from minigrad import nn, ops
from minigrad.data import Batch
from tests import nets
from tests.backends import mean_check_laws, ownership_laws, stack_laws, weighted_mean_laws
from tests.backends.data_parallel.zero import sharded_laws
from tests.backends.placed_often import plain
from tests.bugs.bug import Bug

# Laws


def norms_are_of_parameters_in_any_order() -> None:
    for seed in range(2):
        stack_laws.law((1, 1, 2), stack_laws.PLANS[0], optimizer="lars", seed=seed)
        stack_laws.law((1, 2, 1), {}, optimizer="clipped", seed=seed)


def norms_are_of_parameters_in_any_subset() -> None:
    for seed in range(2):
        for shape in ((1, 1, 2), (2, 1, 2), (1, 2, 1)):
            stack_laws.law(shape, stack_laws.PLANS[0], optimizer="clipped", seed=seed, left_out=2)


def a_server_updates_what_its_optimizer_has() -> None:
    for stop in (1, 3, 4):
        ownership_laws.a_server_updates_what_its_optimizer_has(slice(None, stop))


def penalties_on_parts_are_refused() -> None:
    for strategy in (Pipeline, ModelParallel):
        mean_check_laws.a_penalty_is_refused(strategy)


def a_backend_trains_one_model() -> None:
    for make in (DataParallel, Pipeline):
        run_ranks(2, lambda comm, make=make: ownership_laws.a_backend_trains_one_model(make, comm, plain))


def a_backend_placed_again_trains_the_new_model() -> None:
    """Two backends and two models, of which one backend has trained another model before."""

    def make(comm):
        backend = DataParallel(comm)
        model = backend.place(plain(7))
        backend.step(model, ownership_laws.batch_of(9), ops.cross_entropy)
        return backend

    run_ranks(2, lambda comm: ownership_laws.two_models_train_in_turns(make, comm, plain))


def the_optimizer_does_not_step_alone() -> None:
    for make in (DataParallel, partial(Sharded, stage=2)):
        run_ranks(
            2, lambda comm, make=make: ownership_laws.the_optimizer_does_not_step_alone(make, comm, plain)
        )


def a_saved_model_is_whole() -> None:
    for make in (partial(Sharded, stage=3), Pipeline, partial(ModelParallel, plan={"1": "column"})):
        run_ranks(2, lambda comm, make=make: ownership_laws.a_saved_model_is_whole(make, comm, plain))


def other_batches_are_named() -> None:
    for make in (DataParallel, ModelParallel):
        for n in (4, 6):
            law = partial(ownership_laws.other_batches_are_named, make, build=plain, n=n)
            run_ranks(2, law)


def servers_compare_batches() -> None:
    text = ownership_laws.other_batches_are_seen_where_gradients_meet(ParameterServer, 3, odd=1, build=plain)
    assert "was given another batch" in text, text


def collectors_compare_batches() -> None:
    text = ownership_laws.other_batches_are_seen_where_gradients_meet(BackupWorkers, 3, odd=1, build=plain)
    assert "was given another batch" in text, text


def averaged_models_compare_batches() -> None:
    run_ranks(2, partial(ownership_laws.other_batches_are_named, LocalSGD, build=plain))


def local_batches_are_trained_whole() -> None:
    make = partial(LocalSGD, period=9, local_batches=True)
    run_ranks(2, partial(ownership_laws.local_batches_are_trained_whole, make, build=plain))


def other_samples_are_named() -> None:
    """With the same labels."""

    def work(comm):
        backend = DataParallel(comm)
        model = backend.place(plain(5))
        batch = ownership_laws.batch_of(0)
        backend.step(model, batch, ops.cross_entropy)
        other = Batch(batch.x + comm.rank, batch.y)
        ownership_laws.refusal_of(lambda: backend.step(model, other, ops.cross_entropy))

    run_ranks(2, work)


def a_loss_that_is_no_mean_is_refused() -> None:
    for loss in (mean_check_laws.masked, lambda out, y: (out * out).sum()):
        mean_check_laws.no_mean_is_refused(loss)


def a_checked_loss_trains_as_an_unchecked_one() -> None:
    for dtype in (np.float32, np.float64):
        mean_check_laws.a_mean_changes_no_bit(lambda out, y: (out * out).mean(), [7, 8], dtype=dtype)


def where_no_label_counts_nothing_is_learned() -> None:
    weighted_mean_laws.nothing_counts(DataParallel, 2, nn.CrossEntropyLoss(ignore_index=0))


def layers_in_another_order_are_named() -> None:
    sharded_laws.layers_in_another_order_are_named(ranks=2, overlap=False, other=True)


def gradients_that_some_steps_reach_add_up() -> None:
    sharded = partial(Sharded, stage=2)
    batches = nets.small_images_of([5, 4, 6, 3])

    def work(comm):
        how = {"optimizer": sharded_laws.OPTIMIZERS["momentum"], "zero_every": 4, "update_every": 2}
        trains_like_serial(sharded, comm, nets.Alternating, ops.cross_entropy, batches, **how)

    run_ranks(2, work)


# Bugs

SERIAL = "of its scale on rank"

BUGS = [
    Bug("norms are read in the optimizer's order", "PlacedState.total_squares",
        "    totals[rows] = squares[numbers]\n", "    totals[sorted(rows)] = squares[numbers]\n",
        norms_are_of_parameters_in_any_order, SERIAL),
    Bug("norms come back in the model's order", "PlacedState.total_squares",
        "    squares[numbers] = totals[rows]\n", "    squares[numbers] = totals[sorted(rows)]\n",
        norms_are_of_parameters_in_any_order, SERIAL),
    Bug("norms of a subset are those of the first parameters", "PlacedState.total_squares",
        "    totals[rows] = squares[numbers]\n", "    totals[: len(rows)] = squares[numbers]\n",
        norms_are_of_parameters_in_any_subset, SERIAL),
    Bug("norms of other ranks' parameters are left out", "PlacedState.total_squares",
        "np.concatenate([squares, np.delete(totals, rows, axis=0)])", "squares",
        norms_are_of_parameters_in_any_subset, SERIAL),
    Bug("a server numbers parameters as they lie", "ParameterServer.numbered_by",
        "numbers.get(self.layout.parameters[s.n], -1)", "s.n", a_server_updates_what_its_optimizer_has,
        "off on rank|IndexError"),
    Bug("a backend takes any model", "Strategy.check_model",
        "if self.model is model or type(self).place is Backend.place:", "if self.model is not None:",
        a_backend_trains_one_model, "it was not refused"),
    Bug("a backend may train a model that was never placed", "Strategy.check_model",
        "    if self.model is None:\n        raise RuntimeError",
        "    if self.model is None:\n        return\n        raise RuntimeError", a_backend_trains_one_model,
        "."),
    Bug("a backend placed again sums what the old model had", "DataParallel.place",
        "    self.buckets = []\n    model = super().place(model)\n", "    model = super().place(model)\n",
        a_backend_placed_again_trains_the_new_model, "."),
    Bug("an optimizer steps by itself", "Strategy.hold", "parameter.updated_by = type(self).__name__",
        "parameter.updated_by = None", the_optimizer_does_not_step_alone, "it was not refused"),
    Bug("a closed backend still updates", "Strategy.release",
        "        parameter.updated_by = None\n    self.model = None\n",
        "        pass\n    self.model = None\n", the_optimizer_does_not_step_alone,
        "updates these parameters"),
    Bug("sharded weights are saved as they are", "GatherOnUse.is_whole", "return not self.flats",
        "return True", a_saved_model_is_whole, "not finite"),
    Bug("a rank saves its layers as the model", "Placeholder.is_whole", "    return False\n",
        "    return True\n", a_saved_model_is_whole, "saves"),
    Bug("a rank saves its neurons as the layer", "ShardedLayer.is_whole",
        "all(shard.parts == 1 for shard in self.shards.values())", "True", a_saved_model_is_whole,
        "has shape"),
    Bug("batches are not compared", "Strategy.step", "if self.steps_of_model == 2:",
        "if self.steps_of_model < 0:", other_batches_are_named, "it was not refused"),
    Bug("samples pass for the same where labels are", "checksum_of", "(batch.x, batch.y, *", "(batch.y, *",
        other_samples_are_named, "it was not refused"),
    Bug("checksums do not travel", "StepSummary.pack", "self.n_backwards + BACKWARDS * (self.batch_checksum",
        "self.n_backwards + BACKWARDS * (0", other_batches_are_named, "it was not refused"),
    Bug("a server takes gradients of any batch", "Server.take", "if push.batch != batch:", "if False:",
        servers_compare_batches, "it was not refused"),
    Bug("a worker's checksum stays behind", "ParameterServer.push", "self.step_samples, self.batch), reached",
        "self.step_samples, 0), reached", servers_compare_batches, "it was not refused"),
    Bug("a collector takes gradients of any batch", "BackupWorkers.collect",
        "if batch != expected:", "if False:", collectors_compare_batches, "it was not refused"),
    Bug("averaged models may have any batches", "ParallelSGD.check_batch", "if not self.local_batches:",
        "if self.local_batches:", averaged_models_compare_batches, "it was not refused"),
    Bug("a rank trains on a share of its own samples", "ParallelSGD.shard",
        "return batch if self.local_batches else batch[", "return batch[", local_batches_are_trained_whole,
        "not that of one machine"),
    Bug("any loss is a mean", "MeanCheck.loss_of_parts", "must_check = several and", "must_check = False and",
        a_loss_that_is_no_mean_is_refused, "was trained on"),
    Bug("parts without labels that count pass for a mean", "MeanCheck.check", "if not abs(whole - mean) <= ",
        "if abs(whole - mean) > 1e9 * ", a_loss_that_is_no_mean_is_refused, "was trained on"),
    Bug("a mean is checked in its own precision", "MeanCheck.checked", "out.data.astype(np.float64)",
        "out.data.astype(np.float16)", a_checked_loss_trains_as_an_unchecked_one, "no mean over samples"),
    Bug("a rank adds the penalty on its part of the model", "loss_of_output",
        "[x for x in inputs if isinstance(x, Parameter)]", "[]", penalties_on_parts_are_refused,
        "for that of the model"),
    Bug("where no label counts all is divided by 0", "weighted_mean.divided",
        "total / divisor if divisor else total * 0.0 + np.nan", "total * (1 / np.float64(divisor))",
        where_no_label_counts_nothing_is_learned, "the gradient of"),
    Bug("weights travel without their number", "FlatParameter.gather_parts", "(1,) * (self.number % NUMBERS)",
        "()", layers_in_another_order_are_named, "was not named"),
    Bug("a gradient of earlier steps is forgotten where this one does not reach", "ShardedState.accumulate",
        "    self.backend.mark(earlier)\n", "", gradients_that_some_steps_reach_add_up, SERIAL),
]  # fmt: skip
