"""Lesson 06. Data parallelism: every rank holds the whole model and a share of the batch.

Lecture section: synchronous data parallelism. From one gradient added up by hand, over the mean that is
easily got wrong, to gradients that travel while the next ones are still being computed.

    python lessons/06_data_parallel/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/06_data_parallel/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import drawings
import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import barrier, ring_allreduce
from backends.comm.timeline import draw, gantt
from backends.comm.trace import Traced, gather_trace
from backends.comm.virtual import Link, VirtualCluster
from backends.data_parallel import Bucketed, DataParallel, ProportionalDataParallel, Sharded
from backends.data_parallel.backup_workers import step_seconds
from lessons.style import start_lesson
from minigrad import Tape, Tensor, mnist, nn, op, ops, optim
from minigrad.backend import Serial
from minigrad.data import Batch, shares
from minigrad.models import mlp
from minigrad.train import accuracy, fit

FIGURES = start_lesson("06_data_parallel")

# %% [markdown]
# ## 1. One gradient, from three ranks, by hand
# The model is one number w; it predicts w x and pays (w x - y)². The loss of a batch is the *mean* over its
# samples, so its gradient is a mean too: of 2 x (w x - y). Seven samples, three ranks: 2, 2 and 3 samples.

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
assert np.isclose(weighted, terms.mean(), rtol=1e-15) and abs(plain - terms.mean()) > 0.5

# %% [markdown]
# The same on ranks. Each starts backward not with 1 but with its weight; then the gradients of all ranks
# only have to be *added*: an all-reduce. Nothing is divided afterwards.


# %%
def by_hand(comm):
    share = shares(len(x), comm.size)[comm.rank]
    model = Tensor(np.array([w]), requires_grad=True)
    with Tape() as tape:
        loss = ops.mse(model * x[share], y[share])
    tape.backward(loss, seed=len(x[share]) / len(x))
    return ring_allreduce(comm, model.grad)


found = run_ranks(3, by_hand)
print(f"   three ranks, an all-reduce of their gradients: {np.concatenate(found)}")
assert all(np.isclose(g, terms.mean(), rtol=1e-15) for g in found)

# %% [markdown]
# The same for every parameter of a model is `backends/data_parallel/naive.py`: read that file first. In
# `data_parallel.py` beside it all gradients travel in one message.

# %% [markdown]
# ## 2. What goes wrong without the weights, and why nobody notices
# `DataParallel` does what we just did, for any model: `place` gives every rank the model of rank 0, `step`
# runs a share of the batch forward and back and adds up the gradients, `full_gradients` shows them. Leave the
# weights out, and batches that the ranks do not divide get a wrong gradient: every *last* batch of an epoch,
# to begin with. It still points roughly downhill. So training works, accuracy rises, and the bug stays.

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
        return np.concatenate([g.ravel() for g in backend.full_gradients(model).values()])

    return run_ranks(ranks, work)[-1]


def error(strategy, n):
    """Of three ranks against one machine, relative to the length of the gradient."""
    serial = gradient(lambda comm: Serial(), n, 1)
    return np.linalg.norm(gradient(strategy, n, 3) - serial) / np.linalg.norm(serial)


sizes = list(range(6, 31))
plain_errors = [error(PlainMean, n) for n in sizes]
right_errors = [error(DataParallel, n) for n in sizes]


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
thirteen = sizes.index(13)
print(f"   13 samples on 3 ranks: with weights the gradient is wrong by {right_errors[thirteen]:.0e} of its")
print(f"   length, without by {plain_errors[thirteen]:.0%}. Test accuracy by epoch:")
for name, accuracies in curves.items():
    print(f"      {name:12} " + "  ".join(f"{a:.1%}" for a in accuracies))
assert max(right_errors) < 1e-12
assert all((e < 1e-12) == (n % 3 == 0) for n, e in zip(sizes, plain_errors, strict=True))
assert curves["plain mean"][0] < curves["plain mean"][-1] and curves["plain mean"][-1] > 0.85

# %%
drawings.weighted_mean(sizes, plain_errors, right_errors, curves).savefig(FIGURES / "weighted_mean.png")

# %% [markdown]
# The right picture is why this course compares gradients and not curves.
#
# ## 3. Batch-norm sees the batch, and each rank sees another one
# A batch-norm layer subtracts the mean *of its batch*. Ranks that use the mean of their own share train
# another network than one machine does: the lecture's practice, and exactly a serial batch-norm over groups
# of samples. Or the ranks exchange three numbers per channel (count, mean, squared deviations) in
# every forward pass and two in every backward pass: then it is the serial network again.

# %%
print("\n3. Batch-norm")


def normalised(rng):
    layers = nn.Linear(784, 32, rng=rng), nn.BatchNorm(32), nn.ReLU(), nn.Linear(32, 10, rng=rng)
    return nn.Sequential(nn.Flatten(), *layers)


def normalised_gradient(batch_norm, ranks, n=31):
    batch = Batch(digits.train.x[:n].astype(np.float64), digits.train.y[:n])

    def work(comm):
        backend = DataParallel(comm, batch_norm=batch_norm)
        model = backend.place(normalised(np.random.default_rng(0)).to(dtype=np.float64))
        backend.step(model, batch, ops.cross_entropy)
        return np.concatenate([g.ravel() for g in backend.full_gradients(model).values()])

    return run_ranks(ranks, work)[-1]


serial = normalised_gradient("ranks", 1)
print("   gradient of 31 samples on 4 ranks, against one machine:")
for kind, expected in (("ranks", (1e-2, 10.0)), ("synchronized", (0.0, 1e-12))):
    difference = np.linalg.norm(normalised_gradient(kind, 4) - serial) / np.linalg.norm(serial)
    print(f"      batch_norm={kind!r:15} differs by {difference:.1e}")
    assert expected[0] <= difference <= expected[1]

# %% [markdown]
# ## 4. Overlap: send the last layer's gradient while the first layer's is still being computed
# Backward finds the gradients in reverse order: the last layer's first. It is final long before
# backward ends, so it can travel meanwhile. `Bucketed` puts neighbouring gradients into one bucket, and
# hands a full bucket to a communication thread. To see it we take a *virtual* cluster: four machines on a
# network of 10 Gbit/s, and layers whose computing takes a time that we set.

# %%
print("\n4. Overlap")
LAYERS, WIDTH, WORK = 6, 512, 1.2e-3  # a forward takes 1.2 ms a layer, a backward twice that
NETWORK = Link(latency=20e-6, bandwidth=1.25e9)


@op
def paid(x, *, pay):
    """``x`` itself; on the way back ``pay()`` is called before the layer below is reached."""

    def pullback(g):
        pay()
        return g

    return x, (pullback,)


class Working(nn.Module):
    """A layer whose forward takes ``seconds`` of the rank's virtual clock, its backward twice as many."""

    def __init__(self, layer, comm, seconds):
        self.layer, self.comm, self.seconds = layer, comm, seconds

    def charge(self, name, seconds):
        with self.comm.computing(name):
            self.comm.compute(seconds)

    def forward(self, x):
        self.charge("forward", self.seconds)
        return paid(self.layer(x), pay=lambda: self.charge("backward", 2 * self.seconds))


def deep(comm):
    rng = np.random.default_rng(0)
    layers = [Working(nn.Linear(WIDTH, WIDTH, rng=rng), comm, WORK) for _ in range(LAYERS)]
    return nn.Sequential(*layers)


task = Batch(*np.random.default_rng(1).normal(size=(2, 4, WIDTH)).astype(np.float32))


def one_step(strategy, network=NETWORK, ranks=4):
    """The trace of one step, how long it took, and its gradients."""
    cluster = VirtualCluster(ranks, network)

    def work(comm):
        traced = Traced(comm)
        backend = strategy(traced)
        model = backend.place(deep(traced))
        barrier(comm)  # rank 0, which gave its parameters to the others, is ready before them
        start = comm.time()
        backend.step(model, task, ops.mse)
        seconds = comm.time() - start
        gradients = np.concatenate([g.ravel() for g in backend.full_gradients(model).values()])
        return gather_trace(comm, traced), start, seconds, gradients

    results = cluster.run(work)
    trace, start, _, gradients = results[0]
    return trace, start, max(seconds for _, _, seconds, _ in results), gradients


LAYER_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
strategies = {
    "without overlap": lambda comm: DataParallel(comm, ring_allreduce),
    "with overlap": lambda comm: Bucketed(
        comm, ring_allreduce, bucket_bytes=LAYER_BYTES, first_bucket_bytes=LAYER_BYTES
    ),
}
times, gradients = {}, {}
for name, strategy in strategies.items():
    trace, start, times[name], gradients[name] = one_step(strategy)
    print(f"\n   {name}: {1e3 * times[name]:.2f} ms")
    print("   " + gantt(trace, 76, start, start + max(times.values())).replace("\n", "\n   "))
    draw(
        trace,
        FIGURES / f"{name.replace(' ', '_')}.png",
        title=f"{name}: {1e3 * times[name]:.1f} ms a step",
        start=start,
        stop=start + max(times.values()),
    )
computing = 3 * WORK * LAYERS
print(f"\n   computing alone takes {1e3 * computing:.1f} ms: overlap hides all but the last bucket's message")
assert np.allclose(*gradients.values(), rtol=1e-5, atol=1e-7)
assert computing < times["with overlap"] < 1.25 * computing < times["without overlap"]

# %% [markdown]
# ## 5. How large a bucket?
# A message costs a latency, so many small buckets cost many latencies. One bucket of everything can only
# start when backward is over. The longer the latency, the larger the best bucket. If bucket j is ready at R_j
# and takes c_j, it is through at C_j = max(R_j, C_(j-1)) + c_j; the step ends when both backward and the last
# bucket have. (Where messages are fast, only the *last* bucket shows: so of six layers 4 + 2 can be better
# than 3 + 3.)

# %%
print("\n5. How large a bucket?")
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


measured = {
    name: [one_step(bucketed_by(n), network)[2] for n in per_bucket]
    for name, network in (("20 us", NETWORK), ("400 us", SLOW))
}
formula = {
    name: [predicted(network, n) for n in per_bucket]
    for name, network in (("20 us", NETWORK), ("400 us", SLOW))
}
for name, seconds in measured.items():
    shown = "  ".join(f"{n}: {1e3 * s:.1f}" for n, s in zip(per_bucket, seconds, strict=True))
    print(f"   latency {name:>6}; ms a step by layers per bucket:  {shown}")
    assert np.allclose(seconds, formula[name], rtol=2e-3)
assert np.argmin(measured["20 us"]) == 0 and 0 < np.argmin(measured["400 us"]) < 5
drawings.bucket_sizes(per_bucket, measured, formula, computing).savefig(FIGURES / "bucket_size.png")

# %% [markdown]
# ## 6. Nobody needs to hold everything
# An all-reduce is a reduce-scatter (each rank gets the sum of one part) and an all-gather (each tells the
# others its part). Between the two, a rank needs only its part: so let it update only that, and keep only
# that part of the optimizer's state (ZeRO stage 1), of the gradients (2), of the weights (3). What is
# sent stays the same for 1 and 2; stage 3 gathers the weights twice, forward and backward.

# %%
print("\n6. Nobody needs to hold everything")
small = Batch(digits.train.x[:32], digits.train.y[:32])


def held_and_sent(strategy, ranks=4):
    """Bytes of optimizer state on the last rank after two steps of Adam, and bytes it sends in the second."""

    def work(comm):
        traced = Traced(comm)
        backend = strategy(traced)
        model = backend.place(mlp(np.random.default_rng(0)))
        optimizer = optim.Adam(model.parameters())
        for _ in range(2):
            before = traced.record.ledger.sent().bytes
            optimizer.zero_grad()
            backend.step(model, small, ops.cross_entropy)
            backend.update(model, optimizer)
        state = sum(a.nbytes for part in optimizer.state for a in part.values() if isinstance(a, np.ndarray))
        sent = traced.record.ledger.sent().bytes - before
        backend.finalize(model)
        return state, sent, sum(p.size for p in model.parameters())

    return run_ranks(ranks, work)[-1]


zero = {"replicated": held_and_sent(lambda comm: DataParallel(comm, ring_allreduce))}
for stage in (1, 2, 3):
    zero[f"stage {stage}"] = held_and_sent(lambda comm, stage=stage: Sharded(comm, stage=stage))
P = zero["replicated"][2]
print(f"   {P:,} parameters, Adam, 4 ranks; on each rank:")
for name, (state, sent, _) in zero.items():
    print(f"      {name:10}  state {state / P:.1f} bytes and sent {sent / 4 / P:.2f} numbers per parameter")
assert zero["replicated"][0] == 8 * P and all(abs(zero[f"stage {s}"][0] / P - 2) < 0.01 for s in (1, 2, 3))
for name, factor in (("replicated", 2), ("stage 1", 2), ("stage 2", 2), ("stage 3", 3)):
    assert abs(zero[name][1] / (4 * P) - factor * 3 / 4) < 0.02

# %%
drawings.zero_stages(ranks=4, optimizer_bytes=8).savefig(FIGURES / "who_holds_what.png")

# %% [markdown]
# ## 7. The slowest rank sets the pace
# A synchronous step lasts as long as its slowest rank's. If computing times are random (here
# exponential, with mean 1), the slowest of N takes H(N) = 1 + 1/2 + ... + 1/N on average. Start b more
# workers than are needed, take the first N gradients and drop the others, and the tail is cut off:
# H(N + b) - H(b). No gradient is stale, that is, computed from weights of an earlier step.

# %%
print("\n7. The slowest rank sets the pace")
NEEDED = 96
draws = np.random.default_rng(0).exponential(size=(20_000, NEEDED + 16))
backups = np.arange(17)
simulated = np.array([step_seconds(draws[:, : NEEDED + b], NEEDED).mean() for b in backups])
harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, NEEDED + 17))])
expected = harmonic[NEEDED + backups] - harmonic[backups]
print(f"   {NEEDED} workers, no backup: {simulated[0]:.2f} s a step; with 4 backups {simulated[4]:.2f} s")
assert np.allclose(simulated, expected, rtol=0.01)
drawings.stragglers(backups, simulated, expected, NEEDED).savefig(FIGURES / "backup_workers.png")

# %% [markdown]
# A rank that is *always* slow should have fewer samples instead. `ProportionalDataParallel` measures
# the ranks' speeds and cuts the batch accordingly; the weights of part 2 keep the gradient exact.

# %%
SLOW_RANK, SAMPLE = 2, 1e-3  # rank 2 takes four times as long for a sample


class Paying(nn.Module):
    """Takes ``SAMPLE`` seconds of the rank's virtual clock for each sample."""

    def __init__(self, comm):
        self.comm = comm

    def forward(self, x):
        self.comm.compute(SAMPLE * len(x))
        return x


def steps_of(strategy, steps=4):
    cluster = VirtualCluster(4, NETWORK, slowness={SLOW_RANK: 4.0})

    def work(comm):
        backend = strategy(comm)
        model = backend.place(
            nn.Sequential(Paying(comm), nn.Flatten(), nn.Linear(784, 10, rng=np.random.default_rng(0)))
        )
        seconds = []
        for _ in range(steps):
            barrier(comm)
            start = comm.time()
            backend.step(model, Batch(digits.train.x[:130], digits.train.y[:130]), ops.cross_entropy)
            seconds.append(comm.time() - start)
        return seconds

    return np.max(cluster.run(work), axis=0)


equal, proportional = steps_of(DataParallel), steps_of(lambda comm: ProportionalDataParallel(comm, every=1))
best = 130 * SAMPLE / (3 + 1 / 4)
print(f"   one rank of four is four times slower; equal shares: {1e3 * equal[-1]:.1f} ms a step,")
print(f"   shares by speed: {'  '.join(f'{1e3 * s:.1f}' for s in proportional)} ms, at best {1e3 * best:.1f}")
assert proportional[-1] < 1.1 * best < 0.4 * equal[-1]
print(f"\nFigures: {FIGURES}/")
