"""Laws of lessons/minigrad_course/explorables/schedule_tables.py: the command that the workshop copies
writes the schedule, and runs it on ranks, as it is pasted.
"""

import json
import shutil

import pytest
from minigrad_course.explorables.schedule_tables import workshop_data

from backends.pipeline import SCHEDULES
from backends.pipeline.schedule_file import description_of, schedule_of
from tests.minigrad_course.explorables import node
from tests.minigrad_course.explorables.node import pasted

COMMANDS = """
    const { fileText, proveCommand, recordCommand } = await load("command.mjs");
    return data.map((one) => [fileText(one), proveCommand(one), recordCommand(one)]);
"""
OF_ALL = [description_of(SCHEDULES[name].of(2, 4)) for name in SCHEDULES if name != "dualpipe"]
pytestmark = [
    node.needs_node,
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here"),
]


def described(description):
    """The page's description of a schedule: without its name, and without what is the default."""
    default = {"chunks": 1, "route": "around"}
    return {k: v for k, v in description.items() if k != "name" and default.get(k) != v}


def test_the_copied_command_proves_a_schedule_made_by_hand(tmp_path):
    by_hand = {"micro": 3, "ranks": ["F0 F1 B0 F2 W0 B1 B2 W1-2", "F0 B0 F1 B1 F2 B2 W0-2"]}
    [[text, command, _]] = node.run(COMMANDS, [by_hand])
    done = pasted(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PROVED: all ranks equal the serial run" in done.stdout
    assert (tmp_path / "mine.json").read_text(encoding="utf-8") == text


def test_a_file_says_what_the_page_does():
    descriptions = [described(one) for one in OF_ALL]
    for description, (text, *commands) in zip(descriptions, node.run(COMMANDS, descriptions), strict=True):
        assert json.loads(text) == description
        schedule_of({"name": "mine", "chunks": 1, "route": "around", **description})
        assert all(
            text in command and "--pipe 2 --schedule-file mine.json" in command for command in commands
        )


def test_the_schedules_of_the_page_are_ours():
    schedules = workshop_data()["schedules"]
    assert list(schedules) == list(SCHEDULES)
    for name, theirs in schedules.items():
        assert theirs["about"] and theirs["route"] == description_of(SCHEDULES[name].of(4, 8))["route"]
        for numbers, text in theirs["tables"].items():
            ranks, micro = map(int, numbers.split(","))
            rows = description_of(SCHEDULES[name].of(ranks, micro))["ranks"]
            assert text == "|".join(row.replace(" ", "") for row in rows)
        for numbers, words in theirs["refusals"].items():
            with pytest.raises(ValueError) as error:
                SCHEDULES[name].of(*map(int, numbers.split(",")))
            assert str(error.value) == words
