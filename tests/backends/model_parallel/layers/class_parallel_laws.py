"""Laws of backends/model_parallel/layers/class_parallel.py: cross-entropy over shared classes is the dense
one.
"""

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.model_parallel.layers.class_parallel import sharded_cross_entropy
from backends.model_parallel.layers.sharding import Shard
from minigrad import ops
from minigrad.tape import Tape
from minigrad.tensor import Tensor


def loss_and_gradient(loss, logits, labels, seed, **settings):
    x = Tensor(logits, requires_grad=True)
    with Tape() as tape:
        result = loss(x, labels, **settings)
    tape.backward(result, seed)
    assert x.grad is not None
    return result.item(), x.grad


def close(actual, expected, bound):
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=bound * max(np.abs(expected).max(initial=0), 1e-3)
    )


def agrees(logits, labels, bounds, loss=sharded_cross_entropy, bound=1e-12):
    """Assert that loss and gradient, on every rank, are those of ``ops.cross_entropy`` on one."""
    seed = 0.7
    expected, gradient = loss_and_gradient(ops.cross_entropy, logits, labels, seed)

    def work(comm):
        shard = Shard(1, comm, bounds)
        return loss_and_gradient(loss, logits[:, shard.local_slice], labels, seed, shard=shard)

    for rank, (actual, part) in enumerate(run_ranks(len(bounds) - 1, work)):
        assert actual == pytest.approx(expected, rel=bound, abs=bound), f"rank {rank}"
        assert part.dtype == logits.dtype
        close(part, gradient[:, bounds[rank] : bounds[rank + 1]], bound)
