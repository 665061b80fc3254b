"""The answers to the questions on lesson 11, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import differentiable, run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.communicator import WithAllreduce
from backends.comm.gradient_types import SPLIT, SPLIT_INPUTS
from backends.comm.trace import Traced
from backends.comm.typed_tape import GradientTypeError, TypedTape
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.linear import RowLinear
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.plan import SPLITS
from minigrad import Parameter, Tape, Tensor, nn, ops
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
        f"on every rank the gradient of x is off by {off[0]:.0%} of its largest element or more, the "
        f"gradients of W1 and W2 by {off[1]:.0e} and {off[2]:.0e}: a rank has all that the gradients of its "
        "own weights need, but its gradient of x is only the part that came through its own neurons"
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


def typed_step(comm, block, *, rows=False, bias=None):
    """What the types say in forward; the gradients of sum(y^2) for x, W1, W2 and, if there is one, the bias.

    With ``rows`` a rank has only some rows of x.
    """
    rng = np.random.default_rng(2)
    x, w1, w2 = rng.normal(size=(6, 4)), rng.normal(size=(4, 7)), rng.normal(size=(7, 4))
    own = shares(7, comm.size)[comm.rank]
    leaf = Tensor(x[shares(6, comm.size)[comm.rank]] if rows else x, requires_grad=True)
    leaves = {"x": leaf, "W1": Parameter(w1[:, own]), "W2": Parameter(w2[own])}
    leaves |= {} if bias is None else {"b": Parameter(bias)}
    types = {leaves["W1"]: {comm: SPLIT}, leaves["W2"]: {comm: SPLIT_INPUTS}}
    said = ""
    try:
        with TypedTape(types | ({leaf: {comm: SPLIT}} if rows else {}), leaves) as tape:
            y = block(*leaves.values(), comm)
            loss = ops.sum(y * y)
        tape.check_loss(loss)
    except GradientTypeError as error:
        said = str(error)
    with Tape() as tape:
        y = block(*leaves.values(), comm)
        loss = ops.sum(y * y)
    tape.backward(loss)
    return said, [leaf.grad for leaf in leaves.values()]


def off_from_serial(by_rank, serial, *, rows=False):
    """Errors of the gradients of x, W1, W2 and the bias, relative to the largest element of each."""
    join = [np.vstack if rows else np.mean, np.hstack, np.vstack, np.mean]
    errors = []
    for i, whole in enumerate(serial):
        parts = [gradients[i] for gradients in by_rank]
        g = join[i](parts, axis=0) if join[i] is np.mean else join[i](parts)
        errors.append(abs(g - whole).max() / abs(whole).max())
    return errors


def mended(block, right, **settings):
    """Raise AssertionError, with what the types say, unless ``block`` is typed and trains as ``right``."""
    [(_, serial)] = run_ranks(1, lambda comm: typed_step(comm, right, **settings))
    results = run_ranks(RANKS, lambda comm: typed_step(comm, block, **settings))
    said = results[0][0]
    assert not said, f"the types say: {said}"
    off = max(off_from_serial([g for _, g in results], serial, rows=settings.get("rows", False)))
    assert off < 1e-12, f"the types find nothing, but this is another block: a gradient is off by {off:.0%}"


def bias_by_types(student):
    def wrong(x, w1, w2, b, comm):
        hidden = ops.tanh(differentiable.fan_out(x, comm=comm) @ w1)
        return differentiable.fan_in(hidden @ w2 + b, comm=comm) + x

    def right(x, w1, w2, b, comm):
        hidden = ops.tanh(differentiable.fan_out(x, comm=comm) @ w1)
        return differentiable.fan_in(hidden @ w2, comm=comm) + b + x

    mended(student.block, right, bias=np.full(4, 0.5))
    [(_, serial)] = run_ranks(1, lambda comm: typed_step(comm, right, bias=np.zeros(4)))
    results = run_ranks(RANKS, lambda comm: typed_step(comm, wrong, bias=np.zeros(4)))
    off = max(off_from_serial([g for _, g in results], serial))
    return f"from b = 0 no gradient is off by more than {off:.0e}; the types said: {results[0][0]}"


def other_use(student):
    def wrong(x, w1, w2, comm):
        copy = differentiable.fan_out(x, comm=comm)
        return differentiable.fan_in(ops.tanh(copy @ w1) @ w2, comm=comm) + copy

    def right(x, w1, w2, comm):
        front = differentiable.fan_out(x, comm=comm)
        return differentiable.fan_in(ops.tanh(front @ w1) @ w2, comm=comm) + x

    mended(student.residual, right)
    [(_, (x, w1, w2))] = run_ranks(1, lambda comm: typed_step(comm, right))
    results = run_ranks(RANKS, lambda comm: typed_step(comm, wrong))
    rng = np.random.default_rng(2)
    inputs, one, two = rng.normal(size=(6, 4)), rng.normal(size=(4, 7)), rng.normal(size=(7, 4))
    direct = 2 * (np.tanh(inputs @ one) @ two + inputs)  # the gradient through the residual connection
    off = abs(results[0][1][0] - (x + (RANKS - 1) * direct)).max() / abs(x).max()
    return (
        f"the gradient of x is the serial gradient plus {RANKS - 1} times the residual part, to {off:.0e}: "
        f"every rank has the whole residual part, and fan_out sums it over the ranks; the types said: "
        f"{results[0][0]}"
    )


def two_gathers(student):
    def wrong(x, w1, w2, comm):
        rows = differentiable.join_in(x, comm=comm, axis=0)
        return differentiable.fan_in(ops.tanh(rows @ w1) @ w2, comm=comm)

    def right(x, w1, w2, comm):
        whole = differentiable.all_gather(x, comm=comm, axis=0)
        return differentiable.fan_in(ops.tanh(whole @ w1) @ w2, comm=comm)

    mended(student.tokens, right, rows=True)
    [(_, serial)] = run_ranks(1, lambda comm: typed_step(comm, right, rows=True))
    results = run_ranks(RANKS, lambda comm: typed_step(comm, wrong, rows=True))
    off = off_from_serial([g for _, g in results], serial, rows=True)
    return (
        f"with join_in the gradient of x is off by {off[0]:.0%} of its largest element, the gradients of W1 "
        f"and W2 by {max(off[1:]):.0e}: each rank took its rows from its own gradient alone; the types said: "
        f"{results[0][0]}"
    )


QUESTIONS = [
    Question("b", without_the_op, (("    return differentiable.fan_out(x, comm=comm)\n", "    return x\n"),)),
    Question(
        "c", rows_first, (('PLAN = {"1": "column", "3": "row"}', 'PLAN = {"1": "row", "3": "column"}'),)
    ),
    Question("c", from_zero, ((" = [0.5, -0.5, 0.25, 0.0]", " = [0.0, 0.0, 0.0, 0.0]"),)),
    Question(
        "b",
        bias_by_types,
        (
            (
                "hidden @ w2 + b, comm=comm)\n    return y + x\n",
                "hidden @ w2, comm=comm)\n    return y + b + x\n",
            ),
        ),
    ),
    Question("b", other_use, (("@ w2, comm=comm) + front\n", "@ w2, comm=comm) + x\n"),)),
    Question("a", two_gathers, (("differentiable.join_in(x,", "differentiable.all_gather(x,"),)),
]
