"""Lesson 07. Large batches: what to change when many machines make one large batch, and where it ends.

Lecture section: large mini-batches. The linear scaling rule and what it assumes, warm-up, and two traps, as
in Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour"; then LARS, which gives
each layer its own learning rate.

The slide asks: which learning rate does a batch that is k times as large need, and when does the rule fail?

You need: lesson 01, learning rates, momentum and the cosine schedule; lesson 06, ranks that share a batch;
the length (2-norm) of a vector.

Time: about 35 minutes; the program runs for about 25 seconds.

After this you can: derive the linear scaling rule from k small steps, and say what it assumes; compute a
schedule with warm-up; correct the momentum when the learning rate changes; compute a step of LARS.

    python lessons/07_large_batches/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/07_large_batches/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%
import math
from contextlib import suppress

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from minigrad import Parameter, Tape, Tensor, mnist, nn, ops, optim
from minigrad.data import Batch, minibatches
from minigrad.device import unflatten
from minigrad.figures import save
from minigrad.lr_schedules import constant, cosine, scaled_lr, warm_up
from minigrad.serial import Serial
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
    """The library's training loop, on the 5,000 digits."""
    return fit(model, optimizer, loss, digits.train, **settings)


# %% [markdown]
# ## 1. k machines with n samples each are one machine with k n samples
# In synchronous data parallelism (lesson 06) each rank takes a share of the batch, and the gradients are
# summed. So k machines with n samples each train as one machine with a batch of k n samples. We check it:
# three ranks and one machine take eight steps with momentum, on batches of 100 samples, which three does
# not divide.

# %%
print("1. Three ranks, one batch")
some = Batch(digits.train.x[:800].astype(np.float64), digits.train.y[:800])


def gradients(backend):
    """All gradients of each of eight steps."""
    model = backend.place(network(128, 10, seed=0).to(dtype=np.float64))
    optimizer, gradients_of_steps = optim.SGD(model.parameters(), lr=0.1, momentum=0.9), []
    for batch in minibatches(some, 100, seed=0, epoch=0):
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        gradients_of_steps.append(
            np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()])
        )
        backend.update(model, optimizer)
    return np.array(gradients_of_steps)


one = gradients(Serial())
for rank, three in enumerate(run_ranks(3, lambda comm: gradients(DataParallel(comm)))):
    error = np.abs(three - one).max() / np.abs(one).max()
    print(f"   rank {rank}: its gradients differ from the one machine's by {error:.0e} at most")
    assert error < 1e-12, f"rank {rank}: gradients differ by {error:.1e} of the largest, limit 1e-12"

# %% [markdown]
# So one machine with a large batch shows how many machines with small ones *learn*. The rest of this lesson
# runs on one machine.
#
# Read: Goyal et al. 2017, arXiv:1706.02677, section 2.
#
# ## 2. The linear scaling rule
# With k times the machines and k times the batch, an epoch has 1/k of the steps. It saves time only if each
# step does as much as k small steps. Let B_0 ... B_(k-1) be k mini-batches of n samples, eta the learning
# rate of the small steps, and l(x, w) the loss of a sample x with the weights w. The slide has two
# formulas: k small steps, one after the other,
#
#     w_(t+k)     = w_t - eta (1 / n)       sum over j < k, x in B_j of  grad l(x, w_(t+j))
#
# and one step with all k n samples and the learning rate eta-hat,
#
#     w-hat_(t+1) = w_t - eta-hat (1 / k n) sum over j < k, x in B_j of  grad l(x, w_t)
#
# They differ in where the gradients are computed: at w_(t+j) or at w_t. *If* these gradients are about
# equal, then w-hat_(t+1) is about w_(t+k) for eta-hat = k eta: **k times the batch, k times the learning
# rate**. This is the *linear scaling rule*. The *square-root rule*, sqrt(k) times the learning rate, has
# another aim: it keeps the variance of a step, since the mean of k times as many samples has a k-th of the
# variance.
#
# We compute both formulas, for a network at the start of training and after two epochs. The error is the
# distance from w-hat_(t+1) to w_(t+k), relative to the distance that the k small steps go.

# %%
print("\n2. The linear scaling rule: the error of one large step for k small ones")
SAMPLES, KS = 16, (1, 2, 4, 8, 16, 32)
exact = Batch(digits.train.x.astype(np.float64), digits.train.y)
small_batches = list(minibatches(exact, SAMPLES, seed=0, epoch=0))
model = network(128, 10, seed=0).to(dtype=np.float64)
RULES = {"linear": lambda k: k, "square root": math.sqrt, "the same rate": lambda k: 1}


def gradient(w, batch):
    """The gradient of the mean loss of a batch, at the weights w; all as one vector."""
    for parameter, part in zip(parameters, unflatten(w, [p.data for p in parameters]), strict=True):
        parameter.data[...], parameter.grad = part, None
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
    tape.backward(loss)
    return np.concatenate([p.grad.ravel() for p in parameters])


def small_steps(w, batches, eta):
    for batch in batches:
        w = w - eta * gradient(w, batch)
    return w


def errors_of_one_step(w, k, eta):
    """The relative distance of one large step from k small ones, by rule."""
    batches = small_batches[:k]
    k_steps, mean = small_steps(w, batches, eta), np.mean([gradient(w, batch) for batch in batches], axis=0)
    one_step = {name: w - eta * times(k) * mean for name, times in RULES.items()}
    return {name: np.linalg.norm(k_steps - v) / np.linalg.norm(k_steps - w) for name, v in one_step.items()}


# %%
parameters = model.parameters()
w_start = np.concatenate([p.data.ravel() for p in parameters])
w_later = w_start
for epoch in (1, 2):
    w_later = small_steps(w_later, minibatches(exact, SAMPLES, seed=0, epoch=epoch), 0.04)
settings = {
    "at the start, eta = 0.04": (w_start, 0.04),
    "at the start, eta = 0.01": (w_start, 0.01),
    "after two epochs, eta = 0.04": (w_later, 0.04),
}
errors = {where: {k: errors_of_one_step(w, k, eta) for k in KS} for where, (w, eta) in settings.items()}
for where, by_k in errors.items():
    print(f"   {where + ',':29} k = " + " ".join(f"{k:>5}" for k in KS))
    for rule in RULES:
        print(f"      {rule:29} " + " ".join(f"{by_k[k][rule]:5.0%}" for k in KS))

# %%
at_start, smaller, later = errors.values()
for k in KS[1:]:
    linear, root, same = (at_start[k][rule] for rule in RULES)
    assert linear < root < same, (
        f"k = {k}: errors {linear:.0%} (linear), {root:.0%} (root), {same:.0%} (same)"
    )
    less = smaller[k]["linear"]
    assert less < linear, f"k = {k}: error {less:.0%} for eta = 0.01, {linear:.0%} for 0.04: expected less"
worst = max(errors[where][1]["linear"] for where in settings)
assert worst < 1e-12, f"k = 1: the two formulas differ by {worst:.1e}, limit 1e-12"
assert later[32]["linear"] > 1, (
    f"k = 32 after two epochs: error {later[32]['linear']:.0%}, expected above 100%"
)

# %%
save(drawings.one_step_for_many(errors, list(RULES)), FIGURES / "one_step_for_many.png")

# %% [markdown]
# At the start the linear rule is closest to the small steps for every k, and closer still with a smaller
# learning rate: the gradients are then about equal. After two epochs this holds for small k only. Each
# small step corrects the steps before it, and for large k the one large step goes too far. So the formulas
# give a reason for the rule, not a proof. Lesson 01 measured how well it works: training needs about as
# many epochs as with small batches, up to a limit. Goyal et al. found such a limit for ResNet-50 on
# ImageNet: with more than 8,192 samples the error grew.
#
# Read: Goyal et al. 2017, section 2.1 and figure 1; Krizhevsky 2014, "One weird trick for parallelizing
# convolutional neural networks", arXiv:1404.5997 (both rules).
#
# ## 3. Warm-up
# Early in training the weights change rapidly, and a learning rate of k eta is often too large. The remedy
# is *gradual* warm-up: start with eta, and add a little in every step until the rate is k eta. An
# alternative is *constant* warm-up: keep eta for some epochs, then jump to k eta. We try both with k = 16,
# momentum, and a network with one more layer, for four seeds.

# %%
print("\n3. Warm-up: 512 samples, 16 times the rate of 32 samples")
K, RATE, EPOCHS, WARM = 16, 0.03, 12, 5
in_epoch = math.ceil(len(digits.train) / (32 * K))
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


# %%
curves, last, right = {}, {}, {}
for kind, schedule in warm_ups.items():
    curves[kind], right[kind] = map(np.array, zip(*(warmed_up(schedule, s) for s in range(4)), strict=True))
    last[kind] = curves[kind][:, -in_epoch:].mean(axis=1)  # over the last epoch
    losses = " ".join(f"{loss:.2f}" for loss in last[kind])
    print(f"   {kind:8} warm-up: final losses {losses}; accuracy {right[kind].mean():.1%} on average")
gradual, without, jump = (last[kind].mean() for kind in ("gradual", "no", "constant"))
assert gradual < without < jump, f"losses {gradual:.2f} (gradual), {without:.2f} (no), {jump:.2f} (constant)"
least = right["gradual"].min()
assert least > 0.85, f"gradual warm-up: the lowest accuracy is {least:.1%}, expected more than 85%"

# %%
save(drawings.warm_up(warm_ups, curves, right, in_epoch, WARM), FIGURES / "warm_up.png")

# %% [markdown]
# Constant warm-up is worse than none here, as in table 1 of the paper: the jump comes later, and the loss
# jumps with it.
#
# Read: Goyal et al. 2017, section 2.2 and table 1.
#
# ## 4. Two traps
# *Momentum.* It is written in two ways, which are equal as long as the learning rate lr does not change.
# Here g is the gradient, m the momentum, and v the velocity:
#
#     SGD:          v <- m v + g       w <- w - lr v
#     HeavyBall:    v <- m v + lr g    w <- w - v
#
# In the second form, v is a sum of steps at *past* learning rates. When lr changes, v must be multiplied by
# new lr / old lr: the *momentum correction*. Without it the steps follow the change only after about 1 / (1
# - m) more steps. The example is one weight whose gradient is always 1.

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
off = np.abs(corrected / sgd - 1).max()
assert off < 1e-12, f"corrected, the steps differ from SGD's by {off:.1e} of their length, limit 1e-12"
print("   momentum: the first step after the learning rate fell to a tenth is, without correction,")
print(f"   {uncorrected[80] / sgd[80]:.1f} times too long")
assert uncorrected[80] > 5 * sgd[80], (
    f"step lengths {uncorrected[80]:.2f} (not corrected), {sgd[80]:.2f} (SGD)"
)

# %% [markdown]
# *Weight decay* d adds d w to the gradient, so that each step also shrinks the weights. Is it the same to
# multiply the loss by k, or the learning rate? Without weight decay, yes. With it, no: k times the loss
# makes the gradient k times as large, but not the term d w. Multiply the learning rate.


# %%
def norms(loss_times, rate_times, decay):
    """The 2-norm of the first layer's weight after each step."""
    model, ratios = network(128, 10, seed=0), []
    learn(
        model,
        optim.SGD(model.parameters(), 0.02 * rate_times, weight_decay=decay),
        lambda out, y: ops.cross_entropy(out, y) * loss_times,
        epochs=6,
        batch_size=256,
        on_step=lambda step, loss: ratios.append(float(np.linalg.norm(model[1].weight.data))),
    )
    return np.array(ratios)


same = norms(32, 1, decay=0), norms(1, 32, decay=0)
different = norms(32, 1, decay=0.005), norms(1, 32, decay=0.005)
off = np.abs(same[0] / same[1] - 1).max()
assert off < 1e-5, f"without weight decay the norms differ by {off:.1e}, limit 1e-5"
by_loss, by_rate = (1 - shrunk[-1] / same[0][-1] for shrunk in different)
print(f"   weight decay: shrinks the weights by {by_rate:.0%} with 32 times the learning rate,")
print(f"   by {by_loss:.0%} with 32 times the loss")
assert by_rate > 0.1 > by_loss, f"the weights shrink by {by_rate:.1%} (rate) and {by_loss:.1%} (loss)"

# %%
save(drawings.traps(rates, sgd, corrected, uncorrected, same, different), FIGURES / "traps.png")

# %% [markdown]
# Read: Goyal et al. 2017, section 3 (remarks 1 and 2).
#
# ## 5. LARS: a learning rate for each layer
# One learning rate must suit all layers. But |w| / |g|, the norm of a layer's weights over the norm of
# their gradient, differs between the layers of a deep network. A step that hardly moves one layer can
# destroy another. LARS (layer-wise adaptive rate scaling) moves each layer by the same share of its own
# norm: the learning rate of a layer is lr |w| / |g|.

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
assert max(ratios) > 5 * min(ratios), f"|w| / |g| between {min(ratios):.1f} and {max(ratios):.1f}"

# %% [markdown]
# Both optimizers get 15 epochs, momentum, gradual warm-up over the first three epochs, and then a cosine
# schedule (lesson 01). Each is tried with four learning rates and two seeds, and judged by its best rate.


# %%
def after_15_epochs(make, rate, seed, batch=500):
    """The accuracy on the test digits."""
    model, total = network(*DEEP, seed=seed), 15 * math.ceil(len(digits.train) / batch)
    schedule = warm_up(cosine(rate, total), total // 5, start=0)
    optimizer = make(model.parameters(), rate)
    with suppress(FloatingPointError):  # the loss is no longer finite; the accuracy shows it
        learn(model, optimizer, epochs=15, batch_size=batch, seed=seed, schedule=schedule)
    return accuracy(model, digits.test)


optimizers = {
    "SGD": lambda w, lr: optim.SGD(w, lr, momentum=0.9),
    "LARS": lambda w, lr: optim.LARS(w, lr, momentum=0.9, trust=1),
}
tried = {"SGD": [0.05, 0.1, 0.2, 0.4], "LARS": [0.01, 0.02, 0.04, 0.08]}
right = {
    name: {lr: np.array([after_15_epochs(make, lr, seed) for seed in range(2)]) for lr in tried[name]}
    for name, make in optimizers.items()
}
best = {name: max(seeds.mean() for seeds in accuracies.values()) for name, accuracies in right.items()}
small = after_15_epochs(optimizers["SGD"], 0.05, seed=0, batch=32)
for name, by_rate in right.items():
    print(f"   {name:4} by learning rate: " + ", ".join(f"{r:g}: {a.mean():.1%}" for r, a in by_rate.items()))
print(f"   SGD with batches of 32: {small:.1%}")
assert best["LARS"] > best["SGD"] + 0.03, f"best accuracy: LARS {best['LARS']:.1%}, SGD {best['SGD']:.1%}"
assert best["LARS"] > small - 0.05, f"best accuracy: LARS {best['LARS']:.1%}, SGD, batches of 32 {small:.1%}"

# %%
save(drawings.lars(ratios, right, small), FIGURES / "lars.png")

# %% [markdown]
# LARS needs a suitable learning rate too: with the largest of the four it fails. It helps where the ratio
# |w| / |g| differs between layers. With other initial weights, or with batch-norm (lesson 06) between the
# layers, the ratio differs less.
#
# Read: You, Gitman and Ginsburg 2017, arXiv:1708.03888; You et al. 2020 (LAMB), arXiv:1904.00962.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - k ranks with n samples each are one machine with k n samples, and with LARS, clipping and a corrected
#   momentum ranks train like one machine, for all drawn sizes of shares:
#   [tests](../../tests/backends/data_parallel/test_large_batches.py).
# - The schedules, scaled rates and warm-ups, equal their formulas at every step:
#   [tests](../../tests/minigrad/test_lr_schedules.py).
# - Both forms of momentum, weight decay and LARS equal their recurrences, step by step:
#   [tests](../../tests/minigrad/test_optim.py).
#
# Only this lesson proves, on its own cases, that for k = 1 both formulas of the slide agree to 1e-12, and
# that k times the loss is not k times the learning rate where weights decay. Not proved, only measured on
# 5,000 digits and a few seeds: that the linear rule is best at the start and fails later, that gradual
# warm-up beats none, and that LARS beats SGD with batches of 500.
#
# Next: [lesson 08](../08_parameter_server/lesson.py): all ranks of a synchronous step wait for the slowest;
# with a parameter server no rank waits.
