"""Laws of minigrad/capture.py and cublas.py: captured steps compute what uncaptured ones do, on the double
of CuPy in ``tests/strict_cupy``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad import Tensor, nn, ops, optim
from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.device import on_gpu, to_device, to_host
from minigrad.lr_schedules import Schedule, constant, cosine, step, warm_up
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.train import accuracy, fit
from minigrad.work import Loss
from tests.minigrad.gpu_laws import counted

CLASSES = 3


@dataclass(frozen=True)
class Case:
    """A training run: its net, its optimizer and rates, its batches, and what changes after an epoch."""

    net: str = "mlp"
    optimizer: str = "momentum"
    schedule: str = "cosine"
    samples: int = 10
    batch: int = 4  # the last batch is smaller where it does not divide the samples
    micro_batches: int = 1
    change: str = "nothing"
    loss: str = "mean"
    dtype: str = "float32"
    late: bool = False
    seed: int = 0


class NoisyBranches(Module):
    """Two branches, each with dropout, which draw from one generator."""

    def __init__(self, rng: np.random.Generator):
        self.first, self.second = nn.Linear(6, 5, rng=rng), nn.Linear(6, 5, rng=rng)
        draws = np.random.default_rng(7)
        self.noise, self.other = nn.Dropout(0.5, rng=draws), nn.Dropout(0.2, rng=draws)
        self.last = nn.Linear(5, CLASSES, rng=rng)

    def forward(self, x: Any) -> Tensor:
        return self.last(self.noise(ops.tanh(self.first(x))) + self.other(ops.gelu(self.second(x))))


def mlp(rng: np.random.Generator) -> Module:
    return nn.Sequential(nn.Linear(6, 5, rng=rng), nn.ReLU(), nn.Linear(5, CLASSES, rng=rng))


def normalized(rng: np.random.Generator) -> Module:
    return nn.Sequential(
        nn.Linear(6, 8, rng=rng), nn.BatchNorm(8), nn.Tanh(), nn.Linear(8, 5, rng=rng), nn.LayerNorm(5),
        nn.Dropout(0.3, rng=np.random.default_rng(5)), nn.Linear(5, CLASSES, rng=rng),
    )  # fmt: skip


class Sequences(Module):
    """Samples of two rows each, and ops that move, scan, mask and sum their elements."""

    def __init__(self, rng: np.random.Generator):
        self.rows, self.last = nn.Linear(3, 3, rng=rng), nn.Linear(6, CLASSES, rng=rng)

    def forward(self, x: Any) -> Tensor:
        y = self.rows(ops.reshape(x, shape=(-1, 2, 3)))
        y = y.cumsum(1) + y.roll(1, 2) * y.flip(1) + y.tril().masked_fill(y.data > 1, 0.5)
        y = ops.tanh(y + ops.einsum("nij,kj->nik", y, self.rows.weight).std(2, True).repeat(3, 2))
        return self.last(ops.tile(y.prod(2) + y.diagonal(0, 1, 2), reps=(1, 3)))


def convolutional(rng: np.random.Generator) -> Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, rng=rng), nn.BatchNorm(4), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(4, 6, 2, stride=2, rng=rng), nn.AvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES, rng=rng),
    )  # fmt: skip


def decoder(rng: np.random.Generator) -> Module:
    return nn.Sequential(
        nn.ConvTranspose2d(1, 4, 3, stride=2, rng=rng), nn.GroupNorm(2, 4), nn.ReLU(),
        nn.Conv2d(4, 3, 2, padding="same", rng=rng), nn.InstanceNorm(3), nn.Upsample(2, mode="bilinear"),
        nn.AvgPool2d(2, stride=3, padding=1, ceil_mode=True, count_include_pad=False),
        nn.AdaptiveMaxPool2d(3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.RMSNorm(12),
        nn.Linear(12, CLASSES, rng=rng),
    )  # fmt: skip


NETS: dict[str, tuple[Callable[[np.random.Generator], Module], tuple[int, ...]]] = {
    "mlp": (mlp, (6,)),
    "branches": (NoisyBranches, (6,)),
    "normalized": (normalized, (6,)),
    "sequences": (Sequences, (6,)),
    "convolutional": (convolutional, (1, 4, 4)),
    "decoder": (decoder, (1, 4, 4)),
}
OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "heavy ball": lambda p: optim.HeavyBall(p, 0.1),
    "lars": lambda p: optim.LARS(p, 0.1),
    "adagrad": lambda p: optim.Adagrad(p, 0.1),
    "rmsprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5),
    "adam": lambda p: optim.Adam(p, 0.01),
    "groups, amsgrad": lambda p: optim.Adam(optim.decay_groups(p, 0.3), 0.01, amsgrad=True, maximize=True),
    "adamw, clipped": lambda p: optim.AdamW(p, 0.01, weight_decay=0.1).clipped(0.5),
}
SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "constant": lambda: constant(0.05, 12),
    "cosine": lambda: cosine(0.1, 12),
    "steps": lambda: step(0.1, 12),
    "warm-up": lambda: warm_up(cosine(0.1, 12), 5, 0.01),
}


LOSSES: dict[str, Callable[[], Loss]] = {
    "mean": lambda: ops.cross_entropy,
    "sum": lambda: nn.CrossEntropyLoss(reduction="sum"),
    "weighted": lambda: nn.CrossEntropyLoss(weight=to_device(np.array([0.5, 2.0, 3.0]), "cupy")),
}


def change_nothing(model: Module, optimizer: Optimizer) -> None:
    pass


def begin_momentum(model: Module, optimizer: Optimizer) -> None:
    if type(optimizer) is optim.SGD:
        optimizer.momentum = 0.5


def freeze_a_weight(model: Module, optimizer: Optimizer) -> None:
    next(iter(model.parameters())).requires_grad = False


def freeze_statistics(model: Module, optimizer: Optimizer) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm | nn.Dropout):
            module.eval()


def restore_arrays(model: Module, optimizer: Optimizer) -> None:
    """Put other arrays in the places of statistics and states, as one who loads a file does."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm):
            module.running_mean, module.running_var = module.running_mean.copy(), module.running_var / 2
    for state in optimizer.state:
        state.update({name: value / 2 for name, value in state.items() if on_gpu(value)})


CHANGES = {
    "nothing": change_nothing,
    "momentum": begin_momentum,
    "a frozen weight": freeze_a_weight,
    "frozen layers": freeze_statistics,
    "restored arrays": restore_arrays,
}


def trained(backend: Strategy, case: Case, epochs: int = 5) -> dict[str, Any]:
    """All that a run leaves, by name: losses, accuracies, parameters, statistics, states, generators."""
    build, shape = NETS[case.net]
    rng = np.random.default_rng(case.seed)
    data = Batch(rng.normal(size=(case.samples, *shape)), rng.integers(0, CLASSES, case.samples))
    data = Batch(data.x.astype(case.dtype), data.y).to("cupy")
    model = backend.place(build(rng).to(dtype=case.dtype, device="cupy"))
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    accuracies = []

    def on_epoch(epoch: int, _: Any) -> None:
        accuracies.append(accuracy(model, data))
        if epoch == 2:
            gc.collect()  # memory that could be given out again is
            CHANGES[case.change](model, optimizer)

    history = fit(
        model, optimizer, LOSSES[case.loss](), data, backend=backend, epochs=epochs, batch_size=case.batch,
        schedule=SCHEDULES[case.schedule](), on_epoch=on_epoch,
    )  # fmt: skip
    generators = [
        value.bit_generator.state["state"]
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, np.random.Generator)
    ]
    arrays: dict[str, Any] = {**backend.state.full_parameters(model), **backend.state.full_state(model)}
    arrays |= {f"gradient {name}": p.grad for name, p in model.named_parameters().items()}
    arrays |= {f"state {i} {key}": v for i, state in enumerate(optimizer.state) for key, v in state.items()}
    arrays = {name: to_host(value) if on_gpu(value) else value for name, value in arrays.items()}
    return {"losses": history.losses, "accuracies": accuracies, "generators": generators} | arrays


def captured_equals_eager(captured: Callable[..., Strategy], case: Case) -> None:
    """A run of captured steps leaves bit by bit what a run of steps without graphs does."""
    with late_kernels() if case.late else nullcontext():
        expected = trained(Serial(case.micro_batches), case)
        with counted() as calls:
            values = trained(captured(case.micro_batches), case)
    assert calls is None or calls["graph launch"], "no graph was launched"
    assert values.keys() == expected.keys(), "the states have other names"
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, expected[name], err_msg=name, strict=True)
        else:
            assert value == expected[name], f"{name}: {value}, not {expected[name]}"


def late_kernels() -> AbstractContextManager[Any]:
    """Kernels of the double that run as late as they may; CuPy's run when they run."""
    try:
        from cupy import _late  # pyright: ignore[reportMissingImports]
    except ImportError:
        return nullcontext()
    return _late.late()


def training_step(backend: Captured, case: Case, read: bool = True, steps: int = 3) -> Callable[[], None]:
    """A step with update on batches of one size, of which ``steps`` have been taken; its loss may be read."""
    build, shape = NETS[case.net]
    rng = np.random.default_rng(case.seed)
    model = backend.place(build(rng).to(dtype=case.dtype, device="cupy"))
    optimizer = OPTIMIZERS[case.optimizer](model.parameters())
    x, labels = rng.normal(size=(case.batch, *shape)), rng.integers(0, CLASSES, case.batch)
    batch = Batch(x.astype(case.dtype), labels).to("cupy")

    def take() -> None:
        optimizer.zero_grad()
        step = backend.launch(model, batch, ops.cross_entropy)
        if read:
            step.loss()
        backend.update(model, optimizer)

    for _ in range(steps):
        take()
    return take


def a_step_is_two_graphs(take: Callable[[], None], uploads: int, reads: int = 1) -> None:
    """The host copies samples, uploads coefficients and random numbers, launches, and may read the loss."""
    with counted() as calls:
        take()
    expected = {"graph launch": 2, "gemm": 0, "own gemm": 0, "synchronize": reads, "copy to device": uploads}
    counts = {kind: calls[kind] for kind in expected}
    assert counts == expected, f"a step makes {counts}"
    assert calls["launch"] <= 2, f"a step launches {calls['launch']} kernels besides its graphs"


def products_are_those_of_cupy(product: Callable[..., Any], a: Any, b: Any, out: Any) -> None:
    """On a stream of its own ``product`` is a @ b of the null stream, bit by bit, by cuBLAS itself."""
    import cupy  # pyright: ignore[reportMissingImports]

    expected, stream = (a @ b).get(), cupy.cuda.Stream(non_blocking=True)
    with counted() as calls, stream:
        value = product(a, b, out)
    stream.synchronize()  # the null stream, by which the host reads, does not wait for it
    np.testing.assert_array_equal(value.get(), expected, strict=True)
    assert out is None or value is out, "the product is not written into out"
    if calls is None:
        return
    # CuPy multiplies what is empty, and one row by one column, without cuBLAS.
    assert calls["gemm"] == 0 and calls["own gemm"] == (expected.size > 1 and a.size > 0), calls


def what_cannot_be_captured_is_refused(
    backend: Captured, model: Module, loss: Callable[[Tensor, Any], Tensor], words: str
) -> None:
    """The second step raises RuntimeError in one line, and the stream is captured no longer."""
    model = backend.place(model.to(device="cupy"))
    batch = Batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64)).to("cupy")
    backend.step(model, batch, loss)
    for parameter in model.parameters():
        parameter.grad = None
    try:
        backend.step(model, batch, loss)
    except RuntimeError as error:
        assert words in str(error) and "train without capture" in str(error), error
        assert "\n" not in str(error), error
    else:
        raise AssertionError("the step was captured")
    assert not backend.stream.is_capturing(), "the stream is still captured"
