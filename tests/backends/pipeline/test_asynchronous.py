"""Laws of backends/pipeline/asynchronous.py: pipelines without a flush equal serial loops with older
weights, bit for bit; without a stash none.
"""

from itertools import product

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives.link import Link
from backends.comm.collectives.send_recv import Tag
from backends.comm.trace import Traced
from backends.laws import bound_for
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.asynchronous import LOSS_TAG, AsynchronousPipeline
from backends.pipeline.layer_wise import LayerWise
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.op import op
from minigrad.serial import Serial
from minigrad.train import fit
from tests.backends.pipeline.stale_training import (
    OPTIMIZERS,
    SEEN,
    TRAINED,
    WIDTHS,
    batches_of,
    build,
    copies,
    law,
    plain,
    same,
    train_one_batch_late,
    train_stale,
)


@st.composite
def bounds_of(draw, ranks):
    """Any bounds that leave every rank a trained layer."""
    firsts = sorted(draw(st.sets(st.sampled_from(range(1, 5)), min_size=ranks - 1, max_size=ranks - 1)))
    return (0, *(TRAINED[i] - draw(st.integers(0, 1)) for i in firsts), 9)


SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=9)


@pytest.mark.parametrize("versions", SEEN)
@given(data=st.data(), ranks=st.integers(1, 5), sizes=SIZES, optimizer=st.sampled_from(sorted(OPTIMIZERS)))
def test_trains_as_the_serial_loop_with_the_weights_of_its_rule(versions, data, ranks, sizes, optimizer):
    law(
        versions,
        ranks,
        build=data.draw(st.sampled_from([plain, build])),
        sizes=sizes,
        optimizer=optimizer,
        bounds=data.draw(bounds_of(ranks)),
        extra=data.draw(st.integers(0, 3)),
        look=data.draw(st.integers(0, 8)),
        rendezvous=data.draw(st.booleans()),
        seed=data.draw(st.none() | st.integers(0, 99)),
    )


@pytest.mark.parametrize("versions", SEEN)
def test_an_update_has_the_learning_rate_of_its_own_step(versions):
    law(versions, sizes=[4] * 8, rates=[0.1 * (t + 1) for t in range(8)])


@settings(max_examples=settings().max_examples // 2)
@given(
    versions=st.sampled_from(sorted(SEEN)),
    ranks=st.integers(1, 4),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    drains=st.sets(st.integers(1, 7)).map(sorted),
    seed=st.none() | st.integers(0, 99),
)
def test_a_drained_pipeline_begins_anew(versions, ranks, optimizer, drains, seed):
    """From the weights and the optimizer's state that all batches have led to; the rate is that step's."""
    rates = [0.02 * (t + 1) for t in range(8)]
    law(
        versions,
        ranks,
        sizes=[4, 2, 4, 3, 4, 4, 1, 4],
        optimizer=optimizer,
        drains=drains,
        rates=rates,
        seed=seed,
    )


@given(
    ranks=st.integers(2, 5),
    extra=st.integers(0, 3),
    sizes=SIZES,
    optimizer=st.sampled_from(["sgd", "momentum"]),
)
def test_2bw_is_serial_training_with_gradients_one_batch_late(ranks, extra, sizes, optimizer):
    batches, make, m = batches_of(sizes), OPTIMIZERS[optimizer], ranks + extra
    expected = train_one_batch_late(plain, batches, make, micros=m)

    def work(comm):
        backend = AsynchronousPipeline(comm, versions="2bw", micro_batches=m, stale_rate="naive")
        model = backend.place(plain(np.random.default_rng(0)))
        fit_on(model, make(model.parameters()), batches, backend)
        return backend.state.full_parameters(model)

    for actual in run_ranks(ranks, work):
        for name, value in expected[-1].items():
            same(actual[name], value, name)


def fit_on(model, method, batches, backend):
    losses = []
    for batch in batches:
        method.zero_grad()
        losses.append(backend.step(model, batch, ops.cross_entropy))
        backend.update(model, method)
    backend.finalize(model)
    return losses


@pytest.mark.parametrize("versions", [*SEEN, "no_stash"])
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_one_rank_trains_like_serial(versions, optimizer, sizes=(4, 1, 5, 4)):
    m = 3 if versions == "2bw" else 1
    batches, reference, method = batches_of(sizes), build(np.random.default_rng(0)), OPTIMIZERS[optimizer]
    expected = fit_on(reference, method(reference.parameters()), batches, Serial(m))

    def work(comm):
        backend = AsynchronousPipeline(comm, versions=versions, micro_batches=m)
        model = backend.place(build(np.random.default_rng(0)))
        assert fit_on(model, method(model.parameters()), batches, backend) == expected
        return model.state_dict()

    for name, value in run_ranks(1, work)[0].items():
        same(value, reference.state_dict()[name], name)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("versions", SEEN)
def test_versions_held_and_staleness(versions, ranks):
    steps = 2 * ranks + 2
    for s, backend in enumerate(law(versions, ranks, build=plain, sizes=[4] * steps)):
        behind = {"stashing": ranks - 1 - s, "vertical": ranks - 1, "2bw": int(ranks > 1)}[versions]
        versions_of_stage = {"stashing": ranks - s, "vertical": ranks, "2bw": min(2, ranks - s)}[versions]
        assert backend.versions_held == versions_of_stage
        expected = [min(t, behind) for t in range(steps)]  # the first batches find the first weights
        assert sorted(backend.staleness.elements()) == sorted(expected)


def test_a_pipeline_can_be_concluded_and_go_on():
    """Concluding empties it; what follows begins with a warm-up again, from the weights that there are."""
    batches, make = batches_of([4] * 5), OPTIMIZERS["sgd"]
    first = train_stale("stashing", (0, 4, 9), plain, batches, make)

    def trained(_):
        model = plain(np.random.default_rng(0))
        model.load_state_dict(first.state)
        return model

    second = train_stale("stashing", (0, 4, 9), trained, batches, make)

    def work(comm):
        backend = AsynchronousPipeline(comm, (0, 4, 9))
        model = backend.place(plain(np.random.default_rng(0)))
        method = make(model.parameters())
        fit_on(model, method, batches, backend)
        fit_on(model, method, batches, backend)
        return backend.state.full_parameters(model)

    for name, value in run_ranks(2, work)[0].items():
        same(value, second.state[name], name)


def test_2bw_clips_by_the_norm_of_the_whole_gradient():
    def make(p):
        return optim.SGD(p, 0.5).clipped(0.05)

    batches = batches_of([4] * 5)
    expected = train_one_batch_late(plain, batches, make, micros=3)[-1]

    def work(comm):
        backend = AsynchronousPipeline(comm, versions="2bw", stale_rate="naive")
        model = backend.place(plain(np.random.default_rng(0)))
        fit_on(model, make(model.parameters()), batches, backend)
        return backend.state.full_parameters(model)

    for name, value in run_ranks(3, work)[1].items():  # the squares are summed in another order
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=bound_for(np.float64))


# What overwritten weights compute


def distance_from_any_gradient(versions):
    """How far stage 0's gradients are from those at any weights that there were, relative to these."""
    ranks, bounds, batches = 3, (0, 4, 6, 9), batches_of([4] * 6)

    def work(comm):
        backend = AsynchronousPipeline(comm, bounds, versions=versions)
        model = backend.place(plain(np.random.default_rng(0)))
        method = OPTIMIZERS["sgd"](model.parameters())
        weights, gradients = [copies(model.named_parameters())], {}
        for t, batch in enumerate(batches):
            method.zero_grad()
            backend.step(model, batch, ops.cross_entropy)
            gradients[t - backend.behind] = model.parameters()[0].grad
            backend.update(model, method)
            if t >= backend.behind:
                weights.append(copies(model.named_parameters()))
        backend.finalize(model)
        return weights, gradients

    results = run_ranks(ranks, work)
    serial, distances = plain(np.random.default_rng(0)), []
    first = serial.parameters()[0]
    for t in (2, 3):
        applied, nearest = results[0][1][t], np.inf
        for choice in product(range(4), repeat=ranks):
            mixed = {
                n: w for (weights, _), v in zip(results, choice, strict=True) for n, w in weights[v].items()
            }
            serial.load_state_dict(mixed)
            first.grad = None
            Serial().step(serial, batches[t], ops.cross_entropy)
            assert first.grad is not None
            nearest = min(nearest, np.abs(applied - first.grad).max() / np.abs(first.grad).max())
        distances.append(nearest)
    return min(distances)


def test_live_weights_compute_the_gradient_of_nothing():
    assert distance_from_any_gradient("stashing") == 0
    assert distance_from_any_gradient("no_stash") > 1e-3
    with pytest.raises(AssertionError, match="the gradient of"):
        law("stashing", 3, lambda comm, bounds, **_: AsynchronousPipeline(comm, bounds, versions="no_stash"))


# Messages and time


@settings(max_examples=10)
@given(versions=st.sampled_from([*SEEN, "no_stash"]), ranks=st.integers(2, 4), steps=st.integers(1, 6))
def test_one_activation_and_one_gradient_for_each_boundary_and_micro_batch(versions, ranks, steps):
    def work(comm):
        traced = Traced(comm)
        backend = AsynchronousPipeline(traced, versions=versions)
        model = backend.place(plain(np.random.default_rng(0)))
        before = len(traced.record.spans)
        fit_on(model, OPTIMIZERS["sgd"](model.parameters()), batches_of([5] * steps), backend)
        return traced.record.spans[before:], backend

    for s, (spans, backend) in enumerate(run_ranks(ranks, work)):
        width = [WIDTHS[(bound + 1) // 2] for bound in backend.bounds or ()]
        sent = {}
        for span in spans:
            if span.what in ("send", "start_send"):
                messages, nbytes = sent.get((span.tag, span.peer), (0, 0))
                sent[span.tag, span.peer] = messages + 1, nbytes + span.bytes
        losses = {peer: counts for (tag, peer), counts in sent.items() if tag == LOSS_TAG}
        m = backend.micro_batches
        forward = {(Tag.FORWARD, s + 1): (steps * m, steps * 5 * 8 * width[s + 1])} if s < ranks - 1 else {}
        back = {(Tag.GRADIENT, s - 1): (steps * m, steps * 5 * 8 * width[s])} if s else {}
        assert {key: n for key, n in sent.items() if key[0] in (Tag.FORWARD, Tag.GRADIENT)} == forward | back
        assert losses == ({rank: (steps, steps * 8) for rank in range(s)} if s == ranks - 1 else {})
        names = [span.what for span in spans if span.what.startswith(("forward", "backward"))]
        assert sorted(names) == sorted(f"{w} {i}" for w in ("forward", "backward") for i in range(steps * m))


@op
def slow(x, *, comm):
    """Takes one second forward and two back."""
    comm.compute(1.0)

    def back(g):
        comm.compute(2.0)
        return g

    return x, (back,)


class Slow(nn.Module):
    def __init__(self, comm):
        self.comm, self.w = comm, nn.Parameter(np.ones(()))

    def forward(self, x):
        return slow(ops.multiply(x, self.w), comm=self.comm)


@pytest.mark.parametrize("versions", SEEN)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_no_rank_waits_once_the_pipeline_is_full(versions, p):
    def work(comm):
        backend = AsynchronousPipeline(comm, versions=versions)
        model = backend.place(nn.Sequential(*(Slow(comm) for _ in range(p))))
        fit_on(model, optim.SGD(model.parameters(), 0.1), batches_of([p] * 10), backend)
        return backend.micro_batches

    cluster = VirtualCluster(p, Link(0.0))
    m = cluster.run(work)[0]
    assert cluster.seconds == 3 * (10 * m + p - 1) + (p - 1)  # for the first loss all wait once


# What cannot be, and losses that are not finite


def tried(ranks=2, make=OPTIMIZERS["sgd"], wrap=lambda backend, comm: backend, **options):
    def work(comm):
        backend = wrap(AsynchronousPipeline(comm, **options), comm)
        model = backend.place(plain(np.random.default_rng(0)))
        fit_on(model, make(model.parameters()), batches_of([4, 4]), backend)

    run_ranks(ranks, work)


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("unknown versions 'old'; choose one of stashing, vertical, 2bw, no_stash", {"versions": "old"}),
        (
            r"2bw on 3 ranks needs at least 3 micro-batches.* got 2; pass micro_batches=3 or more",
            {"versions": "2bw", "micro_batches": 2, "ranks": 3},
        ),
        ("stashing updates after every batch.* got micro_batches=2; take smaller", {"micro_batches": 2}),
        ("micro_batches must be at least 1, got 0", {"micro_batches": 0}),
        (
            "vertical applies a batch's gradient stage by stage.*; train without clipping, or take",
            {"versions": "vertical", "make": lambda p: optim.SGD(p, 0.1).clipped(1.0)},
        ),
        ("rise from 0 to the 9 layers", {"bounds": (0, 0, 9)}),
        (
            "before a strategy inside of it could finish them; let it stand alone",
            {"wrap": lambda backend, comm: Stack(backend, ModelParallel(comm.split(comm.rank), {}))},
        ),
        (
            "updates parameters in its own way",
            {"wrap": lambda backend, comm: Stack(LayerWise(comm), backend)},
        ),
    ],
)
def test_what_cannot_be_is_refused(message, options):
    with pytest.raises(ValueError, match=message):
        tried(**options)


def test_ranks_with_different_rules_are_told():
    def work(comm):
        versions = ["stashing", "vertical"][comm.rank]
        AsynchronousPipeline(comm, versions=versions).place(plain(np.random.default_rng(0)))

    with pytest.raises(ValueError, match="rank 0 has versions = stashing, rank 1 has vertical"):
        run_ranks(2, work)


@pytest.mark.parametrize("versions", [*SEEN, "no_stash"])
@pytest.mark.parametrize("bad", range(6))
def test_a_loss_that_is_not_finite_ends_training_on_all_ranks(versions, bad):
    """Whichever batch it is: the first, or one that is back only when training is over."""
    x, y = np.zeros((24, 4)), np.zeros(24, int)
    order = np.random.default_rng([0, 0]).permutation(24)
    x[order[4 * bad]] = np.nan

    def work(comm):
        backend = AsynchronousPipeline(comm, versions=versions)
        model = backend.place(plain(np.random.default_rng(0)))
        method = OPTIMIZERS["sgd"](model.parameters())
        with pytest.raises(FloatingPointError) as caught:
            fit(model, method, ops.cross_entropy, Batch(x, y), backend=backend, batch_size=4)
        return str(caught.value), backend.late

    results = run_ranks(3, work)  # which complains of messages that nobody received
    assert len(set(results)) == 1
    step = bad if not bad or bad + results[0][1] > 5 else bad + results[0][1]
    assert f"the loss is nan at step {step}" in results[0][0]


def test_nothing_is_left_of_a_pipeline_that_took_no_step():
    def work(comm):
        backend = AsynchronousPipeline(comm)
        model = backend.place(plain(np.random.default_rng(0)))
        backend.finalize(model)
        return backend.state.full_parameters(model)

    for name, value in run_ranks(3, work)[2].items():
        same(value, plain(np.random.default_rng(0)).state_dict()[name], name)
