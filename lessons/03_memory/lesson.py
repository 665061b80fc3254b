"""Lesson 03. Memory: how long data live, and what training keeps that inference does not need.

Lecture section: data lifetimes. Which arrays exist when, the arrays that an optimizer adds, VGG-16 counted to
the last parameter, activation checkpointing.

The slide asks: which data must stay in memory during training, and for how long?

You need: lessons 01 and 02; what a convolution and a pooling are (lesson 02, part 7).

Time: about 40 minutes; the program runs for about 5 seconds.

After this you can: compute the memory that training a network takes; say when each array can be freed; derive
how many segments activation checkpointing needs.

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
from memory_trace import Mark, MemoryTrace
from minigrad_course.shared.style import start_lesson

from minigrad import Tape, Tensor, mnist, nn, ops, optim, recomputed
from minigrad.data import Batch
from minigrad.figures import save
from minigrad.memory import base_of, retained_arrays

FIGURES = start_lesson("03_memory")
digits = mnist.load("mnist5k").train
MB = 1e6

# %% [markdown]
# ## 1. The lifetime of an activation
# The outputs of the layers are called *activations*. *Inference* uses a trained network: it runs forward
# only. There an activation is needed by the next layer only; then its memory can be freed. In training,
# backward needs it again, much later: for `Y = X W` the gradient of the weights is `Xᵀ g` (lesson 02), so X
# must stay until backward comes back to this layer. The activation that is computed first is freed last.
#
# We measure it. A `Mark` after each layer records when the layer is done, and when the memory of an array is
# freed (`memory_trace.py`). A *tick* is the time between two records: one layer works in it.

# %%
print("1. The lifetime of an activation")
N, WIDTHS = 500, (784, 512, 384, 256, 128, 10)
batch = Batch(digits.x[:N].reshape(N, -1).copy(), digits.y[:N].copy())


def network(trace=None, widths=WIDTHS):
    rng, layers = np.random.default_rng(0), []
    for i, (n_in, n_out) in enumerate(pairwise(widths), 1):
        for name, layer in ((f"linear {i}", nn.Linear(n_in, n_out, rng=rng)), (f"relu {i}", nn.ReLU())):
            layers += [layer, Mark(trace, name)] if trace else [layer]
    return nn.Sequential(*layers[: -2 if trace else -1])  # no ReLU at the end


def infer():
    trace = MemoryTrace()
    model = network(trace)
    with trace:
        y = model(Tensor(batch.x))
        del y
        trace.end_tick("end")
    return trace


def train():
    trace = MemoryTrace()
    model = network(trace)
    names = {id(p): name for name, p in model.named_parameters().items()}
    with trace:
        with Tape() as tape:
            loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
        trace.end_tick("loss")
        tape_bytes = tape.nbytes
        tape.backward(loss, on_grad=lambda p: trace.record("weights", names[id(p)], p.grad, ends_tick=False))
        trace.end_tick("end")
    return trace, tape_bytes


# %%
inference, (training, tape_bytes) = infer(), train()
layers = len(inference.names) - 1
for name, trace in (("inference", inference), ("training", training)):
    most = max(trace.most)
    print(f"   {name:9}: at most {most / MB:5.2f} MB, in the tick '{trace.names[trace.most.index(most)]}'")

# %% [markdown]
# Layer j (0, 1, ...) works in tick j. In inference its output is needed until tick j + 1. In training this
# also holds for the output of a *linear* layer, since a ReLU computes its gradient from its own output: the
# derivative is 1 where the output is positive, and 0 elsewhere. But the output of the ReLU, which is the
# input of the next linear layer, stays until backward has passed both. With L layers, the loss is computed in
# ticks L and L + 1, and backward comes to layer j in tick 2 L + 1 - j.

# %%
for j in range(layers):
    key = "activation", inference.names[j]
    life = inference.lives[key]
    assert life == [j, j + 1], (
        f"inference, {key[1]}: exists from tick {life[0]} to {life[1]}, not {j} to {j + 1}"
    )
    last_use = 2 * layers + 1 - j if "relu" in key[1] else j + 1
    life = training.lives[key]
    assert life == [j, last_use], (
        f"training, {key[1]}: ticks {life[0]} to {life[1]}, expected {j} to {last_use}"
    )
for life in (v for (kind, _), v in training.lives.items() if kind == "gradient"):
    assert life[1] <= life[0] + 1, f"a gradient of an activation exists from tick {life[0]} to {life[1]}"
freed_gradients = [
    name for (kind, name), life in training.lives.items() if kind == "weights" and life[1] is not None
]
count = len(freed_gradients)
assert not count, f"{count} gradients of weights are freed at the end, expected 0: {freed_gradients}"

# %%
save(drawings.lifetimes(inference, training, layers), FIGURES / "lifetimes.png")

# %% [markdown]
# This gives two formulas. Inference needs memory for one layer at a time: the *largest* sum of a layer's
# input and output. Training needs memory for the *sum* of all arrays that backward uses. The loss, too, keeps
# some: the probabilities, the labels and the row numbers.
#
# (The batch exists before the measurement begins, so the measured bytes do not contain it, but the tape
# counts it. The maximum printed above is reached at the end of backward, when the gradients of the weights
# exist too.)

# %%
pairs = max(
    inference.nbytes["activation", a] + inference.nbytes["activation", b]
    for a, b in pairwise(inference.names[:-1])
)
outputs = 4 * N * sum(WIDTHS[:-1]) + N * (4 * 10 + 8 + batch.y.itemsize)
print(f"   formulas : inference max(in + out) = {pairs / MB:.2f} MB, training's tape {outputs / MB:.2f} MB")
assert tape_bytes == outputs, f"the tape keeps {tape_bytes} bytes, the formula gives {outputs}"
measured = max(inference.most)
assert pairs <= measured < 1.05 * pairs, f"inference: {measured} bytes measured, the formula gives {pairs}"
measured, least = training.now[layers], outputs - batch.x.nbytes - batch.y.nbytes
assert least <= measured < 1.05 * outputs, f"training: {measured} bytes measured, the formula gives {least}"

# %% [markdown]
# In deeper networks inference needs no more memory, and training needs more with every layer. This is the
# price of back-propagation. `Tape.nbytes` gives the bytes that a tape keeps without measuring.

# %%
depths, peaks = (1, 2, 4, 8, 16), {"inference": [], "training": []}
for depth in depths:
    model = network(trace := MemoryTrace(), (784, *[256] * depth, 10))
    with trace:
        model(Tensor(batch.x))
    peaks["inference"].append(max(trace.most))
    with Tape() as tape:
        loss = ops.cross_entropy(model(Tensor(batch.x)), batch.y)
    peaks["training"].append(tape.nbytes)
per_layer = np.diff(peaks["training"]) / np.diff(depths)
print(f"   from {depths[0]} to {depths[-1]} hidden layers: ", end="")
print(", ".join(f"{name} {some[0] / MB:.1f} to {some[-1] / MB:.1f} MB" for name, some in peaks.items()))
assert (per_layer == 4 * N * 256).all(), f"bytes by layer in training: {per_layer}, expected {4 * N * 256}"
deep = max(peaks["inference"][1:])
assert deep < 1.1 * 2 * 4 * N * 256, (
    f"inference: {deep} bytes, expected about {2 * 4 * N * 256} at every depth"
)

# %% [markdown]
# Read: Griewank and Walther 2008, "Evaluating Derivatives", doi:10.1137/1.9780898717761, chapter 4 (memory).
#
# ## 2. What the optimizer adds
# The rest of the memory depends on the model, not on the batch: the weights, their gradients (as many
# numbers), and the *state* of the optimizer, arrays that it keeps from step to step. Momentum keeps a
# velocity, and Adagrad a sum of squared gradients (lesson 01). *Adam* keeps a running mean of the gradients
# and one of their squares, and divides the first by the root of the second.

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
    with MemoryTrace() as trace:
        optimizer.step()
        trace.end_tick("step")
    state = sum(a.nbytes for a in {id(b): b for b in map(base_of, retained_arrays(optimizer.state))}.values())
    print(f"   {name:8} keeps {state / weights:.0f} x the weights; ", end="")
    print(f"a first step took {trace.most[0] / weights:.2f} x, of which {trace.now[0] / weights:.2f} x stay")
    assert state == copies * weights, f"{name} keeps {state} bytes, expected {copies} times {weights}"
    stays = trace.now[0]
    assert abs(stays - state) < 0.02 * weights, (
        f"{name}: {stays} bytes stay after a step, its state has {state}"
    )

# %% [markdown]
# (During a step Adagrad and Adam need more than what stays, since they compute with whole arrays; SGD works
# on pieces that fit into the cache.) So with parameters of 4 bytes, training holds 8 bytes per parameter
# (SGD), 12 (momentum, Adagrad) or 16 (Adam), and inference 4. Lesson 06 divides these arrays among several
# computers (ZeRO).
#
# Read: Kingma and Ba 2015 (Adam), arXiv:1412.6980, section 2; Rajbhandari et al. 2020, arXiv:1910.02054,
# section 3.
#
# ## 3. VGG-16
# This network for photographs has 13 convolutions of 3 x 3, five poolings and three fully-connected (linear)
# layers. Its layers are listed in `vgg16.py`, and counted without allocating any array. To check the count we
# build the network with a 16th of the channels, for images of 32 x 32, and compare the count with the real
# arrays, layer by layer. A *product* is one multiplication and one addition here.

# %%
print("\n3. VGG-16")
small = dict(side=32, thinner=16, classes=10)
model, counted = vgg16.build(np.random.default_rng(0), **small).to(dtype=float), vgg16.count(**small)
images = np.random.default_rng(1).normal(size=(4, 3, 32, 32))
real, by_count = sum(p.data.size for p in model.parameters()), sum(layer.parameters for layer in counted)
assert real == by_count, f"the model has {real} parameters, the count is {by_count}"
x, sizes = Tensor(images), []
for layer in model.layers:
    x = layer(x)
    if not isinstance(layer, nn.ReLU | nn.Flatten):
        sizes.append(x.data[0].size)
by_count = [layer.outputs for layer in counted]
assert sizes == by_count, f"outputs of the layers: {sizes}, by count {by_count}"


def activations(counted, side):
    """Numbers that training keeps of one image: the image, and the outputs of all layers."""
    return 3 * side * side + sum(layer.outputs for layer in counted)


with Tape() as tape:
    loss = ops.cross_entropy(model(Tensor(images)), np.zeros(4, int))
tape_bytes = tape.nbytes / 8 / len(images)
print(
    f"   16 times thinner, on 32 x 32: {activations(counted, 32):,} numbers an image; "
    f"a tape keeps {tape_bytes:,g}"
)
places = sum(
    layer.outputs for layer in counted if layer.name.startswith(vgg16.POOL)
)  # of maxima, a byte each
by_count = activations(counted, 32) + places / 8 + 2  # with the row number and the label
assert tape_bytes == by_count, f"a tape keeps {tape_bytes} numbers an image, the count is {by_count}"

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
largest_pair = max(a.outputs + b.outputs for a, b in pairwise(full))
for what, number, expected in (
    ("parameters", parameters, 138_357_544),
    ("parameters in convolutions", in_convolutions, 14_714_688),
    ("numbers kept of an image", outputs, 15_237_608),
    ("outputs of convolutions", sum(c.outputs for c in convolutions), 13_547_520),
    ("numbers in the largest pair", largest_pair, 2 * 64 * 224**2),
    ("units of 10 million products", round(products / 1e7), 1547),
):
    assert number == expected, f"{what}: {number:,}, expected {expected:,}"

# %%
save(drawings.layers(full), FIGURES / "vgg16_layers.png")

# %% [markdown]
# The two kinds of layers differ: the convolutions have the activations and the work, the fully-connected
# layers have the parameters. (For this reason lesson 14 splits them among computers in different ways.)
#
# Inference on one image needs little more than the weights. Training needs much more, by batch size:

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
print(f"from {even} images on, the activations are more")
assert round(fixed / 1e7) == 166, f"the model's part is {fixed / 1e9:.2f} GB, expected 1.66 GB"
assert even == 28, f"the activations are more from {even} images on, expected 28"

# %%
save(drawings.by_batch(BATCHES, [training_bytes(n) for n in BATCHES]), FIGURES / "vgg16_training.png")

# %% [markdown]
# These are the arrays that must be kept. Working memory (the windows of a convolution, the gradients of
# activations) is needed as well.
#
# Read: Simonyan and Zisserman 2015, arXiv:1409.1556, section 2.1 and tables 1 and 2.
#
# ## 4. Activation checkpointing: compute again instead of keeping
# Training can also compute activations a second time instead of keeping them: *activation checkpointing*, or
# *recomputation*. Divide n layers into k segments, and keep only the input of each segment. Backward begins
# with the last segment: it runs the n / k layers of the segment forward again, now with a tape, goes back
# through them, and frees their memory. Then it does the same with the segment before it. So at most k + n / k
# activations exist at a time: the inputs of all segments, and the activations inside one. This is least for k
# = sqrt(n): 2 sqrt(n) instead of n.

# %%
print("\n4. Activation checkpointing")
for n in (16, 36, 100):
    best = min(range(1, n + 1), key=lambda k, n=n: k + n / k)
    assert best == math.isqrt(n), f"{n} layers: {best} segments are best, expected {math.isqrt(n)}"
    print(f"   {n:3} layers: {n:3} activations, or {2 * best:2} in {best:2} segments")
DEEP, WIDTH = 36, 16
tall = Batch(*np.random.default_rng(2).normal(size=(2, 1000, WIDTH)))


def step(segments=None):
    """A training step of ``DEEP`` layers, recomputed between these bounds: its trace, and the gradients."""
    trace, rng, layers = MemoryTrace(), np.random.default_rng(0), []
    for i in range(DEEP):
        layers += [nn.Linear(WIDTH, WIDTH, rng=rng, dtype=float), nn.Tanh(), Mark(trace, i)]
    model = nn.Sequential(*layers)
    model = recomputed(model, [3 * bound for bound in segments]) if segments else model
    with trace:
        with Tape() as tape:
            loss = ops.mse(model(Tensor(tall.x)), tall.y)
        tape.backward(loss)
        trace.end_tick("end")
    return trace, [p.grad for p in model.parameters()]


def forwards(trace):
    return sum(isinstance(name, int) for name in trace.names)


def most(trace):
    return max(trace.most) / tall.x.nbytes  # in activations of one layer


# %%
plain, reference = step()
runs = {}
for k in (k for k in range(1, DEEP + 1) if DEEP % k == 0):
    bounds = range(0, DEEP + 1, DEEP // k)
    for last_too in (True, False):
        if k == 1 and not last_too:
            continue
        trace, gradients = step(bounds if last_too else bounds[:-1])
        differ = sum(not np.array_equal(a, b) for a, b in zip(gradients, reference, strict=True))
        assert differ == 0, (
            f"{k} segments: {differ} of {len(reference)} gradients differ, expected 0 (bit for bit)"
        )
        run, due = forwards(trace), 2 * DEEP - (0 if last_too else DEEP // k)
        assert run == due, f"{k} segments: {run} layers run forward, expected {due}"
        runs[k, last_too] = trace

# %%
print(f"   all kept       : {most(plain):4.1f} activations, {forwards(plain)} layers run forward")
for k in (1, 2, 6, 18, 36):
    whole = runs[k, True]
    print(f"   in {k:2} segments: {most(whole):4.1f} activations, {forwards(whole)} layers", end="")
    print(f"; the last one kept: {forwards(runs[k, False])}" if k > 1 else "")
memory = {k: most(trace) for (k, last_too), trace in runs.items() if last_too}
best = min(memory, key=memory.get)
assert best == 6, f"{best} segments need least memory, expected the root of {DEEP}, 6"
assert memory[6] < 0.5 * most(plain), f"{memory[6]:.1f} activations in 6 segments, {most(plain):.1f} without"
for k, peak in memory.items():  # more than the formula, by what a layer works with
    assert 0 <= peak - (k + DEEP / k) < 5, f"{k} segments: {peak:.1f} activations, formula {k + DEEP / k:.1f}"
    last_kept = most(runs[k, False]) if k > 1 else peak
    assert last_kept <= peak + 0.5, f"{k} segments: {last_kept:.1f} activations, all again {peak:.1f}"

# %% [markdown]
# It costs one more forward pass, which is a third of the work of a step (lesson 02: backward costs up to
# twice as much as forward), and the gradients are the same bit for bit. The last segment is needed right
# after its forward pass, so computing it again saves no memory. If its activations are kept, n / k layers
# fewer are run. Lesson 13 uses this in a pipeline.
#
# Read: Chen et al. 2016, "Training deep nets with sublinear memory cost", arXiv:1604.06174, section 4;
# Griewank and Walther 2008, chapter 12.

# %%
save(drawings.recomputation(plain, runs, DEEP, tall.x.nbytes, most, forwards), FIGURES / "recomputation.png")

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
#
# - The bytes that a tape counts are the bytes of the arrays that it keeps, each array once:
#   [tests](../../tests/minigrad/test_memory.py).
# - Recomputation gives the same gradients, bit for bit, for fewer bytes, with any bounds of the segments:
#   [tests](../../tests/minigrad/test_recompute.py).
# - Only here, by the assertions of this lesson on its networks, which [a
#   test](../../tests/lessons/test_lessons.py) runs: the ticks in which each array exists, the bytes of
#   inference and of training, the copies that each optimizer keeps, and all counts of VGG-16.
#
# Not proved: the memory of a whole program. Windows of a convolution, gradients of activations and the
# library itself need more, and how much depends on the machine.
#
# Next: [lesson 04](../04_gpu/lesson.py): what these arrays cost when they move, and where a GPU is faster.
