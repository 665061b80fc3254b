"""Laws of lessons/minigrad_course/explorables/simulation.mjs and timetable.mjs: the simulation and the
validator of the workshop's page equal those of backends/pipeline, under Node.

MINIGRAD_DRAWN=10000 pytest tests/minigrad_course/explorables/test_simulation.py
"""

import json
import os
from pathlib import Path

import pytest
from minigrad_course.explorables.pages import FOLDER

from tests.minigrad_course.explorables import node
from tests.minigrad_course.explorables.drawn_tables import cases

pytestmark = node.needs_node
DRAWN = int(os.environ.get("MINIGRAD_DRAWN", 1000))
VERDICTS = """
    const { ROUTES, errorOf, instructionOf, upTo, wordOf } = await load("timetable.mjs");
    const { scoreOf, simulate } = await load("simulation.mjs");
    return data.map(({ costs, bound, route, ...table }) => {
        table.routes ??= upTo(table.micros).map((micro) => ROUTES[route](micro, table.ranks, table.chunks));
        table.instructions = table.instructions.map((mine) => mine.map(instructionOf));
        const error = errorOf(table, bound);
        if (error !== null) return { error };
        const done = simulate(table, costs);
        if (done.stuck !== null) return { error: done.stuck };
        const events = done.events.flat().map((e) => [e.rank, wordOf(e.instruction), e.start, e.stop]);
        return { ...scoreOf(table, done), events };
    });
"""

BUGS = [
    ("simulation.mjs", "stage + 1 < stagesOf(table)", "stage + 2 < stagesOf(table)"),
    ("simulation.mjs", "t + (who === rank ? 0 : costs.message)", "t + costs.message"),
    ("simulation.mjs", "Math.max(now[rank], ...arrivals)", "Math.max(...arrivals, 0)"),
    ("simulation.mjs", ".has(`${micros[0]}/${chunk}`) ? 0 :", ".has(`${micros[0]}`) ? 0 :"),
    ("simulation.mjs", "(sum, stage) => sum + costs.weight[stage]", "(sum, stage) => costs.weight[stage]"),
    ("simulation.mjs", "return stage ? [", "return stage > 1 ? ["),
    ("simulation.mjs", "whole ? (whole - all) / whole : 0", "whole ? (makespan - all) / whole : 0"),
    ("simulation.mjs", "(time) => makespan - time", "(time) => time"),
    ("simulation.mjs", "awake.push(...(asleep.get(task) ?? []));", ""),
    ("timetable.mjs", "number -= micros.length", "number -= 1"),
    ("timetable.mjs", "(number) => number > bound", "(number) => number >= bound"),
    ("timetable.mjs", "if (before.has(repr(part)))", "if (before.has(i))"),
    ("timetable.mjs", "if (other !== stage)", "if (other > stage)"),
    ("timetable.mjs", "return micro % 2 ? down.reverse() : down;", "return down;"),
]


def differences(folder: Path, drawn: list[dict]) -> list[dict]:
    """The drawn timetables whose verdict by the modules in ``folder`` is not Python's, with it."""
    actual = node.run(VERDICTS, drawn, folder)
    expected = json.loads(json.dumps([one["verdict"] for one in drawn]))
    pairs = zip(drawn, expected, actual, strict=True)
    return [one | {"found": theirs} for one, ours, theirs in pairs if ours != theirs]


def test_the_page_simulates_and_refuses_as_python_does():
    drawn = cases(DRAWN)
    valid = sum("error" not in one["verdict"] for one in drawn)
    assert DRAWN / 5 < valid < 4 * DRAWN / 5, (
        f"{valid} of {DRAWN} timetables are right; both kinds are needed"
    )
    wrong = differences(FOLDER, drawn)
    assert not wrong, f"{len(wrong)} of {DRAWN} verdicts differ, the first: {wrong[0]}"


@pytest.mark.parametrize(("name", "right", "wrong"), BUGS, ids=[right for _, right, _ in BUGS])
def test_a_seeded_bug_gives_other_verdicts(tmp_path, name, right, wrong):
    assert differences(node.broken(tmp_path, name, right, wrong), cases(200))
