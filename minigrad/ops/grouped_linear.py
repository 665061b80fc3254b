"""Rows in groups, each of which is multiplied by a matrix of its own, as by the experts of a mixture.

Lecture section: back-propagation. Lesson: 18_experts.

>>> from minigrad import ops
>>> ops.grouped_linear([[1.0], [1.0]], [[[2.0]], [[3.0]]], [[0.0], [0.0]], counts=[1, 1]).data.tolist()
[[2.0], [3.0]]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ..half import widened
from ..op import Array, OpResult, array_module, in_dtype_of, op, shape_of
from ..product import product
from ..sums import axis_sums


@op
def grouped_linear(x: Array, weight: Array, bias: Array, *, counts: Sequence[int]) -> OpResult:
    """x[n] weight[i].T + bias[i] for each row n of group i: a product for each group, one after the other.

    Of x (n, in) the first ``counts[0]`` rows are group 0, the next ``counts[1]`` group 1; weight is
    (groups, out, in), bias (groups, out). x is taken in the dtype of weight. Raises ValueError where the
    shapes do not fit.
    """
    first, second = shape_of(x), shape_of(weight)
    fits = len(first) == 2 and len(second) == 3 and first[1] == second[2]
    if not fits or shape_of(bias) != second[:2] or (len(counts), sum(counts)) != (second[0], first[0]):
        raise ValueError(
            "grouped_linear takes x (n, in), weight (groups, out, in), bias (groups, out) and the number of "
            f"rows of each group, got x {first}, weight {second}, bias {shape_of(bias)} and {len(counts)} "
            f"groups of {sum(counts)} rows; sort the rows by group and count them"
        )
    x, xp = in_dtype_of(weight, x), array_module(x)
    groups = [slice(stop - n, stop) for n, stop in zip(counts, accumulate(counts), strict=True)]
    y = xp.empty((first[0], second[1]), xp.result_type(weight, bias))
    of_x, of_weight = map(widened, (x, weight))
    for i, rows in enumerate(groups):
        y[rows] = product(of_x[rows], of_weight[i].T) + bias[i]

    def to_x(g: Array) -> Array:
        d = xp.empty(x.shape, g.dtype)
        for i, rows in enumerate(groups):
            d[rows] = product(g[rows], weight[i])
        return d

    def to_weight(g: Array) -> Array:
        return xp.stack([product(g[rows].T, x[rows]) for rows in groups]) if groups else weight * 0

    def to_bias(g: Array) -> Array:
        return xp.stack([axis_sums(g[rows], (0,)) for rows in groups]) if groups else bias * 0

    return y, (to_x, to_weight, to_bias)
