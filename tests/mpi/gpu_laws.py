"""Laws of MPI processes on GPUs, and their bugs: each rank of a job calls them, on a double of CuPy."""

from __future__ import annotations

import numpy as np

from backends.cli.parallel import ParallelConfig
from backends.cli.proof import Proof
from backends.comm import Communicator
from backends.comm.mpi import MPIComm
from minigrad.device import to_device, to_host, use_gpu_of
from tests.bugs.bug import Bug


def messages_are_those_of_finished_kernels() -> None:
    """Also where MPI reads and writes the arrays on the GPU itself, which may not have computed them yet."""
    comm = MPIComm()
    use_gpu_of(comm.local_rank)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    broken = 0
    for n in (3, 1000, 300_000):  # part of the first piece, small and large messages of their own
        ones = to_device(np.ones(n), "cupy")
        for expect in (None, ones):
            for send in (comm.start_send, comm.send):
                receive = comm.start_recv(left, expect=expect)
                finish = send(ones * (comm.rank + 5), right) or (lambda: None)
                received = receive() * 2
                finish()
                broken += int((to_host(received) != 2 * (left + 5)).any())
    broken = int(comm.allreduce(np.array(broken)))
    assert not broken, f"{broken} messages are not what the kernels computed"


def strategies_are_proved(comm: Communicator, parallel: list[ParallelConfig]) -> None:
    for one in parallel:
        verdict = Proof(one, net="mlp", device="cupy").run(comm)
        assert verdict is None or verdict["passed"], verdict


TWO_RANKS = [
    ParallelConfig("replicated", data=2),
    ParallelConfig("bucketed", data=2),
    ParallelConfig("sharded", {"stage": 3, "overlap": True}, data=2),
    ParallelConfig("serial", pipe=2, schedule="1f1b", micro=4),
    ParallelConfig("serial", model=2),
]
EIGHT_RANKS = [
    ParallelConfig("bucketed", data=8),
    ParallelConfig("sharded", {"stage": 2, "overlap": True}, data=8),
    ParallelConfig("replicated", data=2, pipe=2, model=2, schedule="1f1b", micro=4),
]

BUGS = [
    Bug("MPI sends what is not computed yet", "MPIComm.post",
        "        synchronize()  # MPI does not wait", "        pass  #",
        messages_are_those_of_finished_kernels, "are not what the kernels computed"),
    Bug("memory that MPI writes is uploaded first", "room_for",
        'flat = array_module(to_device(np.empty(0), "cupy")).empty(header.size, header.dtype)\n'
        "    synchronize()",
        'flat = to_device(np.empty(header.size, header.dtype), "cupy")\n    pass',
        messages_are_those_of_finished_kernels, "are not what the kernels computed"),
]  # fmt: skip
