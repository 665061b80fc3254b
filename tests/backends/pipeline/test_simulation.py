"""Laws of backends/pipeline/simulation.py: instructions start when their rank, their input and the
message are there, and not later.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.pipeline import simulation
from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Stuck, simulate
from backends.pipeline.timetable import Backward, Forward, Weight
from tests.backends.pipeline.schedule_laws import NUMBERS, ran, stops
from tests.bugs.mutant import mutant

COST = st.integers(1, 5)


def is_the_longest_path(clock, name: str, numbers: tuple[int, int, int], times: tuple[int, int, int]) -> None:
    table = SCHEDULES[name].of(*numbers)
    ends = stops(table, times)
    for event in clock.simulate(table, clock.Costs(*times)).events:
        i = event.instruction
        for micro in i.micros if isinstance(i, Weight) else (i.micro,):
            assert event.stop == ends[type(i), micro, table.stage(micro, event.rank, i.chunk)]


@given(data=st.data(), times=st.tuples(COST, COST, COST))
def test_an_instruction_ends_at_the_end_of_the_longest_path_to_it(data, times):
    name = data.draw(st.sampled_from(sorted(SCHEDULES)))
    is_the_longest_path(simulation, name, data.draw(st.sampled_from(NUMBERS[name])), times)


def test_who_waits_for_ever_is_said():
    def back_first(rank, ranks, micros, chunks):
        yield from (Backward(0), Forward(0)) if rank == 1 else (Forward(0), Backward(0))

    with pytest.raises(Stuck) as error:
        simulate(Schedule(back_first).of(2, 1))
    assert str(error.value) == (
        "schedule back-first of 2 ranks never ends: rank 0 waits to do Backward(micro=0, chunk=0), which "
        "needs backward of micro-batch 0 in stage 1; rank 1 waits to do Backward(micro=0, chunk=0), which "
        "needs forward of micro-batch 0 in stage 1"
    )


@given(times=st.lists(st.integers(1, 9), min_size=1, max_size=8), m=st.integers(1, 16), r=st.integers(0, 3))
def test_the_longest_stage_sets_the_pace(times, m, r):
    p, back = len(times), [r * t for t in times]
    forward = sum(times) + (m - 1) * max(times)
    assert ran("gpipe", p, m, forward=times, backward=0).makespan == forward
    assert ran("gpipe", p, m, forward=times, backward=back).makespan == (1 + r) * forward
    assert ran("1f1b", p, m, forward=times, backward=back).makespan <= (1 + r) * forward
    assert ran("naive", p, m, forward=times, backward=back).makespan == (1 + r) * m * sum(times)


@given(p=st.integers(1, 8), m=st.integers(1, 16), F=COST, B=COST, message=COST)
def test_a_message_takes_its_time_where_it_crosses_ranks(p, m, F, B, message):
    on_the_way = 2 * (p - 1) * message
    assert ran("naive", p, m, forward=F, backward=B, message=message).makespan == m * (
        p * (F + B) + on_the_way
    )
    assert ran("gpipe", p, 1, forward=F, backward=B, message=message).makespan == p * (F + B) + on_the_way
    assert ran("interleaved", 1, m, 2, forward=F, backward=B, message=message).makespan == 2 * m * (F + B)


WRONG_CLOCKS = {
    "a backward does not wait for the stage behind": (
        "if stage + 1 < table.stages else []", "if False else []",
    ),
    "a weight's time is counted twice": (
        "+ (0 if later else at(self.weight, stage))", "+ at(self.weight, stage)",
    ),
    "a rank does two things at a time": (
        "start = max([now[rank], *arrivals])", "start = max([0, *arrivals])",
    ),
    "a weight of many takes the time of one": (
        "return sum(at(self.weight, stage) for stage in stages)", "return at(self.weight, stages[0])",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", WRONG_CLOCKS)
def test_the_longest_path_finds_a_wrong_clock(bug):
    broken = mutant(simulation.__name__, WRONG_CLOCKS[bug])
    with pytest.raises(AssertionError):
        for name in ("1f1b", "zb-h1", "1f1b-pairs"):
            is_the_longest_path(broken, name, (4, 8, 1), (1, 2, 3))
