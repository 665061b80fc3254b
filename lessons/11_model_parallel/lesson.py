"""Lesson 11. Model parallelism: every rank sees the whole batch and holds a part of the model.

Lecture section: model parallelism. A matrix is cut by columns or by rows; the two fit together, and then
one sum each way is all that ranks say to one another. At the end: whole layers on ranks, and why that waits.

    python lessons/11_model_parallel/lesson.py

Needs neither MPI nor a cluster: ranks are threads of this process. Figures go to
runs/lessons/11_model_parallel/. In an editor that knows `# %%` cells this file opens as a notebook.
"""

# %%

import drawings
import numpy as np

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import allgather, barrier, ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.timeline import draw, gantt
from backends.comm.trace import Trace, Traced, gather_trace
from backends.comm.virtual import Link, VirtualCluster
from backends.model_parallel import ModelParallel
from backends.model_parallel.linear import RowLinear
from backends.model_parallel.plan import SPLITS
from backends.model_parallel.sharding import ShardedTensor
from backends.pipeline import LayerWise
from lessons.style import start_lesson
from minigrad import Tape, Tensor, mnist, nn, op, ops
from minigrad.backend import Serial
from minigrad.data import Batch, shares

FIGURES = start_lesson("11_model_parallel")

# %% [markdown]
# ## 1. A 3 x 4 matrix on two ranks, by hand
# A layer of four neurons that look at three inputs: y = x W, a column of W for each neuron. Cut W between
# columns: each rank computes some of the outputs from *all* inputs, and they are put side by side. Cut it
# between rows: each rank computes *all* outputs from some of the inputs, and they are added up.

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
    mine = shares(3, comm.size)[comm.rank]  # the rank has these inputs only; three, which two do not divide
    part = x[:, mine] @ W[mine]
    return part, ring_allreduce(comm, part)


for way, joined in ((by_columns, "side by side"), (by_rows, "added up")):
    found = run_ranks(2, way)
    parts = " and ".join(str(part[0]) for part, _ in found)
    print(f"   {way.__name__:10}: the ranks have {parts}; {joined}: {found[0][1][0]}")
    assert all((y == x @ W).all() for _, y in found)

# %% [markdown]
# Columns leave the outputs cut; rows want the inputs cut. So put rows behind columns, and nothing needs to
# be said in between, not even where each neuron is squashed: x W1 by columns, tanh, times W2 by rows, one
# sum at the end.
#
# ## 2. What the gradient needs: a conjugate pair
# Going back, each rank knows how the loss depends on x *by way of its own neurons*. That is a part of the
# gradient; the parts must be added up. So there is one op in front of the columns that does nothing
# forward and an all-reduce backward, `fan_out`, and one behind the rows that does an all-reduce forward and
# nothing backward, `fan_in`: each is the other, read backwards. (Megatron-LM calls them f and g.)

# %%
print("\n2. What the gradient needs")
rng = np.random.default_rng(2)
inputs, W1, W2 = rng.normal(size=(5, 6)), rng.normal(size=(6, 7)), rng.normal(size=(7, 4))


def gradient_of_x(comm, fan_out=differentiable.fan_out, fan_in=differentiable.fan_in):
    """That of sum(y²) for y = tanh(x W1) W2, where this rank has some of the seven hidden neurons."""
    mine = shares(7, comm.size)[comm.rank]
    leaf = Tensor(inputs, requires_grad=True)
    with Tape() as tape:
        hidden = ops.tanh(fan_out(leaf, comm=comm) @ W1[:, mine])
        y = fan_in(hidden @ W2[mine], comm=comm)
        loss = ops.sum(y * y)
    tape.backward(loss)
    return leaf.grad


serial = run_ranks(1, gradient_of_x)[0]
right = run_ranks(2, gradient_of_x)
without = run_ranks(2, lambda comm: gradient_of_x(comm, fan_out=lambda x, comm: x))
doubled = run_ranks(2, lambda comm: gradient_of_x(comm, fan_in=differentiable.all_reduce))
size = np.abs(serial).max()
off = [np.abs(g - serial).max() / size for g in (right[0], without[0], without[1], doubled[0])]
print(f"   fan_out and fan_in:     both ranks have the gradient, to {off[0]:.0e}")
print(
    f"   without fan_out:        rank 0 is off by {off[1]:.0%}, rank 1 by {off[2]:.0%} of the largest element"
)
print(f"   all-reduce for fan_in:  off by {off[3]:.0%}: the one loss was counted twice")
assert all(np.abs(g - serial).max() <= 1e-12 * size for g in right)
assert min(off[1:3]) > 0.1 and np.allclose(sum(without), serial, rtol=1e-12)
assert np.allclose(doubled[0], 2 * serial, rtol=1e-12)

# %%
drawings.parts_of_a_gradient(serial[0], [g[0] for g in without]).savefig(FIGURES / "fan_out.png")

# %% [markdown]
# What is missing on each rank is exactly the other's share. Below these layers every rank would go back
# from another gradient, and weights that should be equal would drift apart; no message complains.
#
# ## 3. Who holds what
# `ModelParallel` takes a plan, kinds by layer. To see who holds what, let each rank write its number into
# all the weights it has, and put the weights together.

# %%
print("\n3. Who holds what")
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
    return sum(p.size for p in model.parameters()), backend.full_parameters(model)


found = run_ranks(3, owners)
for rank, (held, _) in enumerate(found):
    print(f"   rank {rank} holds {held} of {6 * 8 + 8 + 8 * 5 + 5} parameters")
everywhere = {name for name in found[0][1] if (found[0][1][name] != found[1][1][name]).any()}
assert everywhere == {"3.bias"}  # each rank has its own copy, so what they wrote differs
owned = {name: None if name in everywhere else value for name, value in found[0][1].items()}
drawings.who_holds_what(owned, ranks=3).savefig(FIGURES / "who_holds_what.png")

# %% [markdown]
# The same plan on real digits, and the proof: every gradient is that of one machine.

# %%
digits = mnist.load("mnist5k")
batch = Batch(digits.train.x[:64].astype(np.float64), digits.train.y[:64])


def error(strategy, build, ranks=3, batch=batch):
    """Of all gradients on all ranks, relative to the largest element of each parameter's serial one."""

    def gradients(backend):
        model = backend.place(build())
        loss = backend.step(model, batch, ops.cross_entropy)
        return {"loss": np.array(loss)} | backend.full_gradients(model)

    wanted = gradients(Serial())
    return max(
        np.abs(found[name] - g).max() / np.abs(g).max()
        for found in run_ranks(ranks, lambda comm: gradients(strategy(comm)))
        for name, g in wanted.items()
    )


for name, plan in (("column, then row", PAIR), ("each layer gathered", NAIVE)):
    off = error(lambda comm, plan=plan: ModelParallel(comm, plan), lambda: perceptron(784, 100, 10))
    print(f"   784-100-10 on three ranks, {name}: gradients are serial to {off:.0e}")
    assert off <= 1e-12

# %% [markdown]
# ## 4. What the pair saves
# The naive way gathers the outputs behind every layer, and adds up gradients in front of every layer.
# Count what a rank sends (p ranks, b samples, widths d - h - d, all-reduces around a ring):
#
# - naive: forward two all-gathers, (h + d) b (p - 1) / p numbers; backward two all-reduces, twice as many;
# - pair: one all-reduce each way, 2 d b (p - 1) / p. The hidden layer's width is not in it.

# %%
print("\n4. What the pair saves")


def sent(plan, width, hidden, ranks=3, samples=6):
    """Numbers that a rank sends forward, and backward, where something before the layers is trained too."""

    def work(comm):
        traced = Traced(comm)
        model = ModelParallel(WithAllreduce(traced, ring_allreduce), plan).place(
            perceptron(width, hidden, width)
        )
        counts = [traced.record.ledger.sent().bytes // 8]
        with Tape() as tape:
            y = model(Tensor(np.ones((samples, width)), requires_grad=True))
        counts.append(traced.record.ledger.sent().bytes // 8)
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent().bytes // 8)
        return np.diff(counts)

    return run_ranks(ranks, work)[0]


d, b, p = 12, 6, 3
naive, pair = ([sent(plan, d, times * d) for times in (1, 2, 4)] for plan in (NAIVE, PAIR))
for times, one, two in zip((1, 2, 4), naive, pair, strict=True):
    print(
        f"   hidden layer {times} x as wide: naive {one[0]:3} forward, {one[1]:3} backward; "
        f"pair {two[0]:2} and {two[1]:2}: {two.sum() / one.sum():.0%}"
    )
    assert one.tolist() == [(times + 1) * d * b * (p - 1) // p, 2 * (times + 1) * d * b * (p - 1) // p]
    assert two.tolist() == [2 * d * b * (p - 1) // p] * 2
drawings.naive_and_pair((1, 2, 4), np.array(naive), np.array(pair)).savefig(FIGURES / "bytes.png")

# %% [markdown]
# At equal widths the pair saves nothing forward, and half of what goes backward. Weights send nothing in
# either: whoever holds a weight finds its whole gradient.
#
# ## 5. The bias of the row layer is added once
# Partial results are added up. Whatever each rank adds to its own is in the sum p times.

# %%
print("\n5. The bias of the row layer is added once")


class BiasOnEveryRank(RowLinear):
    """Wrong: the bias is in every partial result."""

    def sharded_forward(self, a):
        y = ops.linear(a.redistribute(self.shard).local, self.weight, self.bias)
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm))


class Wrong(ModelParallel):
    splits = {nn.Linear: {**SPLITS[nn.Linear], "row": BiasOnEveryRank}}


def errors_by_step(strategy, steps=6, lr=0.5):
    """Of the gradients before each update, by plain gradient descent from biases that are zero."""

    def descend(backend):
        net = perceptron(784, 100, 10)
        for layer in (net[1], net[3]):
            layer.bias.data[...] = 0
        model, path = backend.place(net), []
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.grad = None
            backend.step(model, batch, ops.cross_entropy)
            path.append(np.concatenate([g.ravel() for g in backend.full_gradients(model).values()]))
            for parameter in model.parameters():
                parameter.data -= lr * parameter.grad
        return np.array(path)

    wanted, found = descend(Serial()), run_ranks(3, lambda comm: descend(strategy(comm)))[-1]
    return np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)


once, thrice = (errors_by_step(lambda comm, s=s: s(comm, PAIR)) for s in (ModelParallel, Wrong))
print("   step          " + "".join(f"{step:9}" for step in range(1, 7)))
print("   added once    " + "".join(f"{e:9.0e}" for e in once))
print("   on every rank " + "".join(f"{e:9.0e}" for e in thrice))
assert once.max() <= 1e-12 and thrice[0] <= 1e-12 and thrice[1:].min() > 1e-3
drawings.bias_once(once, thrice).savefig(FIGURES / "row_bias.png")

# %% [markdown]
# A bias that starts at zero hides the mistake in the first step, so a test that looks at one gradient of a
# fresh network passes. Take random biases, or two steps.
#
# ## 6. Many classes: three numbers instead of all logits
# The last layer by columns: each rank has the logits of some classes. Cross-entropy needs of each sample
# the largest logit, the sum of the exponentials, and the logit of the right class. Each is a sum (or a
# largest) over the ranks: three numbers per sample and rank, however many classes there are.

# %%
print("\n6. Many classes")
CLASSES, RANKS, SAMPLES = (12, 100, 1000, 10_000), 4, 8


def numbers_sent(kind, classes):
    """Per sample and other rank, in one step of one layer; and the gradient's error."""
    rng = np.random.default_rng(classes)
    some = Batch(rng.normal(size=(SAMPLES, 16)), rng.integers(0, classes, SAMPLES))
    count = [0] * RANKS

    class Counted(ModelParallel):
        def step(self, *given):
            before = self.comm.record.ledger.sent().bytes
            loss = super().step(*given)
            count[self.rank] = self.comm.record.ledger.sent().bytes - before
            return loss

    plan = {"1": kind}
    off = error(lambda comm: Counted(Traced(comm), plan), lambda: perceptron(16, classes), RANKS, some)
    return max(count) / 8 / SAMPLES / (RANKS - 1), off


gathered, three = ([numbers_sent(kind, n) for n in CLASSES] for kind in ("gathered", "classes"))
for n, (all_logits, off), (numbers, off_3) in zip(CLASSES, gathered, three, strict=True):
    print(
        f"   {n:6,} classes: {all_logits:5.0f} logits per sample to each other rank, or {numbers:.0f} numbers"
    )
    assert numbers == 3 and all_logits == n / RANKS and max(off, off_3) <= 1e-12
figure = drawings.many_classes(CLASSES, [n for n, _ in gathered], [n for n, _ in three])
figure.savefig(FIGURES / "classes.png")

# %% [markdown]
# ## 7. Layers on consecutive ranks: memory, not time
# Why cut matrices at all? Give each rank some whole layers. Then a batch of b samples passes a boundary as
# b d numbers forward and b d backward, which is little. But a layer needs what the layer before it gives:
# on a virtual cluster, where a layer takes 1 ms forward and 2 ms backward, we see one rank work at a time.

# %%
print("\n7. Layers on consecutive ranks")
LAYERS, WIDTH, WORK = 8, 64, 1e-3


@op
def paid(x, *, pay):
    """``x`` itself; on the way back ``pay()`` is called before the layer below is reached."""

    def pullback(g):
        pay()
        return g

    return x, (pullback,)


class Working(nn.Module):
    """A layer whose forward takes ``WORK`` seconds of the rank's virtual clock, its backward twice that."""

    def __init__(self, layer, comm):
        self.layer, self.comm = layer, comm

    def charge(self, name, seconds):
        with self.comm.computing(name):
            self.comm.compute(seconds)

    def forward(self, x):
        self.charge("forward", WORK)
        return paid(self.layer(x), pay=lambda: self.charge("backward", 2 * WORK))


task = Batch(*np.random.default_rng(1).normal(size=(2, 16, WIDTH)))


def one_step(comm):
    traced, rng = Traced(comm), np.random.default_rng(0)
    layers = [Working(nn.Linear(WIDTH, WIDTH, rng=rng), traced) for _ in range(LAYERS)]
    backend = LayerWise(traced) if comm.size > 1 else Serial()
    model = backend.place(nn.Sequential(*layers).to(dtype=np.float64))
    held = sum(p.size for p in model.parameters())
    barrier(comm)
    start = comm.time()
    before = traced.record.ledger.sent().bytes
    backend.step(model, task, ops.mse)
    stop, nbytes = comm.time(), traced.record.ledger.sent().bytes - before
    return gather_trace(comm, traced), start, stop, held, nbytes, backend.full_gradients(model)


runs = {ranks: VirtualCluster(ranks, Link(20e-6, 1.25e9)).run(one_step) for ranks in (1, 4)}
seconds = {ranks: max(r[2] for r in run) - run[0][1] for ranks, run in runs.items()}
trace, start, *_ = runs[4][0]
trace = Trace(tuple(span for span in trace.spans if span.start >= start), trace.ledgers)  # the step alone
print("   " + gantt(trace, 76, start, start + seconds[4]).replace("\n", "\n   "))
print(f"   one rank {1e3 * seconds[1]:.2f} ms, four ranks {1e3 * seconds[4]:.2f} ms, each with a quarter of")
print(f"   the weights and busy a quarter of the time; rank 1 sends {runs[4][1][4]:,} bytes in a step")
for *_, held, nbytes, gradients in runs[4]:
    assert held == LAYERS * (WIDTH * WIDTH + WIDTH) // 4 and nbytes < 2.1 * 16 * WIDTH * 8
    for name, g in runs[1][0][5].items():
        assert np.abs(gradients[name] - g).max() <= 1e-12 * np.abs(g).max()
busy = [s for s in trace.spans if s.what in ("forward", "backward")]
ends = sorted((s.start, s.stop) for s in busy)
assert all(stop <= start + 1e-12 for (_, stop), (start, _) in zip(ends, ends[1:], strict=False))
assert seconds[1] <= seconds[4] < 1.05 * seconds[1]
draw(
    trace,
    FIGURES / "layers.png",
    title="Layers on consecutive ranks: one works, three wait",
    start=start,
    stop=start + seconds[4],
)

# %% [markdown]
# Red is waiting. (Rank 2's at the end is for the loss, which reaches it by way of rank 1.)
#
# Cut matrices, and all ranks work at once but talk in every layer; cut between layers, and they hardly
# talk but wait. To fill the waiting with other samples is the idea of pipelines.

# %%
print(f"\nFigures: {FIGURES}/")
