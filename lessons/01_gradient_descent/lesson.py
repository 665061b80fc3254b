"""Lesson 01. Gradient descent: compute the slope, take a step down, and repeat.

Lecture section: gradient descent; per sample, mini-batch, batch. The longest step that converges, the error
of a mini-batch's gradient and the use of its noise, what larger batches save, momentum and Adagrad.

The slide asks: should one step of gradient descent use one sample, some samples or all of them?

You need: derivatives of functions of several variables; matrices and eigenvalues; a mean and a variance.
Lesson 01 is the first one, and needs no other.

Time: about 50 minutes; the program runs for about 35 seconds.

After this you can: compute the largest learning rate of a quadratic loss; derive the squared error of a
mini-batch's gradient; say when larger mini-batches save steps, and when they no longer do.

    python lessons/01_gradient_descent/lesson.py

Figures go to runs/lessons/01_gradient_descent/. In an editor that knows `# %%` cells this file opens as a
notebook.
"""

# %%
import math

import drawings
import numpy as np
from minigrad_course.shared.style import start_lesson

from minigrad import Tape, Tensor, mnist, nn, ops, optim
from minigrad.data import Batch, minibatches
from minigrad.figures import save
from minigrad.lr_schedules import cosine
from minigrad.train import accuracy, fit

FIGURES = start_lesson("01_gradient_descent")

# %% [markdown]
# ## 1. Two weights and a bowl
# The model predicts y = w_1 x_1 + w_2 x_2 from two inputs. Its *loss* is the mean of (prediction - y)² over
# 64 samples. Over the plane of the two *weights* w_1 and w_2 the loss is a bowl, which we can draw. The loss
# of a network with a hundred thousand weights cannot be drawn. But at each point we can compute its slope in
# the direction of every weight. The vector of these slopes is the *gradient*, and
#
#     w <- w - rate * gradient
#
# is a step downhill. `rate` is the *learning rate*, a number that we choose.
#
# The gradient is a mean over samples, and a step may use the gradient of only some of them. *Batch* gradient
# descent uses all samples for each step, *mini-batch* gradient descent uses some, and gradient descent *per
# sample* uses one. The last two are called *stochastic gradient descent* (SGD), since the samples of a step
# are drawn at random; the library uses the name SGD for all three. When each sample has been used once, an
# *epoch* is over. `fit` is the library's loop over epochs and mini-batches: it computes the gradient of each
# mini-batch, and the optimizer, here `optim.SGD`, takes the step.

# %%
print("1. Two weights and a bowl")


def valley(scales, seed=0):
    """64 samples of y = 1.5 x_1 - x_2 + noise; an input that varies more makes the loss steeper."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(64, 2)) * scales
    return Batch(x, (x @ [1.5, -1.0] + rng.normal(size=64))[:, np.newaxis])


def descend(data, make, batch_size=None, epochs=1, schedule=None):
    """The two weights at the start and after every step, (steps + 1, 2)."""
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


# %%
bowl = valley(scales=(1.0, 2.0))
best = np.linalg.lstsq(bowl.x, bowl.y, rcond=None)[0][:, 0]  # where the gradient is zero
plans = {"batch": (64, 0.1, 30), "mini-batch of 8": (8, 0.06, 6), "per sample": (1, 0.03, 2)}
paths = {}
for name, (size, rate, epochs) in plans.items():
    paths[name] = descend(bowl, lambda w, rate=rate: optim.SGD(w, rate), size, epochs)
    uphill = (np.diff(height(bowl, paths[name])) > 0).mean()
    off = np.linalg.norm(paths[name][-1] - best)
    print(f"   {name + ':':17} {len(paths[name]) - 1:3} steps, {64 * epochs:4} samples; ", end="")
    print(f"{uphill:3.0%} go uphill; {off:.3f} from the best")

# %%
save(drawings.bowl(lambda w: height(bowl, w), best, paths, plans), FIGURES / "bowl.png")

# %% [markdown]
# With all samples every step goes downhill, and the path is smooth. The gradient of a single sample is the
# slope of the loss of this one sample: many steps go *up*, and the weights never come to rest. But the run
# per sample costs less: it used two epochs, and the batch run thirty.
#
# For a bowl the batch path is known exactly. Let the rows of X be the n samples, and let H = 2 XᵀX / n be the
# matrix of the second derivatives of the loss, its *Hessian*. Every step multiplies the vector from the best
# point to the weights by (I - rate H). We compare the path with this formula.

# %%
hessian = 2 * bowl.x.T @ bowl.x / len(bowl)
shrink = np.eye(2) - 0.1 * hessian
by_formula = [best + np.linalg.matrix_power(shrink, t) @ (paths["batch"][0] - best) for t in range(31)]
error = np.abs(paths["batch"] - by_formula).max()
assert error < 1e-12, f"the path differs from the formula by {error:.1e}, limit 1e-12"
for name, (least, most) in {"batch": (0, 0), "per sample": (0.2, 1)}.items():
    uphill = (np.diff(height(bowl, paths[name])) > 0).mean()
    assert least <= uphill <= most, (
        f"{name}: {uphill:.0%} of the steps go uphill, not {least:.0%} to {most:.0%}"
    )

# %% [markdown]
# The weights of the run per sample come to rest if the learning rate falls to zero. A usual *schedule*, which
# gives the learning rate of each step, is the *cosine schedule*: rate(t) = rate(0) (1 + cos(pi t / T)) / 2
# for step t of T (Loshchilov and Hutter 2017).

# %%
restless = descend(bowl, lambda w: optim.SGD(w, 0.03), 1, epochs=20)
settled = descend(bowl, lambda w: optim.SGD(w, 0.03), 1, epochs=20, schedule=cosine(0.03, 20 * 64))
far, near = (np.linalg.norm(path[-64:] - best, axis=1).mean() for path in (restless, settled))
print(f"   per sample, epoch 20: {far:.3f} from the best on average; {near:.3f} with the cosine schedule")
assert near < far / 4, f"distance {near:.3f} with a falling rate, {far:.3f} without: expected below a quarter"

# %% [markdown]
# Read: Robbins and Monro 1951, doi:10.1214/aoms/1177729586; Loshchilov and Hutter 2017, arXiv:1608.03983,
# section 3.
#
# ## 2. The largest learning rate
# With a learning rate that is too small, training takes too long. With one that is too large, a step jumps
# over the valley to a higher point on the other side, and the next step jumps back to a still higher point.
# The formula above gives the limit. In the steepest direction H has its largest eigenvalue, L, and a step
# multiplies the distance in this direction by 1 - rate L. The distance falls only if |1 - rate L| < 1, so
# **rate < 2 / L**.

# %%
print("\n2. The largest learning rate")
steepest = np.linalg.eigvalsh(hessian).max()
rates = {"0.02": 0.02, "0.3": 0.3, "1": 1.0, "1.9": 1.9, "2.05": 2.05}  # in parts of 1 / L
falls = {}
for name, part in rates.items():
    descent = descend(bowl, lambda w, part=part: optim.SGD(w, part / steepest), epochs=40)
    falls[name] = np.linalg.norm(descent - best, axis=1)
    print(f"   rate {name:>4} / L: distance {falls[name][0]:.2f}, after 40 steps {falls[name][-1]:.3g}")
ends = {name: distance[-1] for name, distance in falls.items()}
assert ends["1.9"] < 0.1 < ends["0.02"], f"ends {ends['1.9']:.2g} (1.9 / L) and {ends['0.02']:.2g} (0.02 / L)"
far = falls["2.05"][0]
assert ends["2.05"] > far, f"rate 2.05 / L: distance {far:.2f} at the start, {ends['2.05']:.2f} in the end"

# %% [markdown]
# A network does not have one H for all weights, but it has the same two limits. We train one on 5,000
# handwritten digits of 784 pixels. Its first layer computes 64 weighted sums of the pixels, the *hidden
# neurons*. ReLU, max(0, x), sets the negative ones to 0. From these the second layer computes ten scores, one
# for each digit, and *softmax*, e^score divided by the sum of all ten e^score, makes probabilities of them.
# The loss is the *cross-entropy*: minus the logarithm of the probability of the right digit, a mean over the
# samples.
#
# We train for one epoch in mini-batches of 16, with learning rates from 0.0001 to 3. The *accuracy* is the
# share of the 1,000 test digits that are classified correctly.

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
print("   digits, at a rate of:" + "".join(f"{rate:7g}" for rate in sweep))
print("   right after an epoch:" + "".join(f"{share:7.0%}" for share in sweep.values()))
good, bad = max(sweep[0.03], sweep[0.1], sweep[0.3]), max(sweep[1e-4], sweep[3.0])
assert good > 0.8 and bad < 0.5, (
    f"accuracy {good:.0%} at the best rates, {bad:.0%} at the smallest and largest"
)

# %%
save(drawings.rates(falls, sweep), FIGURES / "rates.png")

# %% [markdown]
# Read: LeCun, Bottou, Orr and Müller 1998, "Efficient BackProp", doi:10.1007/3-540-49430-8_2, section 5.
#
# ## 3. The error of a mini-batch's gradient
# The gradient of the loss is the mean of the gradients of all n samples. The gradient of a mini-batch is the
# mean of b of them: an estimate, like an opinion poll of b people. It is *unbiased*: its mean over the
# mini-batches of an epoch is the full gradient. Its *squared error* is the squared length of its difference
# from the full gradient. A single sample has a squared error, too, and e is the mean of this over all
# samples. Then the squared error of a mini-batch is, on average,
#
#     e / b * (n - b) / (n - 1)
#
# The second factor is there because no sample is drawn twice: with b = n there is no error. Here n is 1,000
# digits.
#
# The gradient is computed by a `Tape`. It records what the model computes, and `tape.backward(loss)` then
# stores the gradient of each parameter in its `grad`. Lesson 02 shows how.

# %%
print("\n3. The error of a mini-batch's gradient")
model = network(dtype=np.float64)
exact = Batch(train.x.astype(np.float64), train.y)


def gradient(batch):
    """The gradient of the mean loss over a batch: the gradients of all parameters as one vector."""
    for parameter in model.parameters():
        parameter.grad = None
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
    tape.backward(loss)
    return np.concatenate([parameter.grad.ravel() for parameter in model.parameters()])


full = gradient(exact)
mean = np.mean([gradient(batch) for batch in minibatches(exact, 50, seed=0, epoch=0)], axis=0)
print(f"   the mean of an epoch's 100 gradients is the full one, up to {np.abs(mean - full).max():.0e}")
error = np.abs(mean - full).max()
assert error < 1e-12, f"the mean of the 100 gradients differs from the full one by {error:.1e}, limit 1e-12"

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
for b, measurement, theory in zip(sizes, measured, expected, strict=True):
    print(f"   b = {b:3}: squared error {measurement:.4f}, by the formula {theory:.4f}")
    off = abs(measurement / theory - 1)  # 100 draws: a standard error of 5 to 10 %
    assert off < 0.2, (
        f"b = {b}: squared error {measurement:.4f}, the formula gives {theory:.4f}, more than 20% apart"
    )
print(f"   the squared length of the gradient itself is {full @ full:.4f}")

# %%
save(drawings.noise(sizes, measured, of_one, n, full @ full), FIGURES / "noise.png")

# %% [markdown]
# Four times the samples halve the error, since its square falls to a quarter; but they cost four times the
# work. So a sample of a large mini-batch improves the gradient less than a sample of a small one.
#
# Read: Bottou, Curtis and Nocedal 2018, arXiv:1606.04838, sections 3.3 and 4.
#
# ## 4. Noise can leave a shallow minimum
# The loss of a network has many minima. One weight is enough to see what that means: a *double well* has a
# shallow minimum on the right and a deep one on the left. There are 64 samples. The loss of sample i is this
# curve plus a line, s_i w. The mean of all s_i is 0, so the mean loss is the curve itself. Batch gradient
# descent goes down to the nearest minimum and stays there, although a better one exists: *premature
# convergence*. The gradient of a mini-batch has an error, by the formula of part 3, and this noise can carry
# the weight over the barrier between the wells.

# %%
print("\n4. Noise can leave a shallow minimum")
rng, SAMPLES, WALKERS = np.random.default_rng(0), 64, 200
tilts = rng.normal(0, 2, SAMPLES)
tilts -= tilts.mean()


def double_well(w):
    """The loss over all samples, w⁴ / 4 - w² / 2 + 0.15 w."""
    return w**4 / 4 - w**2 / 2 + 0.15 * w


def in_double_well(b, steps=500, rate=0.1):
    """The weight after each step of 200 runs from w = 1.3 that draw different mini-batches."""
    rng, paths = np.random.default_rng(b), [np.full(WALKERS, 1.3)]
    for _ in range(steps):
        drawn = rng.random((WALKERS, SAMPLES)).argpartition(b - 1, axis=1)[:, :b]
        w = paths[-1]
        paths.append(w - rate * (w**3 - w + 0.15 + tilts[drawn].mean(axis=1)))
    return np.array(paths)


wells = {b: in_double_well(b) for b in (1, 2, 4, 8, 16, 64)}
shares = {b: (path[-1] < 0).mean() for b, path in wells.items()}
for b, share in shares.items():
    print(f"   b = {b:2}: {share:4.0%} of 200 runs end in the deep well")
assert shares[64] == 0, f"the full batch left the shallow well in {shares[64]:.0%} of the runs, expected 0%"
assert shares[1] > 0.7, f"single samples reached the deep well in {shares[1]:.0%} of the runs, expected > 70%"
minimum = min(np.roots([1, 0, -1, 0.15]).real, key=lambda w: abs(w - 1))  # the shallow one: its slope is 0
off = np.abs(wells[64][-1] - minimum).max()
assert off < 1e-6, f"the full batch ends {off:.1e} from the shallow minimum at {minimum:.3f}, limit 1e-6"

# %%
save(drawings.double_well(double_well, wells, shares), FIGURES / "double_well.png")

# %% [markdown]
# With one or two samples most runs end in the deep well; with large mini-batches the noise is too small.
# Noise does not always help: with b = 1 some runs end outside the deep well, and no run comes to rest. That
# is one reason to let the learning rate fall at the end (part 1).
#
# Read: Keskar et al. 2017, arXiv:1609.04836, section 2; Kleinberg, Li and Yuan 2018, "An alternative view:
# when does SGD escape local minima?", arXiv:1802.06175.
#
# ## 5. Per sample, mini-batch, batch
# Two epochs on the digits, with a learning rate that suits each batch size. Every run uses the same 10,000
# samples; the number of steps differs.

# %%
print("\n5. Per sample, mini-batch, batch")
curves, passing = {}, {}
for b, rate in ((1, 0.01), (16, 0.1), (256, 0.5), (len(train), 0.5)):
    shown = max(1, math.ceil(len(train) / b) // 10)
    curve = []

    def look(model, step, b=b, shown=shown, curve=curve):
        if (step + 1) % shown == 0:
            curve.append(((step + 1) * b / len(train), accuracy(model, test)))

    model, history = learn(b, lambda w, rate=rate: optim.SGD(w, rate), epochs=2, on_step=look)
    curves[b], passing[b] = np.array(curve), accuracy(model, test)
    taken, due = len(history.losses), 2 * math.ceil(len(train) / b)
    assert taken == due, f"b = {b}: {taken} steps in two epochs, expected {due}"
    print(f"   b = {b:4}, rate {rate:4}: {len(history.losses):5} steps in {history.seconds:5.2f} s, ", end="")
    print(f"{history.samples_per_second:7,.0f} samples/s, {passing[b]:.1%} right")
small, all_at_once = min(passing[1], passing[16]), passing[len(train)]
assert small > 0.85 and all_at_once < 0.7, f"accuracy {small:.1%} for b of 1 or 16, {all_at_once:.1%} for all"
assert passing[16] > passing[256], f"accuracy {passing[16]:.1%} for b = 16, {passing[256]:.1%} for b = 256"

# %%
save(drawings.sizes(curves), FIGURES / "sizes.png")

# %% [markdown]
# Gradient descent per sample learns most per epoch, but its epochs are slow: a matrix product becomes a
# matrix-vector product, and the overhead of each call dominates. Batch gradient descent has the fastest
# epochs, but two epochs are only two steps. So mini-batches are the usual choice.
#
# Read: LeCun et al. 1998, "Efficient BackProp", section 4.1.
#
# ## 6. Larger batches, larger learning rates
# A parallel machine needs large batches, to have more work to share. If b grows and the learning rate stays,
# a step is as long as before and has a better direction: about as *many* steps are needed, and each takes
# more samples. If the learning rate grows in proportion to b, one step goes about as far as the several small
# steps that it replaces, as long as the slope does not change on the way.
#
# We count steps and epochs until 90 % of the test digits are right: with a learning rate of 0.0025 b (two
# seeds, which set the initial weights and the order of the samples), and with 0.02 for every b (one seed).
# Each run may take 20 epochs.

# %%
print("\n6. Larger batches, larger learning rates")
MOST_EPOCHS = 20


class Arrived(Exception):
    """The accuracy is reached: ends a training, with the number of steps that it took."""


def steps_to_90(b, rate, seed):
    """Steps until the accuracy, measured ten times an epoch, is 90 %; infinity if it is not reached."""
    shown = max(1, len(train) // b // 10)

    def look(model, step):
        if (step + 1) % shown == 0 and accuracy(model, test) >= 0.9:
            raise Arrived(step + 1)

    try:
        learn(b, lambda w: optim.SGD(w, rate), MOST_EPOCHS, seed, look)
    except Arrived as arrived:
        return arrived.args[0]
    except FloatingPointError:  # the loss is no longer finite
        pass
    return math.inf


sizes = (8, 16, 32, 64, 128, 256, 512)
scaled = {b: [steps_to_90(b, 0.0025 * b, seed) for seed in (0, 1)] for b in sizes}
fixed = {8: scaled[8][0], **{b: steps_to_90(b, 0.02, seed=0) for b in (16, 32, 64)}}


def in_words(b, steps):
    return f"{steps:4.0f} steps, {steps * b / len(train):4.1f} epochs" if steps < math.inf else "not reached"


for b, steps in scaled.items():
    print(f"   b = {b:3}: rate {0.0025 * b:4.2f}: {in_words(b, np.mean(steps))}", end="")
    print(f"; 0.02: {in_words(b, fixed[b])}" if b in fixed else "")

# %%
save(drawings.larger(scaled, fixed, len(train), MOST_EPOCHS), FIGURES / "larger.png")

# %%
flat = [np.mean(steps) * b / len(train) for b, steps in scaled.items() if b <= 256]
assert max(flat) < 1.6 * min(flat), (
    f"epochs between {min(flat):.1f} and {max(flat):.1f}: expected about the same"
)
assert min(scaled[512]) == math.inf, f"b = 512 reached 90% after {min(scaled[512])} steps, expected never"
few, many = (f([steps for b, steps in fixed.items() if b <= 32]) for f in (min, max))
assert many < 1.3 * few, f"at the same rate between {few} and {many} steps: expected about the same"
assert fixed[64] == math.inf, f"b = 64, rate 0.02: {fixed[64]} steps, expected more than {MOST_EPOCHS} epochs"

# %% [markdown]
# With the learning rate in proportion to b, the number of epochs hardly changes from 8 to 256 samples, and
# the number of steps falls as 1 / b: this is the range in which a parallel machine saves time. With 512
# samples training fails: the learning rate has come to the limit of part 2. Lesson 07 explains the rule, and
# moves the limit. With the same learning rate for every b, the number of steps hardly changes, and the number
# of epochs grows as b.
#
# Read: Goyal et al. 2017, arXiv:1706.02677, section 2.1.
#
# ## 7. Momentum and Adagrad
# In a long narrow valley the learning rate must suit the steep walls, and then the steps along the flat floor
# are very small. *Momentum* keeps a velocity v:
#
#     v <- m v + gradient
#     w <- w - rate v
#
# Parts of the gradient that change their sign in every step cancel, and parts that keep their sign add up.
# Let kappa be the largest eigenvalue of H divided by the smallest. At best, with rate 2 / (largest +
# smallest), a step of gradient descent multiplies the distance by (kappa - 1) / (kappa + 1). Momentum with
# rate 1 / largest and m = (1 - 1 / sqrt(kappa))² reaches 1 - 1 / sqrt(kappa) per step, which is much less if
# kappa is large.
#
# *Adagrad* gives every weight its own learning rate: it divides the rate by the root of the sum of all
# squared gradients that this weight has had.

# %%
print("\n7. Momentum and Adagrad")
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
slow, fast = needed["gradient descent"], needed["momentum"]
assert fast < slow / 2, f"momentum needs {fast} steps, gradient descent {slow}: expected less than half"

# %%
velocity, w = np.zeros(2), walks["momentum"][0]
for step, position in enumerate(walks["momentum"][1:], 1):  # the two lines above
    velocity = m * velocity + H @ (w - goal)
    w = w - r * velocity
    assert np.abs(position - w).max() < 1e-10, (
        f"momentum, step {step}: weights {position}, by the formula {w}"
    )
first = np.abs(walks["Adagrad"][1] - walks["Adagrad"][0])
print(f"   Adagrad's first step moves the weights by {first}: exactly its rate, however steep it is")
assert np.abs(first - 1).max() < 1e-9, f"Adagrad's first step is {first}, expected its rate, 1"

# %% [markdown]
# This valley is easy for Adagrad, since its floor is parallel to the axis of one weight. Turn it by 45
# degrees, and both weights have slopes of the same size: a learning rate for each weight does not help then.

# %%
turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / math.sqrt(2)
turned = Batch(long.x @ turn, long.y)
aslant = descend(turned, makers["Adagrad"], epochs=200)
slow = int((np.linalg.norm(aslant - goal @ turn, axis=1) > 0.01).sum())
print(f"   in a valley turned by 45 degrees Adagrad needs {slow} steps")
straight = needed["Adagrad"]
assert slow > 2 * straight, f"Adagrad needs {slow} steps in the turned valley, {straight} in the other"

# %% [markdown]
# On the digits: with m = 0.9 a gradient counts 1 + 0.9 + 0.81 + ... = 10 times in all steps that follow, so
# momentum goes as far as ten times the learning rate does without it.

# %%
names = {
    "rate 0.02": lambda w: optim.SGD(w, 0.02),
    "rate 0.02, momentum 0.9": lambda w: optim.SGD(w, 0.02, momentum=0.9),
    "rate 0.2": lambda w: optim.SGD(w, 0.2),
    "Adagrad, rate 0.02": lambda w: optim.Adagrad(w, 0.02),
}
losses = {name: np.array(learn(50, make, epochs=2)[1].losses) for name, make in names.items()}
last = {name: curve[-50:].mean() for name, curve in losses.items()}
print("   digits, loss in the second half of epoch 2:")
for name, loss in last.items():
    print(f"   {name + ':':24} {loss:.2f}")
ratio = last["rate 0.02, momentum 0.9"] / last["rate 0.2"]
assert abs(ratio - 1) < 0.1, f"momentum 0.9 ends at {ratio:.2f} times the loss of ten times the rate"
better, plain = max(last["rate 0.2"], last["Adagrad, rate 0.02"]), last["rate 0.02"]
assert better < 0.6 * plain, f"losses {better:.2f} (rate 0.2, Adagrad) and {plain:.2f} (rate 0.02)"

# %%
save(drawings.walks(lambda w: height(long, w), goal, walks, needed, losses), FIGURES / "walks.png")

# %% [markdown]
# Read: Polyak 1964, doi:10.1016/0041-5553(64)90137-5; Duchi, Hazan and Singer 2011, "Adaptive subgradient
# methods", Journal of Machine Learning Research 12, pages 2121-2159.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - Each optimizer takes the steps of its textbook recurrence, for any gradients, rates and momenta:
#   [tests](../../tests/minigrad/test_optim.py).
# - The cosine schedule, and every other schedule of the library, has the value of its formula at each step:
#   [tests](../../tests/minigrad/test_lr_schedules.py).
# - The mini-batches of an epoch contain each sample once, in an order that the seed determines:
#   [tests](../../tests/minigrad/test_data.py).
# - Only here, by the assertions of this lesson on its own data, which [a
#   test](../../tests/lessons/test_lessons.py) runs: the batch path equals (I - rate H)^t, rates above 2 / L
#   lead away, and a mini-batch's squared error is e / b (n - b) / (n - 1), up to 20 %.
#
# Not proved: samples per second, and how accuracies depend on the size of a mini-batch. They are measurements
# of one network on one data set, and other networks have other limits.
#
# Next: [lesson 02](../02_backpropagation/lesson.py): how the gradient of any network is computed.
