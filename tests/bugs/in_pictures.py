"""Bugs of pictures: what a notebook shows of a tape, a model, a schedule, a model on ranks, and a proof."""

from __future__ import annotations

import math

import numpy as np

from backends.laws import Difference, Differences
from backends.model_parallel import ModelParallel
from backends.parameter_map import ParameterMap, parameter_map
from backends.pipeline import SCHEDULES, Costs, Pipeline
from minigrad import nn
from tests.backends import parameter_map_laws
from tests.backends.pictures import proof_picture_laws, schedule_picture_laws
from tests.bugs.bug import Bug
from tests.bugs.in_engine import backward_releases_what_was_held
from tests.minigrad.pictures import model_picture_laws, tape_picture_laws
from tests.minigrad.pictures.tape_picture_laws import Program

# Laws


def picture(x) -> str:
    return x._repr_svg_()


def program() -> Program:
    """Products, sums and tangents, of arrays that several of them keep, and of two leaves."""
    choices = [("multiply", 0, 1), ("multiply", 2, 0), ("tanh", 3, 0), ("add", 4, 2), ("multiply", 4, 4)]
    return Program(choices, 2)


def open_tapes_are_drawn_whole() -> None:
    tape_picture_laws.an_open_tape_is_drawn_whole(picture, program())


def long_tapes_are_drawn_at_their_ends() -> None:
    long = Program([("add", i, 0) for i in range(40)], 1)
    tape_picture_laws.an_open_tape_is_drawn_whole(picture, long)


def spent_tapes_say_what_is_left() -> None:
    tape_picture_laws.a_spent_tape_says_what_backward_left(picture, program())


def models_are_drawn_whole() -> None:
    rng = np.random.default_rng(0)
    model = model_picture_laws.nested([3, 4, 2], 1, rng)
    model.append(nn.Linear(4, 2, rng=rng))
    model[-1].weight = model[2].weight
    model[1].bias.requires_grad = False
    model_picture_laws.a_model_is_drawn_whole(picture, model)


def orders_are_drawn_whole() -> None:
    for name in ("1f1b", "zb-v", "1f1b-batched"):
        schedule_picture_laws.an_order_is_drawn_whole(picture, SCHEDULES[name].of(2, 4))


def times_are_drawn() -> None:
    schedule_picture_laws.times_are_drawn(picture, SCHEDULES["1f1b"].of(3, 5), Costs(2, 3))


def long_schedules_say_what_is_left_out() -> None:
    schedule_picture_laws.a_long_schedule_says_what_it_leaves_out(picture, SCHEDULES["gpipe"].of(12, 50))


def build() -> nn.Sequential:
    rng = np.random.default_rng(0)
    return nn.Sequential(
        nn.Linear(6, 7, rng=rng), nn.ReLU(), nn.Linear(7, 5, rng=rng), nn.Linear(5, 3, rng=rng)
    )


def maps_are_what_ranks_hold() -> None:
    plan = {"0": "column", "2": "row"}
    parameter_map_laws.maps_are_what_ranks_hold(
        parameter_map, 2, build, lambda comm: ModelParallel(comm, plan=plan)
    )
    parameter_map_laws.maps_are_what_ranks_hold(
        parameter_map, 2, build, lambda comm: Pipeline(comm, sample=(6,))
    )


def maps_are_drawn_whole() -> None:
    split = {"w": ((0, 3), (2, 5)), "b": ((0, 3),)}
    parts = (split, {"w": ((0, 3), (0, 2))}, *[{"b": ((0, 3),)}] * 9)
    parameter_map_laws.a_map_is_drawn_whole(picture, ParameterMap({"w": (3, 5), "b": (3,)}, parts))


def proofs_are_drawn_whole() -> None:
    for relative in (0.0, 1e-13, 1e-12, 2e-12, math.inf):
        rows = [Difference("loss", (), 0.0, 0.0, 0), Difference("1.bias", (3,), relative, relative, 1)]
        proof_picture_laws.a_proof_is_drawn_whole(picture, Differences(rows, 1e-12))
    proof_picture_laws.a_proof_is_drawn_whole(picture, Differences([], 1e-12))


# Bugs

BUGS = [
    Bug("an op is drawn under the name before it", "op.lift_two", "tape.ops[out.index] = name",
        "tape.ops[out.index - 1] = name", open_tapes_are_drawn_whole, "KeyError"),
    Bug("an array that two ops keep counts twice", "tape_picture.kept_by", "counted |= bases.keys()", "pass",
        open_tapes_are_drawn_whole, "A tape of"),
    Bug("arrays of leaves count", "tape_picture.kept_by",
        "{id(base_of(entry.data)) for entry in entries if isinstance(entry, TensorBase)}", "set()",
        open_tapes_are_drawn_whole, "A tape of"),
    Bug("an op keeps what the next one keeps", "tape_picture.of_op", "in_words(*memory[index])",
        "in_words(*memory[index - 1])", open_tapes_are_drawn_whole, "counted"),
    Bug("curves end at the next op", "tape_picture.tape_picture", "places[source], places[index]",
        "places[source], places[source]", open_tapes_are_drawn_whole, "curves for"),
    Bug("the last entries of a long tape are missing", "ends.ends_of",
        "range(count - most // 2, count)", "range(first, most)", long_tapes_are_drawn_at_their_ends,
        "of 41 entries|entries "),
    Bug("all entries of a long tape are drawn", "TapeOutline.__init__", "ends_of(self.count, MOST_ENTRIES)",
        "range(self.count)", long_tapes_are_drawn_at_their_ends, "it says"),
    Bug("a spent tape says that it keeps nothing", "tape_picture.of_op",
        '"released" if memory is None else in_words(*memory[index])',
        'in_words(*(memory[index] if memory else (0, 0)))', spent_tapes_say_what_is_left, "is drawn as"),
    Bug("a norm is a sum of sizes", "tape_picture.norm_of", "np.linalg.norm(x / largest)",
        "np.abs(x / largest).sum()", spent_tapes_say_what_is_left, "its norm is"),
    Bug("a spent tape forgets its leaves", "tape.Tape.outline", "len(self.leaves)", "0",
        open_tapes_are_drawn_whole, "A tape of"),
    Bug("a picture of a spent tape keeps its arrays", "TapeOutline.__init__", "part[:2] for part in entry",
        "part for part in entry", backward_releases_what_was_held, r"\[4, 4"),
    Bug("a tied parameter counts twice", "model_picture.row_of", "if first.get(id(value)) == prefix + key",
        "", models_are_drawn_whole, "is drawn as"),
    Bug("a tied parameter is drawn as another one", "model_picture.in_words", "if before != prefix + key:",
        "if not before:", models_are_drawn_whole, "is drawn as"),
    Bug("frozen parameters are trained", "model_picture.model_picture", "if p.requires_grad", "",
        models_are_drawn_whole, "it says"),
    Bug("a backward looks like a forward", "schedule_picture.label", "LETTERS[type(instruction).__name__] + ",
        "", orders_are_drawn_whole, "is drawn as"),
    Bug("chunks look alike", "schedule_picture.label", " + mark(instruction.chunk)", "",
        orders_are_drawn_whole, "is drawn as"),
    Bug("a rank's first instruction is missing", "schedule_picture.picture_of_order", "in enumerate(mine)",
        "in enumerate(mine[1:], 1)", orders_are_drawn_whole, "is drawn as"),
    Bug("a box is as wide as its neighbor", "schedule_picture.picture",
        "unit * (box.stop - box.start),", "unit * (boxes[0].stop - boxes[0].start),", times_are_drawn,
        "is drawn Box"),
    Bug("idle time is busy time", "schedule_picture.picture_of_times", "simulation.idle(rank)",
        "simulation.busy(rank)", times_are_drawn, "rank 0: idle"),
    Bug("instructions of a long schedule are not counted", "schedule_picture.picture",
        "len(boxes) - len(drawn)", "0", long_schedules_say_what_is_left_out, "forward"),
    Bug("a map has the part of rank 0", "parameter_map.parameter_map", "part = shard.axis % len(shape), "
        "shard.local_slice", "part = shard.axis % len(shape), slice(0, shard.sizes[0])",
        maps_are_what_ranks_hold, "has not"),
    Bug("a map has shapes of parts", "parameter_map.parameter_map", "shard.full_shape(shape)", "shape",
        maps_are_what_ranks_hold, "has shape"),
    Bug("a part is drawn from its start to the end", "map_picture.cell_of", 'f"{a}:{b}"', 'f"{a}:"',
        maps_are_drawn_whole, "held are"),
    Bug("a rank without a part seems to have it", "map_picture.cell_of", 'return Cell("-")',
        'return Cell("whole", WHOLE)', maps_are_drawn_whole, "on rank"),
    Bug("the first ranks alone are drawn", "map_picture.map_picture",
        "ends_of(len(parts), MOST_RANKS)", "range(min(len(parts), MOST_RANKS))",
        maps_are_drawn_whole, "AssertionError|rank"),
    Bug("a difference over the bound is called equal", "proof_picture.proof_picture",
        "relative <= bound", "relative <= 2 * bound", proofs_are_drawn_whole,
        "is drawn as"),
    Bug("one equal parameter proves all", "Differences.proved", "bool(self) and all(", "bool(self) and any(",
        proofs_are_drawn_whole, "proved is True"),
    Bug("no comparison is a proof", "Differences.proved", "bool(self) and all(", "all(",
        proofs_are_drawn_whole, "proved is True"),
    Bug("the first parameter is named as the worst", "Differences.conclusion",
        "max(self, key=lambda difference: difference.relative)", "self[0]", proofs_are_drawn_whole,
        "the worst are"),
]  # fmt: skip
