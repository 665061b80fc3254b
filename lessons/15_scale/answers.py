"""The answers to the questions on lesson 15, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives import rabenseifner_allreduce, ring_allreduce
from backends.comm.collectives.link import Link
from backends.pipeline import SCHEDULES, Costs, simulate
from backends.planner import Hardware, TransformerSizes, best_first


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
        f"{times}, {ring / halving:.1f} times less: bytes are next to nothing, and 62 messages one after the "
        "other stand against 10"
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
        f"the pipeline is {fast:.2f} times as fast, and wherever the slow stage stands: {shown}. It gives "
        "one micro-batch every 2 s forward instead of every 1 s, while the work grew by a quarter only"
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
]
