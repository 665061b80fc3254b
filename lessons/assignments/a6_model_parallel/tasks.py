"""What assignment a6 is held to: the serial layer's numbers on every rank, by exactly so many bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
from minigrad_course.grading import Part, Task
from minigrad_course.grading.assignment import load_file

neurons = load_file(Path(__file__).parent / "neurons.py", "neurons_of_a6")
space = load_file(Path(__file__).parent / "space.py", "space_of_a6")

# A counter-example shrinks to the first of a list: a usual size, where the unusual ones are not to blame.
RANKS, SEEDS = st.integers(1, 5), st.integers(0, 2**16)
SAMPLES, SIZES = st.sampled_from([2, 3, 1, 0]), st.sampled_from([4, 2, 3, 5, 1, 7])
HEIGHTS = st.lists(st.sampled_from([2, 3, 1, 4, 0]), min_size=1, max_size=4).map(tuple)
SMALL = st.integers(1, 3)


def images(kind: Any, radii: Sequence[int]) -> st.SearchStrategy[Any]:
    return st.builds(kind, HEIGHTS, st.sampled_from(radii), st.integers(1, 2), SMALL, SMALL, SMALL, SEEDS)


def no_message(comm: Any, *arrays: Any) -> Any:
    """A wrong answer to every task."""
    return arrays[0].copy(), arrays


def task(name: str, points: int, title: str, cases: Any, check: Any, *functions: str) -> Task:
    return Task(name, points, title, cases, check, SimpleNamespace(**dict.fromkeys(functions, no_message)))


def layer_task(name: str, points: int, title: str, cases: Any, check: Any, layer: str) -> Task:
    return task(name, points, title, cases, check, f"{layer}_forward", f"{layer}_backward")


LAYERS = st.builds(neurons.Layer, RANKS, SAMPLES, SIZES, SIZES, SEEDS)
BLOCKS = st.builds(neurons.Block, RANKS, SAMPLES, SIZES, SIZES, SEEDS, SIZES)
IMAGES, CONVOLUTIONS = images(space.Image, [1, 2, 3, 0]), images(space.Convolution, [1, 2, 0])
HALO = ("halo", "halo_backward")
WITH_HALO = Part("with halo and halo_backward of the answers", 1.0, supplied=HALO)

TASKS = (
    layer_task("column", 15, "a linear layer cut by its neurons", LAYERS, neurons.check_column, "column"),
    layer_task("row", 15, "a linear layer cut by its inputs", LAYERS, neurons.check_row, "row"),
    layer_task("block", 20, "the two in a row", BLOCKS, neurons.check_block, "block"),
    task("halo", 30, "the halo, and its adjoint", IMAGES, space.check_halo, *HALO),
    replace(
        layer_task(
            "convolution", 20, "a convolution of own rows", CONVOLUTIONS, space.check_convolution, "conv"
        ),
        parts=(WITH_HALO,),
    ),
)
