"""Measures the latency and the bandwidth of messages between two ranks.

``python -m backends.launch.ping_pong``, started by mpiexec, prints both for its first two ranks as JSON.
"""

from __future__ import annotations

import json
from statistics import median
from time import perf_counter

import numpy as np

from ..comm import Communicator
from .launch import load_mpi

SMALL, LARGE = 8, 1 << 22  # bytes of the messages that measure latency and bandwidth
PING, PONG = 1, 2  # tags


def one_way(comm: Communicator, nbytes: int, repeats: int) -> float:
    """The seconds that a message of ``nbytes`` takes from rank 0 to 1: half of a round trip, the median."""
    x = np.zeros(nbytes, np.uint8)
    times = []
    for _ in range(repeats):
        start = perf_counter()
        if comm.rank == 0:
            done = comm.start_send(x, 1, PING)
            comm.recv(1, PONG, expect=x)
            done()
        elif comm.rank == 1:
            comm.recv(0, PING, expect=x)
            comm.start_send(x, 0, PONG)()
        times.append((perf_counter() - start) / 2)
    return median(times)


def measure(comm: Communicator) -> dict[str, float]:
    """The latency in seconds and the bandwidth in bytes per second between ranks 0 and 1."""
    one_way(comm, SMALL, 20)
    latency = one_way(comm, SMALL, 200)
    one_way(comm, LARGE, 1)
    return {"latency": latency, "bandwidth": LARGE / (one_way(comm, LARGE, 5))}


def main() -> None:
    comm = load_mpi()()
    speeds = measure(comm)
    comm.close()
    if comm.rank == 0:
        print(json.dumps(speeds))


if __name__ == "__main__":
    main()
