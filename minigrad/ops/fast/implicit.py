"""Convolution on a GPU without windows in memory (implicit GEMM), by the kernels of ``implicit.cu``.

Lecture section: GPU against CPU. Lesson: 04_gpu.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device import Array, array_module, compiles_cuda, cuda_module, on_gpu
from ...faster import form_of
from ...integer_settings import Pair, pair
from ...memory_order import nchw, nhwc
from ...op import op
from ...pullback import OpResult, Pullback
from ...tape import once
from ...tensor_base import TensorBase
from ..conv import Convolved, check_bias, checked_geometry
from ..conv_pool import conv_pool2d
from ..geometry import Geometry
from .cuda_kernels import BLOCKS, C_TYPES, ceil, source
from .im2col import im2col

if TYPE_CHECKING:
    from ...tensor import Tensor

LEAST = 1 << 17  # products of two numbers; with fewer it is not worth compiling for one geometry more
Shape = tuple[int, ...]


class Tile(NamedTuple):
    """A block of threads computes BM x BN sums, a thread TM x TN, from BK terms at a time."""

    BM: int
    BN: int
    BK: int
    TM: int
    TN: int

    @property
    def threads(self) -> int:
        """The number of threads of a block."""
        return self.BM // self.TM * (self.BN // self.TN)


TILES = Tile(128, 64, 16, 8, 8), Tile(128, 32, 16, 8, 4), Tile(64, 32, 16, 4, 4), Tile(64, 16, 16, 4, 4)


class Kernels:
    """The kernels of ``implicit.cu`` for some sizes, each compiled when it is first needed."""

    def __init__(self, tile: Tile, **macros: object):
        self.tile, self.functions = tile, {}
        self.module = cuda_module(source("implicit.cu"), **tile._asdict(), **macros)

    def launch(self, name: str, grid: tuple[int, ...], threads: int, *arguments: Any) -> None:
        """Call the kernel ``name``; no blocks are no call."""
        if min(grid):
            if name not in self.functions:
                self.functions[name] = self.module.get_function(name)
            self.functions[name](grid, (threads,), arguments)

    def correlate(self, count: int, filters: int, groups: int, *arguments: Any) -> None:
        """Compute ``count`` outputs of ``filters`` numbers in each group."""
        grid = ceil(count, self.tile.BM), ceil(filters, self.tile.BN), groups
        self.launch("correlate", grid, self.tile.threads, *arguments, np.int32(count))

    def elementwise(self, name: str, count: int, *arguments: Any) -> None:
        """Call the kernel ``name``, which has a thread for each of ``count`` numbers."""
        self.launch(name, (ceil(count, 256),), 256, *arguments)


@lru_cache(256)
def kernels_for(
    x: Shape, w: Shape, geometry: Geometry, dtype: str, relu: bool, pool: int, tile: Tile | None
) -> tuple[Kernels, Kernels]:
    """The kernels of outputs and of the image gradient, for shapes of images and weights."""
    (n, height, width, _), (_, channels, kh, kw), (rows, columns) = x, w, geometry.output(*x[1:3])
    (down, across), (dh, dw), (ph, pw) = geometry.stride, geometry.dilation, geometry.padding
    outs, shared = w[0] // geometry.groups, {"T": C_TYPES[dtype], "GROUPS": geometry.groups}
    shared |= {"KH": kh, "KW": kw, "DH": dh, "DW": dw}
    forward = Kernels(
        tile or tile_for(n * rows * columns, outs, dtype), **shared, C=channels, F=outs,
        H=height, W=width, ROWS=rows, COLS=columns, DOWN=down, ACROSS=across, PH=ph, PW=pw, UP=1, OVER=1,
        RELU=int(relu), POOL=pool, IN_POOL=0,
    )  # fmt: skip
    backward = Kernels(
        tile or tile_for(n * height * width, channels, dtype), **shared, C=outs, F=channels,
        H=rows, W=columns, ROWS=height, COLS=width, DOWN=1, ACROSS=1,
        PH=f"({dh * (kh - 1) - ph})", PW=f"({dw * (kw - 1) - pw})", UP=down, OVER=across,
        RELU=0, POOL=1, IN_POOL=pool if relu or pool > 1 else 0,
    )  # fmt: skip
    return forward, backward


def tile_for(count: int, filters: int, dtype: str) -> Tile:
    """The largest tile of which less than half is empty and that leaves no multiprocessor without a block.

    Those of 128 outputs take more shared memory in float64 than a block may have.
    """
    tiles = [tile for tile in TILES if (dtype == "f" or tile.BM < 128) and filters * 2 > tile.BN]
    filling = [t for t in tiles if ceil(count, t.BM) * ceil(filters, t.BN) >= BLOCKS // 2]
    return [*filling, *tiles[-1:], TILES[-1]][0]


def can_take(w: Shape, geometry: Geometry) -> bool:
    """Whether the kernels take weights w (F, C / groups, kh, kw), and can be compiled here."""
    return 0 < math.prod(w) < 1 << 29 and compiles_cuda()


def pays(x: Shape, w: Shape, geometry: Geometry) -> bool:
    """Whether images x (N, H, W, C) are enough to compile kernels for, and 32 bits number their pixels."""
    outputs = x[0] * math.prod(geometry.output(*x[1:3]))
    return max(math.prod(x[:3]), outputs) < 1 << 29 and outputs * math.prod(w) >= LEAST


def can_take_arrays(*arrays: Array | None) -> bool:
    """Whether the kernels take these: arrays of a GPU, all of float32 or all of float64, and None."""
    kinds = {a.dtype.char for a in arrays if a is not None}
    return len(kinds) == 1 and kinds <= {"f", "d"} and all(a is None or on_gpu(a) for a in arrays)


def implicit(x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
    """``direct`` of images x (N, H, W, C), with a third pullback for a bias (F,); on the host ``im2col``."""
    if not can_take_arrays(x, w, bias):
        y, pullbacks = im2col(x, w, geometry)
        return (y if bias is None else y + bias), pullbacks
    y, pullbacks = convolve_and_pool(x, w, geometry, bias)
    return y, pullbacks if bias is not None else pullbacks[:2]


def convolve_and_pool(
    x: Array,
    w: Array,
    geometry: Geometry,
    bias: Array | None = None,
    relu: bool = False,
    pool: int = 1,
    tile: Tile | None = None,
) -> tuple[Array, tuple[Pullback, Pullback, Pullback]]:
    """``direct``, then the largest of ``pool`` x ``pool`` neighbours (1 or 2), then with ``relu`` max(y, 0).

    x is (N, H, W, C), w (F, C / groups, kh, kw), bias (F,). The pullbacks are those to images, weights and
    bias; for backward a byte is kept for each output besides x and w.
    """
    xp, (n, height, width, channels), groups = array_module(x), x.shape, geometry.groups
    x, w = xp.ascontiguousarray(x), xp.ascontiguousarray(w)
    forward, backward = kernels_for(x.shape, w.shape, geometry, x.dtype.char, relu, pool, tile)
    rows, columns = (size // pool for size in geometry.output(height, width))
    count, filters = n * rows * columns * pool**2, len(w) // groups
    kernel, turned = xp.empty(w.size, x.dtype), xp.empty(w.size, x.dtype)
    y = xp.empty((n, rows, columns, len(w)), x.dtype)
    winners = xp.empty(y.shape, np.uint8) if relu or pool > 1 else 0
    biases = 0 if bias is None else xp.ascontiguousarray(bias)
    forward.elementwise("arrange", w.size, w, kernel, turned)
    forward.correlate(count, filters, groups, x, 0, kernel, biases, y, winners)
    contiguous = once(lambda g: xp.ascontiguousarray(g, x.dtype))

    def to_images(g: Array) -> Array:
        d = xp.empty((len(g), height, width, channels), x.dtype)
        arguments = contiguous(g), winners, turned, 0, d, 0
        backward.correlate(len(g) * height * width, channels // groups, groups, *arguments)
        return d

    @once
    def to_parameters(g: Array) -> tuple[Array, Array]:
        size, tile = w[0].size + 1, forward.tile
        across, down = ceil(size, tile.BM), ceil(filters, tile.BN)
        each = ceil(ceil(count, max(BLOCKS // (across * down * groups), 1)), tile.BK) * tile.BK
        blocks = ceil(count, max(each, 1))
        parts = xp.empty((blocks, size * len(w)), x.dtype)
        d, of_bias = xp.empty(w.shape, x.dtype), xp.empty(len(w), x.dtype)
        arguments = x, contiguous(g), winners, parts, np.int32(count), np.int32(each)
        grid = across, down, blocks * groups
        forward.launch("correlate_with_gradient", grid, tile.threads, *arguments)
        forward.elementwise("sum_parts", size * len(w), parts, d, of_bias, np.int32(blocks))
        return d, of_bias

    return y, (to_images, lambda g: to_parameters(g)[0], lambda g: to_parameters(g)[1])


@form_of(conv_pool2d)
def conv_pool2d_in_one_launch(
    x: Any, weight: Any, bias: Any = None, *, pool: Pair, relu: bool = False, **windows: Any
) -> Tensor:
    """On a GPU, with pooling windows of 2 x 2 or of one pixel."""
    inputs = (x, weight) if bias is None else (x, weight, bias)
    images, weights, *_ = arrays = [a.data if isinstance(a, TensorBase) else a for a in inputs]
    side, _ = tile = pair(pool, "pool", 1)
    if tile not in ((1, 1), (2, 2)) or not all(map(on_gpu, arrays)) or not can_take_arrays(*arrays):
        return NotImplemented
    geometry = checked_geometry("conv2d", images, weights, **windows)
    outputs, shapes = geometry.output(*images.shape[2:]), (nhwc(images).shape, weights.shape)
    fitting = can_take(weights.shape, geometry) and pays(*shapes, geometry)
    if not fitting or geometry.extra != (0, 0) or min(outputs) < side:
        return NotImplemented
    check_bias("conv2d", weights, arrays[2] if len(arrays) > 2 else None, len(weights))
    return pooled_convolution(*inputs, geometry=geometry, relu=relu, pool=side)


@op
def pooled_convolution(
    x: Array, weight: Array, bias: Array | None = None, *, geometry: Geometry, relu: bool, pool: int
) -> OpResult:
    """``convolve_and_pool`` of images (N, C, H, W)."""
    in_memory = once(nhwc)
    y, (to_images, *to_parameters) = convolve_and_pool(nhwc(x), weight, geometry, bias, relu, pool)
    pullbacks = [lambda g: nchw(to_images(in_memory(g)))]
    pullbacks += [lambda g, pull=pull: pull(in_memory(g)) for pull in to_parameters]
    return nchw(y), tuple(pullbacks if bias is not None else pullbacks[:2])
