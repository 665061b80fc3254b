"""Sums of products, named by letters: einsum, made of the ops for diagonals, products and sums.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.einsum("ij,j->i", [[1.0, 2.0]], [3.0, 4.0]).data.tolist()
[11.0]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from ..faster import faster
from ..tensor_base import as_tensor
from .elementwise import multiply
from .reduce import sum
from .shape import diagonal, reshape, transpose

if TYPE_CHECKING:
    from ..tensor import Tensor

Sizes = dict[str, int]
Term = tuple["Tensor", str]  # an operand, and a letter for each of its axes


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
    sizes = sizes_of(subscripts, terms, tuple([x.shape for x in tensors]))
    factors = [single(x, term, sizes) for x, term in zip(tensors, terms, strict=True)]
    product = factors[0] if len(factors) == 1 else product_of(factors, output, sizes)
    x, term = summed(*product, set(output))
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
    more = [ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True)]
    for term, ndim, rest in zip(terms, ndims, more, strict=True):
        if rest < 0 or (rest and "..." not in term):
            raise ValueError(
                f"{term!r} in einsum {subscripts!r} names {ndim - rest} axes, its operand has {ndim}; name "
                'each, or write "..." for the others'
            )
    named = Counter(c for term in terms for c in term if c != ".")
    if not arrow:
        output = "..." + "".join(sorted(c for c, n in named.items() if n == 1))
    if len(set(output) - {"."}) < len(output.replace("...", "")) or not set(output) <= {".", *named}:
        raise ValueError(f"the output of einsum {subscripts!r} has letters of its operands, each once")
    spare = "".join([c for c in ascii_letters if c not in subscripts][: max(more)])
    expanded = (term.replace("...", spare[len(spare) - n :]) for term, n in zip(terms, more, strict=True))
    return tuple(expanded), output.replace("...", spare)


@lru_cache(1024)
def sizes_of(subscripts: str, terms: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> Sizes:
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


def single(x: Tensor, term: str, sizes: Sizes) -> Term:
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


@faster
def product_of(factors: Sequence[Term], output: str, sizes: Sizes) -> Term:
    """The product of all factors; letters that ``output`` lacks may be summed."""
    x, term = factors[0]
    letters = "".join(dict.fromkeys("".join(term for _, term in factors)))
    for y, other in factors[1:]:
        x, term = multiply(with_axes(x, term, letters), with_axes(y, other, letters)), letters
    return x, term


def with_axes(x: Tensor, term: str, letters: str) -> Tensor:
    """x with its axes in the order of ``letters``, and one of size 1 for each letter that it lacks."""
    x = transpose(x, axes=[term.index(c) for c in letters if c in term])
    sizes = iter(x.shape)
    return reshape(x, shape=tuple(next(sizes) if c in term else 1 for c in letters))


def summed(x: Tensor, term: str, needed: set[str]) -> Term:
    """x without the letters that nothing else needs."""
    axes = tuple(i for i, c in enumerate(term) if c not in needed)
    return (sum(x, axis=axes), "".join(c for c in term if c in needed)) if axes else (x, term)
