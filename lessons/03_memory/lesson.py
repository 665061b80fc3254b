"""Lesson 03. Memory: how long data live, and what training keeps that inference lets go.

Lecture section: data lifetimes. What is alive when; what an optimizer adds; VGG-16 (Simonyan and Zisserman
2015) counted to the last parameter; and computing again instead of keeping (Chen et al. 2016).

    python lessons/03_memory/lesson.py

Needs neither MPI nor a cluster. Figures go to runs/lessons/03_memory/. In an editor that knows `# %%` cells
this file opens as a notebook.
"""

# %%
import math
from itertools import pairwise

import drawings
import numpy as np
import vgg16
from diary import Diary, Mark

from lessons.style import start_lesson
from minigrad import Tape, Tensor, mnist, nn, ops, optim, recomputed
from minigrad.data import Batch
from minigrad.memory import base_of, retained_arrays

FIGURES = start_lesson("03_memory")
digits = mnist.load("mnist5k").train
MB = 1e6

# %% [markdown]
# ## 1. Who still needs it?
# A layer's output is needed by the next layer. In inference by nobody else: then it can go. In training its
# gradient asks for it again, much later: the gradient of the weights of `y = x W` is `x^T g`, so x has to
# stay until backward comes back to this layer. First computed, last let go.
#
# We watch it. A `Mark` behind each layer notes when the layer is done, and when an array's memory is given
# back (the two of them are in diary.py). A *step* is what happens between two notes: one layer.

# %%
print("1. Who still needs it?")
N, WIDTHS = 500, (784, 512, 384, 256, 128, 10)
batch = Batch(digits.x[:N].reshape(N, -1).copy(), digits.y[:N].copy())


def network(diary=None, widths=WIDTHS):
    rng, layers = np.random.default_rng(0), []
    for i, (n_in, n_out) in enumerate(pairwise(widths), 1):
        for name, layer in ((f"linear {i}", nn.Linear(n_in, n_out, rng=rng)), (f"relu {i}", nn.ReLU())):
            layers += [layer, Mark(diary, name)] if diary else [layer]
    return nn.Sequential(*layers[: -2 if diary else -1])  # no ReLU at the end


def infer():
    diary = Diary()
    model = network(diary)
    with diary:
        y = model(Tensor(batch.x))
        del y
        diary.tick("end")
    return diary


def train():
    diary = Diary()
    model = network(diary)
    names = {id(p): name for name, p in model.named_parameters().items()}
    with diary:
        with Tape() as tape:
            loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
        diary.tick("loss")
        held = tape.nbytes
        tape.backward(loss, on_grad=lambda p: diary.note("weights", names[id(p)], p.grad, ends_step=False))
        diary.tick("end")
    return diary, held


inference, (training, held) = infer(), train()
layers = len(inference.names) - 1
for name, diary in (("inference", inference), ("training", training)):
    most = max(diary.most)
    print(f"   {name:9}: at most {most / MB:5.2f} MB, in the step '{diary.names[diary.most.index(most)]}'")

# %% [markdown]
# Layer j (0, 1, ...) works in step j. In inference its output dies one step later. In training so does what a
# *linear* layer puts out, since a ReLU finds its gradient from its own output: 1 where that is positive. But
# the ReLU's output, which is also the next linear layer's input, lives until backward has passed both. Going
# back, layer j's turn is step 2 T + 1 - j, with T layers and the loss in between (steps T and T + 1).

# %%
for j in range(layers):
    key = "activation", inference.names[j]
    assert inference.lives[key] == [j, j + 1]
    last_use = 2 * layers + 1 - j if "relu" in key[1] else j + 1
    assert training.lives[key] == [j, last_use], (key, training.lives[key])
for life in (v for (kind, _), v in training.lives.items() if kind == "gradient"):
    assert life[1] <= life[0] + 1  # an activation's gradient is needed by one layer only
assert all(life[1] is None for (kind, _), life in training.lives.items() if kind == "weights")
drawings.lifetimes(inference, training, layers).savefig(FIGURES / "lifetimes.png")

# %% [markdown]
# So two formulas. Inference needs room for the *largest* pair of neighbours, in + out; training for the *sum*
# of what backward asks for. (Besides both, the batch itself, which is there anyway, but counts as held by the
# tape. And the most that was held above, in the first layer's step back, is more than what is kept of the
# activations: the gradients of the weights have come by then.) The loss keeps the probabilities, the labels
# and the row numbers.

# %%
pairs = max(
    inference.nbytes["activation", a] + inference.nbytes["activation", b]
    for a, b in pairwise(inference.names[:-1])
)
kept = 4 * N * sum(WIDTHS[:-1]) + N * (4 * 10 + 8 + batch.y.itemsize)
print(f"   formulas : inference max(in + out) = {pairs / MB:.2f} MB, training's tape {kept / MB:.2f} MB")
assert pairs == 2 * 4 * N * WIDTHS[1] and held == kept
assert pairs <= max(inference.most) < 1.05 * pairs
assert kept - batch.x.nbytes - batch.y.nbytes <= training.now[layers] < 1.05 * kept

# %% [markdown]
# Deeper networks: inference needs no more, training needs more with every layer. That is the price of
# back-propagation. The tape tells it without measuring: `Tape.nbytes`.

# %%
depths, found = (1, 2, 4, 8, 16), {"inference": [], "training": []}
for depth in depths:
    model = network(diary := Diary(), (784, *[256] * depth, 10))
    with diary:
        model(Tensor(batch.x))
    found["inference"].append(max(diary.most))
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
    found["training"].append(tape.nbytes)
steps = np.diff(found["training"]) / np.diff(depths)
print(f"   from {depths[0]} to {depths[-1]} hidden layers: ", end="")
print(", ".join(f"{name} {some[0] / MB:.1f} to {some[-1] / MB:.1f} MB" for name, some in found.items()))
assert (steps == 4 * N * 256).all() and max(found["inference"][1:]) < 1.1 * 2 * 4 * N * 256

# %% [markdown]
# ## 2. What the optimizer adds
# Not the batch but the model decides about the rest: the weights, their gradients (as many numbers), and what
# the optimizer remembers of earlier steps.

# %%
print("\n2. What the optimizer adds")
OPTIMIZERS = {
    "SGD": (lambda p: optim.SGD(p, 0.01), 0),
    "momentum": (lambda p: optim.SGD(p, 0.01, momentum=0.9), 1),
    "Adagrad": (optim.Adagrad, 1),
    "Adam": (optim.Adam, 2),
}
for name, (make, copies) in OPTIMIZERS.items():
    model = network()
    for p in model.parameters():
        p.grad = np.ones_like(p.data)
    weights = sum(p.data.nbytes for p in model.parameters())
    optimizer = make(model.parameters())
    with Diary() as diary:
        optimizer.step()
        diary.tick("step")
    state = sum(a.nbytes for a in {id(b): b for b in map(base_of, retained_arrays(optimizer.state))}.values())
    print(f"   {name:8} remembers {state / weights:.0f} x the weights; ", end="")
    print(
        f"its first step took {diary.most[0] / weights:.2f} x, of which {diary.now[0] / weights:.2f} x stay"
    )
    assert state == copies * weights
    assert abs(diary.now[0] - state) < 0.02 * weights

# %% [markdown]
# (More than what stays: Adagrad and Adam work with whole arrays on the way, SGD with pieces that fit into the
# cache.) So with parameters of 4 bytes training holds 8 bytes a parameter (SGD), 12 (momentum, Adagrad) or
# 16 (Adam), and inference 4. Lesson 06 shares these out among ranks (ZeRO).
#
# ## 3. VGG-16
# The network that made 3 x 3 convolutions famous: 13 of them, five poolings, three fully-connected layers.
# Its layers are written down in vgg16.py, and counted without allocating any. Is the count right? Build it 16
# times thinner, for images of 32 x 32, and compare with what really is there, layer by layer.

# %%
print("\n3. VGG-16")
small = dict(side=32, thinner=16, classes=10)
model, counted = vgg16.build(np.random.default_rng(0), **small).to(dtype=float), vgg16.count(**small)
images = np.random.default_rng(1).normal(size=(4, 3, 32, 32))
assert sum(p.data.size for p in model.parameters()) == sum(layer.parameters for layer in counted)
x, sizes = Tensor(images), []
for layer in model.layers:
    x = layer(x)
    if not isinstance(layer, nn.ReLU | nn.Flatten):
        sizes.append(x.data[0].size)
assert sizes == [layer.outputs for layer in counted]


def activations(counted, side):
    """Numbers that training keeps of one image: the image, and what every layer puts out."""
    return 3 * side * side + sum(layer.outputs for layer in counted)


with Tape() as tape:
    loss = ops.cross_entropy(model(Tensor(images)), np.zeros(4, int))
kept = tape.nbytes / 8 / len(images)
print(
    f"   16 times thinner, on 32 x 32: {activations(counted, 32):,} numbers an image; a tape keeps {kept:,g}"
)
# Besides the count: row number and label.
assert kept == activations(counted, 32) + 2

# %%
full = vgg16.count()
parameters, outputs = sum(layer.parameters for layer in full), activations(full, 224)
convolutions = [layer for layer in full if "conv" in layer.name]
in_convolutions = sum(layer.parameters for layer in convolutions)
products = sum(layer.products for layer in full)
print(f"   whole: {parameters:,} parameters = {4 * parameters / MB:.0f} MB,", end=" ")
print(f"{1 - in_convolutions / parameters:.1%} of them in the three fully-connected layers")
print(f"   one image: {outputs:,} numbers kept = {4 * outputs / MB:.0f} MB,", end=" ")
print(
    f"{products / 1e9:.2f} billion products, {sum(c.products for c in convolutions) / products:.1%} in conv"
)
assert parameters == 138_357_544 and 4 * parameters == 553_430_176
assert in_convolutions == 14_714_688 and parameters - in_convolutions == 123_642_856
assert outputs == 15_237_608 and sum(c.outputs for c in convolutions) == 13_547_520
assert round(products / 1e9, 2) == 15.47
largest_pair = max(a.outputs + b.outputs for a, b in pairwise(full))
assert largest_pair == 2 * 64 * 224**2
drawings.layers(full).savefig(FIGURES / "vgg16_layers.png")

# %% [markdown]
# Two halves that could not be more different: the convolutions hold the activations and the work, the
# fully-connected layers the parameters. (Therefore data parallelism for the first and model parallelism for
# the others: lesson 14.)
#
# "VGG-16 is a 500 MB model" is true of inference. Training, by batch size:

# %%
BATCHES = (1, 8, 32, 64, 128, 256)


def training_bytes(images, state=1):
    """Weights, their gradients, ``state`` copies of them that the optimizer has; and activations."""
    return [4 * parameters] * (2 + state) + [4 * outputs * images]


print("   batch   inference   training with momentum   with Adam   of which activations")
for n in BATCHES:
    total, adam = (sum(training_bytes(n, state)) for state in (1, 2))
    inferring = 4 * parameters + 4 * largest_pair * n
    share = training_bytes(n)[-1] / total
    print(f"   {n:5} {inferring / 1e9:8.2f} GB {total / 1e9:21.2f} GB {adam / 1e9:8.2f} GB {share:19.0%}")
fixed = sum(training_bytes(0))
even = math.ceil(fixed / (4 * outputs))
print(f"   the model's part is {fixed / 1e9:.2f} GB (Adam {sum(training_bytes(0, 2)) / 1e9:.2f}); ", end="")
print(f"from {even} images on the activations are more")
assert round(fixed / 1e9, 2) == 1.66 and even == 28
drawings.by_batch(BATCHES, [training_bytes(n) for n in BATCHES]).savefig(FIGURES / "vgg16_training.png")

# %% [markdown]
# These are the arrays that must be kept; room to work in (the windows of a convolution, the gradients that
# pass) comes on top.
#
# ## 4. Compute it again
# The other way to have what backward asks for: do not keep it, compute it a second time. Cut n layers into k
# segments and keep only what comes into each. Backward takes the last segment first: it runs its n / k layers
# forward once more, this time kept, then goes back through them, and lets them go. So at most k + n / k
# activations are alive, least for k = sqrt(n): 2 sqrt(n) instead of n.

# %%
print("\n4. Compute it again")
for n in (16, 36, 100):
    best = min(range(1, n + 1), key=lambda k, n=n: k + n / k)
    assert best == math.isqrt(n) and best + n / best == 2 * best
    print(f"   {n:3} layers: {n:3} activations, or {2 * best:2} in {best:2} segments")
DEEP, WIDTH = 36, 16
tall = Batch(*np.random.default_rng(2).normal(size=(2, 1000, WIDTH)))


def step(segments=None):
    """A step of ``DEEP`` layers in segments of that many layers; its diary, and the gradients."""
    diary, rng, layers = Diary(), np.random.default_rng(0), []
    for i in range(DEEP):
        layers += [nn.Linear(WIDTH, WIDTH, rng=rng, dtype=float), nn.Tanh(), Mark(diary, i)]
    model = nn.Sequential(*layers)
    model = recomputed(model, [3 * bound for bound in segments]) if segments else model
    with diary:
        with Tape() as tape:
            loss = ops.mse(model(Tensor(tall.x)), tall.y)
        tape.backward(loss)
        diary.tick("end")
    return diary, [p.grad for p in model.parameters()]


def forwards(diary):
    return sum(isinstance(name, int) for name in diary.names)


def most(diary):
    return max(diary.most) / tall.x.nbytes  # in activations of one layer


plain, wanted = step()
runs = {}
for k in (k for k in range(1, DEEP + 1) if DEEP % k == 0):
    bounds = range(0, DEEP + 1, DEEP // k)
    for last_too in (True, False):
        if k == 1 and not last_too:
            continue
        diary, gradients = step(bounds if last_too else bounds[:-1])
        assert all(np.array_equal(a, b) for a, b in zip(gradients, wanted, strict=True))  # bit by bit
        assert forwards(diary) == 2 * DEEP - (0 if last_too else DEEP // k)
        runs[k, last_too] = diary
print(f"   all kept       : {most(plain):4.1f} activations, {forwards(plain)} layers run forward")
for k in (1, 2, 6, 18, 36):
    whole = runs[k, True]
    print(f"   in {k:2} segments: {most(whole):4.1f} activations, {forwards(whole)} layers", end="")
    print(f"; the last one kept: {forwards(runs[k, False])}" if k > 1 else "")
memory = {k: most(diary) for (k, last_too), diary in runs.items() if last_too}
assert min(memory, key=memory.get) == 6 and memory[6] < 0.5 * most(plain)
assert all(0 <= found - (k + DEEP / k) < 5 for k, found in memory.items())  # + what a layer works with
assert all(most(runs[k, False]) <= memory[k] + 0.5 for k in memory if k > 1)

# %% [markdown]
# A forward more, a third of the work of a step, and the gradients are the same bit by bit. The last segment
# goes back as soon as it came, so nothing is saved by computing it again: kept, it spares n / k layers.

# %%
drawings.recomputation(plain, runs, DEEP, tall.x.nbytes, most, forwards).savefig(
    FIGURES / "recomputation.png"
)
print(f"\nFigures: {FIGURES}/")
