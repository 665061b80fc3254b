"""Laws of minigrad/tokens.py, minigrad/ops/penalty.py: a batch that knows its documents, and layers with
penalties.
"""

import numpy as np

from minigrad import Tape, Tensor, nn, ops
from minigrad.data import Batch
from minigrad.forward_pass import current_pass
from minigrad.models import transformer
from minigrad.recompute import recomputed
from minigrad.tokens import Tokens
from minigrad.work import Work

SYMBOLS, LENGTH = 7, 12
loss_of_tokens = nn.CrossEntropyLoss(ignore_index=-1, class_axis=-1)


def rows_of_documents(lengths, seed):
    """A batch of documents of these lengths, one after the other in rows, and each (row, start, n)."""
    rows, places, start = 1, [], 0
    for n in lengths:
        if start + n > LENGTH:
            rows, start = rows + 1, 0
        places.append((rows - 1, start, n))
        start += n
    rng = np.random.default_rng(seed)
    x = rng.integers(0, SYMBOLS, (rows, LENGTH))
    position, document, y = np.zeros_like(x), np.full_like(x, -1), np.full_like(x, -1)
    for number, (row, start, n) in enumerate(places):
        position[row, start : start + n] = np.arange(n)
        document[row, start : start + n] = number
        y[row, start : start + n] = rng.integers(0, SYMBOLS, n)
    return Batch(x, y, tokens=Tokens(position, document)), places


def small_transformer(seed=0):
    model = transformer(
        np.random.default_rng(seed), symbols=SYMBOLS, length=LENGTH, width=8, heads=2, blocks=2
    )
    return model.to(dtype=np.float64)


def documents_are_alone(evaluate, lengths, seed):
    """``evaluate(model, batch)`` gives each document in a row the scores that it has in a row alone."""
    batch, places = rows_of_documents(lengths, seed)
    model = small_transformer(seed)
    scores = evaluate(model, batch)
    for row, start, n in places:
        part = slice(start, start + n)
        alone = model(Tensor(batch.x[row : row + 1, part])).data[0]
        np.testing.assert_allclose(scores[row, part], alone, rtol=0, atol=1e-13)


def trains_documents_alone(run, lengths, seed):
    """``run(work)`` of packed rows gives the loss and the gradients of all documents, each in its own row."""
    batch, places = rows_of_documents(lengths, seed)
    one, other = small_transformer(seed), small_transformer(seed)
    longest = max(lengths)
    x, y = np.zeros((len(places), longest), int), np.full((len(places), longest), -1)
    for i, (row, start, n) in enumerate(places):
        x[i, :n], y[i, :n] = batch.x[row, start : start + n], batch.y[row, start : start + n]
    with Tape() as tape:
        expected = loss_of_tokens(other(Tensor(x)), y)
    tape.backward(expected)
    loss = run(Work(one, batch, loss_of_tokens, step=0))
    assert abs(loss - expected.item()) < 1e-13
    for name, parameter in one.named_parameters().items():
        gradient = other.named_parameters()[name].grad
        error = np.abs(np.asarray(parameter.grad) - np.asarray(gradient)).max()
        assert error < 1e-13, f"{name} is off by {error:.1e}"


class Penalized(nn.Module):
    """Tokens times a weight, with the mean square of the weights times that of the tokens as a penalty."""

    def __init__(self, rng):
        self.weight = nn.Parameter(rng.normal(size=3))

    def forward(self, x):
        current, y = current_pass.get(), x * self.weight
        if current is None:
            return y
        penalty = ops.mean(y * y)
        current.penalties.append(penalty.data)
        return ops.with_penalty(y, penalty, weight=current.weight)


def penalties_are_terms_of_the_loss(run, weight, again, seed):
    """``run(work)`` has the loss and gradients of weight * (mean loss + penalties), also of a second run."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 3)), rng.integers(0, 3, 4)
    first, second = Penalized(rng), Penalized(rng)
    model = nn.Sequential(first, nn.Tanh(), second)
    loss = run(Work(recomputed(model, 2) if again else model, Batch(x, y), ops.cross_entropy, weight, step=0))
    gradients = [p.grad for p in model.parameters()]
    with Tape() as tape:
        a = Tensor(x) * first.weight
        b = ops.tanh(a) * second.weight
        expected = weight * (ops.cross_entropy(b, y) + ops.mean(a * a) + ops.mean(b * b))
    for parameter in model.parameters():
        parameter.grad = None
    tape.backward(expected)
    assert abs(loss - expected.item()) < 1e-14
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        error = np.abs(np.asarray(gradient) - np.asarray(parameter.grad)).max()
        assert error < 1e-14, f"Not equal: a gradient is off by {error:.1e}"


def evaluation(model, batch):
    """The scores of a batch, as evaluation computes them."""
    with batch.evaluation_pass(), nn.evaluation_mode(model):
        return model(Tensor(batch.x)).data
