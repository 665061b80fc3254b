"""Assignment a8: each mistake costs what it should, in plain words."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment
from minigrad_course.grading.assignment import load_file
from minigrad_course.grading.counterexample import counterexample

from tests.assignments.submissions import JUNK, costs, some_cases, submission

A8 = find_assignment("a8")
TASKS = {task.name: task for task in A8.tasks}
SOLVED = (Path(__file__).parent / "solved_a8.py").read_text(encoding="utf-8")
PARTS = [name for name in TASKS if not name.startswith("property")]
BY_NUMBER = load_file(A8.folder / "tasks.py", "tasks_of_a8_for_the_tests")


@pytest.mark.parametrize("number", BY_NUMBER.PARTS)
def test_implementations_that_properties_are_tried_on_are_what_they_are_called(number):
    name = BY_NUMBER.PARTS[number][0]
    task = TASKS[name]
    for implementation in BY_NUMBER.RIGHT[number]:
        right = SimpleNamespace(**{name: implementation})
        assert counterexample(task, right, examples=some_cases(task)) is None, implementation
    for implementation in BY_NUMBER.WRONG[number]:
        wrong = SimpleNamespace(**{name: implementation})
        assert counterexample(task, wrong, shrink=False) is not None, implementation


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_what_is_no_array_is_refused_in_words(junk):
    junk_submission = SimpleNamespace(
        **dict.fromkeys(("mean_gradient", "update_tied", "sparse_sum"), lambda *_: junk)
    )
    junk_submission.Inbox = lambda: SimpleNamespace(take=lambda _: junk, give_back=lambda _: None)
    junk_submission.ErrorFeedback = lambda *_: SimpleNamespace(compress=lambda _: junk)
    junk_submission.SplitFilter = lambda *_: SimpleNamespace(forward=lambda _: junk, backward=lambda _: junk)
    for name in PARTS:
        words = counterexample(TASKS[name], junk_submission, 0, 10)
        assert words is not None and "Error" not in words, words


MISTAKES = {
    "a mean of means over the ranks that have any": (
        [("total[:-1] / total[-1] if total[-1] else total[:-1]",
          "allreduce(comm, gradient) / max(allreduce(comm, np.array(float(samples > 0))), 1.0)")],
        {"mean_gradient"},
        "gradient",
    ),
    "nan where there are no samples": (
        [(" if total[-1] else total[:-1]", " if total[-1] else total[:-1] * np.nan")],
        {"mean_gradient"},
        "gradient is nan, it should be 0",
    ),
    "asks for the very bits": (
        [("    close(result * weighted[-1], weighted[:-1])",
          "    assert (result == weighted[:-1] / (weighted[-1] or 1)).all()")],
        {"property_1"},
        "property_1 refuses what is right here",
    ),
    "looks at rank 0 only": (
        [("    if comm.rank in holders:\n        close",
          "    if comm.rank == 0 and comm.rank in holders:\n        close"),
         ("    else:\n        assert new", "    elif comm.rank not in holders:\n        assert new")],
        {"property_3"},
        "property_3 lets a wrong implementation pass: element 0 of rank 1's weight",
    ),
    "never uses memory again, but keeps the transport's": (
        [("buffer = self.free.pop() if self.free else np.empty_like(message)", "return message"),
         ("        buffer[...] = message\n        return buffer\n", "")],
        {"Inbox"},
        "1 message, given back after each: (None,): element 0 of message 0, after message 0 came, is nan",
    ),
    "the transport's memory is not overwritten": (
        [("        transport[...] = 1000.0\n", ""),
         ("transport[...] = message", "transport = message.copy()")],
        {"property_2"},
        "property_2 lets a wrong implementation pass",
    ),
    "the mean of the uses": (
        [("    return weight - lr * total", "    return weight - lr * total / len(holders)")],
        {"update_tied"},
        "2 ranks, holders (0, 1)",
    ),
    "what was sent stays": (
        [("        self.residual[indices] = 0\n", "")],
        {"ErrorFeedback"},
        "1 gradient of 1 element, 1 sent: element 0 of the residual after gradient 0",
    ),
    "looks at the first gradient only": (
        [("    for gradient in gradients:", "    for gradient in gradients[:1]:")],
        {"property_4"},
        "property_4 lets a wrong implementation pass",
    ),
    "only the sum of all entries": (
        [("close(sparse_sum(comm, indices, values, size), sum(everything))",
          "close(sparse_sum(comm, indices, values, size).sum(), sum(everything).sum())")],
        {"property_5"},
        "property_5 lets a wrong implementation pass: element",
    ),
    "refuses everything": (
        [("    mine = np.zeros(size)\n",
          "    raise AssertionError('never right')\n    mine = np.zeros(size)\n")],
        {"property_5"},
        "property_5 refuses what is right here: never right",
    ),
    "one step only": (
        [("    for x, g in steps:", "    for x, g in steps[:1]:")],
        {"property_6"},
        "2 steps: property_6 lets a wrong implementation pass",
    ),
    "does not look at the way back": (
        [("        close(dx, matrix.T @ g)\n", "")],
        {"property_6"},
        "gradient of x in step 0",
    ),
    "raises while others still wait for it": (
        [("        results.append([allgather",
          "        assert comm.rank < 1\n        results.append([allgather")],
        {"property_6"},
        "no rank can go on",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A8, *MISTAKES[mistake])


PROPERTIES = SOLVED.partition("def property_1")[2]
ASSERTIONS = re.findall(r"^ +(?:close\(.*\)|assert new is None)$", PROPERTIES, re.M)


@pytest.mark.parametrize("assertion", ASSERTIONS, ids=str.strip)
def test_a_property_without_one_of_its_assertions_is_not_paid(assertion):
    """Each output that a docstring names has a wrong implementation whose only fault is there."""
    before = SOLVED.partition(assertion)[0]
    owner = re.findall(r"^def (property_\d)", before, re.M)[-1]
    faulty = [(assertion + "\n", assertion[: -len(assertion.lstrip())] + "pass\n")]
    words = counterexample(TASKS[owner], submission("solved_a8.py", *faulty), shrink=False)
    assert words is not None and f"{owner} lets a wrong implementation pass" in words
