"""Lesson 10. Gradient compression: send the largest entries now; the rest accumulates until it is large.

Lecture section: gradient compression; handling momentum. A threshold with error feedback, momentum for
gradients that wait, the formulas of the whole family, why signs without error feedback may not converge, and
when not to compress. Survey: Ben-Nun and Hoefler 2019, arXiv:1802.09941, section 7.

The slide asks: how few bytes of a gradient must ranks send, and what happens to the rest and to momentum?

You need: lesson 01, momentum; lesson 05, the ring all-reduce, the all-gather and the time of a message;
lesson 06, synchronous data parallelism; means, variances and matrix products.

Time: about 50 minutes; the program runs for about 35 seconds.

After this you can: compute the residual of error feedback over some steps; derive how much a late gradient
loses under momentum, and correct it; compute the bytes of each method and the density at which a dense ring
is cheaper; say when compression does not pay.

    python lessons/10_gradient_compression/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/10_gradient_compression/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import math
import warnings
from itertools import pairwise

import drawings
import numpy as np
from closed_forms import messages
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.momentum_correction import basic, corrected, discount
from minigrad_course.shared.networks import RESNET50
from minigrad_course.shared.style import start_lesson
from training import RANKS, RATE, compressed, dense, digits, network, train, train_wide

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel.compression import (
    QSGD,
    OneBit,
    PowerSGD,
    RandomK,
    ScaledSign,
    TernGrad,
    Threshold,
    TopK,
)
from backends.data_parallel.flat import FlatLayout
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.figures import save
from minigrad.models import lenet
from minigrad.tensor import Parameter
from minigrad.train import fit

FIGURES = start_lesson("10_gradient_compression")
warnings.filterwarnings("ignore", message=".*no matrices")  # of PowerSGD: vectors are sent as they are

SHAPES = [p.shape for p in network().parameters()]
N = sum(math.prod(shape) for shape in SHAPES)

# %% [markdown]
# ## 1. A threshold, and error feedback
# A rank's gradient has an entry for each weight, and most entries are small. So send only the entries above
# a threshold, as pairs of a value and its index. The others can be dropped, or kept until the next step. To
# keep them is called *error feedback*: the *residual* e, the sum of what was not sent, is added to the next
# gradient g.
#
#     v    = e + g
#     sent = v where |v| > threshold, else 0
#     e    = v - sent
#
# `backends/data_parallel/compression/naive.py` does this with the largest entries: read that file first.
#
# Then nothing is lost: an entry that is small but has the same sign in every step grows until it is sent.
# Entries are not rounded, so sent + e is v, to the last bit. We train three times: all entries are sent
# ("dense"), the residual is kept, and it is dropped. We record 20 steps of the second run on all ranks.
# ([training.py](training.py) has the networks and the training of four ranks.)

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

# %% [markdown]
# We compute the recorded steps again with the three lines above, and compare every bit.

# %%
e = [np.zeros(N, np.float32) for _ in range(RANKS)]
for step in range(20):
    total = np.zeros(N, np.float32)
    for rank in range(RANKS):
        g, error_there, total_there = notes[rank][step]
        v = e[rank] + g
        sent = np.where(abs(v) > THRESHOLD, v, 0)
        e[rank] = v - sent
        assert np.array_equal(sent + e[rank], v), f"step {step}, rank {rank}: something is lost"
        differs = abs(e[rank] - error_there).max()
        assert differs == 0, f"step {step}, rank {rank}: the library's e differs by {differs:.1e}"
        total += sent
    differs = max(abs(total - notes[rank][step][2]).max() for rank in range(RANKS))
    assert differs == 0, f"step {step}: the library's sum differs by {differs:.1e}"

# %%
gradient = notes[0][-1][0]
small = (abs(gradient) <= THRESHOLD).mean()
print(f"   {N:,} weights; in step 20 the gradients of {small:.1%} of them are below {THRESHOLD}")
share = {"dense": 1.0} | {name: np.mean(result) / N for name, result in counts.items()}
for name, (loss, right, _, _) in results.items():
    print(f"   {name:20} {share[name]:6.1%} sent   loss {loss:.3f}, test accuracy {right:.1%}")
assert small > 0.95 and share["threshold"] < 0.05, f"{small:.1%} small, {share['threshold']:.1%} sent"
all_sent, residual, dropped = (results[name][0] for name in ("dense", "threshold", "threshold, dropped"))
assert residual < 1.15 * all_sent, f"loss {residual:.3f} with error feedback, {all_sent:.3f} dense"
assert dropped > 2 * all_sent, f"loss {dropped:.3f} where the rest is dropped, {all_sent:.3f} dense"

# %%
save(drawings.threshold(gradient, THRESHOLD, results), FIGURES / "threshold.png")

# %% [markdown]
# Read: Strom 2015 (Interspeech); Seide et al. 2014 (Interspeech), the first error feedback.
#
# ## 2. What momentum does to gradients that wait
# SGD with momentum m moves the weight by a velocity, u <- m u + g. A gradient of 1 moves the weight by 1 in
# its own step, by m in the next, then by m^2, and so on: by 1 / (1 - m) in all. Now let the gradient *wait*
# for T steps before it is sent. In the *basic* update the optimizer sees it only then, and moves the weight
# by 1, where dense training has already moved it by 1 + m + ... + m^T. So at that moment the gradient has
# only (1 - m) / (1 - m^(T+1)) of its effect. One weight, by hand: there is a single gradient, in step 0,
# and e is sent in steps 9, 19, 29 and 39.

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


# %%
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
print(f"   sent after 9 steps it has {discount(M, 9):.0%} of its effect in dense training")

# %% [markdown]
# *Momentum correction* is the lecture's remedy: accumulate and send velocities instead of gradients, that
# is u <- m u + g; v = e + u; and entries of v are sent. Whenever an entry is sent, the weight is where
# dense training has it.
#
# But between two messages the velocity grows from gradients at the old weight, and after the message it
# still moves the weight in that direction. *Momentum factor masking* sets the velocity to 0 where an entry
# was sent. The example is a valley, the loss w^2 / 2, with a message in every 10th step:

# %%
valley = {
    name: one_weight(update, lambda t, w: w, every, 120, rate=0.02, start=1.0)
    for name, update, every in (
        ("dense", basic, 1),
        ("basic", basic, EVERY),
        ("corrected", unmasked, EVERY),
        ("masked", corrected, EVERY),
    )
}
overshoot = {name: round(float(max(0, -path.min())), 3) for name, path in valley.items()}
print("   valley, from 1 down to 0 and beyond by: " + ", ".join(f"{n} {x:.2f}" for n, x in overshoot.items()))
assert overshoot["masked"] < 0.5 * overshoot["corrected"] < 0.5 * overshoot["basic"], (
    f"beyond 0 by {overshoot}"
)

# %% [markdown]
# Now the digits, in a network of 784-128-10 with momentum 0.9 and a learning rate of 0.2. One entry in
# 1,000 is sent, by the library's `DeepGradientCompression` (DGC); "corrected" has no masking. Two seeds.
# (With a small learning rate all methods train much alike: a late gradient does little harm where the
# weights have hardly moved.)

# %%
ways = {  # the strategy, and the optimizer's momentum
    "dense": (dense, M),
    "masked": (compressed("dgc", density=0.001, momentum=M), 0.0),
    "corrected": (compressed("dgc", density=0.001, momentum=M, masking=False), 0.0),
    "basic": (compressed("top-k", density=0.001), M),
}
with_momentum = {name: [train_wide(*way, seed) for seed in range(2)] for name, way in ways.items()}
mean = {name: np.mean([pair[0] for pair in of_seed]) for name, of_seed in with_momentum.items()}
for name, of_seed in with_momentum.items():
    by_seed = "  ".join(f"{loss:.3f}" for loss, *_ in of_seed)
    right = np.mean([pair[1] for pair in of_seed])
    print(f"   {name:10} loss {mean[name]:.3f}, by seed {by_seed}; test accuracy {right:.1%}")
for better, worse in pairwise(ways):
    assert mean[better] < mean[worse], f"{better} {mean[better]:.4f}, {worse} {mean[worse]:.4f}"
assert mean["corrected"] < 0.75 * mean["basic"], f"{mean['corrected']:.4f}, {mean['basic']:.4f}"
assert mean["masked"] < 0.75 * mean["corrected"], f"{mean['masked']:.4f}, {mean['corrected']:.4f}"

# %%
save(drawings.momentum(moved, valley, with_momentum), FIGURES / "momentum.png")

# %% [markdown]
# Both parts of the remedy help: the correction alone is better than the basic update, and with masking the
# loss is near the loss of dense training. (`benchmarks/published.py --only dgc` trains three times as
# long.)
#
# Read: Lin et al. 2018 (DGC), arXiv:1712.01887, section 3.
#
# ## 3. The whole family
# Let v have n entries, and let C(v) be the compressed v that a rank sends. Some methods send a few entries
# unchanged:
#
# - *threshold*: v_i where |v_i| > t. The number of entries changes from step to step.
# - *top-k*: the k entries with the largest |v_i|.
# - *random-k*: k entries drawn at random, the same on all ranks, so no index is sent.
#
# Others send every entry in a few bits:
#
# - *1-bit*: the sign of v_i; for each neuron the mean of its positive and the mean of its negative entries.
# - *scaled sign*: the sign of v_i times mean |v|, one number for each array.
# - *QSGD*: |v_i| / |v| as one of the levels 0, 1/s, ..., 1, rounded up or down at random such that the mean
#   is right: rounded up with probability s |v_i| / |v| - floor(s |v_i| / |v|).
# - *TernGrad*: -1, 0 or 1 times max |v|: 1 with probability |v_i| / max |v|. This is QSGD with s = 1 and
#   the largest entry in place of the norm.
#
# *PowerSGD* sends a matrix M as the product of two narrow ones, P Q^T with r columns each: P = M Q with the
# Q of the step before, then P's columns are made orthonormal, then Q = M^T P.
#
# First each method in a few lines:

# %%
print("\n3. The whole family")
V = np.random.default_rng(1).normal(size=(20, 30))  # a weight's gradient: 20 neurons, 30 inputs
K, LEVELS = 60, 7


def first_draws():
    """Random numbers as the library draws them: a counter-based generator, here of seed 0, rank 0, step 1."""
    return np.random.Generator(np.random.Philox(key=[0, 0], counter=[0, 0, 1, 0]))


uniform = first_draws().random(V.size).reshape(V.shape)


def largest_entries(v, k):
    return np.where(abs(v) >= np.sort(abs(v), axis=None)[-k], v, 0)


def drawn_entries(v, k):
    places = first_draws().choice(v.size, k, replace=False, shuffle=False)
    return np.where(np.isin(np.arange(v.size), places).reshape(v.shape), v, 0)


def two_means(v):
    high, low = (np.mean(v, axis=1, where=where, keepdims=True) for where in (v >= 0, v < 0))
    return np.where(v >= 0, high, low)


def rounded_at_random(v, scale, s):
    return scale / s * np.sign(v) * np.floor(s * abs(v) / scale + uniform)


def narrow_matrices(m, r):
    q = np.random.default_rng(0).normal(size=(m.shape[1], r))
    p = np.linalg.qr(m @ q)[0]
    return p @ (m.T @ p).T


# %% [markdown]
# And now the library's, which must give the same numbers.


# %%
def of_library(compressor):
    """C(V) of one rank alone."""

    def work(comm):
        compressor.start(FlatLayout([Parameter(np.zeros_like(V))]), 0, 1)
        return compressor.exchange(comm, V.reshape(-1).copy(), np.zeros(0), ring_allreduce)[0].reshape(
            V.shape
        )

    return run_ranks(1, work)[0]


for compressor, by_hand in (
    (Threshold(threshold=1.0), np.where(abs(V) > 1.0, V, 0)),
    (TopK(density=K / V.size), largest_entries(V, K)),
    (RandomK(density=K / V.size), drawn_entries(V, K)),
    (OneBit(), two_means(V)),
    (ScaledSign(), abs(V).mean() * np.where(V >= 0, 1, -1)),
    (QSGD(levels=LEVELS), rounded_at_random(V, np.linalg.norm(V), LEVELS)),
    (TernGrad(), rounded_at_random(V, abs(V).max(), 1)),
    (PowerSGD(matrix_rank=2), narrow_matrices(V, 2)),
):
    name, differs = type(compressor).__name__, abs(of_library(compressor) - by_hand).max()
    left = np.sum((V - by_hand) ** 2) / np.sum(V**2)
    print(f"   {name:10} |v - C(v)|^2 / |v|^2 = {left:5.2f}; by hand and library differ by {differs:.0e}")
    assert differs < 1e-12, f"{name}: by hand and library differ by {differs:.1e}, allowed 1e-12"

# %% [markdown]
# A ratio below 1 means that the residual is smaller than v: then error feedback works. QSGD and TernGrad
# may be above 1, so they have no error feedback. Their mean is right instead, and the errors of many steps
# and ranks cancel. Alistarh et al. bound QSGD's mean squared error: at most min(n / s^2, sqrt(n) / s)
# |v|^2.

# %%
for levels in (1, 7, 50):
    draws = np.array([of_library(QSGD(levels=levels, seed=seed)) for seed in range(200)])
    variance = np.mean(np.sum((draws - V) ** 2, axis=(1, 2))) / np.sum(V**2)
    bias = np.linalg.norm(draws.mean(axis=0) - V) / np.linalg.norm(V)
    bound = min(V.size / levels**2, V.size**0.5 / levels)
    print(f"   QSGD, s = {levels:2}: error {variance:6.3f} |v|^2, bound {bound:6.3f}; bias {bias:.3f} |v|")
    assert variance <= bound, f"s = {levels}: squared error {variance:.3f}, bound {bound:.3f}"
    assert bias < 1.2 * (variance / 200) ** 0.5, (
        f"s = {levels}: mean off by {bias:.3f}"
    )  # 1 / sqrt(draws) of one

# %% [markdown]
# Now all of them train on the digits. `Traced` counts the bytes that are sent: they must equal the closed
# form in [closed_forms.py](closed_forms.py), to the byte. A ring all-gather passes each rank's message on p
# - 1 times; a ring all-reduce sends a p-th of the vector 2 (p - 1) times. "Dropped" means without error
# feedback. DGC includes momentum, so it gets a smaller learning rate (0.2 instead of 0.5).

# %%
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

# %%
entries = {"top-k": round(0.01 * N), "random-k": round(0.1 * N), "DGC": round(0.002 * N)}
entries |= {name: share[name] * N for name in counts}
print(f"   {'':22} rank sends / step   of dense     loss   accuracy")
for name, (loss, right, _, sent) in sorted(results.items(), key=lambda item: -item[1][3]):
    method = name.removesuffix(", dropped")
    expected = messages(method, SHAPES, RANKS, entries.get(name, entries.get(method, 0)))
    formula = sum(count * size for count, size in expected)
    assert math.isclose(sent, formula, rel_tol=1e-12), f"{name}: {sent:,.1f} bytes, formula {formula:,.1f}"
    print(f"   {name:22} {sent:11,.0f} bytes {sent / results['dense'][3]:10.1%} {loss:8.3f} {right:10.1%}")

# %%
best = results["dense"][0]
for name, (loss, _, _, sent) in results.items():
    fits = loss > 1.3 * best if "dropped" in name else loss < 1.25 * best
    assert fits, f"{name}: loss {loss:.3f}, dense {best:.3f}"
    assert name == "dense" or sent < results["dense"][3] / 2, f"{name}: {sent:,.0f} bytes"

# %%
save(drawings.family(results), FIGURES / "family.png")

# %% [markdown]
# Read: Seide et al. 2014 (1-bit); Aji and Heafield 2017, arXiv:1704.05021 (top-k); Stich et al. 2018,
# arXiv:1809.07599 (top-k and random-k with error feedback); Alistarh et al. 2017, arXiv:1610.02132 (QSGD);
# Wen et al. 2017, arXiv:1705.07878 (TernGrad); Vogels et al. 2019, arXiv:1905.13727 (PowerSGD).
#
# ## 4. Signs without error feedback may not converge
# Two weights, two ranks, one sample each: a = (1.5, -0.5) on rank 0 and (-0.5, 1.5) on rank 1, both with
# the target 0, so the best is w = 0. For every w, the sign of a rank's gradient is (1, -1) or (-1, 1). So
# signs only ever move w along that direction, and w_1 + w_2 never changes. At (1, 1) the two ranks'
# messages cancel and nothing moves at all, though the loss falls in the direction of (0, 0). The residual
# points in that direction; with error feedback it grows until it changes a sign.
#
# Read: Karimireddy et al. 2019, arXiv:1901.09847, section 3, for the least-squares example that this one
# follows.

# %%
print("\n4. Signs without error feedback may not converge")
two_samples = Batch(np.array([[1.5, -0.5], [-0.5, 1.5]]), np.zeros((2, 1)))
START = np.array([1.8, 0.2])


def two_weights(strategy):
    """The path of the two weights, [step, weight]."""

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


# %%
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
for name in ("the gradient", "its sign, with error feedback"):
    distance = np.linalg.norm(paths[name][-1])
    assert distance < 1e-4, f"{name}: ends at a distance of {distance:.1e}, allowed 1e-4"

# %%
save(drawings.sign(paths, two_samples.x), FIGURES / "sign.png")

# %% [markdown]
# ## 5. When is a dense ring cheaper?
# A ring all-reduce adds on the way: each rank sends 2 (p - 1) / p times 4 n bytes, hardly more for 100
# ranks than for 10. With top-k each rank selects other entries, so they cannot be added on the way: every
# rank must receive the entries of every rank, in an all-gather of (p - 1) 8 d n bytes. Here d is the
# *density*, the share of entries that a rank sends; a value takes 4 bytes and its index 4. Both send the
# same number of bytes at
#
#     d = 1 / p
#
# With doubles, 8 + 4 bytes against 8, it is 4 / (3 p). Random-k needs no index, as all ranks draw the same
# entries: 2 / p.

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


# %%
densities, sizes = (1 / 100, 1 / 20, 1 / 8, 1 / 4, 1 / 2), (2, 4, 8, 16)
ring = {p: bytes_sent(ring_allreduce, p) for p in sizes}
gathered = {p: [bytes_sent(sparse(lambda d=d: TopK(density=d)), p) for d in densities] for p in sizes}
print("   MB per rank for a million weights: the dense ring, and densities")
print(f"      {'':8}   ring" + "".join(f"{d:9.1%}" for d in densities))
for p in sizes:
    row = "".join(f"{x / LENGTH:8.2f}{'*' if x > ring[p] else ' '}" for x in gathered[p])
    print(f"      {p:2} ranks {ring[p] / LENGTH:7.2f}{row.rstrip()}")
    formula = 2 * (p - 1) / p * 4 * LENGTH
    assert math.isclose(ring[p], formula), f"{p} ranks: a ring of {ring[p]} bytes, formula {formula}"
    for d, x in zip(densities, gathered[p], strict=True):
        formula = (p - 1) * 8 * round(d * LENGTH)
        assert math.isclose(x, formula), f"{p} ranks, density {d}: {x} bytes, formula {formula}"
        assert (x > ring[p]) == (d > 1 / p), f"{p} ranks, density {d}: {x} bytes, the ring {ring[p]}"
        assert d != 1 / p or x == ring[p], f"{p} ranks, density {d}: {x} bytes, the ring {ring[p]}"
print("      (* more than the ring)")

# %%
for p in sizes[1:]:  # at the break-even densities of the two others
    for dtype, make, d in ((np.float64, TopK, 4 / (3 * p)), (np.float32, RandomK, 2 / p)):
        nbytes = bytes_sent(sparse(lambda make=make, d=d: make(density=d)), p, dtype)
        of_ring = bytes_sent(ring_allreduce, p, dtype)
        assert math.isclose(nbytes, of_ring, rel_tol=1e-2), f"{p} ranks: {nbytes} bytes, the ring {of_ring}"

# %%
save(drawings.density(densities, gathered, ring, LENGTH), FIGURES / "density.png")

# %% [markdown]
# So a quarter of the entries on 32 ranks takes p d = 8 times the bytes of a dense ring.
#
# Read: Renggli et al. 2019 (SparCML), arXiv:1802.08021.
#
# ## 6. What it is worth on a slow link
# Eight machines train LeNet on a virtual clock. Computing takes 20 ms a step; a message takes 0.1 ms and
# the time of its bytes. Compressing takes no time on this clock; on a real one it does.

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
    """The seconds of a step in closed form."""
    sent = messages(method, LAYERS, MACHINES, entries=round(0.001 * WEIGHTS))
    return COMPUTING + sum(count * (LATENCY + size / bandwidth) for count, size in sent)


# %%
SPEEDS = {"100 Mbit/s": 100e6 / 8, "1 Gbit/s": 1e9 / 8, "100 Gbit/s": 100e9 / 8}
seconds = {m: {s: step_on(strategy, b) for s, b in SPEEDS.items()} for m, strategy in methods.items()}
print(f"   {WEIGHTS:,} weights, {MACHINES} machines; ms a step " + "".join(f"{s:>12}" for s in SPEEDS))
for method, times in seconds.items():
    print(f"      {method:37}" + "".join(f"{1e3 * t:12.1f}" for t in times.values()))
    for speed, t in times.items():
        expected = formula(method, SPEEDS[speed])
        assert math.isclose(t, expected, rel_tol=2e-3), (
            f"{method}, {speed}: {t:.4f} s, formula {expected:.4f}"
        )
slow, fast = ({m: times[s] for m, times in seconds.items()} for s in ("100 Mbit/s", "100 Gbit/s"))
assert slow["dense"] > 4 * max(slow["DGC"], slow["PowerSGD"]), slow
assert fast["dense"] < fast["PowerSGD"], fast  # two all-reduces have twice the latency of one

# %%
save(drawings.slow_link(seconds, SPEEDS, formula, COMPUTING), FIGURES / "slow_link.png")

# %% [markdown]
# The same formulas for ResNet-50 on 64 machines and 1 Gbit/s, with a density of 0.1 % for DGC. On links
# that are a hundred times as fast computing takes most of the time. There compression can save little, and
# a dense ring has an advantage: it trains like one machine, which no compressor of this lesson does.

# %%
resnet, machines, gigabit = sum(layer.weights for layer in RESNET50), 64, 1e9 / 8
ring_takes = 2 * (machines - 1) / machines * 4 * resnet / gigabit
dgc_takes = (machines - 1) * 8 * 0.001 * resnet / gigabit
print(
    f"   ResNet-50, {resnet:,} weights, 64 machines, 1 Gbit/s; seconds of sending in a step:\n"
    f"   dense ring {ring_takes:.1f}, DGC {dgc_takes:.2f}"
)
assert ring_takes > 10 * dgc_takes, f"ring {ring_takes:.2f} s, DGC {dgc_takes:.2f} s"

# %% [markdown]
# Read: Agarwal et al. 2022, "On the utility of gradient compression in distributed training systems",
# arXiv:2103.00543.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - The sent and the kept part add up to the whole, for every method with error feedback and drawn networks,
#   ranks and batches; with density 1 training has the bits of dense training; top-k and DGC are the loops
#   of the textbook; a step sends the bytes of the closed forms:
#   [tests](../../tests/backends/data_parallel/compression/test_compression.py).
# - Each family keeps its promise: top-k sends the largest entries, random rounding is right on average,
#   1-bit and scaled sign have the error of their formulas, PowerSGD projects the sum:
#   [tests](../../tests/backends/data_parallel/compression/test_compression_families.py).
# - The basic update discounts a gradient that waited for T steps by (1 - m) / (1 - m^(T+1)), and the
#   corrected one does not, for any T and m:
#   [tests](../../tests/minigrad_course/shared/test_momentum_correction.py).
# - Seeded errors in the compressors are caught:
#   [tests](../../tests/backends/data_parallel/compression/test_compression_bugs.py).
#
# Only this lesson proves, on its own cases, that the methods written by hand give the numbers of the
# library, that a step on a slow link takes the formula's time to 0.2 %, and that signs end at (1, 1). Not
# proved: the losses and accuracies, which are from one data set and one or two seeds; and that compression
# pays where compressing takes time, too.
#
# Next: [lesson 11](../11_model_parallel/lesson.py): so far each rank held the whole model; now the layers
# themselves are divided.
