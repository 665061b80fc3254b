"""Lesson 10. Gradient compression: send a little of the gradient now, and the rest when it has grown.

Lecture section: gradient compression; handling momentum. A threshold and what accumulating saves (Strom
2015), momentum for what waits (deep gradient compression, Lin et al. 2018), the whole family in one picture,
why a sign alone may never arrive (Karimireddy et al. 2019), and when not to compress.

    python lessons/10_gradient_compression/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/10_gradient_compression/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import math
import warnings

import drawings
import numpy as np
from closed_forms import messages
from training import RANKS, RATE, compressed, dense, digits, network, train

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.comm.virtual import Link, VirtualCluster
from backends.data_parallel.compression import RandomK, TopK
from backends.data_parallel.compression.dgc import basic, corrected, discount
from backends.data_parallel.flat import FlatLayout
from lessons.style import start_lesson
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.lr_schedules import constant
from minigrad.models import lenet
from minigrad.tensor import Parameter
from minigrad.train import fit

FIGURES = start_lesson("10_gradient_compression")
warnings.filterwarnings("ignore", message=".*no matrices")  # of PowerSGD: vectors are sent as they are

SHAPES = [p.shape for p in network().parameters()]
N = sum(math.prod(shape) for shape in SHAPES)

# %% [markdown]
# ## 1. A threshold, and what accumulating saves
# A rank's gradient has a number for each weight, and most of them are tiny. So send only those above a
# threshold, as pairs of value and place. And the others? They may be dropped, or kept: e is what was kept so
# far, g the new gradient,
#
#     v    = e + g
#     sent = v where |v| > threshold, else 0
#     e    = v - sent
#
# Nothing is lost then: a small gradient that insists is sent once it has grown. Entries are moved from one
# place to another, not rounded: sent + kept is what there was, to the last bit. We take notes of 20 steps on
# all ranks, and go through them again with the three lines above.

# %%
print("1. A threshold")
THRESHOLD = 0.01
notes = [[] for _ in range(RANKS)]  # of each rank: (g, e after the step, the sum that all ranks got)
counts = {"threshold": [], "threshold, dropped": []}  # how many entries each rank sent, in every step


def take_notes(backend, model):
    counts["threshold"].append(len(backend.compressor.sent_indices))
    if len(notes[backend.rank]) < 20:
        total = backend.layout.pack([p.grad for p in model.parameters()])
        notes[backend.rank].append((backend.bucket.message.copy(), backend.error, total))


def count_dropped(backend, model):
    counts["threshold, dropped"].append(len(backend.compressor.sent_indices))


results = {
    "dense": train(dense),
    "threshold": train(compressed("threshold", threshold=THRESHOLD), watch=take_notes),
    "threshold, dropped": train(
        compressed("threshold", threshold=THRESHOLD, feedback=False), watch=count_dropped
    ),
}
e = [np.zeros(N, np.float32) for _ in range(RANKS)]
for step in range(20):
    total = np.zeros(N, np.float32)
    for rank in range(RANKS):
        g, error_there, total_there = notes[rank][step]
        v = e[rank] + g
        sent = np.where(abs(v) > THRESHOLD, v, 0)
        e[rank] = v - sent
        assert np.array_equal(sent + e[rank], v)  # nothing is lost, not a bit
        assert np.array_equal(e[rank], error_there)  # and the library kept the same
        total += sent
    assert all(np.array_equal(total, notes[rank][step][2]) for rank in range(RANKS))

gradient = notes[0][-1][0]
small = (abs(gradient) <= THRESHOLD).mean()
print(f"   {N:,} weights; in step 20 the gradients of {small:.1%} of them are below {THRESHOLD}")
share = {"dense": 1.0} | {name: np.mean(found) / N for name, found in counts.items()}
for name, (loss, right, _, _) in results.items():
    print(f"   {name:20} {share[name]:6.1%} sent   loss {loss:.3f}, {right:.1%} of the test digits right")
assert small > 0.95 and share["threshold"] < 0.05
assert results["threshold"][0] < 1.15 * results["dense"][0]  # nearly nothing is lost by waiting ...
assert results["threshold, dropped"][0] > 2 * results["dense"][0]  # ... and much by forgetting
drawings.threshold(gradient, THRESHOLD, results).savefig(FIGURES / "threshold.png")

# %% [markdown]
# ## 2. What momentum does to gradients that wait
# SGD with momentum m moves by a velocity, u <- m u + g. A gradient of 1 moves the weight by 1 at once, by m
# in the next step, then by m^2: it goes on acting, 1 / (1 - m) in all. Now let it *wait* for T steps before
# it is sent. In the basic sparse update the optimizer gets to know of it only then, and begins with 1, where
# dense training is at 1 + m + ... + m^T already: the gradient counts (1 - m) / (1 - m^(T+1)) of what it
# should. One weight, by hand: a single gradient arises in step 0; what has been kept is sent in steps 9, 19,
# 29 and 39.

# %%
print("\n2. Momentum")
M, EVERY, SHOWN = 0.9, 10, 40


def one_weight(update, gradient, every, steps, rate=1.0, start=0.0):
    """Where a weight is after each step, sent in every ``every``-th; its gradient is ``gradient(t, w)``."""
    w, u, e, path = np.array([start]), np.zeros(1), np.zeros(1), []
    for t in range(steps):
        sent = np.array([(t + 1) % every == 0])
        step, u, e = update(u, e, gradient(t, w), sent, M)
        w = w - rate * step
        path.append(w[0])
    return np.array(path)


def unmasked(*state):
    return corrected(*state, masking=False)


def once(t, w):
    return np.array([-1.0 * (t == 0)])  # downhill is up: the weight rises


moved = {
    "dense": one_weight(basic, once, 1, SHOWN),
    "basic": one_weight(basic, once, EVERY, SHOWN),
    "corrected": one_weight(unmasked, once, EVERY, SHOWN),
}
print("   a gradient of 1 in step 0; how far it has moved the weight:")
print("      step        " + "".join(f"{t:7}" for t in (0, 8, 9, 19, 29, 39)))
for name, path in moved.items():
    print(f"      {name:12}" + "".join(f"{path[t]:7.2f}" for t in (0, 8, 9, 19, 29, 39)))
np.testing.assert_allclose(moved["corrected"][9::10], moved["dense"][9::10], rtol=1e-12)
for waited in range(1, 20):
    late, on_time = (one_weight(basic, once, k, waited + 1)[-1] for k in (waited + 1, 1))
    np.testing.assert_allclose(late / on_time, discount(M, waited), rtol=1e-12)
print(f"   sent after 9 steps it counts {discount(M, 9):.0%} of what it does in dense training")

# %% [markdown]
# *Momentum correction*: let the velocity act before the selection, u <- m u + g; v = e + u; and send of v.
# The weight then catches up with dense training whenever it is sent.
#
# But a velocity that is as old as the last message leads on in a direction in which nothing is left to do.
# *Momentum factor masking* stops it where an entry has been sent: u <- 0. In a valley, w^2 / 2, sent in every
# 10th step, the velocity has been built from gradients at the old place:

# %%
valley = {
    name: one_weight(update, lambda t, w: w, every, 120, rate=0.02, start=1.0)
    for name, update, every in (
        ("dense", basic, 1),
        ("not masked", unmasked, EVERY),
        ("masked", corrected, EVERY),
    )
}
overshoot = {name: max(0, -path.min()) for name, path in valley.items()}
print("   valley, from 1 down to 0 and beyond by: " + ", ".join(f"{n} {x:.2f}" for n, x in overshoot.items()))
assert overshoot["masked"] < 0.5 * overshoot["not masked"]

# %% [markdown]
# And on the digits: momentum 0.9, one weight in 500 sent, and a rate of 0.2. (With small rates all of them
# train much alike: what comes late does little harm where little happens meanwhile.)

# %%
HOT = {"rate": 0.2, "epochs": 3, "schedule": constant}
with_momentum = {
    "dense": train(dense, momentum=M, **HOT),
    "basic": train(compressed("top-k", density=0.002), momentum=M, **HOT),
    "not masked": train(compressed("dgc", density=0.002, momentum=M, masking=False), **HOT),
    "masked": train(compressed("dgc", density=0.002, momentum=M), **HOT),
}
for name, (loss, right, _, _) in with_momentum.items():
    print(f"   {name:12} loss {loss:.3f}, {right:.1%} right")
of = {name: found[0] for name, found in with_momentum.items()}
assert of["masked"] < 0.75 * min(of["basic"], of["not masked"])
drawings.momentum(moved, valley, with_momentum).savefig(FIGURES / "momentum.png")

# %% [markdown]
# ## 3. The whole family
# Three ways to make a gradient small: send some entries (threshold, top-k, random-k, DGC), send all in few
# bits (1-bit, scaled sign, QSGD, TernGrad), or send two narrow matrices instead of a wide one (PowerSGD).
# `Traced` counts what is sent: it must be the closed form (in closed_forms.py), to the byte. A ring
# all-gather passes each rank's message on p - 1 times; a ring all-reduce sends a p-th of it 2 (p - 1) times.
#
# QSGD and TernGrad round at random such that the mean is right, and keep nothing; the others keep what they
# did not send. Where they drop it, hollow in the picture, they are far worse. DGC has momentum inside, so it
# gets a smaller rate.

# %%
print("\n3. The whole family")
runs = {
    "top-k": compressed("top-k", density=0.01),
    "top-k, dropped": compressed("top-k", density=0.01, feedback=False),
    "random-k": compressed("random-k", density=0.1),
    "DGC": compressed("dgc", density=0.002),
    "1-bit": compressed("one-bit"),
    "scaled sign": compressed("scaled-sign"),
    "scaled sign, dropped": compressed("scaled-sign", feedback=False),
    "QSGD": compressed("qsgd", levels=7),
    "TernGrad": compressed("terngrad"),
    "PowerSGD": compressed("power-sgd", matrix_rank=2),
    "PowerSGD, dropped": compressed("power-sgd", matrix_rank=2, feedback=False),
}
for name, strategy in runs.items():
    results[name] = train(strategy, rate=0.2 if name == "DGC" else RATE)

entries = {"top-k": round(0.01 * N), "random-k": round(0.1 * N), "DGC": round(0.002 * N)}
entries |= {name: share[name] * N for name in counts}
print(f"   {'':22} rank sends / step   of dense     loss   right")
for name, (loss, right, _, sent) in sorted(results.items(), key=lambda item: -item[1][3]):
    method = name.removesuffix(", dropped")
    expected = messages(method, SHAPES, RANKS, entries.get(name, entries.get(method, 0)))
    assert math.isclose(sent, sum(count * size for count, size in expected), rel_tol=1e-12), name
    print(f"   {name:22} {sent:11,.0f} bytes {sent / results['dense'][3]:10.1%} {loss:8.3f} {right:7.1%}")

# %%
best = results["dense"][0]
for name, (loss, _, _, sent) in results.items():
    assert loss > 1.3 * best if "dropped" in name else loss < 1.25 * best, name
    assert name == "dense" or sent < results["dense"][3] / 2
drawings.family(results).savefig(FIGURES / "family.png")

# %% [markdown]
# ## 4. A sign alone may never arrive
# Two weights, two ranks, one sample each: a = (1.5, -0.5) on rank 0 and (-0.5, 1.5) on rank 1, both with the
# target 0, so the best is w = 0. Whatever w is, the sign of a rank's gradient is (1, -1) or (-1, 1). So signs
# only ever move along that direction: w_1 + w_2 stays what it was. At (1, 1) the two ranks' messages cancel,
# and nothing moves at all, though the loss falls in the direction of (0, 0). (After the least-squares
# counter-example of Karimireddy et al. 2019.) What the signs leave out points there; if it is kept, it grows
# until it turns a sign.

# %%
print("\n4. A sign alone may never arrive")
two_samples = Batch(np.array([[1.5, -0.5], [-0.5, 1.5]]), np.zeros((2, 1)))
START = np.array([1.8, 0.2])


def two_weights(strategy):
    """Where the two weights were, [step, weight]."""

    def work(comm):
        backend, path = strategy(comm), [START]
        model = nn.Linear(2, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
        model.weight.data[...] = START
        model = backend.place(model)
        fit(
            model,
            optim.SGD(model.parameters(), 0.1),
            ops.mse,
            two_samples,
            backend=backend,
            epochs=120,
            on_step=lambda *_: path.append(model.weight.data[0].copy()),
        )
        return np.array(path)

    return run_ranks(2, work)[0]


paths = {
    "the gradient": two_weights(dense),
    "its sign": two_weights(compressed("scaled-sign", feedback=False)),
    "its sign, with error feedback": two_weights(compressed("scaled-sign")),
}
for name, path in paths.items():
    print(f"   {name:30} ends at ({path[-1, 0]:.4f}, {path[-1, 1]:.4f})")
stuck = paths["its sign"]
np.testing.assert_allclose(stuck.sum(axis=1), START.sum(), rtol=1e-12)
np.testing.assert_allclose(stuck[-1], [1, 1], rtol=1e-6)
assert all(np.linalg.norm(path[-1]) < 1e-4 for name, path in paths.items() if name != "its sign")
drawings.sign(paths, two_samples.x).savefig(FIGURES / "sign.png")

# %% [markdown]
# ## 5. When is a dense ring cheaper?
# A ring all-reduce adds on the way: each rank sends 2 (p - 1) / p times 4 n bytes, hardly more for 100 ranks
# than for 10. Selected entries lie at other places on each rank, so nothing is added on the way; every rank
# must see every rank's: (p - 1) 8 d n bytes for a density d, 4 for a value and 4 for its index. They are
# equal at
#
#     d = 1 / p
#
# With doubles, 8 + 4 bytes against 8, it is 4 / (3 p). Random-k needs no index, as all ranks draw the same
# ones: 2 / p.

# %%
print("\n5. When is a dense ring cheaper?")
LENGTH = 3600


def bytes_sent(exchange, p, dtype=np.float32):
    """By one rank, on average."""

    def work(comm):
        comm = Traced(comm)
        x = np.random.default_rng(comm.rank).normal(size=LENGTH).astype(dtype)
        exchange(comm, x)
        return comm.record.ledger.sent().bytes

    return np.mean(run_ranks(p, work))


def sparse(compressor):
    def exchange(comm, x):
        compressor_here = compressor()
        compressor_here.start(FlatLayout([Parameter(np.zeros_like(x))]), comm.rank, comm.size)
        compressor_here.exchange(comm, x, np.zeros(0, x.dtype), ring_allreduce)

    return exchange


densities, sizes = (1 / 100, 1 / 20, 1 / 8, 1 / 4, 1 / 2), (2, 4, 8, 16)
ring = {p: bytes_sent(ring_allreduce, p) for p in sizes}
gathered = {p: [bytes_sent(sparse(lambda d=d: TopK(density=d)), p) for d in densities] for p in sizes}
print("   MB per rank for a million weights: the dense ring, and densities")
print(f"      {'':8}   ring" + "".join(f"{d:9.1%}" for d in densities))
for p in sizes:
    row = "".join(f"{x / LENGTH:8.2f}{'*' if x > ring[p] else ' '}" for x in gathered[p])
    print(f"      {p:2} ranks {ring[p] / LENGTH:7.2f}{row.rstrip()}")
    assert math.isclose(ring[p], 2 * (p - 1) / p * 4 * LENGTH)
    for d, x in zip(densities, gathered[p], strict=True):
        assert math.isclose(x, (p - 1) * 8 * round(d * LENGTH))
        assert (x > ring[p]) == (d > 1 / p) and (d != 1 / p or x == ring[p])
print("      (* more than the ring)")
for p in sizes[1:]:  # at the break-even densities of the two others
    for dtype, make, d in ((np.float64, TopK, 4 / (3 * p)), (np.float32, RandomK, 2 / p)):
        found = bytes_sent(sparse(lambda make=make, d=d: make(density=d)), p, dtype)
        assert math.isclose(found, bytes_sent(ring_allreduce, p, dtype), rel_tol=1e-2)
drawings.density(densities, gathered, ring, LENGTH).savefig(FIGURES / "density.png")

# %% [markdown]
# A quarter of the entries on 32 ranks is *eight times more* than everything in a dense ring.
#
# ## 6. What it is worth on a slow link
# Eight machines with LeNet and a virtual clock: computing takes 20 ms a step, a message 0.1 ms and what its
# bytes take. Compressing itself takes no time on this clock; on a real one it does.

# %%
print("\n6. What it is worth on a slow link")
MACHINES, COMPUTING, LATENCY = 8, 0.02, 1e-4
methods = {
    "dense": dense,
    "DGC": compressed("dgc", density=0.001),
    "PowerSGD": compressed("power-sgd", matrix_rank=2),
}
LAYERS = [p.shape for p in lenet(np.random.default_rng(0)).parameters()]
WEIGHTS = sum(math.prod(shape) for shape in LAYERS)


def step_on(strategy, bandwidth):
    """Seconds of a step on machines joined by links of ``bandwidth`` bytes a second."""

    def work(comm):
        backend = strategy(comm)
        model = backend.place(lenet(np.random.default_rng(0)))
        comm.compute(100 - comm.time())  # all wait for the same moment
        comm.compute(COMPUTING)
        backend.step(model, Batch(digits.train.x[:MACHINES], digits.train.y[:MACHINES]), ops.cross_entropy)
        return comm.time() - 100

    return max(VirtualCluster(MACHINES, Link(LATENCY, bandwidth)).run(work))


def formula(method, bandwidth):
    """The same in closed form."""
    sent = messages(method, LAYERS, MACHINES, entries=round(0.001 * WEIGHTS))
    return COMPUTING + sum(count * (LATENCY + size / bandwidth) for count, size in sent)


SPEEDS = {"100 Mbit/s": 100e6 / 8, "1 Gbit/s": 1e9 / 8, "100 Gbit/s": 100e9 / 8}
seconds = {m: {s: step_on(strategy, b) for s, b in SPEEDS.items()} for m, strategy in methods.items()}
print(f"   {WEIGHTS:,} weights, {MACHINES} machines; ms a step   " + "".join(f"{s:>13}" for s in SPEEDS))
for method, found in seconds.items():
    print(f"      {method:42}" + "".join(f"{1e3 * t:13.1f}" for t in found.values()))
    for speed, t in found.items():
        assert math.isclose(t, formula(method, SPEEDS[speed]), rel_tol=2e-3), (method, speed)
slow, fast = ({m: found[s] for m, found in seconds.items()} for s in ("100 Mbit/s", "100 Gbit/s"))
assert slow["dense"] > 4 * max(slow["DGC"], slow["PowerSGD"])
assert fast["dense"] < fast["PowerSGD"]  # two all-reduces have twice the latency of one
drawings.slow_link(seconds, SPEEDS, formula, COMPUTING).savefig(FIGURES / "slow_link.png")

# %% [markdown]
# The same formulas for ResNet-50 (25,557,032 weights) on 64 machines and 1 Gbit/s: the dense ring sends for
# 1.6 s in every step, DGC with a density of 0.1% for 0.1 s. On links a hundred times as fast it is computing
# that takes the time: little is left to save, and a plain ring trains like one machine, which no compressor
# of this lesson does.

# %%
resnet, machines, gigabit = 25_557_032, 64, 1e9 / 8
ring_takes = 2 * (machines - 1) / machines * 4 * resnet / gigabit
dgc_takes = (machines - 1) * 8 * 0.001 * resnet / gigabit
print(
    f"   ResNet-50 on 64 machines, 1 Gbit/s: dense ring {ring_takes:.1f} s of sending, DGC {dgc_takes:.2f} s"
)
assert ring_takes > 10 * dgc_takes
print(f"\nFigures: {FIGURES}/")
