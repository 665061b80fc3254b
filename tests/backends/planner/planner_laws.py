"""Laws of backends/planner/estimate.py, rank_step.py, planner.py, net_sizes.py, transformer_sizes.py,
counted_sizes.py, layout.py and hardware.py: what a layout sends, holds and computes is what ranks do that
train in it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.communicator import Communicator
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.expert_parallel import ExpertParallel
from backends.grid import AXES, Grid
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.plan import default_plan
from backends.partition import optimal
from backends.pipeline import SCHEDULES, Pipeline, simulate
from backends.planner.estimate import Stages
from backends.planner.hardware import Hardware
from backends.planner.layout import Layout, Place
from backends.planner.net_sizes import NetSizes
from backends.planner.planner import best_first, layouts
from backends.planner.rank_step import RankStep
from backends.planner.transformer_sizes import TransformerSizes
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import loops, optim
from minigrad.data import Batch, shares
from minigrad.environment import variable
from minigrad.models import NETS, Net
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tape import Tape
from minigrad.work import Work

HOLDS_IN_LOOPS = loops.available() and variable("MINIGRAD_OPS") != "readable"
"""Whether norms hold four statistics and attention one number for each query, as the planner says."""


def net_of(sizes: TransformerSizes) -> Net:
    """The net that has these sizes."""
    names = ["symbols", "length", "width", "heads", "blocks"]
    names += ["experts", "choices"] if sizes.experts else []
    return NETS["transformer"].resized(**{name: vars(sizes)[name] for name in names})


def backend_in(layout: Layout, comm: Communicator, sample: tuple[int, ...], batch: int) -> Strategy:
    """The strategies of a layout, whose sums go around rings."""
    grid = Grid(comm, **dict(zip(AXES, layout.shape, strict=True)))
    members: list[Strategy] = []
    micro = 1 if layout.pipe > 1 else layout.micro
    if layout.data > 1 or micro > 1:
        of_data = ExpertParallel if layout.expert_parallel else DataParallel
        members.append(of_data(grid.data, ring_allreduce, micro_batches=micro))
    if layout.sequence > 1:
        members.append(SequenceParallel(grid.sequence, ring_allreduce, form=layout.form))
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

    return run_ranks(math.prod(layout.shape), work)


def sends_what_ranks_send(sizes: NetSizes, net: Net, layout: Layout, batch: int) -> None:
    """Assert bytes of every rank by axis in a step, its parameters and its optimizer's state."""
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
        own = (part.places, part.is_part, part.tokens)
        mine = Batch(part.x.copy(), part.y.copy(), *own)  # of a view a tape holds the whole batch
        loss = backend.loss_for(model, net.loss)
        with Tape() as tape:
            with Work(model, mine, loss, step=0).forward_pass():
                out = model(mine.x)
            loss(out, mine.y)
        more = 0.0
        if isinstance(sizes, TransformerSizes) and sizes.splits_table(layout, batch):
            own = shares(sizes.symbols, layout.model)[comm.rank % layout.model]
            labels = np.sum((mine.y >= own.start) & (mine.y < own.stop))
            more = 16 * (labels - mine.y.size / layout.model)
        if layout.sequence > 1:
            more += 8 * net.sample[0]  # the columns of all ranks
        return tape.nbytes, more

    for number, (nbytes, more) in enumerate(run_ranks(math.prod(layout.shape), work)):
        place = Place(*map(int, np.unravel_index(number, layout.shape)))
        activations = RankStep(sizes, layout, place, batch).memory().activations + more
        assert abs(activations - nbytes) < 1e-6, f"{place}: {activations}, its tape has {nbytes}"


def computes_what_loops_count(sizes: TransformerSizes) -> None:
    """Assert the operations of a sample: two for each weight and token, four for each pair and number."""
    weights = [(sizes.width, 3 * sizes.width), (sizes.width, sizes.width)]
    weights += [(sizes.width, sizes.experts)]
    feed_forwards = sizes.choices if sizes.experts else 1
    weights += [(sizes.width, sizes.neurons), (sizes.neurons, sizes.width)] * feed_forwards
    operations = 0
    for query in range(sizes.length):
        operations += sum(2 * n * m for n, m in weights)
        for _ in range(query + 1):  # this key, and those before
            for _ in range(sizes.heads):
                operations += 2 * sizes.head_size  # of the score
                operations += 2 * sizes.head_size  # of its value
    embedding, *blocks, norm, scores = sizes.work()
    assert (embedding, norm, scores) == (0, 0, 2 * sizes.length * sizes.width * sizes.symbols)
    assert blocks == [operations] * sizes.blocks, f"{blocks[0]}, counted {operations}"


def shares_the_work(sizes: TransformerSizes, layout: Layout, batch: int) -> None:
    """Assert that the parts of all ranks are the whole: operations of blocks, and parameters.

    Each rank holds its share of what is split, and all of what is not.
    """
    data, pipe, sequence, model = layout.shape
    whole = RankStep(sizes, Layout(), Place(), batch)
    places = [Place(*map(int, place)) for place in np.ndindex(*layout.shape)]
    ranks = [RankStep(sizes, layout, place, batch) for place in places]
    costs = [[rank.costs(rows) for rows in rank.rows] for rank in ranks]
    tables = 1 if sizes.splits_table(layout, batch) else model  # scores that all ranks compute
    scores = batch * sizes.work()[-1] * (tables - 1)
    for one, all_ranks in (
        (whole.largest.forward + scores, sum(c.forward for some in costs for c in some)),
        (whole.largest.backward + 2 * scores, sum(c.backward for some in costs for c in some)),
    ):
        assert np.isclose(one, all_ranks, rtol=1e-12), f"{all_ranks} of {one} operations"
    if model == pipe == 1 and not layout.expert_parallel:
        assert {rank.largest.parameters for rank in ranks} == {whole.largest.parameters}


def waits_as_schedules_do(stages: int, micros: int, sizes: TransformerSizes) -> None:
    """Assert (M + K - 1) / M times the slowest stage's work for K equal stages, and 1F1B's activations."""
    bounds = (0, *range(2, stages + 1), sizes.blocks + 3)  # the last one also has the norm and the scores
    layout = Layout(pipe=stages, micro=micros, bounds=bounds)
    even = replace(sizes, symbols=0)
    step = Stages(even, layout, micros).estimate(Hardware(1.0, Link(0.0), np.inf))
    share = Fraction(stages - 1, micros + stages - 1)
    assert np.isclose(step.bubble, float(share)), f"bubble {step.bubble}, formula {share}"
    assert np.isclose(step.seconds, step.compute * (micros + stages - 1) / micros), step
    plan = simulate(SCHEDULES["1f1b"].of(stages, micros))
    for stage in range(stages):
        rank = RankStep(even, layout, Place(pipe=stage), micros)
        nbytes = rank.memory().activations
        assert nbytes == plan.in_flight(stage) * rank.largest.activations, f"stage {stage} holds {nbytes}"


def divides_activations(sizes: TransformerSizes, layout: Layout, batch: int) -> None:
    """Assert that p ranks of an even sequence hold a p-th of the activations, and compute a p-th.

    Those of an all-to-all hold a p-th of the heads' output once more.
    """
    serial = RankStep(sizes, layout._replace(sequence=1), Place(), batch).largest
    heads_output = 4 * batch * sizes.length * sizes.width * sizes.blocks
    expected = serial.activations + heads_output * (layout.form == "ulysses" and layout.sequence > 1)
    for place in range(layout.sequence):
        rank = RankStep(sizes, layout, Place(sequence=place), batch).largest
        assert np.isclose(rank.activations * layout.sequence, expected), "bytes of activations"
        assert np.isclose(rank.forward * layout.sequence, serial.forward)
        assert rank.parameters == serial.parameters


def splits_as_the_default_plan(sizes: TransformerSizes, ranks: int, rows: int) -> None:
    """Assert that the table is split where the default plan of the model axis splits it."""
    model = net_of(sizes).build(np.random.default_rng(0))
    plan = default_plan(model, ranks, rows, (sizes.length,))
    split = sizes.splits_table(Layout(model=ranks), rows)
    assert split == ("0" in plan), f"{sizes} on {ranks} ranks: {split}, the plan is {plan}"


def refuses_by_the_least(net: NetSizes, ranks: int, batch: int) -> None:
    """Assert that a layout is found where one fits by some number of micro-batches, else the least named.

    Tried here are all numbers of micro-batches of each layout that ``layouts`` lists with few of them.
    """
    wholes = {layout._replace(micro=1) for layout in layouts(net, ranks, batch)}
    least = min(
        max(
            RankStep(net, whole._replace(micro=n), place, batch).memory().total
            for place in last_places(whole)
        )
        for whole in wholes
        for n in range(1, batch // whole.data + 1)
    )
    hardware = Hardware(1e9, Link(1e-5, 1e8), least)
    plans = best_first(net, ranks, hardware, batch)
    assert plans.fitting, f"nothing fits into {least}, the least named is {plans.over[0]}"
    assert all(e.memory.total <= least for e in plans.fitting)
    none = best_first(net, ranks, hardware._replace(memory=least * (1 - 1e-9)), batch)
    assert not none.fitting and none.over[0][1] == least, f"the least is {least}, named is {none.over[:1]}"


def last_places(layout: Layout) -> list[Place]:
    """The places with the last coordinates in each stage."""
    last = Place(layout.data - 1, 0, layout.sequence - 1, layout.model - 1)
    return [last._replace(pipe=stage) for stage in range(layout.pipe)]


def equals_brute_force(net: NetSizes, ranks: int, hardware: Hardware, batch: int) -> None:
    """Assert that the best layouts are those of a search without a shortcut, through all of four numbers.

    Of those without a pipeline it leaves out what has more micro-batches than another one that fits.
    """
    fitting: dict[Layout, tuple[float, float]] = {}
    for shape in product(range(1, ranks + 1), repeat=4):
        data, pipe, sequence, model = shape
        if np.prod(shape) != ranks or pipe > len(net.work()):
            continue
        bounds = tuple(optimal(net.work(), pipe)) if pipe > 1 else ()
        rows = batch // data
        for micro in sorted({pipe, 2 * pipe, 4 * pipe, 8 * pipe} | ({rows} if rows < pipe else set())):
            for form, split, own in product(("ring", "ulysses"), (False, True), (False, True)):
                if (form == "ulysses" and sequence == 1) or (split and model == 1) or (own and data == 1):
                    continue
                layout = Layout(data, pipe, sequence, model, micro, form, split, own, bounds)
                few = pipe == 1 and any(layout._replace(micro=m) in fitting for m in (1, 2, 4) if m < micro)
                if few or net.reason_against(layout, batch) is not None:
                    continue
                e = Stages(net, layout, batch).estimate(hardware)
                if e.memory.total <= hardware.memory:
                    fitting[layout] = e.seconds, e.memory.total
    plans = best_first(net, ranks, hardware, batch)
    best = [(e.seconds, e.memory.total) for e in plans.fitting]
    assert best == sorted(fitting.values())[: len(best)], f"{best}"
    assert all(e.layout in fitting for e in plans.fitting)
    assert len(best) + plans.slower == len(fitting), f"{plans.slower} are slower, of {len(fitting)}"


def finds_the_best(net: NetSizes, ranks: int, hardware: Hardware, batch: int) -> None:
    """Assert that all layouts that give every rank work are there once, in order, and none is over memory."""
    plans = best_first(net, ranks, hardware, batch, most=10**6)
    seconds = [e.seconds for e in plans.fitting]
    assert seconds == sorted(seconds), f"the order is {seconds}"
    over = [e.layout.words() for e in plans.fitting if e.memory.total > hardware.memory]
    assert not over, f"over memory: {over}"
    assert all(needed > hardware.memory for _, needed in plans.over)
    few = best_first(net, ranks, hardware, batch, most=3)
    assert [e.layout for e in few.fitting] == [e.layout for e in plans.fitting[:3]], "others are the best"
    assert len(few.fitting) + few.slower == len(plans.fitting) and few.over == plans.over
    listed = [e.layout for e in plans.fitting] + [layout for layout, _ in plans.over]
    assert len(set(listed)) == len(listed) and all(math.prod(layout.shape) == ranks for layout in listed)
    shapes = {
        (d, p, s, m)
        for d in range(1, ranks + 1)
        for p in range(1, ranks + 1)
        for s in range(1, ranks + 1)
        for m in range(1, ranks + 1)
        if d * p * s * m == ranks
    }
    for shape in shapes:
        possible = net.reason_against(Layout(*shape, micro=shape[1]), batch) is None
        assert not possible or any(layout.shape == shape for layout in listed), f"{shape} is missing"
        if not possible and shape[2] == 1:
            rows = batch // shape[0]
            assert rows < shape[1] or all(layout.shape != shape for layout in listed), f"{shape} is idle"
