"""What NumPy alone needs for a row of ``ops.py``: its passes and products, on arrays that are there already.

No tape, no checks, nothing allocated: the fewest calls of NumPy that give the value and the gradients. Where
they take longer than PyTorch, they are what stands in the way of a row. A limit of a convolution holds its
matrix products, the cheapest of three ways to them (sums of products by rows of the kernel, the transforms of
Winograd's algorithm down the columns, or, of few channels, the copies of windows), and the bias with its
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

Calls = Callable[[], object]
PART = 1 << 19  # elements that all steps take before the next ones; fewer at a time take longer
RUN = 8  # images at a time, where several calls follow one another: they find them in cache


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


def sums_of_rows(*shape: int) -> Calls:
    """One pass of sums with short chains; one copy of the gradient to all elements of a row."""
    (x,) = normal(1, *shape)
    total, d = np.empty(shape[0], np.float32), np.empty_like(x)

    def calls() -> None:
        np.einsum("nc->n", x, out=total)
        np.copyto(d, total[:, None])

    return calls


def gather(*shape: int) -> Calls:
    """The check of the indices and their places in memory; one pass of ``take``, and one of ``add.at``."""
    x, g = normal(2, *shape).reshape(2, -1)
    indices = np.random.default_rng(2).integers(0, shape[1], shape)
    rows = np.arange(shape[0])[:, None] * shape[1]
    places, y, d = np.empty_like(indices), np.empty(shape, np.float32), np.empty_like(x)
    add_rows = with_short_buffers(lambda: np.add(indices, rows, out=places))

    def calls() -> None:
        indices.view(np.uint64).max()
        add_rows()
        np.take(x, places, mode="wrap", out=y)
        d.fill(0)
        np.add.at(d, places.reshape(-1), g)

    return calls


def layer_norm(rows: int, columns: int) -> Calls:
    """Thirteen passes and six products with a vector, through the cache in parts.

    Of short rows, lines of 2,048 numbers meet the weight and the bias, so that NumPy repeats neither.
    """
    x, g, normalized, y, d = normal(5, rows, columns)
    weight, bias, average = *normal(2, columns), np.full(columns, 1 / columns, np.float32)
    scale, scratch = np.empty((rows, 1), np.float32), np.empty((max(PART // columns, 1), columns), np.float32)
    ones = np.ones(len(scratch), np.float32)
    parts = [slice(start, start + len(scratch)) for start in range(0, rows, len(scratch))]
    width = columns * max(2048 // columns, 1)
    weights, biases = np.resize(weight, width), np.resize(bias, width)

    def with_line(function: Callable[..., object], a: np.ndarray, line: np.ndarray, out: np.ndarray) -> None:
        function(a.reshape(-1, width), line, out=out.reshape(-1, width))

    with_line = with_line if columns >= 512 else with_short_buffers(with_line)

    def calls() -> None:
        for part in parts:
            n, out, products = normalized[part], y[part], scratch[: len(x[part])]
            np.subtract(x[part], (x[part] @ average)[:, None], out=n)
            np.multiply(n, n, out=products)
            np.divide(1, np.sqrt((products @ average)[:, None]), out=scale[part])
            np.multiply(n, scale[part], out=n)
            with_line(np.multiply, n, weights, out)
            with_line(np.add, out, biases, out)
        over_columns = weight / columns
        for part in parts:
            n, out, products, each = normalized[part], d[part], scratch[: len(g[part])], ones[: len(g[part])]
            np.multiply(g[part], n, out=products)
            np.matmul(each, products)
            np.matmul(each, g[part])
            along = (products @ over_columns)[:, None]
            with_line(np.multiply, g[part], weights, out)
            np.subtract(out, (g[part] @ over_columns)[:, None], out=out)
            np.multiply(n, along, out=products)
            np.subtract(out, products, out=out)
            np.multiply(out, scale[part], out=out)

    return with_short_buffers(calls) if columns >= 512 else calls


def batch_norm(rows: int, channels: int, together: int = 1) -> Calls:
    """Seven passes and four sums, through the cache in parts; lines have ``together`` rows.

    A chain of a sum has at most 64 additions, as in ``minigrad/sums.py``: one of all rows would lose digits.
    """
    width = together * channels
    x, g, centred, y, d = normal(5, rows // together, width)
    weight, bias = normal(2, channels)
    step, ones = max(PART // width, 1), np.ones(64, np.float32)
    parts = [slice(start, start + step) for start in range(0, len(x), step)]

    def in_chains(a: np.ndarray) -> np.ndarray:
        return a.reshape(-1, chain_of(len(a)), a.shape[1])

    def sum_of_rows(a: np.ndarray) -> np.ndarray:
        while len(a) > 1:
            blocks = in_chains(a)
            a = ones[: blocks.shape[1]] @ blocks
        return a[0]

    def dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return sum_of_rows(np.einsum("brc,brc->bc", in_chains(a), in_chains(b)))

    def totals(sums: list[np.ndarray]) -> np.ndarray:
        total = sum_of_rows(np.stack(sums)) if len(sums) > 1 else sums[0]
        return sum_of_rows(total.reshape(together, channels))

    def line(numbers: np.ndarray) -> np.ndarray:
        return numbers if together == 1 else repeated(numbers, together)

    def calls() -> None:
        mean, squares = line(totals([sum_of_rows(x[part]) for part in parts]) / rows), []
        for part in parts:
            c = np.subtract(x[part], mean, out=centred[part])
            squares.append(dots(c, c))
        scale = 1 / np.sqrt(totals(squares) / rows + 1e-5)
        factor, shift = line(scale * weight), line(bias)
        for part in parts:
            np.multiply(centred[part], factor, out=y[part])
            np.add(y[part], shift, out=y[part])
        total, along = [], []
        for part in parts:
            total.append(sum_of_rows(g[part]))
            along.append(dots(g[part], centred[part]))
        slope, mean = line(totals(along) * scale * scale / rows), line(totals(total) / rows)
        for part in parts:
            out = np.multiply(centred[part], slope, out=d[part])
            np.add(out, mean, out=out)
            np.subtract(g[part], out, out=out)
            np.multiply(out, factor, out=out)

    return with_short_buffers(calls) if x.size >= 1 << 17 else calls


@cache
def chain_of(rows: int) -> int:
    """The largest divisor up to 64."""
    return next(chain for chain in range(min(rows, 64), 0, -1) if rows % chain == 0)


def repeated(numbers: np.ndarray, count: int) -> np.ndarray:
    """Rows (..., C), so many times side by side; ``tile`` takes longer."""
    copies = np.empty((*numbers.shape[:-1], count, numbers.shape[-1]), numbers.dtype)
    copies[...] = numbers[..., None, :]
    return copies.reshape(*numbers.shape[:-1], -1)


def group_norm(samples: int, pixels: int, channels: int, groups: int, together: int) -> Calls:
    """Seven passes and four sums of each sample: of lines, of channels and of groups, in chains up to 64."""
    rows, width, size = pixels // together, together * channels, channels // groups
    x, g, centred, y, d = normal(5, samples, rows, width)
    weight, bias = normal(2, channels)
    ones, scratch, count = np.ones((1, 64), np.float32), np.empty_like(x), pixels * size

    def totals(a: np.ndarray) -> np.ndarray:
        lines = ones[:, :rows] @ a
        return (ones[:, :together] @ lines.reshape(samples, together, channels))[:, 0]

    def dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        lines = np.einsum("nrc,nrc->nc", a, b)
        return (ones[:, :together] @ lines.reshape(samples, together, channels))[:, 0]

    def means(a: np.ndarray) -> np.ndarray:
        by_group = a.reshape(-1, size) @ ones[0, :size] / count
        return by_group.repeat(size).reshape(samples, channels)

    def line(numbers: np.ndarray) -> np.ndarray:
        return repeated(numbers, together)[:, None]

    def calls() -> None:
        np.subtract(x, line(means(totals(x))), out=centred)
        scale = 1 / np.sqrt(means(dots(centred, centred)) + 1e-5)
        factor = line(scale * weight)
        np.multiply(centred, factor, out=y)
        np.add(y, line(bias[None]), out=y)
        total, along = totals(g), dots(g, centred)
        np.multiply(centred, line(scale**3 * means(along * weight)), out=d)
        np.add(d, line(scale * means(total * weight)), out=d)
        np.subtract(np.multiply(g, factor, out=scratch), d, out=d)

    return with_short_buffers(calls)


def with_short_buffers(calls: Callable[..., object]) -> Callable[..., None]:
    """``calls`` along long rows, where NumPy's buffers would take longer."""

    def unbuffered(*arguments: object) -> None:
        before = np.setbufsize(16)
        calls(*arguments)
        np.setbufsize(before)

    return unbuffered


def convolution(
    windows: int, channels: int, filters: int, taps: int, groups: int = 1, data: bool = False, rows: int = 1
) -> Calls:
    """The products for the value and the two gradients, without that for the image where it is ``data``.

    Channels and filters are those of a group. Each of ``rows`` of a kernel has products of its own, which are
    added up for the value and for the image; with one row nothing is added, and nobody copies the windows. A
    matrix has up to a million multiplications, for which OpenBLAS is fastest. A megabyte of them, which stays
    in the cache, stands for all. The bias is added in the cache, where no copy of windows has room for ones.
    Kernels of 3 to 5 rows go ``by_tiles``.
    """
    if 3 <= rows <= 5:
        return by_tiles(windows * groups, channels, filters, taps // rows, rows, filters * groups)
    outputs, windows, taps = windows * groups * filters, windows * groups, taps // rows
    value = [products(windows * rows, taps * channels, filters), additions(outputs, rows)]
    image = [products(windows * rows, taps * filters, channels), additions(windows * channels, rows)]
    kernel = products(windows * rows, taps * channels, filters, transposed=True)
    return together(*value, *([] if data else image), kernel, bias(outputs, filters * groups, added=not data))


def by_tiles(windows: int, channels: int, filters: int, taps: int, rows: int, outputs: int) -> Calls:
    """Winograd's algorithm down the columns: 6 products for 7 - ``rows`` rows of outputs, and its transforms.

    The tiles of the images are kept for the kernel's gradient, and the bias stands in a seventh product.
    """
    out = 7 - rows
    many = 6 * windows // out
    return together(
        transforms(many * channels, 6, 6),
        products(many, taps * channels, filters),
        transforms(windows * filters, out, 7),
        transforms(many * filters, 6, 6),
        products(many, taps * filters, channels),
        transforms(windows * channels, out, 6),
        transforms(many * filters, 6, out),
        products(many, taps * channels, filters, transposed=True),
        bias(windows * filters, outputs, added=False),
    )


def transforms(numbers: int, out: int, terms: int) -> Calls:
    """So many numbers, in products of a matrix (out, terms) with lines of 512 numbers in the cache."""
    count, lines = -(-numbers // (out * 512)), 64
    (matrix,), (x,), (y,) = normal(1, out, terms), normal(1, lines, terms, 512), normal(1, lines, out, 512)

    def calls() -> None:
        for start in range(0, count, lines):
            n = min(lines, count - start)
            np.matmul(matrix, x[:n], out=y[:n])

    return calls


def bias(outputs: int, filters: int, added: bool) -> Calls:
    """A bias ``added`` to outputs in the cache, and its gradient, in chains of 32 additions."""
    lines = (1 << 18) // (32 * filters)
    (g,), (b,) = normal(1, lines, 32, filters), normal(1, 32 * filters)
    ones, y = np.ones((1, 32), np.float32), g.reshape(lines, 32 * filters)

    def calls() -> None:
        for start in range(0, outputs // (32 * filters), lines):
            n = min(lines, outputs // (32 * filters) - start)
            np.matmul(ones, g[:n])
            if added:
                np.add(y[:n], b, out=y[:n])

    return calls


def one_image(size: int, channels: int, filters: int, tile: int = 1, data: bool = False) -> Calls:
    """A 3 x 3 convolution of one image, with bias; with a ``tile``, max pooling of that size and ReLU too."""
    m, (x,) = size**2 // tile**2, normal(1, size, size, channels)
    w, dw = normal(2, 9 * channels + 1, filters)
    (y, gs), (best, out, g, masked, zeros) = normal(2, tile * tile, m, filters), normal(5, m, filters)
    mask, winners = np.empty(g.shape, bool), np.empty(y.shape, bool)
    matrix, windows = windows_of_one(x, tile)
    products, gradients = y.reshape(-1, filters), gs.reshape(-1, filters)
    to_image = together() if data else image_gradient(gradients, size, channels)

    def calls() -> None:
        windows()
        np.matmul(matrix, w, out=products)
        if tile > 1:
            np.maximum.reduce(y, axis=0, out=best)
            np.maximum(best, zeros, out=out)
            np.greater(best, zeros, out=mask)
            np.multiply(g, mask, out=masked)
            np.equal(y, best, out=winners)
            np.multiply(winners, masked, out=gs)
        np.matmul(matrix.T, gradients, out=dw)
        to_image()

    return calls


def windows_of_one(x: np.ndarray, tile: int) -> tuple[np.ndarray, Calls]:
    """A matrix of the windows, phase by phase of a ``tile``, and two copies that fill it.

    A window has a 1 behind its last number, so that the products hold the bias and its gradient.
    """
    size, _, channels = x.shape
    padded = np.zeros((size + 2, size + 2, channels), np.float32)
    row, column, channel = padded.strides
    shape = tile, tile, size // tile, size // tile, 3, 3, channels
    strides = row, column, row * tile, column * tile, row, column, channel
    patches = np.lib.stride_tricks.as_strided(padded, shape, strides)
    few, inside = channels < 8, padded[1:-1, 1:-1]
    matrix = np.ones((size * size, 9 * channels + 1), np.float32, order="F" if few else "C")
    patches = patches.transpose(4, 5, 6, 0, 1, 2, 3) if few else patches
    places = (matrix.T[:-1] if few else matrix[:, :-1]).reshape(patches.shape)
    return matrix, lambda: (np.copyto(inside, x), np.copyto(places, patches))


def image_gradient(g: np.ndarray, size: int, channels: int) -> Calls:
    """A convolution of g; of few channels, for each pixel the sum of what each tap of the windows adds."""
    (d,), (w,) = normal(1, size * size, channels), normal(1, 9 * channels, g.shape[1])
    if channels >= 8:
        matrix, windows = windows_of_one(g.reshape(size, size, -1), 1)
        (turned,) = normal(1, matrix.shape[1], channels)
        return together(windows, lambda: np.matmul(matrix, turned, out=d))
    shares = np.empty((len(w), size * size), np.float32)
    apart = np.zeros((len(w), size + 4, size + 4), np.float32)
    inside, image = apart[:, 2:-2, 2:-2], d.reshape(channels, size, size)
    tap, row, column = apart.strides
    patches = np.lib.stride_tricks.as_strided(
        apart[:, 3:, 3:],
        (3, 3, channels, size, size),
        (3 * channels * tap - row, channels * tap - column, tap, row, column),
    )

    def calls() -> None:
        np.matmul(w, g.T, out=shares)
        np.copyto(inside, shares.reshape(inside.shape))
        np.add.reduce(patches, axis=(0, 1), out=image)

    return calls


def one_vector(features: int, outputs: int) -> Calls:
    """A linear layer of one sample; the gradient of its bias is there already."""
    (x, d), (y, g, bias), (w, dw) = normal(2, features), normal(3, outputs), normal(2, outputs, features)

    def calls() -> None:
        np.matmul(w, x, out=y)
        np.add(y, bias, out=y)
        np.matmul(g, w, out=d)
        np.dot(g[:, None], x[None], out=dw)

    return calls


def lenet_of_one() -> Calls:
    """The five layers, and two copies between the memory orders of images and of vectors."""
    first, second = one_image(28, 1, 16, tile=2, data=True), one_image(14, 16, 32, tile=2)
    x, y = normal(2, 49, 32)
    copy = together(lambda: np.copyto(x.reshape(32, 49), y.T))
    return together(first, second, copy, copy, one_vector(1568, 128), relu(128), one_vector(128, 10))


def additions(size: int, terms: int) -> Calls:
    """So many sums of ``terms`` numbers, some of them at a time, whose terms are in the cache."""
    part = min((576 << 10) // (4 * terms), size)
    arrays, y = normal(terms, part), np.empty(part, np.float32)

    def calls() -> None:
        for start in range(0, size if terms > 1 else 0, part):
            out = y[: size - start]
            np.add(arrays[0][: out.size], arrays[1][: out.size], out=out)
            for array in arrays[2:]:
                out += array[: out.size]

    return calls


def few_channels(n: int, size: int, channels: int, filters: int, kernel: int, stride: int = 1) -> Calls:
    """A convolution of data: the products and, for rows of few numbers, windows copied twice.

    What a column of the kernel sees is copied in such rows; what its taps see of that, image by image.
    """
    windows, taps = n * size * size, kernel * kernel
    rows, images = windows * kernel * channels, windows * taps * channels
    columns = together(copies(rows, size, stride), copies(images, size * size))
    return together(columns, columns, convolution(windows, channels, filters, taps, data=True))


def copies(count: int, width: int, step: int = 1) -> Calls:
    """So many numbers copied in rows of ``width``, from every ``step``-th number of a row in the cache."""
    lines = (1 << 18) // width
    (x,), y = normal(1, lines, width * step), np.empty((lines, width), np.float32)

    def calls() -> None:
        for start in range(0, count // width, lines):
            n = min(lines, count // width - start)
            np.copyto(y[:n], x[:n, ::step])

    return calls


def conv_norm_relu(size: int) -> Calls:
    """Two blocks of convolution, batch norm and ReLU on 8 images, 16 channels."""
    pixels = 8 * size * size
    rest = together(batch_norm(pixels, 16, 128), relu(8, 16, size, size))
    first, second = few_channels(8, size, 3, 16, 3), convolution(pixels, 16, 16, 9, rows=3)
    return together(first, rest, second, rest)


def together(*calls: Calls) -> Calls:
    return lambda: [call() for call in calls]


def products(rows: int, size: int, columns: int, transposed: bool = False) -> Calls:
    """So many rows in matrices (m, size), each times (size, columns), or transposed times (m, columns).

    A transposed product with few columns is made the other way round, which is faster. One of many columns
    has four million multiplications: there would be too many products to add up.
    """
    most = 10**6 if not transposed or 64 * size * columns <= 10**6 else 4 * 10**6
    m = min(max(most // (size * columns), 16), rows)
    count = -(-rows // m)
    part = min(count, max((1 << 18) // (m * size), 1))
    (a,), (b,) = normal(1, part, m, size), normal(1, part, m, columns)
    (w,) = normal(1, size, columns)
    turned = transposed and (columns < 32 or size < 16)
    if turned:
        a, b = b, a
    d, left = np.empty((part, a.shape[2], b.shape[2]), np.float32), count % part

    def calls() -> None:
        for run in [part] * (count // part) + [left] * bool(left):
            if transposed:
                np.matmul(a[:run].transpose(0, 2, 1), b[:run], out=d[:run])
            else:
                np.matmul(a[:run], w, out=b[:run])

    return calls


def depthwise(n: int, channels: int, size: int, kernel: int, stride: int = 1) -> Calls:
    """All multiplications and additions by einsum, which does both in one pass and needs long rows for it.

    So images are copied with their border, and columns a stride apart side by side: for the value, and again
    for the kernel's gradient, which the rest of a step keeps apart. The gradient has ``stride`` ** 2 phases,
    each with its part of the kernel. The bias is a pass, and so is its gradient.
    """
    width, border = size // stride, kernel - 1
    x, d = normal(2, n, size, width, stride, channels)
    y, g = normal(2, n, width, width * channels)
    w, bias = normal(1, kernel, kernel, width * channels)[0], normal(1, width**2 * channels)[0]
    lines = np.zeros((stride, RUN, size + border, width + border, channels), np.float32)
    padded = np.zeros((RUN, width + border, width + border, channels), np.float32)
    part, sums = np.empty_like(y[:RUN]), np.empty((kernel, kernel, n, width * channels), np.float32)
    ones = np.ones(n * width, np.float32)
    taps = [range(first, kernel, stride) for first in range(stride)]  # that see the same columns

    def windows(images: np.ndarray, rows: int, columns: int, step: int = 1) -> np.ndarray:
        image, line, pixel, number = images.strides
        shape = rows, columns, RUN, width, width * channels
        return np.lib.stride_tricks.as_strided(images, shape, (line, pixel, image, step * line, number))

    views = [windows(lines[k], kernel, len(columns), stride) for k, columns in enumerate(taps)]
    phases = [
        (i, j, w[: len(of_rows), : len(of_columns)], windows(padded, len(of_rows), len(of_columns)))
        for i, of_rows in enumerate(taps)
        for j, of_columns in enumerate(taps)
    ]

    runs = [slice(start, start + RUN) for start in range(0, n, RUN)]

    def calls() -> None:
        for images in runs:
            lines[:, :, :size, :width] = x[images].transpose(3, 0, 1, 2, 4)
            np.einsum("ijnhr,ijr->nhr", views[0], w[:, ::stride], out=y[images])
            for k in range(1, stride):
                np.einsum("ijnhr,ijr->nhr", views[k], w[:, k::stride], out=part)
                np.add(y[images], part, out=y[images])
            rows = y[images].reshape(RUN, bias.size)
            np.add(rows, bias, out=rows)
        for images in runs:
            padded[:, :width, :width] = g[images].reshape(RUN, width, width, channels)
            for i, j, factors, view in phases:
                out = part if stride > 1 else d[images].reshape(part.shape)
                np.einsum("ijnhr,ijr->nhr", view, factors, out=out)
                if stride > 1:
                    d[images, i::stride, :, j] = part.reshape(RUN, width, width, channels)
            lines[:, :, :size, :width] = x[images].transpose(3, 0, 1, 2, 4)
            for view, columns in zip(views, taps, strict=True):
                for i, j in np.ndindex(view.shape[:2]):
                    np.einsum("nhr,nhr->nr", view[i, j], g[images], out=sums[i, columns[j], images])
        np.matmul(ones[:n], sums.reshape(kernel**2, n, width * channels))
        np.matmul(ones, g.reshape(n * width, width * channels))

    return calls


def rows_by_index(rows: int, width: int, count: int) -> Calls:
    """One ``take``; backward the order of the indices: of equal ones a row is put, and others are added."""
    (w, d), (y, g) = normal(2, rows, width), normal(2, count, width)
    indices = np.random.default_rng(2).integers(0, rows, count)
    order = np.argsort(indices, kind="stable")
    _, starts, times = np.unique(indices[order], return_index=True, return_counts=True)
    most_first = np.argsort(-times)
    starts, times = starts[most_first], times[most_first]
    turns = [order[starts[times > turn] + turn] for turn in range(times[0])]
    sums, targets = np.empty((len(starts), width), np.float32), indices[order[starts]]

    def calls() -> None:
        np.take(w, indices, axis=0, out=y, mode="clip")
        d.fill(0)
        np.argsort(indices.astype(np.uint16), kind="stable")
        np.take(g, turns[0], axis=0, out=sums, mode="clip")
        for turn in turns[1:]:
            np.add(sums[: len(turn)], np.take(g, turn, axis=0), out=sums[: len(turn)])
        d[targets] = sums

    return calls


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
    "layer_norm 32x128x256": lambda: layer_norm(32 * 128, 256),
    "layer_norm 512x768": lambda: layer_norm(512, 768),
    "batch_norm 32x64x32x32": lambda: batch_norm(32 * 32 * 32, 64, 32),
    "batch_norm 64x16x28x28": lambda: batch_norm(64 * 28 * 28, 16, 128),
    "batch_norm 128x512": lambda: batch_norm(128, 512),
    "group_norm 8 32x64x32x32": lambda: group_norm(32, 32 * 32, 64, 8, 32),
    "group_norm 32 8x256x14x14": lambda: group_norm(8, 14 * 14, 256, 32, 14),
    "sum of rows 1M": lambda: sums_of_rows(1024, 1024),
    "gather 1M": lambda: gather(1024, 1024),
    "conv 16->32 3x3 on 64x16x14x14": lambda: convolution(64 * 14 * 14, 16, 32, 9, rows=3),
    "conv 16->16 3x3 on 32x16x32x32": lambda: convolution(32 * 32 * 32, 16, 16, 9, rows=3),
    "conv 32->32 5x5 on 32x32x16x16": lambda: convolution(32 * 16 * 16, 32, 32, 25, rows=5),
    "conv 64->64 7x7 on 8x64x32x32": lambda: convolution(8 * 32 * 32, 64, 64, 49, rows=7),
    "conv 512->512 3x3 on 4x512x7x7": lambda: convolution(4 * 7 * 7, 512, 512, 9),
    "conv 3->64 7x7 stride 2 on 8x3x64x64, data": lambda: few_channels(8, 32, 3, 64, 7, stride=2),
    "conv 1->16 3x3 on 64x1x28x28, data": lambda: few_channels(64, 28, 1, 16, 3),
    "conv 3->32 3x3 on 64x3x32x32, data": lambda: few_channels(64, 32, 3, 32, 3),
    "conv, batch norm, ReLU twice on 8x3x16x16": lambda: conv_norm_relu(16),
    "conv, batch norm, ReLU twice on 8x3x64x64": lambda: conv_norm_relu(64),
    "conv, batch norm, ReLU twice on 8x3x128x128": lambda: conv_norm_relu(128),
    "conv 64->64 3x3 groups 4 on 16x64x16x16": lambda: convolution(16 * 16 * 16, 16, 16, 9, groups=4, rows=3),
    "conv 32->32 3x3 groups 32 on 32x32x32x32": lambda: depthwise(32, 32, 32, 3),
    "conv 128->128 3x3 groups 128 stride 2 on 8x128x28x28": lambda: depthwise(8, 128, 28, 3, stride=2),
    "conv 1->16 3x3 on 1x1x28x28": lambda: one_image(28, 1, 16),
    "LeNet, batch 1": lenet_of_one,
    "conv_transpose 64->64 4x4 stride 2 padding 1 groups 4 on 16x64x16x16": lambda: together(
        products(4 * 16 * 32 * 32, 4 * 16, 16),  # each output sees 4 of the 16 taps
        products(4 * 16 * 16 * 16, 16 * 16, 16),
        products(4 * 16 * 16 * 16, 16 * 16, 16, transposed=True),
    ),
    "conv1d 16->32 9 on 32x16x1000": lambda: convolution(32 * 1000, 16, 32, 9),
    "conv1d 64->64 3 on 16x64x256": lambda: convolution(16 * 256, 64, 64, 3),
    "embedding 10000x256, 64x64": lambda: rows_by_index(10000, 256, 64 * 64),
}
