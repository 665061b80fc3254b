"""The products of einsum two at a time, in the cheapest order, as matrix products.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...faster import form_of
from ..einsum import Sizes, Term, product_of, summed
from ..elementwise import multiply
from ..linear import matmul
from ..shape import reshape, transpose

if TYPE_CHECKING:
    from ...tensor import Tensor


@form_of(product_of)
def product_of_pairs(factors: Sequence[Term], output: str, sizes: Sizes) -> Term:
    """The product of all factors, summed as soon as a letter is in no other one."""
    pairs = list(factors)
    for i, j in path(pairs, output, sizes) if len(pairs) > 2 else [(0, 1)]:
        (y, second), (x, first) = pairs.pop(max(i, j)), pairs.pop(min(i, j))
        needed = set(output).union(*(term for _, term in pairs))
        pairs.append(contract(x, first, y, second, needed, sizes))
    return pairs[0]


def path(pairs: Sequence[Term], output: str, sizes: Sizes) -> list[tuple[int, int]]:
    """Which two of more than two operands to multiply next: NumPy looks for the cheapest order."""
    terms = ",".join(term for _, term in pairs)
    shapes = [np.broadcast_to(0.0, [sizes[c] for c in term]) for _, term in pairs]
    left = "".join(c for c in output if c in terms)
    steps = np.einsum_path(f"{terms}->{left}", *shapes, optimize=("greedy", 2**62))[0]
    in_turn = [(0, 1)] * (len(pairs) - 1)
    return steps[1:] if len(steps) == len(pairs) else in_turn  # one step where nothing is summed


def contract(x: Tensor, first: str, y: Tensor, second: str, needed: set[str], sizes: Sizes) -> Term:
    """The product of two operands, summed over the letters that nothing else needs, by matrix products."""
    x, first = summed(x, first, needed | set(second))
    y, second = summed(y, second, needed | set(first))
    both = [c for c in first if c in second]
    stack, inner = [c for c in both if c in needed], [c for c in both if c not in needed]
    left, right = [c for c in first if c not in second], [c for c in second if c not in first]
    if not inner or (stack and not left and not right):
        letters = "".join([*stack, *inner, *left, *right])
        y = arranged(
            y, second, [[c] for c in [*stack, *inner]] + [[] for _ in left] + [[c] for c in right], sizes
        )
        x = arranged(x, first, [[c] for c in [*stack, *inner, *left]] + [[] for _ in right], sizes)
        return summed(multiply(x, y), letters, needed)
    x = arranged(x, first, [[c] for c in stack] + [left, inner], sizes)
    y = arranged(y, second, [[c] for c in stack] + [inner, right], sizes)
    letters = [*stack, *left, *right]
    return reshape(matmul(x, y), shape=tuple(sizes[c] for c in letters)), "".join(letters)


def arranged(x: Tensor, term: str, groups: Sequence[Sequence[str]], sizes: Sizes) -> Tensor:
    """x with an axis for each group of its letters, of size 1 for an empty one."""
    order = [term.index(c) for group in groups for c in group]
    if order != sorted(order):
        x = transpose(x, axes=order)
    shape = tuple(math.prod(sizes[c] for c in group) for group in groups)
    return x if x.shape == shape else reshape(x, shape=shape)
