"""Laws of backends/checkpoint/memory_checkpoints.py: checkpoints in memory lose nothing with a
host, whatever the pieces are.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from backends.checkpoint.memory_checkpoints import XorParity
from tests.backends.checkpoint import memory_laws as laws

KINDS = st.sampled_from(laws.KINDS)
DTYPES = st.sampled_from(["float64", "float32", "float16", "int64", "uint8", "bool"])


@st.composite
def pieces(draw):
    """Ranks on a host, and the pieces of 2 to 5 hosts: bytes, or arrays of any dtype as files hold them."""
    ranks_per_host = draw(st.integers(1, 2))
    ranks = ranks_per_host * draw(st.integers(2, 5 if ranks_per_host == 1 else 3))
    seed = draw(st.integers(0, 2**16))
    content = []
    for rank in range(ranks):
        array = np.random.default_rng((seed, rank)).integers(0, 100, draw(st.integers(0, 20)))
        array = array.astype(draw(DTYPES))
        content.append(save({"a": array}) if draw(st.booleans()) else array.tobytes())
    return ranks_per_host, content


@given(KINDS, pieces(), st.data())
def test_lost_pieces_come_back_or_are_named(kind, given_pieces, data):
    ranks_per_host, content = given_pieces
    lost = data.draw(st.sets(st.integers(0, len(content) - 1), max_size=len(content) - 1))
    new_ranks = data.draw(st.integers(0, 2))
    laws.lost_pieces_come_back_or_are_named(kind, content, lost, ranks_per_host, new_ranks)


@given(KINDS, pieces())
def test_bytes_sent_are_the_formulas(kind, given_pieces):
    ranks_per_host, content = given_pieces
    laws.bytes_sent_are_the_formulas(kind, [len(piece) for piece in content], ranks_per_host)


@pytest.mark.parametrize("kind", laws.KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("ranks_per_host", [1, 2])
@pytest.mark.parametrize(
    "law",
    [laws.a_lost_host_is_no_loss, laws.a_loss_while_ranks_save_leaves_a_whole_generation],
    ids=lambda law: law.__name__,
)
def test_that(law, kind, ranks_per_host):
    law(kind, ranks_per_host)


@pytest.mark.parametrize("kind", laws.KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "law",
    [laws.a_refusal_comes_before_a_message, laws.a_step_is_saved_again_with_the_same_pieces_only],
    ids=lambda law: law.__name__,
)
def test_of_every_kind_that(law, kind):
    law(kind)


def test_nothing_but_new_ranks_restores_nothing():
    for kind in laws.KINDS:
        laws.lost_pieces_come_back_or_are_named(kind, [b"1", b"2"], {0, 1}, new_ranks=2)


def test_arrays_come_back():
    arrays = {"w": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array(True)}
    stores = laws.saved(XorParity, [b"", save(arrays), b"x"])
    _, contents = laws.restored([stores[0], stores[2]])
    back = load(contents[1])
    assert {n: (a.dtype, a.tolist()) for n, a in back.items()} == {
        n: (a.dtype, a.tolist()) for n, a in arrays.items()
    }


def test_a_host_has_a_rank():
    with pytest.raises(ValueError, match="at least 1 rank, got 0"):
        XorParity(0)
