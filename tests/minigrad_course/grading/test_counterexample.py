"""Laws of lessons/minigrad_course/grading/counterexample.py: the search for a counter-example, and the
reading of a submission; and copies of both with a bug each.
"""

from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import pytest
from minigrad_course.grading import Task, Wrong, counterexample
from minigrad_course.grading.assignment import load_file

from tests.bugs.mutant import mutant


@dataclass(frozen=True)
class Case:
    ranks: int
    length: int

    def __str__(self):
        return f"{self.ranks} ranks of {self.length}"


CASES = st.builds(Case, st.integers(1, 5), st.integers(0, 50))


def task(check, cases=CASES):
    return Task("toy", 1, "a toy", cases, check, None)


def check_submission(submission, case, comm):
    submission(case, comm)


# What a student gets to read


def wrong_on_the_last_rank(case, comm):
    if comm.rank == comm.size - 1 and case.ranks > 2 and case.length > 6:
        raise Wrong(f"rank {comm.rank} is wrong")


def fails_and_others_follow(case, comm):
    """Rank 0's check says what follows on it from rank 1's error: rank 1's is told."""
    if comm.size == 2:
        if comm.rank == 1:
            raise ValueError("of rank 1")
        try:
            comm.recv(1)
        except RuntimeError as error:
            raise Wrong(f"rank 0 raised {error}") from error


def leaves(case, comm):
    raise SystemExit(3)


def waits(case, comm):
    comm.recv((comm.rank + 1) % comm.size)


def fails_and_others_go_on(case, comm):
    if comm.size == 2:
        if comm.rank == 1:
            comm.recv(0)
            raise ValueError("of rank 1")
        comm.send(np.zeros(1), 1)
        with suppress(RuntimeError):
            comm.recv(1)
        raise Wrong("rank 0 has a wrong sum")


def wraps_the_deadlock(case, comm):
    try:
        waits(case, comm)
    except Exception:
        raise Wrong("it raised something") from None


def has_a_cause(case, comm):
    try:
        [][0]
    except IndexError as error:
        raise Wrong("the list is empty") from error


def fails_at_call(number):
    calls = []

    def fails_once(case, comm):
        calls.append(case)
        if comm.rank == 0 and len(calls) >= number and calls[0] is not None:
            calls[0] = None
            raise Wrong("once")

    return fails_once


def long_winded(case, comm):
    raise Wrong("x" * 10_000)


def tells_the_smallest_case_in_words(search):
    messages = {
        wrong_on_the_last_rank: "3 ranks of 7: rank 2 is wrong",
        fails_and_others_follow: "2 ranks of 0: ValueError: of rank 1 (rank 1)",
        fails_and_others_go_on: "2 ranks of 0: ValueError: of rank 1 (rank 1)",
        wraps_the_deadlock: "1 ranks of 0: deadlock: no rank can go on",
        leaves: "1 ranks of 0: the program was left with exit(3)",
        waits: "1 ranks of 0: deadlock: no rank can go on",
        has_a_cause: "1 ranks of 0: the list is empty",
        fails_at_call(5): "once\nThis case failed, and passed when it was tried again",
        long_winded: "1 ranks of 0: xxxxx",
    }
    for submission, words in messages.items():
        result = search.counterexample(task(check_submission), submission)
        assert result is not None and words in result and len(result) < 2100, (submission, result)
    assert search.counterexample(task(check_submission), lambda case, comm: None) is None


def tries_the_cases_of_the_seed(search):
    def tried(seed):
        cases = []
        search.counterexample(task(check_submission), lambda case, comm: None, seed, on_case=cases.append)
        return cases

    assert tried(3) == tried(3) != tried(4)
    assert len(set(tried(3))) > 20


def takes_the_same_turns(search):
    """What ranks do in turns is a race without them: the order of their lines tells."""

    def lines(seed):
        lines_of = []

        def speaks(case, comm):
            for turn in range(3):
                comm.send(np.zeros(1), (comm.rank + 1) % comm.size, turn)
                lines_of.append((comm.rank, turn))
                comm.recv((comm.rank - 1) % comm.size, turn)

        assert search.counterexample(task(check_submission, st.just(Case(4, 0))), speaks, seed) is None
        return tuple(lines_of)

    assert all(lines(seed) == lines(seed) for seed in range(8))
    assert len({lines(seed) for seed in range(8)}) > 2


def shrinks_for_a_bounded_time(search):
    tries, before = [], search.SHRINK_TRIES

    def wrong_if_large(case, comm):
        if tries or case.length > 10**6:
            tries.append(case)
            assert case.length <= 10**6

    search.SHRINK_TRIES = 3
    try:
        lists = st.lists(st.integers(1000, 10**9), min_size=12).map(lambda x: Case(1, sum(x)))
        assert search.counterexample(task(check_submission, lists), wrong_if_large)
    finally:
        search.SHRINK_TRIES = before
    assert len(tries) <= 1 + 3


def draws_cases_for_processes(search):
    cases = search.draw_cases(task(check_submission), 5, max_ranks=3, count=4)
    assert cases == search.draw_cases(task(check_submission), 5, max_ranks=3, count=4)
    assert len(set(cases)) == 4 and all(1 < case.ranks <= 3 for case in cases)
    alone = st.builds(Case, st.just(1), st.integers(0, 50))
    assert len(search.draw_cases(task(check_submission, alone), 5, 3, 4)) == 4


SEARCH_LAWS = (
    tells_the_smallest_case_in_words,
    tries_the_cases_of_the_seed,
    takes_the_same_turns,
    shrinks_for_a_bounded_time,
    draws_cases_for_processes,
)


@pytest.mark.parametrize("law", SEARCH_LAWS)
def test_search(law):
    law(counterexample)


SEARCH_BUGS = {
    "does not shrink": ("*([Phase.shrink] if shrink else [])", ""),
    "tells what follows": ("if not is_consequence(item[1])", ""),
    "tells the last error": ("causes[0] if", "causes[-1] if"),
    "tells the cause of a Wrong": ("if report is not None:", "if False:"),
    "lets SystemExit through": (
        "except BaseException as error:  # SystemExit",
        "except Exception as error:  #",
    ),
    "ranks race": ("run_ranks(case.ranks, work, seed=turns)", "run_ranks(case.ranks, work)"),
    "one rank": ("run_ranks(case.ranks, work,", "run_ranks(1, work,"),
    "one turn for all seeds": ("case, seed_of_cases)", "case, 0)"),
    "does not say that it is flaky": ("failure[0] + FLAKY", "failure[0]"),
    "shrinks for ever": ("if tries > SHRINK_TRIES or", "if"),
    "says everything": ("if len(text) <= limit else", "if True else"),
    "watches nothing": ("on_case(case)", "str(case)"),
    "large worlds for processes": ("if case.ranks <= max_ranks", ""),
}


@pytest.mark.parametrize("bug", SEARCH_BUGS)
def test_search_bugs_are_caught(bug):
    broken = mutant("minigrad_course.grading.counterexample", SEARCH_BUGS[bug])
    with pytest.raises((AssertionError, SystemExit)):
        for law in SEARCH_LAWS:
            law(broken)


def test_a_case_that_no_search_needs_is_not_drawn():
    """``broken`` of a task is refused without shrinking: the first case that shows it is enough."""
    tries = []
    check = task(lambda submission, case, comm: tries.append(case) or submission(case, comm))
    assert counterexample.counterexample(check, SimpleNamespace(), shrink=False)
    assert len(tries) < 12


# The same seed, the same cases: whatever else is loaded


def draws_the_same_whatever_is_loaded(module, folder):
    """Also after files were imported that are full of numbers which might be drawn."""

    def drawn():
        cases: list[str] = []
        wide = task(check_submission, st.builds(Case, st.just(1), st.integers(0, 10**6)))
        assert module.counterexample(wide, lambda *_: None, 3, examples=200, on_case=cases.append) is None
        return cases

    before = drawn()
    others = np.random.default_rng([*folder.name.encode()]).integers(1000, 10**6, (40, 10))
    for n, numbers in enumerate(others):
        (folder / f"numbers{n}.py").write_text(f"FOUND = {[*map(int, numbers)]}", encoding="utf-8")
        load_file(folder / f"numbers{n}.py", f"numbers{n}_of_{folder.name}")
    assert drawn() == before


def test_the_same_seed_draws_the_same_whatever_is_loaded(tmp_path):
    draws_the_same_whatever_is_loaded(counterexample, tmp_path)


def test_cases_that_depend_on_what_is_loaded_are_caught(tmp_path):
    bug = ('_constants", constants)', '_constants", providers._get_local_constants)')
    with pytest.raises(AssertionError):
        draws_the_same_whatever_is_loaded(mutant("minigrad_course.grading.counterexample", bug), tmp_path)
