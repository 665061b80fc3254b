"""Laws of backends/placement.py, backends/data_parallel/, backends/model_parallel/ and backends/pipeline/:
`train` and `eval` set the mode of a module and of all inside, whatever tape is open.
"""

from functools import partial

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel import Bucketed, DataParallel, Sharded
from backends.model_parallel import ModelParallel
from backends.pipeline import LayerWise, Pipeline
from minigrad import Tensor, nn, ops
from minigrad.serial import Serial
from tests.nets import batches_of

STRATEGIES = {
    "replicated": DataParallel,
    "bucketed": Bucketed,
    "sharded": partial(Sharded, stage=3),
    "split": lambda comm: ModelParallel(comm, {"0": "column", "4": "row", "6": "classes"}),
    "layers": LayerWise,
    "pipeline": partial(Pipeline, micro_batches=2),
    "recomputed": partial(Pipeline, micro_batches=2, recompute=True),
}


def build(rank):
    rng = np.random.default_rng(rank)
    layers = nn.Linear(4, 6, rng=rng), nn.BatchNorm(6), nn.Tanh(), nn.Dropout(0.5, rng=rng)
    return nn.Sequential(*layers, nn.Linear(6, 5, rng=rng), nn.ReLU(), nn.Linear(5, 3, rng=rng)).to(
        dtype=float
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_in_eval_mode_a_placed_model_gives_what_one_machine_does_and_changes_nothing(name):
    (batch,) = batches_of((8,))

    def work(comm):
        backend = STRATEGIES[name](comm)
        model = backend.place(build(comm.rank))
        backend.step(model, batch, ops.cross_entropy)
        backend.finalize(model)
        state = backend.state.full_parameters(model) | backend.state.full_state(model)
        model.eval()
        outputs = [model(Tensor(batch.x)).data for _ in range(2)]
        later = backend.state.full_parameters(model) | backend.state.full_state(model)
        assert all(np.array_equal(later[n], value) for n, value in state.items())
        return outputs, state

    for outputs, state in run_ranks(3, work):
        serial = build(0).eval()
        serial.load_state_dict(state)
        for y in outputs:
            np.testing.assert_allclose(y, serial(batch.x).data, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["replicated", "bucketed", "sharded", "split", "pipeline"])
def test_statistics_that_are_frozen_stay_where_ranks_train_the_rest(name):
    (batch,) = batches_of((8,))
    frozen = Serial()
    reference = build(0)
    reference.children()["1"].eval()
    reference.children()["3"].eval()
    frozen.step(reference, batch, ops.cross_entropy)

    def work(comm):
        backend = STRATEGIES[name](comm)
        model = build(comm.rank)
        model.children()["1"].eval()
        model.children()["3"].eval()
        model = backend.place(model)
        backend.step(model, batch, ops.cross_entropy)
        return backend.state.full_gradients(model), backend.state.full_state(model)

    for gradients, state in run_ranks(3, work):
        for n, value in frozen.state.full_state(reference).items():
            np.testing.assert_array_equal(state[n], value)
        for n, value in frozen.state.full_gradients(reference).items():
            assert value is not None and gradients[n] is not None
            np.testing.assert_allclose(gradients[n], value, rtol=0, atol=1e-12)
