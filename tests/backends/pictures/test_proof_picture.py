"""Laws of backends/pictures/proof_picture.py and map_picture.py: drawn proofs, also of other names."""

import math

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from backends.comm import run_ranks
from backends.data_parallel import NaiveDataParallel
from backends.laws import Difference, Differences, differences_from_serial
from minigrad import nn, ops
from minigrad.data import Batch
from tests.backends.pictures.proof_picture_laws import a_proof_is_drawn_whole

SIZES = st.one_of(st.sampled_from([0.0, 1e-12, 1e-11, math.inf]), st.floats(0, 2e-12))
NAMES = st.sampled_from(["1.weight", "loss", "<b> & 'c'", "a.b"])
ROWS = st.builds(Difference, NAMES, st.just((3, 4)) | st.just(()), SIZES, SIZES, st.integers(0, 7))


def picture(differences):
    return differences._repr_svg_()


@given(rows=st.lists(ROWS, max_size=5))
def test_a_proof_is_drawn_whole(rows):
    a_proof_is_drawn_whole(picture, Differences(rows, 1e-12))


def test_a_comparison_is_one():
    batch = Batch(np.random.default_rng(0).normal(size=(6, 4)), np.arange(6) % 3)
    results = run_ranks(
        2,
        lambda comm: differences_from_serial(
            NaiveDataParallel, comm, lambda rng: nn.Linear(4, 3, rng=rng), ops.cross_entropy, [batch]
        ),
    )
    for differences in results:
        a_proof_is_drawn_whole(picture, differences)
    assert [bool(one) for one in results] == [one.proved for one in results] == [True, False]
