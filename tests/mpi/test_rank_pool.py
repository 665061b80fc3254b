"""A pool of ranks says what went wrong in a script, and the next script sees nothing of the one before."""

import os
import subprocess
import sys

import pytest

from . import rank_pool
from .conftest import alive, until
from .rank_pool import ROOT, RankPool

WRONG = {  # each script, and what is said of it
    "one rank raises": (
        "if comm.rank: 1 / 0\ncomm.recv(1)",
        ["rank 0: it still ran", 'File "script.py", line 2', "rank 1: Traceback", "ZeroDivisionError"],
    ),
    "one rank hangs": (
        "while comm.rank: pass",
        ["rank 0: it still ran", "barrier_with", "rank 1: it still ran", 'File "script.py", line 1'],
    ),
    "one rank ends": ("import os\nif comm.rank: os._exit(0)", ["rank 1: its process has ended"]),
    "a message is left": (
        "import numpy as np\nif comm.rank: comm.send(np.ones(2), 0)",
        ["rank 0: Traceback", "the script left a message to this rank"],
    ),
    "a message is left in a group": (
        "import numpy as np\ngroup = comm.split(0)\nif comm.rank: group.send(np.ones(2), 0)",
        ["rank 0: Traceback", "the script left a message to this rank"],
    ),
    "a receive is left": (
        "if comm.rank: comm.start_recv(0)",
        ["never finished the receive from rank 0 (tag 0) that it started at script.py:1"],
    ),
}
LEAVES = """
import os, warnings
name = f"of rank {comm.rank}"
assert "file" not in globals() and not os.path.exists(name)
file = open(name, "w")
warnings.warn("once a line")
"""
ORPHAN = """
import os, signal
from tests.mpi.rank_pool import RankPool
pool = RankPool(2)
print(pool.run(2, "import os; print(os.getpid())"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def small():
    """A pool of two ranks, for scripts that go wrong."""
    pool = RankPool(2)
    yield pool
    pool.close()


@pytest.mark.parametrize("kind", WRONG)
def test_what_went_wrong_is_said_of_every_rank_and_the_next_script_runs(small, kind, monkeypatch):
    monkeypatch.setattr(rank_pool, "GRACE", 1.0)
    script, words = WRONG[kind]
    with pytest.raises(AssertionError) as error:
        small.run(2, script, seconds=1 if "hangs" in kind else 60)
    for text in words:
        assert text in str(error.value)
    assert small.run(2, "print(comm.rank, comm.size)") == "0 2\n1 2\n"


def test_a_script_sees_nothing_of_the_one_before(small):
    """Neither its variables nor its files; and Python warns as in a new process."""
    for _ in range(2):
        assert small.run(2, LEAVES).count("UserWarning: once a line") == 2


def test_fewer_and_more_ranks(small):
    assert [len(small.run(n, "print(comm.size)").split()) for n in (1, 2, 3, 1)] == [1, 2, 3, 1]


def test_ranks_end_with_the_process_of_the_tests(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", ORPHAN],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # for nobody removes the pool's folder
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
    )
    pids = [int(pid) for pid in run.stdout.split()]
    assert len(pids) == 2
    until(lambda: not any(map(alive, pids)), 20)
