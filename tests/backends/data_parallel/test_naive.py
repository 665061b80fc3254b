"""Laws of backends/data_parallel/naive.py: the slide's data parallelism trains like one machine."""

import inspect
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import NaiveDataParallel, naive
from backends.laws import trains_like_serial
from backends.registry import find_strategy
from minigrad import nn, ops, optim
from minigrad.serial import Serial
from minigrad.train import fit
from minigrad.traits import Traits
from tests.backends import hook_laws
from tests.bugs.mutant import mutant
from tests.nets import odd
from tests.nets import small_images_of as batches_of


def plain(rng):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5, rng=rng), nn.Tanh(), nn.Linear(5, 3, rng=rng))


def law(strategy, ranks, sizes, build=plain, **settings):
    batches = batches_of(sizes)
    run_ranks(
        ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, **settings)
    )


@pytest.mark.parametrize("build", [plain, odd])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@settings(max_examples=settings().max_examples // 2)
@given(sizes=st.lists(st.integers(1, 13), min_size=1, max_size=3))
def test_trains_like_serial(build, ranks, sizes):
    law(NaiveDataParallel, ranks, sizes, build)


def test_one_rank_is_serial_bitwise():
    law(NaiveDataParallel, 1, [5, 2], serial=Serial(), bound=0.0)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@given(sizes=st.lists(st.integers(3, 13), min_size=1, max_size=3))
def test_the_hooks_alone_train_like_serial(ranks, sizes):
    hook_laws.the_hooks_alone_train_like_serial(ranks, batches_of(sizes), plain)


TRAITS = st.sets(st.sampled_from(sorted(vars(Traits()))))


@given(members=st.lists(TRAITS, min_size=1, max_size=4))
def test_traits_together_depart_where_one_does(members):
    hook_laws.traits_together_depart_where_one_does(members)


def test_the_hooks_alone_are_refused_where_more_is_asked_for():
    (batch,), model, alone = batches_of([4]), plain(np.random.default_rng(0)), cast(Any, hook_laws.SlideAlone)
    for use in (
        lambda comm: fit(model, optim.SGD(model.parameters(), 0.1), ops.mse, batch, backend=alone(comm)),
        lambda comm: trains_like_serial(alone, comm, plain, ops.cross_entropy, [batch]),
    ):
        with pytest.raises(TypeError, match="SlideAlone is no Strategy; derive it from minigrad.strategy"):
            run_ranks(1, use)


@pytest.mark.parametrize("ranks", [1, 3])
def test_gradients_of_several_steps_add_up(ranks):
    """Without ``zero_grad`` between them, as serially: what is summed already is not summed again."""

    def gradients(backend):
        model = backend.place(plain(np.random.default_rng(0)).to(dtype=np.float64))
        for batch in batches_of([7, 4]):
            backend.step(model, batch, ops.cross_entropy)
        return backend.state.full_gradients(model)

    alone = gradients(Serial())
    for of_rank in run_ranks(ranks, lambda comm: gradients(NaiveDataParallel(comm))):
        for name, g in alone.items():
            total = of_rank[name]
            assert g is not None and total is not None
            np.testing.assert_allclose(total, g, rtol=0, atol=1e-14 * np.abs(g).max())


BUGS = {
    "the model is not that of rank 0": ("        broadcast_model(self.comm, model)\n", ""),
    "every rank has the whole batch": ("batch[shares(len(batch), self.size)[self.rank]]", "batch"),
    "gradients are not summed": ("allreduce(self.comm, parameter.grad)", "parameter.grad"),
    "the loss is not summed": ("float(allreduce(self.comm, np.array(loss)))", "loss"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_the_law_catches(bug):
    with pytest.raises(AssertionError, match="of its scale on rank"):
        law(mutant("backends.data_parallel.naive", BUGS[bug]).NaiveDataParallel, 3, [13, 5])


def test_it_is_found_by_name_and_is_as_short_as_the_slide():
    assert find_strategy("naive") is NaiveDataParallel
    assert len(inspect.getsource(naive).splitlines()) <= 60
