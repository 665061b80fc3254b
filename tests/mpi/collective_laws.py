"""Laws of backends/comm/mpi_collectives.py: MPI's own collectives, and their bugs; each
rank of a job calls them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import Phase, given, settings

from backends import laws
from backends.comm import Communicator, collectives
from backends.comm.mpi import MPIComm
from backends.comm.mpi_collectives import COLLECTIVES
from backends.comm.spans import SENT
from backends.comm.trace import Traced
from minigrad.testing import c_order, fortran_order
from tests.backends.comm.collectives.collective_laws import LAWS, Case, cases, holds_on_all_ranks
from tests.bugs.bug import Bug


def laws_hold(comm: Communicator, device: str = "numpy", *, examples: int) -> None:
    """All ranks draw the same cases, and do not shrink one: ranks with different errors would part."""

    @settings(derandomize=True, database=None, deadline=None, max_examples=examples, phases=[Phase.generate])
    @given(cases(device))
    def hold(case):
        for law in LAWS:
            holds_on_all_ranks(law, comm, case)

    hold()


def collectives_are_counted_once(comm: Communicator) -> None:
    """Traced, each of MPI's own is one message of what this rank handed over."""
    for ours in COLLECTIVES:
        assert ours.__name__ in SENT
    case = Case((2, 3), (2,), "float32", c_order, 0)
    parts = [case.part(comm.rank, to) for to in range(comm.size)]
    calls: list[tuple[Any, Any, int]] = [
        (collectives.allreduce, parts[0], parts[0].nbytes),
        (collectives.broadcast, parts[0], parts[0].nbytes),
        (collectives.scatter, parts if comm.rank == 0 else None, sum(part.nbytes for part in parts)),
        (collectives.alltoall, parts, sum(part.nbytes for part in parts)),
        (collectives.reduce_scatter, parts, sum(part.nbytes for part in parts)),
    ]
    for ours, argument, nbytes in calls:
        traced = Traced(comm)
        traced.collective(ours, argument)
        (span,) = traced.record.spans
        nbytes = 0 if argument is None else nbytes
        assert (span.what, span.peer, span.bytes) == (ours.__name__, None, nbytes)
        assert traced.record.ledger.sent() == (1, nbytes)


def allreduces_by_name_sum(comm: Communicator) -> None:
    """Exactly; traced, all send messages but the default and ``mpi``, which are MPI's own."""
    for name, allreduce in collectives.ALLREDUCES.items():
        for n in (0, 1, 7, 20_000):
            laws.allreduce_sums(allreduce, comm, n)
        traced = Traced(comm)
        allreduce(traced, np.ones(9))
        whats = [span.what for span in traced.record.spans]
        assert comm.size == 1 or (whats == ["allreduce"]) == (name in ("default", "mpi")), (name, whats)


CASES = [
    Case((1, 3, 2), (2,), "float32", c_order, 0),
    Case((3, 0), (5, 2), "float64", fortran_order, 1),
    Case((30_000, 40_000), (), "float64", c_order, 1),
]


def ragged_and_fortran_arrays_arrive() -> None:
    """A few cases of every law, for the bugs."""
    comm = MPIComm()
    for case in CASES:
        for law in LAWS:
            holds_on_all_ranks(law, comm, case)


def what_is_handed_over_is_counted() -> None:
    collectives_are_counted_once(MPIComm())


BUGS = [
    Bug("all ragged parts begin where the first ends", "Message.allocate", "initial=0)\n",
        "initial=0)\n    starts[1:] = starts[1:2] * (len(starts) - 1)\n", ragged_and_fortran_arrays_arrive,
        "not equal|fails on"),
    Bug("a displacement is off by one", "Message.allocate",
        "memory = np.empty(total, np.uint8)",
        "memory, starts = np.empty(total, np.uint8), [max(0, s - 1) for s in starts]",
        ragged_and_fortran_arrays_arrive, "aligned|fails on"),
    Bug("a ragged part has the length of the first", "Message.allocate",
        "header_of(row).nbytes for rank, row in enumerate(self.rows)]",
        "header_of(self.rows[0]).nbytes for rank, row in enumerate(self.rows)]",
        ragged_and_fortran_arrays_arrive, "cannot reshape|not equal|fails on"),
    Bug("Fortran order is lost", "mpi_collectives.array_of", ").transpose(np.argsort(header.order))",
        ").reshape(header.logical_shape)", ragged_and_fortran_arrays_arrive, "not equal|strides|fails on"),
    Bug("Fortran order is lost in a sum", "PinnedBuffers.flat_copy", "            part[...] = x\n",
        '            part[...] = x.ravel(order="K").reshape(part.shape)\n',
        ragged_and_fortran_arrays_arrive, "not equal|fails on"),
    Bug("nobody waits for the memory of an all-gather", "mpi_collectives.allgather",
        "finish(comm, comm.mpi.Iallgatherv(memory, message.buffer), what)",
        "pending = comm.mpi.Iallgatherv(memory, message.buffer)", ragged_and_fortran_arrays_arrive,
        "not equal|fails on"),
    Bug("the own part is sent to itself", "mpi_collectives.alltoall",
        "return received.arrays(parts[comm.rank], comm.rank)", "return received.arrays(parts[0], comm.rank)",
        ragged_and_fortran_arrays_arrive, "not equal|shape|fails on"),
    Bug("the sum of a part in Fortran order is read in C order", "MPIComm.start_allreduce",
        "result = in_shape_of(x, array_module(x).asarray(total))",
        "result = array_module(x).asarray(total).reshape(x.shape)", ragged_and_fortran_arrays_arrive,
        "strides|fails on"),
    Bug("MPI's own collectives are not counted", "Traced.collective",
        "        self.record.message(i, handed_over(arguments))\n", "", what_is_handed_over_is_counted, "."),
    Bug("a broadcast starts at rank 0 only", "mpi_collectives.broadcast",
        "finish(comm, comm.mpi.Ibcast(memory, root), what)", "finish(comm, comm.mpi.Ibcast(memory, 0), what)",
        ragged_and_fortran_arrays_arrive, "not equal|fails on"),
]  # fmt: skip
