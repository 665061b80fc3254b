"""Convolutions on a GPU: the kernels of ``minigrad/ops/fast/implicit.py`` by tile, against float64 and cuDNN.

python benchmarks/gpu_conv.py                      # seven layers, each tile: microseconds and errors
python benchmarks/gpu_conv.py --small --values     # small layers, and no times
python benchmarks/gpu_conv.py --small --tiles 1    # with the first tile only
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from gpu_parts import capture_stream, has_torch, microseconds, microseconds_of_torch, print_table, torch

from minigrad import Tape, Tensor, ops
from minigrad.device import cuda_problem, first_line, to_device, to_host
from minigrad.memory_order import nchw, nhwc
from minigrad.ops.fast.implicit import TILES, Tile, convolve_and_pool, kernels_for
from minigrad.ops.geometry import Geometry

GEOMETRY = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
MORE_TILES = (  # that no layer has yet
    Tile(128, 64, 8, 8, 8),
    Tile(64, 64, 16, 8, 4),
    Tile(128, 128, 8, 8, 8),
    Tile(256, 64, 8, 8, 8),
)
MOST_ERROR = 1e-5  # of the largest element
NEAR = 1e-4  # of a tie or of the ReLU's edge, where rounding may decide what gets the gradient
STEPS = ("forward", "image gradient", "weight gradient")
Calls = tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]


class Layer(NamedTuple):
    """A 3 x 3 convolution of images (N, H, W, C) with padding 1, bias, pooling by ``pool`` and ReLU."""

    name: str
    images: tuple[int, int, int, int]
    filters: int
    pool: int = 1
    relu: bool = True

    def __str__(self) -> str:
        images, pooling = "x".join(map(str, self.images)), f", pool {self.pool}" if self.pool > 1 else ""
        return f"{self.name}, {images} -> {self.filters}{pooling}{', ReLU' if self.relu else ''}"

    @property
    def flops(self) -> float:
        """The operations of one of the three steps."""
        return 2.0 * np.prod(self.images) * 9 * self.filters


LAYERS = (
    Layer("W3 conv 1", (64, 28, 28, 1), 16, pool=2),
    Layer("W3 conv 2", (64, 14, 14, 16), 32, pool=2),
    Layer("W4 conv 1", (64, 32, 32, 3), 32),
    Layer("W4 conv 2", (64, 32, 32, 32), 32, pool=2),
    Layer("W4 conv 3", (64, 16, 16, 32), 64),
    Layer("W4 conv 4", (64, 16, 16, 64), 64, pool=2),
    Layer("W6", (32, 32, 32, 64), 64, relu=False),
)
SMALL = (
    Layer("small 1", (2, 7, 9, 3), 8),
    Layer("small 2", (3, 8, 6, 4), 20, pool=2),
    Layer("small 3", (1, 5, 6, 8), 6, relu=False),
)


class Arrays(NamedTuple):
    """Images (N, H, W, C), weights (F, C, 3, 3), bias (F,), and the gradient of the outputs (N, H, W, F)."""

    x: Any
    w: Any
    b: Any
    g: Any

    def on_gpu(self) -> Arrays:
        return Arrays(*(to_device(a, "cupy") for a in self))


def main(
    small: Annotated[bool, typer.Option(help="small layers, for a rehearsal")] = False,
    values: Annotated[bool, typer.Option(help="no times")] = False,
    tiles: Annotated[int, typer.Option(min=1, help="how many of the tiles to try")] = 99,
) -> None:
    """Print a table for each layer; status 1: a value is wrong."""
    if problem := cuda_problem():
        print(problem)
        raise typer.Exit(2)
    layers, tried = SMALL if small else LAYERS, (*TILES, *MORE_TILES)[:tiles]
    with ThreadPoolExecutor() as pool:  # each module is a second of the compiler, which works on all cores
        list(
            pool.map(
                lambda job: compile_kernels(*job), [(x, tile) for x in layers for tile in (None, *tried)]
            )
        )
    wrong = 0
    for layer in layers:
        arrays, expected = problem_of(layer)
        rows = [row_of(layer, arrays.on_gpu(), expected, tile, not values) for tile in (None, *tried)]
        wrong += sum(not row[-1].startswith("yes") for row in rows)
        if not values:
            rows += rows_of_cudnn(layer, arrays)
        times = [] if values else [*(f"{step}, us" for step in STEPS), "TFLOP/s"]
        print_table(str(layer), ["tile", *times, "right (error)"], rows)
    print(f"{wrong} of {len(layers) * (1 + len(tried))} are wrong")
    raise typer.Exit(int(wrong > 0))


def compile_kernels(layer: Layer, tile: Tile | None) -> None:
    """Compile what ``convolve_and_pool`` will launch; where that fails, ``row_of`` says why."""
    weights = (layer.filters, layer.images[3], 3, 3)
    with suppress(Exception):
        for kernels in kernels_for(layer.images, weights, GEOMETRY, "f", layer.relu, layer.pool, tile):
            kernels.module.get_function("correlate")


def problem_of(layer: Layer) -> tuple[Arrays, Arrays]:
    """Arrays in float32; in float64 the outputs, and the gradients of images, weights and bias, by NumPy.

    The gradient g is 0 where rounding could decide which pixel is the largest, or what the ReLU lets through.
    """
    rng, (n, h, w, c), pool = np.random.default_rng(0), layer.images, layer.pool
    shapes = (n, h, w, c), (layer.filters, c, 3, 3), (layer.filters,)
    x, kernel, b = (rng.standard_normal(shape, np.float32) for shape in shapes)
    kernel /= np.float32(3 * c**0.5)  # so that the outputs are about 1
    inputs = [Tensor(a.astype(np.float64), requires_grad=True) for a in (nchw(x), kernel, b)]
    plain = nhwc(ops.conv2d(*(a.data for a in inputs), padding=1).data)
    rows, columns = h // pool, w // pool
    windows = plain[:, : rows * pool, : columns * pool].reshape(n, rows, pool, columns, pool, -1)
    ordered = np.sort(windows.transpose(0, 1, 3, 5, 2, 4).reshape(n, rows, columns, -1, pool**2))
    is_clear = np.ones(ordered.shape[:-1], bool)
    if pool > 1:
        is_clear &= ordered[..., -1] - ordered[..., -2] > NEAR
    if layer.relu:
        is_clear &= abs(ordered[..., -1]) > NEAR
    g = rng.standard_normal(is_clear.shape, np.float32) * is_clear
    with Tape() as tape:
        y = ops.conv_pool2d(*inputs, pool=pool, relu=layer.relu, padding=1)
    tape.backward(y, nchw(g.astype(np.float64)))
    images, weights, bias = (a.grad for a in inputs)
    return Arrays(x, kernel, b, g), Arrays(nhwc(y.data), nhwc(images), weights, bias)


def calls_of(layer: Layer, arrays: Arrays, tile: Tile | None) -> Calls:
    """The three steps, each to be called alone; views of g, since a pullback keeps its result for one g."""
    x, w, b, g = arrays
    forward = partial(convolve_and_pool, x, w, GEOMETRY, b, layer.relu, layer.pool, tile)
    to_images, to_weights, _ = forward()[1]
    return (lambda: forward()[0]), (lambda: to_images(g[:])), (lambda: to_weights(g[:]))


def row_of(layer: Layer, arrays: Arrays, expected: Arrays, tile: Tile | None, timed: bool) -> list[Any]:
    """A row of the table: microseconds, the rate of all three steps, and whether the values are right."""
    name = "x".join(map(str, tile)) if tile else "as chosen"
    try:
        y, pullbacks = convolve_and_pool(*arrays[:2], GEOMETRY, arrays.b, layer.relu, layer.pool, tile)
        values = [to_host(a) for a in (y, *(pull(arrays.g) for pull in pullbacks))]
        error = max(float(abs(a - e).max() / abs(e).max()) for a, e in zip(values, expected, strict=True))
        verdict = f"{'yes' if error < MOST_ERROR else 'NO'} ({error:.0e})"
        times = [microseconds(call) for call in calls_of(layer, arrays, tile)] if timed else []
    except Exception as error:  # a tile that the compiler or the GPU refuses
        return [name, *([""] * 4 if timed else []), f"NO ({first_line(error)[:80]})"]
    return [name, *rated(layer, times), verdict]


def rated(layer: Layer, times: list[float]) -> list[str]:
    rate = [f"{3 * layer.flops / sum(times) / 1e6:.1f}"] if times else []
    return [*(f"{us:.1f}" for us in times), *rate]


def rows_of_cudnn(layer: Layer, arrays: Arrays) -> Iterator[list[Any]]:
    """PyTorch's figures, channels last, in float32 and in TF32."""
    for tf32 in (False, True):
        name = f"cuDNN, {'TF32' if tf32 else 'float32'}"
        if not has_torch():
            yield [name, "absent"]
            continue
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        stream = capture_stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                calls = calls_of_torch(layer, arrays, "cuda")
                for call in calls:
                    call()
            yield [name, *rated(layer, [microseconds_of_torch(call) for call in calls])]
        except Exception as error:  # of PyTorch; our own figures stand
            yield [name, f"failed: {first_line(error)[:80]}"]


def calls_of_torch(layer: Layer, arrays: Arrays, device: str) -> Calls:
    """The three steps in PyTorch; ``device`` is "cuda" or "cpu"."""
    last = {"device": device, "memory_format": torch.channels_last}
    x, g = (torch.from_numpy(np.ascontiguousarray(nchw(a))).to(**last) for a in (arrays.x, arrays.g))
    w, b = torch.from_numpy(arrays.w).to(**last), torch.from_numpy(arrays.b).to(device)
    for leaf in (x, w, b):
        leaf.requires_grad_()

    def forward() -> Any:
        y = torch.nn.functional.conv2d(x, w, b, padding=1)
        y = torch.nn.functional.max_pool2d(y, layer.pool) if layer.pool > 1 else y
        return torch.relu(y) if layer.relu else y

    y = forward()

    def gradients(*leaves: Any) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(y, leaves, g, retain_graph=True)

    return forward, gradients(x), gradients(w, b)


if __name__ == "__main__":
    typer.run(main)
