"""Laws of backends/comm/pinned_buffers.py, mpi.py and wire.py: MPI processes on GPUs, and their bugs; each
rank of a job calls them, on a double of CuPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.cli.parallel import ParallelConfig
from backends.cli.proof import Proof
from backends.comm import Communicator, collectives
from backends.comm.mpi import MPIComm
from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from minigrad.device import array_module, to_device, to_host, use_gpu_of
from tests.bugs.bug import Bug
from tests.minigrad.gpu_laws import counted


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


def sums_through_the_host_take_the_same_memory_again() -> None:
    """Several are on their way at a time, and nobody waits for a sum before those on the next stream."""
    world = MPIComm()
    use_gpu_of(world.local_rank)
    comm = world.split(0)
    in_shared_memory, shapes = SharedMemoryAllreduce(comm), [(3,), (7, 1000), (300_000,), ()]
    parts = [to_device(np.ones((4, 5)), "cupy").T for _ in range(comm.size)]
    cuda = array_module(parts[0]).cuda
    cuda.Device().synchronize()
    streams = [cuda.Stream(non_blocking=True) for _ in range(8)]

    def a_round(number: int) -> list[tuple[Any, float]]:
        finishes = [
            comm.start_allreduce(to_device(np.full(shape, float(number)), "cupy")) for shape in shapes
        ]
        sums = [(finish(), comm.size * number) for finish in reversed(finishes)]
        sums += [(in_shared_memory(comm, parts[0] * number), comm.size * number)]
        sums += [(comm.collective(collectives.reduce_scatter, parts), comm.size)]
        return [*sums, (comm.allreduce(parts[0] * number), comm.size * number)]

    def rounds(numbers: range) -> list[tuple[Any, float]]:
        sums = []
        for number in numbers:
            with streams[number]:
                sums += a_round(number)
        return sums

    sums = rounds(range(3))
    with counted() as events:
        sums += rounds(range(3, 8))
    cuda.Device().synchronize()
    broken = sum(int((to_host(total) != expected).any()) for total, expected in sums)
    broken = int(world.allreduce(np.array(broken)))
    assert not broken, f"{broken} sums are wrong"
    taken = 0 if events is None else events["pinned allocation"]
    assert not taken, f"{taken} buffers were allocated after the third round"
    comm.close()
    assert not comm.pinned.free, "a communicator that is closed keeps its buffers"


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

BUGS_OF_BUFFERS = [
    Bug("a buffer is used again while the GPU reads it", "PinnedBuffers.empty", "uploaded.synchronize()",
        "pass", sums_through_the_host_take_the_same_memory_again, "sums are wrong"),
    Bug("a buffer is used again while its message is on its way", "MPIComm.start_allreduce",
        "request = self.mpi.Iallreduce(sent, total)\n",
        "request = self.mpi.Iallreduce(sent, total)\n    self.pinned.give_back(total)\n",
        sums_through_the_host_take_the_same_memory_again, "sums are wrong|aliased|MPI"),
    Bug("a buffer is not used again", "PinnedBuffers.give_back", "insort(self.free,", "insort([],",
        sums_through_the_host_take_the_same_memory_again, "were allocated after the third round"),
]  # fmt: skip
