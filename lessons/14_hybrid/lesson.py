"""Lesson 14. Data and model parallelism together: which split is cheapest where.

Lecture section: data and model parallelism together. A grid of ranks shares the batch along one axis and the
model along the other; what each way moves, by formula for AlexNet on 512 ranks, and measured on our own net.

    python lessons/14_hybrid/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/14_hybrid/.
In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import drawings
import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.laws import bound_for, differences_from_serial
from backends.model_parallel import ModelParallel
from backends.model_parallel.cost import ALEXNET, LayerSize, Network, best_rows, integrated_seconds
from backends.model_parallel.plan import choose, default_plan, show
from backends.stack import Stack
from lessons.style import start_lesson
from minigrad import mnist, ops
from minigrad.data import Batch
from minigrad.models import SAMPLE, lenet, mlp

FIGURES = start_lesson("14_hybrid")

# %% [markdown]
# ## 1. One layer, two ways
# A layer has |W| weights; for each sample d_in numbers come in and d_out go out. P ranks can share it so:
#
# - *the batch*: each rank has all weights and some samples. It finds a gradient of every weight, and these
#   are all-reduced: 2 |W| (P - 1) / P numbers leave each rank, for any batch.
# - *the model*: each rank has some weights and all samples. Outputs are all-gathered, the inputs' gradient is
#   all-reduced: B (d_out + 2 d_in) (P - 1) / P numbers, for any number of weights.
#
# They are level at B = 2 |W| / (d_out + 2 d_in) samples. With fewer, split the layer; with more, the batch.
# AlexNet's layers, with what comes in after pooling (the first layer's input is data and needs no gradient):

# %%
print("1. One layer, two ways: AlexNet")
NAMES = ("conv 11x11", "conv 5x5", "conv 3x3", "conv 3x3", "conv 3x3", "linear", "linear", "linear")
INPUTS = (0, 27 * 27 * 96, 13 * 13 * 256, 13 * 13 * 384, 13 * 13 * 384, 6 * 6 * 256, 4096, 4096)
crossovers = []
for name, layer, d_in in zip(NAMES, ALEXNET, INPUTS, strict=True):
    crossovers.append(2 * layer.weights / (layer.outputs + 2 * d_in))
    print(
        f"   {name:10}  {layer.weights:10,} weights  {d_in:7,} in  {layer.outputs:7,} out  "
        f"level at {crossovers[-1]:7,.1f} samples"
    )
assert np.allclose(crossovers[2:5], [11.7, 13.6, 10.2], atol=0.05)
assert round(crossovers[6], 1) == round(2 * 4096 / 3, 1) == 2730.7
drawings.level(NAMES, crossovers).savefig(FIGURES / "level.png")

# %% [markdown]
# A convolution uses each weight at every place of the image: few weights, many activations. A linear layer
# uses each once. So one network holds both kinds, and no single answer suits it.
#
# ## 2. A grid: Pr ranks share the model, Pc the batch
# P = Pr Pc. Ranks that share a model see B / Pc samples, and ranks that share the batch have 1 / Pr of the
# weights, so both kinds of messages shrink. With a latency for each message this is the "1.5D" formula of
# Gholami et al. 2018. Here are their AlexNet, 512 ranks, 2 us a message and 6 GB/s.

# %%
print("\n2. AlexNet on 512 ranks: seconds that a step spends on messages")
CRAY = Network(alpha=2e-6, beta=4 / 6e9)
RANKS = 512
PR = [2**i for i in range(10)]
LINEAR = [False] * 5 + [True] * 3


def seconds(batch, only=(True,) * 8):
    """By Pr; layers not in ``only`` share the batch alone, over all ranks."""
    return [
        integrated_seconds(CRAY, ALEXNET, [pr if split else 1 for split in only], RANKS, batch) for pr in PR
    ]


curves = {
    "all layers split, B = 2048": seconds(2048),
    "all layers split, B = 512": seconds(512),
    "linear layers split, B = 2048": seconds(2048, LINEAR),
}
print("   Pr" + " " * 30 + "".join(f"{pr:8}" for pr in PR))
for name, found in curves.items():
    print(f"   {name:30}  " + "".join(f"{s:8.4f}" if s < 1 else f"{s:8.2f}" for s in found))
    print(f"   {'':30}  cheapest: Pr = {PR[np.argmin(found)]}, {found[0] / min(found):.1f}x less than Pr = 1")
large, small, linear = curves.values()
assert [round(s, 4) for s in large[:5]] == [0.0833, 0.0470, 0.0367, 0.0474, 0.0844]
assert round(large[-1], 2) == 2.69
assert best_rows(CRAY, ALEXNET, RANKS, 2048) == (4, min(large))
assert best_rows(CRAY, ALEXNET, RANKS, 512) == (8, min(small)) and round(min(small), 4) == 0.0198
assert best_rows(CRAY, ALEXNET, RANKS, 2048, only=LINEAR) == (32, min(linear))
assert round(min(linear), 4) == 0.0112

# %% [markdown]
# Where do the seconds go? To weights at the left, to activations at the right, and the cheapest is where
# they meet. Pr = 1 is pure data parallelism, Pr = 512 pure model parallelism.

# %%
ONLY_BYTES = CRAY._replace(alpha=0.0)
weights = [LayerSize(layer.weights, 0) for layer in ALEXNET]
activations = [LayerSize(0, layer.outputs) for layer in ALEXNET]
parts = {
    "weights' gradients": [integrated_seconds(ONLY_BYTES, weights, pr, RANKS, 2048) for pr in PR[:5]],
    "activations": [integrated_seconds(ONLY_BYTES, activations, pr, RANKS, 2048) for pr in PR[:5]],
}
assert np.all(np.diff(parts["weights' gradients"]) < 0) and np.all(np.diff(parts["activations"]) > 0)
assert np.allclose(np.sum(list(parts.values()), axis=0), large[:5], atol=4e-4)  # the rest is latency
drawings.alexnet(PR, curves, parts).savefig(FIGURES / "alexnet.png")

# %% [markdown]
# Leaving the convolutions whole moves the optimum to Pr = 32: all their activations stay at home. Each
# kind of layer gets the split it wants.
#
# ## 3. The same on our own net, measured
# Four ranks as a grid: 4 x 1 is data parallelism, 1 x 4 model parallelism, 2 x 2 both. `Stack` puts one
# strategy on each axis. Every linear layer is split by neurons, its outputs are gathered, as in the formula.
# First the proof: on every grid gradients, losses and parameters are those of one machine.

# %%
print("\n3. Our own net on four ranks")
GRIDS = {"4 x 1": (4, 1), "2 x 2": (2, 2), "1 x 4": (1, 4)}  # data x model
GATHERED = {"1": "gathered", "3": "gathered", "5": "gathered"}
digits = mnist.load("mnist5k").train


def stacked(comm, shape, plan):
    """The batch shared by the rows of the grid, the model by its columns."""
    data, model = shape
    grid = Grid(comm, data=data, model=model)
    return Stack(
        DataParallel(WithAllreduce(grid.data, ring_allreduce)),
        ModelParallel(WithAllreduce(grid.model, ring_allreduce), plan, sample=SAMPLE),
    )


def largest_difference(build, shape, plan):
    """From the serial run: of any gradient, loss or parameter, on any rank, in three steps of SGD."""
    batches = [
        Batch(digits.x[:n].astype(np.float64), digits.y[:n]) for n in (9, 6, 3)
    ]  # not for four, too few

    def work(comm):
        return differences_from_serial(
            lambda comm: stacked(comm, shape, plan), comm, build, ops.cross_entropy, batches
        )

    return max(difference.relative for difference in run_ranks(4, work)[0])


for name, shape in GRIDS.items():
    difference = largest_difference(mlp, shape, GATHERED)
    print(f"   {name}: trains like one machine; the largest relative difference is {difference:.0e}")
    assert difference < bound_for(np.float64)

# %% [markdown]
# Now the bytes. `Traced` notes every message; what each of the four ranks sends in one step, on average,
# stands beside the formula.


# %%
def sent(build, shape, plan, batch_size):
    """Bytes that leave a rank in one step of float32 training, the mean over the ranks."""

    def work(comm):
        traced = Traced(comm)
        backend = stacked(traced, shape, plan)
        model = backend.place(build(np.random.default_rng(0)))
        before = traced.record.ledger.sent().bytes
        backend.step(model, digits[:batch_size], ops.cross_entropy)
        return traced.record.ledger.sent().bytes - before

    return float(np.mean(run_ranks(4, work)))


FLOATS = Network(alpha=0.0, beta=4.0)  # counts the bytes of float32 instead of seconds
LAYERS = [LayerSize(785 * 128, 128), LayerSize(129 * 128, 128), LayerSize(129 * 10, 10)]  # with their biases
BATCHES = [16, 32, 64, 128, 256, 512, 1024]
measured = {name: [sent(mlp, shape, GATHERED, b) for b in BATCHES] for name, shape in GRIDS.items()}
formula = {
    name: [integrated_seconds(FLOATS, LAYERS, model, 4, b) for b in BATCHES]
    for name, (_, model) in GRIDS.items()
}
print("\n   kB sent by each rank in a step, measured (formula):")
print("   batch  " + "".join(f"{b:>15}" for b in BATCHES))
for name in GRIDS:
    cells = (f"{m / 1e3:.1f} ({f / 1e3:.1f})" for m, f in zip(measured[name], formula[name], strict=True))
    print(f"   {name:7}" + "".join(f"{cell:>15}" for cell in cells))
    assert np.allclose(measured[name], formula[name], rtol=2e-3)  # the loss and some flags travel along

# %% [markdown]
# W weights in all, and D = 778 activations a sample (outputs, and twice the inputs but the first layer's):
# 4 x 1 sends 3/2 W numbers, 2 x 2 W/2 + D B / 4, 1 x 4 3/4 D B. So 1 x 4 is best up to B = W / D, and 4 x 1
# from 4 W / D on. Between them, neither.

# %%
W, D = 118_282, 128 + 128 + 10 + 2 * (128 + 128)
borders = W / D, 4 * W / D
print(
    f"   1 x 4 sends least below {borders[0]:.0f} samples, 4 x 1 above {borders[1]:.0f}, between them 2 x 2"
)
for i, b in enumerate(BATCHES):
    best = "1 x 4" if b < borders[0] else "2 x 2" if b < borders[1] else "4 x 1"
    assert min(GRIDS, key=lambda name: measured[name][i]) == best
drawings.grids(BATCHES, measured, formula, borders).savefig(FIGURES / "grids.png")

# %% [markdown]
# ## 4. A plan for every layer
# The grid is chosen once, the split layer by layer. `choose` takes what moves the fewest numbers: for each
# layer twice the weights that a rank holds, and the activations that its split moves. A column layer and a
# row layer behind it need no gather between them, so layers are looked at together. LeNet on 2 x 2:

# %%
print("\n4. A plan for every layer: LeNet on 2 x 2")
lenet_model = lenet(np.random.default_rng(0))
for batch in (64, 2048):
    print(
        f"\n   {batch} samples, {batch // 2} for each pair of ranks that share the model; numbers per rank:"
    )
    print("   " + show(choose(lenet_model, 2, batch // 2, SAMPLE)).replace("\n", "\n   "))

# %%
BATCH = 64
cheapest = default_plan(lenet_model, 2, BATCH // 2, SAMPLE)
plans = {
    "nothing split": {},
    "everything split, gathered": {
        "0": "gathered-filters",
        "3": "gathered-filters",
        "7": "gathered",
        "9": "gathered",
    },
    "the default plan": cheapest,
}
print(f"\n   kB sent by each rank in a step with {BATCH} samples:")
moved = {}
for name, plan in plans.items():
    moved[name] = sent(lenet, (2, 2), plan, BATCH)
    print(f"   {name:28} {moved[name] / 1e3:8.1f}")
    assert largest_difference(lenet, (2, 2), plan) < bound_for(np.float64)
choices = choose(lenet_model, 2, BATCH // 2, SAMPLE)
expected = 4 * sum(
    choice.weights / 2 + choice.activations for choice in choices
)  # (Pc - 1) / Pc of the weights
print(f"   the default plan by its formula {expected / 1e3:.1f}")
assert np.isclose(moved["the default plan"], expected, rtol=2e-3)
assert moved["the default plan"] == min(moved.values())
assert cheapest == {"7": "row"} and default_plan(lenet_model, 2, 1024, SAMPLE) == {}

# %% [markdown]
# The two convolutions have 4,800 weights and put out 18,816 numbers a sample: they stay whole. Only the large
# linear layer is worth a split, and with 2,048 samples not even that. What stays whole is computed by both
# ranks of a pair, for all samples of the pair; the formula of part 2 shares those samples too.

# %%
print(f"\nFigures: {FIGURES}/")
