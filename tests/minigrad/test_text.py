"""Laws of minigrad/text.py, metric.py, generate.py and sample.py: they hold on drawn texts, and the course's
prose is frozen.
"""

import gzip
import hashlib

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from minigrad import text as module
from minigrad.generate import generate
from minigrad.metric import NATS
from minigrad.sample import inputs_of
from minigrad.text import COURSE, COURSE_BYTES, COURSE_SHA256, course, numbers_of, rows, text
from minigrad.train import accuracy
from tests.minigrad import text_laws

CONTENTS = st.text(st.sampled_from("ab\n é€"), min_size=11).map(lambda s: s.encode())


@given(st.integers(2, 40), st.integers(1, 12))
def test_each_symbol_predicts_the_next(n, length):
    text_laws.each_symbol_predicts_the_next(rows, n, length)


@given(CONTENTS, st.integers(1, 6))
def test_parts_are_those_of_the_text(tmp_path_factory, content, length):
    text_laws.parts_are_those_of_the_text(text, tmp_path_factory.mktemp("t") / "t", content, length)


@given(content=CONTENTS, length=st.integers(1, 6))
@example(content=b"a" * 11, length=1)
def test_simple_rules_are_counted(tmp_path_factory, content, length):
    text_laws.simple_rules_are_counted(text, tmp_path_factory.mktemp("t") / "t", content, length)


@given(st.integers(0, 2**32))
def test_a_loss_in_nats_is_a_mean_over_symbols(seed):
    text_laws.a_metric_is_a_mean_over_symbols(NATS, seed)


def test_an_accuracy_is_refused():
    text_laws.accuracy_is_of_one_label_a_sample(accuracy)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-320, 0.1, 1.0, 3.0]))
def test_a_text_is_written_by_the_scores(seed, temperature):
    text_laws.writes_by_the_scores(generate, seed, temperature)


@pytest.mark.parametrize(
    ("prompt", "temperature", "words"),
    [([], 1.0, "the prompt is empty"), ([0], -1.0, "at least 0, got -1.0"), ([0], np.nan, "got nan")],
)
def test_nothing_is_written_without_a_beginning_or_by_a_negative_temperature(prompt, temperature, words):
    model = text_laws.TableOfPairs(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=words):
        generate(model, prompt, 1, length=3, temperature=temperature)


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_written_by_scores_that_are_not_finite(score, temperature):
    model = text_laws.TableOfPairs(np.array([[0.0, score], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="scores that are not finite; train it again with a smaller rate"):
        generate(model, [0], 1, length=3, temperature=temperature)


@given(st.binary(min_size=1), st.binary(max_size=3))
def test_a_symbol_that_a_model_does_not_know_is_refused_with_its_place(content, more):
    text_laws.symbols_have_numbers_or_are_refused(numbers_of, content, more)


@pytest.mark.parametrize(
    ("content", "length", "words"),
    [
        (b"", 4, "has 0 symbols, and rows of 4 need a text of at least 11; take a longer one"),
        (b"x" * 10, 1, "has 10 symbols, and rows of 1 need a text of at least 11"),
        (b"x" * 99, 89, "has 99 symbols, and rows of 89 need a text of at least 100"),
        (b"x" * 99, 0, "--length must be a number of symbols of at least 1, got 0"),
        (b"caf\xe9 " * 9, 4, "is no text in UTF-8: byte 3 is 0xe9; convert it"),
    ],
)
def test_what_is_no_text_to_learn_from_is_refused(tmp_path, content, length, words):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        text(length, tmp_path / "t")
    (tmp_path / "t").write_bytes(b"x" * 100)
    assert len(text(89, tmp_path / "t").train) == 1


def test_the_prose_of_the_course_is_frozen():
    content = gzip.decompress(COURSE.read_bytes())
    assert course() == content and content.isascii()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (COURSE_BYTES, COURSE_SHA256)
    data = text()
    assert (len(data.symbols), len(data.train), len(data.test)) == (92, 3126, 348)
    assert [round(value, 3) for value in data.references.values()] == [3.245, 2.545]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inputs_have_the_dtype_of_a_net_or_are_integers(dtype):
    text_laws.inputs_have_the_dtype_of_a_net_or_are_integers(inputs_of, dtype)


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, FileNotFoundError), (b"none", ValueError), (gzip.compress(b"other"), ValueError)],
    ids=["missing", "no gzip", "other text"],
)
def test_a_damaged_prose_says_what_to_do(tmp_path, monkeypatch, content, error):
    if content is not None:
        (tmp_path / "course").write_bytes(content)
    monkeypatch.setattr(module, "COURSE", tmp_path / "course")
    with pytest.raises(error, match="reinstall minigrad-course"):
        text()
