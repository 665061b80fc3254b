"""What a row of ``ops.py`` needs at least: its products, passes or loops alone, on arrays that are there.

No tape, no checks, nothing allocated. Where they take longer than PyTorch, they are what stands in the way of
a row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minigrad.ops.fast import depthwise
from minigrad.ops.fast.group_norm import write_gradient, write_normalized
from minigrad.ops.geometry import Geometry

Calls = Callable[[], object]


def relu(*shape: int) -> Calls:
    """A maximum with lines of zeros forward; the sign of the bits and a product of bits backward."""
    x, g = normal(2, *shape)
    y, d, zeros = np.empty_like(x), np.empty_like(x), np.zeros(min(x.size, 1 << 14), np.float32)
    lines, out = x.reshape(-1, zeros.size), y.reshape(-1, zeros.size)

    def calls() -> None:
        np.maximum(lines, zeros, out=out)
        np.sign(y.view(np.uint32), out=d.view(np.uint32))
        np.multiply(d.view(np.uint32), g.view(np.uint32), out=d.view(np.uint32))

    return calls


def groups_alone(samples: int, pixels: int, channels: int, groups: int) -> Calls:
    """The loops of a group norm: its value, and the gradient with its sums."""
    x, g, y, d = normal(4, samples, pixels, channels)
    mean, scale, total, along = normal(4, samples, channels)
    weight, bias = normal(2, channels)

    def calls() -> None:
        write_normalized(x, weight, bias, groups, 1e-5, mean, scale, y)
        write_gradient(g, x, weight, groups, mean, scale, total, along, d)

    return calls


def channels_alone(n: int, channels: int, size: int, kernel: int, stride: int = 1) -> Calls:
    """The loops of a depthwise convolution: its value, the gradient of the images, and that of the kernel."""
    x, d = normal(2, n, size, size * channels)
    y, g = normal(2, n, size // stride, size // stride * channels)
    geometry = Geometry((kernel, kernel), (stride, stride), (kernel // 2, kernel // 2), (1, 1))
    together = 512 // channels + 1 if stride == 1 else 1
    (factors,), (biases,) = normal(1, kernel, kernel, together * channels), normal(1, together * channels)
    chains, sums = np.zeros(factors.shape, np.float32), np.zeros((kernel, kernel, channels))
    windows = depthwise.windows_on_image(size, geometry), (stride, stride, kernel // 2, 1)

    def calls() -> None:
        depthwise.write_outputs(x, y, factors, biases, sums, *windows)
        depthwise.write_images(d, g, factors, biases, sums, *windows)
        depthwise.write_factors(x, g, chains, biases, sums, *windows)

    return calls


def convolution(windows: int, size: int, filters: int, pixels: int, channels: int, of_filters: int) -> Calls:
    """The products of ``windows`` of ``size`` numbers, and those of the gradients' windows on all pixels.

    The latter have ``of_filters`` numbers; there are none where it is 0, as for data.
    """
    value, kernel = products(windows, size, filters), products(windows, size, filters, transposed=True)
    return together(value, kernel, *([products(pixels, of_filters, channels)] if of_filters else []))


def data_of_few_channels(n: int, size: int, channels: int, filters: int, kernel: int, stride: int) -> Calls:
    """A convolution of data: the products and, for rows of few numbers, windows copied twice.

    What a column of the kernel sees is copied in such rows; what its taps see of that, image by image.
    """
    windows, taps = n * size * size, kernel * kernel
    rows, images = windows * kernel * channels, windows * taps * channels
    columns = together(copies(rows, size, stride), copies(images, size * size))
    return together(columns, columns, convolution(windows, taps * channels, filters, 0, 0, 0))


def copies(count: int, width: int, step: int = 1) -> Calls:
    """So many numbers copied in rows of ``width``, from every ``step``-th number of a row in the cache."""
    lines = (1 << 18) // width
    (x,), y = normal(1, lines, width * step), np.empty((lines, width), np.float32)

    def calls() -> None:
        for start in range(0, count // width, lines):
            n = min(lines, count // width - start)
            np.copyto(y[:n], x[:n, ::step])

    return calls


def products(rows: int, size: int, columns: int, transposed: bool = False) -> Calls:
    """So many rows in matrices (m, size), each times (size, columns), or transposed times (m, columns).

    A matrix has up to a million multiplications, for which OpenBLAS is fastest; a transposed one with many
    columns has four million, or there would be too many products to add up. A megabyte of them, which stays
    in the cache, stands for all.
    """
    most = 10**6 if not transposed or 64 * size * columns <= 10**6 else 4 * 10**6
    m = min(max(most // (size * columns), 16), rows)
    count = -(-rows // m)
    part = min(count, max((1 << 18) // (m * size), 1))
    (a,), (b,), (w,) = normal(1, part, m, size), normal(1, part, m, columns), normal(1, size, columns)
    d, left = np.empty((part, size, columns), np.float32), count % part

    def calls() -> None:
        for run in [part] * (count // part) + [left] * bool(left):
            if transposed:
                np.matmul(a[:run].transpose(0, 2, 1), b[:run], out=d[:run])
            else:
                np.matmul(a[:run], w, out=b[:run])

    return calls


def together(*calls: Calls) -> Calls:
    return lambda: [call() for call in calls]


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
    "group_norm 8 32x64x32x32": lambda: groups_alone(32, 32 * 32, 64, 8),
    "group_norm 32 8x256x14x14": lambda: groups_alone(8, 14 * 14, 256, 32),
    "conv 32->32 3x3 groups 32 on 32x32x32x32": lambda: channels_alone(32, 32, 32, 3),
    "conv 128->128 3x3 groups 128 stride 2 on 8x128x28x28": lambda: channels_alone(8, 128, 28, 3, stride=2),
    "conv 3->64 7x7 stride 2 on 8x3x64x64, data": lambda: data_of_few_channels(8, 32, 3, 64, 7, stride=2),
    "conv_transpose 128->64 4x4 stride 2 padding 1 on 16x128x16x16": lambda: convolution(
        16 * 32 * 32, 4 * 128, 64, 16 * 16 * 16, 128, 16 * 64
    ),
}
