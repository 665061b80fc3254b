"""Laws of backends/planner/estimate.py, net_sizes.py, transformer_sizes.py, counted_sizes.py, layout.py and
hardware.py: what a layout sends, holds and computes is what ranks that train in it send, hold and compute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import Communicator
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.grid import AXES, Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.planner.estimate import RankStep
from backends.planner.layout import Layout, Place
from backends.planner.net_sizes import NetSizes
from backends.planner.transformer_sizes import TransformerSizes
from backends.stack import Stack
from minigrad import optim
from minigrad.data import Batch, shares
from minigrad.models import NETS, Net
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tape import Tape


def net_of(sizes: TransformerSizes) -> Net:
    """The net that has these sizes."""
    names = ("symbols", "length", "width", "heads", "blocks")
    return NETS["transformer"].resized(**{name: vars(sizes)[name] for name in names})


def backend_in(layout: Layout, comm: Communicator, sample: tuple[int, ...], batch: int) -> Strategy:
    """The strategies of a layout, whose sums go around rings."""
    grid = Grid(comm, **dict(zip(AXES, layout.shape, strict=True)))
    members: list[Strategy] = []
    micro = 1 if layout.pipe > 1 else layout.micro
    if layout.data > 1 or micro > 1:
        members.append(DataParallel(grid.data, ring_allreduce, micro_batches=micro))
    if layout.pipe > 1:
        settings: dict[str, Any] = {"micro_batches": layout.micro, "bounds": layout.bounds or None}
        members.append(Pipeline(grid.pipe, "1f1b", **settings))
    if layout.model > 1:
        rows = max(batch // layout.data, 1)
        options: dict[str, Any] = {"split_tokens": layout.split_tokens, "allreduce": ring_allreduce}
        members.append(ModelParallel(grid.model, sample=sample, batch_size=rows, **options))
    return Stack(*members) if len(members) > 1 else members[0] if members else Serial()


def batch_of(net: Net, rows: int) -> Batch:
    """Samples of a net, drawn."""
    rng = np.random.default_rng(rows)
    if net.sizes:
        x, y = (rng.integers(0, net.sizes["symbols"], (rows, *net.sample)) for _ in range(2))
        return Batch(x, y)
    return Batch(rng.normal(size=(rows, *net.sample)).astype(np.float32), rng.integers(0, 10, rows))


def counted_step(net: Net, layout: Layout, batch: int) -> list[dict[str, Any]]:
    """By rank: bytes sent by axis in a step, and numbers, tensors and bytes of the optimizer that it has.

    A message belongs to the axis in whose coordinate its two ranks differ.
    """
    shape = layout.shape

    def work(comm: Communicator) -> dict[str, Any]:
        traced = Traced(comm)
        backend = backend_in(layout, traced, net.sample, batch)
        model = backend.place(net.build(np.random.default_rng(0)))
        optimizer = optim.AdamW(model.parameters(), 0.01)
        ledger = traced.record.ledger
        before = {key: count.bytes for key, count in ledger.counts.items()}
        backend.step(model, batch_of(net, batch), net.loss)
        place, sent = np.unravel_index(comm.rank, shape), dict.fromkeys(AXES, 0)
        for (what, peer), count in ledger.counts.items():
            if "send" in what and peer is not None:
                differs = np.flatnonzero(np.array(place) != np.unravel_index(peer, shape))
                assert len(differs) == 1, f"a message from {place} to {np.unravel_index(peer, shape)}"
                sent[AXES[differs[0]]] += count.bytes - before.get((what, peer), 0)
        backend.update(model, optimizer)
        parameters = model.parameters()
        state = [a for values in optimizer.state for a in values.values() if np.ndim(a)]
        return {
            "place": tuple(map(int, place)),
            "sent": {axis: n for axis, n in sent.items() if n},
            "parameters": sum(p.size for p in parameters),
            "tensors": len(parameters),
            "state": sum(a.nbytes for a in state),
        }

    return run_ranks(layout.ranks, work)


def sends_what_ranks_send(sizes: NetSizes, net: Net, layout: Layout, batch: int) -> None:
    """Assert bytes of every rank by axis, its parameters and its optimizer's state, of one step of training."""
    for counted in counted_step(net, layout, batch):
        rank = RankStep(sizes, layout, Place(*counted["place"]), batch)
        costs, memory = rank.largest, rank.memory()
        assert rank.sent() == counted["sent"], f"{rank.place}: {rank.sent()}, counted {counted['sent']}"
        assert (costs.parameters, costs.tensors) == (counted["parameters"], counted["tensors"]), rank.place
        assert memory.parameters == 4 * counted["parameters"]
        assert memory.optimizer == counted["state"], f"{memory.optimizer}, counted {counted['state']}"


def holds_what_tapes_hold(sizes: NetSizes, net: Net, layout: Layout, batch: int) -> None:
    """Assert the bytes that every rank's tape holds between forward and backward, without a pipeline.

    Where symbols are split, a rank holds two indices of 8 bytes for each label that is its own.
    """

    def work(comm: Communicator) -> tuple[int, float]:
        backend = backend_in(layout, comm, net.sample, batch)
        model = backend.place(net.build(np.random.default_rng(0)))
        part = backend.shard(batch_of(net, batch))
        mine = Batch(part.x.copy(), part.y.copy())  # of a view a tape holds the whole batch
        loss = backend.loss_for(model, net.loss)
        with Tape() as tape:
            loss(model(mine.x), mine.y)
        more = 0.0
        if isinstance(sizes, TransformerSizes) and sizes.splits_table(layout, batch):
            own = shares(sizes.symbols, layout.model)[comm.rank % layout.model]
            labels = np.sum((mine.y >= own.start) & (mine.y < own.stop))
            more = 16 * (labels - mine.y.size / layout.model)
        return tape.nbytes, more

    for number, (nbytes, more) in enumerate(run_ranks(layout.ranks, work)):
        place = Place(*map(int, np.unravel_index(number, layout.shape)))
        activations = RankStep(sizes, layout, place, batch).memory().activations + more
        assert abs(activations - nbytes) < 1e-6, f"{place}: {activations}, its tape has {nbytes}"
