"""Ranks on GPUs, without one: the laws run in a process in which a double of CuPy computes on the host."""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.launch.launch import environment

ROOT = Path(__file__).parents[2]
DOUBLE = ROOT / "tests" / "strict_cupy"
ONE = {"MINIGRAD_DEVICE": "cupy"}
TWO = {**ONE, "STRICT_CUPY_DEVICES": "2", "STRICT_CUPY_PEER_ACCESS": "0"}  # neither reads the other's memory
LATE = {"STRICT_CUPY_LATE": "1"}  # a kernel's result is in memory only when somebody waits for it


def wrong(what: str, variables: dict[str, str]) -> list[str]:
    """What ``on_gpus`` finds wrong."""
    paths = {"PYTHONPATH": f"{DOUBLE}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.backends.on_gpus", what]
    environ = {**environment(1), **paths, **variables}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=250)
    *lines, count = done.stdout.splitlines() or [""]
    assert done.returncode == 0 and count.endswith(what) and int(count.split()[0]) > 10, done.stderr
    return lines


@pytest.mark.parametrize("variables", [ONE, {**TWO, **LATE}], ids=["one", "two, late kernels"])
def test_the_laws_of_parallelism_hold_on_gpus(variables):
    assert wrong("laws", variables) == []


def test_their_laws_catch_the_bugs_of_gpus():
    assert wrong("bugs", {**TWO, **LATE}) == []
