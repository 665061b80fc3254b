"""The answers to the questions on lesson 15, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.sharded_step import sharded_step
from minigrad_course.machines.transformer_flops import utilization
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.timed_layer import TimedLayer

from backends.comm.collectives import rabenseifner_allreduce, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.pipeline import SCHEDULES, Costs, simulate
from backends.planner import Hardware, TransformerSizes, best_first
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.recompute import recomputed
from minigrad.serial import Serial


def on_32_ranks(allreduce, numbers):
    """Seconds of an all-reduce on a virtual clock."""
    cluster = VirtualCluster(32, Link(20e-6, 1e8))
    cluster.run(lambda comm: allreduce(comm, np.ones(numbers, np.float32)))
    return cluster.seconds


def small_message(student):
    numbers = student.NUMBERS
    ring, halving = (on_32_ranks(how, numbers) for how in (ring_allreduce, rabenseifner_allreduce))
    times = f"{numbers:,} numbers take {1e3 * ring:.2f} ms around a ring, {1e3 * halving:.2f} ms by halving"
    assert numbers == 32, f"{times}; take 32 numbers"
    return (
        f"{times}, {ring / halving:.1f} times less: the bytes take almost no time, and the ring needs 62 "
        "messages one after the other, halving 10"
    )


def times_as_fast(stages, micros=32):
    """A pipeline of these stages against one rank that does all of their work."""
    plan = simulate(SCHEDULES["gpipe"].of(len(stages), micros), Costs(stages, [2 * t for t in stages]))
    return sum(plan.busy(rank) for rank in range(len(stages))) / plan.makespan


def slow_stage(student):
    stages = list(student.STAGE_SECONDS)
    fast = times_as_fast(stages)
    assert sorted(stages) == [1, 1, 1, 2], (
        f"stages of {stages} s are {fast:.2f} times as fast; let one take 2 s"
    )
    places = [times_as_fast([1 + (rank == slow) for rank in range(4)]) for slow in range(4)]
    shown = ", ".join(f"{speed:.2f}" for speed in places)
    return (
        f"the pipeline is {fast:.2f} times as fast, wherever the slow stage is: {shown}. It completes one "
        "micro-batch's forward every 2 s instead of every 1 s, while the work grew by a quarter only"
    )


def lost(interval, failures, save=60.0):
    """The share of the time that is lost, in 100,000 lives between two failures of the whole cluster."""
    lives = np.random.default_rng(0).exponential(failures, 100_000)
    return 1 - np.floor(lives / (interval + save)).sum() * interval / lives.sum()


def more_machines(student):
    failures = 125 * 86_400 / student.MACHINES
    losses = {interval: lost(interval, failures) for interval in (285, 569, 1138)}
    shown = ", ".join(
        f"{share:.1%} with a checkpoint every {interval} s" for interval, share in losses.items()
    )
    assert student.MACHINES == 4000, f"{student.MACHINES:,} machines lose {shown}; take 4,000"
    assert min(losses, key=losses.get) == 569
    return (
        f"4,000 machines lose {shown}: four times as many failures make the best interval, sqrt(2 C M), "
        "half as long, since saving costs as much as before; 1,000 machines lost "
        f"{lost(1138, 4 * failures):.1%}"
    )


def real_step(forward, backward, ready, lengths, ranks, link):
    """Seconds of the step on virtual ranks, which sum their buckets around a ring in the background."""

    def work(comm):
        background, waits, over = comm.background(), [], 0.0
        comm.compute(forward)
        for at, length in zip(ready, lengths, strict=True):
            comm.compute(at - over)
            over, gradient = at, np.ones(length, np.float32)
            waits.append(background.start(lambda comm, g=gradient: ring_allreduce(comm, g)))
        comm.compute(backward - over)
        for wait in waits:
            wait()
        background.close()
        return comm.time()

    return max(VirtualCluster(ranks, link).run(work))


def end_of_a_step(student):
    rng, ranks = np.random.default_rng(15), 4
    for case in range(12):
        link = Link(1e-4, 1e5 if case % 2 else 1e7)  # backward ends last on some, first on others
        forward, backward = rng.integers(0, 100, 2) / 1e3
        ready = np.sort(rng.random(rng.integers(1, 6)) * backward).tolist()
        lengths = (ranks * rng.integers(1, 300, len(ready))).tolist()
        summing = [2 * (ranks - 1) * link.seconds(4 * length // ranks) for length in lengths]
        seconds = real_step(forward, backward, ready, lengths, ranks, link)
        own = student.step_seconds(float(forward), float(backward), ready, summing)
        assert own is not None and np.isclose(own, seconds, rtol=1e-9), (
            f"case {case}, {len(ready)} buckets: your function says {own} s, the virtual ranks take "
            f"{seconds:.6f} s; write step_seconds"
        )
    example = student.step_seconds(0, 120, [24, 48, 72, 96, 120], [30] * 5)
    return (
        f"12 steps on virtual ranks take as long as you say, and yours is over at {example:g} ms: a bucket "
        "is ready every 24 ms and takes 30, so each waits for the one before, and only the first 24 ms are "
        "without a sum"
    )


def slow_link(student):
    net = TransformerSizes(symbols=51_200, length=2048, width=2048, heads=16, blocks=12)
    hardware = Hardware(100e12, Link(10e-6, student.BANDWIDTH), 40e9)
    plans = best_first(net, 8, hardware, 32, most=1000).fitting
    first, model = plans[0], next(e for e in plans if e.layout.model == 8)
    words = f"{student.BANDWIDTH / 1e9:g} GB/s: best is {first.layout.words()}, {first.seconds:.1f} s a step"
    assert student.BANDWIDTH == 1.25e9, f"{words}; take 1.25e9"
    batch = next(e for e in plans if e.layout.data == 8)
    assert first.layout.pipe == 8 and first.bubble > 0.5
    return (
        f"{words}, of which ranks are idle {first.bubble:.0%}, against {batch.seconds:.1f} s of data 8 and "
        f"{model.seconds:.1f} s of model 8: a stage sends {sum(first.sent.values()) / 1e9:.1f} GB of "
        f"activations, a rank of the batch {sum(batch.sent.values()) / 1e9:.1f} GB of gradients, and one of "
        f"the model {sum(model.sent.values()) / 1e9:.0f} GB, four sums in every block"
    )


LAYER = 1e12  # operations of a layer's forward
SPEED, PEAK = 163e12, 312e12


def net_seconds(again, layers=6):
    """Seconds of a step of equal layers at ``SPEED``, on a virtual clock."""
    ones = np.ones((2, 3), np.float32)

    def work(comm):
        traced = Traced(comm)
        timed = (TimedLayer(nn.Linear(3, 3, rng=0), traced, LAYER / SPEED) for _ in range(layers))
        model = nn.Sequential(*timed)
        Serial().step(recomputed(model, layers) if again else model, Batch(ones, ones), ops.mse)
        return comm.time()

    return VirtualCluster(1, Link(0.0)).run(work)[0]


def without_recomputation(student):
    again, layers = student.RECOMPUTES, 6
    seconds, needed = net_seconds(again), 3 * layers * LAYER
    executed = needed + layers * LAYER * again
    hfu, mfu = (utilization(flops, seconds, 1, PEAK) for flops in (executed, needed))
    words = f"a step takes {1e3 * seconds:.0f} ms, HFU {hfu:.0%}, MFU {mfu:.0%}"
    assert again is False, f"{words}; set RECOMPUTES to False"
    return (
        f"{words}: a quarter of the operations are gone, so the step takes a quarter less time. HFU does not "
        "see that, MFU does"
    )


def two_ahead(student):
    prefetch = student.PREFETCH
    step = sharded_step([(1200, 3e-3)] * 6, prefetch, Link(0.0, 1.2e6))
    words = f"a step takes {1e3 * step.seconds:.0f} ms, and {step.most_held // 1200} layers are held"
    assert prefetch == 2, f"with prefetch {prefetch} {words}; take 2"
    return (
        f"with prefetch 2 {words}: while a layer computes, the link is busy with the next one for the whole "
        "time, and has no time for another. 6 ms are left, the first gathering and the last reduction"
    )


def own_count(student):
    rng = np.random.default_rng(15)
    for case in range(12):
        heads, blocks, length, rows, symbols = (int(n) for n in rng.integers(1, 40, 5))
        width, masked = 4 * heads, length * (length - 1) // 2
        net = TransformerSizes(symbols, length, width, heads, blocks)
        true = 3 * rows * (sum(net.work()) + 4 * blocks * width * masked)
        weights = 12 * width**2 * blocks + symbols * width
        own = student.needed_operations(weights, rows * length, length, blocks, width)
        assert own is not None and np.isclose(own, true, rtol=1e-9), (
            f"case {case}, {blocks} blocks of width {width}: your function says {own:,}, the planner counts "
            f"{true:,.0f} operations; write needed_operations"
        )
    needed = student.needed_operations(175e9, 2048, 2048, 96, 12_288)
    return (
        f"12 transformers need as many operations as you say. In the example 6 N D is "
        f"{6 * 175e9 * 2048 / needed:.0%}: a token uses 2 N operations for weights, and 4 S h in each block "
        "for the core, which is little while rows are short and layers wide"
    )


WRITTEN = """    through = forward
    for at, seconds in zip(ready, summing):
        through = max(through, forward + at) + seconds
    return max(through, forward + backward)
"""
QUESTIONS = [
    Question("a", small_message, (("NUMBERS = 262_144", "NUMBERS = 32"),)),
    Question("c", slow_stage, (("[1.0, 1.0, 1.0, 1.0]", "[1.0, 1.0, 2.0, 1.0]"),)),
    Question("b", more_machines, (("MACHINES = 1000", "MACHINES = 4000"),)),
    Question("b", end_of_a_step, (("    return forward + backward + sum(summing)\n", WRITTEN),)),
    Question("b", slow_link, (("BANDWIDTH = 50e9", "BANDWIDTH = 1.25e9"),)),
    Question("b", without_recomputation, (("RECOMPUTES = True", "RECOMPUTES = False"),)),
    Question("c", two_ahead, (("PREFETCH = 1", "PREFETCH = 2"),)),
    Question(
        "a",
        own_count,
        (
            (
                "    return 6 * weights\n",
                "    return 6 * weights * tokens + 12 * tokens * length * blocks * width\n",
            ),
        ),
    ),
]
