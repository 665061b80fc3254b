"""Times a step of W2 where the network is slow: dense gradients, compressed ones, parameter servers.

On a virtual clock ranks take turns in one process, and each one's clock goes on by the CPU time that its own
work took (the step, the compression, the sums), and by what the link costs; on real processes each rank is a
host of its own, in network namespaces.

python benchmarks/compression.py                               # four ranks on the virtual clock
python benchmarks/compression.py --link 100mbit --ranks 2      # processes on such a network; needs root
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, thread_time
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from data_parallel import console, leave
from data_parallel_link import LINKS, over_link
from data_parallel_peers import model_and_batch, workload
from engine_workloads import LR, MOMENTUM
from minigrad_course.machines.virtual_cluster import VirtualCluster
from rich.table import Table
from threadpoolctl import threadpool_limits

from backends.comm.collectives import allgather, ring_allreduce
from backends.comm.collectives.link import Link
from backends.data_parallel import DataParallel
from backends.data_parallel.compression import Compressed
from backends.data_parallel.compression.low_rank import is_matrix
from backends.data_parallel.compression.sparsification import count_of
from backends.data_parallel.parameter_server import ParameterServer
from backends.launch.launch import load_mpi, under_mpiexec
from minigrad import ops, optim

LATENCY = 1e-4  # seconds of a message on the virtual clock
DENSITY, MATRIX_RANK, TARGET = 0.001, 2, 10
BYTES = INDEX = 4  # float32, int32
WARM = 3  # steps before the clock starts: memory is new to the process
VIRTUAL = "virtual clock"
DGC, POWER = f"DGC, density {DENSITY:.1%}", f"PowerSGD, rank {MATRIX_RANK}"
DENSE, ONE, TWO = "dense ring", "one server", "two servers"
PEERS: dict[str, Callable[[Any], Any]] = {
    DENSE: partial(DataParallel, allreduce=ring_allreduce),
    DGC: partial(Compressed, compress="dgc", density=DENSITY),
    POWER: partial(Compressed, allreduce=ring_allreduce, compress="power-sgd", matrix_rank=MATRIX_RANK),
    ONE: partial(ParameterServer, servers=1, staleness=0),
    TWO: partial(ParameterServer, servers=2, staleness=0),
}


class Cost(NamedTuple):
    """What a step takes: seconds, and of the busiest rank seconds of work, bytes and messages sent."""

    seconds: float
    work: float
    sent: float
    messages: float


class Metered:
    """``comm``, with a count of what is sent and of the CPU time that its rank spends outside of it.

    A virtual clock goes on by that time.
    """

    def __init__(self, comm: Any):
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.clock: Callable[[], float] = getattr(comm, "time", perf_counter)
        self.compute: Callable[[float], None] = getattr(comm, "compute", lambda _: None)
        self.count = np.zeros(3)  # seconds, bytes, messages
        self.left = thread_time()

    def inside(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """``call(*given)``, whose own CPU time is the link's."""
        self.work()
        result = call(*arguments)
        self.left = thread_time()
        return partial(self.inside, result) if callable(result) else result

    def work(self) -> None:
        """Count the CPU time since the last communication."""
        spent = thread_time() - self.left
        self.count[0] += spent
        self.compute(spent)
        self.left = thread_time()

    def send(self, x: Any, to: int, tag: int = 0) -> None:
        self.count[1:] += x.nbytes, 1
        self.inside(self.comm.send, x, to, tag)

    def start_send(self, x: Any, to: int, tag: int = 0) -> Any:
        self.count[1:] += x.nbytes, 1
        return self.inside(self.comm.start_send, x, to, tag)

    def recv(self, *arguments: Any) -> Any:
        return self.inside(self.comm.recv, *arguments)

    def start_recv(self, *arguments: Any) -> Any:
        return self.inside(self.comm.start_recv, *arguments)

    def recv_any(self, tag: int = 0) -> Any:
        return self.inside(self.comm.recv_any, tag)

    def now(self) -> float:
        self.work()
        return self.clock()


def measure(comm: Any, steps: int) -> dict[str, Cost]:
    """What a step costs by peer, the same on all ranks: medians of the steps after WARM others.

    The time is rank 0's, which is no server; the other figures are those of each step's rank that has most.
    """
    figures = {}
    warnings.filterwarnings("ignore", "compress=power-sgd")  # its vectors are in the closed form
    for peer in peers(comm.size):
        metered = Metered(comm)
        backend = PEERS[peer](metered)
        model, batch = model_and_batch(workload("W2"))
        model = backend.place(model)
        momentum = 0.0 if peer == DGC else MOMENTUM  # DGC has its own
        optimizer = optim.SGD(model.parameters(), LR, momentum=momentum)
        counts = []
        for _ in range(WARM + steps):
            optimizer.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            backend.update(model, optimizer)
            counts.append([metered.now(), *metered.count])
        backend.finalize(model)
        every = np.array(allgather(comm, np.diff(counts[WARM - 1 :], axis=0)))  # ranks, steps, figures
        most = np.median(every.max(axis=0), axis=0).tolist()
        figures[peer] = Cost(float(np.median(every[0, :, 0])), *most[1:])
    return figures


def peers(ranks: int) -> list[str]:
    """The peers that ``ranks`` can be: a server needs a worker."""
    return [peer for peer in PEERS if peer != TWO or ranks > 2]


def closed_form(peer: str, ranks: int, shared: bool) -> tuple[float, float]:
    """Bytes that the rank that sends most sends, and bytes that must follow one another in a step.

    A worker sends its gradient when it has the parameters. A server with several workers has all their
    gradients before it answers; where messages do not share its link, the first that is answered sends its
    next gradient while the others' answers leave.
    """
    arrays = [p.data for p in model_and_batch(workload("W2"))[0].parameters()]
    n = BYTES * sum(x.size for x in arrays)
    if peer == DGC:
        sent = (ranks - 1) * (BYTES + INDEX) * count_of(DENSITY, n // BYTES)
        return sent, sent
    if peer in (ONE, TWO):
        servers = 1 if peer == ONE else 2
        workers = ranks - servers
        in_turn = 2 * workers if shared else workers + 1
        return n * max(1, workers / servers), n * max(2, in_turn / servers)
    if peer == POWER:
        narrow = [MATRIX_RANK * sum(x.reshape(len(x), -1).shape) for x in arrays if is_matrix(x)]
        n = BYTES * (sum(narrow) + sum(x.size for x in arrays if not is_matrix(x)))
    return 2 * n * (ranks - 1) / ranks, 2 * n * (ranks - 1) / ranks


def table(rate: int, ranks: int, costs: dict[str, Cost], how: str) -> Table:
    shown = Table(
        title=f"W2 {workload('W2').title}; {ranks} ranks, {rate // 10**6} Mbit/s, {how}",
        caption="work: CPU time, of the rank with most in a step; link: by the closed form, of the bytes "
        "that must follow one another; sent: by the rank that sends most; target at 100 Mbit/s: "
        f"dense / DGC >= {TARGET}",
        caption_justify="left",
    )
    columns = ("", "ms per step", "work", "link", "MB sent", "closed form", "dense / this", "met")
    for column in columns:
        shown.add_column(column, justify="left" if not column else "right", no_wrap=True)
    for peer, cost in costs.items():
        sent, in_turn = closed_form(peer, ranks, shared=how != VIRTUAL)
        ratio = costs[DENSE].seconds / cost.seconds
        target = peer == DGC and rate == LINKS["100mbit"]
        met = ("yes" if ratio >= TARGET else "no") if target else ""
        times = [f"{1000 * x:,.0f}" for x in (cost.seconds, cost.work, in_turn * 8 / rate)]
        shown.add_row(peer, *times, f"{cost.sent / 1e6:.3f}", f"{sent / 1e6:.3f}", f"{ratio:.2f}", met)
    return shown


def main(
    ranks: Annotated[int, typer.Option(min=2)] = 4,
    steps: Annotated[int, typer.Option(min=1)] = 7,
    link: Annotated[
        str | None, typer.Option(help="1gbit or 100mbit: processes, each on a host of its own")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
) -> None:
    """Print time per step and bytes: dense, compressed, with servers."""
    if link is not None and link not in LINKS:
        raise typer.BadParameter(f"unknown link {link!r}; choose from {', '.join(LINKS)}")
    if under_mpiexec():
        comm = load_mpi()()
        with threadpool_limits(1):
            result = measure(comm, steps)
        leave(result if comm.rank == 0 else {})
        comm.close()
        return
    figures: dict[str, dict[str, Cost]] = {}
    if link is None:
        for name, rate in LINKS.items():
            with threadpool_limits(1):
                cluster = VirtualCluster(ranks, Link(LATENCY, rate / 8))
                figures[name] = cluster.run(lambda comm: measure(comm, steps))[0]
    else:
        (result,) = over_link(link, sys.argv[1:], console, __file__, ranks, {"": {}}).values()
        figures[link] = {peer: Cost(*cost) for peer, cost in result.items()}
    for name, costs in figures.items():
        console.print(table(LINKS[name], ranks, costs, VIRTUAL if link is None else "processes"))
    if json_file is not None:
        costs = {name: {peer: c._asdict() for peer, c in result.items()} for name, result in figures.items()}
        json_file.write_text(
            json.dumps({"ranks": ranks, "steps": steps, "link": link, "costs": costs}), encoding="utf-8"
        )


if __name__ == "__main__":
    typer.run(main)
