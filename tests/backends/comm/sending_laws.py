"""Laws of backends/comm/differentiable.py: how much it sends, and that its gradient is the adjoint."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from backends.comm import Communicator
from backends.comm.collectives import allgather
from backends.comm.trace import Traced
from backends.laws import integers
from minigrad.device import Array, to_host
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.testing import on_device


def messages_are(
    collective: Callable[[Communicator], object], comm: Communicator, messages: int, nbytes: int
) -> None:
    """Assert how many messages, including empty ones, and bytes this rank sends in ``collective(comm)``."""
    traced = Traced(comm)
    collective(traced)
    sent = tuple(traced.record.ledger.sent())
    assert sent == (messages, nbytes), (
        f"rank {comm.rank} of {comm.size} sent (messages, bytes) {sent}, wanted {(messages, nbytes)}"
    )


def is_adjoint(
    op: Callable[[Tensor], Tensor],
    comm: Communicator,
    x: Array,
    *,
    seed: int = 0,
    replicated_in: bool = False,
    replicated_out: bool = False,
) -> None:
    """Assert <F x, y> = <x, F* y>, summed over the ranks, for a y of small integers and the tape's F*.

    A replicated value (the same on all ranks, for the same loss) counts once: then y is the same on all
    ranks, and F x must be too, or F* y if the input is replicated.
    """
    leaf = Tensor(on_device(x), requires_grad=True)
    with Tape() as tape:
        out = op(leaf)
    y = integers(out.shape, seed if replicated_out else seed + 1 + comm.rank, out.dtype)
    tape.backward(out, on_device(y))
    assert leaf.grad is not None, f"rank {comm.rank} got no gradient"
    x, dx, fx = to_host(x), to_host(leaf.grad), to_host(out.data)
    for name, value, replicated in (("F x", fx, replicated_out), ("F* y", dx, replicated_in)):
        same = not replicated or all(np.array_equal(value, other) for other in allgather(comm, value))
        assert same, f"{name} should be the same on all ranks, it is not on rank {comm.rank}"
    once = float(comm.rank == 0)
    forward = np.vdot(fx, y) * (once if replicated_out else 1)
    backward = np.vdot(x, dx) * (once if replicated_in else 1)
    left, right = np.sum(allgather(comm, np.array([forward, backward])), axis=0)
    assert left == right, f"<F x, y> is {left}, <x, F* y> is {right}, over {comm.size} ranks"
