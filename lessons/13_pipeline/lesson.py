"""Lesson 13. Pipelines: every rank holds some layers, and all work at once, on different samples.

Lecture section: pipelining. Nine slots or five; filling and draining (GPipe); one forward, one backward;
chunks; weights that wait; computing again; pipelines that never empty; and a schedule of your own.

    python lessons/13_pipeline/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/13_pipeline/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
from itertools import pairwise

import drawings
import numpy as np
from measured import LAYERS, gpipe_in_real_time, step_bytes, weights_later
from one_step import data, planned, run

from backends.comm import run_ranks
from backends.comm.trace import Traced, gather_trace
from backends.comm.virtual import Link, VirtualCluster
from backends.laws import bound_for, differences_from_serial, trains_like_serial
from backends.pipeline import (
    SCHEDULES,
    Backward,
    Costs,
    Forward,
    Pipeline,
    Schedule,
    check_schedule,
    simulate,
)
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.gantt import draw_pair, slots
from backends.pipeline.p2p import PipelineComm
from backends.pipeline.trace import as_trace, bubble_of, instructions_of
from lessons.style import start_lesson
from minigrad import mnist, nn, ops, optim
from minigrad.backend import Serial
from minigrad.data import Batch, shares
from minigrad.models import mlp
from minigrad.train import accuracy, fit

FIGURES = start_lesson("13_pipeline")
digits = mnist.load("mnist5k")


def show(text):
    print("   " + text.replace("\n", "\n   "))


# %% [markdown]
# ## 1. Nine slots or five
# Three ranks hold a stage each; a stage takes one second a sample. Three samples as one batch take three
# seconds in each stage, while two ranks wait: nine seconds. Hand every sample on as soon as it is done, and
# rank 1 works on sample 0 while rank 0 works on sample 1: five. The ranks have a *virtual* clock, which
# `compute` moves on; nothing else on it takes time.

# %%
print("1. Nine slots or five")
samples = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def forward(comm, parts):
    """This rank's stage, for one part of the samples after the other; the last rank's outputs."""
    traced, found = Traced(comm), []
    for i, part in enumerate(shares(len(samples), parts)):
        x = traced.recv(comm.rank - 1) if comm.rank > 0 else samples[part]
        with traced.computing(f"forward {i}"):
            comm.compute(len(x))
            y = np.tanh((comm.rank + 1) * x)
        if comm.rank + 1 < comm.size:
            traced.send(y, comm.rank + 1)
        else:
            found.append(y)
    return gather_trace(comm, traced), found


traces = {}
for parts, name in ((1, "as one batch"), (3, "sample by sample")):
    cluster = VirtualCluster(3, Link(0.0))
    found = cluster.run(lambda comm, n=parts: forward(comm, n))
    traces[name] = found[0][0]
    print(f"   {name}: {cluster.seconds:g} seconds")
    show(slots(traces[name], unit=1.0))
    assert cluster.seconds == (9 if parts == 1 else 5)
    assert np.array_equal(np.vstack(found[2][1]), np.tanh(3 * np.tanh(2 * np.tanh(samples))))
drawings.on_one_clock(traces, "Three samples, three stages", FIGURES / "slots.png")

# %% [markdown]
# m samples in p stages: m + p - 1 slots instead of m p.
#
# ## 2. Fill and drain
# Training goes there and back. GPipe takes all micro-batches forward, then all back; gradients add up, and
# only then are weights changed. From here on the net has 16 layers, and a rank's share of them takes 1 s for
# forward, 1 s for the gradients of what came in, and 1 s for those of the weights. `run` (in one_step.py)
# takes a real step, messages and gradients included, and demands two things of every run in this lesson:
# it does what the *plan* says, to the second, and on all ranks finds the gradients of one machine.

# %%
print("\n2. Fill and drain")
MICROS = (1, 2, 4, 8, 16)
filled = {p: [run("gpipe", m, ranks=p) for m in MICROS] for p in (2, 4, 8)}
bubbles = {p: [bubble_of(one.trace) for one in found] for p, found in filled.items()}
show(slots(filled[4][2].trace))
for p, found in filled.items():
    idle = (f"{m}: {share:.0%}" for m, share in zip(MICROS, bubbles[p], strict=True))
    print(f"   {p} ranks, idle by micro-batches: " + ", ".join(idle))
    for m, one, share in zip(MICROS, found, bubbles[p], strict=True):
        assert one.seconds == (m + p - 1) * (1 + 2)
        assert np.isclose(share, (p - 1) / (m + p - 1), rtol=1e-9)
drawings.bubbles(MICROS, bubbles, FIGURES / "fill_and_drain.png")

# %% [markdown]
# The bubble is (p - 1) / (m + p - 1): more micro-batches shrink it. Now two real threads and a real clock;
# the plan is simulated with the mean times that this run's own instructions took.

# %%
trace = gpipe_in_real_time(digits.train[:1024])
done = instructions_of(trace)
took = {(rank, kind): [] for rank in (0, 1) for kind in (Forward, Backward)}
for span, i in done:
    took[span.rank, type(i)].append(span.stop - span.start)
mean = [[np.mean(took[rank, kind]) for rank in (0, 1)] for kind in (Forward, Backward)]
plan = simulate(SCHEDULES["gpipe"].of(2, 4), Costs(*mean))
print(f"   real threads: planned idle {plan.bubble:.0%}, measured {bubble_of(trace):.0%}")
draw_pair(as_trace(plan), trace, FIGURES / "gpipe.png", title="GPipe on two threads, real time")
stops = {(span.rank, i): span.stop for span, i in done}
for span, i in done:  # rank 1 goes forward after rank 0, rank 0 back after rank 1
    assert span.rank == (type(i) is Backward) or span.start >= stops[1 - span.rank, i]
for rank in (0, 1):
    assert [i for span, i in done if span.rank == rank] == list(plan.table.instructions[rank])

# %% [markdown]
# And the proof on real digits: 134 of them, then 13, in 4 micro-batches of unequal sizes.

# %%
train = Batch(digits.train.x.astype(float), digits.train.y)
batches = [train[:134], train[134:147]]


def differences(strategy, ranks, batches=batches):
    """Of each gradient and weight from the serial one, relative to its largest element, on the worst rank."""
    found = run_ranks(ranks, lambda c: differences_from_serial(strategy, c, mlp, ops.cross_entropy, batches))
    return {d.name: d.relative for d in found[0]}


worst = max(differences(lambda comm: Pipeline(comm, "gpipe"), 3).values())
print(f"   digits on three ranks: every gradient is serial to {worst:.0e}")
assert worst <= bound_for(float)

# %% [markdown]
# ## 3. The closest mistake
# A tape refers to what a stage received until the micro-batch comes back: with GPipe to all m at once.
# Receive all of them into the *same* memory, and a weight's gradient multiplies one micro-batch's errors
# with another one's activations. The first rank receives nothing, so it is right.

# %%
print("\n3. The closest mistake: one receive buffer")


class OneBuffer(PipelineComm):
    """Wrong: what comes is always put into the same memory."""

    def __init__(self, *given):
        super().__init__(*given)
        self.buffers = {}

    def receive(self, hop, shape):
        x = super().receive(hop, shape)
        buffer = self.buffers.setdefault((hop.kind, x.shape), x)
        buffer[...] = x
        return buffer


class Wrong(Pipeline):
    def place(self, model):
        model = super().place(model)
        self.engine.p2p = OneBuffer(self.comm, self.table, self.stage_map.first)
        return model


def accuracies(strategy):
    """On the test set, before training and after each epoch."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(mlp(np.random.default_rng(0)))
        sgd, found = optim.SGD(model.parameters(), lr=0.02, momentum=0.9), [accuracy(model, digits.test)]
        for epoch in range(3):
            some = {"backend": backend, "batch_size": 50, "seed": epoch}
            fit(model, sgd, ops.cross_entropy, digits.train[:2000], **some)
            found.append(accuracy(model, digits.test))
        return found

    return run_ranks(3, work)[0]


def of(strategy, schedule):
    return lambda comm: strategy(comm, schedule, micro_batches=4, bounds=(0, 3, 5, 6))


errors = {}
for schedule, wrong_ranks in (("gpipe", (1, 2)), ("1f1b", (1,))):
    found = differences(of(Wrong, schedule), 3, [train[:128]])
    errors[schedule] = [found[f"{layer}.weight"] for layer in (1, 3, 5)]  # one on each rank
    print(f"   {schedule:5}: error by rank " + "  ".join(f"{e:.0e}" for e in errors[schedule]))
    for rank, error in enumerate(errors[schedule]):
        assert error > 0.01 if rank in wrong_ranks else error <= bound_for(float)
curves = {name: accuracies(of(kind, "gpipe")) for name, kind in (("right", Pipeline), ("one buffer", Wrong))}
for name, found in curves.items():
    print(f"   {name:10} accuracy by epoch: " + "  ".join(f"{a:.1%}" for a in found))
assert curves["one buffer"] == sorted(curves["one buffer"]) and curves["one buffer"][-1] > 0.65
drawings.one_buffer(errors, curves, FIGURES / "one_buffer.png")

# %% [markdown]
# The accuracy rises. And the mistake hides wherever one micro-batch is in flight: on the last rank of the
# next schedule, so with it on two ranks altogether. Test with more ranks than are comfortable.
#
# ## 4. One forward, one backward
# Take a micro-batch back as soon as it can go: 1F1B. It waits exactly as long as GPipe, but rank s holds
# min(m, p - s) micro-batches instead of m. We count the bytes that backward needs, as they come and go
# (rank 0's inputs are the data, which are there anyway; the last rank has the loss besides).

# %%
print("\n4. One forward, one backward")
P, M = 4, 8
runs = {name: run(name, M) for name in ("naive", "gpipe", "1f1b")}
show(slots(runs["1f1b"].trace))


def peaks(found):
    return [max(nbytes for _, nbytes in held) for held in found.held]


one = peaks(runs["naive"])  # of one micro-batch
for name in ("gpipe", "1f1b"):
    print(f"   {name:5}: {runs[name].seconds:g} s, most bytes by rank {peaks(runs[name])}")
    assert runs[name].seconds == (M + P - 1) * (1 + 2)
assert peaks(runs["gpipe"]) == [M * one[s] for s in range(P)]
assert peaks(runs["1f1b"]) == [min(M, P - s) * one[s] for s in range(P)]
drawings.memory({name: runs[name].held for name in ("gpipe", "1f1b")}, FIGURES / "memory.png")

# %% [markdown]
# ## 5. Chunks: more, shorter stages
# Give every rank v stages of 1 / v the length: the pipeline fills and drains v times as fast, so the bubble
# shrinks to 1 / v. But a micro-batch passes p v - 1 boundaries instead of p - 1. When messages take time?

# %%
print("\n5. Chunks")
KINDS = {"1f1b": ("1f1b", 1), "2 chunks": ("interleaved", 2), "4 chunks": ("interleaved", 4)}
LATENCIES, SHOWN = np.arange(33) / 32, (0.0, 0.25, 0.5)


def by_latency(kinds):
    """Planned seconds by the seconds that a message takes; and the runs for those that are shown."""
    lines = {
        k: [planned(s, M, chunks=v, latency=x).makespan for x in LATENCIES] for k, (s, v) in kinds.items()
    }
    return lines, {k: [run(s, M, chunks=v, latency=x) for x in SHOWN] for k, (s, v) in kinds.items()}


lines, found = by_latency(KINDS)
dots = {name: [one.seconds for one in some] for name, some in found.items()}
for name, (_, v) in KINDS.items():
    idle, messages = dots[name][0] - M * 3, found[name][0].messages
    print(f"   {name:8}: idle {idle:4} s, {messages:3} messages; when one takes {SHOWN} s: {dots[name]} s")
    assert idle == (P - 1) * 3 / v and messages == 2 * (P * v - 1) * M
fastest = [min(lines, key=lambda name, i=i: lines[name][i]) for i in range(len(LATENCIES))]
assert fastest[0] == "4 chunks" and fastest[-1] == "2 chunks"
assert dots["4 chunks"][-1] > dots["1f1b"][-1] > dots["2 chunks"][-1]
drawings.slow_links(LATENCIES, lines, SHOWN, dots, FIGURES / "slow_links.png")
traces = {name: found[name][0].trace for name in ("1f1b", "2 chunks")}
drawings.on_one_clock(traces, "Chunks fill the pipeline faster", FIGURES / "chunks.png")

# %% [markdown]
# Four chunks win on fast links only: at half a second a message they lose even to none.
#
# ## 6. Backward in two
# The rank before waits for the gradient of what came in, nobody for those of the weights. Do these when there
# is nothing else to do: ZB-H1 fills the drain; ZB-H2, with twice the memory, has no bubble between a
# rank's first and last instruction. Chimera fills it with micro-batches that go the other way, and holds
# all weights twice.

# %%
print("\n6. Backward in two")
found = {name: run(name, M) for name in ("1f1b", "zb-h1", "zb-h2", "chimera")}
for name, r in found.items():
    print(f"   {name:7}: {r.seconds:g} s, idle {bubble_of(r.trace):.0%}, most bytes by rank {peaks(r)}")
assert found["zb-h1"].seconds == 3 * M + (P - 1) * (1 + 1 - 1)
spans = [[span for span, _ in instructions_of(found["zb-h2"].trace) if span.rank == r] for r in range(P)]
assert all(mine[-1].stop - mine[0].start == 3 * M for mine in spans)
traces = {"chimera": run("chimera", P).trace, "1f1b": run("1f1b", P).trace}
assert [trace.stop - trace.start for trace in traces.values()] == [3 * P + 2 * (P - 2), 3 * (P + P - 1)]
drawings.on_one_clock(traces, "Half of the micro-batches go the other way", FIGURES / "chimera.png")
traces = {name: found[name].trace for name in ("1f1b", "zb-h1", "zb-h2")}
drawings.on_one_clock(traces, "The weights' gradients fill the bubble", FIGURES / "zero_bubble.png")

# %% [markdown]
# Weights that wait have another use. Small micro-batches make small products, which run slower, and every one
# adds its sum to the gradient. Let all wait to the end: `Weight((0, ..., 7))` is one large product.

# %%
PARTS = (1, 2, 4, 8, 16, 32)
rounds = [[[weights_later(n, together) for n in PARTS] for together in (False, True)] for _ in range(5)]
apart, batched = ([min(r[way][i][0] for r in rounds) for i in range(len(PARTS))] for way in (0, 1))
for n, a, b in zip(PARTS, apart, batched, strict=True):
    print(f"   512 samples as {n:2} x {512 // n:3}: {1e3 * a:5.2f} ms, as one product {1e3 * b:5.2f} ms")
(_, whole), *others = [found for way in rounds[0] for found in way]
assert all(np.abs(g - whole).max() <= bound_for(np.float32) * np.abs(whole).max() for _, g in others)
drawings.products(PARTS, apart, batched, FIGURES / "products.png")

# %% [markdown]
# Whatever the order of the instructions, the gradients are serial: every schedule there is, on digits.

# %%
for name in SCHEDULES:
    worst = max(differences(lambda comm, name=name: Pipeline(comm, name), 2).values())
    print(f"   {name:13} on two ranks: serial to {worst:.0e}")
    assert worst <= bound_for(float)

# %% [markdown]
# ## 7. Compute it again
# Keep only what came into a segment of layers, and run the segment again when its gradients are due. Of n
# layers in k segments a tape then holds k inputs, and for a while the n / k activations of one segment:
# least, 2 sqrt(n), for k = sqrt(n) (Chen et al. 2016). The gradients are the same bit by bit.

# %%
print("\n7. Compute it again")
N, SEGMENTS = LAYERS, (1, 2, 3, 4, 6, 9, 12, 18, 36)
(plain, wanted), *found = [step_bytes(k) for k in (None, *SEGMENTS)]
for k, (most, gradients) in zip(SEGMENTS, found, strict=True):
    print(f"   {N} layers in {k:2} segments: {most:4.1f} activations instead of {plain:.1f}")
    assert all(np.array_equal(a, b) for a, b in zip(gradients, wanted, strict=True))
by_segments = {k: most for k, (most, _) in zip(SEGMENTS, found, strict=True)}
assert min(by_segments, key=by_segments.get) == 6 and by_segments[6] < plain / 2

kept, again = ({name: run(name, M, recompute=r) for name in ("gpipe", "1f1b")} for r in (False, True))
came = data.x.nbytes // M  # into a stage, with a micro-batch
for name, in_flight in (("gpipe", M), ("1f1b", P - 1)):
    print(f"   {name:5} kept: {kept[name].seconds:g} s, most bytes by rank {peaks(kept[name])}")
    print(f"   {'':5} again: {again[name].seconds:g} s, most bytes by rank {peaks(again[name])}")
    assert kept[name].seconds == (M + P - 1) * (1 + 2) and again[name].seconds == (M + P - 1) * (1 + 3)
    assert peaks(again[name])[1] == (in_flight - 1) * came + one[1]
    assert all(np.array_equal(again[name].gradients[n], g) for n, g in kept[name].gradients.items())
points = {n: [(r[n].seconds, max(peaks(r[n]))) for r in (kept, again)] for n in kept}
drawings.recomputation(N, plain, by_segments, points, FIGURES / "recomputation.png")

# %% [markdown]
# ## 8. Never empty
# PipeDream does not wait for the pipeline to drain: the next batch goes forward at once, with weights that
# the last batches have not changed yet. A stage's gradient is p - 1 - s updates old ("stashing"), p - 1
# ("vertical"), or one ("2bw"), and old weights are kept for it. "no_stash" does not keep them: a batch goes
# back through other weights than it went forward with, which is the gradient of nothing.

# %%
print("\n8. Never empty")
RULES = {"2bw": [1] * P, "stashing": [P - 1 - s for s in range(P)], "vertical": [P - 1] * P}
RULES["no_stash"] = RULES["stashing"]
some = Batch(train.x[:4000].reshape(4000, -1), train.y[:4000])


def losses(backend):
    """Of every step, on four layers, at a large learning rate; and the backend."""
    rng, layers = np.random.default_rng(0), []
    for n_in, n_out in pairwise((784, 64, 64, 64, 10)):
        layers += [nn.Linear(n_in, n_out, rng=rng, bias=False), nn.ReLU()]
        layers[-2].weight.data[...] = rng.normal(0, (2 / n_in) ** 0.5, (n_out, n_in))
    model = backend.place(nn.Sequential(*layers[:-1]).to(dtype=float))
    found, settings = [], {"epochs": 3, "batch_size": 64, "on_step": lambda step, loss: found.append(loss)}
    try:
        fit(model, optim.SGD(model.parameters(), 0.35), ops.cross_entropy, some, backend=backend, **settings)
    except FloatingPointError:  # on all ranks in the same step
        found += [np.inf] * 50
    return found, backend


curves = {"serial": losses(Serial())[0]}
for versions, staleness in RULES.items():
    given = {"versions": versions, "stale_rate": "naive"}  # by default a stale gradient has a smaller rate
    found = run_ranks(P, lambda comm, given=given: losses(AsynchronousPipeline(comm, **given)))
    curves[versions] = found[0][0]
    held = [backend.versions_held for _, backend in found]
    print(f"   {versions:8}: updates behind, by rank, {staleness}; versions of the weights held {held}")
    assert [max(backend.staleness) for _, backend in found] == staleness
    assert (
        held
        == {"2bw": [2, 2, 2, 1], "stashing": [4, 3, 2, 1], "vertical": [4] * 4, "no_stash": [1] * 4}[versions]
    )
last = {name: np.median(curve[-50:]) for name, curve in curves.items()}
print("   loss at the end: " + ", ".join(f"{name} {loss:.2f}" for name, loss in last.items()))
assert last["serial"] < min(last["2bw"], last["stashing"])
assert max(last["2bw"], last["stashing"]) < min(last["vertical"], last["no_stash"])
drawings.versions(curves, FIGURES / "versions.png")

# %% [markdown]
# 2.30 is the loss of guessing. The learning rate is large on purpose: with 0.1 all curves agree, and one
# would learn nothing. Which of 2BW and stashing is ahead changes with the seed.
#
# ## 9. Your own schedule
# A schedule is a generator of instructions for each rank. This one is 1F1B with twice as many forwards
# ahead, so that a rank has other work while messages are on their way. `check_schedule` reads it; `run`
# takes a step; the law of this course trains with it.

# %%
print("\n9. Your own schedule")


def eager(rank, ranks, micros, chunks):
    ahead = min(2 * (ranks - rank - 1), micros)
    yield from map(Forward, range(ahead))
    for micro in range(micros):
        if ahead + micro < micros:
            yield Forward(ahead + micro)
        yield Backward(micro)


mine = Schedule(eager, most_in_flight=lambda rank, n: min(n.micros, 2 * (n.ranks - rank) - 1))
check_schedule(mine, P, M)
lines, found = by_latency({"gpipe": ("gpipe", 1), "1f1b": ("1f1b", 1), "eager": (mine, 1)})
dots = {name: [one.seconds for one in some] for name, some in found.items()}
held = {name: peaks(some[0]) for name, some in found.items()}
for name in dots:
    print(f"   {name:5}: {dots[name]} s a step; most bytes by rank {held[name]}")
assert dots["eager"] == dots["gpipe"] < dots["1f1b"] and held["1f1b"] < held["eager"] < held["gpipe"]
drawings.own(LATENCIES, lines, SHOWN, dots, held, FIGURES / "own.png")


def law(comm):
    trains_like_serial(lambda c: Pipeline(c, mine, micro_batches=6), comm, mlp, ops.cross_entropy, batches)


run_ranks(3, law)

# %% [markdown]
# Broken ones say what is wrong: forwards ahead counted from the wrong end, and more held than was promised.


# %%
def backwards(rank, ranks, micros, chunks):
    return eager(ranks - 1 - rank, ranks, micros, chunks)


for schedule, promise in ((Schedule(backwards), None), (mine, [P - rank for rank in range(P)])):
    try:
        check_schedule(schedule, P, M, bound=promise)
    except ValueError as error:
        show(str(error).replace("; ", ";\n   "))
    else:
        raise AssertionError("a broken schedule was let through")

# %% [markdown]
# Yours: change `eager` to take micro-batches back in pairs, or write one whose weights wait (`Weight`). Let
# `check_schedule` read it, `run` step it and `law` train it; then draw it with `slots`.

# %%
print(f"\nFigures: {FIGURES}/")
