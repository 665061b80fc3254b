"""Laws of backends/data_parallel/, backends/model_parallel/, backends/pipeline/ and minigrad/work.py:
gradients of steps without ``zero_grad`` between add up as serially, or the strategy refuses the step.
"""

from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from backends.comm import run_ranks
from backends.data_parallel import BackupWorkers, DataParallel, Elastic, ProportionalDataParallel
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.compression import Compressed
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.expert_parallel import ExpertParallel
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.pipeline import Pipeline
from backends.registry import strategy_names
from backends.stack import Stack
from minigrad import Tape, ops, optim
from minigrad.serial import Serial
from tests import nets
from tests.backends import stack_laws

OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: optim.Adam(ps, 0.01),
    "clipped": lambda ps: optim.SGD(ps, 0.5, momentum=0.9).clipped(0.05),
    # Those of the others go on adding up; nobody may sum them again, or apply them.
    "some parameters": lambda ps: optim.SGD(ps[::2], 0.1),
}

# Strategies that share samples, and below those that share layers or stand in a stack.
DATA = {
    "serial": lambda comm: Serial(2),
    "replicated": DataParallel,
    "micro-batches": partial(DataParallel, micro_batches=2),
    "bucketed": partial(Bucketed, bucket_bytes=100, first_bucket_bytes=40, progress="blocking"),
    "background": partial(Bucketed, bucket_bytes=100, first_bucket_bytes=40),
    "sharded 1": partial(Sharded, stage=1, bucket_bytes=150),
    "sharded 2": partial(Sharded, stage=2, bucket_bytes=150),
    "sharded 3": partial(Sharded, stage=3),
    "sharded 3, overlap": partial(Sharded, stage=3, overlap=True, micro_batches=2),
    "one-node": SharedMemoryDataParallel,
    "proportional": ProportionalDataParallel,
    "elastic": Elastic,
    "backup-workers": BackupWorkers,
    "compressed": partial(Compressed, compress="identity"),
    "parallel-sgd": ParallelSGD,
    "local-sgd": LocalSGD,
    "diloco": DiLoCo,
    "elastic-averaging": ElasticAveraging,
    "expert-parallel": ExpertParallel,
}
ALONE = ("serial", "parallel-sgd", "local-sgd", "diloco", "elastic-averaging")  # on one rank they are serial


def on_grid(*shape, **members):
    """A strategy made of ``members`` on the axes of a grid, and the ranks that it takes."""

    def strategy(comm):
        grid = Grid(comm, **dict(zip(("data", "pipe", "model"), shape, strict=True)))
        made = [make(getattr(grid, axis)) for axis, make in members.items()]
        return Stack(*made) if len(made) > 1 else made[0]

    return strategy, int(np.prod(shape))


PLAN = {"1": "column", "3": "row"}
ROWS = {"0": "rows", "1": "rows", "3": "rows", "4": "rows"}
SPLIT = {
    "layer-wise": (*on_grid(1, 3, 1, pipe=LayerWise), stack_laws.mlp, (2, 2, 2)),
    "model-parallel": (
        *on_grid(1, 1, 2, model=partial(ModelParallel, plan=PLAN)),
        stack_laws.mlp,
        (2, 2, 2),
    ),
    "rows": (*on_grid(1, 1, 2, model=partial(ModelParallel, plan=ROWS)), stack_laws.plain_images, (2, 4, 4)),
    "pipeline": (*on_grid(1, 3, 1, pipe=Pipeline), nets.mlp, (4,)),
    "pipeline, tied": (
        *on_grid(1, 3, 1, pipe=partial(Pipeline, schedule="zb-h1")),
        nets.tied,
        (4,),
    ),
    "pipeline, recomputed": (
        *on_grid(1, 2, 1, pipe=partial(Pipeline, schedule="gpipe", recompute=True)),
        nets.frozen(1),
        (4,),
    ),
    "pipedream on one rank": (*on_grid(1, 1, 1, pipe=AsynchronousPipeline), nets.mlp, (4,)),
    "data by rows": (
        *on_grid(2, 1, 2, data=DATA["bucketed"], model=partial(ModelParallel, plan=ROWS)),
        stack_laws.plain_images,
        (2, 4, 4),
    ),
    "one-node by rows": (
        *on_grid(2, 1, 2, data=SharedMemoryDataParallel, model=partial(ModelParallel, plan=ROWS)),
        stack_laws.plain_images,
        (2, 4, 4),
    ),
    "sharded by pipeline, tied": (
        *on_grid(2, 2, 1, data=partial(Sharded, stage=2), pipe=Pipeline),
        nets.tied,
        (4,),
    ),
    "averaging by pipeline, tied": (
        *on_grid(1, 3, 1, data=LocalSGD, pipe=Pipeline),
        nets.tied,
        (4,),
    ),
    "data by layers by model": (
        *on_grid(2, 2, 1, data=DataParallel, pipe=LayerWise, model=partial(ModelParallel, plan={})),
        stack_laws.mlp,
        (2, 2, 2),
    ),
}  # fmt: skip


def adds_up(strategy, ranks, build, batches, optimizer="momentum", **every):
    """The law: as serially, whenever gradients are forgotten and applied."""

    def work(comm):
        made = OPTIMIZERS[optimizer]
        trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, optimizer=made, **every)

    run_ranks(ranks, work)


def cases(optimizers):
    return {
        "sizes": st.lists(st.integers(1, 9), min_size=2, max_size=4),
        "optimizer": st.sampled_from(optimizers),
        "zero_every": st.integers(2, 4),
        "update_every": st.integers(1, 3),
        "left_out": st.integers(0, 3),
        "seed": st.integers(0, 9),
    }


@pytest.mark.parametrize("name", DATA)
@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 4), case=st.fixed_dictionaries(cases(sorted(OPTIMIZERS))))
def test_samples_are_shared(name, ranks, case):
    batches = nets.small_images_of(case.pop("sizes"))
    if name == "one-node" and case["optimizer"] == "clipped":
        case["update_every"] = case["zero_every"]  # a rank's own gradient is not clipped
    adds_up(DATA[name], 1 if name in ALONE else ranks, nets.Reusing, batches, **case)


@pytest.mark.parametrize("name", sorted(DATA.keys() - {*ALONE, "micro-batches", "sharded 3, overlap"}))
def test_a_parameter_that_only_some_steps_reach_keeps_its_gradient(name):
    for ranks in (1, 3):
        batches = nets.small_images_of([5, 4, 6, 3])
        adds_up(DATA[name], ranks, nets.Alternating, batches, zero_every=4, update_every=2)


@pytest.mark.parametrize("name", SPLIT)
@settings(max_examples=settings().max_examples // 2)
@given(case=st.fixed_dictionaries(cases(["momentum", "adam", "clipped"])))
def test_layers_are_shared(name, case):
    strategy, ranks, build, sample = SPLIT[name]
    batches = stack_laws.batches_of(sample, case.pop("sizes"))
    if name.startswith("pipedream"):
        case["update_every"] = 1
    if name.startswith("one-node") and case["optimizer"] == "clipped":
        case["update_every"] = case["zero_every"]
    adds_up(strategy, ranks, build, batches, **case)


@given(sizes=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_serial_leaves_the_sum_of_gradients(sizes):
    """What the others are compared with."""
    model, total = nets.Reusing(np.random.default_rng(0)).to(dtype=np.float64), {}
    batches = nets.small_images_of(sizes)
    for batch in batches:
        with Tape() as tape:
            loss = ops.cross_entropy(model(batch.x), batch.y)
        tape.backward(loss)
        for name, p in model.named_parameters().items():
            if p.grad is not None:
                total[name], p.grad = total.get(name, 0) + p.grad, None
    for batch in batches:
        Serial().step(model, batch, ops.cross_entropy)
    gradients = {n: p.grad for n, p in model.named_parameters().items() if p.grad is not None}
    assert gradients.keys() == total.keys()
    for name, g in gradients.items():
        np.testing.assert_allclose(g, total[name], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["replicated", "bucketed", "sharded 2", "one-node", "compressed"])
def test_a_gradient_that_was_there_before_the_first_step_counts_once(name):
    (batch,) = nets.small_images_of([7])

    def work(comm):
        results = []
        for backend in (Serial(), DATA[name](comm)):
            model = backend.place(nets.convolutional(np.random.default_rng(0)).to(dtype=np.float64))
            for p in model.parameters():
                p.grad = np.full_like(p.data, 1.0 if name != "one-node" else 1.0 / comm.size)
            results.append(backend.step(model, batch, ops.cross_entropy))
            results.append(backend.state.full_gradients(model))
        return results

    for _, expected, _, gradients in run_ranks(3, work):
        scale = 1 if name != "one-node" else 3  # a rank's own part of the gradient is a third of it
        for n, g in gradients.items():
            np.testing.assert_allclose(g - 1, expected[n] - 1 / scale, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", sorted(DATA.keys() - {*ALONE, "backup-workers"}))
def test_a_parameter_that_thaws_after_place_is_refused(name):
    batch = nets.small_images_of([5])[0]

    def work(comm):
        backend = DATA[name](comm)
        model = nets.Reusing(np.random.default_rng(0)).to(dtype=np.float64)
        model = backend.place(model)
        backend.step(model, batch, ops.cross_entropy)
        backend.finalize(model)
        model.first.weight.requires_grad = True
        with pytest.raises(
            ValueError, match="first.weight was frozen when the model was placed.*backend.place"
        ):
            backend.step(model, batch, ops.cross_entropy)

    run_ranks(2, work)


def test_servers_refuse_to_add_up():
    def work(comm):
        backend = ParameterServer(comm, staleness=0)
        model = backend.place(nets.convolutional(np.random.default_rng(0)))
        for batch in nets.small_images_of([4, 4]):
            backend.step(model, batch, ops.cross_entropy)

    with pytest.raises(ValueError, match=r"0.weight still has the gradient.*zero_grad\(\).*micro_batches="):
        run_ranks(3, work)


def test_a_pipeline_without_a_flush_refuses_a_step_without_an_update():
    def work(comm):
        backend = AsynchronousPipeline(comm)
        model = backend.place(nets.mlp(np.random.default_rng(0)))
        for batch in nets.batches_of([4, 4, 4, 4]):
            backend.step(model, batch, ops.cross_entropy)

    with pytest.raises(RuntimeError, match=r"not applied.*backend.update\(.*micro_batches="):
        run_ranks(2, work)


def test_every_strategy_is_here():
    names = {*DATA, *SPLIT, "server", "sharded", "pipedream", "naive"}  # naive: in test_naive
    assert set(strategy_names()) <= names
