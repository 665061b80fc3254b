"""Lesson 13. Pipelines: every rank holds some layers, and all work at once, on different samples.

Lecture section: pipelining. Nine slots or five; filling and draining (GPipe); one forward, one backward; chunks;
weights that wait; computing again instead of keeping; pipelines that never empty; and a schedule of your own.

    python lessons/13_pipeline/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/13_pipeline/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import time
import tracemalloc
from pathlib import Path

import drawings
import matplotlib.pyplot as plt
import numpy as np
from one_step import LAYERS, data, network, planned, run
from threadpoolctl import threadpool_limits

from backends.comm import run_ranks
from backends.comm.trace import Traced, gather_trace
from backends.comm.virtual import Link, VirtualCluster
from backends.laws import bound_for, differences_from_serial, trains_like_serial
from backends.pipeline import SCHEDULES, Backward, Costs, Forward, Pipeline, Schedule, check_schedule, simulate
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.mail import Mail
from backends.pipeline.picture import as_trace, bubble_of, draw_pair, slots
from backends.pipeline.spans import instructions_of
from minigrad import Tape, Tensor, mnist, nn, ops, optim, recomputed
from minigrad.backend import Serial
from minigrad.data import Batch, shares
from minigrad.nets import mlp
from minigrad.tape import finish_weights
from minigrad.train import accuracy, fit

FIGURES = Path("runs/lessons/13_pipeline")
FIGURES.mkdir(parents=True, exist_ok=True)
plt.rcParams.update(drawings.STYLE)
threadpool_limits(1)  # each rank is a thread already

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
MICROS, RANKS = (1, 2, 4, 8, 16, 32), (2, 4, 8)
filled = {ranks: {m: run("gpipe", m, ranks=ranks) for m in MICROS} for ranks in RANKS}
show(slots(filled[4][4].trace))
bubbles = {ranks: [bubble_of(found[m].trace) for m in MICROS] for ranks, found in filled.items()}
for p, found in filled.items():
    print(f"   {p} ranks, micro-batches: " + ", ".join(f"{m}: {bubble_of(found[m].trace):.0%}" for m in MICROS))
    for m in MICROS:
        assert found[m].seconds == (m + p - 1) * (1 + 2)
        assert np.isclose(bubble_of(found[m].trace), (p - 1) / (m + p - 1), rtol=1e-9)
drawings.bubbles(MICROS, bubbles, FIGURES / "fill_and_drain.png")

# %% [markdown]
# The bubble is (p - 1) / (m + p - 1): more micro-batches shrink it. Now two real threads and a real clock;
# the plan is simulated with the mean times that this run's own instructions took.


# %%
def wide(rng):
    layers = [nn.Linear(784, 768, rng=rng)]
    for _ in range(3):
        layers += [nn.ReLU(), nn.Linear(768, 768, rng=rng)]
    return nn.Sequential(nn.Flatten(), *layers, nn.ReLU(), nn.Linear(768, 10, rng=rng))


def timed(comm):
    traced = Traced(comm)
    backend = Pipeline(traced, "gpipe", micro_batches=4, bounds=(0, 4, 10))
    model = backend.place(wide(np.random.default_rng(0)))
    for _ in range(2):  # the first one is slower
        comm.split(0)  # all ranks begin together
        traced.record.spans.clear()
        backend.step(model, digits.train[:1024], ops.cross_entropy)
    return gather_trace(comm, traced)


trace = run_ranks(2, timed)[0]
done = instructions_of(trace)
mean = [
    [np.mean([s.stop - s.start for s, i in done if s.rank == r and type(i) is kind]) for r in (0, 1)]
    for kind in (Forward, Backward)
]
plan = simulate(SCHEDULES["gpipe"].of(2, 4), Costs(*mean))
print(f"   real threads: planned idle {plan.bubble:.0%}, measured {bubble_of(trace):.0%}")
draw_pair(as_trace(plan), trace, FIGURES / "gpipe.png", title="GPipe on two threads, real time")
stops = {(s.rank, i): s.stop for s, i in done}
for rank in (0, 1):
    assert [i for s, i in done if s.rank == rank] == list(plan.table.instructions[rank])
for span, i in done:
    before = (0 if type(i) is Forward else 1), i
    assert before[0] == span.rank or span.start >= stops[before]

# %% [markdown]
# And the proof on real digits: 134 of them, then 13, in 4 micro-batches of unequal sizes.

# %%
batches = [Batch(digits.train.x[a:b].astype(float), digits.train.y[a:b]) for a, b in ((0, 134), (134, 147))]


def differences(strategy, ranks, batches=batches):
    """Of each gradient and weight from the serial one, relative to its largest element, on the worst rank."""
    found = run_ranks(ranks, lambda c: differences_from_serial(strategy, c, mlp, ops.cross_entropy, batches))
    return {d.name: d.relative for d in found[0]}


worst = max(differences(lambda comm: Pipeline(comm, "gpipe"), 3).values())
print(f"   digits on three ranks: every gradient is serial to {worst:.0e}")
assert worst <= bound_for(float)

# %% [markdown]
# ## 3. The closest mistake
# A tape refers to what a stage received until the micro-batch comes back: with GPipe to all m at once. Receive
# all of them into the *same* memory, as is natural, and the weights' gradients are those of the last one's
# activations with the others' errors. The first rank receives nothing, so it is right.

# %%
print("\n3. The closest mistake: one receive buffer")


class OneBuffer(Mail):
    """Wrong: what comes is always put into the same memory."""

    def __init__(self, *given):
        super().__init__(*given)
        self.buffers = {}

    def receive(self, stop, shape):
        x = super().receive(stop, shape)
        buffer = self.buffers.setdefault((stop.kind, x.shape), x)
        buffer[...] = x
        return buffer


class Wrong(Pipeline):
    def place(self, model):
        model = super().place(model)
        self.engine.mail = OneBuffer(self.comm, self.table, self.holders.first)
        return model


def on_digits(strategy, schedule):
    return lambda comm: strategy(comm, schedule, micro_batches=4, bounds=(0, 3, 5, 6))


def trained(strategy, ranks=3):
    """Test accuracy before, and after each epoch."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(mlp(np.random.default_rng(0)))
        found = [accuracy(model, digits.test)]
        fit(
            model,
            optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
            ops.cross_entropy,
            digits.train[:2000],
            backend=backend,
            epochs=4,
            batch_size=50,
            on_epoch=lambda epoch, history: found.append(accuracy(model, digits.test)),
        )
        return found

    return run_ranks(ranks, work)[0]


errors = {}
for schedule in ("gpipe", "1f1b"):
    found = differences(on_digits(Wrong, schedule), 3, [batches[0][:128]])
    errors[schedule] = [found[name] for name in ("1.weight", "3.weight", "5.weight")]
    print(f"   {schedule:5}: error by rank " + "  ".join(f"{e:.0e}" for e in errors[schedule]))
curves = {
    "one machine": trained(lambda comm: Serial(), 1),
    "pipeline": trained(on_digits(Pipeline, "gpipe")),
    "one buffer": trained(on_digits(Wrong, "gpipe")),
}
for name, found in curves.items():
    print(f"   {name:11} accuracy by epoch: " + "  ".join(f"{a:.1%}" for a in found))
for error, wrong in zip(errors["gpipe"] + errors["1f1b"], (0, 1, 1, 0, 1, 0), strict=True):
    assert error > 0.01 if wrong else error <= bound_for(float)
assert np.allclose(curves["pipeline"], curves["one machine"], atol=0.01)
assert curves["one buffer"][-1] > max(0.7, curves["one buffer"][1])
drawings.one_buffer(errors, curves, FIGURES / "one_buffer.png")

# %% [markdown]
# The accuracy rises. And the mistake hides where one micro-batch is in flight: on the last rank of the next
# schedule, so with it on two ranks everywhere. Test with more ranks than are comfortable.
#
# ## 4. One forward, one backward
# Take a micro-batch back as soon as it can go: 1F1B. It waits exactly as long as GPipe, but rank s holds
# min(m, p - s) micro-batches instead of m. We count the bytes that backward needs, as they come and go.

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
# shrinks to 1 / v. A micro-batch then passes p v - 1 boundaries instead of p - 1. When messages take time?

# %%
print("\n5. Chunks")
KINDS = {"1f1b": ("1f1b", 1), "2 chunks": ("interleaved", 2), "4 chunks": ("interleaved", 4)}
chunked = {name: run(schedule, M, chunks=v) for name, (schedule, v) in KINDS.items()}
for (name, found), (_, v) in zip(chunked.items(), KINDS.values(), strict=True):
    idle = found.seconds - M * 3
    print(f"   {name:8}: idle {idle:5.2f} of {found.seconds:5.2f} s, {found.messages:3} messages")
    assert idle == (P - 1) * 3 / v and found.messages == 2 * (P * v - 1) * M
traces = {name: chunked[name].trace for name in ("1f1b", "2 chunks")}
drawings.on_one_clock(traces, "Chunks fill the pipeline faster", FIGURES / "chunks.png")

LATENCIES, SHOWN = np.arange(33) / 32, (0.0, 0.125, 0.25, 0.5)


def by_latency(kinds):
    """Planned seconds by seconds a message takes, and measured ones."""
    lines = {k: [planned(s, M, chunks=v, latency=x).makespan for x in LATENCIES] for k, (s, v) in kinds.items()}
    dots = {k: [run(s, M, chunks=v, latency=x).seconds for x in SHOWN] for k, (s, v) in kinds.items()}
    return lines, dots


lines, dots = by_latency(KINDS)
best = [min(lines, key=lambda name, i=i: lines[name][i]) for i in range(len(LATENCIES))]
first = {name: LATENCIES[best.index(name)] for name in KINDS if name in best}
print("   a message takes   " + "".join(f"{x:8.3f}" for x in SHOWN) + "  s")
for name, found in dots.items():
    print(f"   {name:8} a step    " + "".join(f"{seconds:8.2f}" for seconds in found) + "  s")
assert best[0] == "4 chunks" and first["4 chunks"] < first["2 chunks"]
assert dots["4 chunks"][-1] > dots["1f1b"][-1] > dots["2 chunks"][-1]
drawings.slow_links(LATENCIES, lines, SHOWN, dots, FIGURES / "slow_links.png")

# %% [markdown]
# Four chunks win on fast links only: at half a second a message they lose even to none.
#
# ## 6. Backward in two
# The rank before waits for the gradient of what came in, nobody for those of the weights. Do these when there
# is nothing else to do: ZB-H1 fills the drain; ZB-H2, with twice the memory, has no bubble between the
# first and last instruction of a rank. Chimera fills it with micro-batches that go the other way, and holds
# all weights twice.

# %%
print("\n6. Backward in two")
found = {name: run(name, M) for name in ("1f1b", "zb-h1", "zb-h2")}
found["chimera"] = run("chimera", M)
for name, r in found.items():
    print(f"   {name:7}: {r.seconds:g} s, idle {bubble_of(r.trace):.0%}, most bytes by rank {peaks(r)}")
assert found["zb-h1"].seconds == 3 * M + (P - 1) * (1 + 1 - 1)
assert found["zb-h2"].seconds == 3 * M + P - 1
assert run("chimera", P).seconds == 3 * P + 2 * (P - 2) < run("1f1b", P).seconds
traces = {name: r.trace for name, r in found.items()}
drawings.on_one_clock(traces, "Weights, or micro-batches of the other direction, fill the bubble", FIGURES / "zero_bubble.png")

# %% [markdown]
# Weights that wait have another use. Small micro-batches make small products, which run slower, and every one
# adds its sum to the gradient. Let all wait to the end: `Weight((0, ..., 7))` is one large product.

# %%
inputs, outputs = np.random.default_rng(0).normal(size=(2, 512, 512)).astype(np.float32)


def weights_later(parts, together):
    """Seconds to find a layer's gradients for 512 samples in so many micro-batches; and these."""
    layer, later = nn.Linear(512, 512, rng=np.random.default_rng(0)), []
    for share in shares(512, parts):
        with Tape() as tape:
            y = layer(Tensor(inputs[share], requires_grad=True))
        later.append(tape.backward(y, outputs[share], weights_later=True))
    start = time.perf_counter()
    for one in [sum(later, [])] if together else later:
        finish_weights(one)
    return time.perf_counter() - start, layer.weight.grad


PARTS = (1, 2, 4, 8, 16, 32, 64)
seconds = {
    together: [np.median([weights_later(n, together)[0] for _ in range(7)]) for n in PARTS]
    for together in (False, True)
}
for n, apart, batched in zip(PARTS, seconds[False], seconds[True], strict=True):
    print(f"   512 rows as {n:2} x {512 // n:3}: {1e3 * apart:5.2f} ms, as one product {1e3 * batched:5.2f} ms")
    whole, sums = weights_later(1, True)[1], [weights_later(n, together)[1] for together in (False, True)]
    assert all(np.abs(g - whole).max() <= bound_for(np.float32) * np.abs(whole).max() for g in sums)
drawings.products(PARTS, seconds, FIGURES / "products.png")

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
N, SEGMENTS = 36, (1, 2, 3, 4, 6, 9, 12, 18, 36)
tall = Batch(*np.random.default_rng(2).normal(size=(2, 2000, 16)))


def peak(segments):
    """The most that a step allocates, in activations of one layer; and its gradients."""
    rng = np.random.default_rng(0)
    layers = (nn.Sequential(nn.Linear(16, 16, rng=rng), nn.Tanh()) for _ in range(N))
    model = nn.Sequential(*layers).to(dtype=float)
    model = recomputed(model, segments) if segments else model
    tracemalloc.start()
    Serial().step(model, tall, ops.mse)
    nbytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return nbytes / tall.x.nbytes, [p.grad for p in model.parameters()]


plain, gradients = peak(None)
by_segments = {}
for k in SEGMENTS:
    by_segments[k], again = peak(k)
    assert all(np.array_equal(a, b) for a, b in zip(again, gradients, strict=True))
print(f"   {N} layers: {plain:.0f} activations; in segments " + ", ".join(f"{k}: {v:.0f}" for k, v in by_segments.items()))
assert min(by_segments, key=by_segments.get) == 6 and by_segments[6] < plain / 2

kept, again = ({name: run(name, M, recompute=r) for name in ("gpipe", "1f1b")} for r in (False, True))
for name in kept:
    for how, r in (("kept", kept[name]), ("again", again[name])):
        print(f"   {name:5} {how:5}: {r.seconds:g} s, most bytes by rank {peaks(r)}")
    assert again[name].seconds == (M + P - 1) * (1 + 3) and kept[name].seconds == (M + P - 1) * (1 + 2)
    for parameter, g in kept[name].gradients.items():
        assert np.array_equal(again[name].gradients[parameter], g)
nbytes = data.x.nbytes // M  # comes into a stage with a micro-batch
assert peaks(again["gpipe"])[1] == (M - 1) * nbytes + one[1]
assert peaks(again["1f1b"])[1] == (P - 1 - 1) * nbytes + one[1]
drawings.recomputation(N, plain, by_segments, kept, again, peaks, FIGURES / "recomputation.png")

# %% [markdown]
# ## 8. Never empty
# PipeDream does not wait for the pipeline to drain: the next batch goes forward at once, with weights that
# the last batches have not changed yet. A stage's gradient is p - 1 - s updates old ("stashing"), or one
# update on all ranks (2BW), and old weights are kept for it. "live" does not keep them: a batch goes back
# through other weights than it went forward with, which is the gradient of nothing.

# %%
print("\n8. Never empty")
some = Batch(digits.train.x[:4000].reshape(4000, -1).astype(float), digits.train.y[:4000])


def deep(rng):
    layers = [nn.Linear(784, 64, rng=rng)]
    for n_out in (64, 64, 10):
        layers += [nn.ReLU(), nn.Linear(64, n_out, rng=rng)]
    return nn.Sequential(*layers).to(dtype=float)


def losses(versions):
    def work(comm):
        backend = AsynchronousPipeline(comm, versions=versions) if versions != "serial" else Serial()
        model = backend.place(deep(np.random.default_rng(0)))
        method = optim.SGD(model.parameters(), 0.3)
        history = fit(model, method, ops.cross_entropy, some, backend=backend, epochs=2, batch_size=32)
        return history.losses, backend

    found = run_ranks(1 if versions == "serial" else P, work)
    return found[0][0], [backend for _, backend in found]


curves = {}
for versions in ("serial", "2bw", "stashing", "vertical", "live"):
    curves[versions], backends = losses(versions)
    last = np.mean(curves[versions][-50:])
    if versions == "serial":
        print(f"   {versions:8}: loss {last:.2f}")
        continue
    stale, held = [max(b.staleness) for b in backends], [b.versions_held for b in backends]
    print(f"   {versions:8}: loss {last:.2f}; by rank: updates behind {stale}, versions held {held}")
    assert stale == {"2bw": [1] * P, "vertical": [P - 1] * P}.get(versions, [P - 1 - s for s in range(P)])
    assert versions != "stashing" or held == [P - s for s in range(P)]
    assert versions != "2bw" or held == [2, 2, 2, 1]
lasts = {name: np.mean(curve[-50:]) for name, curve in curves.items()}
assert lasts["serial"] < lasts["2bw"] < lasts["stashing"] < min(lasts["live"], lasts["vertical"])
drawings.versions(curves, FIGURES / "versions.png")

# %% [markdown]
# The learning rate is large on purpose. With 0.1 all curves agree, and one would learn nothing.
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


mine = Schedule(eager, most_in_flight=lambda rank, ranks, micros, chunks: min(micros, 2 * (ranks - rank) - 1))
check_schedule(mine, P, M)
KINDS = {"gpipe": ("gpipe", 1), "1f1b": ("1f1b", 1), "eager": (mine, 1)}
lines, dots = by_latency(KINDS)
held = {name: peaks(run(schedule, M)) for name, (schedule, _) in KINDS.items()}
for name, found in dots.items():
    print(f"   {name:5}: {found} s a step; most bytes by rank {held[name]}")
assert dots["eager"] == dots["gpipe"] < dots["1f1b"] and held["1f1b"] < held["eager"] < held["gpipe"]
drawings.own(LATENCIES, lines, SHOWN, dots, held, FIGURES / "own.png")


def law(comm):
    trains_like_serial(lambda c: Pipeline(c, mine, micro_batches=6), comm, mlp, ops.cross_entropy, batches)


run_ranks(3, law)
print("   it trains like one machine")

# %% [markdown]
# Broken ones say what is wrong: forwards ahead counted from the wrong end, and more held than was promised.


# %%
def backwards(rank, ranks, micros, chunks):
    return eager(ranks - 1 - rank, ranks, micros, chunks)


for schedule, promise in ((Schedule(backwards), None), (mine, [P - rank for rank in range(P)])):
    try:
        check_schedule(schedule, P, M, bound=promise)
    except ValueError as error:
        print(f"   {error}")
    else:
        raise AssertionError("a broken schedule was let through")

# %% [markdown]
# Yours: change `eager` to take micro-batches back in pairs, or write one whose weights wait (`Weight`). Let
# `check_schedule` read it, `run` step it and `law` train it; then draw it with `slots`.

# %%
print(f"\nFigures: {FIGURES}/")
