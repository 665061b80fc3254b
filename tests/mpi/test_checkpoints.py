"""Checkpoints of processes: a job is resumed with the same bits, also after all its ranks were killed."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from backends.launch.launch import environment
from backends.process.sweep import sweep_memory
from tests.backends.checkpoint.commands import ALL, LAYOUTS, all_results, resumes_with_the_same_bits

from .conftest import Processes

FEW = [["--data", "2"], ["--data", "2", "--pipe", "2", "--model", "2"]]
NET = () if ALL else ("--net", "mlp")  # which needs no loops, so that processes start sooner
KILLS = int(os.environ.get("MINIGRAD_KILLS", "2"))  # jobs of one training that are killed in turn
TRAIN = ("train", "--net", "mlp", "--batch", "100", "--epochs", f"{KILLS + 1}", "--transport", "mpi")
KILLED = [["--data", "2"]] if not ALL else [
    ["--data", "2"],
    ["--data", "3", "--strategy", "server", "--staleness", "0"],
    ["--data", "3", "--strategy", "backup-workers"],
    ["--pipe", "2", "--schedule", "pipedream"],
]  # fmt: skip
COMMAND = """
import os, sys
from unittest.mock import patch
from backends.cli.main import command

os.chdir({folder!r})
with patch.object(sys, "argv", ["minigrad", *{arguments!r}]):
    try:
        command()
    except SystemExit as end:
        assert not end.code
"""


def test_a_grid_of_ranks_resumes_with_the_same_bits(pool, tmp_path):
    """All ranks of the pool run the commands in turn, as if mpiexec had started them for each."""

    def minigrad(*arguments):
        return 0, pool.run(8, COMMAND.format(folder=str(tmp_path), arguments=arguments)), ""

    resumes_with_the_same_bits(minigrad, tmp_path, FEW[1], *NET)


@pytest.mark.thorough
@pytest.mark.parametrize("layout", LAYOUTS if ALL else FEW, ids=" ".join)
def test_a_resumed_job_ends_with_the_same_bits(processes, layout):
    def minigrad(*arguments):
        job = processes.minigrad(*arguments)
        return job.status, job.out, job.err

    more = () if layout == [] else ("--transport", "mpi")
    resumes_with_the_same_bits(minigrad, processes.folder, layout, *more, *NET, "--oversubscribe")


@pytest.mark.thorough
@pytest.mark.timeout(120 + 20 * KILLS)
@pytest.mark.parametrize("layout", KILLED, ids=" ".join)
def test_a_job_that_is_killed_again_and_again_ends_with_the_same_bits(processes, layout):
    """SIGKILL to every process of the job, some time after a new checkpoint is there."""
    train = (*TRAIN, *layout, "--every", "5", "--oversubscribe")
    undisturbed = processes.folder / "undisturbed"
    undisturbed.mkdir()
    whole = Processes(undisturbed).minigrad(*train, "--checkpoint", "kept")
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
            time.sleep(draw.uniform(0, 0.1))
            os.killpg(job.pid, signal.SIGKILL)
        end_left_over(processes.folder)
        sweep_memory(start)
        resumed += bool(before)
    last = processes.minigrad(*keeping, "--resume", "kept")
    assert last.status == 0, last.err
    (end,) = ends_in(undisturbed)
    ends = ends_in(processes.folder)  # several, where a job had ended before the kill
    assert ends and all(one == end for one in ends)
    assert resumed == KILLS - 1, f"{resumed} of {KILLS} jobs went on from a checkpoint"


def ends_in(folder):
    """What each training in ``folder`` ended with."""
    return [
        (figures["losses"], figures["test_accuracies"], arrays) for figures, arrays in all_results(folder)
    ]


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
