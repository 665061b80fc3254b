"""Assignment a7: right schedules score all points, and each mistake costs what it should, in plain words."""

from itertools import repeat
from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from backends.pipeline import Forward, Weight
from tests.assignments.submissions import costs, faults

A7 = find_assignment("a7")
ALL = {task.name for task in A7.tasks}
FUNCTIONS = ALL - {"my_schedule_best"}
MINE = {"my_schedule", "my_schedule_best"}


INSTRUCTIONS = ([3], [(0, 1)], [Forward("0")], [Weight(0)], [Forward(0, 1)], repeat(Forward(0)))  # pyright: ignore
JUNK = (None, 3, "x", *INSTRUCTIONS)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_list_of_instructions_is_refused_in_words(junk):
    refusals = faults(A7, SimpleNamespace(**dict.fromkeys(FUNCTIONS, lambda *_: junk)), few=ALL)
    assert set(refusals) == ALL
    assert not any("Error" in words for words in refusals.values()), refusals


ONE_F_ONE_B = {"one_f_one_b", *MINE}  # the student's own schedule is made of it
MISTAKES = {
    "GPipe goes back too soon": (
        [("    for i in range(micros):\n        yield Forward(i)\n    for i in reversed(range(micros)):\n"
          "        yield Backward(i)", "    yield from one_f_one_b(stage, stages, micros)")],
        {"gpipe"},
        "comes after a Backward; GPipe takes all forward first",
    ),
    "GPipe forgets the first micro-batch on the way back": (
        [("reversed(range(micros))", "reversed(range(1, micros))")],
        {"gpipe"},
        "1 stage, 1 micro-batch, F = 1, B = 1: stage 0: Backward(micro=0, chunk=0) is missing",
    ),
    "one too many ahead": (
        [("ahead = min(stages - stage - 1, micros)", "ahead = min(stages - stage, micros)")],
        ONE_F_ONE_B,
        "makes 2 micro-batches in flight; the bound given is 1",
    ),
    "as many ahead as there are stages, whatever there is": (
        [("ahead = min(stages - stage - 1, micros)", "ahead = stages - stage - 1")],
        {"one_f_one_b", "my_schedule"},  # the best is asked for where there are enough
        "3 stages, 1 micro-batch, F = 1, B = 1: stage 0: Forward(micro=1, chunk=0) is for micro-batch 1",
    ),
    "none ahead": (
        [("ahead = min(stages - stage - 1, micros)", "ahead = 0")],
        ONE_F_ONE_B,
        "it is valid, but takes",
    ),
    "drains from the first again": (
        [("        yield Backward(i)\n\n\ndef my",
          "        yield Backward(i if i < micros - ahead else 0)\n\n\ndef my")],
        ONE_F_ONE_B,
        "a second time",
    ),
    "weights at once: sooner than 1F1B, and not the best": (
        [("wait = stage  # what 1F1B leaves free", "wait = 0")],
        {"my_schedule_best"},
        "it is valid, but takes",
    ),
    "weights late everywhere": (
        [("wait = stage  # what 1F1B leaves free", "wait = stages - 1")],
        MINE,
        "micro-batches in flight",
    ),
    "the last weights with their backwards": (
        [("        yield Weight((micro,))", "        yield from ()")],
        MINE,
        "it is valid, but takes",
    ),
    "no weights put off": (
        [("instructions += [Weight((i - wait,))] if i >= wait else []", "instructions += [Weight((i,))]"),
         ("range(micros - wait, micros)", "()")],
        {"zero_bubble"},
        "waits",
    ),
    "1F1B without the bubble": (
        [("ahead, wait = 2 * (stages - 1 - stage), 2 * stage", "ahead, wait = stages - 1 - stage, stage")],
        {"zero_bubble"},
        "it is valid, but stage 0 waits",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A7, *MISTAKES[mistake])
