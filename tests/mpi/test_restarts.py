"""``train --restarts``: jobs of which ranks are killed at random moments end with the undisturbed job's bits.

One job; MINIGRAD_KILLS says how many, and MINIGRAD_KILLS_SEED draws others.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from backends.launch.launch import environment
from backends.process.sweep import sweep_memory
from tests.backends.checkpoint.commands import all_results

JOBS = int(os.environ.get("MINIGRAD_KILLS", "1"))
SEED = int(os.environ.get("MINIGRAD_KILLS_SEED", "0"))
TRAIN = ["train", "--net", "mlp", "--batch", "100", "--epochs", "5", "--data", "2", "--transport", "mpi"]
KILLED = re.compile("minigrad: (a rank|rank .) was ended by SIGKILL, and with it the job; restart")
SECONDS = 200


def result(folder: Path):
    """What a training ended with.

    A rank that is killed after rank 0 wrote the results lets the job end again, in a second folder: with the
    same bits.
    """
    ends = [
        (figures["losses"], figures["test_accuracies"], arrays) for figures, arrays in all_results(folder)
    ]
    assert ends and all(end == ends[0] for end in ends), f"{len(ends)} ends of one job differ"
    return ends[0]


def newest_in(folder: Path) -> str:
    """The newest checkpoint's name; empty before there is one."""
    return max((path.name for path in folder.glob("step-*")), default="")


def ranks_in(folder: Path) -> list[int]:
    """The processes of the ranks that run in ``folder``."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "cwd") == str(folder):
                line, variables = ((process / name).read_bytes() for name in ("cmdline", "environ"))
                if b"backends.process.rank" in line.split(b"\0") and b"PMI_RANK=" in variables:
                    pids.append(int(process.name))
    return pids


def killed_again_and_again(folder: Path, draw: random.Random) -> tuple[int, int, str]:
    """Train in ``folder`` while ranks are killed, one to three times: kills, exit status, errors.

    A moment is drawn after the start of the ranks, or, three times as often, after they wrote a checkpoint.
    """
    folder.mkdir()
    kills, before, start = 0, set[int](), time.time()
    command = [sys.executable, "-m", "backends", *TRAIN]
    command += ["--checkpoint", "kept", "--every", str(draw.choice([7, 50])), "--restarts", "20"]
    with (folder / "errors").open("w", encoding="utf-8") as errors, subprocess.Popen(
        command,
        cwd=folder,
        env=environment(2),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    ) as job:  # fmt: skip
        try:
            for _ in range(draw.randint(1, 3)):
                while job.poll() is None and len(set(ranks_in(folder)) - before) < 2:
                    assert time.time() - start < SECONDS, (folder / "errors").read_text(encoding="utf-8")
                    time.sleep(0.02)
                new = sorted(set(ranks_in(folder)) - before)
                at_work, newest = draw.random() < 0.75, newest_in(folder / "kept")
                while at_work and job.poll() is None and newest_in(folder / "kept") == newest:
                    assert time.time() - start < SECONDS, (folder / "errors").read_text(encoding="utf-8")
                    time.sleep(0.01)
                time.sleep(draw.uniform(0, 0.3 if at_work else 1.0))
                with suppress(ProcessLookupError, IndexError):
                    os.kill(draw.choice(new), signal.SIGKILL)
                    kills += 1
                before |= set(new)
            status = job.wait(SECONDS)
        finally:
            if job.poll() is None:
                os.kill(job.pid, signal.SIGTERM)
                job.wait(20)
            sweep_memory(start)
    return kills, status, (folder / "errors").read_text(encoding="utf-8")


@pytest.mark.thorough  # the quick lane restarts jobs in tests/interrupts/test_saved_stop.py
@pytest.mark.timeout(120 + 2 * SECONDS * JOBS)
def test_jobs_whose_ranks_are_killed_end_with_the_same_bits(processes):
    draw = random.Random(SEED)
    whole = processes.folder / "whole"
    whole.mkdir()
    command = [sys.executable, "-m", "backends", *TRAIN]
    subprocess.run(command, cwd=whole, env=environment(2), check=True, capture_output=True, timeout=SECONDS)
    restarts = later = 0
    for number in range(JOBS):
        kills, status, errors = killed_again_and_again(processes.folder / str(number), draw)
        assert status == 0, f"job {number}: status {status}\n{errors}"
        lines = errors.splitlines()
        assert all(KILLED.match(line) for line in lines), f"job {number}:\n{errors}"
        assert len(lines) <= kills, f"job {number}: {kills} kills\n{errors}"
        assert result(processes.folder / str(number)) == result(whole), f"job {number}"
        restarts += len(lines)
        later += len(re.findall(r"from step \d", errors))
        print(f"job {number}: {kills} kills, restarts {restarts}, {later} from a checkpoint", flush=True)
    print(f"{JOBS} of {JOBS} jobs have the undisturbed bits; {restarts} restarts, {later} from a checkpoint")


def test_a_training_that_cannot_go_on_is_not_started_again(processes):
    job = processes.minigrad(*TRAIN, "--checkpoint", "kept", "--restarts", "3", "--lr", "1e38")
    assert job.status == 1 and "the loss is" in job.err and "restart" not in job.err, job.err
