"""Lesson 07. Large batches: what to change when many machines make one large batch, and where it ends.

Lecture section: large mini-batches. After Goyal et al. 2017, "Accurate, large minibatch SGD: training
ImageNet in 1 hour": the linear scaling rule, warm-up and two traps; then LARS.

    python lessons/07_large_batches/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/07_large_batches/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import math
from contextlib import suppress

import drawings
import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from lessons.style import start_lesson
from minigrad import Parameter, Tape, Tensor, mnist, nn, ops, optim
from minigrad.backend import Serial
from minigrad.data import Batch, minibatches
from minigrad.lr_schedules import constant, cosine, scaled_lr, warm_up
from minigrad.train import accuracy, fit

FIGURES = start_lesson("07_large_batches")

digits = mnist.load("mnist5k")  # 5,000 to learn from, 1,000 to test on


def network(*widths, seed):
    """Linear layers with ReLU between them: 784, then ``widths``."""
    rng, layers, n = np.random.default_rng(seed), [nn.Flatten()], 784
    for width in widths:
        layers += [nn.Linear(n, width, rng=rng), nn.ReLU()]
        n = width
    return nn.Sequential(*layers[:-1])


def learn(model, optimizer, loss=ops.cross_entropy, **settings):
    """The only training loop of the repository, on the 5,000 digits."""
    return fit(model, optimizer, loss, digits.train, **settings)


# %% [markdown]
# ## 1. k machines with b samples each are one machine with k b samples
# In synchronous data parallelism (lesson 06) each rank takes a share of the batch, and the gradients are
# summed. Does learning notice? Three ranks take eight steps, on batches of 100 samples, which do not
# divide by three; so does one machine.

# %%
print("1. Three ranks, one batch")
some = Batch(digits.train.x[:800].astype(np.float64), digits.train.y[:800])


def gradients(backend):
    """All gradients of each of eight steps."""
    model = backend.place(network(128, 10, seed=0).to(dtype=np.float64))
    optimizer, found = optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for batch in minibatches(some, 100, seed=0, epoch=0):
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        found.append(np.concatenate([g.ravel() for g in backend.full_gradients(model).values()]))
        backend.update(model, optimizer)
    return np.array(found)


one = gradients(Serial())
for rank, three in enumerate(run_ranks(3, lambda comm: gradients(DataParallel(comm)))):
    error = np.abs(three - one).max() / np.abs(one).max()
    print(f"   rank {rank}: its gradients differ from the one machine's by {error:.0e} at most")
    assert error < 1e-12

# %% [markdown]
# It does not. So what many machines do to *learning*, one machine with a large batch can show. All that
# follows runs on one.
#
# ## 2. The linear scaling rule
# k times the machines, k times the batch: an epoch has 1/k of the steps. That saves time only if each step
# does k times as much. While the weights move little, the gradients of k small steps would have been about
# those of the large batch's parts; so one step may do the work of k: **k times the batch, k times the rate**.
#
# The test: steps and epochs until 90 % of the test digits are right, starting from a rate of 0.04, which
# suits 16 samples. For comparison: the same rate for all batches, and the *square-root rule*, which keeps
# the variance of a step, for four times the batch. Means over two seeds; "never" is not within 20 epochs.

# %%
print("\n2. The linear scaling rule")
BASE, BASE_RATE, AT_MOST = 16, 0.04, 20
per_epoch = {b: math.ceil(len(digits.train) / b) for b in (16, 32, 64, 128, 256, 512, 1000)}


class Reached(Exception):
    """Ends a training run that has got where it should."""


def steps_to_90_percent(batch, rate, seeds=2):
    """The mean over the seeds; infinite as soon as one does not get there."""
    found = []
    while len(found) < seeds and math.inf not in found:
        found.append(steps_of_one(batch, rate, seed=len(found)))
    return np.mean(found)


def steps_of_one(batch, rate, seed):
    model = network(128, 10, seed=seed)

    def look(step, loss):
        now = loss < 1 and (step + 1) % max(1, per_epoch[batch] // 5) == 0  # a look takes its time
        if now and accuracy(model, digits.test) >= 0.9:
            raise Reached(step + 1)

    try:
        optimizer = optim.SGD(model.parameters(), rate)
        learn(model, optimizer, epochs=AT_MOST, batch_size=batch, seed=seed, on_step=look)
    except Reached as reached:
        return reached.args[0]
    except FloatingPointError:  # the loss became infinite
        pass
    return math.inf


rules = {
    "linear": (lambda b: scaled_lr(BASE_RATE, b, BASE), [32, 64, 128, 256, 512, 1000]),
    "square root": (lambda b: scaled_lr(BASE_RATE, b, BASE, rule="square root"), [64]),
    "fixed": (lambda b: BASE_RATE, [64]),
}
base = steps_to_90_percent(BASE, BASE_RATE)
steps = {rule: {BASE: base} for rule in rules}
print("   rule         batch   rate   steps  epochs")
for rule, (rate, batches) in rules.items():
    for b in batches:
        steps[rule][b] = steps_to_90_percent(b, rate(b))
    for b, n in steps[rule].items():
        found = f"{n:7.0f} {n / per_epoch[b]:7.1f}" if n < math.inf else "  never"
        print(f"   {rule:12} {b:5} {rate(b):6.2f} {found}")

# %%
epochs = {rule: {b: n / per_epoch[b] for b, n in found.items()} for rule, found in steps.items()}
for b in (32, 64, 128, 256):  # about as many epochs as the base ...
    assert 0.6 < epochs["linear"][b] / epochs["linear"][BASE] < 1.6
assert steps["linear"][256] < base / 10  # ... in about 1/16 of the steps
assert epochs["linear"][512] > 1.25 * epochs["linear"][256]  # the end announces itself ...
assert steps["linear"][1000] == math.inf  # ... and comes
assert epochs["linear"][64] < epochs["square root"][64] < epochs["fixed"][64]
drawings.scaling(steps, epochs, AT_MOST).savefig(FIGURES / "linear_scaling.png")

# %% [markdown]
# 256 samples, the 16-fold batch, still need a 16th of the steps. Beyond, one step moves the weights so far
# that the k gradients it stands for would have been others. Goyal et al. came to that end too, with ResNet-50
# on ImageNet: beyond 8,192 samples the error grew.
#
# ## 3. Warm-up
# The gradients change fastest at the very start, so there the rule fails first. The cure: start at the base
# rate, and add a little in every step until k times that rate is reached, *gradual* warm-up. Or wait at the
# base rate, and then jump: *constant* warm-up. Here k = 16, with momentum and one more layer; four seeds.

# %%
print("\n3. Warm-up: 512 samples, 16 times the rate of 32 samples")
K, RATE, EPOCHS, WARM = 16, 0.03, 12, 5
in_epoch = per_epoch[32 * K]
large = constant(scaled_lr(RATE, 32 * K, 32), EPOCHS * in_epoch)
warm_ups = {
    "no": large,
    "constant": warm_up(large, WARM * in_epoch, RATE, kind="constant"),
    "gradual": warm_up(large, WARM * in_epoch, RATE, kind="gradual"),
}


def warmed_up(schedule, seed):
    """The loss of each step, and the accuracy on the test digits in the end."""
    model = network(128, 64, 10, seed=seed)
    optimizer = optim.SGD(model.parameters(), RATE, momentum=0.9)
    history = learn(model, optimizer, epochs=EPOCHS, batch_size=32 * K, seed=seed, schedule=schedule)
    return history.losses, accuracy(model, digits.test)


curves, last, right = {}, {}, {}
for kind, schedule in warm_ups.items():
    curves[kind], right[kind] = map(np.array, zip(*(warmed_up(schedule, s) for s in range(4)), strict=True))
    last[kind] = curves[kind][:, -in_epoch:].mean(axis=1)  # over the last epoch
    losses = " ".join(f"{loss:.2f}" for loss in last[kind])
    print(f"   {kind:8} warm-up: final losses {losses}; {right[kind].mean():.1%} right on average")
assert last["gradual"].mean() < last["no"].mean() < last["constant"].mean()
assert right["gradual"].min() > 0.85
drawings.warm_up(warm_ups, curves, right, in_epoch, WARM).savefig(FIGURES / "warm_up.png")

# %% [markdown]
# Constant warm-up is worse than none, as in the paper: the jump only comes later, and the loss jumps too.
#
# ## 4. Two traps
# *Momentum.* It is written in two ways, equal as long as the rate does not change:
#
#     SGD:          v <- m v + g       w <- w - lr v
#     HeavyBall:    v <- m v + lr g    w <- w - v
#
# In the second, v is made of steps at *past* rates. Whoever changes the rate must also multiply v by new rate
# / old rate: the *momentum correction*. Without it the steps follow a change of the rate only after about
# 1 / (1 - m) more steps. To see it: one weight, whose gradient is always 1.

# %%
print("\n4. Two traps")


def step_sizes(make, rates):
    w = Parameter(np.zeros(1))
    optimizer, places = make([w], rates[0]), [0.0]
    for rate in rates:
        optimizer.lr, w.grad = rate, np.ones(1)
        optimizer.step()
        places.append(-w.data.item())
    return np.diff(places)


rates = np.repeat([0.1, 1.0, 0.1], 40)
sgd = step_sizes(lambda w, lr: optim.SGD(w, lr, momentum=0.9), rates)
corrected = step_sizes(lambda w, lr: optim.HeavyBall(w, lr, momentum=0.9), rates)
uncorrected = step_sizes(lambda w, lr: optim.HeavyBall(w, lr, momentum=0.9, corrected=False), rates)
np.testing.assert_allclose(corrected, sgd, rtol=1e-12)
print("   momentum: the first step after the rate fell to a tenth is, without correction,")
print(f"   {uncorrected[80] / sgd[80]:.1f} times too long")
assert uncorrected[80] > 5 * sgd[80]

# %% [markdown]
# *Weight decay.* Multiply the loss by k, or the rate: is that the same? Without weight decay, yes. With it,
# no: the gradient becomes k times as large, but what weight decay adds to it does not. Multiply the rate.


# %%
def norms(loss_times, rate_times, decay):
    """The 2-norm of the first layer's weight after each step."""
    model, found = network(128, 10, seed=0), []
    learn(
        model,
        optim.SGD(model.parameters(), 0.02 * rate_times, weight_decay=decay),
        lambda out, y: ops.cross_entropy(out, y) * loss_times,
        epochs=6,
        batch_size=256,
        on_step=lambda step, loss: found.append(float(np.linalg.norm(model[1].weight.data))),
    )
    return np.array(found)


same = norms(32, 1, decay=0), norms(1, 32, decay=0)
different = norms(32, 1, decay=0.005), norms(1, 32, decay=0.005)
np.testing.assert_allclose(*same, rtol=1e-5)
by_loss, by_rate = (1 - shrunk[-1] / same[0][-1] for shrunk in different)
print(f"   weight decay: shrinks the weights by {by_rate:.0%} with 32 times the rate,")
print(f"   by {by_loss:.0%} with 32 times the loss")
assert by_rate > 0.1 > by_loss
drawings.traps(rates, sgd, corrected, uncorrected, same, different).savefig(FIGURES / "traps.png")

# %% [markdown]
# ## 5. LARS: to each layer its own rate
# One rate has to suit all layers. But |w| / |g|, how large the weights are against their gradient, differs
# widely in a deep net: a step that hardly moves one layer overturns another. LARS (You, Gitman and Ginsburg
# 2017) lets each layer move by the same share of its own length: its rate is lr |w| / |g|.

# %%
print("\n5. LARS: a net with 6 layers, batches of 500")
DEEP = (64, 64, 64, 64, 64, 10)
model = network(*DEEP, seed=0)
with Tape() as tape:
    loss = ops.cross_entropy(model(Tensor(digits.train.x)), digits.train.y)
tape.backward(loss)
weights = [p for p in model.parameters() if p.ndim == 2]
ratios = [np.linalg.norm(w.data) / np.linalg.norm(w.grad) for w in weights]
print(f"   |w| / |g| of its layers, from the first: {' '.join(f'{ratio:.0f}' for ratio in ratios)}")
assert max(ratios) > 5 * min(ratios)

# %% [markdown]
# Both optimizers get 15 epochs, momentum, gradual warm-up over the first three, and then a cosine. Each
# may choose its best rate.


# %%
def after_15_epochs(make, rate, seed, batch=500):
    """The accuracy on the test digits."""
    model, total = network(*DEEP, seed=seed), 15 * math.ceil(len(digits.train) / batch)
    schedule = warm_up(cosine(rate, total), total // 5, start=0)
    optimizer = make(model.parameters(), rate)
    with suppress(FloatingPointError):  # then its weights are worth nothing, as the digits will tell
        learn(model, optimizer, epochs=15, batch_size=batch, seed=seed, schedule=schedule)
    return accuracy(model, digits.test)


optimizers = {
    "SGD": lambda w, lr: optim.SGD(w, lr, momentum=0.9),
    "LARS": lambda w, lr: optim.LARS(w, lr, momentum=0.9, trust=1),
}
tried = {"SGD": [0.1, 0.2, 0.4], "LARS": [0.02, 0.04, 0.08]}
right = {
    name: {lr: np.array([after_15_epochs(make, lr, seed) for seed in range(2)]) for lr in tried[name]}
    for name, make in optimizers.items()
}
best = {name: max(seeds.mean() for seeds in found.values()) for name, found in right.items()}
small = after_15_epochs(optimizers["SGD"], 0.05, seed=0, batch=32)
print(f"   at its best rate SGD has {best['SGD']:.1%} right, LARS {best['LARS']:.1%}")
print(f"   SGD with batches of 32: {small:.1%}")
assert best["LARS"] > best["SGD"] + 0.03
assert best["LARS"] > small - 0.05
drawings.lars(ratios, right, small).savefig(FIGURES / "lars.png")

# %% [markdown]
# LARS is no magic. It helps where layers differ; larger initial weights or layer normalisation make these
# layers differ less, and then plain SGD comes within a point or two of LARS.

# %%
print(f"\nFigures: {FIGURES}/")
