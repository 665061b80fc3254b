"""The answers to the questions on lesson 09, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import run_ranks
from backends.comm.collectives import allreduce
from backends.data_parallel.averaging import ElasticAveraging, LocalSGD, ParallelSGD
from minigrad import Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.train import fit


def averaged_output(order, x=3.0):
    """The output of the averaged network for ``x``; rank 1 has its neurons in this ``order``."""
    right = Batch(np.array([[1.0], [-2.0]]), np.array([[1.0], [-2.0]]))

    def work(comm):
        rng, neurons = np.random.default_rng(0), order if comm.rank == 1 else [0, 1]
        model = nn.Sequential(
            nn.Linear(1, 2, bias=False, rng=rng), nn.ReLU(), nn.Linear(2, 1, bias=False, rng=rng)
        ).to(dtype=np.float64)
        model[0].weight.data[:, 0] = np.array([1.0, -1.0])[neurons]
        model[2].weight.data[0] = np.array([1.0, -1.0])[neurons]
        backend = ParallelSGD(comm, same_start=False)
        model = backend.place(model)
        fit(model, optim.SGD(model.parameters(), 0.1), ops.mse, right, backend=backend)
        return model(Tensor(np.array([[x]]))).item()

    return run_ranks(2, work)[0]


def other_order(student):
    order = list(student.ORDER_ON_RANK_1)
    y = averaged_output(order)
    assert order == [1, 0], f"with the order {order} the mean's output for 3 is {y:g}; take [1, 0]"
    return (
        f"the mean's output for 3 is {y:g}: the weights 1 and -1 of the first neurons have the mean 0, and "
        "so have the second neurons'. Hidden neurons have no order: equal networks may have other weights"
    )


def weight_after(period, steps=640):
    """Local SGD of one weight on two ranks, each with one sample."""
    samples = Batch(np.array([[1.0], [2.0]]), np.array([[0.0], [2.0]]))  # rank 0 has the first one

    def work(comm):
        backend = LocalSGD(comm, period=period)
        model = nn.Linear(1, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
        model = backend.place(model)
        fit(model, optim.SGD(model.parameters(), 0.05), ops.mse, samples, backend=backend, epochs=steps)
        return model.weight.data.item()

    return run_ranks(2, work)[0]


def rare_averages(student):
    period = student.PERIOD
    w = weight_after(period)
    assert period == 64, f"with a period of {period} they end at {w:.3f}; take 64"
    return (
        f"they end at {w:.3f}, with an average after every step at {weight_after(1):.3f}: in 64 steps "
        "each rank is at its own best weight, 0 or 1, and the mean does not depend on which loss is "
        "steeper"
    )


def distances(alpha, exchanges=6):
    """After each exchange, the mean of four models minus the center; no gradient moves them."""

    def work(comm):
        backend = ElasticAveraging(comm, alpha=alpha, period=1)
        model = nn.Linear(1, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
        model = backend.place(model)
        model.weight.data[...] += 1 + comm.rank - 1.5  # on average 1 from the center
        path = []
        for _ in range(exchanges):
            backend.exchange(model)
            path.append(allreduce(comm, model.weight.data / 4 - backend.center / 4).item())
        return path

    return run_ranks(4, work)[0]


def strong_spring(student):
    alpha = student.ALPHA
    path = distances(alpha)
    shown = ", ".join(f"{distance:.2f}" for distance in path)
    assert alpha == 0.6, f"with {alpha:g} the models are, on average, {shown} from the center; take 0.6"
    return (
        f"from a distance of 1 the models are, on average, {shown} from the center after each exchange: each "
        "goes 0.6 towards it, but it goes 4 times 0.6 towards them, and 1 - 5 alpha = -2 is the factor"
    )


def library_local_sgd(start, x, y, rate, steps, period):
    """The weight that the library ends with, where rank r has the sample x[r], y[r]."""

    def work(comm):
        backend = LocalSGD(comm, period=period)
        model = nn.Linear(1, 1, bias=False, rng=np.random.default_rng(0), dtype=np.float64)
        model.weight.data[...] = start
        model = backend.place(model)
        fit(model, optim.SGD(model.parameters(), rate), ops.mse, Batch(x, y), backend=backend, epochs=steps)
        return model.weight.data.item()

    return run_ranks(len(x), work)[0]


def own_local_sgd(student):
    rng = np.random.default_rng(9)
    for case in range(8):
        ranks, steps, period = (int(n) for n in rng.integers([2, 1, 1], [5, 30, 10]))
        start, (x, y) = float(rng.normal()), rng.normal(size=(2, ranks, 1))
        gradients = [lambda w, a=a, b=b: 2 * a * (w * a - b) for a, b in zip(x[:, 0], y[:, 0], strict=True)]
        library = library_local_sgd(start, x, y, 0.1, steps, period)
        own = student.local_sgd(start, gradients, 0.1, steps, period)
        assert own is not None and np.isclose(own, library, rtol=1e-9), (
            f"case {case}, {steps} steps of {ranks} ranks with a period of {period}: your function says "
            f"{own}, the library {library:.6f}; write local_sgd"
        )
    two = [lambda w: 2 * w, lambda w: 8 * (w - 1)]
    fast, slow = (student.local_sgd(0.5, two, rate, 4000, 8) for rate in (0.05, 0.005))
    return (
        f"8 cases are the library's. Yours ends at {fast:.3f} with a rate of 0.05, at {slow:.3f} with 0.005: "
        "in 8 small steps the models hardly differ, so each step is nearly a step of the mean gradient"
    )


WRITTEN = """    models = [start for _ in gradients]
    for step in range(1, steps + 1):
        models = [w - rate * gradient(w) for w, gradient in zip(models, gradients)]
        if step % period == 0 or step == steps:
            models = [sum(models) / len(models)] * len(models)
    return models[0]
"""
QUESTIONS = [
    Question("b", other_order, (("ORDER_ON_RANK_1 = [0, 1]", "ORDER_ON_RANK_1 = [1, 0]"),)),
    Question("a", rare_averages, (("PERIOD = 1", "PERIOD = 64"),)),
    Question("c", strong_spring, (("ALPHA = 0.1", "ALPHA = 0.6"),)),
    Question("b", own_local_sgd, (("    return start\n", WRITTEN),)),
]
