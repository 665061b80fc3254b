"""Laws of backends/model_parallel/layers/tokens.py: layers between products see only their rank's tokens,
and are the serial ones.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.laws import bound_for, trains_like_serial
from backends.model_parallel.activation_memory import Block, bytes_after_korthikanti
from backends.model_parallel.layers.sharding import ShardedTensor, even_shard
from backends.model_parallel.layers.tokens import linear_of_gathered
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.forward_pass import ForwardPass
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from tests.backends.model_parallel.transformer_laws import FORMS, Net


@given(
    ranks=st.integers(1, 4), tokens=st.integers(1, 6), samples=st.integers(0, 3), biased=st.booleans(),
    widths=st.tuples(st.integers(1, 4), st.integers(0, 4)),
)  # fmt: skip
def test_a_linear_layer_of_gathered_tokens_is_the_linear_layer(ranks, tokens, samples, biased, widths):
    rng = np.random.default_rng(tokens)
    x, w, b = (rng.normal(size=s) for s in ((samples, tokens, widths[0]), widths[::-1], widths[1:]))
    gs = rng.normal(size=(ranks, samples, tokens, widths[1]))

    def gradients(op, x, g, **settings) -> tuple[Any, ...]:
        leaves = [Tensor(a, requires_grad=True) for a in ((x, w, b) if biased else (x, w))]
        with Tape() as tape:
            y = op(*leaves, **settings)
        tape.backward(y, g)
        return y.data, *(leaf.grad for leaf in leaves)

    def work(comm):
        part = even_shard(1, comm, tokens)
        return part, gradients(linear_of_gathered, part.local_part(x), gs[comm.rank], comm=comm)

    expected = [gradients(ops.linear, x, g) for g in gs]
    dx = sum(e[1] for e in expected)
    for (part, (y, own, *rest)), e in zip(run_ranks(ranks, work), expected, strict=True):
        np.testing.assert_allclose(y, e[0], atol=1e-13)
        np.testing.assert_allclose(own, part.local_part(dx), atol=1e-13)
        for mine, other in zip(rest, e[2:], strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-13)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_dropout_drops_what_one_machine_drops(ranks):
    x = np.ones((4, 3, 5))

    def work(comm):
        embedding = nn.TokenEmbedding(9, 5, 3, rng=0)
        layers = nn.Sequential(embedding, nn.TransformerBlock(5, 1, p=0.5, rng=0), nn.Dropout(0.5, rng=1))
        placed: Any = ModelParallel(comm, {"1": "heads"}, split_tokens=True).place(layers)
        with ForwardPass(3, range(4)):
            a = placed[2].sharded_forward(ShardedTensor(Tensor(x)).split(even_shard(1, comm, 3)))
        return a.gather().local.data

    with ForwardPass(3, range(4)):
        whole = nn.Dropout(0.5, rng=1)(Tensor(x)).data
    for dropped in run_ranks(ranks, work):
        np.testing.assert_array_equal(dropped, whole)


def test_a_layer_without_a_form_for_tokens_gathers_them():
    """Right, and its bytes are seen: an all-gather of B S h, which sends (p - 1) B S h over all ranks."""
    net, ranks, samples = Net(blocks=1), 3, 2

    def model(last):
        embedding = nn.TokenEmbedding(net.symbols, net.width, net.tokens, rng=0)
        return nn.Sequential(embedding, net.block(np.random.default_rng(0)), last).to(dtype=np.float64)

    def sent(last):
        def work(comm):
            traced = Traced(comm)
            backend = ModelParallel(traced, {"1": "heads"}, split_tokens=True, allreduce=ring_allreduce)
            placed: Any = backend.place(model(last))
            a = ShardedTensor(Tensor(np.zeros((samples, net.tokens), int)))
            before = traced.record.ledger.sent().bytes
            for layer in placed.layers:
                a = layer.sharded_forward(a)
            return (traced.record.ledger.sent().bytes - before) // 8, len(a.shards)

        results = run_ranks(ranks, work)
        return sum(numbers for numbers, _ in results), {shards for _, shards in results}

    n = samples * net.tokens * net.width
    assert sent(nn.LayerNorm(net.width)) == (4 * (ranks - 1) * n, {1})
    assert sent(nn.Softmax()) == (5 * (ranks - 1) * n, {0})


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_and_evaluation(form):
    net = Net(heads=3, tokens=5, p=0.5)
    x = net.batches(3)[0].x
    expected = net.build(np.random.default_rng(0)).eval()(x).data

    def work(comm):
        backend = ModelParallel(comm, net.plan(vocabulary=True), **FORMS[form])
        placed = backend.place(net.build(np.random.default_rng(comm.rank)))
        return placed.eval()(x).data

    for logits in run_ranks(2, work):
        assert logits.dtype == np.float32
        np.testing.assert_allclose(logits, expected, atol=bound_for(np.float32))


def test_a_plain_norm_of_rows_stays_whole():
    def build(rng):
        return nn.Sequential(nn.Linear(6, 5, rng=rng), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 9, rng=rng))

    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(4, 6)), rng.integers(0, 9, 4))]
    strategy = lambda c: ModelParallel(c, {"0": "column"}, split_tokens=True)  # noqa: E731
    run_ranks(3, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches))


def test_gathering_again_needs_split_tokens():
    with pytest.raises(ValueError, match="pass split_tokens=True too"):
        run_ranks(1, lambda comm: ModelParallel(comm, gather_again=True))


def test_the_formulas_after_korthikanti():
    """GPT-3 and MT-NLG: selective recomputation saves 70 and 65 of 100 bytes; tokens divide all of it."""
    gpt3, mt_nlg = Block(2048, 12288, 96, 4 * 12288), Block(2048, 20480, 128, 4 * 20480)
    for block, saved in ((gpt3, 0.70), (mt_nlg, 0.65)):
        whole = bytes_after_korthikanti(block)
        assert round(1 - bytes_after_korthikanti(block, recompute="selective") / whole, 2) == saved
        assert bytes_after_korthikanti(block, 8, split_tokens=True) == whole / 8
        assert (
            bytes_after_korthikanti(block, 8) > 10 and bytes_after_korthikanti(block, recompute="full") == 2
        )
