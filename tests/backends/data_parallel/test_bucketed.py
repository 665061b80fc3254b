"""Laws of backends/data_parallel/bucketed.py and flat.py: buckets change when gradients travel, and
nothing else; each is the serial run's, on every rank.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import naive_allreduce, ring_allreduce
from backends.comm.mailboxes import Deadlock
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import PROGRESS, Bucketed
from backends.data_parallel.flat import buckets
from backends.laws import trains_like_serial
from minigrad import nn, ops, optim
from minigrad.work import Work, forward_backward_pass
from tests.backends.data_parallel.bucketed_laws import (
    Branching,
    one_size,
    processes_of_one_machine_do_what_the_replicated_form_does,
)
from tests.bugs.mutant import mutant
from tests.nets import Forked, convolutional, odd
from tests.nets import small_images_of as batches_of

EVERYTHING = 1 << 30
sizes_of_buckets = st.sampled_from([1, 40, 100, 200, 300, EVERYTHING])
batch_sizes = st.lists(st.integers(1, 13), min_size=1, max_size=3)


NETS = [Forked, convolutional, odd, Branching]


def law(strategy, ranks, sizes, build: Any = Forked, seed=0, world=run_ranks, **settings):
    batches = batches_of(sizes, seed)
    world(
        ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings)
    )


@pytest.mark.parametrize("build", NETS)
@given(
    ranks=st.integers(1, 6),
    sizes=batch_sizes,
    nbytes=sizes_of_buckets,
    first=sizes_of_buckets,
    progress=st.sampled_from(list(PROGRESS)),
    k=st.integers(1, 3),
)
def test_trains_like_serial(build, ranks, sizes, nbytes, first, progress, k):
    strategy = partial(
        Bucketed, bucket_bytes=nbytes, first_bucket_bytes=first, progress=progress, micro_batches=k
    )
    law(strategy, ranks, sizes, build)


@given(ranks=st.integers(1, 5), size=st.integers(1, 13), nbytes=sizes_of_buckets)
def test_trains_like_serial_in_single_precision(ranks, size, nbytes):
    law(one_size(nbytes), ranks, [size, size], dtype=np.float32)


@given(seed=st.integers(0, 99), rendezvous=st.booleans(), nbytes=sizes_of_buckets)
def test_trains_like_serial_in_any_interleaving(seed, rendezvous, nbytes):
    world = partial(run_ranks, seed=seed, rendezvous=rendezvous)
    law(one_size(nbytes, allreduce=ring_allreduce), 3, [5, 2], Branching, seed, world)


@given(ranks=st.integers(1, 4), sizes=batch_sizes, nbytes=sizes_of_buckets)
def test_layers_may_communicate_meanwhile(ranks, sizes, nbytes):
    def build(rng):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(6, 5, rng=rng), nn.BatchNorm(5), nn.LeakyReLU(), nn.Linear(5, 3, rng=rng)
        )

    law(one_size(nbytes, batch_norm="synchronized"), ranks, [2 + n for n in sizes], build)


@pytest.mark.parametrize("progress", PROGRESS)
@pytest.mark.parametrize("build", NETS)
@settings(max_examples=settings().max_examples // 4)  # of 20 cases
@given(ranks=st.integers(1, 5), sizes=batch_sizes, nbytes=sizes_of_buckets)
def test_any_buckets_are_the_replicated_form_bitwise(build, progress, ranks, sizes, nbytes):
    """With an all-reduce that adds in rank order."""

    def work(comm):
        runs = []
        for strategy in (DataParallel, one_size(nbytes, progress=progress)):
            backend = strategy(comm, naive_allreduce, micro_batches=2)
            model = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64))
            optimizer, losses = optim.SGD(model.parameters(), 0.1, momentum=0.9), []
            for batch in batches_of(sizes):
                optimizer.zero_grad()
                losses.append(backend.step(model, batch, ops.cross_entropy))
                losses += [None if p.grad is None else p.grad.copy() for p in model.parameters()]
                backend.update(model, optimizer)
                losses += [p.data.copy() for p in model.parameters()]
            runs.append(losses)
        for a, b in zip(*runs, strict=True):
            np.testing.assert_array_equal(a, b)

    run_ranks(ranks, work)


@given(ranks=st.integers(1, 5), nbytes=sizes_of_buckets, build=st.sampled_from(NETS))
def test_a_step_sends_one_message_a_bucket_and_the_report_with_the_last(ranks, nbytes, build):
    def work(comm):
        traced = Traced(comm)
        backend = one_size(nbytes)(traced, naive_allreduce)
        model = backend.place(build(np.random.default_rng(0)).to(dtype=np.float64))
        before = traced.record.ledger.sent()
        backend.step(model, batches_of([7])[0], ops.cross_entropy)
        sent = traced.record.ledger.sent()
        trained = [p for p in model.parameters() if p.requires_grad]
        report = 2 + ranks + len(trained)
        assert sent.messages - before.messages == len(buckets(trained, nbytes)) * (ranks - 1)
        assert sent.bytes - before.bytes == 8 * (sum(p.size for p in trained) + report) * (ranks - 1)

    run_ranks(ranks, work)


@given(nodes=st.lists(st.integers(0, 1), min_size=1, max_size=4))
def test_processes_of_one_machine_do_what_the_replicated_form_does(nodes):
    processes_of_one_machine_do_what_the_replicated_form_does(nodes)


# Errors


def test_ranks_that_chose_different_buckets_are_told():
    with pytest.raises(ValueError, match="rank 0 has bucket_bytes = 100, rank 1 has 200; give all ranks"):
        run_ranks(
            2, lambda comm: one_size(100 + 100 * comm.rank)(comm).place(Forked(np.random.default_rng(0)))
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"progress": "magic"}, "unknown progress 'magic'; choose one of auto, thread, test, none, blocking"),
        ({"bucket_bytes": 0}, "bucket_bytes must be at least 1, got 0"),
        ({"first_bucket_bytes": -1}, "first_bucket_bytes must be at least 1, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(1, lambda comm: Bucketed(comm, **settings))


def test_a_gradient_announced_twice_is_named():
    def work(comm):
        backend = one_size(1)(comm)
        model = backend.place(Forked(np.random.default_rng(0)).to(dtype=np.float64))
        batch = batches_of([4])[0]
        for _ in range(2):
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 0.25, backend.on_grad))

    with pytest.raises(
        RuntimeError, match=r"rank \d: last\.\w+ was announced twice in one step.*micro_batches"
    ):
        run_ranks(2, work)


def test_backwards_that_differ_between_ranks_are_named():
    def work(comm):
        backend = one_size(1)(comm)
        model = backend.place(Forked(np.random.default_rng(0)).to(dtype=np.float64))
        batch = batches_of([4])[0]
        for _ in range(comm.rank):
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 0.25))
        backend.finish(model, 0.0)

    with pytest.raises(
        RuntimeError, match="rank 0 ran backward 0 times before this reduction, rank 1 1 times"
    ):
        run_ranks(2, work)


def test_a_step_before_place_says_what_to_do():
    with pytest.raises(RuntimeError, match=r"call model = backend.place\(model\) first"):
        run_ranks(1, lambda comm: Bucketed(comm).finish(Forked(np.random.default_rng(0)), 0.0))


# Seeded bugs


class ForgetsEarlierMicroBatches(Bucketed):
    """Each backward overwrites what the one before left."""

    def forward_backward(self, work, inner=forward_backward_pass):
        parts = work.split(2).values()
        losses = []
        for part in parts:
            for p in work.model.parameters():
                p.grad = None
            losses.append(super().forward_backward(part, inner))
        return sum(losses)


def changed(*changes, **settings):
    """A copy of the source with changes; blocking, so that what is sent too early is sent at once."""
    module = mutant("backends.data_parallel.bucketed", *changes)
    defaults = {"bucket_bytes": 200, "first_bucket_bytes": 200, "progress": "blocking"}
    return partial(module.Bucketed, **{**defaults, **settings})


def finishing(*changes, **settings):
    """The end of a step, which ``Bucketed`` has from ``DataParallel``, with changes."""
    finish = mutant("backends.data_parallel.data_parallel", *changes).DataParallel.finish
    return partial(type("Changed", (Bucketed,), {"finish": finish}), bucket_bytes=200, **settings)


BUGS = {
    "a bucket is sent before its last gradient": changed(
        ("and not self.waiting[0].missing:", "and len(self.waiting[0].missing) < 2:")
    ),
    "a gradient of an earlier micro-batch is overwritten": partial(
        ForgetsEarlierMicroBatches, bucket_bytes=200
    ),
    "the gradient of an unused parameter is the step before's": finishing(
        ("bucket.fill(bucket.missing)", "bucket.fill([p for p in bucket.missing if p.grad is not None])")
    ),
    "what only an earlier micro-batch reached is dropped": finishing(
        ("bucket.fill(bucket.missing)", "[bucket.views[p].fill(0) for p in bucket.missing]"), micro_batches=3
    ),
    "buckets are sent in the order they are filled": changed(
        (
            "while len(self.waiting) > 1 and not self.waiting[0].missing:",
            "if self.buckets[-1] is not bucket:",
        ),
        (
            "            self.send(self.waiting.popleft())\n        self.poll",
            "            self.waiting.remove(bucket)\n            self.send(bucket)\n        self.poll",
        ),
        bucket_bytes=1,
        first_bucket_bytes=1,
    ),
    "a parameter that nobody reached has a gradient": finishing((" if parameter in reached else None", "")),
}


MANY = [9, 8, 9, 7, 9, 9]  # steps, in some of which some rank takes the branch and another does not


@pytest.mark.parametrize("build", [Branching, Forked])
def test_without_a_bug_the_copy_trains_like_serial(build):
    for strategy in (changed(), changed(micro_batches=3), changed(bucket_bytes=1)):
        law(strategy, 3, MANY, build)


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.timeout(60)
def test_the_law_catches(bug):
    caught = "of its scale on rank|deadlock|rank . sent .* expected"
    with pytest.raises((AssertionError, Deadlock, ValueError), match=caught):
        for build in (Branching, Forked):
            law(BUGS[bug], 3, MANY, build)
