"""Bugs of checkpoints: what is saved of a training, and which rank gets what of it."""

import json
import warnings
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD
from backends.data_parallel.compression.compressed import Compressed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.grid import Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.pipeline import Pipeline
from backends.registry import OneRank
from backends.stack import Stack
from minigrad import nn, optim
from minigrad.data import Batch
from minigrad.lr_schedules import ReduceLROnPlateau
from minigrad.ops import cross_entropy
from minigrad.train import History, fit
from tests.backends import mask_laws
from tests.backends.checkpoint.resume_laws import (
    Layout,
    goes_on_in_another_layout,
    goes_on_with_the_same_bits,
    scaled,
)
from tests.bugs.bug import Bug
from tests.nets import batches_of, dropping, frozen, mlp, tied

SIZES = (7, 4, 6)


class Noise(nn.Module):
    """Adds normal numbers of a generator of its own."""

    def __init__(self, rng):
        self.rng = rng

    def forward(self, x):
        return x + self.rng.normal(size=x.shape)


def noisy(rng):
    return nn.Sequential(Noise(np.random.default_rng(1)), *dropping(rng).layers, Noise(rng))


def adam(parameters):
    return optim.Adam(parameters, 0.01, eps=1e-3)


def two_stages(comm):
    return Pipeline(comm, schedule="1f1b", micro_batches=2)


def by_layers_and_neurons(comm):
    grid = Grid(comm, data=1, pipe=2, model=2)
    stages = Pipeline(grid.pipe, schedule="gpipe", micro_batches=2)
    return Stack(stages, ModelParallel(grid.model, {"0": "column", "2": "row", "5": "row", "7": "column"}))


def by_neurons(comm):
    return ModelParallel(comm, {"0": "column", "2": "row", "5": "column", "7": "gathered"})


# Laws


def replicas_go_on() -> None:
    goes_on_with_the_same_bits(Layout(2, DataParallel), noisy, adam, batches_of(SIZES), 2)


def shards_go_on() -> None:
    for stage, momentum in ((2, optim.HeavyBall), (3, optim.Adam)):
        layout = Layout(3, partial(Sharded, stage=stage, bucket_bytes=200))
        goes_on_with_the_same_bits(layout, mlp, partial(momentum, lr=0.05), batches_of(SIZES), 1)


def one_node_goes_on() -> None:
    goes_on_with_the_same_bits(Layout(3, SharedMemoryDataParallel), mlp, adam, batches_of(SIZES), 2)


def stages_go_on() -> None:
    for build in (tied, frozen(7)):  # a stage that trains nothing has no state
        goes_on_with_the_same_bits(Layout(2, two_stages), build, adam, batches_of(SIZES), 1)


def neurons_go_on() -> None:
    goes_on_with_the_same_bits(Layout(3, by_neurons), mlp, adam, batches_of(SIZES), 1)


def shards_go_on_as_stages_of_neurons() -> None:
    before, after = Layout(3, partial(Sharded, stage=1)), Layout(4, by_layers_and_neurons)
    goes_on_in_another_layout(before, after, mlp, adam, batches_of(SIZES), 2)
    goes_on_in_another_layout(after, before, mlp, adam, batches_of(SIZES), 2)


def masks_go_on_in_another_layout() -> None:
    stages = Layout(2, two_stages)
    goes_on_in_another_layout(stages, Layout(3, DataParallel), mask_laws.dense, adam, batches_of(SIZES), 2)


def epochs_go_on() -> None:
    """Stop after each step, and at each end of an epoch; go on from a copy of the history of that moment."""
    rng = np.random.default_rng(0)
    data = Batch(rng.normal(size=(10, 4)), rng.integers(0, 3, 10))

    class Stop(Exception):
        pass

    def trained(stop: int | None = None, *, at_end: bool = False) -> tuple[History, list[int], float]:
        """The history, the epochs whose end was seen, and the plateau's rate, at the end of two ``fit``."""
        model = mlp(np.random.default_rng(0)).to(dtype=np.float64)
        optimizer, epochs = optim.SGD(model.parameters(), 0.1, momentum=0.9), []
        plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        saved: list[dict[str, Any]] = []

        def save(history: History, now: bool) -> None:
            if now and not saved:
                saved.append(json.loads(json.dumps(vars(history))))
                raise Stop

        def on_epoch(epoch: int, history: History) -> None:
            epochs.append(epoch)
            plateau.step(1.0)
            save(history, at_end and len(history.losses) == stop)

        settings: dict[str, Any] = {"epochs": 3, "batch_size": 4, "on_epoch": on_epoch}
        history = History()
        with suppress(Stop):
            settings["on_step"] = lambda step, loss: save(history, not at_end and step + 1 == stop)
            fit(model, optimizer, cross_entropy, data, start=history, **settings)
        if saved:
            history = History(**saved[0])
            fit(model, optimizer, cross_entropy, data, start=history, **settings)
        return history, epochs, optimizer.lr

    whole, epochs, rate = trained()
    assert epochs == [0, 1, 2]
    for stop, at_end in [*((step, False) for step in range(1, 10)), (3, True), (6, True), (9, True)]:
        history, ends, lr = trained(stop, at_end=at_end)
        where = f"stopped after {stop} steps{', at the end of an epoch' * at_end}"
        assert ends == [0, 1, 2] and lr == rate, f"{where}: epochs {ends}, rate {lr}"
        assert history.losses == whole.losses, f"{where}: {history.losses}"
        assert history.samples == whole.samples == 30, f"{where}: {history.samples} samples"


def parameters_without_axes_go_on() -> None:
    for layout in (Layout(1, OneRank), Layout(3, partial(Sharded, stage=2))):
        goes_on_with_the_same_bits(layout, scaled, adam, batches_of(SIZES), 2)


def own_models_go_on() -> None:
    for strategy in (LocalSGD, DiLoCo, ElasticAveraging):
        goes_on_with_the_same_bits(
            Layout(2, partial(strategy, period=2)), mlp, adam, batches_of([5, 2, 7, 3, 4, 1]), 3
        )


def residuals_go_on() -> None:
    for name in ("dgc", "power-sgd", "random-k"):
        layout = Layout(2, partial(Compressed, compress=name))
        sgd = partial(optim.SGD, lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            goes_on_with_the_same_bits(layout, mlp, sgd, batches_of(SIZES), 2)


# Bugs

DIFFERS = r"rank \d: .*(differs|losses|is not)"


BUGS = [
    Bug("models of ranks are taken for one", "ParallelSGD.traits", "models_differ=True, ", "",
        own_models_go_on, DIFFERS),
    Bug("the period begins anew", "ParallelSGD.own_state", 'own_state = ("updates", "samples")',
        'own_state = ("samples",)', own_models_go_on, DIFFERS),
    Bug("momenta are in the order of the file", "LocalSGD.average", "for name in sorted(s)]",
        "for name in (sorted(s) if self.rank else sorted(s)[::-1])]", own_models_go_on, "."),
    Bug("the outer velocity is forgotten", "DiLoCo.own_state", '"common", "velocity")', '"common")',
        own_models_go_on, DIFFERS),
    Bug("the center is forgotten", "ElasticAveraging.own_state", '(*ParallelSGD.own_state, "center")',
        "()", own_models_go_on, DIFFERS),
    Bug("residuals are forgotten", "Compressed.state_class", '("error",)', "()", residuals_go_on, DIFFERS),
    Bug("the compressor begins anew", "CompressedState.set_own_values",
        "    self.backend.compressor.set_own_values(", "    dict(", residuals_go_on, DIFFERS),
    Bug("all ranks go on with rank 0's", "load_own_state",
        'own, prefix = facts["of each rank"][rank], f"rank-{rank}/"',
        'own, prefix = facts["of each rank"][0], "rank-0/"', residuals_go_on, DIFFERS),
    Bug("statistics are not saved", "serial_state", " | state.full_state(model)", "", replicas_go_on, "."),
    Bug("the optimizer begins anew", "load_optimizer",
        "    state.load_optimizer_state(model, optimizer, values)\n", "", replicas_go_on, DIFFERS),
    Bug("the count of steps begins anew", "load_optimizer", "of_key in numbers.items()", "of_key in ()",
        replicas_go_on, "KeyError: 't'"),
    Bug("masks begin anew", "load_state", '        backend.count_steps_from(facts["step_number"])\n', "",
        masks_go_on_in_another_layout, DIFFERS),
    Bug("masks go on in the same layout only", "load_state",
        '        backend.count_steps_from(facts["step_number"])\n',
        '        backend.count_steps_from(facts["step_number"] if same_layout else 0)\n',
        masks_go_on_in_another_layout, DIFFERS),
    Bug("the plateau begins anew", "load_state", '            schedule.set_own_values(facts["schedule"])\n',
        "            pass\n", replicas_go_on, DIFFERS),
    Bug("the plateau goes on at the first rate", "ReduceLROnPlateau.set_own_values",
        '    self.optimizer.lr = values["lr"]\n', "", replicas_go_on, DIFFERS),
    Bug("generators of layers begin anew", "load_own_state",
        '    set_generator_states(model, own["generators"])\n', "", replicas_go_on, DIFFERS),
    Bug("only the first layers' generators are saved", "own_state.generators_of",
        'for name, module in [("model", model), *model.named_modules()]',
        'for name, module in [("model", model), *model.named_modules()][:4]', replicas_go_on, DIFFERS),
    Bug("keys are those of the first rank", "gather_state", "in allgather_json(comm, keys_of(optimizer)) for",
        "in allgather_json(comm, keys_of(optimizer))[:1] for", stages_go_on, DIFFERS),
    Bug("a rank saves only its part of the state", "PlacedState.full_optimizer_state",
        "return self.unshard(model, self.states[0].optimizer_values(model, optimizer, key))",
        "return self.states[0].optimizer_values(model, optimizer, key)", neurons_go_on, "."),
    Bug("a rank takes the whole state for its part", "PlacedState.load_optimizer_state",
        "self.shard(model, values)", "values", neurons_go_on, "."),
    Bug("the state is that of the arrays in the file", "placed_state.state_of",
        'else xp.array(value, order="C")', "else xp.zeros_like(value)", stages_go_on, DIFFERS),
    Bug("parts are read in another order", "ShardedOptimizer.optimizer_values", "[within] = part",
        "[within] = part[::-1]", shards_go_on, "."),
    Bug("each rank has the first rank's elements", "ShardedOptimizer.optimizer_values",
        "enumerate(self.trained_by(optimizer, rank))", "enumerate(self.trained_by(optimizer, 0))",
        shards_go_on, "."),
    Bug("a part begins at the parameter's first element", "ShardedOptimizer.set_optimizer_values",
        "np.ravel(value)[within]", "np.ravel(value)[: within.stop - within.start]", one_node_goes_on,
        DIFFERS),
    Bug("rates of momentum are lost", "ShardedOptimizer.set_optimizer_values", "= value.item() if number",
        "= 0.0 if number", shards_go_on, DIFFERS),
    Bug("neurons get the other ranks' state", "SplitLayers.shard_values", ".local_part(values[name])",
        ".local_part(np.roll(values[name], 1, shard.axis))", neurons_go_on, DIFFERS),
    Bug("stages inside a stack are not cut", "PlacedState.shard",
        "        values = state.shard_values(model, values)\n", "        pass\n",
        shards_go_on_as_stages_of_neurons, "."),
    Bug("a number takes the place of an array without axes", "is_number",
        "value.ndim == 0 and (value.shape != like.shape or value.dtype not in (like.dtype, np.float32))",
        "value.ndim == 0",
        parameters_without_axes_go_on, "."),
    Bug("a shard's array without axes becomes a number", "ShardedOptimizer.set_optimizer_values",
        "is_number(value, parameter.data)", "np.ndim(value) == 0", parameters_without_axes_go_on, "."),
    Bug("the seeds of dropout begin anew", "load_seeds", "        layer.seed = seeds[name]\n",
        "        pass\n", masks_go_on_in_another_layout, DIFFERS),
    Bug("the seeds of dropout are those of the first rank", "load_state",
        "for own in ranks for name, seed in", "for own in ranks[:1] for name, seed in",
        masks_go_on_in_another_layout, "without dropout at layer"),
    Bug("an epoch begins anew", "fit", "len(history.losses) - epoch * per_epoch", "0", epochs_go_on,
        "stopped after"),
    Bug("the epochs are counted anew", "fit", "range(first, epochs)", "range(epochs)", epochs_go_on,
        r"epochs \[0"),
    Bug("an epoch ends twice", "History.epochs_ended", "max(self.epochs, (len", "max(0, (len", epochs_go_on,
        "at the end of an epoch"),
    Bug("an epoch has ended before its end", "History.epochs_ended", "(len(self.losses) - 1) // steps",
        "len(self.losses) // steps", epochs_go_on, "stopped after 3 steps: epochs"),
]  # fmt: skip
