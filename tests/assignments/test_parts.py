"""Partial credit in the assignments: the usual mistakes keep a part of a task, its wrong answer none."""

import types

import pytest
from minigrad_course.grading.assignment import find_assignments, load_file
from minigrad_course.grading.counterexample import counterexample

from tests.assignments import (
    mistakes_of_a1,
    mistakes_of_a2,
    mistakes_of_a3,
    mistakes_of_a4,
    mistakes_of_a9,
    mistakes_of_a10,
)
from tests.assignments.submissions import some_cases, submission

ASSIGNMENTS = {one.name.partition("_")[0]: one for one in find_assignments()}
PARTS = [
    (short, task, part) for short, one in ASSIGNMENTS.items() for task in one.tasks for part in task.parts
]
EASIER = [item for item in PARTS if not item[2].supplied]

TEXTS = {"a1": {name: [(right, wrong)] for name, (right, wrong, *_) in mistakes_of_a1.MISTAKES.items()}}
for short, module in (
    ("a2", mistakes_of_a2),
    ("a3", mistakes_of_a3),
    ("a4", mistakes_of_a4),
    ("a9", mistakes_of_a9),
    ("a10", mistakes_of_a10),
):
    TEXTS[short] = {name: changes for name, (changes, *_) in module.MISTAKES.items()}

KEPT = {  # the mistakes that keep a part, and those that lose it, too
    ("a1", "cross_entropy"): ({"no shift before exp"}, {"g forgotten"}),
    ("a1", "conv2d"): ({"padding not cut off", "stride in one direction"}, {"a kernel turned round"}),
    ("a2", "ring_reduce_scatter"): ({"cuts what divides only"}, {"sends before it receives"}),
    ("a2", "ring_allgather"): (set(), {"one step short, which two ranks forgive"}),
    ("a2", "ring_allreduce"): ({"cuts what divides only"}, {"goes round once too often"}),
    ("a2", "doubling_allreduce"): ({"only powers of two"}, {"gathers everything instead"}),
    ("a3", "gradients"): ({"the mean of the means"}, {"the sum of the means"}),
    ("a3", "Reducer"): ({"who has no gradients starts nothing"}, {"keeps what was lent"}),
    ("a4", "Momentum"): ({"no masking"}, {"momentum after selection"}),
    ("a9", "seal"): ({"a length instead of a checksum"}, {"unseal raises for what is too short"}),
    ("a9", "kill"): ({"every file of the step is loaded"}, {"shards of all steps have one name"}),
    ("a9", "power"): ({"one rank commits before the others have written"}, {"shards are not synced"}),
    ("a9", "damage"): ({"a length instead of a checksum"}, {"one generation stays"}),
    ("a10", "tile"): ({"exponentials of large scores"}, {"what is masked has the score 0"}),
    ("a10", "merge"): ({"-inf from -inf"}, {"merge without the rescale"}),
    ("a10", "zigzag"): ({"blocks of one size"}, {"the partner is off by one"}),
    ("a10", "ring_backward"): ({"the last hop is missing"}, {"no delta"}),
}


def test_every_part_of_a_task_has_its_mistakes():
    assert [(short, task.name) for short, task, _ in EASIER] == list(KEPT)


@pytest.mark.parametrize(("short", "task", "part"), EASIER, ids=lambda x: x if isinstance(x, str) else "")
def test_a_mistake_keeps_the_part_that_it_leaves_right(short, task, part):
    easier = task.under(part)
    assert 0 < part.share < 1 and counterexample(easier, task.broken, shrink=False) is not None
    for has_part, mistakes in zip((True, False), KEPT[short, task.name], strict=True):
        for name in mistakes:
            wrong = submission(f"solved_{short}.py", *TEXTS[short][name])
            assert counterexample(task, wrong, shrink=False) is not None, name
            cases = some_cases(task) if has_part else task.examples
            assert (counterexample(easier, wrong, examples=cases, shrink=False) is None) == has_part, name


@pytest.mark.parametrize("short", sorted({short for short, _, part in PARTS if part.supplied}))
def test_supplied_functions_are_in_the_answers(short):
    answers = load_file(ASSIGNMENTS[short].answers, f"answers_of_{short}")
    starter = load_file(ASSIGNMENTS[short].starter, f"starter_of_{short}")
    for task in ASSIGNMENTS[short].tasks:
        for name in (name for part in task.parts for name in part.supplied):
            assert isinstance(vars(answers)[name], types.FunctionType) and name in vars(starter)
            assert name != task.name
