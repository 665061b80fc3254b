"""Laws of minigrad/capture.py: captured steps see whatever changes between them, and walk through nothing.

They run where ``cupy`` is the double in ``tests/strict_cupy``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import minigrad
from minigrad import Parameter, Tensor, nn, ops, optim
from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.device import on_gpu, to_device, to_host
from minigrad.models import find_net
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.serial import Serial
from tests.minigrad.gpu_laws import counted

PRODUCT = str(Path(minigrad.__file__).parent)


class Heads(Module):
    """Layers, one of several heads, and numbers and tensors that the forward reads."""

    def __init__(self, rng: np.random.Generator):
        self.layers = nn.Sequential(
            nn.Linear(6, 8, rng=rng), nn.BatchNorm(8), nn.LeakyReLU(0.1), nn.Dropout(0.3, rng=rng),
            nn.Linear(8, 8, rng=rng), nn.Tanh(),
        )  # fmt: skip
        self.heads = {"en": nn.Linear(8, 3, rng=rng), "de": nn.Linear(8, 3, rng=rng)}
        self.language, self.scales = "en", [[1.0], 0.5]
        self.shift = Tensor(to_device(np.ones(3, np.float32), "cupy"))

    def forward(self, x: Any) -> Tensor:
        return self.heads[self.language](self.layers(x)) * self.scales[0][0] + self.shift


@dataclass
class Run:
    """What is trained, and by what."""

    backend: Any
    model: Any
    optimizer: Any
    loss: Any

    @property
    def layers(self) -> list[Any]:
        return self.model.layers.layers


def set_items(container: Any, **items: Any) -> None:
    container.update(items)


def halve_states(run: Run) -> None:
    for state in run.optimizer.state:
        state.update({name: value / 2 for name, value in state.items() if on_gpu(value)})


def continue_from_a_checkpoint(run: Run) -> None:
    """As one who reads a checkpoint of a run that has gone further."""
    state, keys = run.backend.state, {key for state in run.optimizer.state for key in state}
    whole = {key: state.full_optimizer_state(run.model, run.optimizer, key) for key in keys}
    whole = {k: {n: v if v is None else v + v for n, v in of_key.items()} for k, of_key in whole.items()}
    state.load_optimizer_state(run.model, run.optimizer, whole)
    run.backend.count_steps_from(40)


def leave_out_a_parameter(run: Run) -> None:
    del run.optimizer.parameters[0], run.optimizer.state[0]


def replace_gradient(run: Run, value: Callable[[Any], Any]) -> None:
    weight = run.layers[0].weight
    weight.grad = value(weight.grad)


def scale_gradient(run: Run) -> None:
    run.layers[0].weight.grad *= 2


CHANGES: dict[str, Callable[[Run], Any]] = {
    "a layer in a list": lambda r: r.layers.__setitem__(2, nn.Tanh()),
    "a layer without attributes": lambda r: r.layers.__setitem__(5, nn.Sigmoid()),
    "one layer more": lambda r: r.layers.insert(3, nn.Tanh()),
    "one layer less": lambda r: r.layers.pop(2),
    "a layer by its name": lambda r: r.model.layers.replace("2", nn.Tanh()),
    "a module in a dict": lambda r: set_items(r.model.heads, en=r.model.heads["de"]),
    "modules that swap keys": lambda r: set_items(
        r.model.heads, en=r.model.heads["de"], de=r.model.heads["en"]
    ),
    "a forward": lambda r: setattr(r.layers[2], "forward", ops.tanh),
    "a number": lambda r: setattr(r.layers[2], "slope", 0.5),
    "a number past setattr": lambda r: vars(r.layers[2]).update(slope=0.5),
    "a number in a list": lambda r: r.model.scales[0].__setitem__(0, 2.0),
    "a string": lambda r: setattr(r.model, "language", "de"),
    "the probability of dropout": lambda r: setattr(r.layers[3], "p", 0.6),
    "the seed of dropout": lambda r: setattr(r.layers[3], "seed", 7),
    "the mode of a layer": lambda r: r.layers[1].eval(),
    "the mode of the model": lambda r: r.model.eval(),
    "a mode that is set": lambda r: setattr(r.layers[3], "training", False),
    "a frozen weight": lambda r: setattr(r.layers[0].weight, "requires_grad", False),
    "a parameter": lambda r: setattr(r.layers[0], "weight", Parameter(r.layers[0].weight.data / 2)),
    "the array of a parameter": lambda r: setattr(r.layers[0].weight, "data", r.layers[0].weight.data / 2),
    "a transposed weight": lambda r: setattr(r.layers[4].weight, "data", r.layers[4].weight.data.T),
    "elements of a parameter": lambda r: r.layers[0].weight.data.__imul__(0.5),
    "a constant": lambda r: setattr(r.model, "shift", r.model.shift + r.model.shift),
    "the array of a constant": lambda r: setattr(r.model.shift, "data", r.model.shift.data * 2),
    "statistics": lambda r: setattr(r.layers[1], "running_mean", r.layers[1].running_mean + 1),
    "the state of the model": lambda r: r.model.load_state_dict(
        {name: array / 2 for name, array in r.model.state_dict().items()}
    ),
    "a setting of the loss": lambda r: set_items(r.loss.settings, label_smoothing=0.3),
    "another loss": lambda r: setattr(r, "loss", nn.CrossEntropyLoss(label_smoothing=0.3)),
    "the number of micro-batches": lambda r: setattr(r.backend, "micro_batches", 2),
    "the rate": lambda r: setattr(r.optimizer, "lr", 0.05),
    "the decay": lambda r: setattr(r.optimizer, "weight_decay", 0.2),
    "momenta": lambda r: vars(r.optimizer).update(momentum=0.5, betas=(0.5, 0.9)),
    "a momentum in a list": lambda r: r.optimizer.betas.__setitem__(0, 0.5),
    "clipping": lambda r: r.optimizer.clipped(0.1),
    "the decay of a group": lambda r: setattr(r.optimizer.groups[0], "weight_decay", 0.9),
    "the rate of a group": lambda r: setattr(r.optimizer.groups[1], "ratio", 0.5),
    "the state of a parameter": halve_states,
    "no state": lambda r: setattr(r.optimizer, "state", [{} for _ in r.optimizer.state]),
    "a checkpoint": continue_from_a_checkpoint,
    "one parameter less": leave_out_a_parameter,
}
"""Every way in which something that a graph holds changes between two steps."""

GRADIENTS: dict[str, Callable[[Run], Any]] = {
    "a gradient": lambda r: replace_gradient(r, lambda g: g * 2),
    "no gradient": lambda r: replace_gradient(r, lambda g: None),
    "elements of a gradient": scale_gradient,
    "a weight that is frozen late": lambda r: setattr(r.layers[0].weight, "requires_grad", False),
    "the array of a parameter, late": lambda r: setattr(
        r.layers[0].weight, "data", r.layers[0].weight.data / 2
    ),
}
"""What changes between a step and its update."""

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "sgd": lambda p: optim.SGD(p, 0.1, momentum=0.9),
    "adam": lambda p: optim.Adam(p, 0.01, betas=[0.9, 0.99]),  # pyright: ignore[reportArgumentType]
    "groups": lambda p: optim.Adam(optim.decay_groups(p, 0.1), 0.01),
}


def trained(backend: Serial, optimizer: str, change: str, together: bool) -> list[Any]:
    """The losses of ten steps, parameters, statistics and gradients; after the fourth something changes."""
    rng = np.random.default_rng(0)
    model = backend.place(Heads(rng).to(device="cupy"))
    run = Run(backend, model, OPTIMIZERS[optimizer](model.parameters()), nn.CrossEntropyLoss())
    values: list[Any] = []
    for step in range(10):
        batch = Batch(rng.normal(size=(4, 6)).astype(np.float32), rng.integers(0, 3, 4)).to("cupy")
        if step == 4 and change in CHANGES:
            CHANGES[change](run)
        model.zero_grad()
        run.optimizer.zero_grad()  # which may have other parameters
        if together and isinstance(backend, Captured):
            values.append(backend.launch(model, batch, run.loss, run.optimizer).loss())
        else:
            values.append(backend.step(model, batch, run.loss))
            if step >= 4 and change in GRADIENTS:
                GRADIENTS[change](run)
            backend.update(model, run.optimizer)
    arrays = {name: getattr(owner, attribute) for name, owner, attribute in model.named_arrays()}
    values += [to_host(x.data if isinstance(x, Tensor) else x).tolist() for x in arrays.values()]
    return values + [None if p.grad is None else to_host(p.grad).tolist() for p in model.parameters()]


@cache
def trained_without_changes(optimizer: str) -> list[Any]:
    return trained(Serial(), optimizer, "nothing", together=False)


def a_change_is_seen(change: str, optimizer: str = "sgd", together: bool = False) -> None:
    """Captured steps before and after it, with the update apart or in the same graph, are those of Serial."""
    expected = trained(Serial(), optimizer, change, together)
    assert expected != trained_without_changes(optimizer), "nothing has changed"
    with counted() as calls:
        values = trained(Captured(), optimizer, change, together)
    assert values == expected, f"captured steps have not seen {change}"
    assert calls["graph launch"] >= 7, f"{calls['graph launch']} graphs were launched"


def lenet_step(make: Callable[[Any], Optimizer], together: bool) -> Callable[[], None]:
    """A captured step of LeNet with its update, of which four have been taken."""
    net, rng, backend = find_net("lenet"), np.random.default_rng(0), Captured()
    model = backend.place(net.build(rng).to(dtype=np.float32, device="cupy"))
    digits = Batch(rng.normal(size=(8, 1, 28, 28)), rng.integers(0, 10, 8))
    return steps_taken(backend, model, net.prepare(digits, np.float32).to("cupy"), make, together)


def steps_taken(
    backend: Captured, model: Module, batch: Batch, make: Callable[[Any], Optimizer], together: bool
) -> Callable[[], None]:
    optimizer = make(model.parameters())

    def take() -> None:
        optimizer.zero_grad()
        if together:
            backend.launch(model, batch, ops.cross_entropy, optimizer).loss()
        else:
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)

    for _ in range(4):
        take()
    return take


def calls_by_minigrad(work: Callable[[], object]) -> int:
    """How many functions, of Python or of C, code of minigrad calls."""
    calls: Counter[str] = Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        caller = frame.f_back if event == "call" else frame if event == "c_call" else None
        if caller is not None and caller.f_code.co_filename.startswith(PRODUCT):
            calls[event] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls.total()


def a_step_makes_few_calls(together: bool) -> None:
    """Of LeNet 133 calls in Python 3.11, 112 with one graph; where a step walks through the model, 1,291."""
    calls = calls_by_minigrad(lenet_step(OPTIMIZERS["sgd"], together))
    assert calls <= 200, f"a captured step of LeNet makes {calls} calls"


def calls_do_not_depend_on_the_number_of_modules(together: bool) -> None:
    calls = {}
    for n in (4, 40):
        rng = np.random.default_rng(0)
        layers = [nn.Dropout(0.5, rng=rng).eval() for _ in range(n)]
        model = nn.Sequential(nn.Linear(6, 3, rng=rng), *layers).to(device="cupy")
        batch = Batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64)).to("cupy")
        calls[n] = calls_by_minigrad(steps_taken(Captured(), model, batch, OPTIMIZERS["sgd"], together))
    assert calls[4] == calls[40], f"calls by the number of layers: {calls}"


def a_step_is_one_graph(optimizer: str, uploads: int) -> None:
    """With its update; the host copies x and y, uploads coefficients that change, and reads the loss once."""
    take = lenet_step(OPTIMIZERS[optimizer], together=True)
    with counted() as calls:
        take()
    expected = {
        "graph launch": 1,
        "launch": 2,
        "synchronize": 1,
        "copy to host": 1,
        "copy to device": uploads,
    }
    counts = {kind: calls[kind] for kind in expected}
    assert counts == expected, f"a step makes {counts}"


def steps_of_a_number_that_changes_are_not_kept() -> None:
    """A model of which each step changes a number is computed op by op, and leaves nothing in memory."""
    backend, rng = Captured(), np.random.default_rng(0)
    model: Any = nn.Sequential(nn.Linear(6, 3, rng=rng), nn.LeakyReLU(0.1)).to(device="cupy")
    batch = Batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64)).to("cupy")
    for step in range(5):
        model[1].slope = 0.1 + step
        model.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
    assert len(backend.steps) == 1, f"{len(backend.steps)} steps are kept"
