"""Laws of minigrad/nn/attention.py, transformer_block.py and token_embedding.py: a transformer is its
definition, with the gradients of differences, and says what it does not take.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from minigrad import Tape, nn, ops
from minigrad.testing import DEVICE, on_device
from tests.minigrad.nn.transformer_laws import documents_are_alone, gradients_are_differences, is_a_block

SIZES = st.tuples(*[st.integers(1, most) for most in (2, 6, 3, 3)])  # samples, tokens, heads, their size
few = settings(max_examples=settings().max_examples // 2)


def block_of(heads, size, **kind):
    block = nn.TransformerBlock(heads * size, heads, hidden=3, rng=1, dtype=np.float64, **kind)
    for i, p in enumerate(block.parameters()):  # norms and biases other than ones and zeros
        p.data[...] += np.random.default_rng(i).normal(size=p.shape) / 3
    return block.to(device=DEVICE)


def tokens(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


@st.composite
def rows_of_documents(draw):
    samples, length, heads, size = draw(SIZES)
    documents = draw(hnp.arrays(np.int64, (samples, length), elements=st.integers(-1, 2)))
    return heads, size, tokens(samples, length, heads * size), documents


@few
@given(rows_of_documents(), st.booleans())
def test_a_block_is_its_definition(drawn, whole):
    heads, size, x, documents = drawn
    is_a_block(block_of(heads, size), heads, x, None if whole else documents)


@few
@given(rows_of_documents())
def test_the_gradients_of_a_block_are_differences(drawn):
    heads, size, x, documents = drawn
    gradients_are_differences(block_of(heads, size), x, documents=on_device(documents))


@few
@given(rows_of_documents())
def test_documents_of_one_row_do_not_see_each_other(drawn):
    heads, size, x, documents = drawn
    documents_are_alone(block_of(heads, size), x, np.sort(documents))


@few
@given(SIZES)
def test_the_gradients_of_a_table_that_is_used_twice_are_differences(sizes):
    samples, length, _, width = sizes
    embedding = nn.TokenEmbedding(5, width, 6, rng=0, dtype=np.float64)
    model = nn.Sequential(embedding, nn.Unembedding(embedding)).to(device=DEVICE)
    symbols = np.random.default_rng(0).integers(0, 5, (samples, length))
    gradients_are_differences(model, symbols)
    table, position = embedding.weight.numpy(), embedding.position.numpy()
    expected = (table[symbols] + position[:length]) @ table.T
    np.testing.assert_allclose(model(on_device(symbols)).numpy(), expected, rtol=1e-12, atol=1e-12)


def test_what_a_transformer_saves_is_named_by_its_parts():
    embedding = nn.TokenEmbedding(5, 4, 6, rng=0)
    model = nn.Sequential(embedding, nn.TransformerBlock(4, 2, rng=0), nn.Unembedding(embedding))
    names = ["norm1.weight", "norm1.bias", "attention.qkv.weight", "attention.out.weight"]
    names += ["attention.out.bias", "norm2.weight", "norm2.bias", "feed_forward.0.weight"]
    names += ["feed_forward.0.bias", "feed_forward.2.weight", "feed_forward.2.bias"]
    expected = ["0.weight", "0.position", *(f"1.{name}" for name in names), "2.weight"]
    assert list(model.state_dict()) == expected
    assert len(model.parameters()) == len(expected) - 1  # the table is one
    model.to(dtype=np.float64)
    assert model.layers[-1].weight is embedding.weight  # pyright: ignore


def test_no_dropout_holds_nothing_and_some_is_drawn():
    x = tokens(2, 3, 4)
    for p, alike in ((0.0, True), (0.5, False)):
        block = block_of(2, 2, p=p)
        with Tape():
            first, second = block(on_device(x)).numpy(), block(on_device(x)).numpy()
        assert np.array_equal(first, second) == alike, p
        assert not np.array_equal(block.eval()(on_device(x)).numpy(), 0 * x)


def test_one_column_of_tokens_may_be_empty():
    embedding = nn.TokenEmbedding(5, 4, 6, rng=0)
    model = nn.Sequential(embedding, nn.TransformerBlock(4, 2, rng=0), nn.Unembedding(embedding))
    model.to(device=DEVICE)
    for shape in ((0, 3), (2, 0), (0, 0)):
        with Tape() as tape:
            y = model(on_device(np.zeros(shape, int)))
        assert y.shape == (*shape, 5)
        tape.backward(y, on_device(np.ones(y.shape, np.float32)))
        assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: nn.Attention(8, 3, rng=0), "3 heads do not divide a width of 8; choose one of 1, 2, 4, 8"),
        (lambda: nn.Attention(8, 0, rng=0), "heads must be an integer of at least 1, got 0"),
        (lambda: nn.Attention(8, 2.0, rng=0), "heads must be an integer of at least 1, got 2.0"),  # pyright: ignore
        (lambda: nn.Attention(8, 2, rng=0)(np.ones((3, 8))), r"takes tokens \(B, S, width\), got \(3, 8\)"),
        (lambda: nn.TokenEmbedding(5, 4, 6, rng=0)([1, 2]), r"takes symbols \(B, S\), got the shape \(2,\)"),
        (lambda: nn.TokenEmbedding(5, 4, 6, rng=0)([[1] * 7]), "has 6 positions, the text 7 symbols; cut it"),
        (lambda: ops.self_attention(np.ones((2, 3, 1, 4))), r"\(B, S, heads, 3 D\), got \(2, 3, 1, 4\)"),
        (lambda: attend(mask=np.ones((3, 3))), "a mask of booleans, True where .*, got float64"),
        (lambda: attend(mask=np.ones((2, 2), bool)), r"scores \(2, 1, 3, 3\) cannot take a mask \(2, 2\)"),
        (lambda: attend(documents=[0, 1, 2]), r"number the tokens .* \(2, 3\) for 3 queries; got .* \(3,\)"),
        (lambda: ops.attention(*[np.ones((2, 3, 4))] * 3), r"queries \(B, S, heads, D\), keys"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(call, says):
    with pytest.raises(ValueError, match=says) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def attend(**masks):
    return ops.self_attention(np.ones((2, 3, 1, 6)), **masks)
