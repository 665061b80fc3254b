"""Laws of backends/planner/transfers.py: transfers of drawn sizes, even and ragged."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from backends.comm.collectives.link import Link
from backends.planner.transfers import AllGather, AllReduce, KeyRing, token_sizes
from tests.backends.planner import transfer_laws as laws

RANKS = st.integers(1, 5)
SIZES = st.lists(st.integers(0, 7), min_size=1, max_size=5).map(tuple)


@given(st.integers(0, 40), RANKS)
def test_sums_have_the_bytes_of_a_ring(numbers, ranks):
    laws.sums(numbers, ranks)


@given(SIZES)
def test_parts_are_gathered_and_scattered(sizes):
    laws.gathers(sizes)
    laws.scatters(sizes)


@given(st.integers(1, 3), SIZES, st.integers(1, 4))
def test_keys_go_round(rows, tokens, width):
    laws.goes_round(rows, tokens, width)


@given(st.data(), RANKS, st.integers(1, 3), st.integers(1, 4))
def test_heads_are_exchanged(data, ranks, rows, size):
    of_ranks = st.lists(st.integers(0, 5), min_size=ranks, max_size=ranks).map(tuple)
    laws.exchanges_heads(rows, data.draw(of_ranks), data.draw(of_ranks), size)


@given(st.data(), RANKS, st.integers(1, 4))
def test_rows_are_exchanged_with_experts(data, ranks, width):
    own = data.draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks).map(tuple))
    rows = st.lists(st.integers(0, 4), min_size=sum(own), max_size=sum(own)).map(tuple)
    rows_of = data.draw(st.lists(rows, min_size=ranks, max_size=ranks).map(tuple))
    laws.exchanges_rows(width, rows_of, own)


@pytest.mark.parametrize("p", [1, 2, 3, 8])
def test_even_sizes_are_the_closed_forms(p):
    laws.are_the_closed_forms(p, 4, 5)


@given(st.integers(0, 40), RANKS)
def test_zigzag_shares_pairs(tokens, ranks):
    """A rank's two blocks have, where 2 p divides S, S (S + 1) / (2 p) pairs of query and key."""
    sizes = token_sizes(tokens, ranks, "ring")
    assert sum(sizes) == tokens and len(sizes) == ranks
    if tokens % (2 * ranks) == 0:
        n = tokens // (2 * ranks)
        for rank in range(ranks):
            blocks = (rank, 2 * ranks - 1 - rank)
            pairs = sum(place + 1 for b in blocks for place in range(b * n, b * n + n))
            assert pairs * 2 * ranks == tokens * (tokens + 1) and sizes[rank] == 2 * n


def test_what_a_message_takes_is_its_latency_and_its_bytes():
    link = Link(1.0, 4.0)
    assert AllGather((2, 6, 3)).seconds(link, 2) == 2 * (1 + 12 / 4)
    assert KeyRing(1, (2, 3), 5).seconds(link, 4) == 1 + 2 * 5 * 3 * 4 / 4
    assert KeyRing(1, (2, 3), 5, backward=True).seconds(link, 4) == 2 * (1 + 2 * 5 * 3 * 4 / 4)
    assert AllReduce(6, 2).seconds(link, 4) == 1 + 24 / 4  # two ranks swap all at once
    assert AllReduce(6, 1).seconds(link, 4) == 0
