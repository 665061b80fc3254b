"""Scripts without MPI, which one process of a job runs alone."""

from __future__ import annotations

import os
import select
from contextlib import suppress

from backends.process.launcher import WorldError, launcher, refuse


def only_rank_0() -> None:
    """For scripts without MPI: under an mpiexec every rank but rank 0 ends here.

    MPICH's mpiexec polls the pipe of a rank that ended without starting MPI, which takes a whole core until
    the job ends. So such a rank first sends ``finalize`` of PMI-1, as MPI_Finalize does, and waits for the
    answer.
    """
    try:
        here = launcher()
    except WorldError as error:
        refuse(str(error))
    if here is None or here.rank == 0:
        return
    if {"HYDI_CONTROL_FD", "PMI_FD"} <= os.environ.keys():  # only MPICH's mpiexec sets both
        with suppress(OSError):
            os.write(pipe := int(os.environ["PMI_FD"]), b"cmd=finalize\n")
            select.select([pipe], [], [], 1)
    raise SystemExit
