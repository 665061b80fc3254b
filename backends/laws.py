"""The laws of parallel strategies; each takes the strategy under test, so students' face the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from minigrad import optim
from minigrad.data import Batch
from minigrad.device import Array, to_device, to_host, use_gpu_of
from minigrad.module import Module
from minigrad.optim import Optimizer, ParametersElsewhere
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter
from minigrad.testing import DEVICE, on_device, shares_memory
from minigrad.train import check_strategy
from minigrad.work import Loss

from .comm.collectives import gather
from .comm.communicator import Communicator

MakeStrategy = Callable[[Communicator], Strategy]
Build = Callable[[np.random.Generator], Module]
Arrays = Mapping[str, Any]  # by name, None where there is none
MakeOptimizer = Callable[[list[Parameter]], Optimizer]
Size = Callable[[np.ndarray], float]

LEAST_SCALE = 0.1
"""The least scale of an array in ``distances``, as a share of the largest element of all arrays."""


class Difference(NamedTuple):
    """The largest difference of one parameter from the serial run, over elements, ranks and steps.

    ``unequal`` counts what must have equal bits and has not: see ``differences_in_precision``.
    """

    name: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    worst_rank: int
    unequal: int = 0


class Differences(list[Difference]):
    """The differences of all that ``differences_from_serial`` compared, on rank 0; other ranks have none.

    ``bound`` is the largest relative difference that proves the runs equal. A notebook shows a table.
    """

    def __init__(self, differences: Iterable[Difference], bound: float):
        super().__init__(differences)
        self.bound = bound

    @property
    def proved(self) -> bool:
        """Whether there are differences, and all are within the bound."""
        return bool(self) and all(difference.relative <= self.bound for difference in self)

    def conclusion(self) -> str:
        """The last line of the proof; it names the worst parameter and rank where the runs are not equal."""
        if not self:
            return "NOTHING IS PROVED HERE: rank 0 has the comparison"
        worst = max(self, key=lambda difference: difference.relative)
        relative, allowed = f"{worst.relative:.1e}", f"(allowed {self.bound:.0e}, relative)"
        if not self.proved:
            where = f"{worst.name} on rank {worst.worst_rank}"
            return f"NOT EQUAL: {where} differs by {worst.absolute:.1e}, relative {relative} {allowed}"
        if all(difference.absolute == 0 for difference in self):
            return "PROVED: all ranks equal the serial run bit for bit"
        return f"PROVED: all ranks equal the serial run to {relative} {allowed}"

    def _repr_svg_(self) -> str:
        """The picture that a notebook shows: a line for each parameter, and the conclusion."""
        from .pictures.proof_picture import proof_picture

        return proof_picture((row[:5] for row in self), self.bound, self.conclusion(), self.proved)


def bound_for(dtype: Any) -> float:
    """The relative difference that another order of summation may make: 4,500 units of roundoff.

    1e-12 in float64. A wrong strategy is off by parts of the gradient itself, 1e-3 and more.
    """
    return float(4500 * np.finfo(dtype).eps)


def differences_from_serial(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Build,
    loss_fn: Loss,
    batches: list[Batch],
    *,
    dtype: Any = np.float64,
    device: str = DEVICE,
    seed: int = 0,
    optimizer: MakeOptimizer = lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
    serial: Strategy | None = None,
    oracle: Build | None = None,
    zero_every: int = 1,
    update_every: int = 1,
    left_out: int = 0,
) -> Differences:
    """Train on ``batches`` twice, by ``strategy`` and serially, and compare on every rank after each step.

    It compares every parameter's gradient and the loss before each update, the parameters and the running
    statistics after it, and again at the end, each on the scale that ``distances`` gives it, and the loss
    relative to the largest one so far. Both optimizers get the strategy's gradients: Adam makes an update out
    of a gradient's sign, however small it is, and so would make two updates of the rounding in a zero.
    Collective; rank 0 gets the differences, by parameter and with the rank where they were largest, the
    others an empty list. ``oracle`` builds the serial model if it differs. Gradients are set to None before
    every ``zero_every``-th step, and applied after every ``update_every``-th. Models and batches are moved to
    ``device``, by default the one named in MINIGRAD_DEVICE; of several GPUs each rank takes its own.
    The optimizers have the parameters in an order drawn with ``seed``, without the first ``left_out`` ones.
    """
    backend, model, reference = placed(strategy, comm, build, dtype, device, seed, oracle or build)
    batches = [batch.to(device) for batch in batches]
    serial = copy(serial or Serial())  # which counts its steps, and ranks on threads may share it
    order = drawn_order(reference, seed, left_out)
    runs = (
        (serial, reference, optimizer(parameters_in(order, reference))),
        (backend, model, optimizer(parameters_in(order, model))),
    )
    worst: dict[str, np.ndarray] = {}
    losses: tuple[list[float], list[float]] = [], []

    def compare(expected: Arrays, actual: Arrays, start: Arrays | None = None) -> None:
        for name, pair in distances(expected, actual, start).items():
            worst[name] = np.maximum(worst.get(name, 0.0), pair)

    def compare_models() -> None:
        compare(serial.state.full_parameters(reference), backend.state.full_parameters(model), parameters)
        compare(serial.state.full_state(reference), backend.state.full_state(model), state)

    parameters = {name: x.copy() for name, x in serial.state.full_parameters(reference).items()}
    state = {name: x.copy() for name, x in serial.state.full_state(reference).items()}
    compare_models()
    for step, batch in enumerate(batches):
        for (run, trained, method), values in zip(runs, losses, strict=True):
            if step % zero_every == 0:
                method.zero_grad()
            values.append(run.step(trained, batch, loss_fn))
        gradients = backend.state.full_gradients(model)
        compare(serial.state.full_gradients(reference), gradients)
        compare({"loss": np.array(losses[0])}, {"loss": np.array(losses[1])})
        for name, parameter in reference.named_parameters().items():
            if (gradient := gradients.get(name)) is not None and gradient.shape == parameter.shape:
                parameter.grad = to_device(gradient.copy(), device)
        if (step + 1) % update_every == 0:
            for run, trained, method in runs:
                run.update(trained, method)
        compare_models()
    backend.finalize(model)
    compare_models()
    backend.close()  # the model must not depend on what it frees
    compare_models()
    arrays = serial.state.full_parameters(reference) | serial.state.full_state(reference)
    return Differences(largest_of_ranks(comm, worst, arrays), bound_for(dtype))


def placed(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Build,
    dtype: Any,
    device: str,
    seed: int,
    oracle: Build,
) -> tuple[Strategy, Module, Module]:
    """The strategy, this rank's model as it has placed it, and the model of the serial run.

    Both have the parameters that rank 0 builds: the models built on other ranks are given others at first.
    """
    if device == "cupy":
        use_gpu_of(comm.local_rank)
    reference = oracle(np.random.default_rng(seed)).to(dtype=dtype, device=device)
    backend = strategy(comm)
    check_strategy(backend)
    own = build(np.random.default_rng(seed + comm.rank)).to(dtype=dtype, device=device)
    return backend, backend.place(own), reference


def largest_of_ranks(comm: Communicator, worst: Arrays, arrays: Arrays) -> list[Difference]:
    """On rank 0 the differences, none on others; each rank has its ``worst`` ones by name.

    They are an absolute and a relative one, in sixteen bits also a number of unequal elements, by which the
    worst rank goes first. ``arrays`` have the shapes. Collective.
    """
    rows_of_ranks = gather(comm, np.array(list(worst.values())))
    if comm.rank != 0:
        return []
    differences = []
    for name, rows in zip(worst, np.array(rows_of_ranks).swapaxes(0, 1), strict=True):
        absolute, relative, unequal = rows[:, 0], rows[:, 1], rows[:, 2:].sum(axis=1)
        rank = int((unequal if unequal.any() else relative).argmax())
        shape = arrays[name].shape if name in arrays else ()
        row = Difference(name, shape, float(absolute.max()), float(relative.max()), rank, int(unequal.max()))
        differences.append(row)
    return differences


def drawn_order(model: Module, seed: int, left_out: int) -> list[list[str]]:
    """All names of each parameter in an order drawn with ``seed``, but for ``left_out`` trained ones."""
    ties = {names[0]: names for names in model.tied_parameters()}
    named = model.named_parameters()
    drawn = np.random.default_rng([seed, 1]).permutation(list(named.keys())).tolist()
    trained = [name for name in drawn if named[name].requires_grad]
    without = trained[: min(left_out, len(trained) - 1)]
    return [ties.get(name, [name]) for name in drawn if name not in without]


def parameters_in(order: list[list[str]], model: Module) -> list[Parameter]:
    """The parameters that ``order`` names, in this order, as far as this rank's ``model`` has them."""
    named = model.named_parameters()
    mine = [name for names in order for name in names if name in named]
    return [named[name] for name in mine] or ParametersElsewhere()


def largest_of(x: np.ndarray) -> float:
    return float(np.abs(x).max(initial=0.0))


def norm_of(x: np.ndarray) -> float:
    return float(np.linalg.norm(x))


def distances(
    expected: Arrays, actual: Arrays, start: Arrays | None = None, size: Size = largest_of
) -> dict[str, tuple[float, float]]:
    """The largest absolute difference of each array of ``expected``, and the same relative to its scale.

    Its scale is its largest element, and at least a tenth (``LEAST_SCALE``) of the largest element of all
    arrays. For rounding is relative to the terms of a sum, and not to the sum: in the gradient of a bias in
    front of a normalization, or of a bias of attention's keys, all terms cancel, and what two right runs have
    there is two times the rounding of the terms, which are those of the other gradients. With ``norm_of`` as
    ``size``, scales and relative differences are those of the arrays' norms.

    Arrays that grew from ``start`` (parameters, running statistics) differ by what was added to them: the
    tenth is that of the largest change of all, so that a constant of 1e15 does not hide what is wrong in
    others, and elements that are equal may be infinite, as in a mask.
    Infinite where only one of the arrays is there, their shapes differ, or a number is not finite.
    """
    grown = {name: x for name, x in expected.items() if x is not None}
    if start is not None:
        grown = {name: difference(x, start[name]) for name, x in grown.items()}
    least = LEAST_SCALE * max(map(size, grown.values()), default=0.0)
    return {
        name: distance(value, actual.get(name), least, start is not None, size)
        for name, value in expected.items()
    }


def distance(
    expected: np.ndarray | None,
    actual: np.ndarray | None,
    least: float,
    may_be_infinite: bool = False,
    size: Size = largest_of,
) -> tuple[float, float]:
    """The absolute and the relative difference of two arrays, as in ``distances``, for a ``least`` scale."""
    if expected is None and actual is None:
        return 0.0, 0.0
    if expected is None or actual is None or expected.shape != actual.shape:
        return np.inf, np.inf
    differs = difference(expected, actual)
    absolute = largest_of(differs)
    if not (np.isfinite(absolute) and (may_be_infinite or np.isfinite(expected).all())):
        return np.inf, np.inf
    scale = max(size(expected[np.isfinite(expected)]), least)
    return absolute, size(differs) / scale if scale else (np.inf if absolute else 0.0)


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a - b, and 0 where both are equal, be they infinite; numbers for booleans and integers, too."""
    a, b = (x if x.dtype.kind in "fc" else x.astype(float) for x in (a, b))
    return np.subtract(a, b, out=np.zeros(a.shape, np.result_type(a, b)), where=a != b)


def trains_like_serial(
    strategy: MakeStrategy,
    comm: Communicator,
    build: Build,
    loss_fn: Loss,
    batches: list[Batch],
    *,
    dtype: Any = np.float64,
    bound: float | None = None,
    **settings: Any,
) -> None:
    """Assert that gradients, loss, parameters and running statistics equal the serial run's within ``bound``.

    On every rank and after every step; the default bound is ``bound_for(dtype)``, and 0 demands the same
    bits.
    """
    differences = differences_from_serial(strategy, comm, build, loss_fn, batches, dtype=dtype, **settings)
    bound = bound_for(dtype) if bound is None else bound
    wrong = [d for d in differences if not d.relative <= bound]
    assert not wrong, "\n".join(
        f"{d.name} {d.shape} differs by {d.absolute:.2e}, {d.relative:.2e} of its scale on rank "
        f"{d.worst_rank}, allowed {bound:.0e}"
        for d in wrong
    )


def integers(shape: int | tuple[int, ...], seed: int, dtype: Any = np.float64) -> np.ndarray:
    """Whole numbers from -50 to 49: the sums of thousands of them are exact, also in float32."""
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(dtype)


def allreduce_sums(
    allreduce: Callable[[Communicator, Array], Array],
    comm: Communicator,
    shape: int | tuple[int, ...],
    *,
    dtype: Any = np.float64,
    seed: int = 0,
) -> None:
    """Assert that this rank gets a new array, exactly the sum over all ranks, and its input is unchanged."""
    inputs = [integers(shape, seed + rank, dtype) for rank in range(comm.size)]
    expected = np.sum(inputs, axis=0).astype(dtype)
    x = on_device(inputs[comm.rank].copy())
    total = allreduce(comm, x)
    where = f"on rank {comm.rank} of {comm.size}, shape {x.shape}"
    assert np.array_equal(to_host(x), inputs[comm.rank]), f"the input was changed {where}"
    assert not shares_memory(total, x), f"the result is the input's memory {where}"
    assert (total.shape, total.dtype) == (x.shape, x.dtype), f"got {total.dtype}{total.shape} {where}"
    assert np.array_equal(to_host(total), expected), f"got {total}, the sum is {expected}, {where}"
