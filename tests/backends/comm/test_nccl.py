"""Laws of backends/comm/nccl.py: its laws hold, and catch its bugs, in a process in which doubles stand for
CuPy and NCCL; and what the command says.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.launch.launch import environment
from tests.backends.gpu_laws import LATE, ONE, TWO
from tests.double import needs_double

pytestmark = needs_double

ROOT = Path(__file__).parents[3]
THREE = {**TWO, "STRICT_CUPY_DEVICES": "3"}

LAWS = """
from tests.backends.comm.nccl_laws import LAWS
for law in LAWS:
    law()
"""

HUNT = """
from tests.backends.comm.nccl_laws import BUGS
from tests.bugs.bug import hunt
for bug in BUGS:
    hunt(bug)
"""


def run(*command, **variables):
    environ = {**os.environ, **environment(1), "OPENBLAS_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environ, capture_output=True, encoding="utf-8", timeout=250
    )


@pytest.mark.double
@pytest.mark.parametrize(
    "kernels", [pytest.param({}, marks=pytest.mark.thorough), LATE], ids=["kernels", "late kernels"]
)
def test_the_laws_hold(kernels):
    done = run("-c", LAWS, **THREE, **kernels, MINIGRAD_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("several ranks share a GPU") == 1


@pytest.mark.double
def test_the_laws_catch_the_bugs():
    done = run("-c", HUNT, **THREE, **LATE, MINIGRAD_TIMEOUT="20")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["numpy", "cupy"])
def test_the_command_runs_where_ranks_share_a_gpu(device):
    """The double has ranks as threads, so that the processes of a command must share a GPU."""
    pytest.importorskip("mpi4py")
    command = ("prove", "--data", "2", "--net", "mlp", "--transport", "nccl", "--device", device)
    done = run("-m", "backends", *command, **ONE)
    assert done.returncode == 0 and "PROVED" in done.stdout, done.stdout + done.stderr
    assert done.stderr.count("several ranks share a GPU") == (device == "cupy")


def test_without_cupy_the_command_says_so():
    words = ["prove", "--data", "2", "--transport", "nccl", "--device", "numpy"]
    done = run("-m", "backends", *words, STRICT_CUPY_DEVICES="0", **ONE)
    assert done.returncode == 1
    assert "--transport nccl: CuPy finds no CUDA device" in done.stderr
    assert "use --device numpy and --transport mpi" in done.stderr


def test_without_nccl_the_command_says_what_to_install():
    pytest.importorskip("mpi4py")
    done = run("-m", "backends", "prove", "--data", "2", "--transport", "nccl", **TWO, STRICT_CUPY_NCCL="0")
    assert done.returncode == 1
    assert "--transport nccl: CuPy finds no NCCL; pip install 'minigrad-course[nccl12]'" in done.stderr
