"""A signal to a training that writes checkpoints: the step is saved, and the command in the line goes on."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from backends.process.signals import Interrupted
from tests.backends.checkpoint.commands import results
from tests.bugs.mutant import mutant

from .interrupted import Run, interrupted

TRAIN = "train --net mlp --batch 500 --epochs 500 --checkpoint kept --every 100000"
COMMANDS = {
    "threads": f"{TRAIN} --transport threads --data 2",
    "restarts": f"{TRAIN} --transport threads --restarts 2",
    "MPI": f"{TRAIN} --transport mpi --data 2",
    "run": f"run -n 2 -m backends {TRAIN}",
}
SHORT = "train --net mlp --batch 100 --checkpoint kept --every 100000 --transport mpi --data 2"
LINE = (
    r"minigrad: (train|run) was interrupted by (\w+); step (\d+) is saved in (kept/step-\d{8}); go on with: "
    r"minigrad (.*)"
)


def check(run: Run, command: str, number: int) -> list[str]:
    """Assert that the signal ended the run after a step that is saved; returns the command that goes on."""
    assert run.status == 128 + number and not run.late, (run.status, run.text)
    assert not run.left and run.cursor_shown and "Traceback" not in run.text, run.text
    (line,) = run.words
    parts = re.fullmatch(LINE, line)
    assert parts is not None, line
    assert parts[2] == signal.Signals(number).name and parts[4] == f"kept/step-{int(parts[3]):08}", line
    (saved,) = (run.folder / "kept").iterdir()
    assert saved.name == Path(parts[4]).name
    words = shlex.split(parts[5])
    assert words == [*command.split(), "--resume", "kept"]
    return words


def minigrad(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "backends", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=100)


@pytest.mark.parametrize(
    ("name", "number", "target"),
    [
        ("threads", signal.SIGTERM, "launcher"),
        ("restarts", signal.SIGINT, "launcher"),
        pytest.param("MPI", signal.SIGUSR1, "launcher", marks=pytest.mark.thorough),
        ("run", signal.SIGUSR1, "launcher"),
        pytest.param("run", signal.SIGTERM, "launcher", marks=pytest.mark.thorough),
    ],
)
def test_a_signal_saves_the_step(tmp_path, name, number, target):
    check(interrupted(tmp_path, COMMANDS[name], number, target), COMMANDS[name], number)


@pytest.mark.thorough  # the quick lane resumes on threads, and stops and resumes a job of processes
def test_the_command_in_the_line_ends_with_the_undisturbed_bits_over_MPI(tmp_path):
    for epochs in (4, 40, 400):  # more where a training was over before it heard the signal
        folder, undisturbed = tmp_path / f"{epochs}", tmp_path / f"{epochs} undisturbed"
        folder.mkdir()
        command = f"{SHORT} --epochs {epochs}"
        run = interrupted(folder, command, signal.SIGTERM, "rank 1")
        if run.status != 0:
            break
    minigrad(folder, *check(run, command, signal.SIGTERM))
    undisturbed.mkdir()
    minigrad(undisturbed, *command.split())
    (figures, weights), (others, undisturbed_weights) = results(folder), results(undisturbed)
    assert figures["losses"] == others["losses"] and weights == undisturbed_weights


SCRIPT = """
import ctypes, os, signal, time
from tests.bugs.mutant import mutant
from backends.process.signals import guarded

stop_request = mutant("backends.process.stop_request", *{change!r})
assert 0.1 < stop_request.SAME_REQUEST < 0.7  # timeout(1) sends a signal twice, and a user not so soon
stop_request.SAME_REQUEST, stop_request.TIMEOUT = {same}, 0.5

def main():
    with stop_request.StopRequest(timeout={timeout}) as request:
        for pause in {pauses}:
            time.sleep(pause)
            os.kill(os.getpid(), signal.SIGTERM)
        {code}
    print("heard", request.number, flush=True)

guarded(main)
"""
IN_C = "m = ctypes.create_string_buffer(64); [ctypes.CDLL(None).pthread_mutex_lock(m) for _ in 'ab']"
CASES = {  # the pauses before signals, within which they are one request, the bound, what the program does
    "one": ((0,), 99, 99, "time.sleep(0.3)", 0, "heard 15\n"),
    "one that is sent twice": ((0, 0.05), 99, 99, "time.sleep(0.3)", 0, "heard 15\n"),
    "a second one": ((0, 0.2), 0.05, 99, "pass", 143, ""),
    "the time is up": ((0,), 0.05, 0.2, "time.sleep({seconds})", 143, ""),
    "the time is up in a library": ((0,), 0.05, 0.2, IN_C, 143, ""),
}  # and its exit status and words
BUGS = {
    "each one counts": ("elif now - self.heard_at > SAME_REQUEST:", "else:", "one that is sent twice"),
    "no second one counts": ("            self.act(number)\n", "            pass\n", "a second one"),
    "no bound": ("            self.timer.start()\n", "", "the time is up"),
}


def outcome(case: str, *change: tuple[str, str], seconds: float = 20) -> tuple[int, str]:
    """The exit status and the words of a program that goes on for ``seconds`` if nothing ends it."""
    pauses, same, timeout, code, _, _ = CASES[case]
    script = SCRIPT.format(
        change=change, pauses=pauses, same=same, timeout=timeout, code=code.format(seconds=seconds)
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=-1, stderr=-1, encoding="utf-8"
    )
    try:
        out, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return process.returncode, out


@pytest.mark.parametrize("case", CASES)
def test_a_request_is_heard_once_and_bounded(case):
    assert outcome(case) == CASES[case][4:]


SRUN = """#!{python}
import signal, subprocess, sys

def kill(number, _):
    task.kill()

def pass_on(number, _):
    task.send_signal(number)

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, kill)
signal.signal(signal.SIGUSR1, pass_on)
task = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
sys.exit(abs(task.wait()))
"""
TASK = """
import pathlib, signal, sys, time

def save(number, _):
    time.sleep(0.2)
    pathlib.Path("saved").touch()
    sys.exit(128 + number)

signal.signal(signal.SIGUSR1, save)
pathlib.Path("begun").touch()
time.sleep(20)
"""
ELSEWHERE = ("(self.notes(rank.SAVES) or self.is_elsewhere())", "self.notes(rank.SAVES)")
OTHER_SIGNAL = ("number = signal.SIGUSR1", "pass")


@pytest.mark.parametrize("change", [(), (ELSEWHERE,), (OTHER_SIGNAL,)], ids=["right", "killed", "SIGTERM"])
def test_ranks_that_srun_started_on_other_machines_save_too(tmp_path, monkeypatch, change):
    """The stand-in treats signals as Slurm's srun does."""
    monkeypatch.chdir(tmp_path)
    srun = tmp_path / "srun"
    srun.write_text(SRUN.format(python=sys.executable), encoding="utf-8")
    srun.chmod(0o755)
    supervise = mutant("backends.launch.supervise", *change)

    def stop():
        while not Path("begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    def interrupt(number, _):
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        threading.Thread(target=stop).start()
        with pytest.raises(Interrupted) as interruption:
            supervise.ending_of([str(srun), TASK], dict(os.environ), saves=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert interruption.value.number == signal.SIGTERM
    assert interruption.value.saved == "nothing was kept, unless a rank on another machine says so"
    assert Path("saved").exists() == (not change)


RACE = ("            if not self.active:", "            if False:")


@pytest.mark.parametrize("change", [(), (RACE,)], ids=["right", "the timer goes on"])
def test_a_request_that_is_over_sends_no_signal(change):
    """Where the ``with`` ends while the thread that reads the pipe is about to bound its time.

    A signal of the wrong timer that came after its handler was gone would end the process of the tests.
    """
    with patch.object(os, "kill") as kill:
        with mutant("backends.process.stop_request", *change).StopRequest(timeout=0.2) as request:
            pass
        request.enforce(signal.SIGUSR1)
        request.timer.join()
    assert kill.called == bool(change)


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_of_requests_catches(bug):
    right, wrong, case = BUGS[bug]
    assert outcome(case, (right, wrong), seconds=1) != CASES[case][4:]
