"""The workflows of GitHub Actions: standard actions by their major version, the least permissions, a limit of
time for each job, and commands of minigrad that exist.
"""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from backends.cli.main import app

FILES = sorted((Path(__file__).parents[1] / ".github" / "workflows").glob("*.yml"))
ACTIONS = {"pypa/gh-action-pypi-publish@release/v1"}  # besides those of GitHub itself, "actions/...@v4"
MAY_WRITE = {"release.yml": {"id-token"}, "pages.yml": {"pages", "id-token"}}


def is_modest(name: str, text: str) -> None:
    """Only what publishes may write, and no checkout leaves a token in the files that programs read."""
    head, _, jobs = text.partition("\njobs:\n")
    assert re.search(r"^permissions:\n  contents: read\n(?!  )", head, re.MULTILINE), "permissions"
    assert set(re.findall(r"([\w-]+): write", text)) == MAY_WRITE.get(name, set())
    for action in re.findall(r"uses: (\S+)", text):
        assert action in ACTIONS or re.fullmatch(r"actions/[\w-]+@v\d+", action), action
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")
    names = re.findall(r"^  ([\w-]+):\n    name: ", jobs, re.MULTILINE)
    assert names and len(names) == jobs.count("\n    runs-on: ") == jobs.count("\n    timeout-minutes: ")


def runs_what_there_is(text: str) -> None:
    """Each line of a workflow that calls minigrad names one of its commands, and options of this one."""
    group: Any = typer.main.get_command(app)
    for line in re.findall(r"(?:run: |^ +)(?:\S*/)?minigrad (.*)$", text, re.MULTILINE):
        name, *words = shlex.split(line)
        options = {option for parameter in group.commands[name].loaded.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_workflow_is_modest_and_runs_what_there_is(file):
    text = file.read_text(encoding="utf-8")
    is_modest(file.name, text)
    runs_what_there_is(text)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("permissions:\n  contents: read\n", "permissions: write-all\n"),
        ("  contents: read\n", "  contents: read\n  packages: write\n"),
        ("actions/cache@v4", "actions/cache@main"),
        ("actions/cache@v4", "someone/cache@v4"),
        ("          persist-credentials: false\n", ""),
        ("    timeout-minutes: 15\n", ""),
        ("--records runs/records", "--record runs/records"),
    ],
)
def test_a_workflow_that_is_wrong_is_seen(right, wrong):
    (file,) = (file for file in FILES if file.name == "pages.yml")
    text = file.read_text(encoding="utf-8")
    assert right in text
    with pytest.raises(AssertionError):
        is_modest(file.name, text.replace(right, wrong, 1))
        runs_what_there_is(text.replace(right, wrong, 1))
