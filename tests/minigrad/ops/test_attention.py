"""Laws of minigrad/ops/attention.py and minigrad/ops/fast/attention.py, attention_loops.py and visibility.py:
every query takes the mean of the values that it may see, in linear memory.
"""

from contextlib import nullcontext

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from minigrad import loops, ops
from minigrad.ops.fast import attention
from minigrad.testing import DEVICE
from tests.minigrad.ops.attention_laws import (
    a_block_holds,
    attends,
    attends_as_one,
    holds,
    in_each_form,
    merges,
    orders,
    tiles,
    without_loops,
)
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

on_host = pytest.mark.skipif(DEVICE != "numpy", reason="tiles are of arrays of the host")
SIDES = st.tuples(st.integers(1, 5), st.integers(1, 5), st.sampled_from([1, 20, 200]))


@st.composite
def attention_inputs(draw):
    """Gradient, queries, keys and values, and masks; lengths of 0 and 1 and rows of padding are likely."""
    samples, heads, size = (draw(st.integers(1, 2)) for _ in range(3))
    rows = draw(st.sampled_from([1, 2, 5, 7]))
    alone = draw(st.booleans())
    columns, more = (rows, size) if alone else (draw(st.sampled_from([0, 1, 3, 6])), draw(st.integers(1, 2)))
    dtype, spread = draw(st.sampled_from([np.float32, np.float64])), draw(st.sampled_from([1, 100]))
    shapes = [
        (samples, n, heads, m) for n, m in ((rows, more), (rows, size), (columns, size), (columns, more))
    ]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    g, q, k, v = (rng.normal(size=shape).astype(dtype) for shape in shapes)
    masks = {"causal": draw(st.booleans())}
    if draw(st.booleans()):
        wholes = [(samples, heads, rows, columns), (heads, 1, columns), (rows, 1), (samples, 1, 1, columns)]
        masks["mask"] = draw(hnp.arrays(bool, draw(st.sampled_from(wholes))))
    if alone and draw(st.booleans()):
        documents = draw(hnp.arrays(np.int64, (samples, rows), elements=st.integers(-1, 2)))
        masks["documents"] = np.sort(documents)[:, ::-1].copy() if draw(st.booleans()) else documents
    return alone, (g, q * spread, k * spread, v), masks


@given(attention_inputs(), SIDES)
@settings(max_examples=3 * settings().max_examples)
def test_attention_is_three_loops(drawn, sides):
    alone, arrays, masks = drawn
    in_each_form(attends, sides, ops.attention, *arrays, **masks)
    if alone:
        in_each_form(attends_as_one, sides, ops.self_attention, *arrays, **masks)


@st.composite
def partitions(draw):
    """Parts of 1 to 6 keys, none of them empty."""
    keys = draw(st.permutations(range(draw(st.integers(1, 6)))))
    cuts = draw(st.sets(st.integers(1, max(len(keys) - 1, 1)), max_size=3)) - {len(keys)}
    ends = [0, *sorted(cuts), len(keys)]
    return [keys[a:b] for a, b in zip(ends, ends[1:], strict=False)]


@on_host
@given(partitions())
def test_parts_of_the_keys_are_merged_in_any_order(parts):
    for order in orders(parts):
        merges(attention.tile, attention.merge, order)
        with without_loops():
            merges(attention.tile, attention.merge, order)


SIZES = st.tuples(*[st.integers(least, most) for least, most in ((1, 3), (1, 40), (1, 3), (1, 4))])
DTYPES = st.sampled_from([np.float32, np.float64])


@on_host
@given(SIZES, DTYPES, st.booleans(), st.booleans(), st.booleans())
def test_tiles_hold_the_value_and_a_number_for_each_query(sizes, dtype, causal, masked, small):
    samples, rows, heads, size = sizes
    x, masks = np.ones((samples, rows, heads, 3 * size), dtype), {"causal": causal}
    if masked:
        masks["documents"], masks["mask"] = np.zeros((samples, rows), int), np.ones((rows, rows), bool)
    with tiles(4, 8) if small else nullcontext():
        holds(ops.self_attention, samples * rows * heads * (size + 1), x, **masks)
    if not masked:
        with readable_forms():
            holds(ops.self_attention, samples * heads * rows * rows, x, **masks)


@on_host
@given(SIZES, DTYPES)
def test_a_block_holds_what_the_formula_says(sizes, dtype):
    samples, tokens, heads, size = sizes
    arguments = heads * size, heads, samples, tokens, dtype
    a_block_holds(*arguments, rows=1, statistics=4 if loops.available() else 2)
    with readable_forms():
        a_block_holds(*arguments, rows=tokens, statistics=2)
