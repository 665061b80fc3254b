"""The seven workloads that ``engine.py`` times; each gives its peers: functions that run one step.

Networks are written once as (name, *sizes) and built in minigrad and in PyTorch from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from engine_compiled import LR, MOMENTUM, Step, compiled_steps
from engine_figures import GRAPHS
from engine_transformer import Transformer

from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.device import to_device

try:
    import torch  # pyright: ignore[reportMissingImports]
except ImportError:  # minigrad's own steps need none
    torch: Any = None

WARM_UP = 3  # PyTorch's steps before it captures one


@dataclass
class Network:
    """A full training step of layers written once, as (name, *sizes), and built in both libraries."""

    title: str
    target: float
    input: tuple[int, ...]
    layers: list[tuple]
    tolerance: float = 1e-5

    def peers(self, device: str, compiled: bool = False) -> dict[str, Step]:
        rng = np.random.default_rng(0)
        x = rng.standard_normal(self.input, np.float32)
        y = rng.integers(0, 10, self.input[0])
        model = nn.Sequential(*(minigrad_layer(layer, rng) for layer in self.layers))
        weights = model.state_dict()
        peers = {"minigrad": minigrad_step(model, x, y, device)}
        layouts = {"torch": None} | ({"channels_last": torch.channels_last} if x.ndim == 4 else {})
        for name, layout in layouts.items():
            peers[name] = torch_step(self.layers, weights, x, y, device, layout)
            if device == "cupy":
                peers[name + GRAPHS] = torch_graph(self.layers, weights, x, y, layout)
        if compiled and device == "numpy":
            parts = lambda: torch_parts(self.layers, weights, x, y)  # noqa: E731
            peers |= compiled_steps(parts, self.layers, weights, x, y)
        if device == "cupy":
            copy = nn.Sequential(*(minigrad_layer(layer, rng) for layer in self.layers))
            copy.load_state_dict(weights)
            peers["minigrad" + GRAPHS] = minigrad_graph(copy, x, y)
        return peers


def minigrad_layer(layer: tuple, rng: np.random.Generator) -> nn.Module:
    name, *sizes = layer
    if name == "linear":
        n_in, n_out = sizes
        return nn.Linear(n_in, n_out, rng=rng)
    if name == "conv":
        n_in, n_out = sizes
        return nn.Conv2d(n_in, n_out, 3, padding=1, rng=rng)
    return {"relu": nn.ReLU, "flatten": nn.Flatten, "pool": lambda: nn.MaxPool2d(2)}[name]()


def torch_layer(layer: tuple) -> Any:
    name, *sizes = layer
    if name == "linear":
        return torch.nn.Linear(*sizes)
    if name == "conv":
        n_in, n_out = sizes
        return torch.nn.Conv2d(n_in, n_out, 3, padding=1)
    return {"relu": torch.nn.ReLU, "flatten": torch.nn.Flatten, "pool": lambda: torch.nn.MaxPool2d(2)}[name]()


def minigrad_step(model: nn.Module, x: np.ndarray, y: np.ndarray, device: str) -> Step:
    model.to(device=device)
    x, y = to_device(x, device), to_device(y, device)
    optimizer = optim.SGD(model.parameters(), LR, momentum=MOMENTUM)

    def step() -> float:
        optimizer.zero_grad()
        with Tape() as tape:
            loss = ops.cross_entropy(model(Tensor(x)), y)
        tape.backward(loss)
        optimizer.step()
        return loss.item()

    return step


def minigrad_graph(model: nn.Module, x: np.ndarray, y: np.ndarray) -> Step:
    backend = Captured()
    model = backend.place(model.to(device="cupy"))
    batch = Batch(to_device(x, "cupy"), to_device(y, "cupy"))
    optimizer = optim.SGD(model.parameters(), LR, momentum=MOMENTUM)

    def step() -> float:
        optimizer.zero_grad()
        return backend.launch(model, batch, ops.cross_entropy, optimizer).loss()

    return step


def torch_step(layers: list[tuple], weights: dict, x: Any, y: Any, device: str, layout: Any = None) -> Step:
    *_, compute = torch_network(layers, weights, x, y, device, layout)
    return lambda: compute().item()


def torch_graph(layers: list[tuple], weights: dict, x: Any, y: Any, layout: Any = None) -> Step:
    """The whole step as one graph, as PyTorch's notes on CUDA graphs write it."""
    model, optimizer, compute = torch_network(layers, weights, x, y, "cupy", layout)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        loss = compute()
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    for state in optimizer.state.values():
        state["momentum_buffer"].zero_()
    return Replay(graph, loss, compute)


def torch_parts(layers: list[tuple], weights: dict, x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Model, optimizer, and the batch as tensors."""
    model, optimizer, _ = torch_network(layers, weights, x, y, "numpy", None)
    return model, optimizer, torch.from_numpy(x), torch.from_numpy(y)


class Replay(NamedTuple):
    """A step as a graph; it reads arrays that only ``compute`` keeps alive."""

    graph: Any
    loss: Any
    compute: Callable[[], Any]

    def __call__(self) -> float:
        self.graph.replay()
        return self.loss.item()


def torch_network(
    layers: list[tuple], weights: dict, x: Any, y: Any, device: str, layout: Any
) -> tuple[Any, Any, Callable[[], Any]]:
    """Model, optimizer, and a function that takes a step and returns its loss."""
    where = "cpu" if device == "numpy" else "cuda"
    model = torch.nn.Sequential(*map(torch_layer, layers))
    model.load_state_dict({name: torch.from_numpy(w) for name, w in weights.items()})
    x, y = torch.from_numpy(x).to(where), torch.from_numpy(y).to(where)
    model.to(where)
    if layout is not None:
        model, x = model.to(memory_format=layout), x.to(memory_format=layout)  # pyright: ignore
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM)

    def compute() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, compute


@dataclass
class Chain:
    """1000 multiplications and additions, in turn, on four numbers, forward and backward; time per op."""

    title: str = "1000 elementwise ops on 4 floats, us per op"
    target: float = 2.6
    tolerance: float = 1e-5
    ops: int = 1000

    def peers(self, device: str) -> dict[str, Step]:
        start, scale, shift = np.random.default_rng(0).uniform(0.99, 1.01, (3, 4)).astype(np.float32)
        where = "cpu" if device == "numpy" else "cuda"

        def minigrad() -> float:
            x: Any = Tensor(to_device(start, device), requires_grad=True)
            a, b = Tensor(to_device(scale, device)), Tensor(to_device(shift, device))
            with Tape():
                y = x
                for _ in range(self.ops // 2):
                    y = y * a + b
                y.backward(np.ones(4, np.float32) if device == "numpy" else to_device(np.ones(4), device))
            return float(x.grad.sum())

        def pytorch() -> float:
            x: Any = torch.tensor(start, requires_grad=True, device=where)
            a, b = torch.tensor(scale, device=where), torch.tensor(shift, device=where)
            y = x
            for _ in range(self.ops // 2):
                y = y * a + b
            y.backward(torch.ones_like(y))
            return x.grad.sum().item()

        return {"minigrad": minigrad, "torch": pytorch}


@dataclass
class Convolution:
    """One convolution, its input's and its weight's gradient."""

    title: str = "conv 64->64 3x3 on 32x64x32x32"
    target: float = 0.85
    tolerance: float = 1e-4
    shape: tuple[int, ...] = (32, 64, 32, 32)

    def peers(self, device: str) -> dict[str, Step]:
        rng = np.random.default_rng(0)
        image, g = rng.standard_normal((2, *self.shape), np.float32)
        weight = rng.standard_normal((64, 64, 3, 3), np.float32) / 24
        return {
            "minigrad": self.minigrad(image, weight, g, device),
            "torch": self.torch(image, weight, g, device, torch.contiguous_format),
            "channels_last": self.torch(image, weight, g, device, torch.channels_last),
        }

    def minigrad(self, image: np.ndarray, weight: np.ndarray, g: np.ndarray, device: str) -> Step:
        x, seed = (to_device(channels_last(a), device) for a in (image, g))
        x = Tensor(x, requires_grad=True)
        w: Any = Tensor(to_device(weight, device), requires_grad=True)

        def step() -> float:
            x.grad = w.grad = None
            with Tape() as tape:
                y = ops.conv2d(x, w, padding=1)
            tape.backward(y, seed)
            return float(w.grad.ravel()[0])  # pyright: ignore

        return step

    def torch(self, image: np.ndarray, weight: np.ndarray, g: np.ndarray, device: str, layout: Any) -> Step:
        where = "cpu" if device == "numpy" else "cuda"
        x, w, seed = (torch.from_numpy(a).to(where).to(memory_format=layout) for a in (image, weight, g))
        x.requires_grad_()
        w.requires_grad_()

        def step() -> float:
            x.grad = w.grad = None
            torch.nn.functional.conv2d(x, w, padding=1).backward(seed)
            return w.grad.ravel()[0].item()  # pyright: ignore

        return step


def channels_last(images: np.ndarray) -> np.ndarray:
    """The (N, C, H, W) ``images``, channels last in memory, as minigrad's image ops hand them on."""
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


RELU, POOL, FLATTEN = ("relu",), ("pool",), ("flatten",)
WORKLOADS = {
    "W1": Network(
        "MLP 784-128-128-10, batch 128",
        0.80,
        (128, 784),
        [("linear", 784, 128), RELU, ("linear", 128, 128), RELU, ("linear", 128, 10)],
    ),
    "W2": Network(
        "MLP 1024-2048-2048-10, batch 256",
        1.02,
        (256, 1024),
        [("linear", 1024, 2048), RELU, ("linear", 2048, 2048), RELU, ("linear", 2048, 10)],
    ),
    "W3": Network(
        "LeNet 1x28x28, batch 64",
        0.95,
        (64, 1, 28, 28),
        [
            *(("conv", 1, 16), POOL, RELU, ("conv", 16, 32), POOL, RELU, FLATTEN),
            *(("linear", 1568, 128), RELU, ("linear", 128, 10)),
        ],
    ),
    "W4": Network(
        "VGG-ish 3x32x32, batch 64",
        1.0,
        (64, 3, 32, 32),
        [
            *(("conv", 3, 32), RELU, ("conv", 32, 32), POOL, RELU),
            *(("conv", 32, 64), RELU, ("conv", 64, 64), POOL, RELU, FLATTEN),
            *(("linear", 4096, 256), RELU, ("linear", 256, 10)),
        ],
        1e-3,
    ),
    "W5": Chain(),
    "W6": Convolution(),
    "W7": Transformer(),
}
