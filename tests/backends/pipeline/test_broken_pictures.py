"""Laws of backends/pipeline/gantt.py and trace.py: each broken picture of a pipeline is caught by
a law that the real ones keep.
"""

import inspect

import pytest

from backends.comm import timeline
from backends.pictures import schedule_picture
from backends.pipeline import timetable, trace
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.timetable import Backward, Forward, Weight
from tests.backends.pipeline.picture_laws import bubbles_are_the_plans, every_slot_is_drawn, pictures_agree
from tests.bugs.mutant import mutant


def broken_picture(right, wrong):
    """A copy of the pipelines' pictures with the bug, wherever it is: there, or in what they draw with."""
    if right in inspect.getsource(schedule_picture):
        labels = vars(mutant("backends.pictures.schedule_picture", (right, wrong)))
        picture = mutant("backends.pipeline.gantt")
        vars(picture).update({name: labels[name] for name in ("WORDS", "key_of", "label")})
        return picture
    renderer = inspect.getsource(timeline)
    if right not in renderer:
        return mutant("backends.pipeline.gantt", (right, wrong))
    picture, shared = mutant("backends.pipeline.gantt"), mutant("backends.comm.timeline", (right, wrong))
    vars(picture).update(timeline=shared, text_runs=vars(shared)["text_runs"])
    return picture


PICTURE_BUGS = {
    "backwards look like forwards": ('"Backward": "b"', '"Backward": ""'),
    "chunks look alike": ("""("", "'", '"')[chunk]""", """("", "", "")[chunk]"""),
    "a column late": ("int((span.start - first) / column)", "int((span.start - first) / column + 1)"),
    "drawn where it begins only": ('"-" if columns > 1 else " "', '" "'),
}


@pytest.mark.parametrize("bug", PICTURE_BUGS)
def test_the_law_of_the_text_catches(bug):
    broken = broken_picture(*PICTURE_BUGS[bug])
    with pytest.raises((AssertionError, IndexError)):
        every_slot_is_drawn(SCHEDULES["interleaved"].of(2, 4), Costs(1, 2), broken)


BOX_BUGS = {
    "boxes end at their length": ("(stop - start) * scale\n", "stop * scale\n"),
    "all on one row": ("scale, middle - thickness / 2", "scale, 0 - thickness / 2"),
    "numbers at the left ends": (
        "middle = ((span.start + span.stop) / 2 - panel.first)",
        "middle = (span.start - panel.first)",
    ),
    "numbers as large as can be": ("min(9.0, room / (0.65 * len(text)))", "60.0"),
    "the number is the chunk's": ("text = numbers(i.micros)", "text = str(i.chunk)"),
    "idle time is not shown": (
        "for rank in range(panel.ranks):\n            axes.broken",
        "for rank in ():\n            axes.broken",
    ),
}


@pytest.mark.parametrize("bug", BOX_BUGS)
def test_the_law_of_the_boxes_catches(bug):
    broken = broken_picture(*BOX_BUGS[bug])
    with pytest.raises((AssertionError, ValueError)):
        pictures_agree(simulate(SCHEDULES["1f1b"].of(4, 8), Costs(1, 2)), broken)


BUBBLE_BUGS = {
    "measured to its own rank's end": ("max(s.stop for s in spans)", "min(s.stop for s in spans)"),
    "what is done is the bubble": ("1 - covered", "covered"),
    "the last rank has none": ("for rank in range(trace.size)]", "for rank in range(trace.size - 1)]"),
    "every rank's is the first's": ("if s.rank == rank)", "if s.rank == 0)"),
}


@pytest.mark.parametrize("bug", BUBBLE_BUGS)
def test_the_law_of_the_bubble_catches(bug):
    broken = mutant("backends.pipeline.trace", BUBBLE_BUGS[bug])
    with pytest.raises(AssertionError):
        bubbles_are_the_plans(SCHEDULES["1f1b"].of(3, 4), Costs([1, 2, 3], [2, 2, 5]), broken)


NAME_BUGS = {
    "the chunk is not named": ("timetable", "if instruction.chunk else", "if False else"),
    "runs may have gaps": ("words", "lambda pair: pair[1] - pair[0]", "lambda pair: 0"),
    "runs end one early": ("trace", "run[-1] + 1)", "run[-1])"),
    "what goes back went forward": (
        "trace",
        'if kind == "forward" else Backward)',
        'if kind != "weight" else Backward)',
    ),
}


@pytest.mark.parametrize("bug", NAME_BUGS)
def test_the_law_of_the_names_catches(bug):
    where, right, wrong = NAME_BUGS[bug]
    broken = {name: vars(module) for name, module in (("timetable", timetable), ("trace", trace))}
    if where == "words":
        words, where = vars(mutant("backends.words", (right, wrong))), "timetable"
        broken[where] = vars(mutant("backends.pipeline.timetable"))
        broken[where].update(numbers=words["numbers"])
    else:
        broken[where] = vars(mutant(f"backends.pipeline.{where}", (right, wrong)))
    broken[where].update(Forward=Forward, Backward=Backward, Weight=Weight)
    with pytest.raises(AssertionError):
        for i in (Backward(3), Forward(2, 1), Weight((0, 1, 2, 5)), Weight((1, 3)), Weight((4,), 1)):
            assert broken["trace"]["instruction_of"](broken["timetable"]["span_name"](i)) == i
