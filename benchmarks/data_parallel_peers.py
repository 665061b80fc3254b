"""What ``data_parallel.py`` times: steps of one workload, by minigrad's strategies and by PyTorch."""

from __future__ import annotations

import os
import socket
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from engine_workloads import LR, MOMENTUM, WORKLOADS, Network, Step, minigrad_layer, torch, torch_layer

from backends.comm.shared_memory_allreduce import SharedMemoryAllreduce
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from minigrad import nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.work import forward_backward_pass


class Peer(NamedTuple):
    """``step`` is called on all ranks, or on rank 0 alone; ``whole`` if it returns the whole batch's loss."""

    step: Step
    alone: bool = False
    whole: bool = True


def strategies(comm: Any) -> dict[str, Strategy]:
    """minigrad's strategies on these ranks, by the name in the table."""
    return {
        "replicated": DataParallel(comm),
        "replicated, window": DataParallel(comm, SharedMemoryAllreduce(comm)),
        "replicated, MPI": DataParallel(comm, lambda _, x: comm.start_allreduce(x)()),
        "bucketed": Bucketed(comm),
        "bucketed, thread": Bucketed(comm, progress="thread"),
        "sharded, stage 1": Sharded(comm, stage=1),
        "one node": SharedMemoryDataParallel(comm),
    }


def workload(name: str, batch: int | None = None) -> Network:
    """One of ``engine.py``'s networks, with a batch of another size where that is given."""
    work: Any = WORKLOADS[name]
    if batch is None:
        return work
    return replace(work, title=f"{work.title} ({batch} here)", input=(batch, *work.input[1:]))


def peers(work: Network, comm: Any) -> dict[str, Peer]:
    """All that take turns in one run: serial on rank 0, half the batch on each rank, strategies, PyTorch."""
    mine = shares(work.input[0], comm.size)[comm.rank]
    by_name = {
        "serial": Peer(stepper(work, Serial())[0], alone=True),
        "half batch": Peer(stepper(work, Serial(), mine)[0], whole=False),
        "half batch, one process": Peer(stepper(work, Serial(), mine)[0], alone=True),
    }
    by_name |= {name: Peer(stepper(work, backend)[0]) for name, backend in strategies(comm).items()}
    if torch is not None:
        by_name["torch"] = Peer(torch_stepper(work, slice(None)), alone=True)
        by_name["torch DDP"] = Peer(torch_stepper(work, mine, parallel=True), whole=False)
    return by_name


def stepper(
    work: Network, backend: Strategy, part: slice | None = None, span: Any = nullcontext
) -> tuple[Step, Strategy]:
    """A training step of minigrad, over the whole batch or over a part of it; its parts inside ``span``."""
    model, batch = model_and_batch(work)
    model = backend.place(model)
    batch = batch if part is None else batch[part]
    optimizer = optim.SGD(model.parameters(), LR, momentum=MOMENTUM)
    forward_backward = partial(forward_backward_pass, span=span)

    def step() -> float:
        optimizer.zero_grad()
        loss = backend.step(model, batch, ops.cross_entropy, forward_backward)
        with span("update"):
            backend.update(model, optimizer)
        return loss

    return step, backend


def model_and_batch(work: Network) -> tuple[nn.Module, Batch]:
    """The network's layers and a batch, with the same numbers on every rank."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(work.input, np.float32), rng.integers(0, 10, work.input[0])
    return nn.Sequential(*(minigrad_layer(layer, rng) for layer in work.layers)), Batch(x, y)


def torch_stepper(work: Network, part: slice, parallel: bool = False) -> Step:
    """A step of ``work`` in PyTorch, under its DistributedDataParallel where ``parallel``."""
    start, batch = model_and_batch(work)
    model = torch.nn.Sequential(*map(torch_layer, work.layers))
    model.load_state_dict({name: torch.from_numpy(w) for name, w in start.state_dict().items()})
    if parallel:
        model = torch.nn.parallel.DistributedDataParallel(model)
    x, y = (torch.from_numpy(array[part]) for array in (batch.x, batch.y))
    optimizer = torch.optim.SGD(model.parameters(), LR, momentum=MOMENTUM)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def start_torch(comm: Any) -> None:
    """One thread, and a gloo process group of these ranks over the loopback interface."""
    if torch is None:
        return
    torch.set_num_threads(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = comm.mpi.bcast(free.getsockname()[1])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=comm.rank, world_size=comm.size
    )


def stop_torch() -> None:
    if torch is not None:
        torch.distributed.destroy_process_group()
