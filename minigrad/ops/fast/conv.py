"""The algorithms of convolution, and which of them takes least time.

``ALGORITHMS`` says of each what it needs and when it pays; "auto" takes the last one that does.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ...device import Array, array_module, on_gpu
from ...exact_convolutions import exact
from ...faster import form_of
from ...lookup import check_choice
from ..conv import Algorithm, Convolved, algorithm_for, direct
from ..geometry import Geometry, with_border
from . import depthwise, im2col, implicit, kernel_rows, winograd, winograd_rows
from .dilation import space_to_batch
from .groups import one_by_one
from .images import add_to_pixels

Shape = tuple[int, ...]
always: Callable[..., bool] = lambda *shapes: True  # noqa: E731
never: Callable[..., bool] = lambda *shapes: False  # noqa: E731


class Way(NamedTuple):
    """A convolution by an algorithm: what it needs, and when it takes less time than those before it.

    ``can_take(w, geometry)`` and ``pays(x, w, geometry)`` get the shapes of images (N, H, W, C) and of a
    kernel (F, C / groups, kh, kw); it may be chosen where it is ``for_gpu`` or ``for_host``. One that
    ``rounds`` computes with fractions, which in float32 round more than a plain sum of products. Where
    ``adds_bias(w)``, it adds a bias while the outputs are in the cache: on the host, or, if it is for GPUs
    alone, there.
    """

    convolve: Algorithm
    can_take: Callable[[Shape, Geometry], bool] = always
    pays: Callable[[Shape, Shape, Geometry], bool] = always
    for_gpu: bool = False
    for_host: bool = True
    rounds: bool = False
    adds_bias: Callable[[Shape], bool] = never
    needs: str = ""  # an error's words for what does not fit

    def __call__(self, x: Array, w: Array, geometry: Geometry, bias: Array | None = None) -> Convolved:
        """``direct`` by this algorithm."""
        if geometry.extra != (0, 0):
            return self.with_extra_border(x, w, geometry, bias)
        if self.rounds:
            fractions = np.result_type(x.dtype, w.dtype, np.float32)
            x, w = (a if a.dtype.kind == "f" else a.astype(fractions) for a in (x, w))
        if bias is None:
            return self.convolve(x, w, geometry)
        adds_bias = self.adds_bias(w.shape) and on_gpu(x) is not self.for_host
        if adds_bias and x.dtype == w.dtype == bias.dtype:
            return self.convolve(x, w, geometry, bias)
        y, pullbacks = self.convolve(x, w, geometry)
        y = y.astype(array_module(y).result_type(y, bias), copy=False)
        add_to_pixels(bias, y)
        return y, pullbacks

    def with_extra_border(self, x: Array, w: Array, geometry: Geometry, bias: Array | None) -> Convolved:
        _, height, width, _ = x.shape
        larger, geometry = with_border(x, (0, 0), geometry.extra), geometry._replace(extra=(0, 0))
        y, (to_larger, *others) = self(larger, w, geometry, bias)
        return y, (lambda g: to_larger(g)[:, :height, :width], *others)


ALGORITHMS = {
    "direct": Way(direct, pays=never),
    "im2col": Way(im2col.im2col, for_gpu=True, adds_bias=im2col.has_few_channels),
    "implicit": Way(
        implicit.implicit, implicit.can_take, implicit.pays, for_gpu=True, for_host=False, adds_bias=always,
        needs="a compiler of CUDA C++",
    ),
    "kernel_rows": Way(
        kernel_rows.kernel_rows, kernel_rows.can_take, kernel_rows.pays, adds_bias=always,
        needs="dilation 1 along the rows of images, got {0.dilation[1]}",
    ),
    "winograd_rows": Way(
        winograd_rows.winograd_rows, winograd_rows.can_take, winograd_rows.pays,
        rounds=True, adds_bias=always,
        needs="a kernel of 3 to 5 rows at stride and dilation 1, got {0.kernel} at stride {0.stride} and "
        "dilation {0.dilation}",
    ),
    "winograd": Way(
        space_to_batch(one_by_one(winograd.winograd)), winograd.can_take, winograd.pays, rounds=True,
        needs="a 3 x 3 kernel at stride 1, got {0.kernel} at stride {0.stride}",
    ),
    "depthwise": Way(
        depthwise.depthwise, depthwise.can_take, for_gpu=True, adds_bias=always,
        needs="a group for each channel, got groups={0.groups}",
    ),
}  # fmt: skip


@form_of(algorithm_for)
def from_table(x: Array, w: Array, geometry: Geometry, name: str) -> Algorithm:
    """The algorithm called ``name``, or the fastest; raises ValueError where it does not fit."""
    if name == "auto":
        return ALGORITHMS[fastest(x, w, geometry)]
    check_choice("algorithm", name, ["auto", *ALGORITHMS])
    way = ALGORITHMS[name]
    if not way.can_take(w.shape, geometry):
        raise ValueError(f"{name} needs {way.needs.format(geometry)}; use algorithm='auto'")
    return way


def fastest(x: Array, w: Array, geometry: Geometry) -> str:
    """The name of the algorithm that "auto" means for images x (N, H, W, C).

    All but Winograd's round like the plain sum of products. These are left to float32, since gradients are
    proved in float64, and to convolutions that need not be exact.
    """
    may_round = x.dtype.char == w.dtype.char and w.dtype.char in "ef" and not exact.get()
    return fastest_of_shapes(x.shape, w.shape, geometry, on_gpu(x), may_round)


@lru_cache  # a step of a small network would ask for as long as a product takes
def fastest_of_shapes(x: Shape, w: Shape, geometry: Geometry, gpu: bool, may_round: bool) -> str:
    """``fastest`` for x and w of these shapes."""
    fitting = [
        name
        for name, way in ALGORITHMS.items()
        if (way.for_gpu if gpu else way.for_host)
        and (may_round or not way.rounds)
        and way.can_take(w, geometry)
    ]
    return next(name for name in reversed(fitting) if ALGORITHMS[name].pays(x, w, geometry))
