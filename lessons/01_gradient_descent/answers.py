"""The answers to the questions on lesson 01, and the laws that show them."""

from itertools import combinations

import numpy as np
from minigrad_course.lesson.questions import Question

from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial
from minigrad.train import fit


def linear(w):
    """The model y = x w without a bias, in float64, with the weights ``w`` (d,)."""
    model = nn.Linear(len(w), 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
    model.weight.data[...] = w
    return model


def path(data, w, rate, steps):
    """The weights at the start and after each of ``steps`` batch steps, (steps + 1, d)."""
    model, places = linear(w), [np.array(w)]
    optimizer = optim.SGD(model.parameters(), rate)
    fit(
        model,
        optimizer,
        ops.mse,
        data,
        epochs=steps,
        on_step=lambda step, loss: places.append(model.weight.data[0].copy()),
    )
    return np.array(places)


def bytes_as_pixels(student):
    rng, factor = np.random.default_rng(0), 255
    x = rng.random((64, 2))
    y, start = x @ [[1.5], [-1.0]], np.array([0.0, 0.0])

    def limit(x):
        return 2 / np.linalg.eigvalsh(2 * x.T @ x / len(x)).max()

    rate = student.largest_rate(limit(x), factor)
    assert np.isclose(rate, limit(factor * x)), (
        f"your formula makes {rate:.2e} of {limit(x):.2f}, but rates above {limit(factor * x):.2e} diverge"
    )
    off = []
    for part in (0.99, 1.01):
        w = path(Batch(factor * x, y), start, part * rate, 400)[-1]
        off.append(np.abs(factor * w - [1.5, -1.0]).max())
    assert off[0] < 0.5 < 2.5 < off[1], f"1 % below and above {rate:.2e} the error is {off[0]} and {off[1]}"
    return (
        f"the largest rate falls from {limit(x):.2f} to {rate:.1e}, by {factor}²: the gradient grows by "
        f"{factor}, and the weights must become {factor} times smaller"
    )


def steps_to_1_percent(rate, at_most=500):
    """Batch steps on a bowl of curvatures 1 and 4 until both weights are right to 0.01, starting 1 away.

    Infinity where that does not happen.
    """
    bowl = Batch(np.array([[1.0, 0.0], [0.0, 2.0]]), np.zeros((2, 1)))
    try:
        far = np.abs(path(bowl, [1.0, 1.0], rate, at_most)).max(axis=1) >= 0.01
    except FloatingPointError:  # the loss left all bounds
        return np.inf
    return np.inf if far[-1] else int(far.sum())


def longer_steps(student):
    before, after = steps_to_1_percent(1.6 / 4), steps_to_1_percent(student.RATE)
    assert student.RATE == 1.9 / 4, (
        f"the rate is {student.RATE * 4:g} / 4, which takes {after} steps; let it be 1.9 / 4"
    )
    return (
        f"{after} steps instead of {before}: along the curvature 4 a step multiplies the error by -0.9, "
        "and before by -0.6: it jumps nearly as far up on the other side"
    )


def squared_error(size, n=8):
    """The gradient's squared error, a mean over all mini-batches of ``size`` of ``n`` samples."""
    rng = np.random.default_rng(0)
    data, model = Batch(rng.normal(size=(n, 3)), rng.normal(size=(n, 1))), linear(np.zeros(3))

    def gradient(batch):
        model.weight.grad = None
        with Tape() as tape:
            loss = ops.mse(model(Tensor(batch.x)), batch.y)
        tape.backward(loss)
        return model.weight.grad

    full = gradient(data)
    draws = [np.array(rows) for rows in combinations(range(n), size)]
    return np.mean([((gradient(data[rows]) - full) ** 2).sum() for rows in draws]), len(draws)


def more_samples(student):
    (of_2, _), (after, draws) = squared_error(2), squared_error(student.BATCH_SIZE)
    assert student.BATCH_SIZE == 4, (
        f"mini-batches of {student.BATCH_SIZE} have a squared error of {after:.3f}, and mini-batches of 2 "
        f"have {of_2:.3f}; let BATCH_SIZE be 4"
    )
    assert np.isclose(of_2 / after, 3)
    return (
        f"over all {draws} mini-batches it is {after:.3f} instead of {of_2:.3f}, a third: 1 / b halves it, "
        "and (n - b) / (n - 1) falls from 6/7 to 4/7, since no sample is drawn twice"
    )


def library_epoch(x, y, w, rate, momentum, size):
    """What ``epoch`` must return, by the library's model, tape and optimizer."""
    model = linear(w)
    optimizer, backend = optim.SGD(model.parameters(), rate, momentum=momentum), Serial()
    for first in range(0, len(x), size):
        optimizer.zero_grad()
        backend.step(model, Batch(x, y[:, None])[first : first + size], ops.mse)
        backend.update(model, optimizer)
    return model.weight.data[0]


def whole_epoch(student):
    rng = np.random.default_rng(1)
    for _ in range(20):
        n, d = rng.integers(1, 12), rng.integers(1, 4)
        x, y, w = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=d)
        settings = 0.1 * rng.random(), rng.choice([0.0, 0.5, 0.9]), int(rng.integers(1, 6))
        before, expected = w.copy(), library_epoch(x, y, w, *settings)
        result = np.asarray(student.epoch(x, y, w, *settings))
        rate, momentum, size = settings
        assert result.shape == (d,) and np.allclose(result, expected), (
            f"{n} samples in mini-batches of {size}, rate {rate:.3f}, momentum {momentum}: your epoch ends "
            f"at {result}, the library's at {expected}"
        )
        assert np.array_equal(w, before), f"your epoch has changed its argument w from {before} to {w}"
    moved = student.epoch(np.eye(10), np.ones(10), np.zeros(10), 0.1, 0.0, 4)
    assert np.allclose(moved, [0.05] * 8 + [0.1] * 2), f"ten samples move their weights by {moved}"
    return (
        f"a sample of a batch of 4 moves its weight by {moved[0]:.2f}, one of the last 2 by {moved[-1]:.2f}: "
        "a step is as long for a batch of 2, and only 2 samples share it"
    )


EPOCH = """\
    v = 0.0
    for first in range(0, len(x), size):
        some_x, some_y = x[first : first + size], y[first : first + size]
        v = momentum * v + 2 * some_x.T @ (some_x @ w - some_y) / len(some_x)
        w = w - rate * v
    return w
"""
QUESTIONS = [
    Question("c", bytes_as_pixels, (("    return rate\n", "    return rate / factor**2\n"),)),
    Question("a", longer_steps, (("RATE = 1.6 / 4", "RATE = 1.9 / 4"),)),
    Question("c", more_samples, (("BATCH_SIZE = 2", "BATCH_SIZE = 4"),)),
    Question("b", whole_epoch, (("    return w\n", EPOCH),)),
]
