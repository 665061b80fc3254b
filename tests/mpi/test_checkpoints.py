"""Checkpoints of processes: a job is resumed with the same bits, also after all its ranks were killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from backends.launch.launch import environment
from backends.launch.sweep import sweep_memory
from tests.checkpoints.commands import ALL, LAYOUTS, resumes_with_the_same_bits

FEW = [["--data", "2"], ["--data", "2", "--pipe", "2", "--model", "2"]]
KILLS = int(
    os.environ.get("MINIGRAD_KILLS", "2")
)  # jobs that are killed in one training, one after the other
TRAIN = (
    "train",
    "--net",
    "mlp",
    "--batch",
    "50",
    "--transport",
    "mpi",
    "--epochs",
    f"{KILLS + 1}",
    "--oversubscribe",
)
KILLED = [["--data", "2"]] if not ALL else [
    ["--data", "2"],
    ["--data", "3", "--strategy", "server", "--staleness", "0"],
    ["--data", "3", "--strategy", "backup-workers"],
    ["--pipe", "2", "--schedule", "pipedream"],
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS if ALL else FEW, ids=" ".join)
def test_a_resumed_job_ends_with_the_same_bits(processes, layout):
    def minigrad(*arguments):
        job = processes.minigrad(*arguments)
        return job.status, job.out, job.err

    more = () if layout == [] else ("--transport", "mpi")
    resumes_with_the_same_bits(minigrad, processes.folder, layout, *more, "--oversubscribe")


@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("layout", KILLED, ids=" ".join)
def test_a_job_that_is_killed_again_and_again_ends_with_the_same_bits(processes, layout):
    """SIGKILL to every process of the job, some time after a new checkpoint is there."""
    train = (*TRAIN, *layout, "--every", "5")
    whole = processes.minigrad(*train, "--checkpoint", "undisturbed", "--json", "whole.json")
    assert whole.status == 0, whole.err
    draw, checkpoints = random.Random(KILLS), processes.folder / "kept"
    keeping = (*train, "--checkpoint", "kept")
    resumed = 0
    for _ in range(KILLS):
        before, start = newest(checkpoints), time.time()
        command = [sys.executable, "-m", "backends", *keeping, *(("--resume", "kept") if before else ())]
        with subprocess.Popen(
            command,
            cwd=processes.folder,
            env=environment(2),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as job:
            while newest(checkpoints) == before and job.poll() is None:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.3))
            os.killpg(job.pid, signal.SIGKILL)
        end_left_over(processes.folder)
        sweep_memory(start)
        resumed += bool(before)
    last = processes.minigrad(*keeping, "--resume", "kept", "--json", "resumed.json")
    assert last.status == 0, last.err
    one, other = (
        json.loads((processes.folder / f"{name}.json").read_text()) for name in ("whole", "resumed")
    )
    assert one["losses"] == other["losses"] and one["test_accuracies"] == other["test_accuracies"]
    assert resumed == KILLS - 1, f"{resumed} of {KILLS} jobs went on from a checkpoint"


def newest(folder):
    return max((path.name for path in folder.glob("step-*")), default="")


def end_left_over(folder):
    """Kill what the job has started in sessions of its own: every process that runs in ``folder``."""
    end = time.monotonic() + 20
    while pids := [pid for pid in os.listdir("/proc") if pid.isdigit() and runs_in(pid, folder)]:
        assert time.monotonic() < end, pids
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.01)


def runs_in(pid, folder):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False
