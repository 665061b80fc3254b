"""The answers to the questions on lesson 11, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.trace import Traced
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.linear import RowLinear
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.plan import SPLITS
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch, shares
from minigrad.serial import Serial

RANKS = 3


def gradients(comm, front):
    """The gradients of sum(y²) for x, and for this rank's parts of W1 and W2, where y = tanh(x W1) W2."""
    rng = np.random.default_rng(2)
    x, w1, w2 = rng.normal(size=(5, 6)), rng.normal(size=(6, 7)), rng.normal(size=(7, 4))
    mine = shares(7, comm.size)[comm.rank]
    leaves = [Tensor(part, requires_grad=True) for part in (x, w1[:, mine], w2[mine])]
    with Tape() as tape:
        hidden = ops.tanh(front(leaves[0], comm) @ leaves[1])
        y = differentiable.fan_in(hidden @ leaves[2], comm=comm)
        loss = ops.sum(y * y)
    tape.backward(loss)
    return [leaf.grad for leaf in leaves]


def without_the_op(student):
    x, w1, w2 = run_ranks(1, lambda comm: gradients(comm, lambda x, comm: x))[0]
    by_rank = run_ranks(RANKS, lambda comm: gradients(comm, student.front))
    of_w1, of_w2 = np.hstack([g[1] for g in by_rank]), np.vstack([g[2] for g in by_rank])
    off = [min(abs(g[0] - x).max() for g in by_rank) / abs(x).max()]
    off += [abs(g - whole).max() / abs(whole).max() for g, whole in ((of_w1, w1), (of_w2, w2))]
    assert off[0] > 0.01, f"the gradient of x is still right, to {off[0]:.0e}; return x itself"
    assert max(off[1:]) < 1e-12, f"W1 or W2 is off by {max(off[1:]):.0e}; return x itself, and no more"
    return (
        f"on every rank the gradient of x is off by {off[0]:.0%} of its largest element or more, those of W1 "
        f"and W2 by {off[1]:.0e} and {off[2]:.0e}: a rank has all that its own weights need, but of x only "
        "the part that came through its own neurons"
    )


def numbers_sent(plan, hidden=24, width=12, samples=6):
    """What a rank sends forward and backward."""

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        layers = nn.Linear(width, hidden, rng=rng), nn.Tanh(), nn.Linear(hidden, width, rng=rng)
        backend = ModelParallel(WithAllreduce(traced, ring_allreduce), plan)
        model = backend.place(nn.Sequential(nn.Flatten(), *layers).to(dtype=np.float64))
        counts = [traced.record.ledger.sent().bytes // 8]
        with Tape() as tape:
            y = model(Tensor(np.ones((samples, width)), requires_grad=True))
        counts.append(traced.record.ledger.sent().bytes // 8)
        tape.backward(y, np.ones(y.shape))
        counts.append(traced.record.ledger.sent().bytes // 8)
        return np.diff(counts).tolist()

    return run_ranks(RANKS, work)[0]


def rows_first(student):
    plan = student.PLAN
    before, after = numbers_sent({"1": "column", "3": "row"}), numbers_sent(plan)
    swapped = {"1": "row", "3": "column"}
    assert plan == swapped, f"by {plan} a rank sends {after}, by the pair {before}; take {swapped}"
    times = sum(after) / sum(before)
    return (
        f"a rank sends {after} numbers forward and backward instead of {before}, {times:g} times as many: "
        "rows end in a sum of the 24 hidden numbers, and columns need their gradients summed"
    )


class BiasOnEveryRank(RowLinear):
    """Wrong: the bias is in every partial result."""

    def sharded_forward(self, a):
        y = ops.linear(a.redistribute(self.shard).local, self.weight, self.bias)
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm))


class Wrong(ModelParallel):
    splits = {nn.Linear: {**SPLITS[nn.Linear], "row": BiasOnEveryRank}}


def errors(start, steps=2):
    """By step, the largest error of a gradient relative to the largest gradient."""
    rng = np.random.default_rng(3)
    batch = Batch(rng.normal(size=(8, 5)), rng.integers(0, 4, 8))

    def descend(backend):
        rng, path = np.random.default_rng(0), []
        net = nn.Sequential(nn.Flatten(), nn.Linear(5, 6, rng=rng), nn.Tanh(), nn.Linear(6, 4, rng=rng))
        net = net.to(dtype=np.float64)
        net[3].bias.data[...] = start
        model = backend.place(net)
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.grad = None
            backend.step(model, batch, ops.cross_entropy)
            path.append(np.concatenate([g.ravel() for g in backend.state.full_gradients(model).values()]))
            for parameter in model.parameters():
                parameter.data -= 0.5 * parameter.grad
        return np.array(path)

    serial = descend(Serial())
    split = run_ranks(RANKS, lambda comm: descend(Wrong(comm, {"1": "column", "3": "row"})))[0]
    return abs(split - serial).max(axis=1) / abs(serial).max(axis=1)


def from_zero(student):
    start = list(student.BIASES_AT_THE_START)
    first, second = errors(start)
    zeros = [0.0] * 4
    assert start == zeros, f"from biases {start} a gradient is off by {first:.0%}; let them start at {zeros}"
    return (
        f"from 0 the gradients are right, to {first:.0e}: three times 0 is 0, and the gradient of a bias "
        f"does not depend on how often it was added. In the second step one is off by {second:.0%}"
    )


QUESTIONS = [
    Question("b", without_the_op, (("    return differentiable.fan_out(x, comm=comm)\n", "    return x\n"),)),
    Question(
        "c",
        rows_first,
        (('PLAN = {"1": "column", "3": "row"}', 'PLAN = {"1": "row", "3": "column"}'),),
    ),
    Question("c", from_zero, ((" = [0.5, -0.5, 0.25, 0.0]", " = [0.0, 0.0, 0.0, 0.0]"),)),
]
