"""Lesson 11. Model parallelism: every rank sees the whole batch and holds a part of the model.

Lecture section: model parallelism. Layers are split by neurons, by filters and channels, or by classes; or
each rank holds whole layers. Each split needs its own sums over the ranks, and types find one that is
missing.

The slide asks: what must ranks send if they share the neurons of each layer instead of the samples, and how
little can it be?

You need: lessons 02 (backward), 05 (all-gather, all-reduce, the virtual clock) and 06 (data parallelism); how
two matrices are multiplied.

Time: about 60 minutes; the program runs for about 5 seconds.

After this you can: split a pair of layers by columns and rows and write down the op at each end; compute how
many numbers a rank sends; say which sum over ranks is missing, or is there twice, from the types of the
tensors; say when model parallelism pays.

    python lessons/11_model_parallel/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/11_model_parallel/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import drawings
import numpy as np
from measured import largest_error, numbers_in_a_step, numbers_sent, step_of_layers
from minigrad_course.experiments.experiment import read_result, source_of
from minigrad_course.shared.style import start_lesson

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import allgather, ring_allreduce
from backends.comm.gradient_types import FAN_OUT, PARTIAL, REPLICATED, SPLIT, SPLIT_INPUTS
from backends.comm.timeline import draw, gantt
from backends.comm.typed_tape import GradientTypeError, TypedTape
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.linear import RowLinear
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.parameter_types import parameter_types
from backends.model_parallel.plan import SPLITS
from minigrad import Parameter, Tape, Tensor, mnist, nn, ops
from minigrad.data import Batch, shares
from minigrad.figures import save
from minigrad.serial import Serial

FIGURES = start_lesson("11_model_parallel")

# %% [markdown]
# ## 1. A 3 x 4 matrix on two ranks, by hand
# A layer of four neurons with three inputs is a product, y = x W, and each neuron is a column of W. Split W
# by columns: each rank computes some of the outputs from *all* inputs, and the results are put side by side
# (an all-gather). Split W by rows: each rank computes *all* outputs from some of the inputs, and the results
# are added up (an all-reduce).
#
# Below, `run_ranks(2, f)` calls f on two ranks, which are threads here, and returns both results (lesson 05).
# `shares(4, 2)` cuts four columns into two slices, one for each rank.

# %%
print("1. A 3 x 4 matrix on two ranks, by hand")
x = np.array([[1.0, 2.0, 3.0]])
W = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 3.0, 1.0, 1.0], [2.0, 1.0, 0.0, 4.0]])
print(f"   one machine: {(x @ W)[0]}")


def by_columns(comm):
    mine = shares(4, comm.size)[comm.rank]
    part = x @ W[:, mine]
    return part, np.concatenate(allgather(comm, part), axis=1)


def by_rows(comm):
    mine = shares(3, comm.size)[comm.rank]  # two of the three inputs on one rank, one on the other
    part = x[:, mine] @ W[mine]
    return part, ring_allreduce(comm, part)


for split, rule in ((by_columns, "side by side"), (by_rows, "added up")):
    results = run_ranks(2, split)
    parts = " and ".join(str(part[0]) for part, _ in results)
    print(f"   {split.__name__:10}: the ranks have {parts};")
    print(f"   {'':10}  {rule}: {results[0][1][0]}")
    assert all((y == x @ W).all() for _, y in results), f"{split.__name__}: {results[0][1]}, expected {x @ W}"

# %% [markdown]
# Read: Ben-Nun and Hoefler 2019, arXiv:1802.09941, the section "Model parallelism".
#
# ## 2. The naive form: gather after every layer
# The slide splits each layer by neurons: a rank computes its columns of the layer, then an all-gather gives
# the whole output to all ranks, and the next layer starts from there.
#
# Backward: each rank computes the gradient of x *through its own neurons only*. That is a part of the
# gradient, and the parts of all ranks must be added. So an op before the layer, `fan_out`, does nothing in
# forward and an all-reduce in backward. A second op, `join_in`, is the all-gather after the layer; in
# backward it takes the rank's own columns of the gradient g that arrives. A layer is then one line;
# `backends/model_parallel/naive.py` is this line in the library.

# %%
print("\n2. The naive form")
rng = np.random.default_rng(2)
inputs, W1, W2 = rng.normal(size=(5, 6)), rng.normal(size=(6, 7)), rng.normal(size=(7, 4))


def gathered_layer(x, weight, comm, fan_out=differentiable.fan_out):
    mine = shares(weight.shape[1], comm.size)[comm.rank]  # this rank's neurons
    return differentiable.join_in(fan_out(x, comm=comm) @ weight[:, mine], comm=comm, axis=1)


def gradient_of_x(comm, network):
    """The gradient of sum(y²) for y = network(x, comm) by x."""
    leaf = Tensor(inputs, requires_grad=True)
    with Tape() as tape:
        y = network(leaf, comm)
        loss = ops.sum(y * y)
    tape.backward(loss)
    return leaf.grad


def naive(x, comm):
    return gathered_layer(ops.tanh(gathered_layer(x, W1, comm)), W2, comm)


def naive_without_fan_out(x, comm):
    hidden = ops.tanh(gathered_layer(x, W1, comm, fan_out=lambda x, comm: x))
    return gathered_layer(hidden, W2, comm)


# %%
serial = run_ranks(1, lambda comm: gradient_of_x(comm, naive))[0]
size = np.abs(serial).max()


def errors(network):
    """The gradient's error on each of two ranks, relative to its largest element; and the gradients."""
    gradients = run_ranks(2, lambda comm: gradient_of_x(comm, network))
    return [np.abs(g - serial).max() / size for g in gradients], gradients


right, _ = errors(naive)
wrong, parts = errors(naive_without_fan_out)
print(f"   with fan_out:    the error of the gradient is {right[0]:.0e} on rank 0, {right[1]:.0e} on rank 1")
print(f"   without fan_out: {wrong[0]:.0%} and {wrong[1]:.0%} of its largest element")
assert max(right) <= 1e-12, f"the gradient's error is {max(right):.1e} of its largest element, limit 1e-12"
assert min(wrong) > 0.1, f"without fan_out the error is only {min(wrong):.0%}, expected more than 10%"
off = np.abs(sum(parts) - serial).max() / size
assert off <= 1e-12, f"the sum of the parts is off by {off:.1e} of the largest element, limit 1e-12"

# %%
save(drawings.parts_of_a_gradient(serial[0], [g[0] for g in parts]), FIGURES / "fan_out.png")

# %% [markdown]
# Each rank lacks the other rank's part of the gradient. No error is raised. In the layers before these, each
# rank would continue backward with a different gradient, and weights that should be equal on all ranks would
# become different.
#
# Read: Ben-Nun and Hoefler 2019, arXiv:1802.09941, the section "Model parallelism".
#
# ## 3. Columns, then rows: a conjugate pair
# A split by columns leaves its outputs split, and a split by rows needs its inputs split. So split the first
# layer by columns and the second by rows: x W1, tanh, times W2, and *one* sum at the end. Nothing is sent
# between the two layers, not even at the activation function, which acts on each neuron alone. The sum is the
# op `fan_in`: an all-reduce in forward, nothing in backward. `fan_out` is the reverse: nothing in forward, an
# all-reduce in backward. Each op is the backward of the other, so they are called a conjugate pair (f and g
# in Megatron-LM).
#
# A common mistake is an all-reduce in both directions at the end of the pair. Then every rank's copy of the
# loss counts, and on two ranks the gradient is twice as large as it should be.

# %%
print("\n3. Columns, then rows")


def columns_then_rows(x, comm, fan_in=differentiable.fan_in):
    mine = shares(7, comm.size)[comm.rank]  # of the seven hidden neurons
    hidden = ops.tanh(differentiable.fan_out(x, comm=comm) @ W1[:, mine])
    return fan_in(hidden @ W2[mine], comm=comm)


right, _ = errors(columns_then_rows)
wrong, doubled = errors(lambda x, comm: columns_then_rows(x, comm, differentiable.all_reduce))
print(f"   fan_out and fan_in:           the error of the gradient is {right[0]:.0e} and {right[1]:.0e}")
print(f"   all-reduce backward as well:  {wrong[0]:.0%}: both ranks counted the one loss")
assert max(right) <= 1e-12, f"the gradient's error is {max(right):.1e} of its largest element, limit 1e-12"
off = np.abs(doubled[0] - 2 * serial).max() / size
assert off <= 1e-12, f"not twice the gradient: off by {off:.1e} of its largest element, limit 1e-12"

# %% [markdown]
# Read: Shoeybi et al. 2019 (Megatron-LM), arXiv:1909.08053, section 3.
#
# ## 4. Who holds what
# `ModelParallel` takes a *plan*: the kind of split for each layer, by the layer's name. The name is its place
# in `Sequential`: below, "1" and "3" are the linear layers. To see which rank holds which weights, each rank
# writes its number into all weights that it holds, and then the weights are put together.

# %%
print("\n4. Who holds what")
PAIR, NAIVE = {"1": "column", "3": "row"}, {"1": "gathered", "3": "gathered"}


def perceptron(*widths, seed=0):
    """Linear layers 1, 3, ... with tanh between them."""
    rng, layers = np.random.default_rng(seed), [nn.Flatten()]
    for n_in, n_out in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(n_in, n_out, rng=rng), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).to(dtype=np.float64)


def owners(comm):
    backend = ModelParallel(comm, PAIR)
    model = backend.place(perceptron(6, 8, 5))
    for parameter in model.parameters():
        parameter.data[...] = comm.rank
    return sum(p.size for p in model.parameters()), backend.state.full_parameters(model)


results = run_ranks(3, owners)
for rank, (weights, _) in enumerate(results):
    print(f"   rank {rank} holds {weights} of {6 * 8 + 8 + 8 * 5 + 5} parameters")
everywhere = {name for name in results[0][1] if (results[0][1][name] != results[1][1][name]).any()}
assert everywhere == {"3.bias"}, f"replicated: {everywhere}, expected 1 parameter, the bias of the row layer"
owned = {name: None if name in everywhere else value for name, value in results[0][1].items()}

# %%
save(drawings.who_holds_what(owned, ranks=3), FIGURES / "who_holds_what.png")

# %% [markdown]
# Both plans on digits, with the proof: every gradient equals the gradient that one machine computes.

# %%
digits = mnist.load("mnist5k")
batch = Batch(digits.train.x[:64].astype(np.float64), digits.train.y[:64])
for name, plan in (("column, then row", PAIR), ("each layer gathered", NAIVE)):
    off = largest_error(
        lambda comm, plan=plan: ModelParallel(comm, plan), lambda: perceptron(784, 100, 10), batch
    )
    print(f"   784-100-10 on three ranks, {name}: gradients are serial to {off:.0e}")
    assert off <= 1e-12, f"{name}: gradients differ from one machine's by {off:.1e}, limit 1e-12"

# %% [markdown]
# Read: Shoeybi et al. 2019 (Megatron-LM), arXiv:1909.08053, section 3.
#
# ## 5. What the pair saves
# Count the numbers that a rank sends: p ranks, b samples, layers of widths d - h - d, all-reduces around a
# ring (lesson 05).
#
# - naive: two all-gathers in forward send (h + d) b (p - 1) / p numbers; two all-reduces in backward send
#   twice as many;
# - pair: one all-reduce in each direction sends 2 d b (p - 1) / p numbers. The width h of the hidden layer is
#   not in it.

# %%
print("\n5. What the pair saves")
d, b, p = 12, 6, 3
counts = {
    plan["1"]: np.array([numbers_sent(plan, lambda n=n: perceptron(d, n * d, d), (b, d)) for n in (1, 2, 4)])
    for plan in (NAIVE, PAIR)
}
for n, naive_one, pair_one in zip((1, 2, 4), counts["gathered"], counts["column"], strict=True):
    print(
        f"   hidden layer {n} x as wide: naive {naive_one[0]:3} forward, {naive_one[1]:3} backward; "
        f"pair {pair_one[0]:2} and {pair_one[1]:2}: {pair_one.sum() / naive_one.sum():.0%}"
    )
    formula = np.array([(n + 1) * d * b * (p - 1) // p] * 2) * [1, 2]
    assert (naive_one == formula).all(), f"naive: {naive_one} numbers sent, the formula gives {formula}"
    formula = np.array([2 * d * b * (p - 1) // p] * 2)
    assert (pair_one == formula).all(), f"pair: {pair_one} numbers sent, the formula gives {formula}"

# %%
save(drawings.naive_and_pair((1, 2, 4), counts["gathered"], counts["column"]), FIGURES / "bytes.png")

# %% [markdown]
# At equal widths the pair saves nothing in forward, and half of the numbers in backward. Gradients of weights
# are not sent at all: the rank that holds a weight computes its whole gradient.
#
# Read: Gholami et al. 2018, arXiv:1712.04432, the section on model parallelism (its formula is the naive
# one).
#
# ## 6. The bias of the row layer is added once
# The ranks' partial results are added up. If each rank adds the bias to its partial result, the sum has the
# bias p times.

# %%
print("\n6. The bias of the row layer is added once")


class BiasOnEveryRank(RowLinear):
    """Wrong: the bias is in every partial result."""

    def sharded_forward(self, a):
        y = ops.linear(a.redistribute(self.shard).local, self.weight, self.bias)
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm))


class Wrong(ModelParallel):
    splits = {nn.Linear: {**SPLITS[nn.Linear], "row": BiasOnEveryRank}}


# %%
def errors_by_step(strategy, steps=6, lr=0.5):
    """Errors of the gradients before each update, by plain gradient descent from biases that are zero."""

    def descend(backend):
        net = perceptron(784, 100, 10)
        for layer in (net[1], net[3]):
            layer.bias.data[...] = 0
        model, path = backend.place(net), []
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.grad = None
            backend.step(model, batch, ops.cross_entropy)
            path.append(np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()]))
            for parameter in model.parameters():
                parameter.data -= lr * parameter.grad
        return np.array(path)

    serial, split = descend(Serial()), run_ranks(3, lambda comm: descend(strategy(comm)))[-1]
    return np.linalg.norm(split - serial, axis=1) / np.linalg.norm(serial, axis=1)


once, thrice = (errors_by_step(lambda comm, s=s: s(comm, PAIR)) for s in (ModelParallel, Wrong))
print("   step          " + "".join(f"{step:9}" for step in range(1, 7)))
print("   added once    " + "".join(f"{e:9.0e}" for e in once))
print("   on every rank " + "".join(f"{e:9.0e}" for e in thrice))
assert once.max() <= 1e-12, f"added once: the gradient's error is {once.max():.1e}, limit 1e-12"
assert thrice[0] <= 1e-12 and thrice[1:].min() > 1e-3, f"errors {thrice[0]:.1e}, then {thrice[1:].min():.1e}"

# %%
save(drawings.bias_once(once, thrice), FIGURES / "row_bias.png")

# %% [markdown]
# A bias that starts at zero hides this mistake in the first step, and a test that compares one gradient of a
# new network passes. Test with random biases, or with two steps.
#
# Read: the source of Megatron-LM, `RowParallelLinear` in megatron/core/tensor_parallel/layers.py: there
# too the bias is added after the sum.
#
# ## 7. Convolutions: by filters, then by channels
# A convolution has an output image for each *filter*, and each filter adds up over all *channels* of its
# input. So a filter corresponds to a column of a matrix, and a channel to a row. Split the first convolution
# by filters: a rank computes some of the hidden images, and sends nothing. ReLU and pooling act on each
# channel alone. Split the second convolution by channels: each rank has a partial sum of every output image.
# One all-reduce adds them up in forward. Another is needed in backward, for the gradient of the input.
# (In `backends/model_parallel/layers`, conv.py has both splits, pass_through.py has ReLU and pooling.)

# %%
print("\n7. Convolutions: by filters, then by channels")
image = digits.train.x[np.flatnonzero(digits.train.y == 3)[1]][None].astype(np.float64)  # (1, 1, 28, 28)
edge = np.array([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]) / 4
first = np.array([edge, -edge, edge.T, -edge.T])[:, None]  # four filters: edges above, below, left, right
second = np.full((1, 4, 3, 3), 1 / 9)  # one filter, that adds up four blurred channels


def filters_then_channels(comm):
    mine = shares(4, comm.size)[comm.rank]  # of the four hidden channels
    x = differentiable.fan_out(Tensor(image), comm=comm)
    hidden = ops.relu(ops.conv2d(x, first[mine], padding=1))
    part = ops.conv2d(hidden, second[:, mine], padding=1)
    return hidden.data[0], part.data[0, 0], differentiable.fan_in(part, comm=comm).data[0, 0]


one, two = run_ranks(1, filters_then_channels)[0][2], run_ranks(2, filters_then_channels)
off = max(np.abs(y - one).max() for *_, y in two)
print(f"   a digit on two ranks, two hidden channels each: {off:.0e} from one machine")
assert off <= 1e-12, f"the sum of the partial images is off by {off:.1e}, limit 1e-12"

# %%
save(drawings.filters_and_channels(image[0, 0], two), FIGURES / "channels.png")

# %% [markdown]
# The numbers sent follow part 5, with images instead of neurons. C channels go in and come out, the layer
# between them has H channels, and N images have S x S pixels:
#
# - every layer gathered: (H + C) N S^2 (p - 1) / p in forward, twice as many in backward;
# - filters, then channels: 2 C N S^2 (p - 1) / p in each direction. H is not in it.

# %%
C, N, SIDE = 3, 2, 6


def convolutions(hidden, seed=0):
    rng = np.random.default_rng(seed)
    inner = (
        nn.Conv2d(C, hidden, 3, padding=1, rng=rng),
        nn.ReLU(),
        nn.Conv2d(hidden, C, 3, padding=1, rng=rng),
    )
    return nn.Sequential(*inner).to(dtype=np.float64)


plans = {
    "gathered": {"0": "gathered-filters", "2": "gathered-filters"},
    "pair": {"0": "filters", "2": "channels"},
}
for hidden in (3, 6, 12):
    measurements = {
        name: numbers_sent(plan, lambda h=hidden: convolutions(h), (N, C, SIDE, SIDE))
        for name, plan in plans.items()
    }
    each = N * SIDE**2 * (p - 1) // p  # of one channel
    print(
        f"   {hidden:2} hidden channels: gathered {measurements['gathered']}, "
        f"pair {measurements['pair']} forward, backward"
    )
    formulas = {"gathered": [(hidden + C) * each, 2 * (hidden + C) * each], "pair": [2 * C * each] * 2}
    for name, numbers in measurements.items():
        assert numbers.tolist() == formulas[name], f"{name}: {numbers}, the formula gives {formulas[name]}"

# %% [markdown]
# A whole network has both pairs: filters and channels, then columns and rows. Its gradients, too, equal those
# of one machine.

# %%
classifier = {"0": "filters", "2": "channels", "4": "column", "6": "row"}


def small_network():
    rng = np.random.default_rng(0)
    layers = [*convolutions(8).layers, nn.Flatten(), nn.Linear(C * SIDE**2, 20, rng=rng), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(20, 10, rng=rng)).to(dtype=np.float64)


some = Batch(rng.normal(size=(7, C, SIDE, SIDE)), rng.integers(0, 10, 7))
off = largest_error(lambda comm: ModelParallel(comm, classifier), small_network, some)
print(f"   a network of both pairs on three ranks: gradients are serial to {off:.0e}")
assert off <= 1e-12, f"gradients differ from one machine's by {off:.1e}, limit 1e-12"

# %% [markdown]
# Read: Dryden et al. 2019, "Channel and filter parallelism for large-scale CNN training",
# doi:10.1145/3295500.3356207.
#
# ## 8. Many classes: three numbers instead of all logits
# Split the last layer by columns: each rank has the outputs (*logits*) of some classes. For each sample the
# cross-entropy needs the largest logit, the sum of the exponentials, and the logit of the right class. Each
# of the three is a sum or a maximum over the ranks. So a rank sends three numbers for each sample, however
# many classes there are.

# %%
print("\n8. Many classes")
CLASSES, RANKS, SAMPLES = (12, 100, 1000, 10_000), 4, 8
sent = {"gathered": [], "classes": []}
for n in CLASSES:
    draw_from = np.random.default_rng(n)
    some = Batch(draw_from.normal(size=(SAMPLES, 16)), draw_from.integers(0, n, SAMPLES))
    for kind, numbers in sent.items():
        build = lambda n=n: perceptron(16, n)  # noqa: E731
        off = largest_error(lambda comm, kind=kind: ModelParallel(comm, {"1": kind}), build, some, RANKS)
        assert off <= 1e-12, f"{kind}, {n} classes: gradients off by {off:.1e}, limit 1e-12"
        numbers.append(numbers_in_a_step({"1": kind}, build, some, RANKS) / SAMPLES / (RANKS - 1))
    logits, three = sent["gathered"][-1], sent["classes"][-1]
    print(f"   {n:6,} classes: {logits:5.0f} logits per sample to each other rank, or {three:.0f} numbers")
    assert three == 3 and logits == n / RANKS, f"{three} numbers and {logits} logits, not 3 and {n / RANKS}"

# %%
save(drawings.many_classes(CLASSES, sent["gathered"], sent["classes"]), FIGURES / "classes.png")

# %% [markdown]
# Read: Shoeybi et al. 2019, arXiv:1909.08053, section 3 (the output embedding and its loss).
#
# ## 9. Layers on consecutive ranks: memory, not time
# Another split gives each rank some whole layers. For a batch of b samples, b d numbers cross each boundary
# between ranks in forward, and b d in backward, which is little. But a layer needs the output of the layer
# before it. On a virtual cluster (lesson 05), where a layer takes 1 ms forward and 2 ms backward, one rank
# works at a time, and the others wait.

# %%
print("\n9. Layers on consecutive ranks")
LAYERS, WIDTH = 8, 64
_, _, alone, [(_, _, expected)] = step_of_layers(1, LAYERS, WIDTH, samples=16, seconds=1e-3)
trace, start, seconds, by_rank = step_of_layers(4, LAYERS, WIDTH, samples=16, seconds=1e-3)
print("   " + gantt(trace, 66, start, start + seconds).replace("\n", "\n   "))
print(
    f"   one rank {1e3 * alone:.2f} ms, four ranks {1e3 * seconds:.2f} ms, each with a quarter of the weights"
)
print(f"   and busy a quarter of the time; rank 1 sends {by_rank[1][1]:,} bytes in a step")

# %%
whole, boundary = LAYERS * (WIDTH * WIDTH + WIDTH), 8 * 16 * WIDTH
for of_rank, nbytes, gradients in by_rank:
    assert of_rank == whole // 4, f"a rank holds {of_rank} parameters, expected a quarter of {whole}"
    assert nbytes < 2.1 * boundary, f"a rank sends {nbytes} bytes, expected about two times {boundary}"
    off = max(np.abs(gradients[name] - g).max() / np.abs(g).max() for name, g in expected.items())
    assert off <= 1e-12, f"gradients differ from one machine's by {off:.1e}, limit 1e-12"
work = sorted((s.start, s.stop) for s in trace.spans if s.what in ("forward", "backward"))
overlap = max(stop - begin for (_, stop), (begin, _) in zip(work, work[1:], strict=False))
assert overlap <= 1e-12, f"two ranks worked at the same time for {overlap:.1e} s, expected 0"
assert alone <= seconds < 1.05 * alone, f"four ranks take {1e3 * seconds:.2f} ms, one {1e3 * alone:.2f} ms"

# %%
draw(
    trace,
    FIGURES / "layers.png",
    title="Layers on consecutive ranks: one works, three wait",
    start=start,
    stop=start + seconds,
)

# %% [markdown]
# R (the dotted boxes "recv" of the figure) is time in which a rank waits for a message. At the end rank 2
# waits for the loss: rank 3 computes it, and it reaches rank 2 through rank 1.
#
# If matrices are split, all ranks work at the same time but communicate in every layer. If layers are
# distributed, ranks communicate little but wait. Pipelines (lesson 13) use the waiting time for other
# samples.
#
# Read: Ben-Nun and Hoefler 2019, arXiv:1802.09941, the section "Pipelining"; Huang et al. 2019 (GPipe),
# arXiv:1811.06965, section 2.

# %% [markdown]
# ### The speed of a split of matrices
# Whether a split saves time depends on the width. Take a pair of widths d - h - d with b samples. Forward
# needs 4 b d h / p operations on each rank, two for each weight and sample, and sends 2 d b (p - 1) / p
# numbers. So a rank does 2 h / (p - 1) operations for each number that it sends: *wide hidden layers pay,
# narrow ones do not*. (Lesson 14 turns this into a bound.)
#
# Both cases were measured on two processes, as multiples of the speed of one process, in November 2026 on a
# machine of two cores. With wide layers, 1024-2048-2048-10 by columns and rows and 256 samples a step, two
# processes were 1.70 times as fast as one, and 1.62 times in a second run (benchmarks/README.md, "Model
# parallelism"). With the two small nets below, the messages take as long as the computing that they save.
# `minigrad experiment speedup` repeats the small nets on your machine, and adds a wide one; it needs two idle
# cores.

# %%
print(f"   {source_of(read_result('speedup'))}; serial = 1")
for net, figures in read_result("speedup")["nets"].items():
    one, two = (figures["peers"][f"model parallel, {ranks}"]["speedup"] for ranks in (1, 2))
    print(f"   {net}, batch {figures['batch_size']}: on one process {one:.2f}, on two {two:.2f}")
    difference = figures["largest_difference"]
    assert difference < 1e-12, f"{net}: a loss differs from serial by {difference:.1e}, limit 1e-12"

# %% [markdown]
# ## 10. Types: a missing sum, without a backward pass
# Every mistake of this lesson is a sum over ranks that is missing, or that is there twice. No error is
# raised, and the output is right, or nearly so. Yet such a mistake can be found in forward alone. Give each
# tensor a *type*, which says how its values are spread over the ranks, and how its gradients are.
#
# | type | values | gradients | for example |
# |---|---|---|---|
# | REPLICATED | equal on all ranks | equal on all ranks | x, which all ranks use in the same way |
# | FAN_OUT | equal on all ranks | partial: terms of a sum | x after `fan_out`, used differently by ranks |
# | SPLIT | each rank has a part | each rank has its part | some of the neurons |
# | PARTIAL | partial: terms of a sum | equal on all ranks | the products of a split by rows |
#
# Each collective takes one type and gives another: `fan_out` turns REPLICATED into FAN_OUT, and `fan_in`
# turns PARTIAL into REPLICATED. Ops between them keep types. An op may combine a REPLICATED tensor only with
# other REPLICATED ones: combined with one rank's part, its gradient would be partial, and no op would sum it.
# `TypedTape` keeps these types while a forward pass is recorded. Here is the block of part 3, written by
# hand.

# %%
print("\n10. Types: a missing sum, without a backward pass")
NAMES = {REPLICATED: "REPLICATED", FAN_OUT: "FAN_OUT", SPLIT: "SPLIT", PARTIAL: "PARTIAL"}


def types_of_a_block(comm):
    own = shares(7, comm.size)[comm.rank]
    x, w1, w2 = Tensor(inputs, requires_grad=True), Parameter(W1[:, own]), Parameter(W2[own])
    with TypedTape({w1: {comm: SPLIT}, w2: {comm: SPLIT_INPUTS}}) as tape:
        front = differentiable.fan_out(x, comm=comm)
        hidden = ops.tanh(front @ w1)
        terms = hidden @ w2
        y = differentiable.fan_in(terms, comm=comm)
    tensors = {"x": x, "fan_out(x)": front, "tanh(... W1)": hidden, "... W2": terms, "fan_in(...)": y}
    return {name: NAMES[tape.types_of(tensor).get(comm, REPLICATED)] for name, tensor in tensors.items()}


types = run_ranks(2, types_of_a_block)[0]
for name, kind in types.items():
    print(f"   {name:13} {kind}")
assert [*types.values()] == ["REPLICATED", "FAN_OUT", "SPLIT", "PARTIAL", "REPLICATED"], types

# %% [markdown]
# Now all six ways to put an op, or nothing, at the two ends of the block. We compare the verdict of the types
# in forward with the gradient of a backward pass: the types refuse a block exactly if its gradient is wrong.

# %%
FRONTS = {"nothing": lambda x, comm: x, "fan_out": differentiable.fan_out}
ENDS = {
    "nothing": lambda x, comm: x,
    "fan_in": differentiable.fan_in,
    "all_reduce": differentiable.all_reduce,
}


def said_by_types(comm, front, end):
    """What the types say of the block in forward; nothing if all sums are there."""
    own = shares(7, comm.size)[comm.rank]
    x, w1, w2 = Tensor(inputs, requires_grad=True), Parameter(W1[:, own]), Parameter(W2[own])
    types = {w1: {comm: SPLIT}, w2: {comm: SPLIT_INPUTS}}
    try:
        with TypedTape(types, {"x": x, "W1": w1, "W2": w2}) as tape:
            y = end(ops.tanh(front(x, comm=comm) @ w1) @ w2, comm=comm)
            loss = ops.sum(y * y)
        tape.check_loss(loss)
    except GradientTypeError as error:
        return str(error)
    return ""


# %%
def block(front, end):
    def output(x, comm):
        own = shares(7, comm.size)[comm.rank]
        return end(ops.tanh(front(x, comm=comm) @ W1[:, own]) @ W2[own], comm=comm)

    return output


print("   before the columns, after the rows:  error of the gradient, what the types say")
for (first, front), (last, end) in ((f, e) for f in FRONTS.items() for e in ENDS.items()):
    off = max(errors(block(front, end))[0])
    said = run_ranks(2, lambda comm, f=front, e=end: said_by_types(comm, f, e))[0]
    short = said.rpartition(": ")[2].partition(" over")[0].partition(",")[0] or "right"
    print(f"   {first:8} {last:10} {off:5.0%}  {short}")
    assert (off > 1e-12) == bool(said), f"{first}, {last}: the gradient is off by {off:.0e}, and {said!r}"

# %% [markdown]
# The library's layers say which of their parameters are split, and how (`parameter_types`), so a whole model
# can be checked. In the first step the wrong layer of part 6 has the right gradients, since its biases are
# zero. The types find the mistake in that step too, and name the layer.

# %%
for strategy in (ModelParallel, Wrong):

    def check(comm, strategy=strategy):
        model = strategy(comm, PAIR).place(perceptron(784, 100, 10))
        try:
            with TypedTape(parameter_types(model), model.named_parameters()) as tape:
                loss = ops.cross_entropy(model(batch.x), batch.y)
            tape.check_loss(loss)
        except GradientTypeError as error:
            return str(error)
        return ""

    said = run_ranks(3, check)[0]
    print(f"   {strategy.__name__}: " + (said.replace(", so", ",\n      so") or "no sum is missing"))
    assert ("3.bias is added" in said) == (strategy is Wrong), f"{strategy.__name__}: {said!r}"

# %% [markdown]
# Types do not show whether an op computes what its rule says (a test of its gradient shows that), and they
# ignore constants, which have no gradient. Layers that split images or blocks of matrices (lessons 12 and 14)
# have no types in this library.
#
# Read: the documentation of spmd_types, docs/local_spmd_types.md in github.com/meta-pytorch/spmd_types,
# which calls the four types Invariant, Replicate, Varying and Partial.

# %%
print(f"\nFigures: {FIGURES}/")

# %% [markdown]
# ## What was proved
# - Linear layers by columns, by rows or gathered train like one machine, for drawn widths and plans, on one
#   to six ranks: [tests](../../tests/backends/model_parallel/layers/test_linear.py); so do convolutions by
#   filters and channels: [tests](../../tests/backends/model_parallel/layers/test_conv.py).
# - A pair needs one all-reduce in each direction, and a rank sends as many numbers as the formula says:
#   [tests](../../tests/backends/model_parallel/layers/test_linear.py), for two networks on one to six ranks;
#   for other widths only this lesson's assertions.
# - A last layer split by classes has the loss and the gradients of the whole layer, and a rank sends three
#   numbers for each sample, for drawn numbers of ranks, samples and classes:
#   [tests](../../tests/backends/model_parallel/layers/test_class_parallel.py).
# - Types refuse each block of a list exactly where its gradients differ from the gradients of one machine, on
#   two to five ranks: [tests](../../tests/backends/comm/test_gradient_types.py).
# - Layers on consecutive ranks train like one machine:
#   [tests](../../tests/backends/pipeline/test_layer_wise.py). That only one rank works at a time is asserted
#   here, for one network.
#
# Not proved: any speed. The speeds in part 9 are measurements on one machine.
#
# Next: [lesson 12](../12_spatial/lesson.py): a convolution can also be split by the rows of its images, which
# sends less where images are large.
