"""What numba would bring: ops of ``ops.py`` as compiled loops on one thread, beside minigrad's own.

The loops stand in ops like minigrad's, so the tape and the check of all values are the same. They take
float32, and images channels-last in memory. Sums may be reordered, so that the compiler adds vectors; sums of
columns have chains of up to ``CHAIN`` additions, as in ``minigrad/sums.py``. An error is the largest
difference from float64, in the value or a gradient, divided by the largest element.

python benchmarks/numba_kernels.py            # needs PyTorch and numba: pip install torch numba
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import files
from time import process_time
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from threadpoolctl import threadpool_limits

before = process_time()
try:
    from numba import njit  # pyright: ignore[reportMissingImports]
except ImportError:
    print("numba's loops are what is measured here; install it: pip install numba")
    sys.exit(2)
IMPORT_SECONDS = process_time() - before

import torch  # noqa: E402  # pyright: ignore[reportMissingImports]
from ops import console, measure, seconds  # noqa: E402
from ops_rows import ROWS, Function, Row, Step  # noqa: E402

from minigrad import op  # noqa: E402
from minigrad.op import OpResult  # noqa: E402
from minigrad.ops.geometry import nchw, nhwc  # noqa: E402
from minigrad.tape import once  # noqa: E402

Array = np.ndarray
f32 = np.float32
CHAIN = 64
EPS = f32(1e-5)
loops = njit(fastmath={"contract", "reassoc"}, error_model="numpy")
exact_loops = njit(fastmath={"contract"}, error_model="numpy")


# Element by element


@exact_loops
def exponential(x):
    """e ** x as 2 ** n times a polynomial (Moshier's Cephes), which the compiler can do in vectors."""
    x = min(max(x, f32(-87)), f32(88))
    n = math.floor(x * f32(1.44269504) + f32(0.5))
    r = x - n * f32(0.693359375) + n * f32(2.12194440e-4)
    p = f32(1.9875691500e-4) * r + f32(1.3981999507e-3)
    p = ((p * r + f32(8.3334519073e-3)) * r + f32(4.1665795894e-2)) * r + f32(1.6666665459e-1)
    p = (p * r + f32(0.5)) * r * r + r + f32(1)
    return p * np.int32((np.int32(n) + 127) << 23).view(f32)


@loops
def sigmoid_forward(x, y):
    for i in range(x.size):
        y[i] = f32(1) / (f32(1) + exponential(-x[i]))


@loops
def sigmoid_backward(g, y, d):
    for i in range(g.size):
        d[i] = g[i] * y[i] * (f32(1) - y[i])


@loops
def leaky_relu_forward(x, y):
    for i in range(x.size):
        y[i] = x[i] if x[i] > 0 else f32(0.01) * x[i]


@loops
def leaky_relu_backward(g, x, d):
    for i in range(g.size):
        d[i] = g[i] if x[i] > 0 else f32(0.01) * g[i]


# Row by row


@loops
def largest_of(x):
    """The maxima of every 256th number first, which the compiler can do in vectors."""
    top = np.full(256, x[0])
    for j in range(0, len(x) - 255, 256):
        part = x[j : j + 256]
        for k in range(256):
            top[k] = max(top[k], part[k])
    return max(top.max(), x[-256:].max())


@loops
def softmax_forward(x, y):
    for i in range(len(x)):
        largest, total = largest_of(x[i]), f32(0)
        for j in range(x.shape[1]):
            y[i, j] = exponential(x[i, j] - largest)
            total += y[i, j]
        for j in range(x.shape[1]):
            y[i, j] /= total


@loops
def softmax_backward(g, y, d):
    for i in range(len(g)):
        along = f32(0)
        for j in range(g.shape[1]):
            along += g[i, j] * y[i, j]
        for j in range(g.shape[1]):
            d[i, j] = (g[i, j] - along) * y[i, j]


@loops
def log_softmax_forward(x, y):
    for i in range(len(x)):
        largest, total = largest_of(x[i]), f32(0)
        for j in range(x.shape[1]):
            total += exponential(x[i, j] - largest)
        shift = largest + math.log(total)
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] - shift


@loops
def log_softmax_backward(g, y, d):
    for i in range(len(g)):
        total = f32(0)
        for j in range(g.shape[1]):
            total += g[i, j]
        for j in range(g.shape[1]):
            d[i, j] = g[i, j] - exponential(y[i, j]) * total


@loops
def layer_norm_forward(x, weight, bias, y, mean, scale):
    n, columns = x.shape
    for i in range(n):
        total, squares = f32(0), f32(0)
        for j in range(columns):
            total += x[i, j]
        mean[i] = total / f32(columns)
        for j in range(columns):
            squares += (x[i, j] - mean[i]) ** 2
        scale[i] = f32(1) / math.sqrt(squares / f32(columns) + EPS)
        for j in range(columns):
            y[i, j] = (x[i, j] - mean[i]) * scale[i] * weight[j] + bias[j]


@loops
def layer_norm_backward(g, x, weight, mean, scale, d, to_weight, to_bias):
    n, columns = x.shape
    for start in range(0, n, CHAIN):
        part_weight, part_bias = np.zeros(columns, f32), np.zeros(columns, f32)
        for i in range(start, min(start + CHAIN, n)):
            total, along = f32(0), f32(0)
            for j in range(columns):
                slope, normal = g[i, j] * weight[j], (x[i, j] - mean[i]) * scale[i]
                total += slope
                along += slope * normal
                part_weight[j] += g[i, j] * normal
                part_bias[j] += g[i, j]
            total, along = total / f32(columns), along / f32(columns)
            for j in range(columns):
                normal = (x[i, j] - mean[i]) * scale[i]
                d[i, j] = (g[i, j] * weight[j] - total - normal * along) * scale[i]
        to_weight += part_weight
        to_bias += part_bias


# Channel by channel


@loops
def column_sums(x):
    """Over the rows of a matrix (N, C)."""
    n, columns = x.shape
    total = np.zeros(columns, f32)
    for start in range(0, n, CHAIN):
        part = np.zeros(columns, f32)
        for i in range(start, min(start + CHAIN, n)):
            for j in range(columns):
                part[j] += x[i, j]
        total += part
    return total


@loops
def column_dots(x, y, mean):
    """The sums of x (y - mean)."""
    n, columns = x.shape
    total = np.zeros(columns, f32)
    for start in range(0, n, CHAIN):
        part = np.zeros(columns, f32)
        for i in range(start, min(start + CHAIN, n)):
            for j in range(columns):
                part[j] += x[i, j] * (y[i, j] - mean[j])
        total += part
    return total


@loops
def column_squares(x, mean):
    """The sums of (x - mean) ** 2."""
    n, columns = x.shape
    total = np.zeros(columns, f32)
    for start in range(0, n, CHAIN):
        part = np.zeros(columns, f32)
        for i in range(start, min(start + CHAIN, n)):
            for j in range(columns):
                part[j] += (x[i, j] - mean[j]) ** 2
        total += part
    return total


@loops
def group_means(x, size, count):
    """The sums of ``size`` neighbours divided by ``count``, at each of them."""
    y = np.empty_like(x)
    for k in range(0, len(x), size):
        y[k : k + size] = x[k : k + size].sum() / f32(count)
    return y


@loops
def normalized(x, groups, weight, bias, y, mean, scale):
    """(N, P, C), with mean 0 and variance 1 in each of the groups of a sample's channels."""
    n, pixels, channels = x.shape
    size = channels // groups
    for i in range(n):
        mean[i] = group_means(column_sums(x[i]), size, pixels * size)
        variance = group_means(column_squares(x[i], mean[i]), size, pixels * size)
        scale[i] = f32(1) / np.sqrt(variance + EPS)
        factor = scale[i] * weight
        for p in range(pixels):
            for j in range(channels):
                y[i, p, j] = (x[i, p, j] - mean[i, j]) * factor[j] + bias[j]


@loops
def normalized_backward(g, x, groups, weight, mean, scale, d, to_weight, to_bias):
    n, pixels, channels = x.shape
    size = channels // groups
    for i in range(n):
        total, along = column_sums(g[i]), column_dots(g[i], x[i], mean[i]) * scale[i]
        to_weight += along
        to_bias += total
        shift = group_means(weight * total, size, pixels * size) * scale[i]
        slope = group_means(weight * along, size, pixels * size) * scale[i] ** 2
        factor = scale[i] * weight
        for p in range(pixels):
            for j in range(channels):
                d[i, p, j] = g[i, p, j] * factor[j] - shift[j] - (x[i, p, j] - mean[i, j]) * slope[j]


# Windows


@loops
def max_pool_forward(x, stride, y, places):
    """Windows of 3 x 3; of equal numbers the first is the largest, and of numbers and NaN NaN."""
    n, rows, columns, channels = y.shape
    for image in range(n):
        for i in range(rows):
            for j in range(columns):
                for c in range(channels):
                    best, place = x[image, i * stride, j * stride, c], np.int8(0)
                    for a in range(3):
                        for b in range(3):
                            pixel = x[image, i * stride + a, j * stride + b, c]
                            larger = (pixel > best) | (pixel != pixel)
                            best, place = (pixel, np.int8(3 * a + b)) if larger else (best, place)
                    y[image, i, j, c], places[image, i, j, c] = best, place


@loops
def max_pool_backward(g, places, stride, d):
    n, rows, columns, channels = g.shape
    for image in range(n):
        for i in range(rows):
            for j in range(columns):
                for a in range(3):
                    for b in range(3):
                        for c in range(channels):
                            share = g[image, i, j, c] if places[image, i, j, c] == 3 * a + b else f32(0)
                            d[image, i * stride + a, j * stride + b, c] += share


@loops
def depthwise_forward(x, w, bias, stride, y):
    """w is (3, 3, C); the padding is 1."""
    n, rows, columns, channels = y.shape
    padded = np.zeros((x.shape[1] + 2, x.shape[2] + 2, channels), f32)
    for image in range(n):
        padded[1:-1, 1:-1] = x[image]
        for i in range(rows):
            for j in range(columns):
                for c in range(channels):
                    total = bias[c]
                    for a in range(3):
                        for b in range(3):
                            total += padded[i * stride + a, j * stride + b, c] * w[a, b, c]
                    y[image, i, j, c] = total


@loops
def depthwise_to_image(g, w, stride, d):
    n, rows, columns, channels = g.shape
    padded = np.empty((d.shape[1] + 2, d.shape[2] + 2, channels), f32)
    for image in range(n):
        padded[:] = 0
        for i in range(rows):
            for j in range(columns):
                for a in range(3):
                    for b in range(3):
                        for c in range(channels):
                            padded[i * stride + a, j * stride + b, c] += g[image, i, j, c] * w[a, b, c]
        d[image] = padded[1:-1, 1:-1]


@loops
def depthwise_to_kernel(g, x, stride, d):
    n, rows, columns, channels = g.shape
    padded = np.zeros((x.shape[1] + 2, x.shape[2] + 2, channels), f32)
    for image in range(n):
        padded[1:-1, 1:-1] = x[image]
        for i in range(rows):
            part = np.zeros(d.shape, f32)
            for j in range(columns):
                for a in range(3):
                    for b in range(3):
                        for c in range(channels):
                            part[a, b, c] += g[image, i, j, c] * padded[i * stride + a, j * stride + b, c]
            d += part


# The ops


def new(kernel: Callable[..., Any], shape: tuple[int, ...], *arguments: Any) -> Array:
    """An array that the kernel fills; it is its last argument."""
    y = np.empty(shape, f32)
    kernel(*arguments, y)
    return y


@op
def sigmoid(x: Array) -> OpResult:
    x, shape = x.reshape(-1), x.shape
    y = new(sigmoid_forward, x.shape, x)
    return y.reshape(shape), (lambda g: new(sigmoid_backward, x.shape, g.reshape(-1), y).reshape(shape),)


@op
def leaky_relu(x: Array) -> OpResult:
    x, shape = x.reshape(-1), x.shape
    y = new(leaky_relu_forward, x.shape, x)
    return y.reshape(shape), (lambda g: new(leaky_relu_backward, x.shape, g.reshape(-1), x).reshape(shape),)


@op
def softmax(x: Array) -> OpResult:
    y = new(softmax_forward, x.shape, x)
    return y, (lambda g: new(softmax_backward, x.shape, g, y),)


@op
def log_softmax(x: Array) -> OpResult:
    y = new(log_softmax_forward, x.shape, x)
    return y, (lambda g: new(log_softmax_backward, x.shape, g, y),)


@op
def layer_norm(x: Array, weight: Array, bias: Array) -> OpResult:
    rows, shape = x.reshape(-1, x.shape[-1]), x.shape
    y, (mean, scale) = np.empty_like(rows), np.empty((2, len(rows)), f32)
    layer_norm_forward(rows, weight, bias, y, mean, scale)

    @once
    def gradients(g: Array) -> tuple[Array, Array, Array]:
        d, (to_weight, to_bias) = np.empty_like(rows), np.zeros((2, len(weight)), f32)
        layer_norm_backward(g.reshape(rows.shape), rows, weight, mean, scale, d, to_weight, to_bias)
        return d.reshape(shape), to_weight, to_bias

    return y.reshape(shape), tuple(lambda g, k=k: gradients(g)[k] for k in range(3))


@op
def group_norm(x: Array, weight: Array, bias: Array, *, groups: int, of_batch: bool = False) -> OpResult:
    """Of images (N, C, H, W); or of a whole batch, where each channel is a group, and of (N, C)."""
    images = nhwc(x) if x.ndim == 4 else x
    samples = images.reshape(1 if of_batch else len(x), -1, x.shape[1])
    y, (mean, scale) = np.empty_like(samples), np.zeros((2, len(samples), x.shape[1]), f32)
    normalized(samples, groups, weight, bias, y, mean, scale)

    def turned(y: Array) -> Array:
        return nchw(y.reshape(images.shape)) if x.ndim == 4 else y.reshape(x.shape)

    @once
    def gradients(g: Array) -> tuple[Array, Array, Array]:
        d, (to_weight, to_bias) = np.empty_like(samples), np.zeros((2, len(weight)), f32)
        g = (nhwc(g) if x.ndim == 4 else g).reshape(samples.shape)
        normalized_backward(g, samples, groups, weight, mean, scale, d, to_weight, to_bias)
        return turned(d), to_weight, to_bias

    return turned(y), tuple(lambda g, k=k: gradients(g)[k] for k in range(3))


def batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return group_norm(x, weight, bias, groups=x.shape[1], of_batch=True)


@op
def max_pool(x: Array) -> OpResult:
    """Windows of 3 x 3 at every second pixel."""
    x = nhwc(x)
    rows, columns = ((size - 3) // 2 + 1 for size in x.shape[1:3])
    places = np.empty((len(x), rows, columns, x.shape[3]), np.int8)
    y = np.empty(places.shape, f32)
    max_pool_forward(x, 2, y, places)

    def to_x(g: Array) -> Array:
        d = np.zeros_like(x)
        max_pool_backward(nhwc(g), places, 2, d)
        return nchw(d)

    return nchw(y), (to_x,)


@op
def depthwise(x: Array, weight: Array, bias: Array, *, stride: int) -> OpResult:
    """A kernel of 3 x 3 for each channel, and padding 1."""
    x, w = nhwc(x), np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))
    n, rows, columns, channels = x.shape
    y = new(depthwise_forward, (n, -(-rows // stride), -(-columns // stride), channels), x, w, bias, stride)
    images = once(nhwc)

    def to_x(g: Array) -> Array:
        if stride > 1:
            return nchw(new(depthwise_to_image, x.shape, images(g), w, stride))
        turned = np.ascontiguousarray(w[::-1, ::-1])
        return nchw(new(depthwise_forward, x.shape, images(g), turned, np.zeros_like(bias), 1))

    def to_weight(g: Array) -> Array:
        d = np.zeros_like(w)
        depthwise_to_kernel(images(g), x, stride, d)
        return d.transpose(2, 0, 1)[:, None]

    def to_bias(g: Array) -> Array:
        return column_sums(images(g).reshape(-1, channels))

    return nchw(y), (to_x, to_weight, to_bias)


NORM = (column_sums, column_dots, column_squares, group_means, normalized, normalized_backward)
LAYER_NORM = (layer_norm_forward, layer_norm_backward)
DEPTHWISE = (depthwise_forward, depthwise_to_image, depthwise_to_kernel, column_sums)
OPS: dict[str, tuple[Function, tuple[Any, ...]]] = {  # by the title of the row, with the loops
    "sigmoid 1M": (sigmoid, (exponential, sigmoid_forward, sigmoid_backward)),
    "leaky_relu 1M": (leaky_relu, (leaky_relu_forward, leaky_relu_backward)),
    "softmax 128x10000": (softmax, (exponential, largest_of, softmax_forward, softmax_backward)),
    "log_softmax 128x10000": (
        log_softmax,
        (exponential, largest_of, log_softmax_forward, log_softmax_backward),
    ),
    "layer_norm 32x128x256": (layer_norm, LAYER_NORM),
    "layer_norm 512x768": (layer_norm, LAYER_NORM),
    "group_norm 8 32x64x32x32": (partial(group_norm, groups=8), NORM),
    "batch_norm 32x64x32x32": (batch_norm, NORM),
    "batch_norm 128x512": (batch_norm, NORM),
    "max_pool 3, stride 2 32x32x32x32": (max_pool, (max_pool_forward, max_pool_backward)),
    "conv 32->32 3x3 groups 32 on 32x32x32x32": (partial(depthwise, stride=1), DEPTHWISE),
    "conv 128->128 3x3 groups 128 stride 2 on 8x128x28x28": (partial(depthwise, stride=2), DEPTHWISE),
}


# The table


class Compiled(Row):
    """A row, and the same op as loops."""

    def peers(self) -> dict[str, Step]:
        return {**super().peers(), "numba": self.compiled()}

    def compiled(self) -> Step:
        return Row(**{**vars(self), "mine": OPS[self.title][0]}).minigrad()

    def first_step(self) -> None:
        self.compiled()()


class Precise(Row):
    """A row in float64."""

    def arrays(self) -> list[Array]:
        return [array.astype(np.float64) for array in super().arrays()]

    def seed(self, value: Any) -> Array:
        return super().seed(value).astype(np.float64)


def error(step: Step, reference: Step) -> float:
    pairs = zip(step(), reference(), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def main(rounds: Annotated[int, typer.Option(min=1)] = 9) -> None:
    """Print milliseconds of minigrad, of numba's loops and of PyTorch for each row."""
    torch.set_num_threads(1)
    size = sum(file.size or 0 for name in ("numba", "llvmlite") for file in files(name) or ())
    table = Table(
        title="forward and backward, float32, one thread; ratios to PyTorch's better layout",
        caption=f"numba takes {IMPORT_SECONDS:.2f} s to import, and {size / 2**20:.0f} MB with llvmlite",
    )
    headings = "minigrad\nms", "numba\nms", "PyTorch\nms", "\nminigrad", "\nnumba", "NumPy\nalone"
    for column in ("", *headings, "compiled\nin s", "lines", "minigrad's\nerror", "numba's\nerror"):
        table.add_column(column, justify="right" if column else "left")
    with threadpool_limits(1):
        for row in (Compiled(**vars(row)) for row in ROWS if row.title in OPS):
            first, second = (seconds(row.first_step, 1) for _ in range(2))
            numba = row.compiled()
            row.check({"minigrad": numba, "torch": row.torch(torch.contiguous_format)})
            result, precise = measure(row, rounds), Precise(**vars(row)).minigrad()
            ms = result["ms"]
            lines = sum(count_lines(kernel.py_func) for kernel in OPS[row.title][1])
            table.add_row(
                row.title,
                *(f"{ms[name]:.3f}" for name in ("minigrad", "numba", result["best"])),
                *(f"{result[name]:.2f}" for name in ("minigrad", "numba", "limit")),
                f"{max(first - second, 0):.2f}",
                str(lines),
                *(f"{error(step, precise):.1e}" for step in (row.minigrad(), numba)),
            )
    console.print(table)


def count_lines(function: Callable[..., Any]) -> int:
    """Lines of a function with its decorator, without empty ones."""
    return sum(bool(line.strip()) for line in inspect.getsource(function).splitlines())


if __name__ == "__main__":
    typer.run(main)
