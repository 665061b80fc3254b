"""Convolution in which every channel has a kernel of its own (Howard et al., MobileNets, 2017).

A matrix product for each channel would be a thin one. So each tap of the kernel multiplies a shifted image,
by a number for each channel, and the taps add up: ``by_taps`` is the readable form.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/conv.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import loops
from ...device import Array, array_module
from ...sums import axis_sums
from ..conv import Convolved
from ..geometry import Geometry
from .images import padded_images

OUTPUTS, IMAGES, FACTORS = range(3)
Steps = tuple[int, int, int, int]  # of windows down and across; the padding of rows, their dilation


def can_take(w: tuple[int, ...], geometry: Geometry) -> bool:
    """Whether each channel goes into one filter of its own; w is a shape."""
    return w[1] == 1 and w[0] == geometry.groups > 1


def by_taps(x: Array, w: Array, geometry: Geometry) -> Convolved:
    """x (N, H, W, C) and w (C, 1, kh, kw); the value is (N, H', W', C)."""
    xp, (_, height, width, channels) = array_module(x), x.shape
    padded, (ph, pw), (kh, kw) = padded_images(x, geometry.padding), geometry.padding, geometry.kernel
    output, weights = geometry.output(height, width), (w[:, 0, i, j] for i, j in np.ndindex(kh, kw))
    taps = list(zip(weights, geometry.places(height, width), strict=True))

    def to_image(g: Array) -> Array:
        d = xp.zeros((len(g), *padded.shape[1:]), g.dtype)
        for factor, place in taps:
            d[place] += g * factor
        return d[:, ph : ph + height, pw : pw + width]

    def to_kernel(g: Array) -> Array:
        sums = [axis_sums(g * padded[place], (0, 1, 2)) for _, place in taps]
        return xp.stack(sums, 1).reshape(channels, 1, kh, kw)

    y = xp.zeros((len(x), *output, channels), xp.result_type(x, w))
    for factor, place in taps:
        y += padded[place] * factor
    return y, (to_image, to_kernel)


def depthwise(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """``by_taps``, as loops; these may begin with a bias (C,)."""
    if not loops.can_take(x, w) or bias is not None and bias.dtype != x.dtype:
        y, pullbacks = by_taps(x, w, geometry)
        return (y if bias is None else y + bias), pullbacks
    (n, height, width, channels), x = x.shape, np.ascontiguousarray(x)
    rows, columns = geometry.output(height, width)
    together = min(512 // channels + 1, columns) if geometry.stride[1] == 1 else 1  # see below
    factors = np.tile(np.ascontiguousarray(w[:, 0].transpose(1, 2, 0)), together)
    windows = windows_on_image(width, geometry), (*geometry.stride, geometry.padding[0], geometry.dilation[0])

    def to_image(g: Array) -> Array:
        d = np.empty((n, height, width, channels), g.dtype)
        write_images(as_lines(d), as_lines(g), factors, biases, sums, *windows)
        return d

    def to_kernel(g: Array) -> Array:
        total, chains = np.zeros((*geometry.kernel, channels)), np.zeros(factors.shape, g.dtype)
        write_factors(as_lines(x), as_lines(g), chains, biases, total, *windows)
        return total.astype(w.dtype).transpose(2, 0, 1)[:, None]

    y, sums = np.empty((n, rows, columns, channels), x.dtype), np.zeros((*geometry.kernel, channels))
    biases = np.zeros(factors.shape[2], x.dtype) if bias is None else np.tile(bias, together)
    write_outputs(as_lines(x), as_lines(y), factors, biases, sums, *windows)
    return y, (to_image, to_kernel)


def as_lines(x: Array) -> Array:
    """Images (N, H, W, C) as (N, H, W C)."""
    return np.ascontiguousarray(x).reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def windows_on_image(width: int, geometry: Geometry) -> np.ndarray:
    """For each kernel column its place in the first window, and the windows in which it is on the image.

    The result is (kw, 3): a column of the image, the first window, and the last window plus 1.
    """
    across = geometry.stride[1]
    place = np.arange(geometry.kernel[1]) * geometry.dilation[1] - geometry.padding[1]
    return np.stack([place, -(place // across), (width - 1 - place) // across + 1], axis=1)


def sums_of_products(into: int) -> Callable[..., None]:
    """The loops that write the OUTPUTS, the IMAGES or the FACTORS, as sums of products of the other two."""

    @loops.compiled
    def write(
        images: Array, outputs: Array, factors: Array, biases: Array, sums: Array, spans: Array, steps: Steps
    ) -> None:
        """Images (N, H, W C) begin with 0 and outputs (N, H', W' C) with the biases.

        The factors' chains of additions are of an image, or of a row, and end in ``sums`` (kh, kw, C).

        A tap sees pixels of a row that are a stride apart. At stride 1 several of them are taken together:
        the innermost loop is long then, and all taps find them in the fastest cache. So the factors of the
        channels are there several times, side by side.
        """
        (kh, kw, size), channels, height = factors.shape, sums.shape[2], images.shape[1]
        down, across, ph, dh = steps
        together, columns = size // channels, outputs.shape[2] // channels
        for n in range(len(images)):
            if into == IMAGES:
                image = images[n].reshape(-1)
                for t in range(len(image)):
                    image[t] = 0
            for i in range(outputs.shape[1]):
                for start in range(0, columns, together):
                    if into == OUTPUTS:
                        out = outputs[n, i, start * channels : (start + together) * channels]
                        for t in range(len(out)):
                            out[t] = biases[t]
                    for k in range(kh):
                        row = i * down + k * dh - ph
                        for m in range(kw if 0 <= row < height else 0):
                            first, stop = max(start, spans[m, 1]), min(start + together, columns, spans[m, 2])
                            if first >= stop:
                                continue
                            out, f = outputs[n, i, first * channels : stop * channels], factors[k, m]
                            part = images[n, row, (first * across + spans[m, 0]) * channels :]
                            if into == OUTPUTS:
                                for t in range(len(out)):
                                    out[t] += part[t] * f[t]
                            elif into == IMAGES:
                                for t in range(len(out)):
                                    part[t] += out[t] * f[t]
                            else:
                                for t in range(len(out)):
                                    f[t] += out[t] * part[t]
                for k in range(kh if into == FACTORS and (across > 1 or i == outputs.shape[1] - 1) else 0):
                    for m in range(kw):
                        for start in range(0, together * channels, channels):
                            part, total = factors[k, m, start : start + channels], sums[k, m]
                            for c in range(channels):
                                total[c] += part[c]
                                part[c] = 0

    return write


write_outputs, write_images, write_factors = map(sums_of_products, (OUTPUTS, IMAGES, FACTORS))
