"""Laws of backends/data_parallel/compression/bit_packing.py, dgc.py, low_rank.py, quantization.py and
sparsification.py: what each family of compressors keeps, how far it may be off, on average and at most.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.shared.momentum_correction import basic, corrected

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel.compression import (
    QSGD,
    DeepGradientCompression,
    OneBit,
    PowerSGD,
    RandomK,
    ScaledSign,
    TernGrad,
    Threshold,
    TopK,
)
from backends.data_parallel.compression.bit_packing import pack_bits, pack_bytes, unpack_bits, unpack_bytes
from backends.data_parallel.compression.quantization import columns
from backends.data_parallel.compression.sparsification import largest, largest_by_sample, reaching
from backends.laws import bound_for
from tests.backends.data_parallel.compression.compression_laws import (
    layout_of,
    low_rank_law,
    sent,
    started,
    summed,
)
from tests.bugs.mutant import mutant

SHAPES = st.lists(
    st.sampled_from([(), (1,), (5,), (3, 4), (4, 3), (1, 6), (7, 1), (2, 3, 2, 2), (0,)]),
    min_size=1,
    max_size=4,
).filter(lambda shapes: sum(int(np.prod(s)) for s in shapes) > 0)
SEEDS = st.integers(0, 1 << 20)
DTYPES = st.sampled_from([np.float32, np.float64])


def vector(layout, seed, dtype=np.float64):
    """Normal numbers, a tenth of them 0."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=layout.size) * (rng.random(layout.size) > 0.1)).astype(dtype)


# Wire


@given(dtype=DTYPES, sizes=st.lists(st.integers(0, 9), min_size=2, max_size=2), seed=SEEDS)
def test_a_message_holds_the_bits_of_several_arrays(dtype, sizes, seed):
    rng = np.random.default_rng(seed)
    values, indices = rng.normal(size=sizes[0]).astype(dtype), rng.integers(-9, 9, sizes[1]).astype(np.int32)
    message = pack_bytes(values, indices)
    assert message.nbytes == values.nbytes + indices.nbytes
    x, i = unpack_bytes(message, (dtype, sizes[0]), (np.int32, sizes[1]))
    assert np.array_equal(x, values) and np.array_equal(i, indices) and x.dtype == dtype


@given(bits=st.integers(1, 16), n=st.integers(0, 40), seed=SEEDS)
def test_codes_come_back_from_as_few_bytes_as_hold_them(bits, n, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, n).astype(np.int32)
    message = pack_bits(codes, bits)
    assert message.nbytes == -(-n * bits // 8)
    assert np.array_equal(unpack_bits(message, bits, n), codes)


# Selecting


def moves_entries(compressor, v):
    """Assert that what is sent and what is kept are the entries of ``v``, to the last bit; what was sent."""
    c = sent(compressor, v)
    assert np.array_equal(c + (v - c), v)
    assert ((c == v) | (c == 0)).all() and ((v - c == v) | (v - c == 0)).all()
    return c


@given(shapes=SHAPES, seed=SEEDS, dtype=DTYPES, density=st.floats(0.001, 1))
def test_top_k_sends_the_largest_and_is_a_contraction(shapes, seed, dtype, density):
    compressor = started(TopK(density=density), *shapes, dtype=dtype)
    v = vector(compressor.layout, seed, dtype)
    c = moves_entries(compressor, v)
    k = max(1, round(density * v.size))
    assert compressor.compress(v).nbytes == k * (v.itemsize + 4)
    assert np.array_equal(np.sort(abs(c[c != 0])), np.sort(abs(v[v != 0]))[max(0, (v != 0).sum() - k) :])
    total = float(v.astype(np.float64) @ v)
    assert float((v - c).astype(np.float64) @ (v - c)) <= (1 - k / v.size) * total * (1 + 1e-12)


@given(shapes=SHAPES, seed=SEEDS, threshold=st.floats(0, 2))
def test_a_threshold_sends_what_exceeds_it(shapes, seed, threshold):
    compressor = started(Threshold(threshold=threshold), *shapes)
    v = vector(compressor.layout, seed)
    v[0] = threshold  # is not above it
    c = moves_entries(compressor, v)
    assert np.array_equal(c, np.where(abs(v) > threshold, v, 0))


@given(shapes=SHAPES, seed=SEEDS, density=st.floats(0.1, 1))
def test_random_k_is_the_same_on_all_ranks_and_right_on_average(shapes, seed, density):
    """The mean of 200 draws lies within 5 standard deviations."""
    one, two = (started(RandomK(density=density, seed=seed), *shapes, rank=rank, size=2) for rank in (0, 1))
    v = vector(one.layout, seed)
    k, n, draws = max(1, round(density * v.size)), v.size, 200
    left, squares = 0.0, v @ v
    for _ in range(draws):
        c = moves_entries(one, v)
        assert one.compress(v).nbytes == 8 * k
        for _ in range(2):
            two.compress(v)
        assert np.array_equal(one.sent_indices, two.sent_indices)
        left += float((v - c) @ (v - c))
    assert abs(left / draws - (1 - k / n) * squares) <= 5 * np.sqrt(n * (v**4).sum() / 4 / draws) + 1e-12


@given(n=st.integers(1, 3000), seed=SEEDS, density=st.floats(0.001, 1), sample=st.floats(0.01, 1))
def test_a_sample_finds_the_same_entries(n, seed, density, sample):
    """Also where the sample misleads: the largest lie between two of the sample, or all are alike."""
    rng = np.random.default_rng(seed)
    lumpy = rng.random(n) * 0.1
    lumpy[1 : 1 + n // 20] += 10 * rng.random(len(lumpy[1 : 1 + n // 20]))
    k = max(1, round(density * n))
    for sizes in (rng.random(n), np.sort(rng.random(n)), lumpy, np.ones(n)):
        result = largest_by_sample(sizes * rng.choice([-1, 1], n), k, sample)
        assert len(set(result.tolist())) == len(result) == k
        assert np.array_equal(np.sort(sizes[result]), np.sort(sizes[largest(sizes, k)]))


def finds_what_reaches(reaching, n, seed, block):
    v = np.random.default_rng(seed).integers(-5, 6, n).astype(np.float64)
    for threshold in (0.0, 3.0, 5.0, 6.0):  # of entries that are equal to it, too
        assert np.array_equal(reaching(v, threshold, block), np.flatnonzero(abs(v) >= threshold))


@given(n=st.integers(1, 200), seed=SEEDS, block=st.integers(1, 70))
def test_blocks_find_what_the_whole_does(n, seed, block):
    finds_what_reaches(reaching, n, seed, block)


@pytest.mark.parametrize(
    "change", [("start + np.flat", "np.flat"), (">= threshold) for", "> threshold) for")]
)
def test_the_law_of_blocks_catches(change):
    broken = mutant("backends.data_parallel.compression.sparsification", change).reaching
    with pytest.raises(AssertionError):
        finds_what_reaches(broken, 100, 0, 30)


@pytest.mark.parametrize("p", [2, 4])
def test_selecting_pays_below_a_density_of_one_over_p(p):
    """In float32 all-gathered entries cost as much as a dense ring at a density of 1 / p, measured."""
    n = 64

    def work(comm):
        traced, counts = Traced(comm), []
        for density in (1 / p, 0.5 / p):
            compressor = TopK(density=density)
            compressor.start(layout_of((n,), dtype=np.float32), comm.rank, p)
            before = traced.record.ledger.sent().bytes
            x = np.arange(n, dtype=np.float32)
            compressor.exchange(traced, x, np.zeros(0, np.float32), ring_allreduce)
            counts.append(traced.record.ledger.sent().bytes - before)
        before = traced.record.ledger.sent().bytes
        ring_allreduce(traced, np.arange(n, dtype=np.float32))
        dense = traced.record.ledger.sent().bytes - before
        assert counts == [dense, dense / 2] and dense == 2 * n * (p - 1) // p * 4

    run_ranks(p, work)


# Momentum


@given(seed=SEEDS, masking=st.booleans(), shapes=SHAPES)
def test_dgc_is_the_corrected_update_and_top_k_with_momentum_the_basic_one(seed, masking, shapes):
    """One worker: what the lesson shows on arrays is what the compressors do."""
    dgc = started(DeepGradientCompression(density=0.3, masking=masking), *shapes)
    top_k = started(TopK(density=0.3), *shapes)
    e, u, right, wrong, own = (dgc.layout.zeros() for _ in range(5))
    error, velocity = dgc.layout.zeros(), dgc.layout.zeros()
    for t in range(5):
        g = vector(dgc.layout, seed + t)
        v = dgc.apply_feedback(e, g)
        c = sent(dgc, v)
        mask = np.zeros(v.size, bool)
        mask[dgc.sent_indices] = True
        step, u, right = corrected(u, right, g, mask, 0.9, masking)
        dgc.commit()
        e = v - c
        assert np.array_equal(step, c) and np.array_equal(u, dgc.velocity) and np.array_equal(right, e)
        v = top_k.apply_feedback(error, g)
        c = sent(top_k, v)
        mask = np.zeros(v.size, bool)
        mask[top_k.sent_indices] = True
        velocity, error = 0.9 * velocity + c, v - c  # the optimizer's
        step, own, wrong = basic(own, wrong, g, mask, 0.9)
        assert np.array_equal(step, velocity) and np.array_equal(wrong, error)


@given(seed=SEEDS, ranks=st.integers(1, 9), clip=st.floats(0.01, 30))
def test_dgc_clips_each_rank_to_its_share_of_the_norm(seed, ranks, clip):
    dgc = started(DeepGradientCompression(clip=clip), (4, 5), size=ranks)
    g = vector(dgc.layout, seed)
    original = g.copy()
    v = dgc.apply_feedback(None, g)
    scale = min(1.0, clip / np.sqrt(ranks) / np.linalg.norm(g))
    np.testing.assert_allclose(v, scale * g, rtol=1e-12)
    assert np.array_equal(g, original)


def test_dgc_sends_less_from_one_quarter_of_the_warm_up_to_the_next():
    dgc = started(DeepGradientCompression(density=0.001, warm_up=4), (64, 32), (3,))
    results = []
    for t in range(6):
        v = dgc.apply_feedback(None, vector(dgc.layout, t))
        dgc.compress(v)
        results.append(len(dgc.sent_indices))
        dgc.commit()
    assert results == [513, 128, 32, 8, 2, 2]


def test_the_density_falls_by_fours_and_stays():
    densities = DeepGradientCompression(density=0.001, warm_up=8).density_at
    assert [densities(t) for t in range(10)] == [
        *(0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.00390625, 0.00390625, 0.001, 0.001)
    ]
    for steps, step in ((8, 5), (0, 0)):
        assert DeepGradientCompression(density=0.1, warm_up=steps).density_at(step) == 0.1


# Quantising


@given(shapes=SHAPES, seed=SEEDS, dtype=DTYPES)
def test_one_bit_leaves_nothing_over_in_any_column_of_either_sign(shapes, seed, dtype):
    compressor = started(OneBit(), *shapes, dtype=dtype)
    v = vector(compressor.layout, seed, dtype)
    c = sent(compressor, v)
    for x, y in zip(*map(compressor.layout.views, (v, c)), strict=True):
        x, y = columns(x), columns(y)
        for above in (x >= 0, x < 0):
            left = np.where(above, x - y, 0).sum(axis=0)
            assert (abs(left) <= bound_for(dtype) * abs(x).sum(axis=0)).all()
            for column, mask in zip(y.T, above.T, strict=True):
                assert len(set(column[mask].tolist())) <= 1


@given(shapes=SHAPES, seed=SEEDS, dtype=DTYPES)
def test_the_scaled_sign_is_off_by_what_its_formula_says(shapes, seed, dtype):
    compressor = started(ScaledSign(), *shapes, dtype=dtype)
    v = vector(compressor.layout, seed, dtype)
    for x, y in zip(*map(compressor.layout.views, (v, sent(compressor, v))), strict=True):
        x, y = x.astype(np.float64), y.astype(np.float64)
        if x.any():
            expected = (1 - abs(x).sum() ** 2 / (x.size * (x**2).sum())) * (x**2).sum()
            assert abs(((x - y) ** 2).sum() - expected) <= bound_for(dtype) * (x**2).sum()
            assert (np.sign(y)[x != 0] == np.sign(x)[x != 0]).all()


@pytest.mark.parametrize("make", [*(lambda s=s: QSGD(levels=s) for s in (1, 2, 5, 64, 300)), TernGrad])
@given(shapes=SHAPES, seed=SEEDS, dtype=DTYPES)
def test_random_rounding_stays_on_its_grid_and_is_right_on_average(make, shapes, seed, dtype):
    """Each entry's mean over 200 draws lies within 6 deviations, each at most half a step of the grid."""
    compressor = started(make(), *shapes, dtype=dtype)
    v = vector(compressor.layout, seed, dtype)
    draws = np.array([sent(compressor, v) for _ in range(200)], np.float64)
    s = compressor.levels
    start = 0
    for x in compressor.layout.views(v.astype(np.float64)):
        y, start = draws[:, start : start + x.size], start + x.size
        x = x.reshape(-1)
        if not x.any():
            assert not y.any()
            continue
        scale = abs(x).max() if isinstance(compressor, TernGrad) else np.linalg.norm(x)
        steps = y / (scale / s)
        assert abs(steps - np.round(steps)).max() <= bound_for(dtype) * s
        assert abs(steps).max() <= s + 1e-3
        assert (y * np.sign(x) >= 0).all()
        assert (abs(y.mean(axis=0) - x) <= 6 * scale / s / 2 / np.sqrt(200) + bound_for(dtype) * scale).all()
        if not isinstance(compressor, TernGrad):
            off = ((y - x) ** 2).sum(axis=1)
            limit = min(x.size / s**2, np.sqrt(x.size) / s) * scale**2
            assert off.mean() <= limit + 6 * off.std() / np.sqrt(200) + bound_for(dtype) * scale**2


# Low rank


MATRICES = st.lists(
    st.sampled_from([(3, 4), (4, 3), (5,), (2, 3, 2, 2), (1, 6), (6, 6)]), min_size=1, max_size=3
)


@given(ranks=st.integers(1, 5), shapes=MATRICES, seed=SEEDS, r=st.integers(1, 4))
def test_power_sgd_projects_the_sum(ranks, shapes, seed, r):
    low_rank_law(lambda r: PowerSGD(matrix_rank=r), ranks, shapes, seed, r=r)


@given(ranks=st.integers(1, 5), shapes=MATRICES, seed=SEEDS)
def test_power_sgd_of_full_rank_is_the_sum(ranks, shapes, seed):
    low_rank_law(lambda r: PowerSGD(matrix_rank=r), ranks, shapes, seed, r=6, full=True)


@given(seed=SEEDS, r=st.integers(1, 3), more=st.integers(0, 2))
def test_a_matrix_of_low_rank_comes_through_exactly(seed, r, more):
    """Also where P has more columns than are needed: QR adds others."""
    rng = np.random.default_rng(seed)
    compressor = started(PowerSGD(matrix_rank=r + more), (7, 9))
    v = (rng.normal(size=(7, r)) @ rng.normal(size=(r, 9))).reshape(-1)
    for _ in range(3):
        total, _, _ = run_ranks(1, lambda comm: compressor.exchange(comm, v, np.zeros(1), summed))[0]
        np.testing.assert_allclose(total, v, rtol=0, atol=1e-11 * abs(v).max())


def test_power_iteration_that_goes_on_finds_the_best_approximation():
    """A matrix that stays, without feedback: from the last Q on, rank 2 gets to what the SVD has."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(6, 8))
    u, s, vh = np.linalg.svd(matrix)
    best = (u[:, :2] * s[:2]) @ vh[:2]
    compressor = started(PowerSGD(), (6, 8))
    total = np.zeros(48)
    for _ in range(300):
        exchange = lambda comm: compressor.exchange(comm, matrix.reshape(-1), np.zeros(1), summed)  # noqa: E731
        total = run_ranks(1, exchange)[0].total
    np.testing.assert_allclose(total.reshape(6, 8), best, rtol=0, atol=1e-9)
