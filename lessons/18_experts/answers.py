"""The answers to the questions on lesson 18, and the laws that show them."""

from functools import partial

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.expert_costs import MixtureSize, exchange_bytes
from minigrad_course.machines.overlap import AllToAll, Compute, in_turns
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.expert_parallel import ExpertParallel
from backends.laws import differences_from_serial
from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch, shares
from minigrad.forward_pass import ForwardPass
from minigrad.routing import route


def gate_without_choice(student):
    n = student.NUMBER_OF_EXPERTS
    experts = nn.Experts(8, n, hidden=16, capacity=n, rng=0, dtype=np.float64)
    x = np.random.default_rng(0).normal(size=(2, 6, 8))
    with Tape() as tape:
        y = experts(x)
    tape.backward(y, 2 * y.data)
    largest = abs(experts.gate.grad).max()
    assert n == 1, f"with {n} experts the largest gradient of the gate is {largest:.2f}; take 1 expert"
    first = ops.gelu(ops.linear(x, experts.weight1[0], experts.bias1[0]))
    dense = ops.linear(first, experts.weight2[0], experts.bias2[0]).data
    off = abs(dense - y.data).max()
    assert largest == 0 and off < 1e-14, f"the gradient is {largest:.1e}, the result off by {off:.1e}"
    return (
        "it is exactly 0: the softmax of one number is 1, whatever the number is, so that the mixture is an "
        "ordinary net"
    )


def last_ones(student):
    own = np.array(student.GATES_FOR_EXPERT_0, float)
    assert own.shape == (4,) and (own > 0.5).all(), f"{own} are not four gates above 0.5"
    routes = route(np.stack([own, 1 - own], axis=1)[None], choices=1, capacity=1.0)
    dropped = [t for t in range(4) if t not in routes.tokens]
    shown = f"tokens {dropped} are dropped, with gates {', '.join(f'{own[t]:g}' for t in dropped)}"
    assert list(own) == [0.6, 0.7, 0.8, 0.9], f"{shown}; take (0.6, 0.7, 0.8, 0.9)"
    assert dropped == [2, 3], shown
    return f"{shown}: places go to the first tokens of a row, whatever the gates are"


def by_a_small_margin(student):
    experts = nn.Experts(4, 4, penalty=0.01, rng=0, dtype=np.float64)
    experts.gate.data[...] = np.eye(4) * student.PRODUCT
    with ForwardPass(0, np.arange(1)) as current:
        experts(np.tile([1.0, 0.0, 0.0, 0.0], (1, 10, 1)))
    shown = f"with the product {student.PRODUCT:g} the penalty is {current.penalty():.5f}"
    assert student.PRODUCT == 0.001, f"{shown}; take 0.001"
    assert abs(current.penalty() - 0.01) < 1e-5, shown
    return (
        f"{shown}: the mean gates are all nearly 1/4, and the sum of f P is 1 times 1/4. The counts are as "
        "uneven as can be; but the gradient lowers the gate of expert 0, and here a small change is enough"
    )


def without_tokens(student):
    x = np.random.default_rng(0).normal(size=(student.SAMPLES, 8, 8))

    def work(comm):
        traced = Traced(comm)
        layer = nn.Experts(8, 4, hidden=16, capacity=4.0, penalty=0.0, rng=0, dtype=np.float64)
        backend = ExpertParallel(traced)
        placed, own = backend.place(layer), x[shares(len(x), comm.size)[comm.rank]]
        before = traced.record.ledger.sent()
        with Tape() as tape:
            y = placed(Tensor(own, requires_grad=True))  # as if it came from another layer
        tape.backward(y, 2 * y.data)
        sent = traced.record.ledger.sent()
        return len(own), sent.messages - before.messages, sent.bytes - before.bytes

    (samples, messages, nbytes), _ = run_ranks(2, work)
    shown = f"rank 0 has {samples} samples and sends {messages} messages, {nbytes} bytes"
    assert student.SAMPLES == 1, f"{shown}; take 1 sample"
    assert nbytes > 16, shown
    return (
        f"{shown}: 16 for two counts, and for each row of rank 1 that chose one of its experts a result, and "
        "the gradient of the row"
    )


def places_for_ranks(student):
    off, without = (off_from_one_machine(student.CAPACITY, penalty) for penalty in (0.01, 0.0))
    shown = f"with the factor {student.CAPACITY:g} it is {off:.0e} off, without a penalty {without:.0e}"
    assert student.CAPACITY == 6, f"{shown}; take 6.0"
    assert without < 1e-12 < 1e-3 < off, shown
    return (
        f"{shown}: no token is dropped, so only the penalty depends on who shares places. A product of "
        "a mean share and a mean gate is another number for all tokens of a rank than for each sample"
    )


def off_from_one_machine(capacity, penalty):
    """The largest relative difference of a step of four ranks whose samples share their places."""
    batch = Batch(np.random.default_rng(0).normal(size=(9, 8, 8)), np.zeros((9, 8, 8)))
    strategy = partial(ExpertParallel, capacity_per="rank")
    settings = {"hidden": 16, "choices": 2, "capacity": capacity, "penalty": penalty}

    def build(rng):
        return nn.Experts(8, 6, rng=rng, **settings)

    def work(comm):
        return differences_from_serial(strategy, comm, build, ops.mse, [batch])

    return max(difference.relative for difference in run_ranks(4, work)[0])


def routes_of(layer, x):
    return route(layer.gates(Tensor(x)).data, choices=layer.choices, capacity=layer.capacity)


def second_choice(student):
    k, x = student.CHOICES, np.random.default_rng(0).normal(size=(8, 32, 8))
    shown, results = [], []
    for choices in (1, k):
        layer = nn.Experts(8, 8, hidden=32, choices=choices, capacity=8.0, rng=0, dtype=np.float64)
        counts = np.array([routes_of(layer, x[own]).counts for own in shares(8, 4)])
        nbytes = sum(exchange_bytes(counts, [2] * 4, rank, 8) for rank in range(4)) / 4
        parameters = sum(array.size for array in layer.parameters())
        results.append((MixtureSize(8, 32, 8, choices).flops, nbytes, parameters))
    shown = ", ".join(
        f"{name} {after / before:.2f} times"
        for name, before, after in zip(("operations", "bytes", "parameters"), *results, strict=True)
    )
    assert k == 2, f"with {k} choices: {shown}; take 2"
    before, after = results
    assert after[0] > 1.8 * before[0] and after[1] > 1.8 * before[1] and after[2] == before[2], shown
    return f"{shown}: a token is computed by two experts, and travels to both; the experts are the same"


def slow_network(student):
    seconds = student.SECONDS_OF_AN_ALL_TO_ALL
    forward, backward = [Compute(2), AllToAll(seconds)] * 6, [AllToAll(seconds), Compute(4)] * 6
    cluster = VirtualCluster(3, Link(0.0, 2.0))
    cluster.run(lambda comm: in_turns(comm, [forward, backward]))
    shown = f"with all-to-alls of {seconds} s both are done after {cluster.seconds:g} s"
    assert seconds == 8, f"{shown}; take 8"
    assert cluster.seconds == 96, shown
    return (
        f"{shown}: the network is never idle, and all 36 s of computing are hidden behind its 12 times 8 s. "
        "A faster rank would gain nothing"
    )


QUESTIONS = [
    Question("b", gate_without_choice, (("NUMBER_OF_EXPERTS = 3", "NUMBER_OF_EXPERTS = 1"),)),
    Question("b", last_ones, (("= (0.9, 0.8, 0.7, 0.6)", "= (0.6, 0.7, 0.8, 0.9)"),)),
    Question("b", by_a_small_margin, (("PRODUCT = 1000.0", "PRODUCT = 0.001"),)),
    Question("c", without_tokens, (("SAMPLES = 2", "SAMPLES = 1"),)),
    Question("c", places_for_ranks, (("CAPACITY = 1.0", "CAPACITY = 6.0"),)),
    Question("b", second_choice, (("CHOICES = 1", "CHOICES = 2"),)),
    Question("b", slow_network, (("ALL_TO_ALL = 2", "ALL_TO_ALL = 8"),)),
]
