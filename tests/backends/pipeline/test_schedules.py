"""Laws of backends/pipeline/unidirectional.py, bidirectional.py, v_shaped.py,
zero_bubble.py and schedules.py: every schedule takes the time, leaves the bubble and holds
the micro-batches that its formula says.
"""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.unidirectional import one_f_one_b
from backends.pipeline.zero_bubble import with_weights_batched
from tests.backends.pipeline import schedule_laws as laws
from tests.backends.pipeline.schedule_laws import NUMBERS, TABLE, ran

COST = st.integers(1, 5)


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_timetable_does_everything_once_in_the_memory_promised(name):
    assert NUMBERS[name]
    for numbers in NUMBERS[name]:
        laws.everything_once(SCHEDULES[name], *numbers)
        laws.memory_as_promised(SCHEDULES[name], *numbers)


@pytest.mark.parametrize("name", sorted(SCHEDULES.keys() | TABLE.keys()))
def test_every_schedule_is_in_the_table(name):
    assert name in TABLE, f"schedule_laws.TABLE needs a row {name!r}: its time and its memory"
    assert name in SCHEDULES


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.makespan])
@given(data=st.data(), F=COST, B=COST, W=COST)
def test_makespan_and_bubble_are_those_of_the_table(name, data, F, B, W):
    p, m, v = data.draw(st.sampled_from(NUMBERS[name]))
    laws.takes_as_long(SCHEDULES[name], p, m, v, F, B, W)


@pytest.mark.parametrize("name", TABLE)
def test_micro_batches_in_flight_are_those_of_the_table(name):
    for numbers in NUMBERS[name]:
        laws.holds_as_many(SCHEDULES[name], *numbers)


@given(p=st.integers(1, 8), m=st.integers(1, 16), every=st.integers(1, 16), F=COST, B=COST, W=COST)
def test_weights_take_no_part_in_the_bubble_however_many_are_batched(p, m, every, F, B, W):
    table = Schedule(with_weights_batched(one_f_one_b, every)).of(p, m)
    done = simulate(table, Costs(F, B, W))
    assert done.makespan == laws.weights_later(p, m, 1, F, B, W)
    for s in range(p):
        assert done.in_flight(s, until_weight=True) == min(m, p - s + every - 1)


@given(p=st.integers(1, 6), more=st.integers(1, 8), F=COST, B=COST, W=COST)
def test_two_products_of_weights_leave_of_the_bubble_one_input_gradient_for_each_rank_behind(
    p, more, F, B, W
):
    """Where a forward takes no longer than an input gradient; W fills the drain of 1F1B, here by two."""
    F, B, m = min(F, B), max(F, B), 3 * (p - 1) + more
    done = ran("zb-batched", p, m, forward=F, backward=B, weight=W)
    assert done.makespan == m * (F + B + W) + (p - 1) * (B + max(0, F - 2 * W))
    assert done.makespan <= ran("1f1b-batched", p, m, forward=F, backward=B, weight=W).makespan


# What the table says of single rows.


def test_three_samples_in_three_stages_take_five_slots_forward_instead_of_nine():
    assert ran("gpipe", 3, 3, backward=0).makespan == 5
    assert ran("naive", 3, 3, backward=0).makespan == 9


@given(p=st.integers(1, 8), m=st.integers(1, 16))
def test_m_micro_batches_make_p_ranks_faster_by_mp_of_m_plus_p_minus_1(p, m):
    one_rank = ran("gpipe", 1, m, forward=Fraction(p), backward=0).makespan
    assert one_rank / ran("gpipe", p, m, backward=0).makespan == Fraction(m * p, m + p - 1)
    assert ran("gpipe", p, m, forward=Fraction(1)).bubble == Fraction(p - 1, m + p - 1)


@given(p=st.integers(1, 8), groups=st.integers(1, 2), v=st.integers(1, 4))
def test_interleaving_divides_the_bubble_relative_to_the_ideal_by_the_chunks(p, groups, v):
    m = p * groups
    done = ran("interleaved", p, m, v, forward=Fraction(1, v), backward=Fraction(2, v))
    assert done.idle(0) / done.busy(0) == Fraction(p - 1, v * m)


def test_interleaving_hides_all_messages_but_those_of_filling_and_draining():
    for numbers in NUMBERS["interleaved"]:
        laws.hides_messages(SCHEDULES["interleaved"], *numbers)


def test_the_published_example_of_1f1b_takes_33_slots():
    done = ran("1f1b", 4, 8, forward=Fraction(1), backward=2)
    assert (done.makespan, sum(map(done.idle, range(4)))) == (33, 36)
    assert done.bubble == Fraction(36, 4 * 33)  # 27.3 %


@pytest.mark.parametrize("times", [(1, 1, 1), (2, 2, 2), (3, 3, 2), (2, 3, 1), (2, 2, 1)])
@given(p=st.integers(1, 8), data=st.data())
def test_zb_h1_waits_as_published(times, p, data):
    m, (F, B, W) = data.draw(st.integers(p, 16)), times
    done = ran("zb-h1", p, m, forward=Fraction(F), backward=B, weight=W)
    assert done.makespan == m * (F + B + W) + (p - 1) * (F + B - W)
    if F == B == W:
        assert done.bubble == Fraction(p - 1, 3 * m + p - 1)


def test_zb_h2_never_waits_between_its_first_and_its_last_instruction():
    for p, m, _ in NUMBERS["zb-h2"]:
        if m >= 2 * p - 1:
            laws.never_waits(SCHEDULES["zb-h2"], p, m)


def test_chimera_takes_as_long_as_published():
    for p, m, _ in [*NUMBERS["chimera"], (10, 10, 2), (12, 12, 2), (14, 14, 2), (16, 16, 2), (16, 32, 2)]:
        laws.two_directions_take(SCHEDULES["chimera"], p, m)


def test_dualpipe_takes_as_long_as_published():
    for p, m, _ in NUMBERS["dualpipe"]:
        laws.eight_steps_take(SCHEDULES["dualpipe"], p, m)


def test_zb_v_never_waits_between_its_first_and_its_last_instruction():
    for p, m, _ in NUMBERS["zb-v"]:
        laws.v_never_waits(SCHEDULES["zb-v"], p, m)


def test_dualpipe_v_is_half_of_dualpipe():
    for p, m, _ in NUMBERS["dualpipe-v"]:
        laws.half_of_dualpipe(SCHEDULES["dualpipe-v"], p, m)


# Messages.


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_way_a_micro_batch_is_sent_once_less_than_it_has_stages(name):
    for p, m, v in NUMBERS[name]:
        table = SCHEDULES[name].of(p, m, v)
        sent = sum(there[0] != here[0] for route in table.routes for here, there in pairwise(route))
        ways = 2 if name in ("zb-v", "dualpipe-v") else 1
        assert sent == ((p * v - 1) * m if name == "interleaved" and p > 1 else ways * (p - 1) * m)


# Numbers for which a schedule is not defined.


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("interleaved", (4, 6, 2), "micro-batches in multiples of the 4 ranks, got 6; take 4 or 8"),
        ("interleaved", (4, 3, 2), "micro-batches in multiples of the 4 ranks, got 3; take 4"),
        ("1f1b", (4, 8, 2), "1 chunk on each rank, not 2; interleaved has more"),
        ("zb-h1", (4, 8, 2), "1 chunk on each rank, not 2; interleaved has more"),
        ("chimera", (3, 4, 2), "an even number of ranks, got 3; take 2 or 4"),
        (
            "chimera",
            (4, 5, 2),
            "an even number of micro-batches, half for each direction, got 5; take 4 or 6",
        ),
        ("chimera", (4, 4, 1), "each rank has 2 chunks, one for each direction, got 1; take 2"),
        ("dualpipe", (1, 4, 2), "an even number of ranks, got 1; take 2"),
        ("dualpipe", (4, 6, 2), "2 micro-batches or more for each of the 4 ranks, got 6; take 8"),
        (
            "dualpipe",
            (4, 9, 2),
            "an even number of micro-batches, half for each direction, got 9; take 8 or 10",
        ),
        ("zb-v", (4, 8, 1), "each rank has 2 chunks, one for each direction, got 1; take 2"),
        ("dualpipe-v", (4, 7, 2), "2 micro-batches or more for each of the 4 ranks, got 7; take 8"),
        ("gpipe", (0, 6, 1), "the number of ranks must be at least 1, got 0"),
    ],
)
def test_other_numbers_are_refused_with_the_nearest_that_will_do(name, numbers, words):
    with pytest.raises(ValueError) as error:
        SCHEDULES[name].of(*numbers)
    assert str(error.value).startswith(f"schedule {name}: ")
    assert str(error.value).endswith(words)
