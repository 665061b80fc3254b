"""Laws of minigrad/pictures/tape_picture.py and tape_outline.py: a picture of a tape has each entry once,
with what it takes and keeps, and says what backward left.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from minigrad import Parameter, Tape, Tensor, ops
from tests.pictures import Shown, shown

MOST = 24
SHAPES = ((3, 1), (1, 4), (), (3, 4))  # that broadcast together
OPS: dict[str, Callable[..., Tensor]] = {"multiply": ops.multiply, "add": ops.add, "tanh": ops.tanh}


class Program:
    """Ops on a tape, and a list of what the tape must hold, noted beside it.

    ``lines`` has for each entry its name, what it takes, and the bytes of the arrays that it is the first to
    keep: a product keeps both factors, the tangent its value, and a sum nothing. Arrays of leaves do not
    count.
    """

    def __init__(self, choices: list[tuple[str, int, int]], leaves: int):
        values: list[Tensor] = [
            (Parameter if i % 2 else Tensor)(
                np.full(SHAPES[i], 0.5), **({} if i % 2 else {"requires_grad": True})
            )
            for i in range(leaves)
        ]
        self.leaves, self.places = values[:], dict[int, int]()
        self.lines: list[tuple[str, str, int]] = []
        self.drawn_leaves: list[Tensor | None] = []
        counted = {id(leaf.data) for leaf in self.leaves}
        with Tape() as self.tape, np.errstate(over="ignore"):
            for name, i, j in choices:
                inputs = [values[i % len(values)], values[j % len(values)]][: 1 if name == "tanh" else 2]
                for x in inputs:
                    if id(x) not in self.places:
                        self.note(
                            x, f"{'parameter' if isinstance(x, Parameter) else 'tensor'} {x.shape}", "", 0, x
                        )
                y = OPS[name](*inputs)
                keeps = {"multiply": [x.data for x in inputs], "tanh": [y.data], "add": []}[name]
                new = {id(array): array.nbytes for array in keeps if id(array) not in counted}
                counted |= new.keys()
                takes = ", ".join(f"{self.places[id(x)]}: {x.shape}" for x in inputs)
                self.note(y, name, takes, sum(new.values()), None)
                values.append(y)
        self.loss = values[-1]
        self.values = values  # so that no address is used twice

    def note(self, x: Tensor, name: str, takes: str, nbytes: int, leaf: Tensor | None) -> None:
        self.places[id(x)] = len(self.lines)
        self.lines.append((name, takes, nbytes))
        self.drawn_leaves.append(leaf)


def lines_of(got: Shown, count: int) -> dict[int, list[str]]:
    """The words of each entry's line by its number, which stands first."""
    lines = got.rows(2)
    left_out = [line for line in lines if "left out" in line[0]]
    said = [[f"\u2026 {count - MOST:,} of {count:,} are left out"]] if count > MOST else []
    assert left_out == said, f"of {count} entries it says {left_out}"
    numbers = [int(line[0]) for line in lines if line not in left_out]
    first = MOST - MOST // 2
    expected = [*range(count)] if count <= MOST else [*range(first), *range(count - MOST // 2, count)]
    assert numbers == expected, f"entries {numbers} of {count}"
    return {int(line[0]): line[1:] for line in lines if line not in left_out}


def bytes_in(words: str) -> int:
    return 0 if words == "nothing" else int(words.partition(" bytes in ")[0].replace(",", ""))


def an_open_tape_is_drawn_whole(picture: Callable[[Tape], str], program: Program) -> None:
    """Each entry's name, inputs and bytes; the bytes of all are ``nbytes``; curves join inputs and ops."""
    got, count = shown(picture(program.tape)), len(program.lines)
    nbytes = sum(line[2] for line in program.lines)
    leaves = sum(leaf is not None for leaf in program.drawn_leaves)
    assert got.title.startswith(f"A tape of {count:,} entries, {leaves:,} of them leaves; "), got.title
    assert bytes_in(got.title.partition("its ops keep ")[2]) == nbytes == program.tape.nbytes, got.title
    lines = lines_of(got, count)
    for number, words in lines.items():
        name, takes, nbytes_kept = program.lines[number]
        if program.drawn_leaves[number] is not None:
            assert words == [name, "none"], f"leaf {number} is drawn as {words}"
        else:
            assert words[:2] == [name, takes], f"op {number} is drawn as {words}, and is {name} of {takes}"
            assert bytes_in(words[2]) == nbytes_kept, f"op {number} keeps {words[2]}, counted {nbytes_kept}"
    pairs = {
        (int(source), number)
        for number in lines
        for source in re.findall(r"(\d+): ", program.lines[number][1])
        if int(source) in lines
    }
    heights = {number: y for y, number in zip(sorted(heights_of(got)), lines, strict=True)}
    expected = sorted((heights[a] - heights[b]) for a, b in pairs)
    assert sorted(start - end for start, end in got.curves) == expected, (
        f"{len(got.curves)} curves for {pairs}"
    )


def heights_of(got: Shown) -> list[float]:
    return [y for y, words in got.lines.items() if words[0].isdecimal()]


def a_spent_tape_says_what_backward_left(picture: Callable[[Tape], str], program: Program) -> None:
    """The same entries; what ops kept is released, and leaves have the norms of their gradients."""
    for leaf in program.leaves:
        leaf.grad = None
    with np.errstate(all="ignore"):
        program.tape.backward(program.loss, 1.0)
    got, count = shown(picture(program.tape)), len(program.lines)
    assert got.title.endswith("backward has released what its ops kept"), got.title
    for number, words in lines_of(got, count).items():
        name, takes, _ = program.lines[number]
        leaf = program.drawn_leaves[number]
        if leaf is None:
            assert words == [name, takes, "released"], f"op {number} is drawn as {words}"
        else:
            norm = None if leaf.grad is None else math.hypot(*map(float, np.ravel(leaf.grad)))
            expected = "none" if norm is None else f"{norm:.4g}"
            assert words == [name, expected], f"leaf {number} is drawn as {words}, its norm is {expected}"
    assert program.tape.nbytes == 0
