"""Laws of backends/expert_parallel/exchange.py, expert_parallel.py, own_experts.py and naive.py: ranks
that share experts train as one machine, lose no token, and send what closed forms say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from backends.checkpoint.checkpoints import Arrays
from backends.checkpoint.training_state import gather_state, load_model_state, load_state
from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.comm.trace import Traced
from backends.laws import trains_like_serial
from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.data import Batch, shares
from minigrad.models import transformer
from minigrad.serial import Serial
from minigrad.strategy import Strategy

LOSS = nn.CrossEntropyLoss(ignore_index=-1, class_axis=-1)
SYMBOLS, LENGTH, WIDTH = 7, 6, 4


class Net(NamedTuple):
    """A transformer with a mixture in each block."""

    experts: int = 3
    choices: int = 2
    capacity: float = 0.75
    penalty: float = 0.3
    blocks: int = 2
    capacity_per: str = "sample"

    def build(self, rng: np.random.Generator) -> Any:
        sizes = {"symbols": SYMBOLS, "length": LENGTH, "width": WIDTH, "heads": 2}
        return transformer(rng, **sizes, **self._asdict())


class TiedNet(NamedTuple):
    """A net whose mixtures have the same experts, but each a gate of its own."""

    net: Net = Net()

    def build(self, rng: np.random.Generator) -> Any:
        model = self.net.build(rng)
        first, second = (vars(block)["feed_forward"] for block in model.layers[1:3])
        second.weight1, second.bias1 = first.weight1, first.bias1
        second.weight2, second.bias2 = first.weight2, first.bias2
        return model


class LeakyNet(nn.Module):
    """A mixture one of whose stacks another module uses, too."""

    def __init__(self, rng: np.random.Generator):
        self.experts = nn.Experts(WIDTH, 3, rng=rng)
        self.weight = self.experts.bias2

    def forward(self, x: Any) -> Tensor:
        return self.experts(x) + ops.sum(self.weight, axis=0)


def batches_of(sizes: Sequence[int], seed: int = 0) -> list[Batch]:
    """Rows of symbols with as many next ones, of which some are not to be predicted."""
    rng = np.random.default_rng(seed)
    shapes = [(n, LENGTH) for n in sizes]
    return [Batch(rng.integers(0, SYMBOLS, shape), rng.integers(-1, SYMBOLS, shape)) for shape in shapes]


def clipped(parameters: Any) -> optim.Optimizer:
    """Its updates depend on the norm of all gradients together."""
    return optim.SGD(parameters, 0.5, momentum=0.9).clipped(0.05)


def adam(parameters: Any) -> optim.Optimizer:
    """It has arrays and numbers for each parameter."""
    return optim.Adam(parameters, 0.01)


def trains(
    strategy: Callable[[Communicator], Strategy],
    ranks: int,
    net: Net | TiedNet,
    sizes: Sequence[int] = (7, 5, 1),
    **how: Any,
) -> None:
    """``strategy`` trains ``net`` on batches of these sizes as one machine does, with clipped gradients."""
    how = {"optimizer": clipped, **how}
    run_ranks(
        ranks, lambda comm: trains_like_serial(strategy, comm, net.build, LOSS, batches_of(sizes), **how)
    )


def conserves_tokens(exchange: Any, counts: Sequence[Sequence[int]]) -> None:
    """Rank r has ``counts[r]`` rows for each expert; e multiplies them by e + 1, and so does backward."""
    ranks, experts = len(counts), len(counts[0])

    def work(comm: Communicator) -> None:
        own = shares(experts, comm.size)[comm.rank]

        def transform(x: Tensor, numbers: list[int]) -> Tensor:
            assert numbers == [sum(row[e] for row in counts) for e in range(own.start, own.stop)]
            return x * np.repeat(np.arange(own.start, own.stop) + 1.0, numbers)[:, None]

        mine = list(counts[comm.rank])
        factors = np.repeat(np.arange(experts) + 1.0, mine)[:, None]
        rows = np.random.default_rng(comm.rank).normal(size=(2, sum(mine), 3))
        x = Tensor(rows[0], requires_grad=True)
        with Tape() as tape:
            y = exchange(x, mine, transform, comm=comm)
        tape.backward(y, rows[1])
        assert x.grad is not None, f"rank {comm.rank} has no gradient"
        np.testing.assert_array_equal(y.data, rows[0] * factors, err_msg=f"rank {comm.rank}")
        np.testing.assert_array_equal(x.grad, rows[1] * factors, err_msg=f"rank {comm.rank}")

    run_ranks(ranks, work)


def sends(exchange: Any, counts: Sequence[Sequence[int]], width: int = 3) -> None:
    """Each rank sends 5 messages to each other one: counts, and what the bytes of its rows are, both ways."""
    ranks, experts = len(counts), len(counts[0])

    def work(comm: Communicator) -> None:
        own = shares(experts, comm.size)[comm.rank]
        mine = counts[comm.rank]
        leave = sum(mine) - sum(mine[own])
        arrive = sum(sum(row[own]) for rank, row in enumerate(counts) if rank != comm.rank)
        traced = Traced(comm)
        x = Tensor(np.ones((sum(mine), width)), requires_grad=True)
        with Tape() as tape:
            y = exchange(x, list(mine), lambda x, numbers: x * 2.0, comm=traced)
        tape.backward(y, np.ones(y.shape))
        expected = 5 * (ranks - 1), 2 * width * 8 * (leave + arrive) + 8 * (experts - (own.stop - own.start))
        sent = tuple(traced.record.ledger.sent())
        assert sent == (expected if ranks > 1 else (0, 0)), f"rank {comm.rank} sent {sent}, not {expected}"

    run_ranks(ranks, work)


def layer_sends(make: Callable[[Communicator], Strategy], ranks: int, rows: int, net: Net) -> None:
    """A step of ``make(comm)`` sends 5 (p - 1) messages for each mixture and micro-batch, beside a sum.

    The bytes of rows are those of the places that the serial mixture gives to the rank's tokens.
    """
    batch = batches_of([rows])[0]

    def step(comm: Communicator, net: Net) -> tuple[int, int]:
        traced = Traced(comm)
        backend = make(traced)
        model = backend.place(net.build(np.random.default_rng(0)).to(dtype=np.float64))
        before = traced.record.ledger.sent()
        backend.step(model, batch, LOSS)
        after = traced.record.ledger.sent()
        return after[0] - before[0], after[1] - before[1]

    def work(comm: Communicator) -> None:
        messages, _ = step(comm, net)
        without, _ = step(comm, net._replace(blocks=0))
        passes = net.blocks * make(comm).micro_batches
        assert messages - without == 5 * (ranks - 1) * passes, f"{messages} messages"

    run_ranks(ranks, work)


def resumes(
    make: Callable[[Communicator], Strategy], ranks: int, again: Callable[[Communicator], Strategy], on: int
) -> None:
    """A checkpoint that ``ranks`` wrote after two steps is a serial run's, from which ``on`` ranks go on."""
    net, batches = Net(), batches_of([5, 4, 3])

    def steps(backend: Strategy, model: nn.Module, optimizer: optim.Optimizer, some: list[Batch]) -> None:
        for batch in some:
            optimizer.zero_grad()
            backend.step(model, batch, LOSS)
            backend.update(model, optimizer)

    def write(comm: Communicator) -> tuple[Arrays, dict[str, Any]]:
        backend = make(comm)
        model = backend.place(net.build(np.random.default_rng(0)).to(dtype=np.float64))
        optimizer = adam(model.parameters())
        steps(backend, model, optimizer, batches[:2])
        return gather_state(comm, backend, model, optimizer)[:2]

    def go_on(comm: Communicator) -> dict[str, np.ndarray]:
        serial, backend = net.build(np.random.default_rng(1)).to(dtype=np.float64), again(comm)
        load_model_state(serial, arrays)
        model = backend.place(serial)
        optimizer = adam(model.parameters())
        load_state(comm, backend, model, optimizer, arrays, facts)
        steps(backend, model, optimizer, batches[2:])
        return backend.state.full_parameters(model)

    model, serial = net.build(np.random.default_rng(0)).to(dtype=np.float64), Serial()
    optimizer = adam(model.parameters())
    steps(serial, model, optimizer, batches[:2])
    expected = gather_state(run_ranks(1, lambda comm: comm)[0], serial, model, optimizer)[:2]
    results = run_ranks(ranks, write)
    arrays, facts = results[0]
    facts |= {"of each rank": [of_rank["own"] for _, of_rank in results]}
    assert arrays.keys() == expected[0].keys() and facts["optimizer"] == expected[1]["optimizer"]
    for name, array in expected[0].items():
        np.testing.assert_allclose(arrays[name], array, rtol=1e-9, atol=1e-12, err_msg=name)
    steps(serial, model, optimizer, batches[2:])
    for rank, parameters in enumerate(run_ranks(on, go_on)):
        for name, parameter in model.named_parameters().items():
            said = f"{name} on rank {rank}"
            np.testing.assert_allclose(parameters[name], parameter.data, rtol=1e-9, atol=1e-12, err_msg=said)
