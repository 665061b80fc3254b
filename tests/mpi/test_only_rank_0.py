"""MPICH's mpiexec closes the pipe of a rank that takes leave: an open one it would look at without end."""

import pytest

from backends.launch.launch import mpiexec_vendor

SCRIPT = """
import os, select
from minigrad_course.shared.only_rank_0 import only_rank_0

try:
    only_rank_0()
    print("rank 0 goes on\\n", end="")
except SystemExit:
    pipe = int(os.environ["PMI_FD"])
    answer = os.read(pipe, 100)
    closed = bool(select.select([pipe], [], [], 10)[0]) and os.read(pipe, 1) == b""
    print(f"{answer.decode().split()[0]}, closed: {closed}\\n", end="")
    raise
"""


def test_mpiexec_forgets_the_ranks_that_took_leave(processes):
    if mpiexec_vendor() != "MPICH":
        pytest.skip("only MPICH's mpiexec keeps such a pipe")
    job = processes.ranks(3, SCRIPT)
    assert job.status == 0 and not job.err
    expected = ["cmd=finalize_ack, closed: True"] * 2 + ["rank 0 goes on"]
    assert sorted(job.out.splitlines()) == expected
