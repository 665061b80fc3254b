"""Sums of products, named by letters: einsum. It is made of the ops for diagonals, sums and matrix products.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tensor_base import as_tensor
from .elementwise import multiply
from .linear import matmul
from .reduce import sum
from .shape import diagonal, reshape, transpose

if TYPE_CHECKING:
    from ..tensor import Tensor

Sizes = dict[str, int]


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """The sum over all letters that are not in the output, of the products of the operands' elements.

    ``einsum("bij,bjk->bik", x, y)``: each operand has a letter for each axis, equal letters have equal sizes
    (or 1, which broadcasts), and a letter that an operand has twice is a diagonal. ``...`` stands for more
    axes, which broadcast. Without "->" the output is ``...`` and the letters that occur once, in alphabetic
    order. As in torch.einsum, what the output lacks is summed, also ``...``. Raises TypeError where the
    subscripts are no text, ValueError where they do not fit.
    """
    if not isinstance(subscripts, str):
        raise TypeError(f'einsum takes subscripts like "ij,jk->ik" and then the operands, got {subscripts!r}')
    tensors = [as_tensor(x) for x in operands]
    terms, output = parse(subscripts, tuple(x.ndim for x in tensors))
    sizes = sizes_of(subscripts, terms, [x.shape for x in tensors])
    pairs = [single(x, term, sizes) for x, term in zip(tensors, terms, strict=True)]
    for i, j in path(pairs, output, sizes):
        (y, second), (x, first) = pairs.pop(max(i, j)), pairs.pop(min(i, j))
        needed = set(output).union(*(term for _, term in pairs))
        pairs.append(contract(x, first, y, second, needed, sizes))
    x, term = summed(*pairs[0], set(output))
    if term == output and len(tensors) > 1:
        return x
    return transpose(x, axes=[term.index(c) for c in output])


@lru_cache(1024)
def parse(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the output, in which further letters stand for "...".

    Raises ValueError where the subscripts are none, or do not fit operands with so many axes.
    """
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if not all(re.fullmatch(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*", term) for term in (*terms, output)):
        raise ValueError(f'einsum takes letters, "..." and "," with at most one "->", got {subscripts!r}')
    if len(terms) != len(ndims):
        raise ValueError(f"einsum {subscripts!r} names {len(terms)} operands, got {len(ndims)}")
    for term, ndim in zip(terms, ndims, strict=True):
        letters = len(term.replace("...", ""))
        if letters > ndim or (letters < ndim and "..." not in term):
            raise ValueError(
                f"{term!r} in einsum {subscripts!r} names {letters} axes, its operand has {ndim}; name "
                'each, or write "..." for the others'
            )
    named = Counter(c for term in terms for c in term if c != ".")
    more = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    spare = [c for c in ascii_letters if c not in subscripts][: max(more)]
    if not arrow:
        output = "..." + "".join(sorted(c for c, n in named.items() if n == 1))
    if len(set(output) - {"."}) < len(output.replace("...", "")) or not set(output) <= {".", *named}:
        raise ValueError(f"the output of einsum {subscripts!r} has letters of its operands, each once")
    rest = "".join(spare)
    expanded = (term.replace("...", rest[len(rest) - n :]) for term, n in zip(terms, more, strict=True))
    return tuple(expanded), output.replace("...", rest)


def sizes_of(subscripts: str, terms: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> Sizes:
    """The size of each letter: what its axes have, where they are not 1."""
    sizes: Sizes = {}
    for term, shape in zip(terms, shapes, strict=True):
        for c, n in zip(term, shape, strict=True):
            if sizes.setdefault(c, n) == 1:
                sizes[c] = n
            if n not in (1, sizes[c]):
                raise ValueError(
                    f"axes of one letter in einsum {subscripts!r} have sizes {sizes[c]} and {n}, in operands "
                    f"of shapes {', '.join(map(str, shapes))}; make them equal, or use another letter"
                )
    return sizes


def single(x: Tensor, term: str, sizes: Sizes) -> tuple[Tensor, str]:
    """x with each of its letters once, and without those along which it broadcasts."""
    wide = [i for i, c in enumerate(term) if x.shape[i] != sizes[c]]
    if wide:
        x = reshape(x, shape=tuple(n for i, n in enumerate(x.shape) if i not in wide))
        term = "".join(c for i, c in enumerate(term) if i not in wide)
    while len(set(term)) < len(term):
        c = next(c for c in term if term.count(c) > 1)
        i, j = term.index(c), term.rindex(c)
        x, term = diagonal(x, axis1=i, axis2=j), term[:i] + term[i + 1 : j] + term[j + 1 :] + c
    return x, term


def path(pairs: Sequence[tuple[Tensor, str]], output: str, sizes: Sizes) -> list[tuple[int, int]]:
    """Which two operands to multiply next; of more than two, NumPy looks for the cheapest order."""
    in_turn = [(0, 1)] * (len(pairs) - 1)
    if len(pairs) < 3:
        return in_turn
    terms = ",".join(term for _, term in pairs)
    shapes = [np.broadcast_to(0.0, [sizes[c] for c in term]) for _, term in pairs]
    left = "".join(c for c in output if c in terms)
    steps = np.einsum_path(f"{terms}->{left}", *shapes, optimize=("greedy", 2**62))[0]
    return steps[1:] if len(steps) == len(pairs) else in_turn  # one step where nothing is summed


def summed(x: Tensor, term: str, needed: set[str]) -> tuple[Tensor, str]:
    """x without the letters that nothing else needs."""
    axes = tuple(i for i, c in enumerate(term) if c not in needed)
    return (sum(x, axis=axes), "".join(c for c in term if c in needed)) if axes else (x, term)


def contract(
    x: Tensor, first: str, y: Tensor, second: str, needed: set[str], sizes: Sizes
) -> tuple[Tensor, str]:
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
