"""Laws of backends/sequence_parallel/ring.py, ulysses.py, naive.py, tiles.py, fast_tiles.py and
token_order.py: attention over ranks, for drawn rows and ranks.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.sequence_parallel.naive import naive_ring_attention
from backends.sequence_parallel.ring import ring_attention, ring_self_attention
from backends.sequence_parallel.token_order import ORDERS, columns_of, pairs_of
from backends.sequence_parallel.ulysses import ulysses_attention
from minigrad import Tape, Tensor, ops
from tests.backends.sequence_parallel import ring_laws as laws
from tests.backends.sequence_parallel.ring_laws import Rows
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

drawn_rows = st.builds(
    Rows,
    ranks=st.integers(1, 5),
    length=st.integers(0, 20),
    causal=st.booleans(),
    documents=st.booleans(),
    samples=st.integers(1, 2),
    heads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
orders = st.sampled_from(ORDERS)
FEW = [Rows(1, 5), Rows(4, 3), Rows(4, 7), Rows(3, 0), Rows(5, 1), Rows(3, 12, documents=True, causal=False)]


@given(drawn_rows, orders)
@example(Rows(4, 3), "zigzag")
@example(Rows(4, 7), "zigzag")
@example(Rows(3, 0), "zigzag")
@example(Rows(3, 12, documents=True), "contiguous")
def test_rings(rows, order):
    columns = columns_of(rows.length, rows.ranks, order)
    laws.attends_over_ranks(ring_attention, columns, rows, sent=laws.sent_by_ring(columns, rows))


@given(drawn_rows, orders)
def test_rings_of_one_array(rows, order):
    columns = columns_of(rows.length, rows.ranks, order)
    ring = laws.as_one(ring_self_attention)
    laws.attends_over_ranks(ring, columns, rows, sent=laws.sent_by_ring(columns, rows))


@settings(max_examples=max(settings().max_examples // 2, 5))
@given(drawn_rows, orders)
def test_rings_of_halves(rows, order):
    columns = columns_of(rows.length, rows.ranks, order)
    laws.attends_over_ranks_in_halves(ring_attention, columns, rows)


@given(drawn_rows, orders)
def test_rings_of_readable_tiles(rows, order):
    columns = columns_of(rows.length, rows.ranks, order)
    with readable_forms():
        laws.attends_over_ranks(ring_attention, columns, rows)


@given(drawn_rows, orders)
def test_the_ring_on_the_slide(rows, order):
    rows = rows._replace(causal=True, documents=False)
    columns = columns_of(rows.length, rows.ranks, order)

    def naive(*x, causal, **settings):
        return naive_ring_attention(*x, **settings)

    with readable_forms():
        laws.attends_over_ranks(naive, columns, rows, sent=laws.sent_by_ring(columns, rows, arrays=2))


@given(drawn_rows)
@example(Rows(5, 7, heads=3))
@example(Rows(3, 2, heads=2, documents=True))
def test_all_to_all_over_heads(rows):
    columns = columns_of(rows.length, rows.ranks, "contiguous")
    sent = laws.sent_by_ulysses(columns, rows)
    laws.attends_over_ranks(laws.as_one(ulysses_attention), columns, rows, sent=sent)


@pytest.mark.parametrize("rows", FEW, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_edges(rows, order):
    columns = columns_of(rows.length, rows.ranks, order)
    laws.attends_over_ranks(ring_attention, columns, rows, sent=laws.sent_by_ring(columns, rows))


@given(st.integers(0, 40), st.integers(1, 6), orders)
def test_each_token_is_on_one_rank(length, ranks, order):
    laws.shares_tokens(columns_of, length, ranks, order)


@given(st.integers(1, 6), st.integers(1, 4))
def test_zigzag_is_balanced(ranks, tokens):
    laws.is_balanced(columns_of, ranks, tokens)


@given(st.integers(0, 20), st.integers(1, 5), orders, st.booleans())
def test_pairs_are_counted(length, ranks, order, causal):
    laws.counts_pairs(pairs_of, columns_of(length, ranks, order), causal)


def test_the_steps_of_a_ring():
    """S 64, p 4: 904 and 520; S 128, p 8: 1928 and 1032."""
    for length, ranks, counts in ((64, 4, [904, 520]), (128, 8, [1928, 1032])):
        tables = (pairs_of(columns_of(length, ranks, order)).tolist() for order in ("contiguous", "zigzag"))
        assert [*map(laws.seconds_of_ring, tables)] == counts


@pytest.mark.parametrize(("seconds", "latency"), [(2.0, 1.0), (1.0, 1.0), (1.0, 3.0)])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_ring_hides_the_link(ranks, seconds, latency):
    laws.hides_the_link(ring_attention, columns_of, ranks, seconds, latency)


@pytest.mark.parametrize("order", ["zigzag", "contiguous"])
@pytest.mark.parametrize(("ranks", "tokens"), [(1, 2), (3, 1), (8, 4)])
def test_a_causal_ring_computes_as_much_as_its_order_allows(order, ranks, tokens):
    laws.computes_as_much_as_its_order_allows(ring_attention, columns_of, order, ranks, tokens)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_ring_hides_the_link_in_backward(ranks):
    laws.hides_two_messages(ring_attention, columns_of, ranks, 3.0, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_ring_keeps_the_dtype(dtype):
    """It computes in float32 where that is float16."""
    x = np.random.default_rng(0).normal(size=(2, 6, 2, 9)).astype(dtype)

    def work(comm, attend, order):
        columns = columns_of(6, comm.size, order)
        leaf = Tensor(x[:, columns[comm.rank]], requires_grad=True)
        with Tape() as tape:
            y = attend(leaf, comm=comm, columns=columns)
        tape.backward(y, np.ones(y.shape))
        expected = ops.self_attention(x, causal=True).data[:, columns[comm.rank]]
        assert y.dtype == dtype and leaf.grad is not None and leaf.grad.dtype == dtype
        assert np.abs(y.data - expected).max() <= 8 * np.finfo(dtype).eps

    for attend, order in ((ring_self_attention, "zigzag"), (ulysses_attention, "contiguous")):
        run_ranks(3, lambda comm, attend=attend, order=order: work(comm, attend, order))


def test_wrong_rows_are_refused():
    columns = columns_of(6, 2)
    x = np.zeros((1, 4, 1, 6))

    def ring(comm):
        ring_self_attention(x, comm=comm, columns=columns)

    with pytest.raises(ValueError, match="a ring of 2 ranks needs the columns of each, and 4 of rank"):
        run_ranks(2, ring)
    with pytest.raises(
        ValueError, match=r"documents number the tokens of whole rows, \(1, 6\), got \(1, 3\)"
    ):
        run_ranks(
            2,
            lambda comm: ring_self_attention(x[:, :3], comm=comm, columns=columns, documents=x[:, :3, 0, 0]),
        )
    with pytest.raises(ValueError, match="so they must be consecutive; take columns_of"):
        run_ranks(2, lambda comm: ulysses_attention(x[:, :3], comm=comm, columns=columns))
