"""Laws of minigrad/device.py and optim_kernels.py: what a GPU is asked to do, on the double of CuPy in
``tests/strict_cupy``, which counts it.

Each law takes the thing under test. They run where ``cupy`` is the double: see ``test_gpu_calls.py``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from minigrad import Parameter, Tape, Tensor
from minigrad.device import Array, to_device, to_host
from minigrad.faster import faster
from minigrad.models import Net
from minigrad.op import op
from minigrad.ops.geometry import Geometry
from minigrad.ops.pool import max_of_windows
from minigrad.optim import Optimizer
from minigrad.pullback import OpResult
from minigrad.work import Work, forward_backward_pass
from tests.minigrad.ops.op_laws import channels_last, is_channels_last

"""The folder that stands in PYTHONPATH where ``import cupy`` is to find the double."""


@contextmanager
def counted() -> Iterator[Any]:
    """How often each kind of call was made inside: "launch", "synchronize", "copy to device" and others.

    A counter from the double of CuPy, and None from CuPy itself, which counts nothing.
    """
    try:
        from cupy import _counts  # pyright: ignore[reportMissingImports]
    except ImportError:
        yield None
        return
    with _counts.counted() as (calls, _):
        yield calls


def training_step(
    net: Net, make: Callable[[Any], Optimizer], samples: int, dtype: Any = np.float32
) -> Callable[[], float]:
    """A step of ``net`` on the double, which returns the loss; one step has been taken."""
    model = net.build(np.random.default_rng(0)).to(dtype=dtype, device="cupy")
    batch = net.prepare(net.data().train[:samples], dtype).to("cupy")
    work, optimizer = Work(model, batch, net.loss), make(model.parameters())

    def step() -> float:
        optimizer.zero_grad()
        loss = forward_backward_pass(work)
        optimizer.step()
        return loss

    step()
    return step


def a_step_waits(times: int, step: Callable[[], float]) -> None:
    """The host waits for the GPU this often in a step: once to read the loss, which nothing else needs."""
    with counted() as calls:
        step()
    assert calls["synchronize"] == times, f"a step waits {calls['synchronize']} times, not {times}"


def a_step_uploads_nothing(step: Callable[[], float]) -> None:
    """What a step needs is on the GPU before it."""
    with counted() as calls:
        step()
    assert not calls["copy to device"], f"a step copies {calls['copy to device']} arrays to the GPU"


def a_step_launches(most: int, step: Callable[[], float]) -> None:
    """A step takes at most this many kernels besides products: each costs the host 5 to 20 microseconds."""
    with counted() as calls:
        step()
    assert calls["launch"] <= most, f"a step takes {calls['launch']} kernels, more than {most}"


def a_step_adds_no_long_chain(step: Callable[[], float]) -> None:
    """No thread of a sum over leading axes adds up more than 64 numbers one after the other."""
    with counted() as calls:
        step()
    assert not calls["long chains"], f"{calls['long chains']} sums of a step are long chains"


def tall_sums_are_short_chains(
    axis_sums: Callable[[Array, tuple[int, ...]], Array], x: np.ndarray, axes: tuple[int, ...]
) -> None:
    """Bit by bit for whole numbers, in any memory order of x."""
    with counted() as calls:
        total = axis_sums(to_device(x, "cupy"), axes)
    assert np.array_equal(to_host(total), x.sum(axis=axes)), f"sums over {axes} of {x.shape} are others"
    assert not calls["long chains"], f"{calls['long chains']} sums over {axes} of {x.shape} are long chains"


def products_copy(operands: int, step: Callable[[], float]) -> None:
    """CuPy copies so many transposed operands of products of stacks, and of one matrix none."""
    with counted() as calls:
        step()
    copied = calls["product operand copied"]
    assert calls["gemm"] and copied == operands, f"{copied} operands of products are copied"


def an_index_is_uploaded_once(f: Callable[[Any], Tensor], x: np.ndarray) -> None:
    """An op with an index on the host copies it to the GPU in forward; its pullbacks use that copy."""
    with Tape() as tape:
        leaf = Tensor(to_device(x, "cupy"), requires_grad=True)
        with counted() as forward:
            y = f(leaf)
    seed = to_device(np.ones(y.shape), "cupy")
    with counted() as backward:
        tape.backward(y, seed)
    uploads = forward["copy to device"], backward["copy to device"]
    assert uploads == (1, 0), f"an index is uploaded {uploads[0]} times forward, {uploads[1]} backward"


def a_wrong_label_stops_training(loss: Callable[..., Tensor], logits: np.ndarray, labels: np.ndarray) -> None:
    """On the host it is refused; on a GPU the loss and its gradient are NaN, and nobody has waited for it."""
    try:
        loss(to_device(logits, "cupy"), labels)
    except ValueError:
        pass
    else:
        raise AssertionError(f"the labels {labels} on the host are taken")
    x, y = Tensor(to_device(logits, "cupy"), requires_grad=True), to_device(labels, "cupy")
    with counted() as calls:
        with Tape() as tape:
            value = loss(x, y).sum()
        tape.backward(value)
    assert not calls["synchronize"], f"the labels make the host wait {calls['synchronize']} times"
    assert x.grad is not None and np.isnan(to_host(value.data)).any(), f"the loss of {labels} is {value}"


def images_keep_their_order(move: Callable[[np.ndarray], Array], x: np.ndarray) -> None:
    """``move`` takes an array of the host to the GPU: the same values, shape and memory order."""
    y = move(x)
    assert np.array_equal(to_host(y), x), "the values differ"
    order = [a.strides[i] for a in (x, y) for i in range(x.ndim) if x.shape[i] > 1]
    half = len(order) // 2
    assert (
        np.argsort(order[:half], kind="stable").tolist() == np.argsort(order[half:], kind="stable").tolist()
    ), f"strides {x.strides} became {y.strides}"


def sums_of_gradients_are_channels_last(f: Callable[[Tensor], Tensor], x: np.ndarray) -> None:
    """The gradient of images that ``f`` uses several times reaches the op before it channels-last."""
    gradients: list[Array] = []

    @op
    def watched(x: Array):
        return x, (lambda g: gradients.append(g) or g,)

    with Tape() as tape:
        leaf = Tensor(channels_last(to_device(x, "cupy")), requires_grad=True)
        y = f(watched(leaf))
    tape.backward(y, channels_last(to_device(np.ones(y.shape), "cupy")))
    assert is_channels_last(gradients[0]), f"strides {gradients[0].strides} for {gradients[0].shape}"


def arrays_of_two_devices_are_refused(f: Callable[..., Tensor], *arrays: np.ndarray) -> None:
    """In one line that says the way out, whichever of the arrays is on the GPU; all on one are taken."""
    for here in range(2 ** len(arrays)):
        places = ["cupy" if here >> i & 1 else "numpy" for i in range(len(arrays))]
        moved = [Tensor(to_device(x, place)) for x, place in zip(arrays, places, strict=True)]
        try:
            f(*moved)
        except TypeError as error:
            words = str(error)
            assert len(set(places)) > 1 and '.to(device="cupy")' in words and "\n" not in words, words
        else:
            assert len(set(places)) == 1, f"arrays on {places} are taken"


def lists_go_to_the_other_operand(f: Callable[[Any, Any], Tensor], x: np.ndarray, y: list) -> None:
    """A nested list beside a tensor on the GPU counts as an array there."""
    for a, b in ((to_device(x, "cupy"), y), (y, to_device(x, "cupy"))):
        value = f(*(Tensor(v) if v is not y else v for v in (a, b)))
        expected = f(*(Tensor(to_host(v)) if v is not y else v for v in (a, b)))
        assert np.array_equal(to_host(value.data), expected.numpy())
        assert type(value.data) is type(to_device(x, "cupy")), "the value is on the host"


def clipping(make: Callable[..., Optimizer], **settings: Any) -> Callable[[Any], Optimizer]:
    return lambda parameters: make(parameters, 1e-4, **settings).clipped(1e-3)


def pooling_is_the_readable_one(pool: Callable[..., Any], x: np.ndarray, geometry: Geometry) -> None:
    """The kernel finds the values and gradients of the readable form, bit by bit, also of NaN."""
    y, to_x = pool(to_device(x, "cupy"), geometry.places(*x.shape[1:3]))
    expected, expected_to_x = max_of_windows.readable(x, geometry)
    np.testing.assert_array_equal(to_host(y), expected, err_msg="the largest elements")
    g = np.arange(1.0, y.size + 1).reshape(y.shape).astype(x.dtype)
    d = to_host(to_x(to_device(g, "cupy")))
    np.testing.assert_array_equal(d, expected_to_x(g), err_msg="the gradient")


def updates_are_the_readable_ones(
    make: Callable[[list[Parameter]], Optimizer], shapes: list[tuple[int, ...]], most: int = 1
) -> None:
    """Three steps on a GPU end where those with NumPy end, but for rounding, and take ``most`` kernels each.

    Every other parameter has no gradient in the second step; norms take kernels of their own.
    """
    rng = np.random.default_rng(0)
    start, *gradients = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(4)]
    groups = [[Parameter(to_device(w, device)) for w in start] for device in ("numpy", "cupy")]
    optimizers = [make(parameters) for parameters in groups]
    for step, of_step in enumerate(gradients):
        for parameters, device in zip(groups, ("numpy", "cupy"), strict=True):
            for n, (parameter, g) in enumerate(zip(parameters, of_step, strict=True)):
                parameter.grad = None if step == 1 and n % 2 else to_device(g, device)
        for optimizer in optimizers:
            optimizer.lr /= step + 1
        optimizers[0].step()
        with counted() as calls:
            optimizers[1].step()
        few = calls["launch"] <= most or optimizers[1].needs_norms
        assert few, f"an update takes {calls['launch']} kernels"
    names = [[list(state) for state in optimizer.state] for optimizer in optimizers]
    assert names[0] == names[1], f"the state is {names[1]}, with NumPy {names[0]}"
    for here, there in zip(*groups, strict=True):
        np.testing.assert_allclose(to_host(there.data), here.data, rtol=1e-5, atol=1e-6)


def coefficients_may_be_arrays(
    make: Callable[[list[Parameter]], Optimizer], shapes: list[tuple[int, ...]]
) -> None:
    """Three updates by coefficients on the GPU, arrays of one element, are those by numbers to the bit."""
    rng = np.random.default_rng(0)
    start, *gradients = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(4)]
    groups = [[Parameter(to_device(w, "cupy")) for w in start] for _ in range(2)]
    optimizers = [make(parameters) for parameters in groups]
    for of_step in gradients:
        for parameters, optimizer in zip(groups, optimizers, strict=True):
            optimizer.lr *= 0.9
            for parameter, g in zip(parameters, of_step, strict=True):
                parameter.grad = to_device(g, "cupy")
        optimizers[0].step()
        updates = list(optimizers[1].updates())
        arrays = [
            [to_device(np.full(1, x, np.float32), "cupy") for x in update.coefficients] for update in updates
        ]
        with counted() as calls:
            optimizers[1].apply(
                u._replace(coefficients=tuple(x)) for u, x in zip(updates, arrays, strict=True)
            )
        assert calls["launch"] <= 1, f"an update takes {calls['launch']} kernels"
    for numbers, arrays in zip(*groups, strict=True):
        np.testing.assert_array_equal(to_host(arrays.data), to_host(numbers.data))


def cross_entropy_is_the_readable_one(
    kernels: Callable[..., OpResult],
    readable: Callable[..., OpResult],
    logits: np.ndarray,
    labels: np.ndarray,
) -> None:
    """Three launches give the loss and gradient for which the readable form takes thirty."""
    g = np.array(0.5, logits.dtype)
    expected, (expected_gradient, _) = readable(logits, labels)
    assert expected_gradient is not None
    arrays = [to_device(array, "cupy") for array in (logits, labels, g)]
    with counted() as calls:
        value, (to_logits, _) = kernels(*arrays[:2])
        assert to_logits is not None
        d = to_logits(arrays[2])
    assert calls["launch"] <= 3, f"cross-entropy takes {calls['launch']} launches"
    assert value.dtype == d.dtype == logits.dtype, f"{logits.dtype} became {value.dtype} and {d.dtype}"
    eps = 8 * len(logits) * np.finfo(logits.dtype).eps
    np.testing.assert_allclose(to_host(value), expected, rtol=eps, atol=eps, err_msg="the loss")
    np.testing.assert_allclose(to_host(d), expected_gradient(g), rtol=eps, atol=eps, err_msg="the gradient")


def function_of_arrays(op: Callable[..., Any]) -> Callable[..., OpResult]:
    """What ``op`` lifts to tensors, with the faster forms."""
    return inspect.unwrap(op, stop=lambda function: isinstance(function, faster))


def a_function_is_few_kernels(most: int, function: Callable[..., OpResult], *arrays: np.ndarray) -> None:
    """Value and first gradient on the GPU are NumPy's but for rounding, in at most ``most`` launches."""
    expected, (expected_gradient, *_) = function(*arrays)
    g = np.random.default_rng(0).normal(size=expected.shape).astype(expected.dtype)
    there = [to_device(array, "cupy") for array in (*arrays, g)]
    with counted() as calls:
        value, (pullback, *_) = function(*there[:-1])
        assert pullback is not None and expected_gradient is not None
        d = pullback(there[-1])
    assert calls["launch"] <= most, f"{function.__name__} takes {calls['launch']} launches"
    assert value.dtype == d.dtype == arrays[0].dtype, f"{arrays[0].dtype} became {value.dtype}, {d.dtype}"
    eps = 8 * max(arrays[0].size, 1) * np.finfo(d.dtype).eps
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(to_host(value), expected, rtol=eps, atol=eps, err_msg="the value")
        np.testing.assert_allclose(
            to_host(d), expected_gradient(g), rtol=eps, atol=eps, err_msg="the gradient"
        )


def convolution_is_the_readable_one(
    kernels: Callable[..., Any],
    readable: Callable[..., Any],
    x: np.ndarray,
    w: np.ndarray,
    geometry: Geometry,
    most: int = 4,
) -> None:
    """Value and both gradients, to the bit for small integers, in ``most`` launches besides products."""
    y, pullbacks = readable(x, w, geometry)
    g = np.random.default_rng(0).integers(-4, 5, y.shape).astype(y.dtype)
    x, w, there = (to_device(array, "cupy") for array in (x, w, g))
    with counted() as calls:
        value, (to_image, to_kernel) = kernels(x, w, geometry)
        values = value, to_image(there), to_kernel(there)
    assert calls["launch"] <= most, f"a convolution takes {calls['launch']} launches"
    expected = y, *(pullback(g) for pullback in pullbacks)
    for what, a, b in zip(("value", "image gradient", "kernel gradient"), values, expected, strict=True):
        np.testing.assert_array_equal(to_host(a), b, err_msg=f"the {what}")


@contextmanager
def cupy_replaced(device: ModuleType, cupy: Any) -> Iterator[None]:
    """Inside, ``import cupy`` in ``device`` gives ``cupy``, or raises it where it is an exception."""

    def replacement() -> Any:
        if isinstance(cupy, Exception):
            raise cupy
        return cupy

    device.cuda_problem.cache_clear()
    try:
        with patch.object(device, "_cupy", replacement):
            yield
    finally:
        device.cuda_problem.cache_clear()


def a_problem_is_explained(device: ModuleType, cupy: Any, words: str) -> None:
    """``cuda_problem`` says in one line what is wrong, in these ``words``, and the way out."""
    with cupy_replaced(device, cupy):
        problem = device.cuda_problem()
    assert problem and "\n" not in problem, f"the problem is {problem!r}"
    assert re.search(words, problem) and "--device numpy" in problem, f"{words!r} is not in {problem!r}"
