"""Laws of backends/pipeline/validator.py: the validator accepts our schedules, refuses broken ones by
name, and agrees with brute force.
"""

import inspect
import re
from collections import Counter
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.mailboxes import Deadlock
from backends.pipeline import simulation, validator
from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Stuck, simulate
from backends.pipeline.timetable import Backward, Forward, Weight
from backends.pipeline.validator import check_schedule, check_timetable
from lessons.assignments.a7_pipeline import blocking
from tests.backends.pipeline.broken_timetables import BROKEN, names_what_is_wrong
from tests.backends.pipeline.drawn_timetables import defined, tables
from tests.bugs.mutant import mutant

ANY = 10**6  # a bound on what is in flight that nothing reaches


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_valid_for_all_numbers_it_allows(name):
    tables = list(defined(SCHEDULES[name]))
    assert tables
    for table in tables:
        check_timetable(table)


def test_a_students_schedule():
    """All forward, then back in reverse, the last micro-batch first: its activations are still at hand."""

    def last_first(rank, ranks, micros, chunks):
        yield from map(Forward, range(micros))
        yield from map(Backward, reversed(range(micros)))

    assert len(inspect.getsource(last_first).splitlines()) <= 20
    table = check_schedule(Schedule(last_first), ranks=4, micros=6)
    assert simulate(table).makespan == 2 * (6 + 4 - 1)


# Brute force


def obeys(table):
    """The rules, written another way: count what each rank does, and sort it by what has to come before."""
    number, before = {}, {}
    for rank, instructions in enumerate(table.instructions):
        for n, i in enumerate(instructions):
            before[rank, n] = {(rank, n - 1)} if n else set()
            for micro in i.micros if isinstance(i, Weight) else (i.micro,):
                number.setdefault((type(i), micro, rank, i.chunk), []).append((rank, n))
    passed = {(micro, rank, chunk) for micro, route in enumerate(table.routes) for rank, chunk in route}
    if any(key[1:] not in passed or len(at) > 1 for key, at in number.items()):
        return False
    if any((kind, *place) not in number for kind in (Forward, Backward) for place in passed):
        return False
    for micro, route in enumerate(table.routes):
        forwards = [number[Forward, micro, *place][0] for place in route]
        backwards = [number[Backward, micro, *place][0] for place in reversed(route)]
        for earlier, later in pairwise(forwards + backwards):
            before[later].add(earlier)
        for place in route:
            forward, backward = number[Forward, micro, *place][0], number[Backward, micro, *place][0]
            weight = number.get((Weight, micro, *place), [backward])[0]
            if not forward < backward <= weight:
                return False
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


def check_same_on_all_ranks(table, module=validator):
    """The law: what the validator accepts obeys the rules, and what it refuses breaks one, which it names."""
    try:
        module.check_timetable(table, bound=ANY)
    except ValueError as error:
        assert not obeys(table), f"a good timetable was refused: {error}"
        assert re.search(r"rank \d.* (Forward|Backward|Weight)\(micro", str(error))
    else:
        assert obeys(table), "a broken timetable was accepted"
        done = Counter(event.instruction for event in simulate(table).events)
        assert done == Counter(i for mine in table.instructions for i in mine)


def edits(mine):
    """Every list that is one deletion, doubling, swap or slip of the pen away."""
    for n, i in enumerate(mine):
        rest = mine[:n] + mine[n + 1 :]
        yield rest
        yield from (rest[:k] + [i] + rest[k:] for k in range(len(mine)))
        yield from (mine[:k] + [i] + mine[k:] for k in range(0, len(mine) + 1, 3))
        yield from (mine[:n] + [replace(i, chunk=chunk)] + mine[n + 1 :] for chunk in range(3))
        if isinstance(i, Weight):
            yield from (mine[:n] + [Weight(i.micros + (m,), i.chunk)] + mine[n + 1 :] for m in range(4))
        else:
            yield from (
                mine[:n] + [kind(m, i.chunk)] + mine[n + 1 :]
                for kind in (Forward, Backward)
                for m in range(4)
            )
    for a, b in combinations(range(len(mine)), 2):
        between = mine[a + 1 : b]
        yield mine[:a] + [mine[b]] + between + [mine[a]] + mine[b + 1 :]


def all_edits(table):
    for rank, instructions in enumerate(table.instructions):
        for mine in edits(list(instructions)):
            yield replace(
                table, instructions=(*table.instructions[:rank], tuple(mine), *table.instructions[rank + 1 :])
            )


SMALL = [
    ("1f1b", 3, 3),
    ("gpipe", 2, 2),
    ("1f1b-pairs", 2, 3),
    ("zb-h1", 2, 3),
    ("interleaved", 2, 2),
    ("chimera", 2, 2),
]


@pytest.mark.parametrize(("name", "ranks", "micros"), SMALL)
def test_one_slip_is_refused_just_where_brute_force_refuses_it(name, ranks, micros):
    for table in all_edits(SCHEDULES[name].of(ranks, micros)):
        check_same_on_all_ranks(table)


@st.composite
def slips(draw):
    """A timetable of ours after a few deletions, doublings, swaps and moves to another rank."""
    schedule = SCHEDULES[draw(st.sampled_from(sorted(SCHEDULES)))]
    table = draw(st.sampled_from(list(defined(schedule, range(1, 5), range(1, 7), (1, 2)))))
    lists = [list(mine) for mine in table.instructions]
    for _ in range(draw(st.integers(0, 3))):
        rank, other = (draw(st.integers(0, table.ranks - 1)) for _ in range(2))
        mine, place = lists[rank], st.integers(0, max(0, len(lists[rank]) - 1))
        if not mine:
            continue
        n, k, slip = draw(place), draw(place), draw(st.sampled_from(["drop", "double", "swap", "move"]))
        if slip == "swap":
            mine[n], mine[k] = mine[k], mine[n]
        elif slip == "double":
            mine.insert(k, mine[n])
        else:
            i = mine.pop(n)
            if slip == "move":
                lists[other].insert(k, i)
    return replace(table, instructions=tuple(map(tuple, lists)))


@given(slips())
def test_slips_are_refused_just_where_brute_force_refuses_them(table):
    check_same_on_all_ranks(table)


BUGS = {
    "twice is as good as once": ("if part in before:", "if False:"),
    "the order does not matter": ("earlier not in before:", "earlier not in complete:"),
    "weights at any time": (
        "if isinstance(part, Forward) else kind",
        "if not isinstance(part, Backward) else kind",
    ),
    "nobody has to go back": (
        "(Forward(micro, chunk), Backward(micro, chunk)) if",
        "(Forward(micro, chunk),) if",
    ),
    "a rank may wait for ever": ("    simulate(table)\n", ""),
    "every chunk is on every route": ("if (rank, i.chunk) not in table.routes[micro]:", "if False:"),
    "the last rank is not read": (
        "for rank in range(table.ranks):\n            check_order",
        "for rank in range(table.ranks - 1):\n            check_order",
    ),
    "weights of the first micro-batch only": ("for micro in i.micros]", "for micro in i.micros[:1]]"),
    "any micro-batch exists": ("if micro not in range(table.micros):", "if False:"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_laws_catch_a_validator_that_thinks(bug):
    broken = mutant("backends.pipeline.validator", BUGS[bug])
    with pytest.raises((AssertionError, ValueError, IndexError, KeyError, pytest.fail.Exception)):
        for name, ranks, micros in SMALL:
            for table in all_edits(SCHEDULES[name].of(ranks, micros)):
                check_same_on_all_ranks(table, broken)
        for wrong in BROKEN:
            names_what_is_wrong(wrong, broken)


# Memory


def most_in_flight(table, rank):
    """Counted anew: the forwards so far whose last instruction on this rank has not come yet."""
    mine = table.instructions[rank]
    last = {(micro, i.chunk): n for n, i in enumerate(mine) for micro in i.micros}
    begun = [{(micro, i.chunk) for i in mine[: n + 1] for micro in i.micros} for n in range(len(mine))]
    return max(sum(last[place] > n for place in places) for n, places in enumerate(begun))


def bound_is_kept(table, module=validator):
    """The law: exactly what a rank has in flight is enough, and one fewer is not."""
    most = [most_in_flight(table, rank) for rank in range(table.ranks)]
    module.check_timetable(table, bound=most)
    module.check_timetable(table, bound=max(most))
    for rank, number in enumerate(most):
        fewer = [*most[:rank], number - 1, *most[rank + 1 :]]
        named = rf"rank {rank}: Forward\(.*makes {number} .*the bound given is {number - 1}:"
        with pytest.raises(ValueError, match=named):
            module.check_timetable(table, bound=fewer)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_in_flight_is_enough_and_one_fewer_is_not(name):
    for table in defined(SCHEDULES[name], range(1, 5), range(1, 9), (1, 2)):
        bound_is_kept(table)


def test_bounds_are_as_many_as_the_ranks():
    with pytest.raises(ValueError, match="2 bounds were given; give one number, or 3"):
        check_schedule(SCHEDULES["gpipe"], 3, 2, bound=[2, 2])


MEMORY_BUGS = {
    "one more is no matter": ("if number > bound:", "if number > bound + 1:"),
    "what is back is free, weights or not": ("elif (i.micro, i.chunk) not in split:", "else:"),
    "weights free nothing": ("number -= len(i.micros) if until_weight else 0", "pass"),
    "one product frees one micro-batch": ("number -= len(i.micros)", "number -= 1"),
    "the bound is the first rank's": ("bound = bound[rank]", "bound = bound[0]"),
}


@pytest.mark.parametrize("bug", MEMORY_BUGS)
def test_the_law_of_the_bound_catches(bug):
    right, _ = MEMORY_BUGS[bug]
    if right in inspect.getsource(simulation):
        broken = mutant("backends.pipeline.validator")
        vars(broken).update(in_flight=vars(mutant(simulation.__name__, MEMORY_BUGS[bug]))["in_flight"])
    else:
        broken = mutant("backends.pipeline.validator", MEMORY_BUGS[bug])
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        for name in ("1f1b", "1f1b-pairs", "zb-h1"):
            bound_is_kept(SCHEDULES[name].of(3, 5), broken)


# Sends that wait for their receivers


def run_blocking(comm, table, waits):
    """A rank that receives right before an instruction and sends right after it; ``waits`` says for whom."""
    for i in table.instructions[comm.rank]:
        if isinstance(i, Weight):
            continue
        kind, route, here = type(i), table.routes[i.micro], table.stage(i.micro, comm.rank, i.chunk)
        way = route if kind is Forward else route[::-1]
        step = here if kind is Forward else len(route) - 1 - here
        tag = 2 * (i.micro * len(route) + step) + (kind is Forward)
        if step and (source := way[step - 1][0]) != comm.rank:
            waits[comm.rank] = f"rank {comm.rank} waits for rank {source} to send what {i} needs"
            comm.recv(source, tag)
        if step + 1 < len(way) and (to := way[step + 1][0]) != comm.rank:
            waits[comm.rank] = f"rank {comm.rank}, after {i}, waits for rank {to} to receive it"
            comm.send(np.zeros(1), to, tag + 2)
    del waits[comm.rank]


def as_threads_do(table, module=blocking):
    """The law: the validator finds the deadlock of ranks with waiting sends, where there is one."""
    waits = dict.fromkeys(range(table.ranks), "")
    try:
        run_ranks(table.ranks, lambda comm: run_blocking(comm, table, waits), rendezvous=True)
    except Deadlock:
        waiting = "; ".join(waits[rank] for rank in sorted(waits))
        with pytest.raises(Stuck, match=re.escape(f"sends wait for their receivers: {waiting}") + "$"):
            module.check_blocking(table)
    else:
        module.check_blocking(table)


@given(tables())
def test_blocking_sends_deadlock_where_threads_with_rendezvous_do(table):
    as_threads_do(table)


def test_neighbours_of_1f1b_deadlock_where_sends_block_and_of_gpipe_do_not():
    blocking.check_blocking(SCHEDULES["naive"].of(4, 8))
    blocking.check_blocking(SCHEDULES["gpipe"].of(4, 8))
    check_schedule(SCHEDULES["1f1b"], 2, 2)
    with pytest.raises(
        Stuck,
        match=re.escape(
            "schedule 1f1b of 2 ranks never ends where sends wait for their receivers: "
            "rank 0, after Forward(micro=1, chunk=0), waits for rank 1 to receive it; "
            "rank 1, after Backward(micro=0, chunk=0), waits for rank 0 to receive it"
        ),
    ):
        blocking.check_blocking(SCHEDULES["1f1b"].of(2, 2))


BLOCKING_BUGS = {
    "a receiver takes what comes": ("if n == 2]", "]"),
    "sends come before receives": (
        "((stage - way, True), (stage + way, False))",
        "((stage + way, False), (stage - way, True))",
    ),
    "what goes back comes from the rank before": ("1 if isinstance(i, Forward) else -1", "1"),
}


@pytest.mark.parametrize("bug", BLOCKING_BUGS)
def test_the_law_of_blocking_catches(bug):
    broken = mutant(blocking.__name__, BLOCKING_BUGS[bug])
    with pytest.raises((AssertionError, ValueError, IndexError, pytest.fail.Exception)):
        for name in ("1f1b", "gpipe"):
            as_threads_do(SCHEDULES[name].of(4, 4), broken)
