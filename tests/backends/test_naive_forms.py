"""Laws of backends/pipeline/naive.py, backends/data_parallel/zero/naive.py,
backends/data_parallel/parameter_server/naive.py,
backends/data_parallel/compression/naive.py, backends/model_parallel/spatial/naive.py and
backends/checkpoint/naive.py: forms as on the slides, each by its law.

Laws of pipeline/naive.py, zero/naive.py, parameter_server/naive.py, compression/naive.py, spatial/naive.py
and checkpoint/naive.py in backends/.
"""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrad_course.crashes.recorded_disk import RecordedDisk

from backends.checkpoint import naive as naive_checkpoint
from backends.comm import run_ranks
from backends.data_parallel.compression import naive as naive_compression
from backends.data_parallel.parameter_server import naive as naive_server
from backends.data_parallel.zero import naive as naive_zero
from backends.laws import trains_like_serial
from backends.model_parallel.spatial import naive as naive_space
from backends.pipeline import naive as naive_pipeline
from minigrad import nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.tape import Tape
from minigrad.tensor import Parameter, Tensor
from tests.bugs.mutant import mutant

ADAM = partial(optim.Adam, lr=0.01)
MOMENTUM = partial(optim.SGD, lr=0.1, momentum=0.9)


def batches_of(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [Batch(rng.normal(size=(n, 6)), rng.integers(0, 3, n)) for n in sizes]


def deep(rng):
    """Seven layers, so that each of three ranks has trained ones, with dropout."""
    return nn.Sequential(
        nn.Linear(6, 5, rng=rng), nn.Tanh(), nn.Linear(5, 5, rng=rng), nn.Dropout(0.3, rng=rng),
        nn.Linear(5, 4, rng=rng), nn.Tanh(), nn.Linear(4, 3, rng=rng),
    )  # fmt: skip


def trains(strategy, ranks, sizes, optimizer: Any = MOMENTUM):
    batches = batches_of(sizes)
    run_ranks(
        ranks,
        lambda comm: trains_like_serial(
            strategy, comm, deep, ops.cross_entropy, batches, optimizer=optimizer
        ),
    )


SIZES = st.lists(st.integers(1, 13), min_size=1, max_size=3)


@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 3), sizes=SIZES, micro=st.integers(1, 5), norm=st.booleans())
def test_the_pipeline_trains_like_serial(ranks, sizes, micro, norm):
    method = (lambda parameters: MOMENTUM(parameters).clipped(0.1)) if norm else MOMENTUM
    trains(partial(naive_pipeline.NaivePipeline, micro_batches=micro), ranks, sizes, method)


@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 4), sizes=SIZES, optimizer=st.sampled_from([MOMENTUM, ADAM]), norm=st.booleans())
def test_zero_trains_like_serial(ranks, sizes, optimizer, norm):
    method = (lambda parameters: optimizer(parameters).clipped(0.1)) if norm else optimizer
    trains(naive_zero.NaiveSharded, ranks, sizes, method)


def test_each_rank_keeps_its_part_of_the_state():
    def work(comm):
        backend = naive_zero.NaiveSharded(comm)
        model = backend.place(deep(np.random.default_rng(0)))
        optimizer = MOMENTUM(model.parameters())
        backend.step(model, batches_of([7])[0], ops.cross_entropy)
        backend.update(model, optimizer)
        return [sum(x.size for x in state.values() if np.ndim(x)) for state in optimizer.state]

    of_ranks = run_ranks(3, work)
    sizes = [p.size for p in deep(np.random.default_rng(0)).parameters()]
    assert [sum(of_parameter) for of_parameter in zip(*of_ranks, strict=True)] == sizes


# A server: with one worker it is serial; of a loss whose gradient does not depend on the parameters any order
# of pushes has the same sum.


def slope(out, y):
    return (out * Tensor(np.asarray(y)[:, None] - 1.0)).sum() / len(y)


def served(module, workers, sizes, loss, seed=0):
    """Assert that the server's parameters at the end, on all ranks, are those of a serial training."""
    batches = batches_of(sizes, seed)

    def train(backend):
        model = backend.place(
            nn.Sequential(nn.Linear(6, 3, rng=np.random.default_rng(seed))).to(dtype="float64")
        )
        optimizer = optim.SGD(model.parameters(), 0.1)
        for batch in batches:
            optimizer.zero_grad()
            backend.step(model, batch, loss)
            backend.update(model, optimizer)
        backend.finalize(model)
        return model.state_dict()

    # Each push is an update of its own, and all of them add up to the serial one.
    expected = train(Serial())
    for state in run_ranks(workers + 1, lambda comm: train(module.NaiveParameterServer(comm))):
        for name, values in expected.items():
            np.testing.assert_allclose(state[name], values, rtol=0, atol=1e-14, err_msg=name)


@settings(max_examples=settings().max_examples // 2)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_a_server_with_one_worker_trains_like_serial(sizes, seed):
    served(naive_server, 1, sizes, ops.cross_entropy, seed)


@settings(max_examples=settings().max_examples // 2)
@given(workers=st.integers(1, 3), sizes=SIZES, seed=st.integers(0, 99))
def test_a_server_applies_each_push_once(workers, sizes, seed):
    served(naive_server, workers, sizes, slope, seed)


# Compression: with all elements it is serial; else what was sent and what is kept add up to the gradients.


def sends_and_keeps_all(module, ranks, ratio, steps, seed=0):
    """Assert that nothing of any gradient is lost, and that no more is sent than was asked for."""
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(steps, ranks, 12))

    def work(comm):
        backend = module.NaiveTopK(comm, ratio=ratio)
        model = backend.place(nn.Sequential(nn.Linear(4, 3, bias=False, rng=np.random.default_rng(0))))
        (p,) = model.parameters()
        total = 0.0
        for of_ranks in gradients:
            p.grad = of_ranks[comm.rank].reshape(p.shape).copy()
            backend.finish(model, 0.0)
            assert np.count_nonzero(p.grad) <= ranks * max(1, round(ratio * 12)), (
                "more was sent than asked for"
            )
            total = total + p.grad
        return total, backend.memory[p]

    results = run_ranks(ranks, work)
    rests = sum(rest for _, rest in results)
    for total, _ in results:
        summed = gradients.sum(axis=(0, 1)).reshape(3, 4)
        np.testing.assert_allclose(total + rests, summed, rtol=0, atol=1e-12, err_msg="part of it is lost")


@settings(max_examples=settings().max_examples // 2)
@given(st.integers(1, 3), st.sampled_from([0.1, 0.34, 0.5, 1.0]), st.integers(1, 4), st.integers(0, 99))
def test_compression_loses_nothing(ranks, ratio, steps, seed):
    sends_and_keeps_all(naive_compression, ranks, ratio, steps, seed)


@settings(max_examples=settings().max_examples // 2)
@given(ranks=st.integers(1, 3), sizes=SIZES)
def test_all_elements_train_like_serial(ranks, sizes):
    trains(partial(naive_compression.NaiveTopK, ratio=1), ranks, sizes)


# Space


def convolves_like_one_machine(module, ranks, rows, kernel, seed=0):
    """Assert that a convolution of an image cut into rows has value and gradients of the whole one."""
    rng = np.random.default_rng(seed)
    x, g = rng.normal(size=(2, 2, rows, 5)), rng.normal(size=(2, 3, rows, 5))

    def layer() -> Any:
        return nn.Conv2d(2, 3, kernel, padding=kernel // 2, rng=np.random.default_rng(seed)).to(
            dtype="float64"
        )

    def work(comm):
        conv, mine = layer(), shares(rows, comm.size)[comm.rank]
        own = Tensor(x[:, :, mine], requires_grad=True)
        with Tape() as tape:
            y = module.NaiveSpatialConv(conv, comm)(own)
        tape.backward(y, g[:, :, mine])
        return [y.data, own.grad, conv.weight.grad, conv.bias.grad]

    whole, image = layer(), Parameter(x)
    with Tape() as tape:
        y = whole(image)
    tape.backward(y, g)
    for rank, values in enumerate(run_ranks(ranks, work)):
        mine = shares(rows, ranks)[rank]
        assert image.grad is not None
        expected = [y.data[:, :, mine], image.grad[:, :, mine], whole.weight.grad, whole.bias.grad]
        for value, right in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, right, rtol=0, atol=1e-12, err_msg=f"of rank {rank}")


@settings(max_examples=settings().max_examples // 2)
@given(
    ranks=st.integers(1, 3),
    rows=st.integers(6, 9),
    kernel=st.sampled_from([1, 3, 5]),
    seed=st.integers(0, 99),
)
def test_a_convolution_in_space_is_the_whole_one(ranks, rows, kernel, seed):
    convolves_like_one_machine(naive_space, ranks, rows, kernel, seed)


# Checkpoints


def survives_a_loss_of_power(module, ranks, steps=2):
    """Assert of every state of the disk that the newest step is the last one saved, or the one in work."""
    disk, ends = RecordedDisk(), [0]
    folder = Path("/runs/night")

    def arrays(step, rank):
        return {"weight": np.full(3, step + rank / 8), "step": np.array(step)}

    def work(comm):
        for step in range(1, steps + 1):
            module.save(folder, comm, step, arrays(step, comm.rank), disk)
            if comm.rank == 0:
                ends.append(len(disk.operations))

    run_ranks(ranks, work)
    for length in range(len(disk.operations) + 1):
        saved = sum(end <= length for end in ends[1:])
        for state in disk.power_losses(length, draws=30):
            there = any(name == "night" for name in state.names(folder.parent))
            newest = module.newest_step(folder, state) if there else None
            assert newest in {saved or None, min(saved + 1, steps)}, f"{newest} is the newest after {saved}"
            if newest is not None:
                for rank, read in enumerate(run_ranks(ranks, partial(loaded, module, folder, newest, state))):
                    right = arrays(newest, rank)
                    assert read.keys() == right.keys()
                    assert all((read[name] == right[name]).all() for name in right), f"of rank {rank}"


def loaded(module, folder, step, disk, comm):
    try:
        return module.load(folder, comm, step, disk)
    except FileNotFoundError as error:
        raise AssertionError(f"step {step} has its name and is not whole") from error


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_survives_a_loss_of_power(ranks):
    survives_a_loss_of_power(naive_checkpoint, ranks)


# Bugs

LAWS = {
    "pipeline": lambda module: trains(
        partial(module.NaivePipeline, micro_batches=3),
        3,
        [7, 4],
        lambda parameters: MOMENTUM(parameters).clipped(0.1),
    ),
    "zero": lambda module: trains(
        module.NaiveSharded, 3, [7, 4], lambda parameters: MOMENTUM(parameters).clipped(0.1)
    ),
    "server": lambda module: [
        served(module, n, [7, 4], loss) for n, loss in ((1, ops.cross_entropy), (2, slope))
    ],
    "compression": lambda module: sends_and_keeps_all(module, 2, 0.34, 3),
    "space": lambda module: convolves_like_one_machine(module, 3, 7, 3),
    "checkpoint": lambda module: survives_a_loss_of_power(module, 2),
}
MODULES = {
    "pipeline": naive_pipeline, "zero": naive_zero, "server": naive_server, "compression": naive_compression,
    "space": naive_space, "checkpoint": naive_checkpoint,
}  # fmt: skip
BUGS = [
    ("pipeline", "broadcast_model(self.comm, model)", "pass"),
    ("pipeline", "part.weighted(forward_pass, y if last else None)", "(y.item() if last else 0.0)"),
    (
        "pipeline",
        "state_class = LayersOfRanks\n",
        "class state_class(LayersOfRanks):\n"
        "        def global_square_norms(self, model, squares):\n            return squares\n",
    ),
    ("pipeline", "part.seed if last", "1.0 if last"),
    ("pipeline", "with part.forward_pass() as", "with part._replace(step=0).forward_pass() as"),
    ("pipeline", "float(allreduce(self.comm, np.array([loss]))[0])", "loss"),
    ("zero", "lambda squares: allreduce(self.comm, squares)", "lambda squares: squares"),
    ("zero", "np.concatenate(allgather(self.comm, part.w)).reshape(parameter.shape)", "parameter.data"),
    (
        "server",
        "parameter.data[...] = self.comm.recv(self.server, PULL)",
        "self.comm.recv(self.server, PULL)",
    ),
    ("server", "super().update(model, optimizer)", "optimizer.zero_grad()"),
    ("server", "broadcast(self.comm, parameter.data, self.server)", "parameter.data"),
    (
        "compression",
        "self.memory.pop(parameter, np.zeros_like(parameter.data))",
        "np.zeros_like(parameter.data)",
    ),
    ("compression", "rest[places] = 0\n", "pass\n"),
    ("compression", "[: max(1, round(self.ratio * rest.size))]", ""),
    ("space", "own[:, :, :halo] += first\n", "pass\n"),
    ("space", "differentiable.fan_out(self.layer.weight, comm=self.comm)", "self.layer.weight"),
    ("space", "np.concatenate([above, x, below], axis=2)", "np.concatenate([below, x, above], axis=2)"),
    ("checkpoint", "        disk.sync_folder(part)\n", ""),
    ("checkpoint", 'part = folder / f".step-{step}"', 'part = folder / f"step-{step}"'),
    (
        "checkpoint",
        "        for above in (folder, *folder.parents):\n            disk.sync_folder(above)\n",
        "",
    ),
]


@pytest.mark.parametrize(("form", "right", "wrong"), BUGS)
def test_the_law_catches(form, right, wrong):
    with pytest.raises(AssertionError):
        LAWS[form](mutant(MODULES[form].__name__, (right, wrong)))


@pytest.mark.parametrize("form", MODULES)
def test_a_naive_form_is_as_short_as_its_slide(form):
    assert len(inspect.getsource(MODULES[form]).splitlines()) <= 65
    assert MODULES[form].__name__.endswith(".naive")
