"""Laws of backends/partition.py: layers are cut where the largest part is smallest, and costs are
measured without leaving a trace.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from backends.partition import costs_by_time, optimal
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from minigrad import Parameter, nn, op, ops, testing
from minigrad.data import Batch
from minigrad.device import to_host
from minigrad.tape import current_tape
from minigrad.testing import on_device
from tests.backends.partition_laws import every_way, largest_is_smallest, sums
from tests.bugs.mutant import mutant

costs_of_layers = st.lists(
    st.one_of(st.sampled_from([0, 0, 1]), st.integers(0, 20), st.floats(0, 9)), min_size=1, max_size=9
)


# Laws; each takes the function under test


@given(costs=costs_of_layers, data=st.data())
def test_the_largest_part_is_as_small_as_can_be(costs, data):
    largest_is_smallest(optimal, costs, data.draw(st.integers(1, len(costs))))


@given(costs=st.lists(st.integers(0, 1000), min_size=1, max_size=60), data=st.data())
def test_the_optimum_is_between_its_bounds(costs, data):
    parts = data.draw(st.integers(1, len(costs)))
    even = [i * len(costs) // parts for i in range(parts + 1)]
    least, most = max(sums(costs, optimal(costs, parts))), max(sums(costs, even))
    assert max(max(costs), Fraction(sum(costs), parts)) <= least <= most


@given(costs=st.lists(st.integers(1, 20), min_size=1, max_size=8), data=st.data())
def test_a_pipeline_of_optimal_stages_is_the_fastest(costs, data):
    """GPipe takes the sum of all stages, and m - 1 times the largest: no other bounds are better."""
    ranks, micros = data.draw(st.integers(1, len(costs))), data.draw(st.integers(1, 5))

    def makespan(bounds):
        times = [int(t) for t in sums(costs, bounds)]
        return simulate(SCHEDULES["gpipe"].of(ranks, micros), Costs(times, times)).makespan

    ways = [makespan(way) for way in every_way(len(costs), ranks)]
    assert makespan(optimal(costs, ranks)) == min(ways)


def test_sums_of_floats_are_exact():
    assert optimal([1e16, 1.0, 1.0, 1e16], 2) == [0, 2, 4]  # as floats 1e16 + 1 is 1e16
    assert optimal([1e-300, 1e300, 0.0], 3) == [0, 1, 2, 3]
    huge = np.iinfo(np.int64).max
    assert optimal(np.array([huge, huge, 1]), 2) == [0, 1, 3]
    assert optimal(np.array([0.5, 0.25, 0.25], np.float32), 2) == [0, 1, 3]


@pytest.mark.parametrize(
    ("costs", "parts", "message"),
    [
        ([1, 2, 3], 4, "3 layers can be cut into 1 to 3 parts, none of them empty; got 4 parts"),
        ([1, 2, 3], 0, "1 to 3 parts, none of them empty; got 0 parts"),
        ([1, -2], 1, "layer 1 costs -2; costs are finite numbers that are not negative"),
        ([math.nan], 1, "layer 0 costs nan"),
        ([1, 2, math.inf], 2, "layer 2 costs inf"),
    ],
)
def test_what_cannot_be_cut_is_refused(costs, parts, message):
    with pytest.raises(ValueError, match=message):
        optimal(costs, parts)


# What layers cost


class Clock:
    """A clock on which time passes where a layer says that it worked."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


@op
def worked(x, weight, *, spend):
    """x * weight: one unit of time forward, two for the gradient of x, one for that of the weight."""
    spend(1)
    return x * weight, (lambda g: spend(2) or g * weight, lambda g: spend(1) or g * x)


class Working(nn.Module):
    """Takes ``seconds`` for a unit, the first time a thousand, and in every fifth run fifty times as many."""

    def __init__(self, seconds, clock, diary):
        self.weight = Parameter(np.ones(3))
        self.seconds, self.clock, self.diary = seconds, clock, diary

    def forward(self, x):
        run = self.diary.count(self)
        self.diary.append(self)
        factor = 1000 if run == 0 else 50 if run % 5 == 0 else 1

        def spend(units):
            self.clock.now += units * factor * self.seconds

        return worked(x, self.weight, spend=spend)


def layers_cost_what_they_take(costs_by_time, seconds, repeats):
    """The median of forward and backward after a warm-up; the first layer's input needs no gradient."""
    clock, diary = Clock(), []
    model = nn.Sequential(*(Working(s, clock, diary) for s in seconds))

    def loss_fn(y, labels):
        assert labels.tolist() == [1, 2]
        clock.now += 100_000
        return (y * y).mean()

    batch = Batch(np.ones((2, 3)), np.array([1, 2]))
    expected = [(2 if i == 0 else 4) * s for i, s in enumerate(seconds)]
    assert costs_by_time(model, batch, repeats=repeats, clock=clock) == expected
    assert diary == (1 + repeats) * model.layers, "layers ran another number of times, or in another order"
    diary.clear()
    actual = costs_by_time(model, batch, loss_fn, repeats=repeats, clock=clock)
    assert actual == [*expected[:-1], expected[-1] + 100_000]


def measuring_leaves_no_trace(costs_by_time, seed):
    """Gradients, buffers, statistics and generators are what they were; every layer was in training."""
    rng = np.random.default_rng(seed)
    training, shapes = [], []

    class Noting(nn.ReLU):
        def forward(self, x):
            training.append(current_tape.get() is not None)
            shapes.append(x.shape)
            return super().forward(x)

    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, rng=rng), Noting(), nn.MaxPool2d(2), nn.BatchNorm(2), nn.Flatten(),
        nn.Dropout(0.5, rng=rng), nn.Linear(8, 3, rng=rng),
    ).to(device=testing.DEVICE)  # fmt: skip
    grads = [on_device(rng.normal(size=p.shape).astype(np.float32)) for p in model.parameters()]
    buffers = [on_device(np.zeros(p.shape, np.float32)) for p in model.parameters()]
    for p, grad, buffer in zip(model.parameters(), grads, buffers, strict=True):
        p.grad, p.grad_buffer = grad, buffer
    copies, state, drawn = [to_host(g).copy() for g in grads], model.state_dict(), rng.bit_generator.state
    images = Batch(on_device(rng.normal(size=(4, 1, 6, 6)).astype(np.float32)), on_device(np.arange(4) % 3))
    rng.bit_generator.state = drawn
    costs = costs_by_time(model, images, ops.cross_entropy, repeats=2)
    assert len(costs) == 7 and all(seconds >= 0 for seconds in costs)
    assert all(
        p.grad is g and p.grad_buffer is b for p, g, b in zip(model.parameters(), grads, buffers, strict=True)
    )
    assert all(np.array_equal(to_host(g), copy) for g, copy in zip(grads, copies, strict=True))
    assert not any(to_host(b).any() for b in buffers)
    assert rng.bit_generator.state == drawn, "the generator went on"
    for name, array in model.state_dict().items():
        assert np.array_equal(array, state[name]), f"{name} moved"
    assert training == [True] * 3
    assert shapes == [(4, 2, 4, 4)] * 3, "a layer ran out of its turn"


@given(seconds=st.lists(st.integers(1, 9), min_size=1, max_size=4), repeats=st.integers(1, 7))
def test_layers_cost_what_they_take(seconds, repeats):
    layers_cost_what_they_take(costs_by_time, seconds, repeats)


@given(seed=st.integers(0, 9))
def test_measuring_leaves_no_trace(seed):
    measuring_leaves_no_trace(costs_by_time, seed)


def test_layers_without_anything_to_train_are_measured_too():
    model = nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Embedding(3, 2, rng=np.random.default_rng(0)))
    assert len(costs_by_time(nn.Sequential(*model.layers[:2]), Batch(np.ones((2, 3)), np.zeros(2)))) == 2
    assert len(costs_by_time(nn.Sequential(model[2]), Batch(np.array([[0, 2]]), np.zeros(1)))) == 1


def test_no_repeats_are_refused():
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        costs_by_time(nn.Sequential(nn.Tanh()), Batch(np.ones((1, 1)), np.ones(1)), repeats=0)


# Each law turns red where it should

CUTS = {
    "parts may be empty": ("j in range(i + 1, n) if", "j in range(i, n) if"),
    "the last tie is taken": ("range(i + 1, n) if", "range(n - 1, i, -1) if"),
    "sums are compared, not the largest": ("[[max(ends[j] - ends[i], rest[j]) for",
                                           "[[ends[j] - ends[i] + rest[j] for"),
    "sums of floats are rounded": ("[int(fraction * unit)", "[float(fraction)"),
}  # fmt: skip

TIMES = {
    "the warm-up counts": ("times[1:]", "times"),
    "there is no warm-up": ("range(1 + repeats)", "range(repeats)"),
    "the mean, not the median": ("[median(", "[(lambda x: sum(x) / len(x))("),
    "inputs have no gradients": ('requires_grad=y.dtype.kind == "f"', "requires_grad=False"),
    "the loss counts everywhere": ("loss_fn if i == len(model) - 1 else None", "loss_fn"),
    "only forward": ("        tape.backward(end, 1.0)\n", "        pass\n"),
    "statistics and generators go on": ("with Replay(model):", "if True:"),
    "gradients are lost": ("p.grad, p.grad_buffer = grad, buffer", "p.grad_buffer = buffer"),
    "buffers are lost": ("p.grad, p.grad_buffer = grad, buffer", "p.grad = grad"),
    "buffers are used": ("p.grad = p.grad_buffer = None", "p.grad = None"),
    "gradients add up": ("p.grad = p.grad_buffer = None", "p.grad_buffer = None"),
}


@pytest.mark.parametrize("bug", CUTS)
def test_a_law_catches_a_cut_where(bug):
    broken = mutant("backends.partition", CUTS[bug]).optimal

    @settings(max_examples=500, phases=[Phase.generate], database=None)
    @given(costs=costs_of_layers, data=st.data())
    def check(costs, data):
        largest_is_smallest(broken, costs, data.draw(st.integers(1, len(costs))))

    with pytest.raises((AssertionError, StopIteration, RuntimeError, TypeError)):
        check()


@pytest.mark.parametrize("bug", TIMES)
def test_a_law_catches_a_measurement_where(bug):
    broken = mutant("backends.partition", TIMES[bug]).costs_by_time
    with pytest.raises((AssertionError, ValueError)):
        for repeats in (1, 5):
            layers_cost_what_they_take(broken, [3, 1, 2], repeats)
        measuring_leaves_no_trace(broken, 0)
