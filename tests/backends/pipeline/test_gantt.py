"""Laws of backends/pipeline/gantt.py and trace.py: plan and run are drawn alike, as text to the letter,
with boxes for instructions and the simulated bubble.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.chrome import chrome_trace
from backends.comm.collectives.link import Link
from backends.comm.spans import Ledger, Span, Trace
from backends.comm.timeline import gantt
from backends.comm.trace import Traced, gather_trace
from backends.pipeline import gantt as picture
from backends.pipeline import trace as spans
from backends.pipeline.gantt import draw_pair, figure_of, slots
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.timetable import Backward, Forward, Weight, span_name
from backends.pipeline.trace import as_trace, between, bubble_of, bubbles_of, instruction_of
from tests.backends.comm.chrome_laws import keeps_the_rules
from tests.backends.pipeline.drawn_timetables import tables
from tests.backends.pipeline.picture_laws import (
    boxes_of,
    bubbles_are_the_plans,
    costs,
    every_slot_is_drawn,
    pictures_agree,
)

numbers = st.integers(0, 30)
instructions = st.one_of(
    st.builds(Forward, numbers, numbers),
    st.builds(Backward, numbers, numbers),
    st.builds(Weight, st.lists(numbers, min_size=1, max_size=6).map(tuple), numbers),
)


def planned(name, ranks, micros, *of, chunks=None, **more):
    return as_trace(simulate(SCHEDULES[name].of(ranks, micros, chunks), Costs(*of, **more)))


# Names


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        (Forward(3), "forward 3"),
        (Backward(12, 1), "backward 12/1"),
        (Weight((0, 1, 2, 3)), "weight 0-3"),
        (Weight((2,), 2), "weight 2/2"),
        (Weight((0, 1, 4, 7, 6)), "weight 0-1,4,7,6"),
    ],
)
def test_a_span_is_named_after_its_instruction(instruction, name):
    assert span_name(instruction) == name
    assert instruction_of(name) == instruction


@given(instructions)
def test_a_name_gives_its_instruction_back(instruction):
    assert instruction_of(span_name(instruction)) == instruction


@given(st.sampled_from(["forward", "backward", "weight"]), st.text(" 0123/,-", max_size=8))
def test_any_other_name_is_no_instruction(kind, rest):
    instruction = instruction_of(what := f"{kind} {rest}")
    assert instruction is None or span_name(instruction) == what


@pytest.mark.parametrize("what", ["forward", "forward 3 ", "forward 0-1", "forward 03", "weight 3-1", "recv"])
def test_such_names_are_no_instructions(what):
    assert instruction_of(what) is None


# Text


def test_three_micro_batches_in_three_stages_take_5_slots_and_not_9():
    assert slots(planned("gpipe", 3, 3, 1, 0)) == (
        "rank 0 |0 1 2 . .| 40% idle\n"
        "rank 1 |. 0 1 2 .| 40% idle\n"
        "rank 2 |. . 0 1 2| 40% idle\n"
        "0 forward of micro-batch 0  . idle"
    )
    assert slots(planned("naive", 3, 3, 1, 0)) == (
        "rank 0 |0 . . 1 . . 2 . .| 67% idle\n"
        "rank 1 |. 0 . . 1 . . 2 .| 67% idle\n"
        "rank 2 |. . 0 . . 1 . . 2| 67% idle\n"
        "0 forward of micro-batch 0  . idle"
    )


def test_what_takes_several_slots():
    assert slots(planned("1f1b", 3, 3, 1, 2)) == (
        "rank 0 |0 1 2 . . . . b0- . b1- . b2-| 40% idle\n"
        "rank 1 |. 0 1 . . b0- 2 b1- . b2- . .| 40% idle\n"
        "rank 2 |. . 0 b0- 1 b1- 2 b2- . . . .| 40% idle\n"
        "0 forward, b0 backward of micro-batch 0  . idle"
    )
    assert slots(planned("gpipe-batched", 2, 3, 1, 1, 1)) == (
        "rank 0 |0  1  2  .  .  b0 b1 b2 w0-2----| 18% idle\n"
        "rank 1 |.  0  1  2  b0 b1 b2 w0-2---- . | 18% idle\n"
        "0 forward, b0 backward, w0 weight gradients of micro-batch 0  . idle"
    )


def test_chunks_have_marks():
    assert slots(planned("interleaved", 2, 2, 1, 1)) == (
        "rank 0 |0   1   0'  1'  .   b0' .   b1' b0  b1 | 20% idle\n"
        "rank 1 |.   0   1   0'  b0' 1'  b1' b0  b1  .  | 20% idle\n"
        "0 forward, b0 backward of micro-batch 0  ' chunk 1  . idle"
    )
    assert slots(planned("interleaved", 1, 1, 1, 1, chunks=4)).startswith(
        "rank 0 |0    0'   0\"   0/3  b0/3 b0\"  b0'  b0  | 0% idle\n"
    )


whole_costs = st.builds(Costs, *[st.integers(1, 4)] * 3)


@given(tables(), whole_costs)
def test_text_shows_each_instruction_in_its_slots(table, costs):
    every_slot_is_drawn(table, costs)


@pytest.mark.parametrize("seconds", [1.0, 1e-3, 0.7e-5])
def test_a_column_is_a_slot_whatever_a_slot_takes(seconds):
    plan = simulate(SCHEDULES["1f1b"].of(3, 5), Costs(2, 3))
    assert slots(as_trace(plan, seconds)) == slots(as_trace(plan), unit=1)


def test_a_slot_divides_all_times_and_a_run_is_shown_in_its_shortest_instructions():
    assert picture.slot(spans.instructions_of(planned("1f1b", 2, 3, 4, 6))) == 2
    assert picture.slot(spans.instructions_of(planned("1f1b", 2, 3, Fraction(1, 3), Fraction(1, 2)))) == (
        pytest.approx(1 / 6)
    )
    assert picture.slot(spans.instructions_of(planned("1f1b", 2, 3, 1.0, 1.2345678))) == 1
    tiny = Trace((Span(0, "forward 0", None, 0, None, 0.0, 1e-7), *planned("naive", 1, 3).spans), (Ledger(),))
    assert len(slots(tiny).splitlines()[0]) < 1000
    far = [Span(0, f"forward {n}", None, 0, None, 1e6 * n + 0.3, 1e6 * n + 1.3 + n) for n in range(2)]
    assert slots(Trace(tuple(far), (Ledger(),))) == (
        f"rank 0 |{' '.join('.' * 100)}| 100% idle\n0 forward of micro-batch 0  . idle"
    )


def test_without_instructions_there_is_nothing_to_draw():
    with pytest.raises(ValueError, match="no span of the trace is an instruction of a pipeline"):
        slots(Trace((Span(0, "forward", None, 0, None, 0.0, 1.0),), (Ledger(),)))


# The bubble


@given(tables(), costs)
def test_the_bubble_of_a_plan_is_the_simulated_one(table, costs):
    bubbles_are_the_plans(table, costs)


def test_what_is_no_instruction_is_no_work():
    plan = planned("1f1b", 2, 3)
    wait = Span(0, "wait", None, 0, None, -5.0, 30.0)
    more = Trace((wait, *plan.spans), plan.ledgers)
    assert bubble_of(more) == bubble_of(plan) == pytest.approx(1 / 4)
    assert slots(more) == slots(plan)


def test_one_step_of_many():
    plan = planned("1f1b", 2, 3, seconds := 1.0, 2.0)
    later = [s._replace(start=s.start + 100 * seconds, stop=s.stop + 100 * seconds) for s in plan.spans]
    run = Trace((*plan.spans, *later), plan.ledgers)
    assert bubble_of(run) > 0.8
    for start in (0, 100):
        assert slots(between(run, start, start + 50)) == slots(plan)


# A run


def run(table, costs, comm):
    """What an engine does, without the model: receive, be busy for as long as it takes, send; the trace."""
    traced = Traced(comm)
    sends = []
    for i in table.instructions[comm.rank]:
        way = table.routes[i.micros[0]]
        way = [None, *(way if isinstance(i, Forward) else way[::-1]), None]
        at = way.index((comm.rank, i.chunk))
        source, to = (place and place[0] for place in (way[at - 1], way[at + 1]))
        tag = 2 * (i.micros[0] * len(way) + at) + isinstance(i, Forward)
        moves = not isinstance(i, Weight)
        if moves and source not in (None, comm.rank):
            traced.recv(source, tag)
        with traced.computing(span_name(i)):
            comm.compute(costs.of(table, comm.rank, i)) if costs else None
        if moves and to not in (None, comm.rank):
            sends.append(traced.start_send(np.zeros(1), to, tag + 2))
    for finish in sends:
        finish()
    return gather_trace(comm, traced)


def virtual_run(table, costs):
    trace = VirtualCluster(table.ranks, Link(0.0)).run(lambda comm: run(table, costs, comm))[0]
    assert trace is not None
    return trace


@given(tables(), whole_costs)
def test_a_run_on_a_virtual_clock_is_drawn_as_its_plan(table, costs):
    plan, trace = as_trace(simulate(table, costs)), virtual_run(table, costs)
    assert slots(trace) == slots(plan)
    assert bubbles_of(trace) == pytest.approx(bubbles_of(plan), abs=1e-12)


def test_the_general_drawings_show_kinds_and_not_each_micro_batch():
    trace = virtual_run(SCHEDULES["zb-h1"].of(2, 2), Costs(1, 1, 1))
    assert gantt(trace, width=7).splitlines()[-1] == "F forward  B backward  S send  R recv  E weight  . idle"


def test_a_run_of_threads_is_drawn(tmp_path):
    table = SCHEDULES["zb-h1"].of(3, 4)
    trace = run_ranks(3, lambda comm: run(table, None, comm))[0]
    assert trace is not None
    done = Counter((span.rank, i) for span in trace.spans if (i := instruction_of(span.what)))
    assert done == Counter((rank, i) for rank, mine in enumerate(table.instructions) for i in mine)
    assert 0 <= bubble_of(trace) <= 1
    assert len(slots(trace).splitlines()) == 4
    draw_pair(as_trace(simulate(table)), trace, tmp_path / "pair.png")
    assert [p.name for p in tmp_path.iterdir()] == ["pair.png"]
    assert (tmp_path / "pair.png").read_bytes().startswith(b"\x89PNG")
    keeps_the_rules(chrome_trace(trace))


def test_a_plan_of_other_ranks_than_the_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the plan is for 2 ranks, and the run had 3"):
        draw_pair(planned("gpipe", 2, 2), planned("gpipe", 3, 2), tmp_path / "pair.png")


# Pictures

DRAWN = [
    ("1f1b", 4, 8, (1, 2)),
    ("1f1b", 8, 16, (1, 2)),
    ("gpipe", 3, 3, (1, 0)),
    ("zb-h1", 4, 8, (1, 1, 1)),
    ("interleaved", 4, 8, (1, 2)),
    ("gpipe-batched", 4, 8, (1, 1, 1)),
]


@pytest.mark.parametrize(("name", "ranks", "micros", "of"), DRAWN)
def test_a_picture_has_a_box_with_a_number_for_each_instruction(name, ranks, micros, of):
    pictures_agree(simulate(SCHEDULES[name].of(ranks, micros), Costs(*of)))


def test_chunks_and_kinds_have_colours_of_their_own():
    plan = simulate(SCHEDULES["dualpipe"].of(4, 8), Costs(1, 1, 1))
    (axes,) = figure_of({"": as_trace(plan)}).axes
    rows = {}
    for event, box in zip(plan.events, boxes_of(axes), strict=True):
        rows.setdefault((type(event.instruction), event.instruction.chunk), set()).add(box.get_facecolor())
    assert len(rows) == 6 and all(len(colours) == 1 for colours in rows.values())
    assert len(set.union(*rows.values())) == 6


def test_a_pair_has_the_plan_above_the_run_each_as_wide_as_it_is_long():
    table = SCHEDULES["1f1b"].of(3, 4)
    plan, run = as_trace(simulate(table)), as_trace(simulate(table, Costs(2, 3, message=1)))
    above, below = figure_of({"plan": plan, "run": run}).axes
    assert len(boxes_of(above)) == len(boxes_of(below)) == 2 * 3 * 4
    assert above.get_xlim()[1] == plan.stop and below.get_xlim()[1] == run.stop
    assert above.get_position().x0 == below.get_position().x0
    assert above.get_title(loc="left") == f"plan: {bubble_of(plan):.0%} of the time idle"
    assert below.get_title(loc="left") == f"run: {bubble_of(run):.0%} of the time idle"


# Perfetto


@given(tables(), costs)
def test_a_plan_opens_in_perfetto(table, costs):
    plan = simulate(table, costs)
    content = chrome_trace(as_trace(plan, seconds=1e-3))
    keeps_the_rules(content)
    events = [e for e in content["traceEvents"] if e["ph"] == "X"]
    rows = sorted((e["tid"], e["ts"], e["name"]) for e in events)
    assert rows == sorted(
        (e.rank, int(float(e.start * 1e-3) * 1e6), span_name(e.instruction)) for e in plan.events
    )
    assert {e["cat"] for e in events} == {"computed"}
