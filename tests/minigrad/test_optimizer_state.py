"""Laws of minigrad/optim.py: ``state_dict`` and ``load_state_dict`` of all optimizers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from minigrad import Parameter, nn, optim
from minigrad.serial import Serial
from tests import nets
from tests.minigrad.optimizer_state_laws import goes_on_with_the_same_bits

MAKE = {
    **{name: lambda ps, kind=kind: kind(ps, 0.1) for name, kind in optim.OPTIMIZERS.items()},
    **nets.OPTIMIZERS,
}


@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=settings().max_examples // 5)
@given(k=st.integers(0, 4), more=st.integers(1, 3))
def test_the_resumed_optimizer_has_the_bits_of_the_undisturbed_one(name, k, more):
    goes_on_with_the_same_bits(MAKE[name], k, k + more)


def test_master_weights_and_their_loss_scale_go_on():
    def make(parameters):
        return optim.Adam(parameters, 0.1).with_master_weights()

    goes_on_with_the_same_bits(make, 3, 5, np.float16)
    ps = [Parameter(np.ones(2, np.float16))]
    first, second = make(ps), make(ps)
    ps[0].grad = np.array([np.inf, 1], np.float16)
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.loss_scale == first.loss_scale and second.skipped_steps == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda ps: optim.SGD(ps, 0.1),
        lambda ps: optim.Adam(ps[:1], 0.1),
        lambda ps: optim.Adam(ps[::-1], 0.1),
        lambda ps: optim.Adam([{"params": ps[:1]}, {"params": ps[1:]}], 0.1),
        lambda ps: optim.Adam(ps, 0.1).clipped(1.0),
        lambda ps: optim.Adam(ps, 0.1).with_master_weights("bfloat16"),
    ],
)
def test_the_state_of_another_optimizer_is_refused(other):
    first = optim.Adam([Parameter(np.ones(n, np.float32)) for n in (2, 3)], 0.1)
    for parameter in first.parameters:
        parameter.grad = np.ones_like(parameter.data)
    first.step()
    second = other([Parameter(np.ones(n, np.float32)) for n in (2, 3)])
    before = repr(second.state), second.lr
    for state in (first.state_dict(), {}, {"state": {}, "param_groups": [{"params": [0, 1]}]}):
        with pytest.raises(ValueError, match="the state is another optimizer's"):
            second.load_state_dict(state)
    assert before == (repr(second.state), second.lr)


def test_ranks_are_told_to_write_a_checkpoint():
    def work(comm):
        backend = DataParallel(comm)
        model = backend.place(nn.Linear(2, 2, rng=0))
        optimizer = optim.Adam(model.parameters(), 0.1)
        for call in (optimizer.state_dict, lambda: optimizer.load_state_dict({})):
            with pytest.raises(
                RuntimeError, match="DataParallel updates these parameters: let backends.checkpoint"
            ):
                call()
        backend.close()
        return len(optimizer.state_dict()["state"])

    assert run_ranks(2, work) == [2, 2]
    assert optim.Adam(Serial().place(nn.Linear(2, 2, rng=0)).parameters(), 0.1).state_dict()
