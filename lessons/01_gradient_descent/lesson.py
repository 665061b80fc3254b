"""Lesson 01. Gradient descent: feel the slope, take a step down, and repeat.

Lecture section: gradient descent; per sample, mini-batch, batch. How long a step may be (LeCun et al. 1998,
Efficient BackProp), how wrong a gradient of few samples is (Robbins and Monro 1951), what larger batches buy
(Goyal et al. 2017), and two ways to walk better: momentum (Polyak 1964) and Adagrad (Duchi et al. 2011).

    python lessons/01_gradient_descent/lesson.py

Figures go to runs/lessons/01_gradient_descent/. In an editor that knows `# %%` cells this file opens as a
notebook.
"""

# %%
import math

import drawings
import numpy as np

from lessons.style import start_lesson
from minigrad import Tape, Tensor, mnist, nn, ops, optim
from minigrad.data import Batch, minibatches
from minigrad.lr_schedules import cosine
from minigrad.train import accuracy, fit

FIGURES = start_lesson("01_gradient_descent")

# %% [markdown]
# ## 1. Two weights and a bowl
# The model is y = w_1 x_1 + w_2 x_2. For 64 samples its loss, the mean of (prediction - y)², is a bowl over
# the plane of the two weights, and we may draw it. A network has a hundred thousand weights: nobody sees
# its bowl. But at the point where one stands one can feel the slope in every direction. That is the
# gradient, and
#
#     w <- w - rate * gradient
#
# is a step downhill. We need not take all 64 samples to feel it. *Batch*: all of them for each step.
# *Mini-batch*: some. *Per sample*: one.

# %%
print("1. Two weights and a bowl")


def valley(scales, seed=0):
    """64 samples of y = 1.5 x_1 - x_2 + noise; where an input spreads wider, the loss is steeper."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(64, 2)) * scales
    return Batch(x, (x @ [1.5, -1.0] + rng.normal(size=64))[:, np.newaxis])


def descend(data, make, batch_size=None, epochs=1, schedule=None):
    """Where the two weights were at the start and after every step."""
    model = nn.Linear(2, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
    model.weight.data[...] = -2.0, 1.5
    path = [model.weight.data[0].copy()]
    fit(
        model,
        make(model.parameters()),
        ops.mse,
        data,
        epochs=epochs,
        batch_size=batch_size,
        schedule=schedule,
        on_step=lambda step, loss: path.append(model.weight.data[0].copy()),
    )
    return np.array(path)


def height(data, path):
    """The loss over all samples at each point of a path."""
    return ((path @ data.x.T - data.y[:, 0]) ** 2).mean(axis=-1)


bowl = valley(scales=(1.0, 2.0))
best = np.linalg.lstsq(bowl.x, bowl.y, rcond=None)[0][:, 0]  # where the gradient is zero
plans = {"batch": (64, 0.1, 30), "mini-batch of 8": (8, 0.06, 6), "per sample": (1, 0.03, 2)}
paths = {}
for name, (size, rate, epochs) in plans.items():
    paths[name] = descend(bowl, lambda w, rate=rate: optim.SGD(w, rate), size, epochs)
    uphill = (np.diff(height(bowl, paths[name])) > 0).mean()
    off = np.linalg.norm(paths[name][-1] - best)
    print(f"   {name + ':':17} {len(paths[name]) - 1:3} steps, {64 * epochs:4} samples seen; ", end="")
    print(f"{uphill:3.0%} of the steps go uphill; ends {off:.3f} from the best")
drawings.bowl(lambda w: height(bowl, w), best, paths, plans).savefig(FIGURES / "bowl.png")

# %% [markdown]
# With all samples every step goes down, further where it is steeper, and the path is smooth. A single sample
# knows only its own slope: many steps go *up*, and in the end the weights never come to rest. Yet look at
# what it costs: two passes over the data instead of thirty.
#
# For a bowl theory knows each point of the batch path. Let H = 2 XᵀX / n, the matrix of the loss's second
# derivatives (its *Hessian*): every step multiplies the vector from the best point to the weights by
# (I - rate H). And to bring the restless one to rest, let the rate fall to zero.

# %%
hessian = 2 * bowl.x.T @ bowl.x / len(bowl)
shrink = np.eye(2) - 0.1 * hessian
by_formula = [best + np.linalg.matrix_power(shrink, t) @ (paths["batch"][0] - best) for t in range(31)]
np.testing.assert_allclose(paths["batch"], by_formula, rtol=0, atol=1e-12)
assert (np.diff(height(bowl, paths["batch"])) < 0).all()
assert (np.diff(height(bowl, paths["per sample"])) > 0).mean() > 0.2

# %%
restless = descend(bowl, lambda w: optim.SGD(w, 0.03), 1, epochs=20)
settled = descend(bowl, lambda w: optim.SGD(w, 0.03), 1, epochs=20, schedule=cosine(0.03, 20 * 64))
far, near = (np.linalg.norm(path[-64:] - best, axis=1).mean() for path in (restless, settled))
print(
    f"   per sample for 20 epochs, in the last one: {far:.3f} away on average; {near:.3f} if the rate falls"
)
assert near < far / 4

# %% [markdown]
# ## 2. How long may a step be?
# Too small, and one never arrives. Too large, and one jumps over the valley to a higher place on the other
# side, and then back, higher still. The formula above says where that begins: the steepest direction has
# the largest eigenvalue L of H, and |1 - rate L| must be below 1, so **rate < 2 / L**.

# %%
print("\n2. How long may a step be?")
steepest = np.linalg.eigvalsh(hessian).max()
rates = {"0.02": 0.02, "0.3": 0.3, "1": 1.0, "1.9": 1.9, "2.05": 2.05}  # in parts of 1 / L
falls = {}
for name, part in rates.items():
    found = descend(bowl, lambda w, part=part: optim.SGD(w, part / steepest), epochs=40)
    falls[name] = np.linalg.norm(found - best, axis=1)
    print(f"   rate {name:>4} / L: distance {falls[name][0]:.2f}, after 40 steps {falls[name][-1]:.3g}")
assert falls["1.9"][-1] < 0.1 < falls["0.02"][-1] < falls["0.02"][0] < falls["2.05"][-1]

# %% [markdown]
# A network has no single H, but the same two ways to go wrong. 5,000 handwritten digits, 784 pixels each, a
# network with 64 hidden neurons, one epoch in mini-batches of 16, and rates from a ten-thousandth to three:

# %%
digits = mnist.load("mnist5k")  # 5,000 to learn from, in no particular order, and 1,000 to test on
train, test = (Batch(part.x.reshape(len(part), -1), part.y) for part in (digits.train, digits.test))


def network(seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    first, last = nn.Linear(784, 64, rng=rng, dtype=dtype), nn.Linear(64, 10, rng=rng, dtype=dtype)
    return nn.Sequential(first, nn.ReLU(), last)


def learn(batch_size, make, epochs=1, seed=0, on_step=None):
    """The trained model, and the history of its training."""
    model = network(seed)
    optimizer = make(model.parameters())
    settings = {"epochs": epochs, "batch_size": batch_size, "seed": seed}
    if on_step is not None:
        settings["on_step"] = lambda step, loss: on_step(model, step)
    return model, fit(model, optimizer, ops.cross_entropy, train, **settings)


sweep = {}
for rate in (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0):
    sweep[rate] = accuracy(learn(16, lambda w, rate=rate: optim.SGD(w, rate))[0], test)
print("   digits, rate:         " + "".join(f"{rate:7g}" for rate in sweep))
print("   right after an epoch: " + "".join(f"{share:7.0%}" for share in sweep.values()))
assert max(sweep[0.03], sweep[0.1], sweep[0.3]) > 0.8 > 0.5 > max(sweep[1e-4], sweep[3.0])
drawings.rates(falls, sweep).savefig(FIGURES / "rates.png")

# %% [markdown]
# ## 3. How wrong is the gradient of a few samples?
# Each sample has a gradient of its own, and the gradient of the loss is their mean. The gradient of a
# mini-batch is a mean of b of them: like a poll that asks b people. It is right *on average*: the mean over
# the mini-batches of an epoch is the full gradient. Its squared error, the squared length of the difference
# from the full gradient, is on average that of one sample divided by b, times (n - b) / (n - 1), because
# nobody is asked twice; n is 1,000 digits here.

# %%
print("\n3. How wrong is the gradient of a few samples?")
model = network(dtype=np.float64)
exact = Batch(train.x.astype(np.float64), train.y)


def gradient(batch):
    """Of the mean loss over a batch; all parameters, end to end."""
    for parameter in model.parameters():
        parameter.grad = None
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
    tape.backward(loss)
    return np.concatenate([parameter.grad.ravel() for parameter in model.parameters()])


full = gradient(exact)
mean = np.mean([gradient(batch) for batch in minibatches(exact, 50, seed=0, epoch=0)], axis=0)
print(f"   the mean of an epoch's 100 gradients is the full one, up to {np.abs(mean - full).max():.0e}")
np.testing.assert_allclose(mean, full, rtol=0, atol=1e-12)

# %%
rng, n = np.random.default_rng(0), 1000
exact = exact[:n]
full = gradient(exact)
of_one = np.mean([((gradient(exact[i : i + 1]) - full) ** 2).sum() for i in range(n)])
sizes, measured = [1, 4, 16, 64, 256], []
for b in sizes:
    drawn = (exact[rng.choice(n, b, replace=False)] for _ in range(100))
    measured.append(np.mean([((gradient(batch) - full) ** 2).sum() for batch in drawn]))
expected = [of_one / b * (n - b) / (n - 1) for b in sizes]
for b, found, theory in zip(sizes, measured, expected, strict=True):
    print(f"   b = {b:3}: squared error {found:.4f}, by the formula {theory:.4f}")
print(f"   the squared length of the gradient itself is {full @ full:.4f}")
np.testing.assert_allclose(measured, expected, rtol=0.2)  # 100 draws: a standard error of 5 to 10 %
drawings.noise(sizes, measured, of_one, n, full @ full).savefig(FIGURES / "noise.png")

# %% [markdown]
# Four times the samples: half the error (it is the square that falls to a quarter). So the hundredth sample
# of a mini-batch teaches far less than the first. That is why nobody waits for all samples.
#
# ## 4. Per sample, mini-batch, batch
# Two epochs on the digits, each size at a rate that suits it. Every run sees the same 10,000 samples; what
# differs is how often it takes a step.

# %%
print("\n4. Per sample, mini-batch, batch")
curves, passing = {}, {}
for b, rate in ((1, 0.01), (16, 0.1), (256, 0.5), (len(train), 0.5)):
    shown = max(1, math.ceil(len(train) / b) // 10)
    curve = []

    def look(model, step, b=b, shown=shown, curve=curve):
        if (step + 1) % shown == 0:
            curve.append(((step + 1) * b / len(train), accuracy(model, test)))

    model, history = learn(b, lambda w, rate=rate: optim.SGD(w, rate), epochs=2, on_step=look)
    curves[b], passing[b] = np.array(curve), accuracy(model, test)
    assert len(history.losses) == 2 * math.ceil(len(train) / b)
    print(f"   b = {b:4}, rate {rate:4}: {len(history.losses):5} steps in {history.seconds:5.2f} s, ", end="")
    print(f"{history.samples_per_second:7,.0f} samples a second, {passing[b]:.1%} right")
drawings.sizes(curves).savefig(FIGURES / "sizes.png")
assert min(passing[1], passing[16]) > 0.85 and passing[len(train)] < 0.7 and passing[16] > passing[256]

# %% [markdown]
# Per sample learns most per epoch, and has the slowest epochs: one row at a time, matrix products become
# vector products, and most of the time goes into starting them. All at once is the fastest epoch and hardly
# learns: two steps are two steps. In between lies what everybody does.
#
# ## 5. Larger batches, longer steps
# A parallel machine wants large batches: more to share out. If b grows and the rate stays, a step is the
# same length, only better aimed: as *many* steps are needed, each of more samples. If the rate grows with
# b, a step goes as far as the b small ones it replaces, as long as the slope does not change on the way.
# Let us count steps and epochs until 90 % of the test digits are right; the rate is 0.0025 b, and two seeds
# each.

# %%
print("\n5. Larger batches, longer steps")


class Arrived(Exception):
    """Raised in the middle of training, with the number of steps it took."""


def steps_to_90(b, rate, most_epochs, seed):
    """How many steps until 90 % are right (asked ten times an epoch); infinity where that does not happen."""
    shown = max(1, len(train) // b // 10)

    def look(model, step):
        if (step + 1) % shown == 0 and accuracy(model, test) >= 0.9:
            raise Arrived(step + 1)

    try:
        learn(b, lambda w: optim.SGD(w, rate), most_epochs, seed, look)
    except Arrived as arrived:
        return arrived.args[0]
    except FloatingPointError:  # the loss has left all bounds
        pass
    return math.inf


scaled = {
    b: [steps_to_90(b, 0.0025 * b, 10, seed) for seed in (0, 1)] for b in (8, 16, 32, 64, 128, 256, 512)
}
fixed = {8: scaled[8][0], **{b: steps_to_90(b, 0.02, 26, seed=0) for b in (16, 32)}}
for b, steps in scaled.items():
    if max(steps) == math.inf:
        print(f"   b = {b:3}, rate {0.0025 * b:.2f}: not in 10 epochs")
        continue
    epochs = np.mean(steps) * b / len(train)
    print(f"   b = {b:3}, rate {0.0025 * b:.2f}: {np.mean(steps):5.0f} steps, {epochs:4.1f} epochs", end="")
    print(f";  rate 0.02 {fixed[b]:5} steps, {fixed[b] * b / len(train):4.1f} epochs" if b in fixed else "")
drawings.larger(scaled, fixed, len(train)).savefig(FIGURES / "larger.png")

# %%
flat = [np.mean(steps) * b / len(train) for b, steps in scaled.items() if b <= 256]
assert max(flat) < 1.6 * min(flat)  # the same samples are needed, in a 32nd of the steps ...
assert min(scaled[512]) == math.inf  # ... until it breaks
assert max(fixed.values()) < 1.3 * min(fixed.values())  # at the same rate: the same steps, of more samples

# %% [markdown]
# From 8 to 256 samples the number of epochs hardly changes, and the number of steps falls as 1 / b: that is
# the room in which a parallel machine can work. Then it breaks: the rate has come to the cliff of part 2.
# Lesson 07 moves that cliff.
#
# ## 6. Momentum and Adagrad
# In a long narrow valley the rate has to suit the steep walls, and along the flat floor one creeps.
# *Momentum* keeps a velocity, v <- m v + gradient, w <- w - rate v: what points to and fro cancels, what
# points ahead adds up. Let kappa = steepest / flattest. A step of gradient descent shrinks the distance by
# a factor (kappa - 1) / (kappa + 1) at best. Momentum with rate 1 / steepest and m = (1 - 1 / sqrt(kappa))²
# gets 1 - 1 / sqrt(kappa). *Adagrad* gives every weight a rate of its own: it divides by the root of the
# sum of all squared gradients that this weight has had.

# %%
print("\n6. Momentum and Adagrad")
long = valley(scales=(1.0, 5.0))
goal = np.linalg.lstsq(long.x, long.y, rcond=None)[0][:, 0]
H = 2 * long.x.T @ long.x / len(long)
low, high = np.linalg.eigvalsh(H)
m, r = (1 - math.sqrt(low / high)) ** 2, 1 / high
makers = {
    "gradient descent": lambda w: optim.SGD(w, 2 / (high + low)),
    "momentum": lambda w: optim.SGD(w, r, momentum=m),
    "Adagrad": lambda w: optim.Adagrad(w, 1.0),
}
walks = {name: descend(long, make, epochs=200) for name, make in makers.items()}
needed = {name: int((np.linalg.norm(w - goal, axis=1) > 0.01).sum()) for name, w in walks.items()}
print(f"   kappa = {high / low:.0f}; steps until the weights are right to 0.01: ", end="")
print(", ".join(f"{name} {steps}" for name, steps in needed.items()))
assert needed["momentum"] < needed["gradient descent"] / 2

# %%
velocity, w = np.zeros(2), walks["momentum"][0]
for found in walks["momentum"][1:]:  # the textbook's two lines
    velocity = m * velocity + H @ (w - goal)
    w = w - r * velocity
    np.testing.assert_allclose(found, w, rtol=0, atol=1e-10)
first = np.abs(walks["Adagrad"][1] - walks["Adagrad"][0])
print(f"   Adagrad's first step moves the weights by {first}: exactly its rate, however steep it is")
np.testing.assert_allclose(first, 1.0, rtol=1e-9)

# %% [markdown]
# Adagrad had it easy: the valley lies along one of the weights. Turn it by 45 degrees, and both weights have
# the same slopes to deal with: there is nothing left to tell them apart.

# %%
turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
turned = Batch(long.x @ turn, long.y)
aslant = descend(turned, makers["Adagrad"], epochs=200)
slow = int((np.linalg.norm(aslant - goal @ turn, axis=1) > 0.01).sum())
print(f"   in a valley turned by 45 degrees Adagrad needs {slow} steps")
assert slow > 2 * needed["Adagrad"]

# %% [markdown]
# On the digits: momentum 0.9 adds up 1 + 0.9 + 0.81 + ... = 10 gradients, so it walks as far as ten times
# the rate.

# %%
names = {
    "rate 0.02": lambda w: optim.SGD(w, 0.02),
    "rate 0.02, momentum 0.9": lambda w: optim.SGD(w, 0.02, momentum=0.9),
    "rate 0.2": lambda w: optim.SGD(w, 0.2),
    "Adagrad, rate 0.02": lambda w: optim.Adagrad(w, 0.02),
}
losses = {name: np.array(learn(50, make, epochs=2)[1].losses) for name, make in names.items()}
last = {name: found[-50:].mean() for name, found in losses.items()}
print("   digits, loss in the second half of epoch 2:")
for name, loss in last.items():
    print(f"   {name + ':':24} {loss:.2f}")
assert abs(last["rate 0.02, momentum 0.9"] / last["rate 0.2"] - 1) < 0.1
assert max(last["rate 0.2"], last["Adagrad, rate 0.02"]) < 0.6 * last["rate 0.02"]
drawings.walks(lambda w: height(long, w), goal, walks, needed, losses).savefig(FIGURES / "walks.png")
print(f"\nFigures: {FIGURES}/")
