"""Laws of backends/data_parallel/zero/sharded.py and flat_parameter.py: whatever is sharded,
training is serial training, by every gradient and weight, on every rank.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import allgather, reduce_scatter
from backends.consistency import trained_parameters
from backends.data_parallel import DataParallel
from backends.data_parallel.flat import FlatLayout, buckets
from backends.data_parallel.zero.gathered_weights import group_by_owner
from backends.data_parallel.zero.sharded import Sharded
from minigrad import nn, ops
from minigrad.serial import Serial
from minigrad.tensor import Parameter
from minigrad.train import accuracy, fit
from minigrad.work import Work
from tests.backends.data_parallel.zero.sharded_laws import (
    OPTIMIZERS,
    STAGES,
    law,
    layers_in_another_order_are_named,
)
from tests.nets import Alternating, Reusing, convolutional, normalised
from tests.nets import small_images_of as batches_of

HOW = st.sampled_from([{}, {"rendezvous": True}, {"seed": 1}, {"seed": 2}])


@pytest.mark.parametrize("build", [Reusing, convolutional])
@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=settings().max_examples // 2)
@given(
    ranks=st.integers(1, 6),
    sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    micro_batches=st.integers(1, 3),
    bucket_bytes=st.sampled_from([1, 300, 1 << 20]),
    overlap=st.booleans(),
    prefetch=st.integers(0, 3),
    how=HOW,
    left_out=st.integers(0, 3),
)
def test_trains_like_serial(build, stage, ranks, sizes, **settings):
    law(Sharded, ranks, sizes, build, stage=stage, **settings)


@pytest.mark.parametrize("stage", STAGES)
@given(
    ranks=st.integers(1, 6),
    size=st.integers(1, 13),
    optimizer=st.sampled_from(["momentum", "adam", "clipped"]),
)
def test_trains_like_serial_in_single_precision(stage, ranks, size, optimizer):
    law(Sharded, ranks, [size, size], stage=stage, optimizer=optimizer, dtype=np.float32)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("overlap", [False, True])
def test_with_synchronized_batch_norm(stage, overlap):
    law(Sharded, 3, [7, 2], normalised, stage=stage, overlap=overlap, batch_norm="synchronized")


@pytest.mark.parametrize("stage", STAGES)
def test_a_layer_that_is_not_used_in_every_step(stage):
    law(Sharded, 2, [4, 4, 4, 4], Alternating, stage=stage, bucket_bytes=1, overlap=True)
    law(Sharded, 2, [4, 4, 4, 4], Alternating, stage=stage)


class Deepening(nn.Module):
    """Uses its layer three times, once, twice and so on: what comes next differs from the step before."""

    def __init__(self, rng):
        self.layer = nn.Linear(6, 6, rng=rng)
        self.turn = 0

    def forward(self, x):
        x = x.reshape(-1, 6)
        for _ in range((3, 1, 2)[self.turn % 3]):
            x = ops.tanh(self.layer(x))
        self.turn += 1
        return x


@pytest.mark.parametrize("overlap", [False, True])
def test_what_was_fetched_ahead_is_not_used_after_the_update(overlap):
    law(Sharded, 2, [4, 4, 4, 4], Deepening, stage=3, overlap=overlap)


class Silent(nn.Module):
    """Has a parameter and makes no use of it, nor of the tape."""

    def __init__(self, rng):
        self.weight = Parameter(rng.normal(size=4))

    def forward(self, x):
        return x.detach()


@pytest.mark.parametrize("stage", STAGES)
def test_a_layer_that_leads_nowhere_back(stage):
    law(
        Sharded,
        3,
        [4, 4],
        lambda rng: nn.Sequential(Silent(rng), nn.Flatten(), nn.Linear(6, 3, rng=rng)),
        stage=stage,
        overlap=True,
    )


# The same bits as replicated data parallelism that adds in the same order.


class SameOrder(DataParallel):
    """All-reduces what ``Sharded`` reduce-scatters, unit by unit around the same ring."""

    def units(self, model):
        return buckets(trained_parameters(model), 300)

    def finish(self, model, loss):
        grads = {}
        for unit in self.units(model):
            flat = FlatLayout(unit, self.size)
            whole = flat.pack([p.grad for p in unit])
            part = reduce_scatter(self.comm, [whole[part] for part in flat.parts])
            sums = flat.views(np.concatenate(allgather(self.comm, part)))
            grads.update(zip(unit, (g.copy() for g in sums), strict=True))
        loss = super().finish(model, loss)
        for p, g in grads.items():
            p.grad = None if p.grad is None else g
        return loss


class SameOrderByLayer(SameOrder):
    def units(self, model):
        return group_by_owner(model)


def trained_by(backend, optimizer, batches):
    """All gradients and parameters after every step."""
    model = backend.place(Reusing(np.random.default_rng(0)).to(dtype=np.float64))
    method = OPTIMIZERS[optimizer](model.parameters())
    results = []
    for batch in batches:
        method.zero_grad()
        backend.step(model, batch, ops.cross_entropy)
        results.extend(g.copy() for g in backend.state.full_gradients(model).values() if g is not None)
        backend.update(model, method)
        results.extend(p.copy() for p in backend.state.full_parameters(model).values())
    return results


def assert_same_bits(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("stage", STAGES)
@settings(max_examples=settings().max_examples // 2)
@given(
    ranks=st.integers(1, 6),
    optimizer=st.sampled_from(["momentum", "nesterov", "adam", "adamw", "adagrad", "rmsprop"]),
)
def test_the_same_bits_as_an_all_reduce_in_the_same_order(stage, ranks, optimizer):
    batches = batches_of([7, 3, 12])

    def compare(comm):
        same_order = SameOrderByLayer(comm) if stage == 3 else SameOrder(comm)
        sharded = trained_by(Sharded(comm, stage=stage, bucket_bytes=300), optimizer, batches)
        assert_same_bits(sharded, trained_by(same_order, optimizer, batches))
        if comm.size <= 2:  # a + b is b + a
            assert_same_bits(sharded, trained_by(DataParallel(comm), optimizer, batches))

    run_ranks(ranks, compare)


# Around the steps.


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("overlap", [False, True])
def test_all_ranks_can_evaluate_between_epochs_and_train_on_afterwards(stage, overlap):
    (data,) = batches_of([13])

    def train(backend):
        model = backend.place(convolutional(np.random.default_rng(0)).to(dtype=np.float64))
        method = OPTIMIZERS["momentum"](model.parameters())
        values = []
        for _ in range(2):  # the second time after finalize, with other weights
            if values:
                model.load_state_dict({name: value / 2 for name, value in model.state_dict().items()})
            fit(
                model,
                method,
                ops.cross_entropy,
                data,
                backend=backend,
                batch_size=4,
                epochs=3,
                on_epoch=lambda *_: values.append(accuracy(model, data)),
            )
        return values, model.state_dict()

    expected, serial = train(Serial())
    for values, state in run_ranks(3, lambda comm: train(Sharded(comm, stage=stage, overlap=overlap))):
        assert values == expected
        for name, value in serial.items():
            np.testing.assert_allclose(state[name], value, rtol=1e-11, atol=1e-13)


class Borrowing(nn.Module):
    """Uses the weight of a module that it does not call."""

    def __init__(self, rng):
        self.first = nn.Linear(6, 5, rng=rng)
        self.last = nn.Linear(5, 3, rng=rng)

    def forward(self, x):
        return ops.linear(ops.tanh(self.first(x.reshape(-1, 6))), self.last.weight)


def test_a_weight_used_outside_its_module_is_not_a_number():
    law(Sharded, 2, [4], Borrowing, stage=2)

    def train(comm):
        backend = Sharded(comm, stage=3)
        model = backend.place(Borrowing(np.random.default_rng(0)))
        return backend.step(model, batches_of([4])[0], ops.cross_entropy)

    assert np.isnan(run_ranks(2, train)).all()


class Giving(nn.Module):
    """Returns its parameter itself, which lies in memory that is given back."""

    def __init__(self, rng):
        self.bias = Parameter(rng.normal(size=(2, 3)))

    def forward(self, x):
        return self.bias[0] if x.data.sum() > -1e9 else x


class Given(nn.Module):
    def __init__(self, rng):
        self.linear = nn.Linear(6, 3, rng=rng)
        self.giving = Giving(rng)

    def forward(self, x):
        h = self.linear(x.reshape(-1, 6))
        return h + self.giving(h)


@pytest.mark.parametrize("stage", STAGES)
def test_a_module_may_return_its_parameter(stage):
    law(Sharded, 3, [7, 2], Given, stage=stage)


# Errors.


@pytest.mark.parametrize("width", [5, 8])
@pytest.mark.parametrize("same", [0, 2])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("other", [False, True])
def test_layers_in_another_order_are_named(ranks, overlap, same, width, other):
    layers_in_another_order_are_named(ranks, overlap, other, same, width)


def test_a_gradient_announced_twice_is_refused():
    def train(comm):
        backend = Sharded(comm, stage=2)
        model = backend.place(convolutional(np.random.default_rng(0)))
        (batch,) = batches_of([4])
        for _ in range(2):
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 0.25, backend.on_grad))

    with pytest.raises(RuntimeError, match=r"4.bias was announced twice in one step.*use micro_batches"):
        run_ranks(2, train)


def test_stage_1_adds_up_several_runs():
    def train(comm):
        backend = Sharded(comm, stage=1)
        model = backend.place(convolutional(np.random.default_rng(0)).to(dtype=np.float64))
        (batch,) = batches_of([4])
        loss = sum(
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 0.5 / comm.size, backend.on_grad))
            for _ in "ab"
        )
        return backend.finish(model, loss), backend.state.full_gradients(model)

    actual = run_ranks(2, train)
    (batch,) = batches_of([4])
    serial = convolutional(np.random.default_rng(0)).to(dtype=np.float64)
    expected = Serial().step(serial, batch, ops.cross_entropy)
    for loss, gradients in actual:
        assert loss == pytest.approx(expected, rel=1e-12)
        for name, g in Serial().state.full_gradients(serial).items():
            np.testing.assert_allclose(gradients[name], g, rtol=1e-11, atol=1e-13)  # pyright: ignore


class Two(nn.Module):
    def __init__(self, rng):
        self.linear = nn.Linear(6, 3, rng=rng)
        self.linear.forward = lambda x: (x, x)  # pyright: ignore

    def forward(self, x):
        return self.linear(x)


def test_a_layer_that_returns_something_else_is_refused():
    def train(comm):
        backend = Sharded(comm, stage=3)
        model = backend.place(Two(np.random.default_rng(0)))
        return backend.step(model, batches_of([4])[0], ops.cross_entropy)

    with pytest.raises(TypeError, match=r"in Linear\(6, 3\): forward returned tuple; .* use stage=2"):
        run_ranks(2, train)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="stage must be 1 .*, got 4"):
        run_ranks(1, lambda comm: Sharded(comm, stage=4))
    with pytest.raises(ValueError, match="bucket_bytes must be at least 1, got 0"):
        run_ranks(1, lambda comm: Sharded(comm, bucket_bytes=0))
    with pytest.raises(ValueError, match="prefetch must be .*, 0 or more, got -1"):
        run_ranks(1, lambda comm: Sharded(comm, stage=3, prefetch=-1))
    with pytest.raises(ValueError, match="rank 0 has prefetch = 0, rank 1 has 1"):
        run_ranks(2, lambda comm: Sharded(comm, prefetch=comm.rank).place(Reusing(np.random.default_rng(0))))
    with pytest.raises(ValueError, match="rank 0 has stage = 1, rank 1 has 2"):
        run_ranks(2, lambda comm: Sharded(comm, stage=comm.rank + 1).place(Reusing(np.random.default_rng(0))))
