"""Lesson 09. Model averaging: train apart, communicate rarely, and take the mean of the models.

Lecture section: ParallelSGD. One average at the very end, why it needs a common start, an average every few
steps (local SGD), models that are tied to a center (elastic averaging), and an outer optimizer (DiLoCo).
Survey: Ben-Nun and Hoefler 2019, arXiv:1802.09941, section 7.

The slide asks: can ranks train without messages and average their models, and how often must they average?

You need: lesson 01, momentum and the cosine schedule; lesson 05, the ring all-reduce and its messages; lesson
06, synchronous data parallelism; what a convex function is.

Time: about 45 minutes; the program runs for about 40 seconds.

After this you can: say for which losses the mean of models is never worse than the models; reorder hidden
neurons and explain why a common start matters; compute the bytes of local SGD for a period H; derive what the
springs of elastic averaging conserve; compute an outer step of DiLoCo.

    python lessons/09_model_averaging/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/09_model_averaging/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import math
from itertools import pairwise

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from minigrad import Tensor, mnist, nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.lr_schedules import cosine
from minigrad.serial import Serial
from minigrad.train import accuracy, fit

FIGURES = start_lesson("09_model_averaging")

# %% [markdown]
# Four ranks train networks on the digits. `learn` is the training of one rank on its own samples, with a
# cosine schedule (lesson 01). `state_dict` has a model's parameters by name, so `mean` below is the mean of
# models.

# %%
digits = mnist.load("mnist5k")  # 5,000 to learn from, in no particular order, and 1,000 to test on
RANKS, BATCH, RATE = 4, 25, 0.2


def network(seed):
    rng = np.random.default_rng(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128, rng=rng), nn.ReLU(), nn.Linear(128, 10, rng=rng))


def loss_of(model, data):
    return ops.cross_entropy(model(Tensor(data.x)), data.y).item()


def learn(backend, model, mine, epochs, on_step=None, rate=RATE, momentum=0.0):
    """Train on the samples of this rank alone."""
    model = backend.place(model)
    fit(
        model,
        optim.SGD(model.parameters(), rate, momentum=momentum),
        ops.cross_entropy,
        mine,
        backend=backend,
        epochs=epochs,
        batch_size=BATCH,
        schedule=cosine(rate, epochs * math.ceil(len(mine) / BATCH)),
        on_step=on_step,
    )
    return model


# %% [markdown]
# ## 1. One average, at the very end
# Synchronous training communicates in every step. The other extreme is ParallelSGD: each rank trains its
# own model on its own quarter of the data without any message, and at the end the four models are averaged,
# weight by weight. That is a single all-reduce in the whole run.
#
# How good is the mean of four models? A linear model has a *convex* loss: on a straight line between two
# models the loss is never above the line between their losses. For a convex loss the mean is never worse
# than the models are on average, wherever they started (Jensen's inequality): loss(mean of the models) <=
# mean of the losses. For this case Zinkevich et al. prove that the mean converges. Here are four linear
# models from four different starts, trained for two epochs (passes through the data):

# %%
print("1. One average, at the very end")


def mean(states):
    return {name: np.mean([state[name] for state in states], axis=0) for name in states[0]}


def linear(seed):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10, rng=np.random.default_rng(seed)))


quarters = [digits.train[share] for share in shares(len(digits.train), RANKS)]
models = [learn(Serial(), linear(seed), mine, epochs=2) for seed, mine in enumerate(quarters)]
middle = linear(0)
middle.load_state_dict(mean([model.state_dict() for model in models]))
of_each, of_mean = [loss_of(model, digits.test) for model in models], loss_of(middle, digits.test)
print(f"   linear models, test loss: alone {' '.join(f'{x:.3f}' for x in of_each)}, their mean {of_mean:.3f}")
assert of_mean <= np.mean(of_each), f"the mean's loss {of_mean:.4f}, the mean loss {np.mean(of_each):.4f}"

# %% [markdown]
# The loss of a network with hidden neurons is not convex. Then the mean depends on where the models
# started: all from the same random weights, or each from its own. We also look at what the mean *would* be
# after every epoch.


# %%
def quality(state, data=digits.test):
    """Accuracy and loss of the network with these parameters."""
    model = network(0)
    model.load_state_dict(state)
    return accuracy(model, data), loss_of(model, data)


def parallel_sgd(same_start):
    """All ranks' parameters after every epoch, [rank][epoch], and the parameters of the averaged model."""
    after = [[] for _ in range(RANKS)]

    def work(comm):
        mine = digits.train[shares(len(digits.train), RANKS)[comm.rank]]
        in_epoch = len(mine) // BATCH
        model = network(seed=comm.rank)

        def look(step, loss):
            if (step + 1) % in_epoch == 0:
                after[comm.rank].append(model.state_dict())

        backend = ParallelSGD(comm, same_start=same_start, local_batches=True)
        return learn(backend, model, mine, epochs=10, on_step=look).state_dict()

    return after, run_ranks(RANKS, work)[0]


# %%
one_shot, curves = {}, {}
for start in ("same", "different"):
    after, averaged = parallel_sgd(same_start=start == "same")
    one_shot[start] = [states[-1] for states in after]
    for name, value in mean(one_shot[start]).items():
        np.testing.assert_allclose(averaged[name], value, rtol=1e-4, atol=1e-6)
    alone = np.array([[quality(state) for state in states] for states in after])
    together = np.array([quality(mean(states)) for states in zip(*after, strict=True)])
    curves[start] = alone[..., 0], together[:, 0]
    words = " ".join(f"{a:.1%}" for a in alone[:, -1, 0])
    print(f"   {start + ' start:':16} test accuracy alone {words}, of their mean {together[-1, 0]:.1%}")
    (right, loss), (rights, losses) = together[-1], alone[:, -1].T
    both = f"the mean {right:.3f} and loss {loss:.3f}, alone {rights.round(3)} and {losses.round(3)}"
    if start == "same":  # better than each of them ...
        assert right > rights.max() and loss < losses.min(), both
    else:  # ... and worse than each of them
        assert right < rights.min() - 0.03 and loss > 1.5 * losses.max(), both

# %%
save(drawings.one_average(*curves["same"], *curves["different"]), FIGURES / "one_average.png")

# %% [markdown]
# Read: Zinkevich, Weimer, Smola and Li 2010 (NeurIPS), "Parallelized stochastic gradient descent".
#
# ## 2. Why the start matters: hidden neurons have no order
# Exchange two hidden neurons of a network, with all their weights: the outputs are the same. So each
# network with 128 hidden neurons has 128! twins: networks with the same outputs, and the same weights in
# another order.

# %%
print("\n2. Hidden neurons have no order")


def reorder(state, order):
    """The network of ``state`` with its hidden neurons in another order."""
    w, b, out, bias = state.values()
    return dict(zip(state, (w[order], b[order], out[:, order], bias), strict=True))


a = one_shot["different"][0]
twin = reorder(a, np.random.default_rng(0).permutation(128))
print(f"   a network {quality(a)[0]:.1%}, its twin {quality(twin)[0]:.1%}, ", end="")
print(f"their mean {quality(mean([a, twin]))[0]:.1%}")
np.testing.assert_allclose(quality(twin), quality(a), rtol=1e-4)
of_mean, of_one = quality(mean([a, twin]))[1], quality(a)[1]
assert of_mean > 1.2 * of_one, f"loss of the mean {of_mean:.3f}, of each {of_one:.3f}"

# %% [markdown]
# From the same start, neuron 5 becomes similar on all ranks, and the mean is a similar neuron. From
# different starts, neuron 5 of one rank has nothing in common with neuron 5 of another.
#
# But it may be similar to neuron 77. For each neuron of one network we look for the most similar neuron of
# the other, greedily: the most similar pair first. In that order the networks can be averaged.


# %%
def match(state, to):
    """``state`` with its hidden neurons in the order of the similar ones of ``to``."""
    mine, other = (np.hstack([s["1.weight"], s["1.bias"][:, None], s["3.weight"].T]) for s in (to, state))
    similarity, order = mine @ other.T, np.empty(len(mine), int)
    for _ in order:
        i, j = np.unravel_index(similarity.argmax(), similarity.shape)
        order[i] = j
        similarity[i], similarity[:, j] = -np.inf, -np.inf  # both are taken
    return reorder(state, order)


matched = [match(state, to=a) for state in one_shot["different"]]
np.testing.assert_array_equal(match(twin, to=a)["1.weight"], a["1.weight"])
of_different, of_matched = quality(mean(one_shot["different"]))[0], quality(mean(matched))[0]
print(f"   four networks from different starts: their mean {of_different:.1%}, matched {of_matched:.1%}")
assert of_matched > of_different + 0.03, f"matched {of_matched:.3f}, not matched {of_different:.3f}"

# %% [markdown]
# Now go in a straight line from one network to the other, in the space of weights; the mean is the middle. A
# *barrier* is a loss on this line above the losses of both ends.
#
# Read: Entezari et al. 2022, arXiv:2110.06296; Ainsworth et al. 2023 (Git Re-Basin), arXiv:2209.04836.

# %%
way = np.linspace(0, 1, 11)


def losses_between(one, other):
    blends = ({name: (1 - t) * one[name] + t * other[name] for name in one} for t in way)
    return [quality(blend)[1] for blend in blends]


pairs = {
    "same start": one_shot["same"][:2],
    "different starts": one_shot["different"][:2],
    "different starts, matched": matched[:2],
}
between = {name: losses_between(*pair) for name, pair in pairs.items()}
barriers = {name: max(losses) / max(losses[0], losses[-1]) - 1 for name, losses in between.items()}
for name, barrier in barriers.items():
    highest = f"{barrier:.0%} above both ends" if barrier > 0 else "none above the ends"
    print(f"   highest loss between two networks, {name + ':':26} {highest}")
assert barriers["different starts"] > 0.3 > 0.1 > barriers["different starts, matched"], barriers
assert barriers["same start"] < 0.1, barriers

# %%
save(drawings.neurons(way, between, pairs), FIGURES / "neurons.png")

# %% [markdown]
# ## 3. Local SGD: an average every H steps
# Local SGD is between an average in every step and one at the end: each rank takes H steps alone, then all
# replace their models by the mean, and continue. With H = 1 that *is* synchronous training: the mean of the
# ranks' steps is the step of their mean gradient. We check it with three ranks, batches that three does not
# divide, and momentum (the library averages the velocities too):

# %%
print("\n3. Local SGD")
some = Batch(digits.train.x[:800].astype(np.float64), digits.train.y[:800])


def after_8_steps(backend):
    model = backend.place(network(0).to(dtype=np.float64))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    fit(model, optimizer, ops.cross_entropy, some, backend=backend, batch_size=100)
    return model.state_dict()["1.weight"]


serial = after_8_steps(Serial())
for rank, state in enumerate(run_ranks(3, lambda comm: after_8_steps(LocalSGD(comm, period=1)))):
    error = np.abs(state - serial).max() / np.abs(serial).max()
    print(f"   H = 1: the weights of rank {rank} differ from one machine's by {error:.0e} at most")
    assert error < 1e-12, f"rank {rank}: differs by {error:.1e}, allowed 1e-12"

# %% [markdown]
# A larger H needs fewer messages, but between two averages the models drift apart. How far depends on the
# data. "Mixed": each rank has a random quarter of the digits. "Sorted": the digits are sorted, so that rank
# 0 has only 0, 1 and half of the 2, as in places that may not exchange their data. `Traced` counts what
# each rank sends, with the broadcast of rank 0's weights at the start.

# %%
STEPS = 6 * 1250 // BATCH  # each rank goes through its 1,250 digits six times
sorted_digits = digits.train[np.argsort(digits.train.y, kind="stable")]


def averaged(data, make, **settings):
    """The model's parameters after the last average, and what rank 0 sent."""

    def work(comm):
        comm, mine = Traced(comm), data[shares(len(data), comm.size)[comm.rank]]
        model = learn(make(comm), network(seed=0), mine, epochs=6, **settings)
        return model.state_dict(), comm.record.ledger.sent()

    return run_ranks(RANKS, work)[0]


makers = {
    H: lambda comm, H=H: LocalSGD(comm, ring_allreduce, period=H, local_batches=True) for H in (1, 4, 16, 64)
}
makers[STEPS] = lambda comm: ParallelSGD(comm, ring_allreduce, local_batches=True)
results, sent, local_models = {"mixed": {}, "sorted": {}}, {}, {}
for share, data in (("mixed", digits.train), ("sorted", sorted_digits)):
    for H, make in makers.items():
        state, sent[H] = averaged(data, make)
        local_models[share, H] = state
        results[share][H] = quality(state, digits.train)[1], quality(state)[0]
print("      H   rank 0 sends  mixed: loss, accuracy sorted: loss, accuracy")
for H, (_, nbytes) in sent.items():
    (loss, right), (other_loss, other_right) = results["mixed"][H], results["sorted"][H]
    print(f"   {H:4} {nbytes / 1e6:11.1f} MB {loss:14.3f}, {right:.1%} {other_loss:14.3f}, {other_right:.1%}")

# %%
mixed, ordered = ([loss for loss, _ in results[share].values()] for share in ("mixed", "sorted"))
assert max(mixed[:4]) < 1.05 * min(mixed[:4]), mixed  # mixed: nothing is lost with a 64th of the messages
for less, more in pairwise(ordered):  # sorted: the drift grows with H
    assert more > 1.1 * less, f"sorted: loss {less:.3f}, with the next H {more:.3f}"
assert abs(ordered[0] - mixed[0]) < 0.05 * mixed[0], f"H = 1: mixed {mixed[0]:.3f}, sorted {ordered[0]:.3f}"
for H, (messages, _) in sent.items():  # a ring all-reduce sends 2 (p - 1) messages; there are ceil(steps / H)
    more, formula = messages - sent[STEPS].messages, 2 * (RANKS - 1) * (math.ceil(STEPS / H) - 1)
    assert more == formula, f"H = {H}: {more} messages more than one average, formula {formula}"

# %%
save(drawings.local_sgd(results, sent), FIGURES / "local_sgd.png")

# %% [markdown]
# Read: Stich 2019, "Local SGD converges fast and communicates little", arXiv:1805.09767; McMahan et al. 2017
# (federated averaging, with sorted data), arXiv:1602.05629.
#
# ## 4. Elastic averaging: springs instead of jumps
# Local SGD replaces every model by the mean. Elastic averaging (EASGD) ties each model x to a center c by a
# spring instead. Every H steps
#
#     d_i = alpha (x_i - c)        the pull of spring i
#     x_i <- x_i - d_i             each model moves towards the center
#     c   <- c + d_1 + ... + d_p   the center moves towards the models
#
# The center gains what the models lose: the sum of all x and c does not change. At the end the center is
# the trained model. The example is a model of two weights, y = w_1 x_1 + w_2 x_2; the data of each rank
# have another minimum.

# %%
print("\n4. Elastic averaging")
rng = np.random.default_rng(0)
targets = np.array([[-2.0, 1.0], [2.0, 2.0], [1.5, -1.5], [-1.5, -1.0]])
inputs = rng.normal(size=(RANKS, 50, 2)) * [[[1.0, 0.4]], [[0.4, 1.0]], [[1.0, 0.6]], [[0.6, 1.0]]]
own = [Batch(x, (x @ w)[:, np.newaxis]) for x, w in zip(inputs, targets, strict=True)]
best = np.linalg.lstsq(inputs.reshape(-1, 2), np.concatenate([batch.y for batch in own]), rcond=None)[0][:, 0]


def two_weights(make):
    """The path of each rank's model and center, [rank, time, model or center, weight].

    It has the start, the place after every step, and the place before each exchange.
    """
    diary = [[] for _ in range(RANKS)]

    def work(comm):
        backend = make(comm)
        model = backend.place(nn.Linear(2, 1, bias=False, rng=np.random.default_rng(3), dtype=np.float64))
        exchange = backend.exchange

        def note(*_):
            w = model.weight.data[0]
            diary[comm.rank].append(np.array([w, getattr(backend, "center", w)]))

        def watched(model):
            note()
            exchange(model)

        backend.exchange = watched
        note()
        optimizer = optim.SGD(model.parameters(), 0.1)
        fit(model, optimizer, ops.mse, own[comm.rank], backend=backend, epochs=48, on_step=note)

    run_ranks(RANKS, work)
    return np.array(diary)


# %%
jumps = two_weights(lambda comm: LocalSGD(comm, period=8, local_batches=True))
pulled = two_weights(lambda comm: ElasticAveraging(comm, period=8, local_batches=True))
before, after = pulled[:, 8::9], pulled[:, 9::9]  # start, 7 steps, the 8th before and after its exchange, ...
total_before, total_after = (x[:, :, 0].sum(axis=0) + x[0, :, 1] for x in (before, after))
np.testing.assert_allclose(total_after, total_before, atol=1e-12)
assert not np.allclose(before[0, :, 1], after[0, :, 1], atol=1e-6), "the center does not move"
assert (pulled[:, :, 1] == pulled[0, :, 1]).all(), "the ranks have different centers"
apart = np.linalg.norm(pulled[:, -1, 0] - best, axis=1)
of_center = np.linalg.norm(pulled[0, -1, 1] - best)
print(f"   two weights: distance of the ranks from the best for all: {' '.join(f'{d:.2f}' for d in apart)},")
print(f"   of their center: {of_center:.2f}")
assert of_center < 0.5 * apart.min(), f"the center {of_center:.3f}, the ranks {apart.round(3)}"

# %%
save(drawings.springs(own, targets, best, jumps, pulled), FIGURES / "springs.png")

# %% [markdown]
# On the digits the center follows the ranks slowly, and in a short run it is far from where they are. With
# sorted shares the springs hold the ranks together less than the mean does. (In the authors' long runs with
# convolutional networks elastic averaging was ahead: there it helped that the ranks explore different
# weights.)
#
# Read: Zhang, Choromanska and LeCun 2015, arXiv:1412.6651.

# %%
by_share = {}
for share, data in (("mixed", digits.train), ("sorted", sorted_digits)):
    state, _ = averaged(
        data, lambda comm: ElasticAveraging(comm, ring_allreduce, period=16, local_batches=True)
    )
    by_share[share] = quality(state, digits.train)[1]
    of_local = results[share][16][0]
    print(f"   {share} digits, H = 16: loss {by_share[share]:.3f}; with local SGD {of_local:.3f}")
assert by_share["mixed"] < 1.3 * results["mixed"][16][0], (by_share["mixed"], results["mixed"][16][0])
assert by_share["sorted"] > 1.3 * results["sorted"][16][0], (by_share["sorted"], results["sorted"][16][0])

# %% [markdown]
# ## 5. An outer optimizer
# Local SGD jumps from x, the common model of the last average, to the mean of the ranks' models. Take the
# change D = x - mean as a *gradient* instead, and give it to a second optimizer, the *outer* one. DiLoCo's
# outer optimizer is Nesterov momentum. With the outer learning rate r and the outer momentum m:
#
#     u <- m u + D
#     x <- x - r (D + m u)
#
# The common part of the ranks' changes accumulates in u, and differences average out. With r = 1 and m = 0
# this is local SGD, to the last bit:

# %%
print("\n5. An outer optimizer")


def diloco(H, rate=0.7, momentum=0.9):  # the values of the paper
    return lambda comm: DiLoCo(
        comm, ring_allreduce, period=H, outer_rate=rate, outer_momentum=momentum, local_batches=True
    )


def local(H):
    return lambda comm: LocalSGD(comm, ring_allreduce, period=H, local_batches=True)


plain, outer = local_models["sorted", 16], averaged(sorted_digits, diloco(16, rate=1.0, momentum=0.0))[0]
differs = max(np.abs(outer[name] - plain[name]).max() for name in plain)
print(f"   r = 1, m = 0: the largest difference from local SGD is {differs:g}")
assert differs == 0, f"differs from local SGD by {differs:.1e}"

# %% [markdown]
# Is DiLoCo better than local SGD? With one learning rate for both, the comparison would not be fair: in the
# long run u applies each D r / (1 - m) = 7 times, so DiLoCo takes larger steps. So tune each method, then
# compare: each gets learning rates that differ by a factor of 2, and counts with its best one. The third
# method is local SGD with momentum 0.9 in the ranks: its steps are larger too, and each average includes
# the velocities, so it sends twice as much.

# %%
METHODS = {  # the strategy, the learning rates that are tried, and the momentum of the ranks' own optimizer
    "local SGD": (local(16), (0.4, 0.8, 1.6), 0.0),  # part 3 has tried 0.2
    "local SGD, momentum": (local(16), (0.1, 0.2, 0.4), 0.9),
    "DiLoCo": (diloco(16), (0.2, 0.4, 0.8), 0.0),
}


def tune(data, make, rates, momentum):
    """The loss at the end by learning rate, and the bytes that rank 0 sends in a run."""
    runs = {rate: averaged(data, make, rate=rate, momentum=momentum) for rate in rates}
    losses = {rate: quality(state, digits.train)[1] for rate, (state, _) in runs.items()}
    return losses, runs[rates[0]][1].bytes


print("   loss by learning rate:")
tuned, nbytes_of = {"mixed": {}, "sorted": {}}, {}
for share, data in (("mixed", digits.train), ("sorted", sorted_digits)):
    for name, settings in METHODS.items():
        losses, nbytes_of[name] = tune(data, *settings)
        if name == "local SGD":
            losses = {RATE: results[share][16][0], **losses}
        tuned[share][name] = losses
        shown = "  ".join(f"{rate:g}: {loss:.3f}" for rate, loss in losses.items())
        print(f"   {share:6} {name:20} {shown}")
at_once = tune(digits.train, local(1), (0.4,), 0.9)[0][0.4]
print(f"   mixed, synchronous (H = 1) with momentum 0.9 and rate 0.4: {at_once:.3f}")

# %%
for share, of_methods in tuned.items():
    plain, heavy, outer = (min(losses.values()) for losses in of_methods.values())
    assert max(heavy, outer) < 0.75 * plain, f"{share}: {plain:.3f}, with momentum {heavy:.3f}, {outer:.3f}"
    assert 0.6 < outer / heavy < 1.5, f"{share}: DiLoCo {outer:.3f}, momentum in the ranks {heavy:.3f}"
    same_rate = of_methods["DiLoCo"][RATE] / of_methods["local SGD"][RATE]
    assert outer / plain < 0.9, f"{share}: DiLoCo {outer:.3f}, local SGD {plain:.3f}"
    print(
        f"   {share:6} DiLoCo's loss in parts of local SGD's: {outer / plain:.2f} at the best rates,", end=""
    )
    print(f" {same_rate:.2f} at rate {RATE}")
ratio = nbytes_of["local SGD, momentum"] / nbytes_of["DiLoCo"]
assert 1.7 < ratio <= 2, f"momentum in the ranks sends {ratio:.2f} times what DiLoCo sends, expected about 2"
assert at_once < min(tuned["mixed"]["DiLoCo"].values()), f"synchronous {at_once:.3f}, {tuned['mixed']}"

# %%
save(drawings.outer(tuned), FIGURES / "outer.png")

# %% [markdown]
# DiLoCo beats local SGD at the best rates of both, with mixed and with sorted shares. But local SGD with
# momentum in the ranks is about as good as DiLoCo. So the gain is the gain of momentum. DiLoCo has it for
# half of the bytes: its velocity u is computed by each rank from the mean and is not sent. The synchronous
# run with momentum is better still, and sends sixteen times as many messages. (One data set, one seed and
# 300 steps: measure before you trust the order of the methods on another problem.)
#
# Read: Douillard et al. 2023 (DiLoCo), arXiv:2311.08105; the outer values 0.7 and 0.9 are theirs, with H =
# 500. (The default of `--strategy diloco` is an outer momentum of 0.5, as it averages every 8 steps.)

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - Local SGD equals the loop of the textbook for drawn ranks, shares of samples and periods; with period 1
#   it is synchronous SGD, with plain SGD or with averaged momentum; and ParallelSGD averages once:
#   [tests](../../tests/backends/data_parallel/test_averaging.py).
# - It sends 2 (p - 1) messages of the ring for each of ceil(steps / H) averages, for any ranks and steps:
#   [tests](../../tests/backends/data_parallel/test_averaging.py).
# - Elastic averaging is the loop of its paper, and an exchange conserves the sum of the models and the
#   center: [tests](../../tests/backends/data_parallel/test_elastic_averaging.py).
# - DiLoCo is the loop of its paper; with r = 1 and m = 0 it has the bits of local SGD:
#   [tests](../../tests/backends/data_parallel/test_diloco.py).
#
# Only this lesson proves, on its own networks, that a network and its reordered twin have the same outputs,
# and Jensen's inequality for four linear models. Not proved: all losses and accuracies. They are from one
# data set and one seed, and say what can happen, not what must.
#
# Next: [lesson 10](../10_gradient_compression/lesson.py): average in every step again, but send only a
# small part of each gradient.
