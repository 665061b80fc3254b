"""Lesson 14. Data and model parallelism together: which split is cheapest where.

Lecture section: data and model parallelism together. A grid of ranks shares the batch along one axis and the
model along the other: by formula for AlexNet on 512 ranks and more, where images are split too, and counted
on a network of our own; products of matrices in blocks; and when computing takes longer than messages.
Sources: Gholami et al. 2018, arXiv:1712.04432; survey: Ben-Nun and Hoefler 2019, arXiv:1802.09941, section 6.

The slide asks: if ranks can share samples, neurons and images, which grid of ranks sends least?

You need: lessons 05 (all-gather, all-reduce, alpha and beta), 06 (data parallelism), 11 (model parallelism),
12 (halos), and 04 for part 6 (the roofline).

Time: about 80 minutes; the program runs for about 10 seconds.

After this you can: compute from which batch on samples should be shared instead of neurons; evaluate the cost
of a grid of ranks and find the cheapest; derive how few numbers a product of matrices must send; decide
whether a split is bound by computing or by messages.

    python lessons/14_hybrid/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to runs/lessons/14_hybrid/.
In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import math

import drawings
import numpy as np
from minigrad_course.machines.integrated_costs import (
    ALEXNET,
    LayerSize,
    Network,
    batch_seconds,
    best_rows,
    domain_seconds,
    integrated_seconds,
)
from minigrad_course.machines.sharding_roofline import (
    data_roofline,
    expert_roofline,
    model_roofline,
    pipeline_roofline,
    sequence_roofline,
)
from minigrad_course.machines.virtual_cluster import VirtualCluster
from minigrad_course.shared.style import start_lesson

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel, ParameterServer
from backends.grid import Grid
from backends.laws import bound_for, differences_from_serial
from backends.model_parallel import ModelParallel
from backends.model_parallel.grid_products.cannon import cannon
from backends.model_parallel.grid_products.lower_bounds import with_memory, without_a_limit
from backends.model_parallel.grid_products.summa_25d import LayeredGrid, summa_25d
from backends.model_parallel.plan import choose, default_plan, show
from backends.planner import Hardware, Layout, TransformerSizes
from backends.planner.layout import Place
from backends.planner.rank_step import RankStep
from backends.stack import Stack
from minigrad import mnist, ops, optim
from minigrad.data import Batch
from minigrad.figures import save
from minigrad.models import DIGIT, lenet, mlp
from minigrad.serial import Serial

FIGURES = start_lesson("14_hybrid")

# %% [markdown]
# ## 1. One layer, two ways
# A layer has |W| weights; for each sample it takes d_in numbers and returns d_out. For a batch of B samples,
# P ranks can share
#
# - *the batch*: each rank has all weights and some samples. It computes a gradient of every weight, and
#   these are all-reduced: each rank sends 2 |W| (P - 1) / P numbers, for any batch.
# - *the model*: each rank has some weights and all samples. The outputs are all-gathered, the gradient of the
#   inputs is all-reduced: each rank sends B (d_out + 2 d_in) (P - 1) / P numbers, for any number of weights.
#
# Both send equally many numbers for a batch of B = 2 |W| / (d_out + 2 d_in) samples. With fewer samples,
# split the layer; with more, the batch. Here are the layers of AlexNet, with their inputs after pooling. (The
# input of the first layer is data and needs no gradient.)

# %%
print("1. One layer, two ways: AlexNet")
NAMES = ("conv 11x11", "conv 5x5", "conv 3x3", "conv 3x3", "conv 3x3", "linear", "linear", "linear")
INPUTS = (0, 27 * 27 * 96, 13 * 13 * 256, 13 * 13 * 384, 13 * 13 * 384, 6 * 6 * 256, 4096, 4096)
crossovers = []
for name, layer, d_in in zip(NAMES, ALEXNET, INPUTS, strict=True):
    crossovers.append(2 * layer.weights / (layer.outputs + 2 * d_in))
    print(
        f"   {name:10} {layer.weights:10,} weights {d_in:6,} in {layer.outputs:7,} out, "
        f"equal at {crossovers[-1]:7,.1f} samples"
    )
assert np.allclose(crossovers[2:5], [11.7, 13.6, 10.2], atol=0.05), crossovers[2:5]
assert round(crossovers[6], 1) == round(2 * 4096 / 3, 1) == 2730.7, crossovers[6]

# %%
save(drawings.level(NAMES, crossovers), FIGURES / "level.png")

# %% [markdown]
# A convolution uses each weight at every place of the image: it has few weights and many activations. A
# linear layer uses each weight once: it has many weights and few activations. AlexNet has both kinds, so
# neither way suits all of its layers.
#
# Read: Krizhevsky 2014, arXiv:1404.5997; Gholami et al. 2018, arXiv:1712.04432, section 2.
#
# ## 2. A grid: Pr ranks share the model, Pc the batch
# Let P = Pr Pc. The Pr ranks that share a model see B / Pc samples, and the Pc ranks that share the batch
# have 1 / Pr of the weights, so both kinds of messages become smaller. This is called "1.5D": a layer is a
# product of two matrices, weights times activations. An algorithm that splits one of them is called 1D, and
# one that splits both along both axes is called 2D. Here the ranks form a 2D grid, but each matrix is split
# along one axis and copied along the other. With alpha seconds a message and beta seconds a number, and d_i
# outputs of layer i, the sums over all layers i are
#
#     alpha log2 Pr + beta (B / Pc) d_i (Pr - 1) / Pr              all-gather of the outputs
#     2 (alpha log2 Pr + beta (B / Pc) d_(i-1) (Pr - 1) / Pr)      all-reduce of the inputs' gradient, i > 1
#     2 (alpha log2 Pc + beta |W_i| / Pr (Pc - 1) / Pc)            all-reduce of the weights' gradients
#
# `integrated_seconds` is this formula (Gholami et al. 2018). We evaluate it for their example: AlexNet on 512
# ranks, with 2 us a message and 6 GB/s. The formula and the two speeds are published; the seconds below are
# our evaluation, not numbers of the paper.

# %%
print("\n2. AlexNet on 512 ranks: seconds that a step spends on messages")
CRAY = Network(alpha=2e-6, beta=4 / 6e9)
RANKS = 512
PR = [2**i for i in range(10)]
LINEAR = [False] * 5 + [True] * 3


def seconds(batch, only=(True,) * 8):
    """Seconds by Pr; layers that are not in ``only`` share the batch alone, over all ranks."""
    return [
        integrated_seconds(CRAY, ALEXNET, [pr if split else 1 for split in only], RANKS, batch) for pr in PR
    ]


curves = {
    "all layers split, B = 2048": seconds(2048),
    "all layers split, B = 512": seconds(512),
    "linear layers split, B = 2048": seconds(2048, LINEAR),
}
print("   Pr  " + "".join(f"{pr:7}" for pr in PR))
for name, curve in curves.items():
    print(f"   {name}:\n" + 7 * " " + "".join(f"{s:7.4f}" if s < 1 else f"{s:7.2f}" for s in curve))
    print(f"       cheapest: Pr = {PR[np.argmin(curve)]}, {curve[0] / min(curve):.1f}x less than Pr = 1")

# %%
large, small, linear = curves.values()
assert [round(s, 4) for s in large[:5]] == [0.0833, 0.0470, 0.0367, 0.0474, 0.0844], large[:5]
assert round(large[-1], 2) == 2.69, large[-1]
for batch, only, expected in (
    (2048, None, (4, 0.0367)),
    (512, None, (8, 0.0198)),
    (2048, LINEAR, (32, 0.0112)),
):
    pr, least = best_rows(CRAY, ALEXNET, RANKS, batch, only=only)
    assert (pr, round(least, 4)) == expected, f"B = {batch}: Pr = {pr}, {least:.4f} s; expected {expected}"

# %% [markdown]
# Which messages take these seconds? With a small Pr the gradients of the weights, with a large Pr the
# activations. The cheapest Pr is where both are about equal. Pr = 1 is pure data parallelism, Pr = 512 pure
# model parallelism.

# %%
ONLY_BYTES = CRAY._replace(alpha=0.0)
weights = [LayerSize(layer.weights, 0) for layer in ALEXNET]
activations = [LayerSize(0, layer.outputs) for layer in ALEXNET]
parts = {
    "weights' gradients": [integrated_seconds(ONLY_BYTES, weights, pr, RANKS, 2048) for pr in PR[:5]],
    "activations": [integrated_seconds(ONLY_BYTES, activations, pr, RANKS, 2048) for pr in PR[:5]],
}
fall, rise = parts.values()
assert np.all(np.diff(fall) < 0) and np.all(np.diff(rise) > 0), parts
rest = np.abs(np.array(large[:5]) - fall - rise).max()
assert rest <= 4e-4, f"all but weights and activations takes {rest:.1e} s"  # the rest is latency

# %%
save(drawings.alexnet(PR, curves, parts), FIGURES / "alexnet.png")

# %% [markdown]
# If the convolutions are not split, their activations are not sent, and the optimum moves to Pr = 32. Each
# kind of layer has its own best split.
#
# ### More ranks than samples
# If the batch alone is shared, at most one rank for each sample can work: P <= B. Gholami et al. add a third
# way, *domain* parallelism (lesson 12): Pd ranks share each image by rows, and send halos instead of
# activations. For a convolution, with P = Pd Pc ranks,
#
#     2 alpha + beta (B / Pc) (halo of the input + halo of the output)     exchange of halos, both passes
#     2 (alpha log2 P + beta |W| (P - 1) / P)                              all-reduce of the gradients
#
# We combine all three ways. The first n layers share each image among Pd ranks (Pd = 1: they share the batch
# alone). All layers after them share their neurons, or filters, among Pr ranks. With n = 0 this is the grid
# from above with one Pr for all layers, so the best of all n, Pd and Pr cannot be worse. (As in the formula
# above, we do not count messages that change one split into another.) A batch of 512:

# %%
CONVOLUTIONS, DIGITS = 5, 512


def three_ways(ranks, batch, n, pd, pr):
    """Seconds if the first ``n`` layers have Pd ranks for each image, and the others Pr for their neurons."""
    seconds, groups = 0.0, ranks // pr  # that share the batch
    for i, layer in enumerate(ALEXNET):
        if i < n:
            halos = CRAY.beta * batch * pd / ranks * (layer.halo_in + layer.halo_out)
            seconds += (pd > 1) * (2 * CRAY.alpha + halos) + 2 * CRAY.collective(ranks, layer.weights)
            continue
        before = ALEXNET[i - 1].outputs if i else 0
        inputs = (
            layer.inputs or before if i == n else before
        )  # pooled, where the layer before is split otherwise
        seconds += CRAY.collective(pr, batch / groups * layer.outputs)
        seconds += (i > 0) * 2 * CRAY.collective(pr, batch / groups * inputs)
        seconds += 2 * CRAY.collective(groups, layer.weights / pr)
    return seconds


def best_of_three(ranks, batch):
    """The least seconds, with n, Pd and Pr; every group of ranks that shares the batch has a sample."""
    ways = [2**i for i in range(ranks.bit_length()) if ranks <= batch * 2**i]
    return min(
        (three_ways(ranks, batch, n, pd, pr), n, pd, pr)
        for n in range(CONVOLUTIONS + 1)
        for pd in ways
        for pr in ways
    )


# %% [markdown]
# Without domain parallelism this is the library's formula, and with nothing else it is the library's formula
# of lesson 12:

# %%
for n in range(CONVOLUTIONS + 1):
    for pr in PR:
        ours, library = (
            three_ways(RANKS, 2048, n, 1, pr),
            integrated_seconds(CRAY, ALEXNET, [1] * n + [pr] * (8 - n), RANKS, 2048),
        )
        assert np.isclose(ours, library, rtol=1e-9), (
            f"n = {n}, Pr = {pr}: {ours:.6f} s, library {library:.6f} s"
        )
images = three_ways(64, DIGITS, CONVOLUTIONS, 64, 1) - batch_seconds(CRAY, ALEXNET[CONVOLUTIONS:], 64, DIGITS)
library = domain_seconds(CRAY, ALEXNET[:CONVOLUTIONS], 64, DIGITS)
assert np.isclose(images, library, rtol=1e-9), f"images alone: {images:.6f} s, library {library:.6f} s"

# %%
MORE = [2**i for i in range(7, 14)]
by_ranks = {
    "batch": [batch_seconds(CRAY, ALEXNET, p, DIGITS) for p in MORE if p <= DIGITS],
    "batch x model": [best_rows(CRAY, ALEXNET, p, DIGITS)[1] for p in MORE],
    "batch x model x domain": [best_of_three(p, DIGITS)[0] for p in MORE],
}
print(f"\n   ranks    {'   '.join(by_ranks)}, B = {DIGITS}")
for p, two, three in zip(MORE, by_ranks["batch x model"], by_ranks["batch x model x domain"], strict=True):
    alone = f"{by_ranks['batch'][MORE.index(p)]:.4f}" if p <= DIGITS else "-"
    _, n, pd, pr = best_of_three(p, DIGITS)
    print(f"   {p:5}    {alone:>6}  {two:10.4f}  {three:14.4f}   n = {n}, Pd = {pd}, Pr = {pr}")
    assert three < two, f"{p} ranks: {three:.4f} s with domain, {two:.4f} s without"
    assert pd == max(1, p // DIGITS), f"{p} ranks: Pd = {pd}, expected {max(1, p // DIGITS)}"
    assert n == (CONVOLUTIONS if p <= 2048 else 2), f"{p} ranks: n = {n}"

# %%
save(drawings.three_ways(MORE, by_ranks, DIGITS), FIGURES / "three_ways.png")

# %% [markdown]
# Up to 512 ranks images are not split (Pd = 1): a sample for each rank is cheaper than halos. The gain over
# "batch x model" is that the convolutions share the batch alone. With more ranks Pd is just large enough, so
# that each group of Pd ranks has one image. From 4,096 ranks on only the first two convolutions, which have
# large images and few weights, share images; the other three share their filters. Lesson 12 (part 4) found
# the same for 8 ranks.
#
# Read: Gholami et al. 2018, arXiv:1712.04432.
#
# ## 3. A network of our own, with counted bytes
# Four ranks form a grid: 4 x 1 is data parallelism, 1 x 4 model parallelism, 2 x 2 both. `Stack` puts one
# strategy on each axis. Every linear layer is split by neurons, and its outputs are gathered, as in the
# formula. First the proof: on every grid, gradients, losses and parameters equal the serial ones.

# %%
print("\n3. A network of our own on four ranks")
GRIDS = {"4 x 1": (4, 1), "2 x 2": (2, 2), "1 x 4": (1, 4)}  # data x model
GATHERED = {"1": "gathered", "3": "gathered", "5": "gathered"}
digits = mnist.load("mnist5k").train


def stacked(comm, shape, plan):
    """A backend in which the rows of the grid share the batch, and its columns the model."""
    data, model = shape
    grid = Grid(comm, data=data, model=model)
    return Stack(
        DataParallel(grid.data, ring_allreduce),
        ModelParallel(grid.model, plan, sample=DIGIT, allreduce=ring_allreduce),
    )


def largest_difference(build, shape, plan):
    """The largest relative difference from the serial run, of any gradient, loss or parameter on any rank."""
    batches = [
        Batch(digits.x[:n].astype(np.float64), digits.y[:n]) for n in (9, 6, 3)
    ]  # three steps of SGD; the last batch has fewer samples than there are ranks

    def work(comm):
        return differences_from_serial(
            lambda comm: stacked(comm, shape, plan), comm, build, ops.cross_entropy, batches
        )

    return max(difference.relative for difference in run_ranks(4, work)[0])


for name, shape in GRIDS.items():
    difference = largest_difference(mlp, shape, GATHERED)
    print(f"   {name}: trains like one machine; the largest relative difference is {difference:.0e}")
    assert difference < bound_for(np.float64), (
        f"{name}: differs by {difference:.1e}, allowed {bound_for(float):.1e}"
    )

# %% [markdown]
# ### Asynchronous replicas
# So far all ranks take each step together. The lecture's other combination is *asynchronous replicas*, each
# of several ranks (DistBelief, Dean et al. 2012). Make a `ParameterServer` (lesson 08) the outermost
# strategy: then a worker is a row of the grid, and the server is a row too. Each rank of the server holds the
# parameters that the workers' ranks in its column hold. All ranks of the server take the gradients in one
# order, in which they reach the first of them, so no model mixes two versions. With staleness 0 the replicas
# train like one machine; without a bound they do not wait for one another.


# %%
def replicas(comm, staleness):
    """Two workers and a server, of two ranks each: the parameters after three steps, and the staleness."""
    grid = Grid(comm, data=3, model=2)
    server = ParameterServer(grid.data, staleness=staleness)
    backend = Stack(server, ModelParallel(grid.model, {"1": "column", "3": "row"}, sample=DIGIT))
    return trained(backend), server.staleness_counts


def trained(backend):
    model = backend.place(mlp(np.random.default_rng(0)).to(dtype=np.float64))
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for n in (9, 6, 4):
        optimizer.zero_grad()
        backend.step(model, Batch(digits.x[:n].astype(np.float64), digits.y[:n]), ops.cross_entropy)
        backend.update(model, optimizer)
    backend.finalize(model)
    return backend.state.full_parameters(model)


one_machine = trained(Serial())
for staleness in (0, None):
    parameters, counts = run_ranks(6, lambda comm, staleness=staleness: replicas(comm, staleness))[0]
    off = max(abs(parameters[name] - value).max() for name, value in one_machine.items())
    print(f"   replicas of two ranks, staleness {staleness}: {dict(counts)}, weights differ by {off:.0e}")
    assert (off < 1e-12) == (staleness == 0), (
        f"staleness {staleness}: weights differ by {off:.1e}, limit 1e-12"
    )

# %% [markdown]
# ### Bytes counted and computed
# `Traced` notes every message. We compare the bytes that each of the four ranks sends in one step, on
# average, with the formula.


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


# %%
FLOATS = Network(alpha=0.0, beta=4.0)  # counts the bytes of float32 instead of seconds
LAYERS = [LayerSize(785 * 128, 128), LayerSize(129 * 128, 128), LayerSize(129 * 10, 10)]  # with their biases
BATCHES = [16, 32, 64, 128, 256, 512, 1024]
measured = {name: [sent(mlp, shape, GATHERED, b) for b in BATCHES] for name, shape in GRIDS.items()}
formula = {
    name: [integrated_seconds(FLOATS, LAYERS, model, 4, b) for b in BATCHES]
    for name, (_, model) in GRIDS.items()
}
print("\n   kB sent by each rank in a step, measured (formula):")
print("   batch " + "".join(f"{f'{name}, data x model':>23}" for name in GRIDS))
for i, b in enumerate(BATCHES):
    cells = (f"{measured[name][i] / 1e3:.1f} ({formula[name][i] / 1e3:.1f})" for name in GRIDS)
    print(f"   {b:5} " + "".join(f"{cell:>23}" for cell in cells))
for name in GRIDS:
    for m, f in zip(measured[name], formula[name], strict=True):  # the loss and some flags are sent as well
        assert np.isclose(m, f, rtol=2e-3), f"{name}: {m:,.0f} bytes, formula {f:,.0f}"

# %% [markdown]
# Let W be all weights and D = 778 the activations of a sample: the outputs of all layers, and twice the
# inputs of all layers but the first. By the formula a rank sends
#
# - 3/2 W numbers on 4 x 1;
# - W / 2 + D B / 4 on 2 x 2;
# - 3/4 D B on 1 x 4.
#
# So 1 x 4 is best up to B = W / D samples, 4 x 1 from B = 4 W / D on, and 2 x 2 between them.

# %%
W, D = 118_282, 128 + 128 + 10 + 2 * (128 + 128)
borders = W / D, 4 * W / D
print(
    f"   1 x 4 sends least below {borders[0]:.0f} samples, 4 x 1 above {borders[1]:.0f}, between them 2 x 2"
)
for i, b in enumerate(BATCHES):
    best = "1 x 4" if b < borders[0] else "2 x 2" if b < borders[1] else "4 x 1"
    least = min(GRIDS, key=lambda name: measured[name][i])
    assert least == best, f"batch {b}: {least} sends least, the formula says {best}"

# %%
save(drawings.grids(BATCHES, measured, formula, borders), FIGURES / "grids.png")

# %% [markdown]
# Read: Dean et al. 2012 (NeurIPS), "Large scale distributed deep networks", sections 3 and 4.1.
#
# ## 4. A plan for every layer
# The grid is chosen once, the split layer by layer. `choose` takes the plan that moves the fewest numbers:
# for each layer twice the weights that a rank holds, and the activations that its split moves. A column layer
# and a row layer after it need no gather between them, so `choose` compares plans of the whole network. LeNet
# on 2 x 2:

# %%
print("\n4. A plan for every layer: LeNet on 2 x 2")
lenet_model = lenet(np.random.default_rng(0))
for batch in (64, 2048):
    print(
        f"\n   {batch} samples, {batch // 2} for each pair of ranks that share the model; numbers per rank:"
    )
    print("   " + show(choose(lenet_model, 2, batch // 2, DIGIT)).replace("\n", "\n   "))

# %%
BATCH = 64
cheapest = default_plan(lenet_model, 2, BATCH // 2, DIGIT)
plans = {
    "nothing split": {},
    "everything split, gathered": {
        "0": "gathered-filters",
        "3": "gathered-filters",
        "7": "gathered",
        "9": "gathered",
    },
    "batch x model x domain": dict.fromkeys("0123456", "rows") | {"7": "row"},
    "the default plan": cheapest,
}
print(f"\n   kB sent by each rank in a step with {BATCH} samples:")
moved = {}
for name, plan in plans.items():
    moved[name] = sent(lenet, (2, 2), plan, BATCH)
    print(f"   {name:28} {moved[name] / 1e3:8.1f}")
    difference = largest_difference(lenet, (2, 2), plan)
    assert difference < bound_for(np.float64), (
        f"{name}: differs by {difference:.1e}, allowed {bound_for(float):.1e}"
    )

# %%
choices = choose(lenet_model, 2, BATCH // 2, DIGIT)
expected = 4 * sum(
    choice.weights / 2 + choice.activations for choice in choices
)  # (Pc - 1) / Pc of the weights
print(f"   the default plan by its formula {expected / 1e3:.1f}")
default = moved["the default plan"]
assert np.isclose(default, expected, rtol=2e-3), f"{default:,.0f} bytes, formula {expected:,.0f}"
assert default == min(moved.values()), moved
with_many = default_plan(lenet_model, 2, 1024, DIGIT)
assert cheapest == {"7": "row"} and with_many == {}, f"64 samples: {cheapest}, 2,048: {with_many}"

# %% [markdown]
# The two convolutions have 4,800 weights and 18,816 outputs a sample: they are not split. Only the large
# linear layer is worth a split, and with 2,048 samples not even this layer. Both ranks of a pair compute a
# layer that is not split, for all samples of the pair; in the formula of part 2 they share these samples too.
# If the convolutions are split by rows of the images, the pair shares that work and sends halos: the plan
# "batch x model x domain" has all three ways at once, and it trains like one machine too.
#
# Read: Jia, Zaharia and Aiken 2019, "Beyond data and model parallelism for deep neural networks",
# arXiv:1807.05358.
#
# ## 5. Matrices in blocks, and the least that must be sent
# So far each matrix was cut along one axis. If all p ranks share a product C = A B of N x N matrices by
# columns, each of them needs all of A, and receives N^2 (p - 1) / p numbers. More ranks hardly reduce this.
# A *2D* algorithm cuts all three matrices along both axes. On a grid of q x q ranks, q = sqrt(p), rank (i, j)
# has block (i, j) of each, and computes its block of C as a sum of q products of blocks:
#
#     for each l:   the ranks in column l send their blocks of A along their rows
#                   the ranks in row l send their blocks of B along their columns
#                   C += A[i, l] B[l, j]
#
# This is SUMMA (van de Geijn and Watts 1997, "SUMMA: scalable universal matrix multiplication algorithm").
# A rank receives q - 1 blocks of A and of B, so 2 (q - 1) N^2 / p numbers. `summa.py` is that loop, for
# matrices of any shape; both gradients are such loops too, in which one broadcast becomes a sum. Cannon's
# algorithm (1969) shifts blocks to neighbors instead, and sends as many, after a first shift that brings
# together the blocks to multiply.
#
# In `ModelParallel` this is the split "grid 2x2" of a linear layer: samples are cut over the rows of the
# grid, outputs over its columns, and inputs over both. Blocks stay blocks between such layers, so no rank
# holds a whole weight or a whole batch of activations.

# %%
print("\n5. Matrices in blocks")
BLOCKS = {"1": "grid 2x2", "3": "grid 2x2", "5": "grid 2x2"}
difference = largest_difference(mlp, (1, 4), BLOCKS)
print(f"   784-128-128-10 on a grid of 2 x 2 differs from one machine by {difference:.0e}")
assert difference < bound_for(np.float64), f"differs by {difference:.1e}, allowed {bound_for(float):.1e}"

# %% [markdown]
# The numbers of SUMMA shrink as 1 / sqrt(p). With more memory they can shrink faster. *2.5D* (Solomonik and
# Demmel 2011) takes c layers of q x q ranks, q = sqrt(p / c). (These are layers of ranks, not of a network.)
# Each layer gets a copy of A and of B and computes 1 / c of the sum, and the results of the layers are added.
# Inside a layer a rank now receives 2 (q - 1) N^2 / p numbers, with a smaller q, but the copies and the sum
# cost 3 (c - 1) N^2 / p more.
#
# *A lower bound.* A rank computes N^3 / p of the products a_il b_lj. If w products use x entries of A, y of B
# and z of C, then w is at most sqrt(x y z) (Loomis and Whitney 1949). So the rank needs at least
# 3 (N^3 / p)^(2/3) entries of the three matrices. It holds 3 N^2 / p of them from the start, and must send or
# receive all others, whatever the algorithm is. Each number is sent once and received once, so on average a
# rank sends at least half of them, and receives as many. We count the numbers that are sent, for N = 64:

# %%
N = 64


def numbers_sent(layers, rows, columns, multiply=None):
    """The numbers that a rank sends for one product of N x N matrices, the mean over all ranks."""

    def work(comm):
        traced = Traced(comm)
        layered, block = LayeredGrid(traced, layers, rows, columns), np.ones((N // rows, N // columns))
        before = traced.record.ledger.sent().bytes
        if multiply is None:
            summa_25d(layered, block, block, N)
        else:
            multiply(layered.grid, block, block)
        return (traced.record.ledger.sent().bytes - before) / 8

    return float(np.mean(run_ranks(layers * rows * columns, work)))


# %%
ways = {
    "by columns": (lambda p: (1, 1, p), lambda p: N**2 * (p - 1) / p, (4, 16, 64)),
    "SUMMA": (lambda p: (1, *[round(p**0.5)] * 2), lambda p: 2 * (p**0.5 - 1) * N**2 / p, (4, 16, 64, 256)),
    "2.5D, c = 4": (
        lambda p: (4, *[round((p / 4) ** 0.5)] * 2),
        lambda p: (2 * ((p / 4) ** 0.5 - 1) + 3 * 3) * N**2 / p,
        (16, 64, 256),
    ),
}
counted = {name: {p: numbers_sent(*shape(p)) for p in several} for name, (shape, _, several) in ways.items()}
least = {p: without_a_limit(N, N, N, p) / 2 for p in (4, 16, 64, 256)}
print(
    "   numbers sent by each rank, N = 64\n   ranks"
    + "".join(f"{name:>13}" for name in ways)
    + "  lower bound"
)
for p, bound in least.items():
    cells = (f"{counted[name][p]:,.0f}" if p in counted[name] else "-" for name in ways)
    print(f"   {p:5}" + "".join(f"{cell:>13}" for cell in cells) + f"{bound:13,.0f}")

# %%
for name, (_, by_formula, several) in ways.items():
    for p in several:
        n, expected = counted[name][p], by_formula(p)
        assert n == expected, f"{name}, {p} ranks: {n:,.0f} numbers, formula {expected:,.0f}"
        assert n >= least[p], f"{name}, {p} ranks: {n:,.0f} numbers, fewer than the bound {least[p]:,.0f}"
at_64, at_256 = ([counted[name][p] for name in ("SUMMA", "2.5D, c = 4")] for p in (64, 256))
assert at_64[0] < at_64[1] and at_256[1] < at_256[0], f"SUMMA and 2.5D: {at_64} at 64, {at_256} at 256 ranks"
three_d = counted["2.5D, c = 4"][64] / least[64]  # as many layers as there are rows
assert np.isclose(three_d, 10 / 3), f"2.5D with c = q sends {three_d:.3f} times the bound, expected 3.333"
shifts = numbers_sent(1, 4, 4, cannon)
skew = shifts - counted["SUMMA"][16]
print(f"   Cannon on 16 ranks sends {shifts:,.0f}: as SUMMA, and {skew:,.0f} for the first shift")
assert skew == 2 * 3 / 4 * N**2 / 16, f"{skew:,.0f} numbers, formula {2 * 3 / 4 * N**2 / 16:,.0f}"

# %%
formulas = {name: by_formula for name, (_, by_formula, _) in ways.items()}
bound = lambda p: without_a_limit(N, N, N, p) / 2  # noqa: E731
save(drawings.blocks(counted, formulas, bound, N**2), FIGURES / "blocks.png")

# %% [markdown]
# On 64 ranks SUMMA sends less, on 256 ranks 2.5D: copies pay from many ranks on. The bound falls as p^(-2/3).
# 2.5D reaches this with as many layers as a layer has rows, c = q = p^(1/3): each rank sends
# 5 (q - 1) N^2 / q^3, 10/3 of the bound for any p. SUMMA falls as p^(-1/2), and its memory allows no more: a
# rank that holds at most M numbers moves at least N^3 / (2 sqrt(2) p sqrt(M)) - M numbers (Irony, Toledo and
# Tiskin 2004; `lower_bounds.py` has the proof in four lines). With room for three blocks, M = 3 N^2 / p, the
# first term is 0.204 N^2 / sqrt(p), and SUMMA receives less than ten times as many:

# %%
for p in (4, 16, 64, 256):
    first_term = with_memory(N, N, N, p, 3 * N**2 / p) + 3 * N**2 / p
    ratio = counted["SUMMA"][p] / first_term
    print(f"   {p:5} ranks: SUMMA receives {ratio:.1f} times {first_term:,.0f} numbers")
    assert np.isclose(first_term, N**2 / np.sqrt(24 * p)), (
        f"{first_term:.1f}, not {N**2 / (24 * p) ** 0.5:.1f}"
    )
    assert ratio < 10, f"{p} ranks: SUMMA receives {ratio:.1f} times the first term, allowed 10"

# %% [markdown]
# Read: Irony, Toledo and Tiskin 2004, "Communication lower bounds for distributed-memory matrix
# multiplication"; Solomonik and Demmel 2011, "Communication-optimal parallel 2.5D matrix multiplication and
# LU factorization algorithms".
#
# ## 6. The roofline of a split: bound by computing or by messages
# Lesson 04 asked how many operations a processor must do for each byte that its *memory* delivers. Here the
# bytes are sent in *messages*. A rank computes C operations a second, and its link sends W bytes a second
# one way. If a split does fewer than C / W operations for each byte that a rank sends, messages take longer
# than computing: it is *bound by messages*. Otherwise it is *bound by computing*.
#
# Let b be the tokens of a rank. A *token* is what a language model reads, a word or a piece of one; for other
# nets, read samples. p ranks share a layer, and a number has e bytes. In the pass that sends most:
#
#     split by     computes           sends, in numbers       is bound by computing from
#     batch        4 b n (backward)   2 n (p - 1) / p         b >= (e / 2) (C / W) (p - 1) / p
#     model        4 b h F / p        2 b h (p - 1) / p       F >= (e / 2) (C / W) (p - 1)
#     sequence     2 b (S + 1) h      2 b h (p - 1)           S + 1 >= e (C / W) (p - 1)
#     experts      4 k b h m          2 k b h (p - 1) / p     m >= (e / 2) (C / W) (p - 1) / p
#     pipeline     2 b P              b h                     P >= (e / 2) (C / W) h
#
# n are the weights of a layer. F are the neurons between a column layer and a row layer of width h. S is the
# length of a row of tokens, whose keys go round a ring (lesson 17). m are the neurons of an expert, and each
# token takes k experts (lesson 18). P are the weights of a stage. The functions are in
# minigrad_course/machines/sharding_roofline.py.
#
# Look at the last column. *More tokens help only if ranks share the batch.* Then the messages are gradients
# of weights, whose number does not depend on the tokens. The messages of the other four splits are
# activations. They grow with the tokens, as computing does, so b cancels: there the layers must be large
# enough.
#
# Our example is an A100. By its data sheet it does 312 TFLOP/s in 16 bits, and sends 300 GB/s one way to the
# GPUs of its own server (NVLink: 600 GB/s, both ways together). To other servers it has a card of 200 Gbit/s.

# %%
print("\n6. The roofline of a split, on A100s: the least that a rank must have")
LINKS = {"NVLink": Link(0.0, 300e9), "200 Gbit/s": Link(0.0, 25e9)}
MACHINES = {name: Hardware(312e12, link, math.inf) for name, link in LINKS.items()}


def least(bound_by_computing, step):
    """By trial the least multiple of ``step`` that is bound by computing, as all larger ones must be too."""
    low, high = 0, 1
    while not bound_by_computing(high * step):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound_by_computing(middle * step) else (middle, high)
    return high * step


def bounds_of(machine, p):
    """The least number of tokens for the batch, and by trial the least F, S, m and P / h."""
    return (
        math.ceil(data_roofline(machine, p, 4096 * 4096).tokens),
        least(lambda n: model_roofline(machine, p, 4096, n).tokens == 0, p),
        least(lambda n: sequence_roofline(machine, p, 4096, n).tokens == 0, 2 * p),
        least(lambda n: expert_roofline(machine, p, 4096, n).tokens == 0, 1),
        least(lambda n: pipeline_roofline(machine, 4096, 4096 * n).tokens == 0, 1),
    )


# %%
print("   ranks, link       batch: b  model: F  sequence: S  experts: m  pipeline: P/h")
for p, name in ((8, "NVLink"), (8, "200 Gbit/s"), (64, "200 Gbit/s")):
    intensity, bounds = MACHINES[name].flops / MACHINES[name].link.bandwidth, bounds_of(MACHINES[name], p)
    b, neurons, length, of_expert, of_stage = bounds
    print(f"   {p:2} with {name:10} {b:8,} {neurons:9,} {length:12,} {of_expert:11,} {of_stage:14,}")
    formulas = (p - 1) / p, p - 1, 2 * (p - 1), (p - 1) / p, 1  # e is 2 bytes
    for value, formula in zip(bounds, formulas, strict=True):
        off = value - formula * intensity  # by trial a whole number, or a multiple of p or 2 p
        assert -1.5 <= off <= 2 * p, f"{p} ranks, {name}: {value:,}, formula {formula * intensity:,.0f}"
for flops, bandwidth, tokens in ((990e12, 450e9, 2200), (459e12, 180e9, 2550)):  # H100, TPU v5p
    ours = data_roofline(Hardware(flops, Link(0.0, bandwidth), math.inf), 10**6, 1).tokens
    assert round(ours) == tokens, f"{ours:.0f} tokens, published for many ranks: {tokens}"

# %% [markdown]
# Inside a server 8 ranks can share neurons from F = 7,280 on: a width of 1,820, if F = 4 h. Between servers
# they would need 87,360. So ranks of one server share neurons, and servers share layers, for which a stage of
# one block is large enough. Megatron-LM did so (the table in lesson 15): at most 8 ranks share the neurons of
# a layer, and there are up to 64 stages. Data parallelism between servers needs about 12,000 tokens on each
# rank, six rows of 2,048. (Austin et al. derive 2,200 tokens for H100s in one server and 2,550 for TPU v5p
# along one axis of their network. Our formula gives the same.)
#
# We check the formula in two ways. First by the planner (lesson 15), which counts every weight, norm and bias
# of a transformer: from how many tokens on does backward take as long as the sum of all gradients? Then by
# the virtual clock, on a small machine with a latency: it runs the all-reduces, and we search for the least
# number of tokens.

# %%
net = TransformerSizes(symbols=51_200, length=64, width=2048, heads=16, blocks=24, itemsize=2)
first = RankStep(net, Layout(data=8), Place(), batch=8)
machine = MACHINES["NVLink"]
backward = first.seconds(machine)[1].compute / net.length  # seconds a token
summing = sum(transfer.seconds(machine.link, 2) for _, transfer, _ in first.sums())
by_planner, by_formula = summing / backward, data_roofline(machine, 8, 1).tokens
print(f"   1.3 billion weights, 8 ranks: {by_planner:.0f} tokens by the planner, {by_formula:.0f} by formula")
assert abs(by_planner / by_formula - 1) < 0.01, f"planner {by_planner:.1f}, formula {by_formula:.1f} tokens"
SMALL, P, H, F = Hardware(2e6, Link(1e-3, 1e5), math.inf), 4, 16, 256


def sum_seconds(numbers):
    """An all-reduce of float32 on the virtual clock."""
    cluster = VirtualCluster(P, SMALL.link)
    cluster.run(lambda comm: ring_allreduce(comm, np.zeros(numbers, np.float32)))
    return cluster.seconds


by_clock = {
    "batch": least(lambda b: 4 * b * H * F / SMALL.flops >= sum_seconds(H * F), 1),
    "model": least(lambda b: 4 * b * H * F / P / SMALL.flops >= sum_seconds(b * H), 1),
}
by_roofline = {
    "batch": data_roofline(SMALL, P, H * F, itemsize=4),
    "model": model_roofline(SMALL, P, H, F, itemsize=4),
}
for name, tokens in by_clock.items():
    expected = by_roofline[name].tokens
    print(f"   {name}: from {tokens} tokens on by the virtual clock, by formula from {expected:.2f}")
    assert tokens == math.ceil(expected), f"{name}: {tokens} by the clock, formula {expected:.3f}"

# %% [markdown]
# With a latency all five splits need tokens, since a small message takes little more than the latency. Here
# are the splits of a transformer of width 4,096 on 8 ranks, with 5 microseconds a message (our guess). The
# line of the batch rises without end. The others rise until the latency is small, and then stay level. A line
# above 1 is bound by computing. A line that stays below 1 is bound by messages, however many tokens there
# are.

# %%
TOKENS, WIDTH, RANKS_OF_A_SPLIT = np.geomspace(16, 65_536, 60), 4096, 8


def five_splits(link):
    """The roofline of each split: 12 h^2 weights in a block, 4 h neurons, rows of 16,384 tokens."""
    m, p, h = Hardware(312e12, link, math.inf), RANKS_OF_A_SPLIT, WIDTH
    return {
        "pipeline": pipeline_roofline(m, h, 12 * h * h),
        "experts": expert_roofline(m, p, h, 4 * h),
        "model": model_roofline(m, p, h, 4 * h),
        "sequence": sequence_roofline(m, p, h, 16_384),
        "batch": data_roofline(m, p, 12 * h * h),
    }


# %%
ratios, from_tokens = {}, {}
for name, link in LINKS.items():
    rooflines = five_splits(link._replace(latency=5e-6))
    ratios[name] = {split: [r.ratio(b) for b in TOKENS] for split, r in rooflines.items()}
    from_tokens[name] = {split: r.tokens for split, r in rooflines.items()}
    shown = ", ".join(f"{split} {t:,.0f}" for split, t in from_tokens[name].items() if t < math.inf)
    never = ", ".join(split for split, t in from_tokens[name].items() if t == math.inf) or "none"
    print(f"   {name}: from so many tokens on: {shown}; never: {never}")
inside, between = from_tokens.values()
assert max(inside.values()) < 1200, f"inside a server {inside}"
assert between["model"] == between["sequence"] == math.inf, f"between servers {between}"
assert between["pipeline"] < between["batch"] < 12_000, f"between servers {between}"

# %%
save(drawings.rooflines(TOKENS, ratios), FIGURES / "rooflines.png")

# %% [markdown]
# "Bound by computing" does not mean that messages are free. Gradients travel during backward (lesson 06) and
# keys during attention (lesson 17): above the bound these can be hidden. Ranks that share neurons wait for
# their sums. At the bound they lose half of their time, far above it little.
#
# Read: Austin et al. 2025, "How to scale your model", jax-ml.github.io/scaling-book, the chapters on training
# and on GPUs; Williams, Waterman and Patterson 2009 (the roofline), doi:10.1145/1498765.1498785.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - On every grid of data and model ranks, training equals training on one machine, for drawn plans:
#   [tests](../../tests/backends/test_stack.py),
#   [tests](../../tests/backends/model_parallel/test_model_parallel.py).
# - The formula has pure data and pure model parallelism as its limits, and the search finds its least value,
#   for drawn layers: [tests](../../tests/minigrad_course/machines/test_integrated_costs.py). That ranks send
#   as many bytes as it says is proved only here, for one network, three grids and seven batches.
# - SUMMA, 2.5D and Cannon compute products and gradients of any sizes and send exactly the numbers of their
#   formulas, never fewer than the bounds:
#   [tests](../../tests/backends/model_parallel/grid_products/test_products.py).
# - Each bound of the roofline is the least number of tokens on a virtual clock:
#   [tests](../../tests/minigrad_course/machines/test_sharding_roofline.py).
#
# Not proved: that AlexNet takes these seconds on 512 real ranks. All seconds of part 2 are our evaluation of
# a published formula.
#
# Next: [lesson 15](../15_scale/lesson.py): formulas like these, compared with measurements that others
# published for hundreds of GPUs.
