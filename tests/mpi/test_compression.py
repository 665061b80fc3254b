"""Compressed gradients over real MPI: what is not sent is kept, and all ranks have the same bits."""

import pytest

COMPRESSED = """
import numpy as np

from backends.comm.collectives import allgather
from backends.data_parallel import Compressed
from backends.data_parallel.compression import compressor_names
from minigrad import nn, ops, optim
from minigrad.data import Batch

rng = np.random.default_rng(0)
batches = [Batch(rng.normal(size=(n, 30)), rng.integers(0, 3, n)) for n in (9, 2, 1, 9)]
for name in compressor_names():
    backend = Compressed(comm, compress=name, feedback=True)
    net = nn.Sequential(nn.Linear(30, 50, rng=rng), nn.Tanh(), nn.Linear(50, 3, rng=rng))
    model = backend.place(net.to(dtype=np.float64))
    optimizer = optim.SGD(model.parameters(), 0.1)
    for batch in batches:
        before = backend.error.copy()
        optimizer.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        own = before + backend.bucket.message - backend.error
        got = backend.layout.pack([p.grad for p in backend.layout.parameters])
        if name != "dgc":
            total = sum(allgather(comm, own))
            assert abs(total - got).max() <= 1e-12 * max(abs(before).max(), 1), name
        assert all(np.array_equal(other, got) for other in allgather(comm, got)), name
        backend.update(model, optimizer)
"""


@pytest.mark.parametrize("n", [2, 3])
def test_nothing_is_lost_and_all_ranks_have_the_same_bits(pool, n):
    pool.run(n, COMPRESSED)
