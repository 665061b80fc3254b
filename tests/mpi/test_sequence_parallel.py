"""Rows whose tokens are shared, over real MPI: a ring on 3 ranks, an all-to-all on 4, three axes on 8."""

import pytest

TRAINS = """
from backends.laws import trains_like_serial
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Net, adamw
from tests.backends.sequence_parallel.sequence_laws import batches_of, stack

net = Net(heads=3, tokens=7, symbols=7)
for documents in (False, True):
    batches = batches_of(net, (7, 5, 1), documents)
    strategy = lambda _: stack(comm, net, **SETTINGS)
    trains_like_serial(strategy, comm, net.build, TOKEN_LOSS, batches, optimizer=adamw)
"""
LAYOUTS = [
    (3, {"sequence": 3}),
    (4, {"sequence": 4, "form": "ulysses"}),
    (4, {"pipe": 2, "sequence": 2}),
    pytest.param(8, {"data": 2, "sequence": 2, "model": 2, "split_tokens": True}, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("ranks", "settings"), LAYOUTS, ids=str)
def test_shared_tokens_train_like_serial(pool, ranks, settings):
    pool.run(ranks, TRAINS.replace("SETTINGS", repr(settings)))
