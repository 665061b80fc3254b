"""Laws of backends/pipeline/schedule.py, schedules.py and timetable.py: what each schedule's time, bubble
and memory must be, as laws that take a schedule and its numbers.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from backends.pipeline.schedule import Schedule
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, Simulation, simulate
from backends.pipeline.timetable import Backward, Forward, Timetable, Weight


def defined(schedule: Schedule, ranks: int, micros: int, chunks: int | None = None) -> bool:
    try:
        schedule.of(ranks, micros, chunks)
    except ValueError:
        return False
    return True


NUMBERS = {
    name: [
        (p, m, v)
        for p in range(1, 9)
        for m in range(1, 17)
        for v in range(1, 5)
        if defined(schedule, p, m, v)
    ]
    for name, schedule in SCHEDULES.items()
}
"""Ranks, micro-batches and chunks for which a schedule is defined."""


def ran(name: str, p: int, m: int, v: int | None = None, **costs) -> Simulation:
    return simulate(SCHEDULES[name].of(p, m, v), Costs(**costs))


def everything_once(schedule: Schedule, p: int, m: int, v: int) -> None:
    """No rank waits for ever; forward, back and weights of each micro-batch in each stage, on its route."""
    table = schedule.of(p, m, v)
    done = Counter()
    for event in simulate(table).events:
        i = event.instruction
        for micro in i.micros if isinstance(i, Weight) else (i.micro,):
            done[type(i), micro, event.rank, i.chunk] += 1
    places = [(micro, *place) for micro, route in enumerate(table.routes) for place in route]
    expected = [(kind, *place) for kind in (Forward, Backward) for place in places]
    weights = [deed for deed in done if deed[0] is Weight]
    # A schedule that splits one backward need not split another (DualPipe), but computes no weights twice.
    assert done == Counter(expected + weights)


def memory_as_promised(schedule: Schedule, p: int, m: int, v: int) -> None:
    assert schedule.most_in_flight is not None, f"Schedule({schedule.name}) needs most_in_flight"
    done = simulate(schedule.of(p, m, v))
    for rank in range(p):
        assert done.in_flight(rank, until_weight=True) == schedule.most_in_flight(rank, done.table)
        assert done.in_flight(rank) <= schedule.most_in_flight(rank, done.table)


# The table of formulas. F, B, W: seconds of a whole stage; a full backward is B + W.


class Row(NamedTuple):
    makespan: Callable[..., Fraction] | None  # of p, m, v, F, B, W; None: see below the table
    in_flight: Callable[..., int]  # of s, p, m, v: of rank s, until the backward
    until_weight: Callable[..., int] | None = None  # the same until the weights' gradients


def flush(p, m, v, F, B, W):
    return (m + p - 1) * (F + B + W)


def weights_later(p, m, v, F, B, W):
    return (m + p - 1) * (F + B) + m * W


def in_turn(s, p, m, v):
    return min(m, p - s)


TABLE = {
    "naive": Row(lambda p, m, v, F, B, W: m * p * (F + B + W), lambda s, p, m, v: 1),
    "gpipe": Row(flush, lambda s, p, m, v: m),
    "1f1b": Row(flush, in_turn),
    "interleaved": Row(
        lambda p, m, v, F, B, W: m * (F + B + W) + (p - 1) * (F + B + W) / v,
        lambda s, p, m, v: min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1),
    ),
    "gpipe-batched": Row(weights_later, lambda s, p, m, v: m, lambda s, p, m, v: m),
    "1f1b-pairs": Row(weights_later, in_turn, lambda s, p, m, v: min(m, p - s + 1)),
    "1f1b-batched": Row(weights_later, in_turn, lambda s, p, m, v: m),
    "zb-batched": Row(None, in_turn, lambda s, p, m, v: m),
    # For m >= p and W <= F, B the published m (F + B + W) + (p - 1) (F + B - W).
    "zb-h1": Row(
        lambda p, m, v, F, B, W: m * (F + B + W) + (p - 1) * (F + B) - (min(m, p) - 1) * min(F, B, W),
        in_turn,
        lambda s, p, m, v: min(m, p),
    ),
    "zb-h2": Row(None, lambda s, p, m, v: min(m, 2 * (p - s) - 1), lambda s, p, m, v: min(m, 2 * p - 1)),
    # For m a multiple of p the published p / 2 + 1 at the ends to p in the middle.
    "chimera": Row(None, lambda s, p, m, v: min(m, p) // 2 + min(m // 2, 1 + min(s, p - 1 - s))),
    "zb-v": Row(None, lambda s, p, m, v: min(2 * m, m + 1 + s, 2 * p)),
    "dualpipe-v": Row(None, lambda s, p, m, v: 2 * p + 1),
    "dualpipe": Row(None, lambda s, p, m, v: p + 1, lambda s, p, m, v: p + 1),
}


def takes_as_long(schedule: Schedule, p: int, m: int, v: int, F: int, B: int, W: int) -> None:
    """The row's makespan, of which each rank is idle for what its own work leaves."""
    formula = TABLE[schedule.name].makespan
    if formula is None:
        return
    makespan = formula(p, m, v, *map(Fraction, (F, B, W)))
    done = simulate(schedule.of(p, m, v), Costs(Fraction(F, v), Fraction(B, v), Fraction(W, v)))
    assert done.makespan == makespan
    assert {done.idle(rank) for rank in range(p)} == {makespan - m * (F + B + W)}
    assert done.bubble == 1 - m * (F + B + W) / makespan


def holds_as_many(schedule: Schedule, p: int, m: int, v: int) -> None:
    row, done = TABLE[schedule.name], simulate(schedule.of(p, m, v))
    for s in range(p):
        assert done.in_flight(s) == row.in_flight(s, p, m, v)
        assert done.in_flight(s, until_weight=True) == (row.until_weight or row.in_flight)(s, p, m, v)


def hides_messages(schedule: Schedule, p: int, m: int, v: int) -> None:
    """However many micro-batches, only one message each way across each boundary costs time."""
    done = simulate(schedule.of(p, m, v), Costs(2, 3, message=1))
    assert done.makespan == 5 * (m * v + p - 1) + (2 * (p * v - 1) if p > 1 else 0)


def never_waits(schedule: Schedule, p: int, m: int, v: int = 1) -> None:
    done = simulate(schedule.of(p, m), Costs(1, 1, 1))
    assert done.makespan == 3 * m + p - 1
    for rank in range(p):
        mine = done.of(rank)
        assert mine[-1].stop - mine[0].start == done.busy(rank) == 3 * m


def two_directions_take(schedule: Schedule, p: int, m: int, v: int = 2) -> None:
    """Chimera: units of p micro-batches leave p - 2 slots in all, or, where B = 2 F, p - 2 more each."""
    if m % p == 0:
        one = simulate(schedule.of(p, m), Costs(Fraction(1), 1))
        assert one.makespan == 2 * m + p - 2
        assert one.bubble == Fraction(p - 2, 2 * m + p - 2)
        two = simulate(schedule.of(p, m), Costs(Fraction(1), 2))
        assert two.makespan == 3 * m + (m // p + 1) * (p - 2)
        if m == p:
            assert two.bubble == Fraction(p - 2, 1) / (Fraction(3, 2) * m + p - 2)
    else:  # the last unit is not full
        assert simulate(schedule.of(p, m)).makespan == 2 * m + 2 * p - 2 - m % p


def eight_steps_take(schedule: Schedule, p: int, m: int, v: int = 2) -> None:
    """DualPipe: the published time where F and B run as one; less where B follows F, which has gone on."""
    table = schedule.of(p, m)
    assert simulate(table, Costs(1, 1, 1)).makespan == 3 * m + p // 2 - 1
    assert max(stops(table, (1, 1, 1), overlapped(table)).values()) == 3 * m + p - 2


def v_never_waits(schedule: Schedule, p: int, m: int, v: int = 2) -> None:
    """ZB-V: with 2 p - 1 micro-batches or more no rank waits between its first and last instruction."""
    half = Fraction(1, 2)
    done = simulate(schedule.of(p, m), Costs(half, half, half))
    assert done.makespan == 3 * m + half * max(p - 1, 4 * (p - 1) - 2 * (m - 1))
    for rank in range(p) if m >= 2 * p - 1 else ():
        mine = done.of(rank)
        assert mine[-1].stop - mine[0].start == done.busy(rank) == 3 * m


def half_of_dualpipe(schedule: Schedule, p: int, m: int, v: int = 2) -> None:
    """DualPipe-V: the first half of DualPipe's ranks, with micro-batch n // 2 in place of n."""
    whole = SCHEDULES["dualpipe"].of(2 * p, 2 * m)
    for rank, mine in enumerate(schedule.of(p, m).instructions):
        assert [(type(i), i.micros[0], i.chunk) for i in mine] == [
            (type(i), i.micros[0] // 2, i.chunk) for i in whole.instructions[rank]
        ]
    done = simulate(schedule.of(p, m), Costs(1, 1, 1))
    assert done.makespan == simulate(whole, Costs(1, 1, 1)).makespan == 6 * m + p - 1


def overlapped(table: Timetable) -> Callable[[int, int], bool]:
    """Whether a rank's n-th instruction runs as one with the next: DualPipe's F&B, of the two directions.

    As published the first of the two ranks in the middle run one after another.
    """

    def together(rank: int, n: int) -> bool:
        mine = table.instructions[rank]
        pairs = [
            isinstance(one, Forward) and isinstance(two, Backward) and one.chunk != two.chunk
            for one, two in pairwise(mine)
        ]
        middle = rank in (table.ranks // 2 - 1, table.ranks // 2)
        return n < len(pairs) and pairs[n] and not (middle and n == pairs.index(True))

    return together


def stops(table: Timetable, times: tuple[int, int, int], together=lambda rank, n: False) -> dict:
    """When each (kind, micro, stage) ends at the earliest; instructions together start and end as one."""
    F, B, W = times
    blocks = []
    for rank, mine in enumerate(table.instructions):
        split = {(micro, i.chunk) for i in mine if isinstance(i, Weight) for micro in i.micros}
        changed_together = False
        for n, i in enumerate(mine):
            micros = i.micros if isinstance(i, Weight) else (i.micro,)
            deeds = [(type(i), micro, table.routes[micro].index((rank, i.chunk))) for micro in micros]
            full = isinstance(i, Backward) and (i.micro, i.chunk) not in split
            takes = len(micros) * {Forward: F, Backward: B + W * full, Weight: W}[type(i)]
            if changed_together:
                blocks[-1][1].extend(deeds)
                blocks[-1][2] += takes
            else:
                blocks.append([rank, deeds, takes])
            changed_together = together(rank, n)
    stop, changed = {deed: 0 for _, deeds, _ in blocks for deed in deeds}, True
    while changed:  # every sweep settles at least one more block
        changed, free = False, [0] * table.ranks
        for rank, deeds, takes in blocks:
            before = [free[rank]]
            for kind, micro, stage in deeds:
                needed = {
                    Forward: [(Forward, micro, stage - 1)],
                    Backward: [(Forward, micro, stage), (Backward, micro, stage + 1)],
                    Weight: [(Backward, micro, stage)],
                }[kind]
                before += [stop[need] for need in needed if need in stop]
            free[rank] = max(before) + takes
            changed |= any(stop[deed] != free[rank] for deed in deeds)
            stop.update(dict.fromkeys(deeds, free[rank]))
    return stop
