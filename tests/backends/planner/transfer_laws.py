"""Laws of backends/planner/transfers.py: a transfer has the bytes of messages that are sent one by one.

Nothing here is shared with the planner but the cut of n things into p parts.
"""

from __future__ import annotations

import numpy as np

from backends.comm import run_ranks
from backends.comm.collectives import allgather, reduce_scatter, ring_allreduce
from backends.comm.communicator import Communicator
from backends.comm.trace import Traced
from backends.planner.transfers import (
    AllGather,
    AllReduce,
    ExpertAllToAll,
    HeadsAllToAll,
    KeyRing,
    ReduceScatter,
    Transfer,
)


def counted(ranks: int, collective) -> list[int]:
    """The bytes that each rank sends in a collective."""

    def work(comm: Communicator) -> int:
        traced = Traced(comm)
        collective(traced)
        return traced.record.ledger.sent().bytes

    return run_ranks(ranks, work)


def equal(transfer: Transfer, sent: list[int], itemsize: int = 4) -> None:
    """Assert the bytes of every rank."""
    predicted = [transfer.nbytes(rank, itemsize) for rank in range(len(sent))]
    assert predicted == sent, f"{transfer}: {predicted}, counted {sent}"


def sums(numbers: int, ranks: int) -> None:
    x = np.zeros(numbers, np.float32)
    equal(AllReduce(numbers, ranks), counted(ranks, lambda comm: ring_allreduce(comm, x)))


def gathers(sizes: tuple[int, ...]) -> None:
    parts = [np.zeros(n, np.float32) for n in sizes]
    equal(AllGather(sizes), counted(len(sizes), lambda comm: allgather(comm, parts[comm.rank])))


def scatters(sizes: tuple[int, ...]) -> None:
    parts = [np.zeros(n, np.float32) for n in sizes]
    equal(ReduceScatter(sizes), counted(len(sizes), lambda comm: reduce_scatter(comm, parts)))


def goes_round(rows: int, tokens: tuple[int, ...], width: int) -> None:
    """Assert the numbers of a ring: blocks move in rounds, and in backward their gradients move behind them.

    Every rank begins with its own keys and values. Gradients of a block are made where it is: those of its
    own rank stay there, so that a block carries none on its first hop, and the last hop takes them home.
    """
    p = len(tokens)
    for backward in (False, True):
        sent = [0] * p
        blocks = list(range(p))  # the block that each rank has
        carries = [False] * p  # whether the block that a rank has brings gradients of other ranks
        for round in range(p):
            if round:
                for rank in range(p):
                    block = blocks[rank]
                    sent[rank] += 2 * rows * width * tokens[block]
                    if backward and carries[rank]:
                        sent[rank] += 2 * rows * width * tokens[block]
                blocks = [blocks[rank - 1] for rank in range(p)]
                carries = [True] * p
        if backward and p > 1:
            for rank in range(p):
                assert (rank + 1) % p == blocks[rank], "the last hop leads home"
                sent[rank] += 2 * rows * width * tokens[blocks[rank]]
        equal(KeyRing(rows, tokens, width, backward), [4 * n for n in sent])


def exchanges_heads(rows: int, tokens: tuple[int, ...], heads: tuple[int, ...], size: int) -> None:
    """Assert the numbers of an all-to-all: from the rank of a token to that of a head, and back."""
    p = len(tokens)
    token_owner = [rank for rank, n in enumerate(tokens) for _ in range(n)]
    head_owner = [rank for rank, n in enumerate(heads) for _ in range(n)]
    there, back = [0] * p, [0] * p
    for by_token in token_owner:
        for by_head in head_owner:
            if by_token != by_head:
                there[by_token] += rows * size
                back[by_head] += rows * size
    for backward, (arrays_there, arrays_back) in ((False, (3, 1)), (True, (1, 3))):
        sent = [4 * (arrays_there * a + arrays_back * b) for a, b in zip(there, back, strict=True)]
        equal(HeadsAllToAll(rows, tokens, heads, size, backward), sent)


def exchanges_rows(width: int, rows_of: tuple[tuple[int, ...], ...], own: tuple[int, ...]) -> None:
    """Assert the bytes of experts: each row goes to its expert and comes back, and so in backward."""
    p = len(own)
    owner = [rank for rank, n in enumerate(own) for _ in range(n)]
    sent = [0] * p
    for rank, rows in enumerate(rows_of):
        for expert, n in enumerate(rows):
            if owner[expert] != rank:
                sent[rank] += 8  # how many rows will come
                for _ in range(n):
                    sent[rank] += 4 * width  # dispatched
                    sent[owner[expert]] += 4 * width  # combined
                    sent[rank] += 4 * width  # gradient of the combined
                    sent[owner[expert]] += 4 * width  # gradient of the dispatched
    equal(ExpertAllToAll(width, rows_of, own), sent)


def are_the_closed_forms(p: int, n: int, size: int) -> None:
    """Assert 6 (p-1)/p B S h around a ring, and 8 (p-1)/p^2 B S h by heads, where p divides all."""
    rows, tokens, heads = 3, (n,) * p, (2,) * p
    whole = rows * n * p * 2 * p * size
    ring = sum(KeyRing(rows, tokens, 2 * p * size, backward).sent(0) for backward in (False, True))
    ulysses = sum(HeadsAllToAll(rows, tokens, heads, size, backward).sent(0) for backward in (False, True))
    assert ring * p == 6 * (p - 1) * whole, f"a ring sends {ring}"
    assert ulysses * p * p == 8 * (p - 1) * whole, f"heads send {ulysses}"
