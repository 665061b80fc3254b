"""Laws of backends/pipeline/trace.py: a run that kept to its plan is found to have done so,
and a trace's file holds the trace.
"""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.cli.trace_view import steps_of
from backends.comm import chrome as saved
from backends.comm import run_ranks
from backends.comm.spans import Ledger, Span, Trace
from backends.pipeline import SCHEDULES, Costs, simulate
from backends.pipeline import trace as fits
from backends.pipeline.trace import as_trace, bubble_of
from tests.backends.comm.chrome_laws import busy, keeps_the_rules
from tests.bugs.mutant import mutant

TIMES = st.integers(1, 9)


@st.composite
def plans(draw, names=tuple(SCHEDULES)):
    """A simulation of any schedule, with whole seconds of its own for every stage."""
    schedule = SCHEDULES[draw(st.sampled_from(names))]
    ranks = draw(st.sampled_from((1, 2, 4)) if schedule.name != "dualpipe" else st.sampled_from((2, 4)))
    ranks += ranks % 2 if schedule.chunks == 2 else 0  # two directions need two ends
    table = schedule.of(ranks, 2 * ranks * draw(st.integers(1, 2)))
    times = st.lists(TIMES, min_size=table.stages, max_size=table.stages)
    return simulate(table, Costs(draw(times), draw(times), draw(times)))


def is_found_again(plan, module=fits):
    """The law: a run that took what was planned has that plan, to the instruction and the second."""
    plan_of_trace = module.plan_of(plan.table, as_trace(plan))
    assert plan_of_trace.events == plan.events and plan_of_trace.bubble == plan.bubble


@given(plans())
def test_the_plan_of_a_run_that_kept_to_it(plan):
    is_found_again(plan)


@given(plans())
def test_the_bubble_of_a_plans_own_file_is_the_simulated_one(plan):
    content = json.loads(json.dumps(saved.chrome_trace(as_trace(plan))))
    (step,) = steps_of(saved.trace_of(content))
    assert abs(bubble_of(step) - Fraction(plan.bubble)) < 1e-12
    is_found_again(plan)
    assert fits.plan_of(plan.table, step).bubble == plan.bubble


BUGS = {
    "a product over several micro-batches counts as one": (" / len(i.micros))", ")"),
    "stages are ranks": ("stage = table.stage(micro, span.rank, i.chunk)", "stage = span.rank"),
    "a whole backward counts as one without weights": (
        "whole = isinstance(i, Backward) and",
        "whole = 0 and",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_the_plan_catches(bug):
    wrong = mutant(fits.__name__, BUGS[bug])
    costs = Costs([1, 2, 3, 4], [5, 6, 7, 8], [2, 3, 4, 5])
    tables = [SCHEDULES[name].of(4, 8) for name in ("1f1b-pairs", "chimera", "dualpipe")]
    with pytest.raises((AssertionError, IndexError)):
        for table in tables:
            is_found_again(simulate(table, costs), wrong)


def the_mean_is_taken(module=fits):
    """The law: a stage's forward takes the mean of what it took; what was not done takes nothing."""
    table = SCHEDULES["gpipe"].of(1, 3)
    times = {"forward 0": 1.0, "forward 1": 2.0, "forward 2": 6.0, "backward 0": 4.0, "backward 1": 0.0}
    spans = [Span(0, what, None, 0, None, 0.0, seconds) for what, seconds in times.items()]
    costs = module.costs_of(table, module.pairs_in(table, Trace(tuple(spans), (Ledger(),))))
    assert (costs.forward, costs.backward, costs.weight) == ([3.0], [2.0], [0.0])


def test_the_mean_is_taken():
    the_mean_is_taken()
    for wrong in ("times[0]", "max(times)", "sum(times)"):
        with pytest.raises(AssertionError):
            the_mean_is_taken(mutant(fits.__name__, ("fmean(times)", wrong)))


def test_micro_batches_without_samples_are_not_planned():
    plan = simulate(SCHEDULES["1f1b-pairs"].of(2, 4), Costs(1, 1, 1))
    run = as_trace(plan)
    run = Trace(tuple(s for s in run.spans if "3" not in s.what), run.ledgers)
    plan_of_run = fits.plan_of(plan.table, run)
    done = {micro for e in plan_of_run.events for micro in e.instruction.micros}
    assert done == {0, 1, 2}


def test_what_is_not_in_the_schedule_is_named():
    run = as_trace(simulate(SCHEDULES["gpipe"].of(2, 5)))
    with pytest.raises(
        ValueError, match="rank 0 did 'forward 4', which is not in schedule gpipe for 2 ranks"
    ):
        fits.plan_of(SCHEDULES["gpipe"].of(2, 4), run)
    with pytest.raises(
        ValueError, match="rank 1 did 'forward 0', which is not in schedule gpipe for 1 ranks"
    ):
        fits.plan_of(SCHEDULES["gpipe"].of(1, 5), run)


def test_the_ranks_of_one_pipeline_count_from_0():
    spans = [Span(rank, "forward 0", None, 0, None, float(rank), rank + 1.0) for rank in range(4)]
    ledgers = tuple(Ledger({("send", rank): (1, rank)}) for rank in range(4))  # pyright: ignore
    ranks = fits.ranks_of(Trace(tuple(spans), ledgers), [3, 1])
    assert [(s.rank, s.start) for s in ranks.spans] == [(1, 1.0), (0, 3.0)]
    assert ranks.ledgers == (ledgers[3], ledgers[1])


# Files


def comes_back(trace, module=saved):
    """The law: the trace in a file is the one that was written, its times to the microsecond."""
    content = json.loads(json.dumps(module.chrome_trace(trace, {"about": [1]})))
    result = module.trace_of(content)
    assert content["otherData"]["about"] == [1] and result.ledgers == trace.ledgers
    assert result.clock_error == trace.clock_error
    for rank in range(trace.size):
        mine, theirs = (spans_by_kind(whole_of(t, rank)) for t in (trace, result))
        assert mine.keys() == theirs.keys()
        for kind, moments in mine.items():
            for ours, read in zip(moments, theirs[kind], strict=True):  # starts, then stops
                assert all(-1e-9 < a - b < 1.001e-6 for a, b in zip(ours, read, strict=True))


def spans_by_kind(spans):
    """The starts and the stops of equal spans, each in order: two within a microsecond have no other."""
    results = {}
    for *kind, start, stop in spans:
        starts, stops = results.setdefault(tuple(kind), ([], []))
        starts.append(start)
        stops.append(stop)
    return {kind: (sorted(starts), sorted(stops)) for kind, (starts, stops) in results.items()}


def whole_of(trace, rank):
    """A rank's spans, with times since the trace began."""
    return [
        s._replace(start=s.start - trace.start, stop=s.stop - trace.start)
        for s in trace.spans
        if s.rank == rank
    ]


def by_hand():
    """Spans of every kind, whose times are whole microseconds."""
    ledgers = Ledger(), Ledger()
    ledgers[0].add("start_send", 1, 80, 2)
    ledgers[0].add("allreduce", None, 8)
    ledgers[1].add("recv", 0, 80)
    rows = [
        (0, "forward 3/1", None, 0, None),
        (0, "start_send", 1, 80, 7),
        (0, "post", 1, 0, 7),
        (0, "wait", None, 0, None),
        (0, "allreduce", None, 8, None),
        (0, "start_bucket", None, 16, None),
        (1, "recv", 0, 80, 0),
        (1, "recv_any", None, 8, 2),
        (1, "update", None, 0, None),
        (1, "walk to 3", None, 0, None),
    ]
    spans = [Span(*row, start=1.0 + i / 64, stop=1.0 + (i + 1) / 64) for i, row in enumerate(rows)]
    return Trace(tuple(spans), ledgers, 0.25)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_trace_of_a_file_is_the_one_written(ranks):
    comes_back(by_hand())
    trace = run_ranks(ranks, busy)[0]
    assert trace is not None
    content = saved.chrome_trace(trace, {"about": [1]})
    keeps_the_rules(content)
    again = saved.trace_of(json.loads(json.dumps(content)))
    comes_back(again)
    assert [s.what for s in again.spans if s.rank == 0].count("start_send") == 3 + 2 * (ranks - 1)


FILE_BUGS = {
    "the peer stays in the name": ('what.rsplit(" ", 2)[0] if "peer" in args else what', "what"),
    "every name loses two words": (
        'what.rsplit(" ", 2)[0] if "peer" in args else what',
        'what.rsplit(" ", 2)[0]',
    ),
    "the rank stays in the name": ('what.removeprefix(f"rank {rank} ")', "what"),
    "a started one ends as it starts": ('ends[event["id"]], what', "start, what"),
    "bytes are forgotten": ('args.get("bytes") or 0', "0"),
    "messages are forgotten": ('row["bytes"], row["messages"])', 'row["bytes"])'),
    "seconds are milliseconds": ("start / MICROSECONDS, stop / MICROSECONDS", "start / 1e3, stop / 1e3"),
    "what it was about is forgotten": ("**(about or {})", ""),
}


@pytest.mark.parametrize("bug", FILE_BUGS)
def test_the_law_of_the_file_catches(bug):
    with pytest.raises((AssertionError, KeyError)):
        comes_back(by_hand(), mutant(saved.__name__, FILE_BUGS[bug]))


# Steps


def test_a_step_is_from_a_ranks_first_forward_to_the_end_of_its_update():
    rows = [
        (0, "split", 0, 1),
        (0, "forward", 1, 3),
        (0, "send", 3, 4),
        (0, "update", 4, 7),
        (0, "allreduce", 5, 6),
        (0, "test", 7, 9),
        (0, "forward", 9, 10),
        (0, "update", 10, 11),
        (0, "test", 11, 12),
        (1, "recv", 0, 1),
        (1, "forward 0", 2, 3),
        (1, "forward 1", 3, 4),
        (1, "backward 0", 4, 5),
        (1, "update", 8, 9),
        (1, "forward 0", 9, 10),
        (1, "update", 11, 12),
    ]
    spans = tuple(Span(rank, what, None, 0, None, float(a), float(b)) for rank, what, a, b in rows)
    first, second = steps_of(Trace(spans, (Ledger(), Ledger())))
    assert first.spans == (*spans[1:5], *spans[10:14]) and second.spans == (*spans[6:8], *spans[14:16])
    assert (first.start, first.stop, second.start, second.stop) == (1, 9, 9, 12)


def test_a_plan_is_one_step_and_nothing_is_none():
    plan = as_trace(simulate(SCHEDULES["zb-h1"].of(2, 3)))
    (step,) = steps_of(plan)
    assert sorted(step.spans) == sorted(plan.spans)
    assert steps_of(Trace((), (Ledger(),))) == []
