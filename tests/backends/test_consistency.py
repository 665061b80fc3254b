"""Laws of backends/consistency.py: ranks that would not train the same thing are told so before they
start, with names and both sides.
"""

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.work import Work


def net(out=3, middle=4, dtype=np.float64, *, tied=False, frozen=False, layers=2):
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Linear(5, middle, rng=rng), *(nn.Linear(middle, middle, rng=rng) for _ in range(layers - 2)),
        nn.Linear(middle, out, rng=rng),
    )  # fmt: skip
    if tied:
        model.layers.insert(1, model[0])
    if frozen:
        vars(model[0])["bias"].requires_grad = False
    return model.to(dtype=dtype)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            {"out": 2},
            r"1.weight is float64\(3, 4\) on rank 0, float64\(2, 4\) on rank 2; build the same model",
        ),
        ({"middle": 6}, r"0.weight is float64\(4, 5\) on rank 0, float64\(6, 5\) on rank 2"),
        ({"dtype": np.float32}, r"0.weight is float64\(4, 5\) on rank 0, float32\(4, 5\) on rank 2"),
        ({"layers": 3}, r"1.weight is float64\(3, 4\) on rank 0, float64\(4, 4\) on rank 2"),
        ({"tied": True}, r"1.weight is float64\(3, 4\) on rank 0, tied to 0.weight on rank 2"),
        ({"frozen": True}, r"0.bias is float64\(4,\) on rank 0, float64\(4,\) \(frozen\) on rank 2"),
    ],
)
def test_different_models_are_refused_on_every_rank(other, words):
    errors = []

    def work(comm):
        try:
            DataParallel(comm).place(net(**(other if comm.rank == 2 else {})))
        except ValueError as error:
            errors.append(str(error))

    run_ranks(3, work)
    assert len(errors) == 3 and len(set(errors)) == 1
    with pytest.raises(ValueError, match=words):
        raise ValueError(errors[0])


def test_one_rank_that_lacks_a_parameter_is_refused():
    def work(comm):
        model = net()
        if comm.rank == 1:
            vars(model)["layers"].pop()
        DataParallel(comm).place(model)

    with pytest.raises(ValueError, match="1.weight is float64.* on rank 0, nothing of that name on rank 1"):
        run_ranks(2, work)


def test_different_settings_are_refused():
    def work(comm):
        DataParallel(comm, micro_batches=1 + comm.rank).place(net())

    with pytest.raises(
        ValueError, match="rank 0 has micro_batches = 1, rank 1 has 2; give all ranks the same"
    ):
        run_ranks(2, work)


def test_a_different_number_of_backwards_is_named():
    """One rank forgets a micro-batch in a loop of its own."""
    batch = Batch(np.ones((4, 5)), np.zeros(4, int))

    def work(comm):
        backend = DataParallel(comm)
        model = backend.place(net())
        for _ in range(2 if comm.rank == 0 else 1):
            backend.forward_backward(Work(model, batch, ops.cross_entropy, 0.25))
        backend.finish(model, 0.0)

    with pytest.raises(
        RuntimeError, match="rank 0 ran backward 2 times before this reduction, rank 1 1 times"
    ):
        run_ranks(2, work)


def test_a_backend_without_a_model_says_so():
    with pytest.raises(RuntimeError, match=r"no model yet; call model = backend.place\(model\) first"):
        run_ranks(1, lambda comm: DataParallel(comm).finish(net(), 0.0))


def test_a_model_with_nothing_to_train_is_refused():
    model = net()
    for parameter in model.parameters():
        parameter.requires_grad = False
    with pytest.raises(ValueError, match="no parameter to train; set requires_grad of some to True"):
        run_ranks(2, lambda comm: DataParallel(comm).place(model))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"micro_batches": 0}, "micro_batches must be at least 1, got 0"),
        ({"batch_norm": "global"}, "unknown batch_norm 'global'; choose one of ranks, synchronized"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        run_ranks(1, lambda comm: DataParallel(comm, **settings))
