"""Lesson 08. A parameter server: no worker waits for the others, and gradients arrive late.

Lecture section: asynchronous parameter server; sharded server. What late gradients cost, which learning rate
and momentum they need, how several servers share the load, and how long workers wait. Survey: Ben-Nun and
Hoefler 2019, arXiv:1802.09941, section 7.

The slide asks: how do workers train one model without waiting for each other, and what do gradients cost that
arrive late?

You need: lesson 01, learning rates and momentum; lesson 05, the time of a message and the virtual clock;
lesson 06, stragglers and the ring all-reduce; lesson 07, the linear scaling rule; roots of polynomials.

Time: about 45 minutes; the program runs for about 30 seconds.

After this you can: compute the staleness of gradients from the times of the workers; derive the largest
learning rate for a given staleness; compute how long a round takes with several servers; say when a bound on
staleness helps.

    python lessons/08_parameter_server/lesson.py
    minigrad run -n 3 lessons/08_parameter_server/lesson.py      # with part 6, in which MPI windows serve

Only part 6 needs MPI: in all others ranks are threads of this process, on a virtual clock. Figures go to
runs/lessons/08_parameter_server/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import itertools
from collections import Counter, deque

import drawings
import numpy as np
import one_sided
from minigrad_course.shared.style import start_lesson
from watched import BATCH, batches, digits, network, served, sgd

from backends.comm.collectives.link import Link
from backends.data_parallel.flat import FlatLayout
from backends.data_parallel.parameter_server.server import PULL, PUSH
from backends.launch.launch import load_mpi, under_mpiexec
from minigrad import Tensor, ops, optim
from minigrad.data import minibatches, shares
from minigrad.figures import save
from minigrad.serial import Serial
from minigrad.train import accuracy

# Under mpiexec part 6 comes first, so that the other ranks, which only it needs, may end.
comm = load_mpi()() if under_mpiexec() else None
sums = one_sided.part(comm, digits) if comm is not None and comm.size > 1 else []
if comm is not None and comm.rank > 0:
    raise SystemExit

FIGURES = start_lesson("08_parameter_server")

# %% [markdown]
# ## 1. No worker waits, so parameters are stale
# A *server* holds the parameters. A *worker* receives them (pull), computes the gradient of a few samples,
# and sends it to the server (push). The server updates the parameters with it at once, and the
# worker pulls again. In the meantime other workers push. So the parameters with which a gradient was
# computed may have been updated when it arrives. The *staleness* tau of a gradient is the number of updates
# in between.
#
# `backends/data_parallel/parameter_server/naive.py` is such a server in 65 lines: read that file first. We
# run the library's `ParameterServer` on a virtual clock, on which a gradient takes the given `seconds`. We
# record when the server applies which worker's gradient, and how stale it is. ([watched.py](watched.py) has
# the training loop and the few lines that record.)


# %%
print("1. No worker waits, so parameters are stale")
MESSAGE = Link(0.2)  # seconds, for any size
pair = served(np.ones((2, 6)), link=MESSAGE)
unequal = served(np.array([[1.0] * 12, [3.0] * 12]), link=MESSAGE)
for name, run in (("two equal workers", pair), ("worker 1 three times slower", unequal)):
    shown = "  ".join(f"{a.worker}:{a.staleness}" for a in run.applied[:12])
    print(f"   {name}; worker:staleness\n      {shown}")
    recorded = Counter(a.staleness for a in run.applied)
    assert run.counts == recorded, f"the library counts {run.counts}, recorded {recorded}"
ages = [a.staleness for a in pair.applied]
assert ages == [0] + [1] * 11, f"two equal workers: staleness {ages}, expected 0, then 1"
for worker, expected in ((0, {0, 1}), (1, {2, 3})):
    ages = {a.staleness for a in unequal.applied[:12] if a.worker == worker}
    assert ages == expected, f"worker {worker}: staleness {ages}, expected {expected}"

# %%
save(
    drawings.messages({"Two equal workers": pair, "Worker 1 is three times slower": unequal}, PUSH, PULL),
    FIGURES / "messages.png",
)

# %% [markdown]
# With p equal workers the p - 1 others push between a worker's pull and its push: tau = p - 1, except in
# the first round. If computing times are random, so is the staleness. But its mean is still p - 1: at every
# update the p - 1 other workers compute, and the staleness of each of their gradients grows by one. (It is
# a little less at the end, when some workers have done all their steps.)

# %%
WORKERS, STEPS = 8, 30
equal = served(np.ones((WORKERS, STEPS)), batch=2)
drawn = np.random.default_rng(0).gamma(4.0, 0.25, (WORKERS, STEPS))  # mean 1
random = served(drawn, batch=2)
expected = Counter(range(WORKERS)) + Counter({WORKERS - 1: WORKERS * (STEPS - 1)})
assert equal.counts == expected, f"gradients by staleness {equal.counts}, expected {expected}"
of_equal, of_random = (np.mean([a.staleness for a in run.applied]) for run in (equal, random))
print(f"   {WORKERS} equal workers: mean staleness {of_equal:.2f}, at most {max(equal.counts)};")
print(f"   with random computing times: mean {of_random:.2f}, at most {max(random.counts)}")
last = {w: max(a.time for a in random.applied if a.worker == w) for w in range(WORKERS)}
under_way = sum(a.time < last[w] for a in random.applied for w in last if w != a.worker)
total = sum(a.staleness for a in random.applied)
assert total == under_way, f"staleness of {total} in all, expected {under_way}"
assert WORKERS - 2 < of_random <= WORKERS - 1 < max(random.counts), f"mean staleness {of_random:.2f}"

# %%
save(drawings.histogram(equal.counts, random.counts, WORKERS), FIGURES / "staleness.png")

# %% [markdown]
# Read: Dean et al. 2012 (NeurIPS), section 4.1 (Downpour SGD); Zhang et al. 2016, arXiv:1511.05950, section
# 2.
#
# ## 2. All workers send to one server
# Let the parameters have n bytes, and let each of p workers push once in a *round*. Then p gradients come
# in over the server's link, and p copies of the parameters go out: p n bytes each way, where the link of a
# worker carries n. A *sharded* server divides the parameters into S parts of n / S bytes, each on a server
# of its own. We measure the bytes on a server's link, and the time of a round on a network of 1 Gbit/s,
# with computing that takes no time. Here all workers wait for each other (`staleness=0`), so that there are
# rounds; asynchronous workers send the same bytes.
#
# A link carries one message at a time. So each worker sends its S parts one by one, and each server
# receives p parts one by one: the part of worker j for server s arrives as number s + j + 1, where j and s
# count from 0. The answers leave in the same order, and the first workers push again while the last answers
# are sent. So a round takes the time of p + S messages of n / S bytes:
#
#     T = (p + S) (latency + n / (S bandwidth)),    about (1 + p / S) n / bandwidth

# %%
print("\n2. All workers send to one server")
GIGABIT = Link(50e-6, 1.25e8)
N = sum(p.size for p in network().parameters())
ROUNDS, PS, SS = 4, (1, 2, 4, 8, 16), (1, 2, 4, 8)


def a_round(p, servers):
    """Bytes into and out of each server in a round, and its seconds."""
    run = served(np.full((p, ROUNDS), 1e-9), servers, GIGABIT, batch=1, staleness=0)
    into, out = np.zeros((2, servers))
    for message in run.cluster.transfers:
        if message.tag == PUSH:
            into[message.destination - p] += message.nbytes / ROUNDS
        if message.tag == PULL:
            out[message.source - p] += message.nbytes / ROUNDS
    updates = {a.update: a.time for a in run.applied}
    return into, out, (updates[ROUNDS - 1] - updates[1]) / (ROUNDS - 2)


def round_formula(p, servers):
    return (p + servers) * GIGABIT.seconds(4 * N / servers)


# %%
measured = {}
for servers in SS:
    part = np.array([4 * (cut.stop - cut.start) for cut in shares(N, servers)])  # bytes; float32
    for p in PS:
        into, out, measured[p, servers] = a_round(p, servers)
        assert (out == p * (part + 4)).all(), f"out {out}, expected {p * (part + 4)}"  # and the version
        few = (into >= p * (part + 4 * 5)) & (into <= p * (part + 4 * 8))  # and five to eight numbers
        assert few.all(), f"in {into}, expected about {p * part}"
        measurement, formula = measured[p, servers], round_formula(p, servers)
        assert abs(measurement / formula - 1) < 0.01, (
            f"p = {p}, S = {servers}: {measurement:.5f} s, formula {formula:.5f}"
        )
print(f"   n = {4 * N / 1e6:.2f} MB. Into a server's link, MB a round; ms a round (formula)")
print("    p  " + "".join(f"{f'S = {servers}':18}" for servers in SS).rstrip())
for p in PS:
    cells = (
        f"{4e-6 * N * p / s:4.2f} {1e3 * measured[p, s]:4.1f} ({1e3 * round_formula(p, s):4.1f})  "
        for s in SS
    )
    print(f"   {p:2}  " + "".join(cells).rstrip())

# %%
save(
    drawings.contention(measured, round_formula, PS, SS, 4 * N / GIGABIT.bandwidth),
    FIGURES / "contention.png",
)

# %% [markdown]
# With as many servers as workers a round takes about 2 n / bandwidth, like the ring all-reduce: there each
# rank *is* a server, for a p-th of the gradient.
#
# Read: Li et al. 2014 (OSDI), "Scaling distributed machine learning with the parameter server".
#
# ## 3. What staleness costs
# Take the simplest loss, w² / 2, whose gradient is w. With staleness tau, w <- w - lr w_(tau updates ago).
# When w has passed the minimum, an old gradient still points the other way: w oscillates. For which
# learning rates do the oscillations become smaller? The update is linear, so w is a sum of powers z^t. Put
# w = z^t: z^(tau+1) - z^tau + lr = 0, and all |z| < 1 if and only if
#
#     lr < 2 sin(pi / (4 tau + 2)),     about pi / (2 tau + 1)     (Levin and May 1976)
#
# So the largest learning rate falls with 1 / tau. On a loss c w² / 2 it is c times smaller.

# %%
print("\n3. What staleness costs")


def swings(rate, tau, steps=2000):
    """w from 1, updated by gradients of w² / 2 that are tau updates old."""
    w = [1.0] * (tau + 1)
    for _ in range(steps):
        w.append(w[-1] - rate * w[-1 - tau])
    return np.array(w[tau:])


TAUS = (0, 1, 2, 4, 8, 16)
limit = {tau: 2 * np.sin(np.pi / (4 * tau + 2)) for tau in TAUS}
for tau, rate in limit.items():
    below, above = (abs(swings(factor * rate, tau))[-100:].max() for factor in (0.97, 1.03))
    assert below < 0.1 and above > 10, (
        f"tau {tau}: |w| ends at {below:.1e} below the limit, {above:.1e} above"
    )
shown = "  ".join(f"{tau}: {rate:.3f}" for tau, rate in limit.items())
print(f"   w²/2: largest rate that converges, by tau:\n      {shown}")

# %% [markdown]
# Now the digits. To try many settings we do not need ranks: p equal workers are a queue of p gradients,
# each computed with the parameters of its time. The oldest leaves the queue first, tau = p - 1 updates old.
# That is one loop on one machine. It can also use the *staleness-aware* learning rate of Zhang et al.: lr /
# tau, so that an old gradient moves the parameters less.


# %%
def delayed(samples, tau, rate, aware=False):
    """The network after training with gradients that are ``tau`` updates old.

    With ``aware`` a gradient of staleness tau > 0 moves the parameters by rate / tau.
    """
    model, under_way = network(), deque()
    optimizer, updates = sgd(model.parameters()), itertools.count()

    def apply():
        staleness = min(next(updates), tau)  # the first ones are younger
        optimizer.lr = rate / max(staleness, 1) if aware else rate
        for parameter, gradient in zip(model.parameters(), under_way.popleft(), strict=True):
            parameter.grad = gradient
        optimizer.step()

    for batch in samples:
        optimizer.zero_grad()
        Serial().step(model, batch, ops.cross_entropy)
        under_way.append([parameter.grad for parameter in model.parameters()])
        if len(under_way) > tau:
            apply()
    while under_way:
        apply()
    return model


# %% [markdown]
# Five workers of the library's strategy, and the queue with tau = 4, must have the same weights to the last
# bit, with both learning rates. (With `stale_rate="naive"` the server ignores staleness, with "divided" it
# uses lr / tau. The library's default is a third rule, at the end of this part.)

# %%
for aware in (False, True):
    real = served(np.ones((5, 20)), stale_rate="divided" if aware else "naive").states
    in_turn = (batch[share] for batch in batches(5 * BATCH, 20) for share in shares(len(batch), 5))
    queued = delayed(in_turn, tau=4, rate=0.05, aware=aware).state_dict()
    differs = max(abs(state[name] - queued[name]).max() for state in real for name in queued)
    assert differs == 0, f"the workers' weights differ from the queue's by {differs:.1e}"
print("   five workers and a server end with the bits of a queue of five gradients")


def loss_of(model, data=digits.train):
    return ops.cross_entropy(model(Tensor(data.x)), data.y).item()


def after_training(tau, rate, aware=False, epochs=2, seeds=(0, 1)):
    """The loss on the training digits, the mean over orders of the samples."""
    orders = (
        [b for e in range(epochs) for b in minibatches(digits.train, BATCH, seed=s, epoch=e)] for s in seeds
    )
    return np.mean([loss_of(delayed(order, tau, rate, aware)) for order in orders])


# %% [markdown]
# Now the loss after two epochs, for two learning rates, each with and without the division by tau.

# %%
FEW = (0, 4, 8, 16)
losses = {rate: [after_training(tau, rate) for tau in FEW] for rate in (0.2, 0.05)}
careful = {
    rate: [row[0], *(after_training(tau, rate, True) for tau in FEW[1:])] for rate, row in losses.items()
}
print("   loss on the training digits by tau: " + "".join(f"{tau:8}" for tau in FEW))
for rate in losses:
    for name, table in ((f"lr {rate}", losses), (f"lr {rate} / tau", careful)):
        print(f"      {name:29}    " + "".join(f"{loss:8.3f}" for loss in table[rate]))
fast, slow = losses[0.2], losses[0.05]
assert fast[3] > fast[2] > 3 * fast[1] and slow[3] > 1.2 * slow[1], losses  # harm grows with tau ...
assert fast[2] / fast[0] > 3 > slow[2] / slow[0] and fast[3] / fast[0] > slow[3] / slow[0], losses  # and lr
rescued = careful[0.2]  # lr / tau helps where tau is large, and costs where it is small
assert rescued[2] < 0.5 * fast[2] and rescued[3] < 0.5 * fast[3], f"lr / tau {rescued}, lr {fast}"
assert rescued[1] > 1.05 * fast[1] and careful[0.05][1] > 1.5 * slow[1], f"{careful}, {losses}"

# %%
save(drawings.cost_of_staleness(swings, limit, FEW, losses, careful), FIGURES / "cost_of_staleness.png")

# %% [markdown]
# Momentum makes it far worse. With v <- m v + w_(tau updates ago) and w <- w - lr v the largest learning
# rate is 2 (1 + m) for tau = 0: momentum helps. For tau = 1 it is 1 - m, since the product of both roots of
# z^2 - (1 + m) z + m + lr must be less than 1. For m = 0.9 that is 0.1 instead of 3.8: one stale update
# costs a factor of 38. For any tau, training converges if and only if all roots of z^tau (z - 1) (z - m) +
# lr z = 0 have |z| < 1.


# %%
def largest_rate(tau, momentum):
    """The largest learning rate with which w² / 2 converges, by bisection."""
    low, high = 0.0, 4.0
    for _ in range(40):
        rate = (low + high) / 2
        polynomial = np.zeros(tau + 3)
        polynomial[:3] = 1, -1 - momentum, momentum
        polynomial[-2] += rate
        low, high = (rate, high) if abs(np.roots(polynomial)).max() < 1 else (low, rate)
    return low


heavy = {tau: largest_rate(tau, 0.9) for tau in TAUS}
for tau in TAUS:
    largest = largest_rate(tau, 0.0)
    assert abs(largest - limit[tau]) < 1e-6, (
        f"tau {tau}: by its roots {largest:.6f}, by the formula {limit[tau]:.6f}"
    )
assert abs(heavy[0] - 3.8) < 1e-6 and abs(heavy[1] - 0.1) < 1e-6, heavy
print("   the same with momentum 0.9:\n      " + "  ".join(f"{t}: {r:.3f}" for t, r in heavy.items()))

# %% [markdown]
# Take the settings of one machine, lr 0.1 and momentum 0.9 for batches of 64, and give each of W workers a
# W-th of the batch. Then two things are wrong: the server makes W updates where one machine makes one, and
# each gradient is W - 1 updates old. With two workers it trains, but worse; with four it does not train.
#
# Two factors help. A W-th of a batch takes a W-th of the learning rate (the linear scaling rule of lesson
# 07). A gradient that is d = tau / W batches late takes 1 / (1 + d) of that. Together this is lr / (W +
# tau), the library's default ("damped"): the division of Zhang et al., but counted in batches. (A smaller
# momentum helps as well, since asynchrony acts like momentum: Mitliagkas et al. 2016. More is in
# [stale_rates.py](../../backends/stale_rates.py).)

# %%
RATES = ("naive", "divided", "damped")


def with_momentum(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9)


def accuracy_by(stale_rate, workers, steps=160):
    """On the test digits, after two epochs in which all workers are equal."""
    run = served(np.ones((workers, steps)), batch=64 // workers, method=with_momentum, stale_rate=stale_rate)
    model = network()
    model.load_state_dict(run.states[0])
    return accuracy(model, digits.test)


MANY = (1, 2, 4, 8)
reached = {name: [accuracy_by(name, workers) for workers in MANY] for name in RATES}
print("   test accuracy, momentum 0.9, by workers:    " + "".join(f"{w:8}" for w in MANY))
for name, accuracies in reached.items():
    print(f"      {name:38}   " + "".join(f"{100 * x:6.1f} %" for x in accuracies))
assert len({accuracies[0] for accuracies in reached.values()}) == 1, reached  # one worker: nothing is stale
assert max(reached["naive"][2:]) < 0.5 < 0.7 < min(reached["damped"]), reached

# %%
save(drawings.momentum(TAUS, limit, heavy, MANY, reached), FIGURES / "momentum.png")

# %% [markdown]
# Read: Levin and May 1976, Theoretical Population Biology 9, pages 178-187; Zhang et al. 2016,
# arXiv:1511.05950, section 3; Mitliagkas et al. 2016, arXiv:1605.09774.
#
# ## 4. One worker is slow
# The gain is that no worker waits for a *straggler*, a worker that is slower than the others. Three rules,
# all with four workers and one server:
#
# - *synchronous* (`staleness=0`): an update is the mean of four gradients, and all wait for the slowest;
# - *bounded* (`staleness=3`, "stale synchronous parallel"): the same updates, but a worker may be up to
#   three steps ahead of the slowest;
# - *asynchronous*: every gradient is an update, and no worker waits.
#
# There is no momentum, and the learning rate is small and the same for all, to compare only the waiting.
#
# A worker begins a step when it has done the step before; with bound s, also all workers must have done the
# step that is s + 1 earlier. So we can compute when it has done each step:

# %%
print("\n4. One worker is slow")


def done_times(seconds, bound):
    """When worker w has done its k-th step, [w, k]; with ``bound`` None no worker waits."""
    done = np.zeros(seconds.shape)
    for k in range(seconds.shape[1]):
        begin = done[:, k - 1] if k else 0.0
        if bound is not None and k > bound:
            begin = np.maximum(begin, done[:, k - bound - 1].max())
        done[:, k] = begin + seconds[:, k]
    return done


# %% [markdown]
# There are two kinds of stragglers. Either worker 3 is always four times slower. Or all workers are alike,
# and in one of ten steps a gradient takes six times as long. An update by the mean of four gradients has
# four times the learning rate, so that the same samples change the weights as much (lesson 07 again). We
# stop the clock when the first asynchronous worker has done all its steps.

# %%
RULES = {"synchronous": 0, "bounded, s = 3": 3, "asynchronous": None}
one_slow = np.ones((4, 80))
one_slow[3] = 4.0
now_and_then = np.where(np.random.default_rng(4).random((4, 80)) < 0.1, 6.0, 1.0)
judge = network()


def loss_with(weights):
    FlatLayout(judge.parameters()).load(weights)
    return loss_of(judge, digits.test)


# %%

scenes = {}
for scene, seconds in (("worker 3 is always slow", one_slow), ("each is slow now and then", now_and_then)):
    end = seconds.sum(axis=1).min()
    print(f"   {scene}; after {end:.0f} s:")
    scenes[scene] = {}
    for name, bound in RULES.items():
        method = sgd if bound is None else lambda parameters: optim.SGD(parameters, 4 * 0.05)
        keep = 8 if bound is None else 2  # 8 gradients
        run = served(seconds, staleness=bound, method=method, keep=keep, stale_rate="naive")
        for worker, done in enumerate(done_times(seconds, bound)):
            late = max(abs(np.array([stop for w, _, stop in run.computed if w == worker]) - done))
            assert late <= 1e-9, f"{name}: worker {worker} is {late:g} s off done_times, allowed 1e-9"
        samples = BATCH * sum(a.time <= end for a in run.applied)
        curve = [(time, loss_with(weights)) for time, weights in run.weights if time <= end]
        scenes[scene][name] = run, samples, curve
        stale = max(a.staleness for a in run.applied if a.time <= end)
        print(
            f"     {name:14} {samples:5} samples, {1e3 * end / samples:4.1f} ms each, "
            f"staleness up to {stale:2}, loss {curve[-1][1]:.3f}"
        )

# %%
save(drawings.slow_worker(scenes), FIGURES / "slow_worker.png")

# %%
used = {scene: [samples for _, samples, _ in of_scene.values()] for scene, of_scene in scenes.items()}
final = {scene: [curve[-1][1] for *_, curve in of_scene.values()] for scene, of_scene in scenes.items()}
always, sometimes = scenes
expected = BATCH * 80, BATCH * (3 * 80 + 20)  # in 4 s: 4 gradients; 13
assert (used[always][0], used[always][2]) == expected, f"{used[always]} samples, expected {expected}"
assert 0 <= used[always][1] - used[always][0] <= BATCH * 4 * 3, used  # three steps ahead, once
assert final[always][1] > final[always][0], final
assert used[sometimes][0] < 0.9 * used[sometimes][1] < 0.9 * used[sometimes][2], used
for scene in scenes:
    assert final[scene][2] < final[scene][0], f"{scene}: loss {final[scene]}"

# %% [markdown]
# The bounded rule does not help against a worker that is *always* slow: the others are soon three steps
# ahead, and then they wait as with the synchronous rule, with stale gradients in addition. It helps where
# each worker is slow now and then. The asynchronous server never waits. But only one gradient of thirteen
# is worker 3's: if its samples differ from the other workers' samples, they count less.
#
# Read: Ho et al. 2013 (NeurIPS), "More effective distributed ML via a stale synchronous parallel parameter
# server".
#
# ## 5. Many servers are one server
# Each server applies the gradients to its part of the parameters, and SGD, momentum and Adagrad (lesson 01)
# treat each parameter by itself. So S servers give the bits of one, *if all of them apply the gradients in
# the same order*. We try three rules: asynchronous, bounded, and *n-softsync* (Zhang et al. 2016), which is
# between asynchronous and synchronous. With n-softsync the server collects floor(p / n) gradients of the p
# workers and updates with their mean, so that the mean staleness is about n. With n = p it is asynchronous.

# %%
print("\n5. Many servers are one server")
names, layout = list(network().named_parameters().keys()), FlatLayout(network().parameters(), 3)
pieces = [" ".join(names[piece.n] for piece in layout.segments(server)) for server in range(3)]
print(f"   three servers hold parts of: {'; '.join(pieces)}")


def adagrad(parameters):
    return optim.Adagrad(parameters, 0.01)


def bits(run):
    return np.concatenate([value.ravel() for value in run.states[0].values()])


for settings in ({}, {"staleness": 2}, {"softsync": 2}):
    one, *others = (served(drawn[:4, :8], s, method=adagrad, **settings) for s in (1, 2, 3))
    for other in others:
        differs = abs(bits(other) - bits(one)).max()
        assert differs == 0 and other.counts == one.counts, (
            f"{settings}: differs from one server by {differs:.1e}"
        )
print("   messages that take no time: 1, 2 and 3 servers end with the same bits")

# %% [markdown]
# On a real network two servers may receive two gradients in different orders. Then a worker computes with
# parts of the parameters that have different versions. Here each push leaves up to half a second late. For
# synchronous servers the delay makes no difference: they add a step's gradients in the order of the ranks.

# %%
for name, bound in (("asynchronous", None), ("synchronous", 0)):
    one, three = (served(drawn[:4, :8], s, late=0.5, method=adagrad, staleness=bound) for s in (1, 3))
    same = (bits(one) == bits(three)).all()
    words = f"of mixed versions; the bits {'equal' if same else 'differ from'} one server's"
    print(f"   late pushes, {name + ':':13} {np.mean(three.mixed):3.0%} of the gradients are {words}")
    mixed, of_one = np.mean(three.mixed), np.mean(one.mixed)
    right = of_one == 0 and (mixed > 0) == (bound is None) and same == (bound == 0)
    assert right, (
        f"{name}: mixed versions with three servers {mixed:.0%}, with one {of_one:.0%}; same bits: {same}"
    )

# %% [markdown]
# Read: Zhang et al. 2016, arXiv:1511.05950 (n-softsync); Li et al. 2014 (OSDI), the section on
# consistency.
#
# ## 6. No server at all: one-sided communication
# Does the server need a program? With MPI a rank can expose an array in a *window*. Others read it (`Get`)
# and add to it (`Accumulate`) without any code on that rank. Each number is added atomically, so nothing is
# lost. But there is no version: a rank that reads may see half of another's gradient. *Hogwild* (Recht et
# al. 2011) trains so on purpose, with threads that update shared weights without locks; it works best where
# gradients are sparse, so that two threads rarely change the same weight.
# ([minigrad_course/machines/one_sided.py](../minigrad_course/machines/one_sided.py) has the window.)
#
# The difficulty is *progress*. Where a rank cannot reach the array itself (on another machine, or in memory
# that is not shared), the MPI library of the target has to act, and most do so only while the target is
# inside MPI. If it computes, all wait: that is why `ParameterServer` has servers that only serve. In
# [one_sided.py](one_sided.py) rank 0 exposes an array, once in memory that the ranks share, once in private
# memory, as on another machine. The others add to it while rank 0 computes, or waits. Then they train.

# %%
print("\n6. No server at all: one-sided communication")
nothing = ["   needs MPI processes; run: minigrad run -n 3 lessons/08_parameter_server/lesson.py"]
print(*(sums or nothing), sep="\n")

# %% [markdown]
# Read: Recht et al. 2011 (Hogwild), arXiv:1106.5730; the MPI standard, the chapter on one-sided
# communication.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - With one worker, or with staleness 0, the server trains like one machine; and for any drawn computing
#   times, workers, servers and rules, training equals the list of events that a simulation predicts:
#   [tests](../../tests/backends/data_parallel/parameter_server/test_parameter_server.py).
# - No worker is further ahead than the bound, every push is applied exactly once, and several servers have
#   the bits of one where all apply the gradients in one order:
#   [tests](../../tests/backends/data_parallel/parameter_server/test_parameter_server.py), which [catch
#   servers with one error](../../tests/backends/data_parallel/parameter_server/test_broken_servers.py).
# - If a worker or a server fails, the others continue or all end with one error, never in silence:
#   [tests](../../tests/backends/data_parallel/parameter_server/test_server_faults.py).
# - The default learning rate lr / (W + tau) trains nearly as one machine, for 2 to 8 workers on the cases
#   of its [tests](../../tests/backends/test_stale_rates.py).
#
# Only this lesson proves, on its own cases, the limit 2 sin(pi / (4 tau + 2)) from both sides, that a queue
# of gradients has the bits of equal workers, and the time of a round within 1 %. Not proved: the losses and
# accuracies of parts 3 and 4, and the times of part 6, which your machine measures.
#
# Next: [lesson 09](../09_model_averaging/lesson.py): instead of late gradients, ranks can exchange whole
# models, and only now and then.
