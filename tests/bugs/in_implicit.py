"""Bugs of the kernels of ``implicit.cu``; they are hunted where ``cupy`` is the double and runs them."""

import numpy as np

from minigrad.ops.fast import implicit
from minigrad.ops.geometry import Geometry
from tests.bugs.in_cuda import in_cuda as edit
from tests.minigrad.ops.fast.implicit_laws import is_pooled_convolution

# Laws


def convolution(channels: int, pool: int, **settings: object) -> None:
    """Convolve whole numbers, with a window that has other rows than columns, and more terms than a tile."""
    rng, filters = np.random.default_rng(0), 22 if channels % 4 else 24
    geometry = Geometry((3, 2), (1, 1), (1, 2), (1, 1))._replace(**settings)
    shapes = (2, 9, 8, channels), (filters, channels // geometry.groups, 3, 2), (filters,)
    x, w, bias = (rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes)
    is_pooled_convolution(implicit.convolve_and_pool, x, w, geometry, bias, True, pool)


def kernels_of_fours_are_convolution() -> None:
    convolution(8, 2)
    convolution(4, 1)


def kernels_of_single_numbers_are_convolution() -> None:
    convolution(3, 2)
    convolution(5, 1)


def kernels_with_strides_are_convolution() -> None:
    convolution(4, 1, stride=(2, 3), dilation=(1, 2))


def kernels_of_groups_are_convolution() -> None:
    convolution(8, 2, groups=2)


# Bugs


STORE, BARRIER = "        if (k0 + BK < K) { store(s ^ 1); }\n", "        __syncthreads();\n"
FOURS, SINGLES = kernels_of_fours_are_convolution, kernels_of_single_numbers_are_convolution

BUGS = [
    edit("nobody waits before terms are multiplied", "    store(0);\n    __syncthreads();", "    store(0);",
        FOURS, "is off by|a race"),
    edit("nobody waits after terms are multiplied", STORE + BARRIER, STORE,
        FOURS, "is off by|a race"),
    edit("one buffer is read and written", "store(s ^ 1);", "store(s);", FOURS, "is off by|a race"),
    edit("an exchange of banks is not undone", "k / 4 % 4 * 8, a);", "0, a);", FOURS, "is off by"),
    edit("padding on the left is the row above", "row < 0 || column < 0", "row < 0", FOURS, "is off by"),
    edit("a window's rows and columns change places", "tap / KW * DH", "tap % KW * DH", SINGLES, "is off by"),
    edit("a gradient has no pixels apart", " || row % UP || column % OVER", "",
        kernels_with_strides_are_convolution, "images is off by"),
    edit("columns are as far apart as rows", "column * ACROSS - PW", "column * DOWN - PW",
        kernels_with_strides_are_convolution, "is off by"),
    edit("every group sees the first channels", "(pixel * GROUPS + group) * C", "pixel * GROUPS * C",
        kernels_of_groups_are_convolution, "is off by"),
    edit("a group's bias is the first group's", "bias[group * F + f + j]", "bias[f + j]",
        kernels_of_groups_are_convolution, "value is off by"),
    edit("the last largest neighbour wins", "other > value ||", "other >= value ||", FOURS, "is off by"),
    edit("the ReLU passes the gradient at 0", "RELU && value <= 0", "RELU && value < 0", FOURS, "is off by"),
    edit("a shut ReLU passes the gradient of the first neighbour", "is_shut ? NONE : largest", "largest",
        FOURS, "is off by"),
    edit("single numbers have no winner", "!(IN_POOL && winners[i] != seen.number)", "true", SINGLES,
        "images is off by"),
    edit("a window's neighbours are numbered by columns", "row % SIDE * SIDE + column % SIDE",
        "column % SIDE * SIDE + row % SIDE", FOURS, "images is off by"),
    edit("the row of ones is forgotten", "next[i].at[K % 4] = 1;", "", FOURS, "bias is off by"),
    edit("a part of a sum is lost", "block < blocks; ++block", "block + 1 < blocks; ++block", FOURS,
        "is off by|is off"),
    edit("the image gradient's window is not turned round", "KH * KW - 1 - tap) * F", "tap) * F", FOURS,
        "images is off by"),
    edit("windows see rows below the image", "row >= H / SIDE * SIDE ||", "", FOURS, "the end of an array"),
    edit("outputs beyond the last are written", "if (m >= count) { continue; }", "", FOURS,
        "the end of an array"),
    edit("filters beyond the last are read", "if (f < F) { values = *(", "{ values = *(", FOURS,
        "the end of an array"),
]  # fmt: skip
