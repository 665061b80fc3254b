"""Lesson 06. Data parallelism: every rank holds the whole model and a share of the batch.

Lecture section: synchronous data parallelism. From one gradient that is summed by hand to gradients that are
sent during backward; with batch-norm, gradient accumulation, clipping, ZeRO, stragglers, and the laws of
scaling.

The slide asks: how do several machines compute the gradient of one batch together, what does it cost in
messages and memory, and how many times as fast can they be?

You need: lesson 02, backward; lesson 03, what a training step holds in memory; lesson 05, ranks and their
all-reduce; what a weighted mean is.

Time: about 65 minutes; the program runs for about 10 seconds.

After this you can: compute the gradient of a batch from the gradients of unequal shares; say what a rank
holds and sends in each stage of ZeRO; compute when a bucket is sent and what overlap hides; predict speed-ups
by the laws of Amdahl and Gustafson, and find a serial share from two times.

    python lessons/06_data_parallel/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/06_data_parallel/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import drawings
import numpy as np
from measured import adam_state_and_bytes, batch_norm_numbers, messages_in_a_step, one_step, seconds_of_steps
from minigrad_course.experiments.experiment import read_result, source_of
from minigrad_course.experiments.speedup import Speedup
from minigrad_course.experiments.to_target import first_at
from minigrad_course.machines.scaling_laws import amdahl, gustafson, karp_flatt
from minigrad_course.machines.stragglers import step_seconds
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.comm.collectives import allreduce, ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.timeline import figure_of_kinds, gantt, panel_of
from backends.data_parallel import Bucketed, DataParallel, ProportionalDataParallel, Sharded
from minigrad import Tape, Tensor, mnist, nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.models import mlp
from minigrad.serial import Serial
from minigrad.train import accuracy, fit

FIGURES = start_lesson("06_data_parallel")

# %% [markdown]
# ## 1. One gradient, from three ranks, by hand
# The model is one weight w. For a sample x with the target y it predicts w x, and the loss of the sample is
# (w x - y)². The loss of a batch is the *mean* over its samples. So its gradient is a mean too, the mean of
# 2 x (w x - y). Three ranks share seven samples: 2, 2 and 3.

# %%
print("1. One gradient, from three ranks, by hand")
x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
y = np.array([2.0, 3.0, 5.0, 9.0, 9.0, 13.0, 10.0])
w = 1.0
terms = 2 * x * (w * x - y)
print(f"   each sample's part of the gradient: {terms}")
print(f"   one machine: the mean of all seven is {terms.mean():.4f}")
weighted = 0.0
for rank, share in enumerate(shares(len(x), 3)):
    mine = terms[share]
    weighted += len(mine) / len(x) * mine.mean()
    print(f"   rank {rank} has {len(mine)} samples; their mean is {mine.mean():8.4f}, weight {len(mine)}/7")
plain = np.mean([terms[share].mean() for share in shares(len(x), 3)])
print(f"   sum of weight times mean: {weighted:.4f}.   Plain mean of the three means, wrong: {plain:.4f}")
assert np.isclose(weighted, terms.mean(), rtol=1e-15), f"weighted {weighted}, mean of all {terms.mean()}"
assert abs(plain - terms.mean()) > 0.5, f"plain mean {plain}, mean of all {terms.mean()}: too close to see"

# %% [markdown]
# Now three ranks compute it; `run_ranks` runs each as a thread of this process. A rank starts backward not
# with 1 but with its weight, its share of the samples (the argument `seed`). Then an all-reduce (lesson 05)
# only has to *add* the gradients of all ranks, and nothing is divided.


# %%
def by_hand(comm):
    share = shares(len(x), comm.size)[comm.rank]
    model = Tensor(np.array([w]), requires_grad=True)
    with Tape() as tape:
        loss = ops.mse(model * x[share], y[share])
    tape.backward(loss, seed=len(x[share]) / len(x))
    return ring_allreduce(comm, model.grad)


results = run_ranks(3, by_hand)
print(f"   three ranks, an all-reduce of their gradients: {np.concatenate(results)}")
for g in results:
    assert np.isclose(g, terms.mean(), rtol=1e-15).all(), f"a rank has {g}, the mean of all is {terms.mean()}"

# %% [markdown]
# `backends/data_parallel/naive.py` does this for every parameter of a model: read that file first.
# `data_parallel.py` in the same folder sends all gradients in one message.
#
# Read: Ben-Nun and Hoefler 2019, arXiv:1802.09941, the section "Data parallelism".
#
# ## 2. Without the weights the gradient is wrong, and the accuracy does not show it
# `DataParallel` is this strategy for any model. `place` gives every rank the model of rank 0. `step` runs
# forward and backward on the rank's share of the batch and adds up the gradients of all ranks;
# `backend.state.full_gradients` returns the sums. `loss_weight` is the weight of a rank, and `PlainMean`
# below replaces it by the wrong one, 1 / ranks.

# %%
print("\n2. What goes wrong without the weights")
digits = mnist.load("mnist5k")


class PlainMean(DataParallel):
    """Wrong: every rank counts the same, however many samples it has."""

    def loss_weight(self, mine, batch):
        return 1 / self.size


def gradient(strategy, n, ranks):
    """The gradient of the mean loss over the first ``n`` digits, all parameters end to end."""
    batch = Batch(digits.train.x[:n].astype(np.float64), digits.train.y[:n])

    def work(comm):
        backend = strategy(comm)
        model = backend.place(mlp(np.random.default_rng(0)).to(dtype=np.float64))
        backend.step(model, batch, ops.cross_entropy)
        return np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()])

    return run_ranks(ranks, work)[-1]


def error(strategy, n):
    """The difference of three ranks from one machine, relative to the length of the gradient."""
    serial = gradient(lambda comm: Serial(), n, 1)
    return np.linalg.norm(gradient(strategy, n, 3) - serial) / np.linalg.norm(serial)


sizes = list(range(6, 31))
plain_errors = [error(PlainMean, n) for n in sizes]
right_errors = [error(DataParallel, n) for n in sizes]
thirteen = sizes.index(13)
print(f"   13 samples on 3 ranks: with weights the gradient is wrong by {right_errors[thirteen]:.0e} of its")
print(f"   length, without by {plain_errors[thirteen]:.0%}")
assert max(right_errors) < 1e-12, (
    f"the gradient's error is {max(right_errors):.1e} of its length, limit 1e-12"
)
for n, e in zip(sizes, plain_errors, strict=True):
    assert (e < 1e-12) == (n % 3 == 0), f"plain mean of {n} samples on 3 ranks: error {e:.1e}"

# %% [markdown]
# The plain mean is wrong for each batch whose size is not a multiple of the number of ranks, such as the
# *last* batch of an epoch (one pass through the data). Does the accuracy show it? We train with both.


# %%
def trained(strategy, ranks):
    """Test accuracy after each epoch, with batches of 16, which three ranks do not divide."""
    accuracies = []

    def work(comm):
        backend = strategy(comm)
        model = backend.place(mlp(np.random.default_rng(0)))
        fit(
            model,
            optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
            ops.cross_entropy,
            digits.train[:2000],
            backend=backend,
            epochs=3,
            batch_size=16,
            on_epoch=lambda epoch, history: comm.rank or accuracies.append(accuracy(model, digits.test)),
        )

    run_ranks(ranks, work)
    return accuracies


curves = {"one machine": trained(lambda comm: Serial(), 1), "plain mean": trained(PlainMean, 3)}
print("   test accuracy by epoch:")
for name, accuracies in curves.items():
    print(f"      {name:12} " + "  ".join(f"{a:.1%}" for a in accuracies))
first, last = curves["plain mean"][0], curves["plain mean"][-1]
assert first < last and last > 0.85, f"plain mean: accuracy {first:.1%}, then {last:.1%}"

# %%
save(drawings.weighted_mean(sizes, plain_errors, right_errors, curves), FIGURES / "weighted_mean.png")

# %% [markdown]
# The wrong gradient still points roughly downhill. So the accuracy rises, and no one finds the mistake.
# This is why this course compares gradients and not accuracies.
#
# How small must the difference be? Ranks add in another order than one machine, and each addition rounds to
# 16 digits. So two right gradients differ by about 1e-16 of the terms that were added. `backends/laws.py`
# allows 1e-12 of the largest element of a parameter's gradient. Where the terms cancel, this is no measure:
# the exact gradient of a bias before a batch-norm layer is 0, and two right runs may compute 3e-17 and
# -1e-17. So the largest element counts as at least a tenth of the largest element of the model's whole
# gradient.
#
# Read: Goyal et al. 2017, arXiv:1706.02677, section 3 (remark 3).
#
# ## 3. Batch-norm: each rank has another mean
# A batch-norm layer shifts and scales each channel of its input such that the channel has mean 0 and
# variance 1 *in the batch*. If each rank uses the mean and the variance of its own share, the ranks train
# another network than one machine does: the network whose batch-norm works on groups of samples. This is
# the usual practice. Or the ranks combine their statistics (*synchronized* batch-norm). For C channels each
# rank then sends 2 C + 1 numbers in a forward pass (C means, C sums of squared deviations, and its number
# of samples), and 2 C in a backward pass (two sums for each channel). Then the ranks train the network of
# one machine again.

# %%
print("\n3. Batch-norm")


def normalized(rng):
    layers = nn.Linear(784, 32, rng=rng), nn.BatchNorm(32), nn.ReLU(), nn.Linear(32, 10, rng=rng)
    return nn.Sequential(nn.Flatten(), *layers)


def normalized_gradient(batch_norm, ranks, n=31):
    batch = Batch(digits.train.x[:n].astype(np.float64), digits.train.y[:n])

    def work(comm):
        backend = DataParallel(comm, batch_norm=batch_norm)
        model = backend.place(normalized(np.random.default_rng(0)).to(dtype=np.float64))
        backend.step(model, batch, ops.cross_entropy)
        return np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()])

    return run_ranks(ranks, work)[-1]


serial = normalized_gradient("ranks", 1)
print("   gradient of 31 samples on 4 ranks, against one machine:")
for kind, expected in (("ranks", (1e-2, 10.0)), ("synchronized", (0.0, 1e-12))):
    difference = np.linalg.norm(normalized_gradient(kind, 4) - serial) / np.linalg.norm(serial)
    print(f"      batch_norm={kind!r:15} differs by {difference:.1e}")
    assert expected[0] <= difference <= expected[1], f"{kind}: {difference:.1e}, expected in {expected}"

# %% [markdown]
# Now we count the numbers that a rank sends: `Traced` (lesson 05) records every message.

# %%
CHANNELS, OTHERS = 32, 3  # ranks that each rank sends to
some = Batch(np.random.default_rng(0).normal(size=(31, CHANNELS)), np.zeros(31))
counted = batch_norm_numbers(
    lambda comm: DataParallel(comm, batch_norm="synchronized"),
    lambda: nn.Sequential(nn.BatchNorm(CHANNELS)).to(dtype=np.float64),
    some,
    ranks=4,
)
formula = [OTHERS * (2 * CHANNELS + 1), OTHERS * 2 * CHANNELS]
print(f"   {CHANNELS} channels: {counted[0] // OTHERS} numbers to each other rank forward, ", end="")
print(f"{counted[1] // OTHERS} backward")
assert counted.tolist() == formula, (
    f"{counted} numbers sent forward and backward, the formula gives {formula}"
)

# %% [markdown]
# Read: Ioffe and Szegedy 2015, arXiv:1502.03167, section 3; Goyal et al. 2017, section 2.3 (statistics by
# rank).
#
# ## 4. Gradient accumulation: many backward passes, one message
# A batch may be too large for the memory of a rank. Then cut the rank's share into *micro-batches*, run
# forward and backward for one micro-batch at a time, and let the gradients add up. Again each backward
# starts with the share of the samples. Only one tape exists at a time, and the ranks still send one message
# per step.


# %%
def accumulate_gradients(model, batch, micro_batches):
    for part in shares(len(batch), micro_batches):
        x, y = batch.x[part], batch.y[part]
        with Tape() as tape:
            loss = ops.cross_entropy(model(Tensor(x)), y)
        tape.backward(loss, seed=len(x) / len(batch))  # adds to the gradients of the parameters
    return np.concatenate([p.grad.ravel() for p in model.parameters()])


print("\n4. Gradient accumulation")
thirty = Batch(digits.train.x[:30].astype(np.float64), digits.train.y[:30])


def double():
    return mlp(np.random.default_rng(0)).to(dtype=np.float64)


at_once, in_four = (accumulate_gradients(double(), thirty, n) for n in (1, 4))
off = np.linalg.norm(in_four - at_once) / np.linalg.norm(at_once)
print(f"   30 samples in 4 micro-batches: the gradient is off by {off:.0e} of its length")
assert off < 1e-12, f"the accumulated gradient is off by {off:.1e} of its length, limit 1e-12"
costs = {}
for n in (1, 4):
    messages, most, g = messages_in_a_step(
        lambda comm, n=n: DataParallel(comm, micro_batches=n), double, thirty
    )
    costs[n] = messages, most
    print(f"   three ranks, micro_batches={n}: {messages} messages, at most {most} samples on a tape")
    off = np.linalg.norm(g - at_once) / np.linalg.norm(at_once)
    assert off < 1e-12, f"micro_batches={n}: the gradient is off by {off:.1e} of its length, limit 1e-12"
assert costs[1][0] == costs[4][0], f"messages: {costs[1][0]} for one backward pass, {costs[4][0]} for four"
assert costs[4][1] < costs[1][1] / 3, f"samples on a tape: {costs[1][1]}, with micro-batches {costs[4][1]}"

# %% [markdown]
# Read: Li et al. 2020 (PyTorch DDP), arXiv:2006.15704, section 3.2.4.
#
# ## 5. Clipping by the global norm
# Where gradients can become very large, they are scaled down to a length of at most c: g <- g min(1, c /
# |g|). Here |g| is the *global norm*, the length of all gradients taken together. So a rank can clip only
# after the sum over the ranks. If every rank clips its own gradient first, the direction of the sum
# changes. And where each rank has only a part of the gradients (`Sharded`, part 8), the ranks must first
# add the squared lengths of their parts.

# %%
print("\n5. Clipping by the global norm")
LIMIT = 0.1


def weights(model):
    return np.concatenate([a.ravel() for a in model.values()])


def clipped_update(comm, strategy):
    """How far a step of gradient descent with learning rate 1 and clipping moves all weights."""
    backend, model = strategy(comm), double()
    model = backend.place(model)
    optimizer = optim.SGD(model.parameters(), lr=1.0).clipped(LIMIT)
    before = weights(backend.state.full_parameters(model))
    backend.step(model, thirty, ops.cross_entropy)
    backend.update(model, optimizer)
    return before - weights(backend.state.full_parameters(model))


def clipped_before_the_sum(comm):
    """Wrong: the length of the rank's own gradient, not of the sum."""
    mine = shares(len(thirty), comm.size)[comm.rank]
    g = accumulate_gradients(double(), thirty[mine], 1) * len(thirty.x[mine]) / len(thirty)
    return allreduce(comm, g * min(1, LIMIT / comm.size / np.linalg.norm(g)))


expected = at_once * LIMIT / np.linalg.norm(at_once)
print(f"   the length of the gradient is {np.linalg.norm(at_once):.2f}, the limit {LIMIT}")
for name, strategy in (("DataParallel", DataParallel), ("Sharded", lambda comm: Sharded(comm, stage=2))):
    moved = run_ranks(3, lambda comm, strategy=strategy: clipped_update(comm, strategy))[-1]
    off = np.linalg.norm(moved - expected) / LIMIT
    print(f"   {name} on three ranks: the step has length {np.linalg.norm(moved):.4f}, off by {off:.0e}")
    assert off < 1e-12, f"{name}: the step differs from one machine's by {off:.1e} of its length, limit 1e-12"
off = np.linalg.norm(run_ranks(3, clipped_before_the_sum)[0] - expected) / LIMIT
print(f"   clipped before the sum: off by {off:.0%}")
assert off > 0.05, f"clipped before the sum: off by {off:.1%} only, expected more than 5%"

# %% [markdown]
# Read: Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, section 3.2.
#
# ## 6. Overlap: send the last layer's gradient during the backward of the first layers
# Backward computes the gradients in reverse order, the last layer's first. This gradient is final long
# before backward ends, so it can be sent in the meantime. `Bucketed` collects the gradients of neighboring
# layers in a *bucket*, and a thread for communication sends the bucket when it is full. To see it we use a
# *virtual* cluster (lesson 05): four machines on a network of 10 Gbit/s, and layers whose computing takes a
# time that we choose. (Processes of one machine compute the sum on the same cores, so overlap gains nothing
# there: then `Bucketed` sends one message after backward, unless you pass `progress="thread"`.)

# %%
print("\n6. Overlap")
LAYERS, WIDTH, WORK = 6, 512, 1.2e-3  # a forward takes 1.2 ms a layer, a backward twice that
NETWORK = Link(latency=20e-6, bandwidth=1.25e9)


def timed_step(strategy, network=NETWORK):
    return one_step(strategy, network, layers=LAYERS, width=WIDTH, seconds=WORK)


LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
strategies = {
    "without_overlap": lambda comm: DataParallel(comm, ring_allreduce),
    "with_overlap": lambda comm: Bucketed(
        comm, ring_allreduce, bucket_bytes=LAYER_BYTES, first_bucket_bytes=LAYER_BYTES
    ),
}
times, gradients, panels = {}, {}, []
for name, strategy in strategies.items():
    trace, start, times[name], gradients[name] = timed_step(strategy)
    words = name.replace("_", " ")
    print(f"\n   {words}: {1e3 * times[name]:.2f} ms")
    print("   " + gantt(trace, 64, start, start + max(times.values())).replace("\n", "\n   "))
    title = f"{words}: {1e3 * times[name]:.1f} ms a step"
    panels.append(panel_of(trace, title, start, start + max(times.values())))
computing = 3 * WORK * LAYERS
print(f"\n   computing alone takes {1e3 * computing:.1f} ms: overlap hides all but the last bucket's message")
off = np.abs(np.subtract(*gradients.values())).max() / np.abs(gradients["with_overlap"]).max()
assert off < 1e-5, f"with and without overlap the gradients differ by {off:.1e} of the largest, limit 1e-5"
less, more = (1e3 * times[name] for name in ("with_overlap", "without_overlap"))
assert 1e3 * computing < less < 1.25e3 * computing, (
    f"{less:.1f} ms with overlap, computing {1e3 * computing:.1f}"
)
assert more > 1.25e3 * computing, f"{more:.1f} ms without overlap, computing {1e3 * computing:.1f} ms"

# %%
save(figure_of_kinds(panels), FIGURES / "overlap.png")

# %% [markdown]
# Read: Li et al. 2020, arXiv:2006.15704, sections 3.2.2 and 3.2.3.
#
# ## 7. How large a bucket?
# Each message costs a latency, so many small buckets cost many latencies. But one bucket with everything
# can only be sent when backward is over. The longer the latency, the larger the best bucket. Let bucket j
# be full at time R_j, and let its all-reduce take c_j. Buckets are sent one by one, so bucket j has arrived
# at
#
#     C_j = max(R_j, C_(j-1)) + c_j
#
# The step ends when backward and the last bucket have ended. (Where messages are fast, computing hides
# every bucket but the last. So a small last bucket is good: for six layers, buckets of 4 and 2 are better
# than 3 and 3.)

# %%
print("\n7. How large a bucket?")
SLOW = Link(latency=400e-6, bandwidth=1.25e9)  # a network on which messages are expensive to start
per_bucket = [1, 2, 3, 4, 5, 6]  # layers


def bucketed_by(layers):
    size = layers * LAYER_BYTES
    return lambda comm: Bucketed(comm, ring_allreduce, bucket_bytes=size, first_bucket_bytes=size)


def ring_seconds(network, nbytes, p=4):
    return 2 * (p - 1) * (network.latency + nbytes / p / network.bandwidth)


def predicted(network, layers):
    """The formula; sizes in whole layers, without the few bytes for the loss that travel along."""
    done, forward = 0.0, WORK * LAYERS
    for first in range(0, LAYERS, layers):
        last = min(first + layers, LAYERS)
        ready = forward + 2 * WORK * last
        done = max(ready, done) + ring_seconds(network, (last - first) * LAYER_BYTES)
    return done


# %%
measured = {
    name: [timed_step(bucketed_by(n), network)[2] for n in per_bucket]
    for name, network in (("20 us", NETWORK), ("400 us", SLOW))
}
formula = {
    name: [predicted(network, n) for n in per_bucket]
    for name, network in (("20 us", NETWORK), ("400 us", SLOW))
}
for name, seconds in measured.items():
    shown = "  ".join(f"{n}: {1e3 * s:.1f}" for n, s in zip(per_bucket, seconds, strict=True))
    print(f"   latency {name}; ms a step by layers per bucket:\n      {shown}")
    off = np.abs(np.array(seconds) / formula[name] - 1).max()
    assert off < 2e-3, f"latency {name}: measured and formula differ by {off:.2%}, limit 0.2%"
best = {name: per_bucket[int(np.argmin(seconds))] for name, seconds in measured.items()}
assert best["20 us"] == 1 and 1 < best["400 us"] < 6, f"best buckets {best}, expected 1 layer, and 2 to 5"
of_3_and_3, of_4_and_2 = measured["20 us"][2:4]
assert of_4_and_2 < of_3_and_3, f"buckets of 4 and 2 layers {of_4_and_2:.4f} s, 3 and 3 {of_3_and_3:.4f} s"

# %%
save(drawings.bucket_sizes(per_bucket, measured, formula, computing), FIGURES / "bucket_size.png")

# %% [markdown]
# Read: Li et al. 2020, arXiv:2006.15704, the measurements by bucket size.
#
# ## 8. ZeRO: no rank needs to hold everything
# An all-reduce is a reduce-scatter (each rank gets the sum of one part) and an all-gather (each rank sends
# its part to the others). Between the two a rank needs only its own part. So a rank can update this part
# alone, and keep only this part of the optimizer's state (stage 1 of ZeRO, the zero redundancy optimizer;
# Adam's state is two means for each weight, lesson 03), of the gradients (stage 2), and of the weights
# (stage 3). Stages 1 and 2 send as many bytes as an all-reduce. Stage 3 gathers the weights twice, for
# forward and for backward (`gathered_weights.py`), so it sends half as much again. "Replicated" means that
# every rank holds everything.
#
# `backends/data_parallel/zero/naive.py` is stage 1 in 40 lines: read that file first.

# %%
print("\n8. ZeRO")
small = Batch(digits.train.x[:32], digits.train.y[:32])


def held_and_sent(strategy):
    return adam_state_and_bytes(strategy, lambda: mlp(np.random.default_rng(0)), small)


zero = {"replicated": held_and_sent(lambda comm: DataParallel(comm, ring_allreduce))}
for stage in (1, 2, 3):
    zero[f"stage {stage}"] = held_and_sent(lambda comm, stage=stage: Sharded(comm, stage=stage))
P = zero["replicated"][2]
print(f"   {P:,} parameters, Adam, 4 ranks; on each rank:")
for name, (state, sent, _) in zero.items():
    print(f"      {name:10}  state {state / P:.1f} bytes and sent {sent / 4 / P:.2f} numbers per parameter")
for name, nbytes, factor in (("replicated", 8, 2), ("stage 1", 2, 2), ("stage 2", 2, 2), ("stage 3", 2, 3)):
    state, sent = zero[name][0] / P, zero[name][1] / (4 * P)
    assert abs(state - nbytes) < 0.01, f"{name}: {state:.3f} bytes of state per parameter, expected {nbytes}"
    assert abs(sent - factor * 3 / 4) < 0.02, f"{name}: {sent:.3f} numbers sent, expected {factor * 3 / 4}"

# %%
save(drawings.zero_stages(ranks=4, optimizer_bytes=8), FIGURES / "who_holds_what.png")

# %% [markdown]
# Read: Rajbhandari et al. 2020 (ZeRO), arXiv:1910.02054, sections 5 and 7.
#
# ## 9. Stragglers: the slowest rank decides
# A synchronous step lasts as long as its slowest rank, the *straggler*. If computing times are random (here
# exponential with mean 1), the slowest of N takes H(N) = 1 + 1/2 + ... + 1/N on average. So start N + b
# workers, use the N gradients that come first, and drop the b others. The b workers are *backup workers*.
# Then a step takes H(N + b) - H(b) on average. All gradients belong to the newest weights; none is *stale*,
# that is, computed with the weights of an earlier step. (The library's class is `BackupWorkers`.)

# %%
print("\n9. Stragglers")
NEEDED = 96
draws = np.random.default_rng(0).exponential(size=(20_000, NEEDED + 16))
backups = np.arange(17)
simulated = np.array([step_seconds(draws[:, : NEEDED + b], NEEDED).mean() for b in backups])
harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, NEEDED + 17))])
expected = harmonic[NEEDED + backups] - harmonic[backups]
print(f"   {NEEDED} workers, no backup: {simulated[0]:.2f} s a step; with 4 backups {simulated[4]:.2f} s")
off = np.abs(simulated / expected - 1).max()
assert off < 0.01, f"simulated and formula differ by {off:.2%}, limit 1%"

# %%
save(drawings.stragglers(backups, simulated, expected, NEEDED), FIGURES / "backup_workers.png")

# %% [markdown]
# Read: Chen et al. 2016, "Revisiting distributed synchronous SGD", arXiv:1604.00981.
#
# A rank that is *always* slow should get fewer samples instead. `ProportionalDataParallel` measures the
# speed of the ranks and divides the batch in proportion; the weights of part 2 keep the gradient exact.

# %%
SAMPLE, SLOWNESS = 1e-3, 4.0  # rank 2 takes four times as long for a sample
many = Batch(digits.train.x[:130], digits.train.y[:130])
equal, proportional = (
    seconds_of_steps(strategy, NETWORK, many, sample=SAMPLE, slowness={2: SLOWNESS})
    for strategy in (DataParallel, lambda comm: ProportionalDataParallel(comm, every=1))
)
best = 130 * SAMPLE / (3 + 1 / SLOWNESS)
print(f"   one rank of four is four times slower; equal shares: {1e3 * equal[-1]:.1f} ms a step,")
print(f"   shares by speed: {'  '.join(f'{1e3 * s:.1f}' for s in proportional)} ms, at best {1e3 * best:.1f}")
last = proportional[-1]
assert last < 1.1 * best, f"shares by speed: {1e3 * last:.1f} ms a step, at best {1e3 * best:.1f} ms"
assert last < 0.45 * equal[-1], f"shares by speed {1e3 * last:.1f} ms, equal shares {1e3 * equal[-1]:.1f} ms"

# %% [markdown]
# ## 10. Two processes, real time
# All times so far are times of virtual clocks, as ranks were threads of one process. `minigrad experiment
# speedup` trains with one and with two MPI processes, by turns in random order, and counts the samples a
# second of each strategy. Its results are below: the first line says when and on which machine they were
# measured. The losses are the losses of serial training. With shared memory (`shared_memory.py`) no message
# is sent: each rank sums a share of all gradients in the memory that both ranks can read. Two processes are
# less than twice as fast, for three reasons: each rank updates all weights, gradients travel, and both
# share the memory of one machine.

# %%
print("\n10. Two processes, real time: samples a second, times as fast as serial")
measured = read_result("speedup")
print(f"   {source_of(measured)}")
for net, figures in measured["nets"].items():
    peers = figures["peers"]
    print(f"   {net}, batch {figures['batch_size']}: serial {peers['serial']['samples_per_second']:,.0f}")
    for strategy in ("data parallel", "data parallel, shared memory"):
        two = peers[f"{strategy}, 2"]
        print(f"      {strategy:28} {two['samples_per_second']:9,.0f}  {two['speedup']:.2f}")
    difference = figures["largest_difference"]
    assert difference < 1e-12, f"{net}: a loss differs from serial by {difference:.1e}, limit 1e-12"

# %%
save(Speedup().draw(measured), FIGURES / "two_processes.png")

# %% [markdown]
# How long until 95 % of the test digits are right? `minigrad experiment to-target` trains until then, with
# several batch sizes and strategies. Each strategy takes exactly the steps of serial training; only the
# time differs. A larger batch needs fewer steps, but more epochs.

# %%
measured = read_result("to-target")
curves = measured["curves"]
print(f"   {source_of(measured)}")
for name in ("serial, batch 16", "serial, batch 64", "serial, batch 256", "data parallel"):
    point = first_at(curves[name], 0.95)
    steps, epochs, seconds = (point[unit] for unit in ("steps", "epochs", "seconds"))
    print(f"   95 % with {name:17}: {steps:4} steps, {epochs:4.1f} epochs, {seconds:4.1f} s")
serial, parallel = (first_at(curves[name], 0.95)["steps"] for name in ("serial, batch 64", "data parallel"))
assert serial == parallel, f"serial training took {serial} steps, data parallel {parallel}"

# %% [markdown]
# With batches of 64 two processes take nearly as long as one: their 220 steps are not much faster. The
# reason is the ratio of messages to work. A step sends the same gradients, whether its batch has 64 samples
# or 256; but with 64 it computes for only a quarter of the time. The first table above has batches of 256,
# and there two processes are 1.5 times as fast.
#
# Read: Li et al. 2020, arXiv:2006.15704, section 5 (measured on up to 256 GPUs).
#
# ## 11. A serial share limits every speed-up
# Not everything in a step is shared. Each rank reads files, updates all weights, starts its operations:
# this *serial* part takes as long on 16 ranks as on one. Let f be the share of the serial part in the time
# of one rank. Then p ranks need f + (1 - f) / p of that time. So the *speed-up*, the time of one rank
# divided by the time of p ranks, is
#
#     1 / (f + (1 - f) / p)        Amdahl 1967, never above 1 / f
#
# With 5 % serial work no number of ranks is more than 20 times as fast as one.
#
# This is *strong scaling*: the batch stays as large as it was, and each rank gets fewer samples. In *weak
# scaling* each rank keeps its number of samples, and the batch grows with the ranks. Then the serial part
# is the same share s of a step for every p. One rank would need s + p (1 - s) for the work of p ranks, if a
# step of the p ranks takes 1. So the speed-up is
#
#     p - s (p - 1)                Gustafson 1988, grows without a limit
#
# We run a step of `DataParallel` on the virtual cluster. A sample takes 1 ms, and 4 ms are serial. The
# batch is 64 samples in all, or 64 on each rank. At first messages take no time; later a network carries
# them.

# %%
print("\n11. A serial share limits every speed-up")
SERIAL, RANKS, EACH = 4e-3, (1, 2, 4, 8, 16), 64
FREE, MESSAGES = Link(0.0), Link(latency=100e-6, bandwidth=1.25e8)
one_rank = SERIAL + EACH * SAMPLE


def step_of(samples, ranks, network=FREE):
    """Seconds of a step of so many samples in all, with the messages of a real step."""
    batch = Batch(np.zeros((samples, 784), np.float32), np.zeros(samples, int))
    times = {"sample": SAMPLE, "serial": SERIAL}
    return seconds_of_steps(DataParallel, network, batch, **times, ranks=ranks, steps=1)[0]


# %%
strong = {p: one_rank / step_of(EACH, p) for p in RANKS}
weak = {p: (SERIAL + p * EACH * SAMPLE) / step_of(p * EACH, p) for p in RANKS}
share = SERIAL / one_rank
print(f"   {share:.1%} of the step of one rank are serial; times as fast without messages:")
print("      ranks             " + "".join(f"{p:7}" for p in RANKS))
for name, speedups, law in (("64 samples in all", strong, amdahl), ("64 on each rank", weak, gustafson)):
    print(f"      {name:18}" + "".join(f"{s:7.2f}" for s in speedups.values()))
    for p, speedup in speedups.items():
        assert np.isclose(speedup, law(share, p), rtol=1e-9), f"{p} ranks: {speedup}, law {law(share, p)}"
for p, speedup in weak.items():
    of_one = share / (share + p * (1 - share))  # the serial share of the time of one rank
    assert np.isclose(speedup, amdahl(of_one, p), rtol=1e-9), f"{speedup}, Amdahl {amdahl(of_one, p)}"
assert round(amdahl(0.05, 10**6), 2) == 20.0, f"5 % serial: {amdahl(0.05, 10**6):.2f} times, limit 20"

# %% [markdown]
# The two laws agree on every run. Amdahl's f is a share of the time that *one* rank needs for all the work,
# Gustafson's s a share of the time that p ranks need. In weak scaling f = s / (s + p (1 - s)), which falls
# as p grows: the serial part stays as it is, and the shared work grows. So weak scaling gives larger
# speed-ups. The price is a larger batch, and lesson 07 shows where larger batches stop helping.
#
# How large is the serial share of a program whose parts you cannot time? Two measured times are enough, the
# time of one rank and the time of p ranks. Their quotient is the speed-up S. *Karp and Flatt* 1990 solve
# Amdahl's law for f:
#
#     f = (p / S - 1) / (p - 1)
#
# If only serial work limits the speed-up, each p gives the same f. If messages cost time too, f grows with
# p.

# %%
sent = {p: one_rank / step_of(EACH, p, MESSAGES) for p in RANKS}
serial_shares = {
    name: [karp_flatt(speedups[p], p) for p in RANKS[1:]]
    for name, speedups in (("no messages", strong), ("messages", sent))
}
print("   serial share by Karp and Flatt, from the times of 1 rank and of p ranks:")
print("      ranks       " + "".join(f"{p:8}" for p in RANKS[1:]))
for name, of_ranks in serial_shares.items():
    print(f"      {name:12}" + "".join(f"{f:8.2%}" for f in of_ranks))
constant, growing = serial_shares.values()
assert np.allclose(constant, share, rtol=1e-9), f"serial shares {constant}, put in {share:.4f}"
assert np.all(np.diff(growing) > 0), f"with messages the share must grow, found {growing}"
guess, true = amdahl(growing[0], RANKS[-1]), sent[RANKS[-1]]
print(f"   from 2 ranks Amdahl's law promises {guess:.1f} times on 16; measured {true:.1f}")
assert guess > 1.2 * true, f"promised {guess:.2f} times, measured {true:.2f}: messages should make it less"

# %%
weak_sent = {p: (SERIAL + p * EACH * SAMPLE) / step_of(p * EACH, p, MESSAGES) for p in RANKS}
assert weak_sent[16] > 1.5 * sent[16], f"weak {weak_sent[16]:.2f} times, strong {sent[16]:.2f} times"

# %%
save(drawings.scaling(RANKS, share, (strong, sent), (weak, weak_sent)), FIGURES / "scaling.png")

# %% [markdown]
# So report three things with each speed-up: the number of ranks, the batch, and what it is compared with.
# The values of f say what to improve. If f is constant, look for serial work. If f grows, look at the
# messages.
#
# Read: Amdahl 1967, "Validity of the single processor approach to achieving large scale computing
# capabilities"; Gustafson 1988, "Reevaluating Amdahl's law"; Karp and Flatt 1990, "Measuring parallel
# processor performance" (both in Communications of the ACM).

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - Ranks that weigh their gradients by their shares of the samples compute the gradients of one machine to
#   1e-12, for the networks of the tests and any drawn numbers of ranks and samples, with empty shares too:
#   [naive form](../../tests/backends/data_parallel/test_naive.py),
#   [library](../../tests/backends/data_parallel/test_data_parallel.py). So they do with micro-batches,
#   momentum and Adam ([tests](../../tests/backends/data_parallel/test_replicated.py)), with clipping by the
#   global norm ([tests](../../tests/backends/data_parallel/test_large_batches.py)) and with synchronized
#   batch-norm ([tests](../../tests/backends/test_batch_norm.py)).
# - Buckets of any size change when gradients travel, and not one bit of them
#   ([tests](../../tests/backends/data_parallel/test_bucketed.py)); on a virtual clock a step takes the time
#   of the formula, for any layers, ranks and bucket size
#   ([tests](../../tests/backends/data_parallel/test_bucketed_times.py)).
# - All three stages of ZeRO train like one machine
#   ([tests](../../tests/backends/data_parallel/zero/test_sharded.py)); the bytes that a rank holds
#   ([tests](../../tests/backends/data_parallel/zero/test_sharded_memory.py)) and sends
#   ([tests](../../tests/backends/data_parallel/zero/test_sharded_messages.py)) equal the formulas.
# - A step with backup workers takes H(N + b) - H(b) on average, for exponential times
#   ([tests](../../tests/minigrad_course/machines/test_stragglers.py)), and uses no stale gradient
#   ([tests](../../tests/backends/data_parallel/test_backup_workers.py)).
# - The laws of Amdahl, Gustafson, and Karp and Flatt are quotients of two times
#   ([tests](../../tests/minigrad_course/machines/test_scaling_laws.py)).
#
# Only this lesson proves, on its own cases, that steps of ranks on the virtual cluster have the speed-ups
# of Amdahl and Gustafson, that each rank of synchronized batch-norm sends 2 C + 1 and 2 C numbers, and that
# the plain mean is wrong. Not proved: the accuracies of part 2 and the seconds of part 10. They were
# measured, and another machine has others.
#
# Next: [lesson 07](../07_large_batches/lesson.py): more ranks make larger batches, and a larger batch needs
# another learning rate.
