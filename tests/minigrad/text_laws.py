"""Laws of minigrad/text.py, metric.py, generate.py, sample.py and models.py: a text is cut into rows of which
each symbol counts once, its loss is the mean over symbols, and what a model writes has its probabilities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.data import Batch
from minigrad.metric import Metric
from minigrad.models import Net
from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor
from minigrad.text import Text

MakeText = Callable[..., Text]


def each_symbol_predicts_the_next(rows: Callable[[np.ndarray, int], Batch], n: int, length: int) -> None:
    """Symbol i stands in row i // length with symbol i + 1 as its target; the rest is padding."""
    numbers = np.random.default_rng(n).integers(0, 9, n)
    data, places = rows(numbers, length), math.ceil((n - 1) / length) * length
    assert data.x.shape == data.y.shape == (places // length, length)
    for i in range(places):
        pair = int(data.x[i // length, i % length]), int(data.y[i // length, i % length])
        expected = (int(numbers[i]), int(numbers[i + 1])) if i < n - 1 else (0, -1)
        assert pair == expected, f"place {i} of {n} symbols in rows of {length} has {pair}, not {expected}"


def parts_are_those_of_the_text(make: MakeText, file: Path, content: bytes, length: int) -> None:
    """The first nine tenths train, the rest tests, and no symbol is in both; the symbols are sorted."""
    file.write_bytes(content)
    data = make(length, file)
    assert data.symbols == bytes(sorted(set(content)))
    parts = []
    for part in (data.train, data.test):
        inputs, targets = part.x.ravel(), part.y.ravel()
        targets = targets[targets >= 0]
        numbers = [*inputs[: len(targets)], targets[-1]]
        parts.append(bytes(data.symbols[number] for number in numbers))
    cut = len(content) * 9 // 10
    assert parts == [content[:cut], content[cut:]], f"{parts} of {content!r}"


def simple_rules_are_counted(make: MakeText, file: Path, content: bytes, length: int) -> None:
    """The entropy of what follows and the loss of a table of pairs, by Python's counters."""
    file.write_bytes(content)
    references, cut = make(length, file).references, len(content) * 9 // 10
    train, test, symbols = content[:cut], content[cut:], len(set(content))
    letters, total = Counter(train[1:]), cut - 1
    entropy = math.fsum(-k / total * math.log(k / total) for k in letters.values())
    pairs, firsts = Counter(zip(train, train[1:], strict=False)), Counter(train[:-1])
    losses = [
        -math.log((pairs[a, b] + 1) / (firsts[a] + symbols)) for a, b in zip(test, test[1:], strict=False)
    ]
    expected = [entropy, math.fsum(losses) / len(losses)]
    np.testing.assert_allclose(list(references.values()), expected, rtol=1e-12, atol=1e-15)
    assert all(math.copysign(1.0, loss) > 0 for loss in references.values()), f"{references}: -0 nats"


class TableOfPairs(Module):
    """Scores by the last symbol alone, with the rows that it was called with."""

    def __init__(self, scores: np.ndarray):
        self.weight = Parameter(np.zeros(1))  # which says where the model is
        self.scores, self.rows = scores, []

    def forward(self, x: Any) -> Tensor:
        self.rows.extend(np.array(x.data).tolist())
        return Tensor(self.scores[x.data])


def a_metric_is_a_mean_over_symbols(metric: Metric, seed: int) -> None:
    """The loss in nats of rows that end anywhere is the mean over all symbols that have a target."""
    rng = np.random.default_rng(seed)
    symbols, rows, length = rng.integers(1, 5), rng.integers(1, 230), rng.integers(1, 5)
    scores = 3 * rng.normal(size=(symbols, symbols))
    x, y = rng.integers(0, symbols, (2, rows, length))
    y[rng.random(y.shape) < 0.3] = -1
    losses = []
    for symbol, target in zip(x.ravel(), y.ravel(), strict=True):
        if target >= 0:
            losses.append(math.log(math.fsum(np.exp(scores[symbol]))) - scores[symbol, target])
    expected = math.fsum(losses) / len(losses) if losses else 0.0
    actual = metric.measure(TableOfPairs(scores), Batch(x, y))
    assert math.isclose(actual, expected, rel_tol=1e-12, abs_tol=1e-14), f"{actual}, not {expected}"


def writes_by_the_scores(generate: Callable[..., np.ndarray], seed: int, temperature: float) -> None:
    """Each symbol is where a uniform number falls among the chances; the model sees the last symbols."""
    rng = np.random.default_rng(seed)
    symbols, length, n = rng.integers(1, 6), int(rng.integers(1, 6)), int(rng.integers(1, 9))
    scores = 2 * rng.normal(size=(symbols, symbols))
    prompt = rng.integers(0, symbols, rng.integers(1, 9)).tolist()
    model = TableOfPairs(scores)
    actual = generate(model, prompt, n, length=length, temperature=temperature, rng=seed).tolist()
    uniform, row = np.random.default_rng(seed), list(prompt)
    for _ in range(n):
        row.append(falls_on(scores[row[-1]], temperature, uniform))
    assert actual == row[len(prompt) :], f"{actual} after {prompt}, not {row[len(prompt) :]}"
    assert model.rows == [row[: len(prompt) + i][-length:] for i in range(n)]


def falls_on(scores: np.ndarray, temperature: float, uniform: np.random.Generator) -> int:
    """The first symbol up to which the chances add up to more than a uniform number."""
    if temperature == 0:
        return max(range(len(scores)), key=lambda k: (scores[k], -k))
    weights = [math.exp(float(score - max(scores)) / temperature) for score in scores]
    u, total = uniform.random(), 0.0
    for k, weight in enumerate(weights):
        total += weight / math.fsum(weights)
        if u < total:
            return k
    return len(scores) - 1


def symbols_have_numbers_or_are_refused(
    numbers_of: Callable[[bytes, bytes, str], np.ndarray], content: bytes, more: bytes
) -> None:
    """Each byte has its place among the symbols; the first one that is none is refused with its own place."""
    symbols = bytes(sorted(set(content)))
    numbers = numbers_of(content, symbols, "it")
    assert bytes(symbols[number] for number in numbers) == content
    other = next((i for i, byte in enumerate(more) if byte not in symbols), None)
    if other is not None:
        try:
            numbers_of(content + more + content, symbols, "it")
        except ValueError as error:
            words = f"it has {more[other : other + 1]!r} at place {len(content) + other}, which is none of"
            assert str(error).startswith(words), f"{error}, not: {words}"
        else:
            raise AssertionError(f"{more!r} was not refused")


def accuracy_is_of_one_label_a_sample(accuracy: Callable[[Module, Batch], float]) -> None:
    """Scores of each symbol of a row are refused, for any length: their classes are not along axis 1."""
    for symbols, length in ((3, 3), (3, 5), (1, 4)):
        x = np.zeros((2, length), np.int64)
        try:
            accuracy(TableOfPairs(np.eye(symbols)), Batch(x, x))
        except ValueError as error:
            assert "accuracy takes scores (N, classes)" in str(error), error
        else:
            raise AssertionError(f"scores {(2, length, symbols)} were not refused")


def inputs_have_the_dtype_of_a_net_or_are_integers(inputs_of: Callable[..., Tensor], dtype: Any) -> None:
    """Any number of them, also none, is on the way to a layer of this dtype."""
    layers = [nn.Flatten(), nn.Linear(4, 3, rng=0).to(dtype=dtype)]
    table = nn.Sequential(nn.Sequential(nn.TokenEmbedding(7, 4, 5, rng=0)), *layers).to(dtype=dtype)
    for n in (0, 4):
        x, k = inputs_of(layers, (2, 3), n), inputs_of([table], (5,), n)
        expected = ((n, 2, 3), np.dtype(dtype), (n, 5), np.dtype(np.int64))
        assert (x.shape, x.dtype, k.shape, k.dtype) == expected
        assert ((x.data >= 0) & (x.data < 1)).all() and not k.data.any()


def a_net_takes_its_own_data(net: Net, dtype: Any) -> None:
    """Two samples, prepared in this dtype, are like the net's sample, and have a loss in it."""
    data = net.prepare(net.data().train[:2], dtype)
    kind = np.dtype(np.int64 if "length" in net.sizes else dtype)
    assert (data.x.shape[1:], data.x.dtype) == (net.sample, kind), data
    assert net.data().name in net.datasets
    loss = net.loss(net.build(np.random.default_rng(0)).to(dtype=dtype)(Tensor(data.x)), data.y)
    assert loss.shape == () and loss.dtype == dtype and loss.item() > 0
