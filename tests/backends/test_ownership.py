"""Laws of minigrad/strategy.py and placed_state.py: a backend owns one model, its parameters and the whole
batch, and says so where it is used otherwise.
"""

import re
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.comm.mpi_collectives import can_add
from backends.data_parallel import BackupWorkers, DataParallel
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.zero.sharded import Sharded
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from minigrad import Tensor, nn, ops, optim
from minigrad.serial import Serial
from tests.backends import ownership_laws
from tests.backends.ownership_laws import batch_of
from tests.backends.placed_often import STRATEGIES, plain, tied

RANKS = 2


def run(law, name):
    make, build = STRATEGIES[name]
    run_ranks(RANKS, lambda comm: law(make, comm, build))


def equal_serial():
    def equals(name):
        make, _ = STRATEGIES[name]
        return run_ranks(RANKS, lambda comm: make(comm).traits.equals_serial)[0]

    return [name for name in STRATEGIES if equals(name)]


@pytest.mark.parametrize("name", equal_serial())
def test_two_models_train_in_turns(name):
    run(ownership_laws.two_models_train_in_turns, name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_backend_trains_one_model(name):
    run(ownership_laws.a_backend_trains_one_model, name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_optimizer_does_not_step_alone(name):
    run(ownership_laws.the_optimizer_does_not_step_alone, name)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_saved_model_is_whole(name):
    run(ownership_laws.a_saved_model_is_whole, name)


@pytest.mark.parametrize("some", [slice(None), slice(1), slice(3), slice(1, None)])
def test_a_server_updates_what_its_optimizer_has(some):
    ownership_laws.a_server_updates_what_its_optimizer_has(some)


def is_collected(name):
    """Whether gradients go to one rank, which alone sees that batches differ."""
    make, _ = STRATEGIES[name]
    return isinstance(run_ranks(RANKS, make)[0], BackupWorkers | ParameterServer)


@pytest.mark.parametrize("n", [4, 6])
@pytest.mark.parametrize("name", [name for name in STRATEGIES if not is_collected(name)])
def test_other_batches_are_named(name, n):
    run(partial(ownership_laws.other_batches_are_named, n=n), name)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("staleness", [0, 1, None])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_server_names_workers_with_other_batches(servers, staleness, seed):
    make = partial(ParameterServer, servers=servers, staleness=staleness)
    text = ownership_laws.other_batches_are_seen_where_gradients_meet(make, servers + 2, 1, plain, seed)
    assert text.startswith(
        ("rank 0 was given another batch than rank 1;", "rank 1 was given another batch than rank 0;")
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backups", [0, 1])
def test_a_collector_names_workers_with_other_batches(backups, seed):
    make = partial(BackupWorkers, backups=backups)
    text = ownership_laws.other_batches_are_seen_where_gradients_meet(make, 4, 2, plain, seed)
    assert re.match("rank [123] was given another batch than rank [123]; pass the whole", text)
    assert "rank 2" in text


@pytest.mark.parametrize("make", [ParallelSGD, LocalSGD, DiLoCo, ElasticAveraging])
def test_averaged_models_may_have_local_batches(make):
    settings: dict[str, Any] = {"local_batches": True} | ({} if make is ParallelSGD else {"period": 9})
    law = ownership_laws.local_batches_are_trained_whole
    run_ranks(RANKS, lambda comm: law(partial(make, **settings), comm, plain))


@pytest.mark.parametrize("name", ["pipeline", "layer-wise", "model", "sharded 3"])
def test_a_placed_model_is_not_placed_again(name):
    made = {
        "pipeline": Pipeline,
        "layer-wise": LayerWise,
        "model": partial(ModelParallel, plan={"1": "column"}),
        "sharded 3": partial(Sharded, stage=3),
    }

    def work(comm):
        model = made[name](comm).place(plain(5))
        with pytest.raises(ValueError, match="the model was placed before"):
            made[name](comm).place(model)

    run_ranks(RANKS, work)


def test_what_is_whole_may_be_placed_again():
    def work(comm):
        model = plain(5)
        for make in (DataParallel, partial(Sharded, stage=1), DataParallel):
            backend = make(comm)
            model = backend.place(model)
            optimizer = optim.SGD(model.parameters(), 0.1)
            backend.step(model, batch_of(0), ops.cross_entropy)
            backend.update(model, optimizer)
            backend.close()

    run_ranks(RANKS, work)


def test_a_copy_of_a_placed_model_is_its_own():
    """A moving average of the weights needs such a copy; also where batch-norms gather from all ranks."""

    def work(comm):
        rng = np.random.default_rng(0)
        backend = DataParallel(comm, batch_norm="synchronized")
        model = backend.place(nn.Sequential(nn.Flatten(), nn.Linear(16, 5, rng=rng), nn.BatchNorm(5)))
        backend.step(model, batch_of(0), ops.cross_entropy)
        copied = deepcopy(model)
        optimizer = optim.SGD(copied.parameters(), 0.1)
        for p in copied.parameters():
            p.grad = np.ones_like(p.data)
        optimizer.step()
        before = model.state_dict()
        assert not np.array_equal(copied.state_dict()["1.weight"], before["1.weight"])
        backend.step(model, batch_of(1), ops.cross_entropy)
        return copied(Tensor(batch_of(2).x)).data.shape  # in training mode: all ranks call it

    assert run_ranks(RANKS, work) == [(6, 5)] * RANKS


def test_serial_trains_any_model_in_turns():
    backend = Serial()
    for model in (plain(5), plain(6), plain(5)):
        optimizer = optim.SGD(model.parameters(), 0.1)
        backend.step(model, batch_of(0), ops.cross_entropy)
        backend.update(model, optimizer)
        optimizer.step()


def test_serial_does_not_train_what_another_backend_holds():
    def work(comm):
        model = DataParallel(comm).place(plain(5))
        optimizer = optim.SGD(model.parameters(), 0.1)
        Serial().step(model, batch_of(0), ops.cross_entropy)
        with pytest.raises(RuntimeError, match="DataParallel updates these parameters"):
            Serial().update(model, optimizer)

    run_ranks(RANKS, work)


def test_the_whole_state_of_tied_weights_loads():
    """A weight of several names needs its first only."""

    def work(comm):
        backend = Pipeline(comm)
        model = backend.place(tied(16))
        whole = tied(16)
        for p in whole.parameters():
            p.data[...] = 0
        whole.load_state_dict(backend.state.full_parameters(model) | backend.state.full_state(model))
        for name, value in tied(16).state_dict().items():
            np.testing.assert_array_equal(whole.state_dict()[name], value, err_msg=name)

    run_ranks(RANKS, work)


def test_sums_by_mpi_name_bytes_in_another_order():
    assert can_add(np.dtype("float64")) and not can_add(np.dtype("float16"))
    with pytest.raises(ValueError, match=r"dtype >f8.*convert them with x.astype\("):
        can_add(np.dtype(np.float64).newbyteorder())
