"""Laws of lessons/minigrad_course/grading/judge.py: the verdict is made where the submission is not; its
process holds nothing of what is right.
"""

import re

import pytest

from .conftest import DOUBLE, TASKS, TOTAL, messages, scores

SEED = 918_273_641
SECRET = 424_242.25  # in what is wanted alone
MASK = 1_000_000_007

# Walks every object, every frame and the command lines, for numbers that are only written down in disguise
SEARCH = f"""
import gc, re, sys

def numbers(x):
    if type(x) in (int, float, str): return [x]
    if type(x).__name__ == "ndarray": return x.ravel().tolist()
    return []

def everything():
    seen, todo = {{}}, [*gc.get_objects(), *sys.modules.values()]
    for frame in sys._current_frames().values():
        while frame is not None:
            todo += [frame.f_locals, frame.f_globals]
            frame = frame.f_back
    while todo:
        x = todo.pop()
        if id(x) not in seen:
            seen[id(x)] = x
            todo += gc.get_referents(x)
    return seen.values()

def look(done=[]):
    if done:
        return
    done.append(True)
    objects = list(everything())
    secrets = []
    for x in objects:
        for n in numbers(x):
            digits = re.findall(r"[0-9]{{5,12}}[.]?[0-9]{{0,2}}", n) if type(n) is str else [n]
            written = [float(d) for d in digits]
            if any(m + {MASK} in ({MASK + SEED}, {MASK + SECRET}) for m in written):
                secrets.append((type(x).__name__, str(n)[:80]))
    names = sorted({{type(x).__name__ for x in objects}} & {{"Task", "Request", "SearchStrategy", "Case"}})
    own = [name for name in sys.modules if "hypothesis" in name or name.endswith("grading.judge")]
    print("looked at", len(objects), "and found", secrets, names, own)
"""


def test_neither_seed_nor_right_results_are_in_the_submissions_process(graded, toys):
    file = toys / "a1_toy" / "tasks.py"
    file.write_text(
        TASKS.replace(
            "expected = naive_allreduce(comm, x)", f"expected = naive_allreduce(comm, x) + {SECRET}"
        ),
        encoding="utf-8",
    )
    text = SEARCH + TOTAL.replace("    return x +", "    look()\n    return x +") + DOUBLE
    limits = {"task_seconds": 60, "mebibytes": 3000}
    report = graded(text, "total", seed=SEED, answers=True, **limits)  # it may import what it likes
    output = report.results[0].output
    assert scores(report) == [0]
    looked = re.findall(r"looked at (\d+) and found (.*)", output)
    assert looked and all(int(count) > 5000 and actual == "[] [] []" for count, actual in looked), output


def test_a_right_number_that_is_there_is_found(graded):
    """The search itself: what the submission keeps by itself it finds."""
    text = (
        SEARCH
        + f"kept = {{'a': [{SECRET}]}}\n"
        + TOTAL.replace("    return x +", "    look()\n    return 2 * x +")
    )
    report = graded(text + DOUBLE, "total", answers=True, task_seconds=60, mebibytes=3000)
    assert "and found [('float'" in report.results[0].output


SWALLOWS = """
def total(comm, x):
    try:
        comm.send(x, comm.rank)
    except BaseException:
        pass
"""


@pytest.mark.parametrize("then", ["pass", "raise", "raise KeyError('mine') from None"])
def test_what_the_grader_raised_is_told_whatever_the_submission_makes_of_it(then, judged):
    words = judged(SWALLOWS.replace("pass", then) + TOTAL.replace("\ndef total(comm, x):\n", ""), "total")
    assert words == "1 ranks, 1 elements: rank 0 sends itself a message: it has what is in it"


def test_a_submission_that_ends_is_told_with_the_case_in_which_it_did(graded):
    text = "def double(x):\n    if len(x) > 3: raise SystemExit(3)\n    return 2 * x\n"
    report = graded(text, "double")
    assert messages(report)[0].startswith("1 ranks, 4 elements: the program was left with exit(3)")


def test_one_rank_does_not_see_what_another_keeps(graded):
    """Not in its own module, and not in NumPy's either: each is a process."""
    text = "import numpy as np\nkept = []\ndef total(comm, x):\n    kept.append(x)\n    np.kept = kept\n"
    text += "    assert all(k.sum() % 10 == kept[0].sum() % 10 or True for k in kept)\n"
    text += "    print(comm.rank, len(np.kept), flush=True)\n    return x\n"
    report = graded(text, "total", answers=True)
    assert scores(report) == [0]
