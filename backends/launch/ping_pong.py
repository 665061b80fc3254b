"""How fast messages between two ranks are: latency and bandwidth, measured.

``python -m backends.launch.ping_pong``, started by mpiexec, prints both for its first two ranks as JSON.
"""

from __future__ import annotations

import json
from statistics import median
from time import perf_counter

import numpy as np

from ..comm import Communicator
from .launch import load_mpi

SMALL, LARGE = 8, 1 << 22  # bytes of the messages that show the latency and the bandwidth
HERE, BACK = 1, 2  # tags


def one_way(comm: Communicator, nbytes: int, repeats: int) -> float:
    """Seconds a message of ``nbytes`` takes from rank 0 to 1: half of there and back, the median."""
    x = np.zeros(nbytes, np.uint8)
    times = []
    for _ in range(repeats):
        start = perf_counter()
        if comm.rank == 0:
            done = comm.start_send(x, 1, HERE)
            comm.recv(1, BACK, expect=x)
            done()
        elif comm.rank == 1:
            comm.recv(0, HERE, expect=x)
            comm.start_send(x, 0, BACK)()
        times.append((perf_counter() - start) / 2)
    return median(times)


def measure(comm: Communicator) -> dict[str, float]:
    """Seconds of latency and bytes per second between ranks 0 and 1, in a fraction of a second."""
    one_way(comm, SMALL, 20)
    latency = one_way(comm, SMALL, 200)
    one_way(comm, LARGE, 1)
    return {"latency": latency, "bandwidth": LARGE / (one_way(comm, LARGE, 5))}


def main() -> None:
    comm = load_mpi()()
    found = measure(comm)
    comm.close()
    if comm.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
