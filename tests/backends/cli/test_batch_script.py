"""Laws of backends/cli/batch_script.py and slurm_command.py: the script of ``minigrad slurm`` asks for what
it was given, and goes on where a job can go on.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cli.batch_script import BatchScript, in_words, seconds_of
from tests.backends.cli import batch_script_laws as laws

words = st.lists(st.text("ab -$'\"", min_size=1, max_size=8), max_size=4)
numbers = st.integers(1, 99)
folders = st.none() | st.text("ab '$", min_size=1, max_size=8).map(Path)


@settings(max_examples=settings().max_examples // 2)  # each starts a shell
@given(
    script=st.builds(
        BatchScript,
        words.map(lambda rest: ["train", *rest]),
        nodes=numbers,
        tasks=numbers,
        cpus=numbers,
        time=st.none() | st.sampled_from(["90", "10:00", "2:00:00", "1-12", "1-0:30"]),
        notice=st.integers(1, 500),
        checkpoint=folders,
        resume=folders,
        extra=st.lists(st.sampled_from(["--partition=long", "--comment=two words"]), unique=True),
    )
)
def test_the_script_asks_for_what_it_was_given(script):
    laws.the_script_asks_for_what_it_was_given(script)


@pytest.mark.parametrize(
    ("before", "writes", "ended", "status"),
    [
        (None, 20, True, 0),
        (20, 100, True, 0),
        (20, None, True, 0),
        (None, None, True, 0),
        (None, 20, False, 0),
        (20, 40, False, 1),
    ],
)
def test_the_script_requeues_what_can_go_on(tmp_path, before, writes, ended, status):
    laws.the_script_requeues_what_can_go_on(tmp_path, before, writes, ended, status)


@pytest.mark.parametrize(
    ("text", "seconds", "in_full"),
    [
        ("90", 5400, "1 h 30 min"),
        ("2:00", 120, "2 min"),
        ("2:00:30", 7230, "2 h 30 s"),
        ("1-12", 129_600, "36 h"),
        ("1-0:30", 88_200, "24 h 30 min"),
        ("0-0:0:5", 5, "5 s"),
    ],
)
def test_times_are_read_as_slurm_reads_them(text, seconds, in_full):
    assert seconds_of(text) == seconds and in_words(seconds) == in_full


@pytest.mark.parametrize("text", ["", "0", "x", "1:2:3:4", "1-", "-1", "0:00", "1-1:1:1:1", "2 h"])
def test_a_time_that_slurm_cannot_read_is_refused(text):
    with pytest.raises(ValueError, match="is no time limit; write minutes"):
        BatchScript(["train"], time=text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--nodes", "2", "train", "--data", "3"],
            "the command has --data x --pipe x --sequence x --model = 3 ranks, and",
        ),
        (
            ["--nodes", "3", "prove", "--pipe", "2"],
            "= 2 ranks, and --nodes 3 x --tasks-per-node 1 are 3 tasks",
        ),
        (["--nodes", "2", "run", "-n", "3", "own.py"], "the command has -n = 3 ranks"),
        (["--nodes", "2", "train", "--transport", "threads"], "all ranks in one process, and this job has 2"),
        (["train", "--net", "resnet"], "unknown net 'resnet'; choose one of"),
        (["--time", "2", "train", "--checkpoint", "kept"], "Slurm may ask the job to end 120 s before"),
        (["grade", "a1"], "minigrad slurm writes jobs for train, prove, run, not for 'grade'"),
        (["--sbatch", "partition=long", "train"], "--sbatch takes an option of sbatch, as --partition=long"),
        (["train", "--epochs", "x"], "(see minigrad train --help)"),
        ([], "Missing argument 'COMMAND...'. (see minigrad slurm --help)"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(minigrad, arguments, message):
    status, out, errors = minigrad("slurm", *arguments)
    assert status in (1, 2) and not out and errors.count("\n") == 1 and message in errors, errors


def test_the_command_gets_a_rank_for_each_task(minigrad, tmp_path):
    cases = {
        ("train", "--pipe", "2"): "exec minigrad train --pipe 2 --data 4",
        ("prove", "--data", "8"): "exec minigrad prove --data 8",
        ("run", "own.py", "-n", "3"): "exec minigrad run -n 8 own.py -n 3",
    }
    for command, line in cases.items():
        status, out, errors = minigrad("slurm", "--nodes", "4", "--tasks-per-node", "2", "--", *command)
        assert status == 0 and out.splitlines()[-1] == line, errors
    for words in ("train --net transformer --sequence 4", "train --model 2 --pipe 2"):
        status, out, errors = minigrad("slurm", "--nodes", "4", "--", *words.split())
        assert status == 0 and out.splitlines()[-1] == f"exec minigrad {words}", errors
    status, out, _ = minigrad(
        "slurm", "-o", "job.sh", "train", "--resume", "old", "--checkpoint", "kept", "--resume=old"
    )
    text = (tmp_path / "job.sh").read_text(encoding="utf-8")
    assert status == 0 and "written to job.sh" in out
    assert "resume=(--resume old)" in text and 'minigrad train --checkpoint kept "${resume' in text
