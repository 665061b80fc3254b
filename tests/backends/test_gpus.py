"""Laws of backends/comm/gpu.py: the laws of ranks on GPUs hold in a process in which a
double of CuPy computes on the host.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from backends.launch.launch import environment
from tests.backends.gpu_laws import LATE, ONE, TWO
from tests.double import needs_double

pytestmark = needs_double

ROOT = Path(__file__).parents[2]


def wrong(what: str, variables: dict[str, str]) -> list[str]:
    """What ``on_gpus`` finds wrong."""
    command = [sys.executable, "-m", "tests.backends.on_gpus", what]
    environ = {**environment(1), "OPENBLAS_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", timeout=250)
    *lines, count = done.stdout.splitlines() or [""]
    assert done.returncode == bool(lines) and count.endswith(what) and int(count.split()[0]) > 10, done.stderr
    return lines


@pytest.mark.double
def test_their_laws_hold_and_catch_the_bugs_of_gpus():
    assert wrong("own", {**TWO, **LATE}) == []


@pytest.mark.thorough
@pytest.mark.parametrize("variables", [ONE, {**TWO, **LATE}], ids=["one", "two, late kernels"])
def test_the_laws_of_parallelism_hold_on_gpus(variables):
    assert wrong("all", variables) == []
