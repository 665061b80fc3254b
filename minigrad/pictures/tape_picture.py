"""A picture of a tape: its leaves and ops in order, what they take and keep, and the leaves' gradients.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``tape.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..device import Array, to_host
from ..memory import base_of, retained_arrays
from ..tensor_base import TensorBase
from .drawing import MARGIN, Drawing
from .table import Cell, Row, Table
from .tape_outline import Inputs, TapeOutline

PARAMETER, TENSOR, OP = "#CFE5F3", "#FBE9C6", "#F1EFEA"
HEADINGS = ("index", "entry", "takes", "keeps for backward", "norm of gradient")
REACH = 44  # of the curves beside the table, in pixels


def tape_picture(outline: TapeOutline, entries: Sequence[Any] | None) -> str:
    """The SVG of a tape with these ``entries``, or of one that backward has released.

    A curve leads from an entry to each op that takes it. Bytes are those of the arrays that pullbacks hold:
    each array is counted at the first op that holds it, and all of them together are ``tape.nbytes``.
    """
    title = f"A tape of {outline.count:,} entries, {outline.leaves:,} of them leaves"
    memory = None if entries is None else kept_by(entries)
    if memory is None:
        title += "; backward has released what its ops kept"
    else:
        title += f"; its ops keep {in_words(*map(sum, zip((0, 0), *memory, strict=True)))}"
    rows = {
        index: of_op(index, outline.ops[index], row, memory)
        if isinstance(row, list)
        else of_leaf(index, row())
        for index, row in outline.rows.items()
    }
    drawing = Drawing(title)
    drawing.words(MARGIN, 22, title, bold=True)
    x = MARGIN + REACH
    places = Table(HEADINGS, rows, outline.count, numbers=(0, 4)).draw_on(drawing, x, 28)
    for index, row in outline.rows.items():
        for source in {source for source, _ in row} if isinstance(row, list) else ():
            if source in places:
                drawing.arc(x - 6, places[source], places[index], min(10 + 4 * (index - source), REACH))
    return drawing.svg()


def of_op(index: int, name: str, inputs: Inputs, memory: Sequence[tuple[int, int]] | None) -> Row:
    """The row of an op; ``memory`` has the arrays and bytes that each entry keeps, None after backward."""
    takes = ", ".join(f"{source}: {shape}" for source, shape in inputs)
    keeps = "released" if memory is None else in_words(*memory[index])
    return Cell(str(index)), Cell(name, OP), Cell(takes), Cell(keeps), Cell("")


def of_leaf(index: int, leaf: TensorBase | None) -> Row:
    """The row of a leaf, or of one that nobody holds any more."""
    if leaf is None:
        return Cell(str(index)), Cell("a tensor that is gone", TENSOR), Cell(""), Cell(""), Cell("")
    kind, fill = ("parameter", PARAMETER) if leaf.is_parameter else ("tensor", TENSOR)
    norm = "none" if leaf.grad is None else f"{norm_of(leaf.grad):.4g}"
    return Cell(str(index)), Cell(f"{kind} {leaf.shape}", fill), Cell(""), Cell(""), Cell(norm)


def kept_by(entries: Sequence[Any]) -> list[tuple[int, int]]:
    """For each entry the number and the bytes of the arrays that its pullbacks are the first to hold."""
    counted = {id(base_of(entry.data)) for entry in entries if isinstance(entry, TensorBase)}
    memory = []
    for entry in entries:
        pullbacks = [p for *_, p in entry] if isinstance(entry, list) else []
        bases = {id(base): base for base in map(base_of, retained_arrays(pullbacks))}
        new = [base.nbytes for key, base in bases.items() if key not in counted]
        counted |= bases.keys()
        memory.append((len(new), sum(new)))
    return memory


def in_words(arrays: int, nbytes: int) -> str:
    return f"{nbytes:,} bytes in {arrays} array{'s' * (arrays != 1)}" if arrays else "nothing"


def norm_of(g: Array) -> float:
    """The 2-norm of all elements, also where a square would be too large or too small for a number."""
    x = to_host(g).astype(np.float64).ravel()
    largest = float(np.abs(x).max(initial=0.0))
    return largest * float(np.linalg.norm(x / largest)) if 0 < largest < np.inf else largest
