"""What NumPy alone needs for a row of ``ops.py``: its passes and products, on arrays that are there already.

No tape, no checks, nothing allocated: the fewest calls of NumPy that give the value and the gradients. Where
they take longer than PyTorch, they are what stands in the way of a row. A limit of a convolution holds its
matrix products and the cheaper of two ways to them: the sums of products by rows of the kernel, or, of few
channels, the copies of windows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Calls = Callable[[], object]
PART = 1 << 17  # elements of several arrays that stay in the cache together
RUN = 8  # images at a time, where several calls follow one another: they find them in cache


def relu(*shape: int) -> Calls:
    """One pass forward; the mask, as integers, and a product of bits backward."""
    x, g = normal(2, *shape)
    mask, y, d = np.empty(shape, bool), np.empty_like(x), np.empty_like(x)
    bits, g_bits = d.view(np.int32), g.view(np.int32)

    def calls() -> None:
        np.clip(x, 0, np.inf, out=y)
        np.greater(y, 0, out=mask)
        np.copyto(bits, mask)
        np.multiply(bits, g_bits, out=bits)

    return calls


def leaky_relu(*shape: int) -> Calls:
    """A product and a maximum forward; 0 or 1 clipped to the slope or 1, and a product backward."""
    x, g = normal(2, *shape)
    mask, y, d = np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.multiply(x, 0.01, out=y)
        np.maximum(x, y, out=y)
        np.greater(y, 0, out=mask)
        np.copyto(d, mask)
        np.clip(d, 0.01, 1, out=d)
        np.multiply(d, g, out=d)

    return calls


def sigmoid(*shape: int) -> Calls:
    """1 / (1 + e ** -x), of which the exponential takes most; backward g y (1 - y)."""
    x, g = normal(2, *shape)
    y, d = np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.negative(x, out=y)
        np.exp(y, out=y)
        np.add(y, 1, out=y)
        np.divide(1, y, out=y)
        np.subtract(1, y, out=d)
        np.multiply(d, y, out=d)
        np.multiply(d, g, out=d)

    return calls


def absolute(*shape: int) -> Calls:
    """One pass forward; the sign as a difference of masks, and a product backward."""
    x, g = normal(2, *shape)
    above, below, y, d = np.empty(shape, bool), np.empty(shape, bool), np.empty_like(x), np.empty_like(x)

    def calls() -> None:
        np.abs(x, out=y)
        np.greater(x, 0, out=above)
        np.less(x, 0, out=below)
        np.subtract(above.view(np.int8), below.view(np.int8), out=above.view(np.int8))
        np.multiply(g, above.view(np.int8), out=d)

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

    def calls() -> None:
        indices.view(np.uint64).max()
        np.add(indices, rows, out=places)
        np.take(x, places, mode="wrap", out=y)
        d.fill(0)
        np.add.at(d, places.reshape(-1), g)

    return calls


def layer_norm(rows: int, columns: int) -> Calls:
    """Thirteen passes and six products with a vector, through the cache in parts."""
    x, g, normalized, y, d = normal(5, rows, columns)
    weight, bias, average = *normal(2, columns), np.full(columns, 1 / columns, np.float32)
    scale, scratch = np.empty((rows, 1), np.float32), np.empty((max(PART // columns, 1), columns), np.float32)
    ones = np.ones(len(scratch), np.float32)
    parts = [slice(start, start + len(scratch)) for start in range(0, rows, len(scratch))]

    def calls() -> None:
        for part in parts:
            n, out, products = normalized[part], y[part], scratch[: len(x[part])]
            np.subtract(x[part], (x[part] @ average)[:, None], out=n)
            np.multiply(n, n, out=products)
            np.divide(1, np.sqrt((products @ average)[:, None]), out=scale[part])
            np.multiply(n, scale[part], out=n)
            np.multiply(n, weight, out=out)
            np.add(out, bias, out=out)
        over_columns = weight / columns
        for part in parts:
            n, out, products, each = normalized[part], d[part], scratch[: len(g[part])], ones[: len(g[part])]
            np.multiply(g[part], n, out=products)
            np.matmul(each, products)
            np.matmul(each, g[part])
            along = (products @ over_columns)[:, None]
            np.multiply(g[part], weight, out=out)
            np.subtract(out, (g[part] @ over_columns)[:, None], out=out)
            np.multiply(n, along, out=products)
            np.subtract(out, products, out=out)
            np.multiply(out, scale[part], out=out)

    return with_short_buffers(calls) if columns >= 512 else calls


def norm_of_lines(samples: int, rows: int, width: int) -> Calls:
    """Nine passes and four sums, for a batch norm of one sample or a group norm; lines have all channels."""
    x, g, centred, y, d = normal(5, samples, rows, width)
    mean, factor, shift, slope = normal(4, samples, 1, width)
    ones, scratch = np.ones((1, rows), np.float32), np.empty((max(PART // width, 1), width), np.float32)
    starts = range(0, rows, len(scratch))
    parts = [(i, slice(start, start + len(scratch))) for i in range(samples) for start in starts]

    def calls() -> None:
        np.matmul(ones, x)
        np.subtract(x, mean, out=centred)
        np.einsum("nrc,nrc->nc", centred, centred)
        for part in parts:
            np.multiply(centred[part], factor[part[0]], out=y[part])
            np.add(y[part], shift[part[0]], out=y[part])
        np.matmul(ones, g)
        np.einsum("nrc,nrc->nc", g, centred)
        for part in parts:
            i, out = part[0], d[part]
            np.multiply(g[part], factor[i], out=out)
            np.subtract(out, shift[i], out=out)
            np.multiply(centred[part], slope[i], out=scratch[: len(out)])
            np.subtract(out, scratch[: len(out)], out=out)

    return with_short_buffers(calls) if samples * rows * width >= 2 * PART else calls


def softmax(rows: int, columns: int) -> Calls:
    """Of logits whose largest need not be known."""
    x, g, y, d = normal(4, rows, columns)
    ones = np.ones(columns, np.float32)

    def calls() -> None:
        np.exp(x, out=y)
        np.divide(y, (y @ ones)[:, None], out=y)
        dots = np.matmul(g[:, None], y[..., None])[:, 0]
        np.subtract(g, dots, out=d)
        np.multiply(d, y, out=d)

    return calls


def log_softmax(rows: int, columns: int) -> Calls:
    """Of logits whose largest need not be known."""
    x, g, e, y, d = normal(5, rows, columns)
    ones = np.ones(columns, np.float32)

    def calls() -> None:
        np.exp(x, out=e)
        total = (e @ ones)[:, None]
        np.subtract(x, np.log(total), out=y)
        np.multiply(e, (g @ ones)[:, None] / total, out=d)
        np.subtract(g, d, out=d)

    return calls


def with_short_buffers(calls: Calls) -> Calls:
    """``calls`` along long rows, where NumPy's buffers would take longer."""

    def unbuffered() -> None:
        before = np.setbufsize(16)
        calls()
        np.setbufsize(before)

    return unbuffered


def convolution(
    windows: int, channels: int, filters: int, taps: int, groups: int = 1, data: bool = False, rows: int = 1
) -> Calls:
    """The products for the value and the two gradients, without that for the image where it is ``data``.

    Channels and filters are those of a group. Each of ``rows`` of a kernel has products of its own, which are
    added up for the value and for the image; with one row nothing is added, and nobody copies the windows. A
    matrix has up to a million multiplications, for which OpenBLAS is fastest, and four million for the
    kernel's gradient. A megabyte of them, which stays in the cache, stands for all.
    """
    windows, taps = windows * groups, taps // rows
    value = [products(windows * rows, taps * channels, filters), additions(windows * filters, rows)]
    image = [products(windows * rows, taps * filters, channels), additions(windows * channels, rows)]
    kernel = products(windows * rows, taps * channels, filters, transposed=True)
    return together(*value, *([] if data else image), kernel)


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
    """A convolution of data: the products and, for rows of few numbers, windows copied twice."""
    windows, taps = n * size * size, kernel * kernel
    columns = copies(windows * taps * channels, size, stride)
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
    rest = together(norm_of_lines(1, pixels * 16 // 4096, 4096), relu(8, 16, size, size))
    first, second = few_channels(8, size, 3, 16, 3), convolution(pixels, 16, 16, 9, rows=3)
    return together(first, rest, second, rest)


def together(*calls: Calls) -> Calls:
    return lambda: [call() for call in calls]


def products(rows: int, size: int, columns: int, transposed: bool = False) -> Calls:
    """So many rows in matrices (m, size), each times (size, columns), or transposed times (m, columns)."""
    m = min(max((4 if transposed else 1) * 10**6 // (size * columns), 16), rows)
    count = -(-rows // m)
    part = min(count, max((1 << 18) // (m * size), 1))
    (a,), (b,) = normal(1, part, m, size), normal(1, part, m, columns)
    (w,) = normal(1, size, columns)
    d, left = np.empty((part, size, columns), np.float32), count % part

    def calls() -> None:
        for run in [part] * (count // part) + [left] * bool(left):
            if transposed:
                np.matmul(a[:run].transpose(0, 2, 1), b[:run], out=d[:run])
            else:
                np.matmul(a[:run], w, out=b[:run])

    return calls


def depthwise(n: int, channels: int, size: int, taps: int) -> Calls:
    """All multiplications and additions by einsum, which does both in one pass: value and two gradients.

    Of an image at a time, rows of ``size`` pixels.
    """
    row = size * channels
    x, y = normal(2, n, size, row)
    padded, (w,) = np.zeros((size * row + taps * channels,), np.float32), normal(1, taps, row)
    windows = np.lib.stride_tricks.as_strided(
        padded, (taps, size, row), (channels * x.itemsize, row * x.itemsize, x.itemsize)
    )
    total = np.empty(row, np.float32)

    def calls() -> None:
        for i in range(n):
            np.einsum("thr,tr->hr", windows, w, out=y[i])
            np.einsum("thr,tr->hr", windows, w, out=x[i])
            for window in windows:
                np.einsum("hr,hr->r", window, y[i], out=total)

    return calls


def max_pool(n: int, size: int, channels: int, kernel: int, windows: int) -> Calls:
    """Maxima of ``kernel`` rows, two apart, then of columns, which are copied first; with them their places.

    A place is a byte: a comparison, a product and a maximum for each tap. Backward the bytes become indices,
    at which the gradients are added. The last of the windows may be smaller.
    """
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, windows, windows, channels)
    lines, most = x.reshape(n, size, size * channels), (kernel - 1) * (size + 1) + 1
    tall = np.empty((RUN, windows, size * channels), np.float32)
    number, mask, spare = (np.empty(tall.shape, dtype) for dtype in (np.uint8, bool, np.uint8))
    values = np.full((kernel, RUN, windows, windows, channels), -np.inf, np.float32)
    numbers, equal = np.zeros(values.shape, np.uint8), np.empty(values.shape[1:], bool)
    taps = [slice(i, i + 2 * windows - 1, 2) for i in range(kernel)]
    places = np.empty(y.shape, np.uint8)
    first = 2 * (np.arange(windows)[:, None] * size + np.arange(windows)) + most
    first = np.arange(RUN)[:, None, None] * size * size + first
    start = (first[..., None] * channels + np.arange(channels)).astype(np.int32)
    short, index = np.empty_like(start), np.empty(start.shape, np.intp)

    def of_rows(part: np.ndarray) -> None:
        top, number[...] = part[:, taps[0]], 0
        for i, rows in enumerate(taps[1:], 1):
            tap = part[:, rows]
            count = tap.shape[1]
            np.greater(tap, top[:, :count], out=mask[:, :count])
            np.multiply(mask.view(np.uint8), i * size, out=spare)
            np.maximum(number[:, :count], spare[:, :count], out=number[:, :count])
            np.maximum(tap, top[:, :count], out=tall[:, :count])
            top = tall
        np.subtract(most, number, out=number)

    def of_columns(y: np.ndarray, places: np.ndarray) -> None:
        for copies, whole in ((values, tall), (numbers, number)):
            pixels = whole.view((np.void, channels * whole.itemsize)).reshape(RUN, windows, size)
            for copy, columns in zip(
                copies.view((np.void, channels * whole.itemsize))[..., 0], taps, strict=True
            ):
                copied = pixels[:, :, columns]
                copy[:, :, : copied.shape[2]] = copied
        np.maximum(values[0], values[1], out=y)
        for value in values[2:]:
            np.maximum(value, y, out=y)
        for j, (value, earliest) in enumerate(zip(values, numbers, strict=True)):
            np.equal(value, y, out=equal)
            if j:
                np.subtract(earliest, j, out=earliest)
            np.multiply(earliest, equal.view(np.uint8), out=earliest if j else places)
            if j:
                np.maximum(places, earliest, out=places)

    def calls() -> None:
        for i in range(0, n, RUN):
            before = np.setbufsize(16)
            of_rows(lines[i : i + RUN])
            np.setbufsize(before)
            of_columns(y[i : i + RUN], places[i : i + RUN])
        for i in range(0, n, RUN):
            short[...] = places[i : i + RUN]
            np.multiply(short, -channels, out=short)
            np.add(short, start, out=short)
            index[...] = short
            d[i : i + RUN] = 0
            np.add.at(d[i : i + RUN].reshape(-1), index.reshape(-1), g[i : i + RUN].reshape(-1))

    return calls


def avg_pool_by_three(n: int, size: int, channels: int) -> Calls:
    """Windows of 3 x 3 at every second pixel: sums of rows, then of columns; backward the transposes."""
    x, d = normal(2, n, size, size, channels)
    windows = (size - 1) // 2
    y, g = normal(2, n, windows, windows, channels)
    tall, share = normal(1, RUN, windows, size, channels)[0], np.empty_like(g[:RUN])
    lines, d_lines = (a.reshape(len(a), -1, size * channels) for a in (tall, d))
    first, second, third = (slice(i, i + 2 * windows - 1, 2) for i in range(3))

    def spread(share: np.ndarray, out: np.ndarray) -> None:
        """Along the second axis: every other element is one share, the inner ones between are two."""
        out[:, second], out[:, 0], out[:, -1] = share, share[:, 0], share[:, -1]
        np.add(share[:, 1:], share[:, :-1], out=out[:, 2:-1:2])

    def calls() -> None:
        for i in range(0, n, RUN):
            before = np.setbufsize(16)
            part = x[i : i + RUN].reshape(RUN, size, -1)
            np.add(part[:, first], part[:, second], out=lines)
            np.add(lines, part[:, third], out=lines)
            np.setbufsize(before)
            np.add(tall[:, :, first], tall[:, :, second], out=y[i : i + RUN])
            np.add(y[i : i + RUN], tall[:, :, third], out=y[i : i + RUN])
            np.divide(y[i : i + RUN], 9, out=y[i : i + RUN])
        for i in range(0, n, RUN):
            np.divide(g[i : i + RUN], 9, out=share)
            spread(share.swapaxes(1, 2), tall.swapaxes(1, 2))
            before = np.setbufsize(16)
            spread(lines, d_lines[i : i + RUN])
            np.setbufsize(before)

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


def nearest_by_two(n: int, size: int, channels: int) -> Calls:
    """One copy that repeats columns and rows; backward two rows are added, then two columns."""
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, 2 * size, 2 * size, channels)
    tall = np.empty((RUN, size, 2 * size, channels), x.dtype)
    rows = slice(None, None, 2), slice(1, None, 2)
    squares = y.reshape(n, size, 2, size, 2, channels)

    def calls() -> None:
        np.copyto(squares, x[:, :, None, :, None])
        for i in range(0, n, RUN):
            before = np.setbufsize(16)
            np.add(*(g[i : i + RUN, row] for row in rows), out=tall)
            np.setbufsize(before)
            np.add(*(tall[:, :, column] for column in rows), out=d[i : i + RUN])

    return calls


def bilinear_by_two(n: int, size: int, channels: int) -> Calls:
    """A product along columns and one along rows; backward the transposes of both."""
    x, d = normal(2, n, size, size, channels)
    y, g = normal(2, n, 2 * size, 2 * size, channels)
    tall, matrix = normal(1, RUN, 2 * size, size, channels)[0], normal(1, 2 * size, size)[0]
    lines = tall.reshape(RUN, 2 * size, size * channels)

    def calls() -> None:
        for i in range(0, n, RUN):
            np.matmul(matrix, x[i : i + RUN].reshape(RUN, size, -1), out=lines)
            np.matmul(matrix, tall, out=y[i : i + RUN])
        for i in range(0, n, RUN):
            np.matmul(matrix.T, g[i : i + RUN], out=tall)
            np.matmul(matrix.T, lines, out=d[i : i + RUN].reshape(RUN, size, -1))

    return calls


def normal(count: int, *shape: int) -> np.ndarray:
    """So many arrays of one shape, (count, *shape), in float32."""
    return np.random.default_rng(0).standard_normal((count, *shape), np.float32)


LIMITS: dict[str, Callable[[], Calls]] = {  # by the title of the row
    "relu 1M": lambda: relu(1024, 1024),
    "relu 64x32x32x32": lambda: relu(64, 32, 32, 32),
    "softmax 64x128x128": lambda: softmax(64 * 128, 128),
    "softmax 128x10000": lambda: softmax(128, 10000),
    "log_softmax 128x10000": lambda: log_softmax(128, 10000),
    "layer_norm 32x128x256": lambda: layer_norm(32 * 128, 256),
    "layer_norm 512x768": lambda: layer_norm(512, 768),
    "batch_norm 32x64x32x32": lambda: norm_of_lines(1, 512, 4096),
    "batch_norm 64x16x28x28": lambda: norm_of_lines(1, 196, 4096),
    "batch_norm 128x512": lambda: norm_of_lines(1, 128, 512),
    "group_norm 8 32x64x32x32": lambda: norm_of_lines(32, 32, 32 * 64),
    "group_norm 32 8x256x14x14": lambda: norm_of_lines(8, 14, 14 * 256),
    "leaky_relu 1M": lambda: leaky_relu(1024, 1024),
    "sigmoid 1M": lambda: sigmoid(1024, 1024),
    "abs 1M": lambda: absolute(1024, 1024),
    "sum of rows 1M": lambda: sums_of_rows(1024, 1024),
    "gather 1M": lambda: gather(1024, 1024),
    "conv 16->32 3x3 on 64x16x14x14": lambda: convolution(64 * 14 * 14, 16, 32, 9, rows=3),
    "conv 16->16 3x3 on 32x16x32x32": lambda: convolution(32 * 32 * 32, 16, 16, 9, rows=3),
    "conv 32->32 5x5 on 32x32x16x16": lambda: convolution(32 * 16 * 16, 32, 32, 25, rows=5),
    "conv 64->64 7x7 on 8x64x32x32": lambda: convolution(8 * 32 * 32, 64, 64, 49, rows=7),
    "conv 3->64 7x7 stride 2 on 8x3x64x64, data": lambda: few_channels(8, 32, 3, 64, 7, stride=2),
    "conv 1->16 3x3 on 64x1x28x28, data": lambda: few_channels(64, 28, 1, 16, 3),
    "conv, batch norm, ReLU twice on 8x3x16x16": lambda: conv_norm_relu(16),
    "conv, batch norm, ReLU twice on 8x3x64x64": lambda: conv_norm_relu(64),
    "conv, batch norm, ReLU twice on 8x3x128x128": lambda: conv_norm_relu(128),
    "conv 64->64 3x3 groups 4 on 16x64x16x16": lambda: convolution(16 * 16 * 16, 16, 16, 9, groups=4, rows=3),
    "conv 32->32 3x3 groups 32 on 32x32x32x32": lambda: depthwise(32, 32, 32, 9),
    "conv 128->128 3x3 groups 128 stride 2 on 8x128x28x28": lambda: depthwise(8, 128, 14, 9),
    "conv 1->16 3x3 on 1x1x28x28": lambda: convolution(28 * 28, 1, 16, 9),
    "conv_transpose 64->64 4x4 stride 2 padding 1 groups 4 on 16x64x16x16": lambda: together(
        products(4 * 16 * 32 * 32, 4 * 16, 16),  # each output sees 4 of the 16 taps
        products(4 * 16 * 16 * 16, 16 * 16, 16),
        products(4 * 16 * 16 * 16, 16 * 16, 16, transposed=True),
    ),
    "conv1d 16->32 9 on 32x16x1000": lambda: convolution(32 * 1000, 16, 32, 9),
    "conv1d 64->64 3 on 16x64x256": lambda: convolution(16 * 256, 64, 64, 3),
    "max_pool 2 64x32x32x32": lambda: max_pool(64, 32, 32, 2, 16),
    "max_pool 3, stride 2 32x32x32x32": lambda: max_pool(32, 32, 32, 3, 15),
    "max_pool 3, stride 2, ceil_mode 32x32x32x32": lambda: max_pool(32, 32, 32, 3, 16),
    "adaptive_max_pool 6 32x256x13x13": lambda: max_pool(32, 13, 256, 3, 6),
    "adaptive_avg_pool 6 32x256x13x13": lambda: avg_pool_by_three(32, 13, 256),
    "embedding 10000x256, 64x64": lambda: rows_by_index(10000, 256, 64 * 64),
    "upsample 2 nearest 32x64x16x16": lambda: nearest_by_two(32, 16, 64),
    "upsample 2 bilinear 32x64x16x16": lambda: bilinear_by_two(32, 16, 64),
}
