"""Laws of backends/cli/welcome.py: what ``minigrad`` alone prints is one screen of commands that exist, with
the time of each; what cannot be printed ends in one line.
"""

import os
import re
import subprocess
import sys
from typing import Any

import pytest
import typer
from minigrad_course.lesson.lessons import lessons

from backends.cli import main, welcome
from tests.bugs.mutant import mutant

COMMAND = [sys.executable, "-m", "backends"]


def is_one_screen(module):
    """Fewer than 24 lines of 80 columns; its commands exist; three are to be tried, each with its time."""
    lines, known = module.WELCOME.splitlines(), commands()
    assert len(lines) < 24 and max(map(len, lines)) < 80
    assert set(re.findall(r"minigrad ([a-z]+)", module.WELCOME)) <= set(known)
    first = re.findall(
        r"^  minigrad ([a-z]+)(.*?)  +(\d+) (?:seconds|minutes): ", module.WELCOME, re.MULTILINE
    )
    assert [name for name, *_ in first] == ["train", "prove", "lesson"]
    for name, words, _ in first:
        options = {option for parameter in known[name].loaded.params for option in parameter.opts}
        assert {word for word in words.split() if word.startswith("-")} <= options, words
    (seconds,) = re.findall(r"its program runs for (\d+) seconds", module.WELCOME)
    lesson = lessons()[0]
    if lesson.minutes:
        assert (int(first[2][2]), int(seconds)) == (lesson.minutes, lesson.seconds)


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(main.app)
    return group.commands


def test_it_is_one_screen():
    is_one_screen(welcome)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("minigrad train --data 2 ", "minigrad train --rank 2 "),
        ("minigrad grade all", "minigrad points all"),
        ("50 minutes: how", "one hour: how"),
        ("Try these first:\n", "Try these first:\n" + 20 * "\n"),
    ],
)
def test_the_law_catches_what_is_wrong(old, new):
    with pytest.raises(AssertionError):
        is_one_screen(mutant("backends.cli.welcome", (old, new)))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("words", [[], ["--version"]])
def test_a_full_disk_is_one_line_and_a_reader_that_left_a_status(words):
    with open("/dev/full", "w", encoding="utf-8") as output:
        done = subprocess.run([*COMMAND, *words], stdout=output, stderr=subprocess.PIPE, encoding="utf-8")
    assert done.returncode == 1
    assert done.stderr.startswith("minigrad: cannot write what the command prints: No space left on device")
    assert done.stderr.count("\n") == 1
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as output:
        done = subprocess.run([*COMMAND, *words], stdout=output, stderr=subprocess.PIPE, encoding="utf-8")
    assert (done.returncode, done.stderr) == (128 + 13, "")


def test_a_terminal_that_says_it_has_no_columns_gets_the_table():
    """As serial consoles and containers do; rich would print nothing."""
    done = subprocess.run(
        [*COMMAND, "lesson"], capture_output=True, encoding="utf-8", env={**os.environ, "COLUMNS": "0"}
    )
    assert done.returncode == 0 and "Gradient descent" in done.stdout.replace("gradient", "Gradient")
