"""One training step of a pipeline on virtual ranks, compared with its plan and with one machine's gradients.

For a micro-batch the layers of a rank take 1 s for forward, 1 s for the gradient of their input, and 1 s for
the gradients of their weights, on a virtual clock that only these products and ``latency`` advance. Or each
layer takes the seconds given, which need not be equal.
"""

from collections import namedtuple
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm.collectives.link import Link
from backends.comm.trace import Traced, gather_trace
from backends.pipeline import SCHEDULES, Costs, Pipeline, Weight, find_schedule, simulate
from backends.pipeline.engine import Engine
from backends.pipeline.p2p import FIRST_TAG, TAGS
from backends.pipeline.trace import as_trace, between, instructions_of
from minigrad import Parameter, nn, op, ops
from minigrad.data import Batch
from minigrad.memory import base_of, retained_arrays
from minigrad.serial import Serial
from minigrad.tape import current_tape

LAYERS, WIDTH, SAMPLES = 16, 16, 64
START = 1000.0  # by then all ranks have their layers
data = Batch(*np.random.default_rng(1).normal(size=(2, SAMPLES, WIDTH)))


@op
def product(x, w, *, work):
    """x w^T, whose forward and two gradients take as long as ``work()`` does."""

    def dx(g):
        work()
        return g @ w

    def dw(g):
        work()
        return g.T @ x

    work()
    return x @ w.T, (dx, dw)


class Layer(nn.Module):
    """tanh((x + b) w^T), where each product calls ``work``."""

    def __init__(self, work, rng):
        self.work = work
        self.weight = Parameter(rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5)
        self.bias = Parameter(rng.normal(size=WIDTH))

    def forward(self, x):
        return ops.tanh(product(x + self.bias, self.weight, work=self.work))


def network(compute=lambda seconds: None, seconds=(0.0,) * LAYERS):
    """Every product of layer i calls ``compute(seconds[i])``."""
    rng = np.random.default_rng(0)
    return nn.Sequential(*(Layer(lambda s=s: compute(s), rng) for s in seconds))


class Watched(Engine):
    """One rank's engine, which notes how many bytes it holds for backward, and when."""

    def step(self, micros, on_grad):
        self.sizes, self.memory = {}, []  # of each micro-batch in flight, and of all by time
        parameters = [p.data for part in self.parts.values() for p in part.parameters()]
        self.there_anyway = {id(base_of(x)) for x in (*parameters, data.x, data.y)}
        return super().step(micros, on_grad)

    def through(self, i, x):
        y = super().through(i, x)
        tape = current_tape.get()  # None where the stage will be recomputed
        self.note(i.micro, i.chunk, [[] if tape is None else tape.entries, x.data])
        return y

    def backward(self, i, on_grad):
        super().backward(i, on_grad)
        self.note(i.micro, i.chunk, self.deferred.get((i.micro, i.chunk)))

    def weight(self, i, on_grad):
        super().weight(i, on_grad)
        for micro in i.micros:
            self.note(micro, i.chunk, None)

    def note(self, micro, chunk, objects):
        bases = {id(base): base for base in map(base_of, retained_arrays(objects))}
        sizes = (base.nbytes for key, base in bases.items() if key not in self.there_anyway)
        self.sizes[micro, chunk] = sum(sizes)
        self.memory.append((self.comm.time() - START, sum(self.sizes.values())))


Run = namedtuple("Run", "trace seconds messages memory gradients")


def run(schedule, micros, *, ranks=4, chunks=None, latency=0.0, recompute=False, seconds=None, bounds=None):
    """The result of one step: its trace, seconds, messages, (time, bytes held) by rank, and all gradients.

    Asserts that every rank's gradients are serial, and that every instruction starts and stops when the plan
    says. With latency it must start no earlier: a rank receives one message at a time, which plans ignore.
    ``seconds`` are those of each layer's forward; ``bounds`` cut the layers into stages, by default into
    stages of equally many layers.
    """
    schedule = find_schedule(schedule) if isinstance(schedule, str) else schedule
    seconds, bounds = cut(schedule.of(ranks, micros, chunks), seconds, bounds)

    def step(comm):
        traced = Traced(comm)
        settings = {"micro_batches": micros, "chunks": chunks, "bounds": bounds, "recompute": recompute}
        backend = Pipeline(traced, schedule, **settings)
        model = backend.place(network(comm.compute, seconds))
        engine = backend.engine
        backend.engine = Watched(engine.p2p, engine.parts, engine.shared, engine.recompute)
        comm.compute(START - comm.time())  # all ranks begin at the same moment
        backend.step(model, data, ops.mse)
        return gather_trace(comm, traced), backend.engine.memory, backend.state.full_gradients(model)

    results = VirtualCluster(ranks, Link(latency)).run(step)
    trace = between(results[0][0], START, np.inf)
    serial, backend = network(), Serial()
    backend.step(serial, data, ops.mse)
    for _, _, gradients in results:
        for name, g in backend.state.full_gradients(serial).items():
            error, largest = np.abs(gradients[name] - g).max(), np.abs(g).max()
            assert error <= 1e-12 * largest, f"{name}: differs from serial by {error:.1e} of {largest:.1e}"
    plan = happened(as_trace(planned(schedule, micros, ranks, chunks, latency, recompute, seconds, bounds)))
    done = happened(trace)
    for (*first, start, _), (*second, earliest, _) in zip(done, plan, strict=True):
        on_time = start >= earliest if latency else start == earliest
        assert first == second and on_time, (
            f"rank, instruction and start {first, start}; {second, earliest} planned"
        )
    tags = range(FIRST_TAG, FIRST_TAG + TAGS)  # not the losses', at the end
    messages = sum(span.what == "start_send" and span.tag in tags for span in trace.spans)
    return Run(
        trace, max(stop for *_, stop in done), messages, [memory for _, memory, _ in results], results[0][2]
    )


def planned(schedule, micros, ranks=4, chunks=None, latency=0.0, recompute=False, seconds=None, bounds=None):
    """The simulated step, which has only times."""
    schedule = find_schedule(schedule) if isinstance(schedule, str) else schedule
    table = schedule.of(ranks, micros, chunks)
    seconds, bounds = cut(table, seconds, bounds)
    each = [sum(seconds[a:b]) for a, b in pairwise(bounds)]
    return simulate(table, Costs(each, [t * (1 + recompute) for t in each], each, latency))


def cut(table, seconds, bounds):
    """Seconds of every layer and bounds of the stages: by default all equal, and one second a rank."""
    equal = [table.ranks / LAYERS] * LAYERS
    return seconds or equal, bounds or tuple(range(0, LAYERS + 1, LAYERS // table.stages))


def in_a_row(name, micros, steps, ranks=4):
    """``steps`` steps, simulated: a rank begins the next step as soon as it has ended its last one."""
    one = SCHEDULES[name].of(ranks, micros)

    def later(i, by):
        if isinstance(i, Weight):
            return replace(i, micros=tuple(micro + by for micro in i.micros))
        return replace(i, micro=i.micro + by)

    rows = tuple(tuple(later(i, k * micros) for k in range(steps) for i in row) for row in one.instructions)
    each = Fraction(ranks, one.stages)  # seconds
    table = replace(one, micros=steps * micros, instructions=rows, routes=one.routes * steps)
    return simulate(table, Costs(each, each, each))


def library_steps(name, micros, steps, ranks=4):
    """Seconds of ``steps`` steps of the library's ``Pipeline``: each ends with the loss on all ranks."""

    def work(comm):
        backend = Pipeline(comm, name, micro_batches=micros)
        model = backend.place(network(comm.compute, [ranks / LAYERS] * LAYERS))
        comm.compute(START - comm.time())
        for _ in range(steps):
            backend.step(model, data, ops.mse)
        return comm.time() - START

    return max(VirtualCluster(ranks, Link(0.0)).run(work))


def happened(trace):
    """All instructions as (rank, instruction, start, stop), sorted; the first one starts at 0."""
    spans = [span for span, _ in instructions_of(trace)]
    first = min(span.start for span in spans)
    return sorted((s.rank, s.what, round(s.start - first, 9), round(s.stop - first, 9)) for s in spans)
