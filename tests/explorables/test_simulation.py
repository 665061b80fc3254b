"""The simulation and the validator of the workshop's page equal those of backends/pipeline, under Node.

MINIGRAD_DRAWN=10000 pytest tests/explorables/test_simulation.py
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lessons.explorables.pages import FOLDER
from tests.explorables.drawn_tables import cases

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node here")
DRAWN = int(os.environ.get("MINIGRAD_DRAWN", 1000))
MODULES = ("timetable.mjs", "simulation.mjs")

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
    """The drawn timetables whose verdict by the modules in ``folder`` is not Python's."""
    script = Path(__file__).parent / "verdicts.mjs"
    done = subprocess.run(
        [str(NODE), script, folder], input=json.dumps(drawn), capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        return [{"node": done.stderr}]
    found = json.loads(done.stdout)
    expected = json.loads(json.dumps([one["verdict"] for one in drawn]))
    return [
        one | {"found": theirs}
        for one, ours, theirs in zip(drawn, expected, found, strict=True)
        if ours != theirs
    ]


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
    for module in MODULES:
        shutil.copy(FOLDER / module, tmp_path)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{right!r} must stand once in {name}"
    (tmp_path / name).write_text(text.replace(right, wrong), encoding="utf-8")
    assert differences(tmp_path, cases(200))
