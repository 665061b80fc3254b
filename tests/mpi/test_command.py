"""The command line over real MPI processes."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from typing import Any

import pytest

from backends.launch.launch import environment, find_mpiexec


@pytest.mark.parametrize("n", [1, 2, pytest.param(3, marks=pytest.mark.thorough)])
def test_prove(processes, n):
    job = processes.minigrad("prove", "--data", str(n), "--transport", "mpi", "--json", "proof.json")
    assert job.status == 0, job.err
    assert "PROVED" in job.out
    proof = json.loads((processes.folder / "proof.json").read_text(encoding="utf-8"))
    assert proof["passed"] and proof["max_rel_error"] <= 1e-12
    assert [p["name"] for p in proof["parameters"]][:2] == ["0.weight", "0.bias"]


def test_two_ranks_train_as_one(processes):
    """Same losses to 1e-4 in float32, from two processes and from one."""
    common = ["train", "--net", "mlp", "--epochs", "1", "--batch", "250"]
    two = processes.minigrad(*common, "--data", "2", "--json", "two.json")
    one = processes.minigrad(*common, "--json", "one.json")
    assert (one.status, two.status) == (0, 0), one.err + two.err
    assert "starting 2 ranks: mpiexec -n 2" in two.out
    assert two.out.count("epoch 1 of 1: step 20, loss ") == 1
    reports = [
        json.loads((processes.folder / name).read_text(encoding="utf-8")) for name in ("one.json", "two.json")
    ]
    assert [f["ranks"] for f in reports] == [1, 2]
    assert reports[1]["losses"] == pytest.approx(reports[0]["losses"], rel=1e-4)
    assert len(list((processes.folder / "runs").glob("*/curves.png"))) == 2


PIPELINE = ["--net", "mlp", "--pipe", "2", "--schedule", "zb-h1", "--micro", "4", "--transport", "mpi"]


@pytest.mark.thorough
def test_a_pipeline_of_processes_is_proved(processes):
    job = processes.minigrad("prove", *PIPELINE)
    assert job.status == 0 and "PROVED" in job.out, job.err


@pytest.mark.thorough  # the quick lane traces one of threads, and a training on two processes
def test_a_pipeline_of_processes_is_traced_and_drawn_beside_its_plan(processes):
    job = processes.minigrad(
        "train", *PIPELINE, "--bounds", "time", "--epochs", "1", "--batch", "500", "--trace", "run.json"
    )
    assert job.status == 0 and "--bounds 0," in job.out, job.err
    about = json.loads((processes.folder / "run.json").read_text(encoding="utf-8"))["otherData"]["pipeline"]
    assert about == {
        "schedule": "zb-h1",
        "micro_batches": 4,
        "chunks": 1,
        "bounds": "time",
        "ranks": [[0, 1]],
    }
    shown = processes.minigrad("trace", "run.json", "--step", "9", "--png", "run.png")
    assert shown.status == 0 and "step 9 of 10" in shown.out, shown.err
    assert [shown.out.count(f"rank {rank} |") for rank in range(2)] == [2, 2]
    assert (processes.folder / "run.png").read_bytes().startswith(b"\x89PNG")


def on_a_terminal(processes, *arguments):
    """What the command writes to a terminal of 70 columns."""
    shown, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    variables = {name: text for name, text in environment(2).items() if name not in ("COLUMNS", "NO_COLOR")}
    command = [sys.executable, "-m", "backends", *arguments]
    settings: dict[str, Any] = dict(
        stdin=keyboard, stdout=keyboard, stderr=keyboard, env={**variables, "TERM": "xterm"}
    )
    with subprocess.Popen(command, cwd=processes.folder, **settings) as process:
        os.close(keyboard)
        text = b""
        while select.select([shown], [], [], 60)[0]:
            try:
                text += os.read(shown, 1 << 16)
            except OSError:  # every process has closed it
                break
        os.close(shown)
        process.wait(20)
    return process.returncode, text.decode().replace("\r\n", "\n")


def test_ranks_show_a_progress_bar_and_the_next_command_on_the_terminal(processes):
    """Rank 0 writes them through mpiexec's pipe, which is no terminal."""
    training = ["train", "--data", "2", "--net", "mlp", "--batch", "1000", "--epochs", "2"]
    status, text = on_a_terminal(processes, *training, "--transport", "mpi")
    assert status == 0, text
    assert text.startswith("starting 2 ranks: mpiexec -n 2 minigrad train --data 2 ")
    assert "loss -" in text and "nan" not in text and "epoch 1" not in text
    assert re.search(r"\x1b\[\d+m10/10.* loss \d\.\d{4} ", text)
    assert max(len(re.sub(r"\x1b\[[\d;?]*\w", "", line)) for line in re.split("[\r\n]", text)[1:-2]) <= 70
    assert "minigrad prove --net mlp --data 2" in text.splitlines()[-1]


def test_more_ranks_asked_for_than_mpiexec_started(processes):
    command = [str(find_mpiexec()), "-n", "2", sys.executable, "-m", "mpi4py", "-m", "backends"]
    job = processes.run([*command, "train", "--data", "4"])
    assert job.status != 0
    lines = [line for line in job.err.splitlines() if line.startswith("minigrad")]
    assert lines == [
        "minigrad: --data 4 needs 4 ranks, mpiexec started 2; "
        "run mpiexec -n 4, leave mpiexec out, or pass --data 2"
    ]


def test_started_by_hand_the_number_of_ranks_is_mpiexecs(processes):
    command = [str(find_mpiexec()), "-n", "3", sys.executable, "-m", "mpi4py", "-m", "backends"]
    job = processes.run([*command, "prove", "--net", "mlp", "--json", "proof.json"])
    assert job.status == 0, job.err
    assert json.loads((processes.folder / "proof.json").read_text(encoding="utf-8"))["config"]["data"] == 3


def test_a_loss_that_is_not_finite_ends_all_ranks_and_names_the_step(processes):
    job = processes.minigrad("train", "--net", "mlp", "--data", "2", "--lr", "1e6", "--epochs", "1")
    assert job.status != 0
    assert "minigrad: the loss is" in job.err and "at step" in job.err and "try a smaller --lr" in job.err
