"""On a terminal every command ends with the one that is worth trying next; elsewhere no line is added."""

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
import typer
from minigrad_course.experiments.command import after_experiment
from minigrad_course.experiments.speedup import Speedup
from minigrad_course.grading.command import after_assignments
from minigrad_course.lesson import command as lesson
from minigrad_course.lesson.progress import Progress
from minigrad_course.storm.command import after_storm

from backends.cli import main as command_line
from backends.entry import main
from backends.process import launcher

TRAIN = "train --net sigmoid --batch 1000 --epochs 1 --transport threads --checkpoint kept --every 5"
TRAIN_ON_TEXT = "train --net transformer --length 4 --width 4 --heads 1 --transport threads"
COMMANDS = {
    f"{TRAIN} --trace run.json": r"minigrad trace run\.json",
    "prove --net mlp --data 2 --transport threads": "minigrad lesson 06",
    "test {model}": "minigrad prove --net sigmoid --data 2",
    f"{TRAIN_ON_TEXT} --text own.txt": r"minigrad generate runs/[0-9-]*-transformer/model\.safetensors",
    "generate {writer} --symbols 1": "minigrad lesson 17",
    "trace run.json": "minigrad lesson 06",
    "checkpoint show kept": "minigrad checkpoint verify kept",
    "checkpoint verify kept": "minigrad lesson 16",
    "storm --seed 3 --png storm.png": "minigrad storm --seed 4",
    "storm --seed 3 --seeds 1": "minigrad lesson 16",
    "doctor": "minigrad train --data 2",
    "plan --ranks 2": "minigrad lesson 15",
    "run own.py": r"minigrad slurm run own\.py",
    "slurm prove --data 1": r"minigrad slurm --output job\.sh prove --data 1",
    "slurm -o job.sh prove --data 1": r"sbatch job\.sh",
    "lesson": "minigrad lesson 01",
    "lesson --copy course": "cd course && minigrad lesson 01",
    "lesson 02 --notebook own.ipynb": "minigrad lesson 02 --check",
    "lesson 02": "minigrad lesson 02 --check",
    "lesson 02 --check": "minigrad lesson 02 --check",
    "experiment": "minigrad experiment speedup",
    "experiment speedup": "minigrad experiment to-target",
    "grade": "minigrad grade a1",
    "grade a2 --list": "minigrad grade a2",
    "grade a2 --task ring_allgather --answers": "minigrad handout students",
    "grade a2 files": r"minigrad grade a2 files/x\.py",
    "handout students": r"minigrad autograder a1 --gradescope a1\.zip",
    "site build": "minigrad lesson 01",
    "autograder a1 --gradescope a1.zip": r"minigrad assignment new own/a1_topic",
    "assignment new own/a1_topic": r"minigrad assignment check own/a1_topic",
    "assignment check own/a1_topic": r"minigrad autograder a1_topic --folder own --gradescope a1_topic\.zip",
}
"""Command lines, in the order in which they run in one folder, and the command that each leads to."""
NOT_DONE = ("lesson 02 --check",)  # of which nothing is answered: status 1


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each of the commands prints on a terminal; of those that take long, what comes at their end."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "own.py").write_text("", encoding="utf-8")
    (folder / "own.txt").write_text("The text of which it learns. " * 9, encoding="utf-8")
    (folder / "files").mkdir()
    (folder / "files" / "x.py").write_text("import os\n", encoding="utf-8")
    texts = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
        for name in (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES, launcher.RANKS):
            patched.delenv(name, raising=False)
        patched.setattr("backends.cli.run.run_script", lambda *arguments: 0)
        patched.setattr(lesson, "supervise", lambda *arguments, **settings: 0)
        patched.setattr("minigrad_course.handout.command.write_handout", lambda *arguments: 0)
        patched.setattr(Speedup, "start", lambda self: 0)
        patched.setattr("minigrad_course.site.build.build", lambda *arguments: ["index.html"])
        patched.setattr("backends.cli.doctor.examine", lambda: [])
        patched.setattr("minigrad_course.grading.own_assignment.trials", lambda work: [])
        for line in COMMANDS:
            models = ("sigmoid", "transformer")
            first, second = (next(folder.glob(f"runs/*-{net}/model.safetensors"), "") for net in models)
            words = line.format(model=first, writer=second).split()
            patched.setattr(sys, "argv", ["minigrad", *words])
            with redirect_stdout(StringIO()) as text, pytest.raises(SystemExit) as end:
                sys.exit(main())
            assert bool(end.value.code) == (line in NOT_DONE), line
            texts[line] = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.getvalue())
    return texts


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_ends_with_the_next_one(printed, line):
    *_, last = printed[line].splitlines()
    assert re.fullmatch(rf"next: {COMMANDS[line]}  \(.+\)", last), last
    assert len(re.findall("^next: ", printed[line], re.MULTILINE)) == 1


def test_every_command_is_one_of_these():
    known: Any = typer.main.get_command(command_line.app)
    names = {name for name, command in known.commands.items() if not command.hidden}
    assert names == {line.split()[0] for line in COMMANDS}


def test_a_finished_assignment_and_the_last_experiment_lead_on():
    done = Progress(points={"a1_x": [100, 100], "a2_y": [45, 100]})
    assert after_assignments(["a1_x", "a2_y"], done).command == "minigrad grade a2"
    assert after_assignments(["a1_x"], done).command == "minigrad lesson"
    assert after_experiment("b", ["a", "b"]).command == "minigrad lesson"


def test_a_storm_that_was_wrong_leads_to_its_fewest_faults():
    command = after_storm(7, ["--ranks", "2"], safe=False).command
    assert command == "minigrad storm --seed 7 --seeds 1 --ranks 2"
