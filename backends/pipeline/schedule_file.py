"""A schedule in a JSON file: the instructions of each rank, in order, for one number of micro-batches.

    {"micro": 2, "ranks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}

F0 is the forward of micro-batch 0, B0 its backward, and W0 the gradients of its weights, where they are
computed apart: B0 then computes the gradient of the input only. W0-2,5 is for several micro-batches. F0/1 is
for the rank's chunk 1. Further keys, with their defaults: "chunks": 1, the chunks of each rank; "route":
"around", the way of a micro-batch, one of ``ROUTES``; and "name", by default that of the file.

Lecture section: pipelining. Lesson: 13_pipeline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minigrad.lookup import check_choice

from .bidirectional import down_or_up
from .schedule import Route, Schedule, around
from .timetable import Instruction, Timetable, span_name
from .trace import instruction_of
from .v_shaped import down_and_up

Description = Mapping[str, Any]
"""What a file holds."""

ROUTES: dict[str, Route] = {"around": around, "down-or-up": down_or_up, "down-and-up": down_and_up}
KINDS = {"F": "forward", "B": "backward", "W": "weight"}
KEYS = ("name", "micro", "chunks", "route", "ranks")
EXAMPLE = 'write one such as {"micro": 2, "ranks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}'


def read_schedule(file: Path) -> dict[str, Any]:
    """The description in a file, complete with its defaults; ValueError where it describes no schedule."""
    if not file.is_file():
        raise ValueError(f"there is no schedule file {file}; {EXAMPLE}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it must be an object, got {content!r}")
        description = {"name": file.stem, "chunks": 1, "route": "around"} | content
        schedule_of(description)
    except ValueError as error:  # of JSON, of text that is none, and of what it says
        raise ValueError(f"the schedule file {file} cannot be used: {error}; {EXAMPLE}") from error
    return description


def schedule_of(description: Description) -> Schedule:
    """The schedule of a description, for its own numbers only; ValueError for what it does not describe."""
    for key in description:
        check_choice("key", key, KEYS)
    for key in ("micro", "ranks"):
        if key not in description:
            raise ValueError(f"it has no {key!r}")
    name, rows, route = description["name"], description["ranks"], description["route"]
    for key in ("micro", "chunks"):
        if type(description[key]) is not int or description[key] < 1:
            raise ValueError(f'"{key}" must be a whole number of at least 1, got {description[key]!r}')
    micro, chunks = description["micro"], description["chunks"]
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]{1,40}", name):
        raise ValueError(f'"name" must be 1 to 40 letters, digits, or any of . _ + -, got {name!r}')
    if not isinstance(rows, list) or not rows or not all(isinstance(row, str) for row in rows):
        raise ValueError(f'"ranks" must be a list with a text of instructions for each rank, got {rows!r}')
    check_choice("route", route, list(ROUTES))
    instructions = [
        [instruction_in(word, rank, micro) for word in row.split()] for rank, row in enumerate(rows)
    ]

    def check(*numbers: int) -> None:
        if numbers != (len(rows), micro, chunks):
            raise ValueError(
                f"it is for {len(rows)} ranks, {micro} micro-batches and {chunks} chunks, not for "
                f"{', '.join(map(str, numbers))}"
            )

    return Schedule(lambda rank, *_: iter(instructions[rank]), name, ROUTES[route], check, chunks)


def instruction_in(word: str, rank: int, micros: int) -> Instruction:
    """The instruction that a word such as F3 or W0-2/1 stands for; ValueError where it stands for none."""
    kind, runs = word[:1], word[1:].partition("/")[0]
    if kind in KINDS and all(int(n) < micros for n in re.findall(r"\d+", runs)):  # else W0-99999999 is large
        i = instruction_of(f"{KINDS[kind]} {word[1:]}")
        if i is not None:
            return i
    raise ValueError(
        f"rank {rank}: {word!r} is no instruction; take F, B or W and the number of a micro-batch from 0 to "
        f"{micros - 1}, and /1 for chunk 1"
    )


def word_of(i: Instruction) -> str:
    """The word for an instruction, from which ``instruction_in`` makes it again."""
    kind, _, which = span_name(i).partition(" ")
    return kind[0].upper() + which


def description_of(table: Timetable) -> dict[str, Any]:
    """The description of a timetable whose route is one of ``ROUTES``."""
    return {
        "name": table.schedule.name,
        "micro": table.micros,
        "chunks": table.chunks,
        "route": next(name for name, route in ROUTES.items() if route is table.schedule.route),
        "ranks": [" ".join(map(word_of, mine)) for mine in table.instructions],
    }
