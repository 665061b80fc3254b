"""Bugs of layers on ranks, the grid, and strategies stacked on its axes."""

from functools import partial

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel.bucketed import Bucketed
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.pipeline.layer_wise import LayerWise
from minigrad import ops
from tests.backends import stack_laws
from tests.backends.pipeline import layer_wise_nets, pipeline_laws
from tests.bugs.bug import Bug
from tests.nets import tied

# Laws


def layers_train_like_serial() -> None:
    batches = layer_wise_nets.batches_of(4, sizes=(9, 8))
    strategy = partial(LayerWise, bounds=(0, 2, 5, 8))

    def work(comm, optimizer):
        how = {"optimizer": layer_wise_nets.OPTIMIZERS[optimizer], "bound": 1e-11}
        trains_like_serial(strategy, comm, layer_wise_nets.build, ops.cross_entropy, batches, **how)

    for optimizer in ("momentum", "clipped"):
        run_ranks(3, partial(work, optimizer=optimizer))


def groups_are_the_lines_of_the_grid() -> None:
    """Ranks are numbered along the model axis first, then along the pipe, then along the data axis."""
    expected = list(np.ndindex(2, 3, 2))

    def work(comm):
        grid = Grid(comm, data=2, pipe=3, model=2)
        actual = [(group.size, group.rank) for group in (grid.data, grid.pipe, grid.model)]
        place = expected[comm.rank]
        assert actual == list(zip((2, 3, 2), place, strict=True)), (
            f"rank {comm.rank} is {actual}, not at {place}"
        )

    run_ranks(12, work)


def data_by_layers_by_neurons_train_like_serial() -> None:
    for optimizer in ("momentum", "clipped"):
        stack_laws.law((2, 2, 2), {"1": "column", "3": "row"}, optimizer=optimizer)


def what_the_inner_must_finish_waits_for_it() -> None:
    bucketed = partial(Bucketed, bucket_bytes=100, first_bucket_bytes=50)
    pipeline_laws.stack_trains((2, 2, 1), "1f1b", 4, data=bucketed, build=tied)


def joint_norms_are_those_of_the_whole_model() -> None:
    pipeline_laws.joint_norms_over_three_axes("clipped")


# Bugs

SERIAL = "of its scale on rank"

BUGS = [
    Bug("ranks drop by their own seeds", "broadcast_model", "            layer.seed = seed\n",
        "            pass\n", layers_train_like_serial, SERIAL),
    Bug("only the last rank knows the loss", "LayerWise.finish",
        "return float(broadcast(self.comm, term if total is None else total, last)[0])", "return loss",
        layers_train_like_serial, rf"loss \(\) differs .* {SERIAL}"),
    Bug("each rank clips by the norm of its layers", "LayersOfRanks.global_square_norms",
        "sums = allgather(self.backend.comm, squares)", "sums = []", layers_train_like_serial, SERIAL),
    Bug("ranks are numbered along the data axis first", "Grid.__init__", "(comm.rank, self.shape)",
        '(comm.rank, self.shape, "F")', groups_are_the_lines_of_the_grid, "not at"),
    Bug("lines that cross the same plane are one group", "Grid.along",
        "int(np.ravel_multi_index(line, self.shape))", "sum(line)",
        groups_are_the_lines_of_the_grid, "not at"),
    Bug("only the innermost share is the weight", "Stack.loss_weight", "weight *= member.loss_weight",
        "weight = member.loss_weight", data_by_layers_by_neurons_train_like_serial, SERIAL),
    Bug("norms are those of one rank of the stack", "PlacedState.total_squares",
        "        totals = state.global_square_norms(model, totals)\n", "        pass\n",
        data_by_layers_by_neurons_train_like_serial, SERIAL),
    Bug("what all ranks of an axis hold counts as often in a norm", "SplitLayers.global_square_norms",
        "else float(rank == 0)", "else 1.0", joint_norms_are_those_of_the_whole_model, SERIAL),
    Bug("a norm has the part of one rank", "SplitLayers.global_square_norms", "shards[p].parts / size if",
        "float(rank == 0) if", joint_norms_are_those_of_the_whole_model, SERIAL),
    Bug("a tied weight counts once for each stage", "PipelineState.global_square_norms",
        "if name not in counted}", "if rank != self.backend.rank}", joint_norms_are_those_of_the_whole_model,
        SERIAL),
    Bug("a gradient is passed on before it is whole", "Stack.announce",
        "if not self.members[i].on_grad(parameter):", "if not self.members[i].on_grad(parameter) and i == 0:",
        what_the_inner_must_finish_waits_for_it, SERIAL),
]  # fmt: skip
