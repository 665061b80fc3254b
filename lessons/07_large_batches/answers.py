"""The answers to the questions on lesson 07, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from minigrad import Parameter, nn, ops, optim
from minigrad.data import Batch
from minigrad.lr_schedules import scaled_lr
from minigrad.train import fit


def next_step(make, rates):
    """The length of the first step after 40 steps at the first of two rates, by a gradient of 1."""
    w = Parameter(np.zeros(1))
    optimizer, before = make([w], rates[0]), 0.0
    for rate in np.repeat(rates, (40, 1)):
        optimizer.lr, w.grad, before = float(rate), np.ones(1), w.data.item()
        optimizer.step()
    return before - w.data.item()


def rising_rate(student):
    def lengths(rates):
        without = next_step(lambda w, lr: optim.HeavyBall(w, lr, momentum=0.9, corrected=False), rates)
        return without, next_step(lambda w, lr: optim.SGD(w, lr, momentum=0.9), rates)

    without, sgd = lengths(student.RATES)
    assert tuple(student.RATES) == (0.1, 1.0), (
        f"after the rates {student.RATES} the step is {without:.3f} long, SGD's {sgd:.3f}; let RATES "
        "be (0.1, 1.0)"
    )
    return (
        f"the step is {without:.2f} long, SGD's {sgd:.2f}: the velocity consists of steps at the rate 0.1, "
        "so the correction is needed in both directions; without it the steps follow the rate late"
    )


def shrinkage(k, decay, steps=64, rate=0.01):
    """By how much an epoch of ``steps`` / k steps without a gradient shrinks the weights, in percent."""
    w = Parameter(np.ones(1))
    optimizer = optim.SGD([w], k * rate, weight_decay=decay)
    for _ in range(steps // k):
        w.grad = np.zeros(1)
        optimizer.step()
    return 100 * (1 - w.data.item())


def decay_of_a_large_batch(student):
    k, decay = 8, 0.01
    before, after = shrinkage(1, decay), shrinkage(k, student.scaled_decay(decay, k))
    assert np.isclose(before, after, rtol=0.01), (
        f"your weight decay shrinks the weights by {after:.3f} % an epoch, and before it was {before:.3f} %"
    )
    times_k = shrinkage(k, k * decay)
    return (
        f"{after:.3f} % an epoch, as before; {k} times the decay gives {times_k:.3f} %: a step shrinks by "
        f"rate * decay, so {k} times the rate makes up for an eighth of the steps already"
    )


def ends_at(batch_size, samples=64):
    """Where w ends, which starts at 1, after an epoch by the linear scaling rule."""
    model = nn.Linear(1, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
    model.weight.data[...] = 1.0
    data = Batch(np.full((samples, 1), np.sqrt(0.5)), np.zeros((samples, 1)))
    optimizer = optim.SGD(model.parameters(), scaled_lr(0.1, batch_size, 1))
    fit(model, optimizer, ops.mse, data, batch_size=batch_size)
    return model.weight.data.item()


def end_of_the_rule(student):
    one, eight, mine = ends_at(1), ends_at(8), ends_at(student.SAMPLES_IN_A_BATCH)
    assert student.SAMPLES_IN_A_BATCH == 16, (
        f"batches of {student.SAMPLES_IN_A_BATCH} end at {mine:.2g} after 64 samples, batches of 8 at "
        f"{eight:.2g}; take 16"
    )
    far = ends_at(32)
    return (
        f"after 64 samples batches of 16 end at {mine:.3f}, of one at {one:.4f}, of 8 at {eight:.1e}: a step "
        f"multiplies w by 1 - 1.6 = -0.6, and only above 20 by less than -1 (32 samples: {far:.1f})"
    )


def whole_lars(student):
    rng = np.random.default_rng(0)
    for case in range(20):
        shape = tuple(rng.integers(1, 5, 1 + case % 3).tolist())
        lr, momentum, trust = 0.01 + rng.random(), rng.choice([0.0, 0.9]), 0.01 + rng.random()
        decay = float(rng.choice([0.0, 0.1]))
        w, v = rng.normal(size=shape) * (case != 7), np.zeros(shape)
        parameter = Parameter(w.copy())
        settings = {"momentum": momentum, "weight_decay": decay, "trust": trust}
        optimizer = optim.LARS([parameter], lr, **settings)
        for step in range(3):
            g = rng.normal(size=shape) * (case + step != 8)
            parameter.grad = g.copy()
            optimizer.step()
            w, v = student.lars(w, g, v, lr, momentum, decay, trust)
            assert np.allclose(w, parameter.data), (
                f"shape {shape}, lr {lr:.3f}, decay {decay}, trust {trust:.3f}, |g| = "
                f"{np.linalg.norm(g):.2f}: after step {step} your weights have the norm "
                f"{np.linalg.norm(w):.6f}, the library's {np.linalg.norm(parameter.data):.6f}"
            )
    w, g, zero = np.ones((2, 2)), rng.normal(size=(2, 2)), np.zeros((2, 2))
    small, large = (
        np.linalg.norm(student.lars(w, times * g, zero, 0.1, 0.9, 0.0, 1.0)[1]) for times in (1, 1000)
    )
    assert np.isclose(small, large)
    return (
        f"the step is {small:.2f} long with the loss and {large:.2f} with 1,000 times the loss: the rate is "
        "1,000 times smaller, the gradient as much longer; a bias has the rate lr, and its step does grow"
    )


LARS = """\
    norm_w, norm_g, rate = np.linalg.norm(w), np.linalg.norm(g), lr
    if w.ndim > 1 and norm_w > 0 and norm_g > 0:
        rate = lr * trust * norm_w / (norm_g + decay * norm_w)
    v = momentum * v + rate * (g + decay * w)
    return w - v, v
"""
QUESTIONS = [
    Question("c", rising_rate, (("RATES = (0.1, 0.01)", "RATES = (0.1, 1.0)"),)),
    Question("a", decay_of_a_large_batch, (("    return k * decay\n", "    return decay\n"),)),
    Question("b", end_of_the_rule, (("SAMPLES_IN_A_BATCH = 8", "SAMPLES_IN_A_BATCH = 16"),)),
    Question("c", whole_lars, (("    return w, v\n", LARS),)),
]
