"""Checkpoints of processes: a job is resumed, also after a rank was killed, and with other ranks."""

import pytest

from tests.checkpoints.commands import ALL, LAYOUTS, resumes_with_the_same_bits

FEW = [["--data", "2"], ["--data", "2", "--pipe", "2", "--model", "2"]]


@pytest.mark.parametrize("layout", LAYOUTS if ALL else FEW, ids=" ".join)
def test_a_resumed_job_ends_with_the_same_bits(processes, layout):
    def minigrad(*arguments):
        job = processes.minigrad(*arguments)
        return job.status, job.out, job.err

    more = () if layout == [] else ("--transport", "mpi")
    resumes_with_the_same_bits(minigrad, processes.folder, layout, *more, "--oversubscribe")
