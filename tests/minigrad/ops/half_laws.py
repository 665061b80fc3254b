"""Laws of minigrad/half.py: ops of float16 are those of float32, rounded once.

A law takes the op and its inputs, and returns nothing or raises AssertionError. The seeded bugs use the same
laws. u = 2 ** -11 is half of the distance from 1 to the next float16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import Parameter, Tape, Tensor, nn, ops
from minigrad.bfloat16 import bfloat16
from minigrad.device import Array, to_host
from minigrad.memory import base_of, retained_arrays
from minigrad.module import Module, Sequential
from minigrad.tape import finish_weights
from minigrad.testing import DEVICE, Op, is_float, on_device
from tests.minigrad.ops.op_laws import pullbacks_of

U, TINY = 2.0**-11, 2.0**-25  # half of the distance of float16 numbers: near 1, and near 0


def halves_of(inputs: Sequence[Any]) -> list[Any]:
    """The inputs in float16, in their memory order; integers as they are."""
    return [x.astype(np.float16) if is_float(x) else x for x in inputs]


def wide(halves: Sequence[Any]) -> list[Any]:
    """The same numbers in float32."""
    return [x.astype(np.float32) if is_float(x) else x for x in halves]


def seed_like(y: Tensor) -> Array:
    """Numbers of float16 for the gradient of a value, of both signs and none of them 0."""
    return on_device(np.cos(1 + 2 * np.arange(y.size)).reshape(y.shape).astype(np.float16))


def results_of(f: Op, inputs: Sequence[Any], seed: Array | None = None) -> list[Array | None]:
    """The value of f, and the gradient of each input for ``seed``, by default ``seed_like``."""
    leaves = [Tensor(x, requires_grad=is_float(x)) for x in inputs]
    with Tape() as tape:
        y = f(*leaves)
    if y.tape is tape:
        arrays = [a for entry in tape.entries if type(entry) is list for a in arrays_of(entry)]
        if any(is_float(x) and x.dtype == np.float16 for x in inputs):
            # An array of float64 is a setting, such as the weights of classes.
            assert not [a for a in arrays if a.dtype == np.float32 and a.ndim], "it holds float32"
        tape.backward(y, (seed_like(y) if seed is None else seed).astype(y.dtype))
    return [y.data, *(leaf.grad for leaf in leaves)]


def arrays_of(entry: list[Any]) -> list[Array]:
    """What the pullbacks of an entry hold."""
    return list(retained_arrays([pullback for *_, pullback in entry]))


def is_the_rounded_op(f: Op, *inputs: Any, value: Any = np.float16) -> None:
    """Value and gradients of float16 are those of float32, computed from the widened inputs, rounded once.

    Bit by bit: both run the same form. Pullbacks hold no floats of more than 16 bits. A ``value`` of float32
    is that of a loss.
    """
    halves = halves_of(inputs)
    dtypes = [value, *[np.float16] * len(halves)]
    pairs = zip(results_of(f, halves), results_of(f, wide(halves)), dtypes, strict=True)
    for i, (x, expected, dtype) in enumerate(pairs):
        assert (x is None) == (expected is None), f"result {i} has no gradient in one dtype"
        if x is not None and expected is not None:
            assert x.dtype == dtype, f"result {i} is {x.dtype}"
            with np.errstate(over="ignore"):
                rounded = to_host(expected).astype(dtype)
            assert np.array_equal(to_host(x), rounded, equal_nan=True), f"result {i}: {x} is not {rounded}"
    y, entry = pullbacks_of(f, halves)
    for _, _, pullback in entry if type(entry) is list else []:
        d = pullback(seed_like(y).astype(y.dtype))
        assert d.dtype == np.float16, f"what is pulled back is {d.dtype}"


def rounds_some_steps(f: Op, *inputs: Any, roundings: int = 4) -> None:
    """As ``is_the_rounded_op``, where a few steps are rounded one after the other: to so many times u.

    u counts for the sum of magnitudes that a result is made of, which is f of the inputs' magnitudes.
    """
    halves = halves_of(inputs)
    magnitudes = [abs(x) if is_float(x) else x for x in wide(halves)]
    y = f(*map(Tensor, halves))
    runs = results_of(f, halves), results_of(f, wide(halves)), results_of(f, magnitudes, abs(seed_like(y)))
    for i, (x, expected, magnitude) in enumerate(zip(*runs, strict=True)):
        if x is not None and expected is not None and magnitude is not None:
            assert x.dtype == np.float16, f"result {i} is {x.dtype}"
            x, expected, size = (to_host(a).astype(np.float64) for a in (x, expected, magnitude))
            bound = roundings * (U * np.maximum(abs(size), abs(expected)) + TINY)
            assert (abs(x - expected) <= bound).all(), f"result {i}: {x}, and in float32 {expected}"


def goes_back_from_the_value(f: Op, formula: Callable[..., np.ndarray], x: Array, **settings: Any) -> None:
    """The value is the rounded one, and the gradient is ``formula(value, g)``, up to one rounding.

    The formula is in float64, and its terms are at most as large as g, so that float32 is off by 2 ** -20.
    """
    (half,) = halves_of([x])
    leaf = Tensor(half, requires_grad=True)
    with Tape() as tape:
        y = f(leaf, **settings)
    expected = to_host(f(Tensor(wide([half])[0]), **settings).data).astype(np.float16)
    assert y.dtype == np.float16, f"the value is {y.dtype}"
    assert np.array_equal(to_host(y.data), expected), f"the value {y.data} is not {expected}"
    arrays = arrays_of(tape.entries[-1])
    assert [a.nbytes for a in arrays if a.ndim] == [y.data.nbytes] * bool(y.ndim), (
        "it holds more than its value"
    )
    g = seed_like(y)
    tape.backward(y, g)
    assert leaf.grad is not None
    d, g64 = (to_host(a).astype(np.float64) for a in (leaf.grad, g))
    exact = formula(to_host(y.data).astype(np.float64), g64, **settings)
    bound = U * abs(exact) + TINY + 2.0**-20 * abs(g64).max(initial=0)
    assert leaf.grad.dtype == np.float16
    assert (abs(d - exact) <= bound).all(), f"the gradient is {d}, from the value {exact}"


def takes_half_the_bytes(
    model: Module, loss: Callable[[Tensor], Tensor], x: Array, labels: Array, statistics: int = 0
) -> None:
    """The floats that a tape holds of the model in float16 are at most half of those in float32.

    Integers, such as the numbers of pixels in windows, are no more either, but for ``labels``; ``statistics``
    are the numbers that stay float32. The gradients of all parameters are float16.
    """
    counts = []
    for dtype in (np.float32, np.float16):
        model.to(dtype=dtype, device=DEVICE)
        with Tape() as tape:
            y = loss(model(on_device(x.astype(dtype) if is_float(x) else x)))
        own = {id(base_of(entry.data)) for entry in tape.entries if type(entry) is not list}
        arrays = [base_of(a) for entry in tape.entries if type(entry) is list for a in arrays_of(entry)]
        arrays = list({id(a): a for a in arrays if id(a) not in own}.values())
        floats = sum(a.nbytes for a in arrays if is_float(a))
        assert tape.nbytes == sum(a.nbytes for a in arrays)
        counts.append((floats, tape.nbytes - floats, sum(a.size for a in arrays if a.dtype == np.float32)))
        tape.backward(y)
        assert all(p.grad is None or p.grad.dtype == dtype for p in model.parameters())
    (floats, others, _), (half_floats, half_others, singles) = counts
    assert singles <= statistics, f"{singles} numbers of float32 are held"
    assert 2 * (half_floats - 4 * singles) <= floats, f"{half_floats} bytes of floats for {floats}"
    assert half_others <= others + labels.nbytes, f"{half_others} bytes of integers, and {others} in float32"


def parameters_of(*arrays: np.ndarray) -> list[Parameter]:
    """Parameters of float16 on the device."""
    return [Parameter(on_device(a.astype(np.float16))) for a in arrays]


def rounds_like_numpy(rounded: Callable[..., Array], x: np.ndarray) -> None:
    """Numbers of float32 become those of float16 that NumPy's own cast gives, with their signs."""
    with np.errstate(over="ignore"):
        expected, y = x.astype(np.float16), to_host(rounded(on_device(x), np.float16))
    same = (y.view(np.uint16) == expected.view(np.uint16)) | (np.isnan(y) & np.isnan(expected))
    assert same.all(), f"{x[~same][:3]} becomes {y[~same][:3]}, and not {expected[~same][:3]}"
    assert DEVICE != "numpy" or y.strides == expected.strides, f"{expected.strides} became {y.strides}"


def overflows_in_silence(mse: Op) -> None:
    """A gradient that float16 cannot hold is infinite and no warning: who scales the loss looks for it."""
    for scale, expected in ((2.0**15, 2.0**14), (2.0**20, np.inf)):
        x, targets = parameters_of(np.full(2, 0.5))[0], on_device(np.zeros(2, np.float16))
        with Tape() as tape, np.errstate(over="raise"):
            loss = mse(x, targets)
            tape.backward(loss, scale)
        assert loss.dtype == np.float32, f"the loss is {loss.dtype}"
        assert to_host(x.grad).tolist() == [expected] * 2, f"the gradient is {x.grad}"


def sums_are_rounded_once(sums: Callable[[Array, tuple[int, ...]], Array], n: int, seed: int) -> None:
    """The sums of many positive numbers are the exact ones, rounded: all chains are of float32."""
    x = np.random.default_rng(seed).uniform(0, 0.5, (n, 2)).astype(np.float16)
    y, exact = to_host(sums(on_device(x), (0,))), x.astype(np.float64).sum(axis=0)
    assert y.dtype == np.float16, f"a sum is {y.dtype}"
    assert (abs(y - exact) <= 1.01 * U * exact).all(), f"{y} is the sum {exact}"


def multiplies_in_single(product: Callable[..., Array], sizes: tuple[int, int, int], seed: int) -> None:
    """A product of matrices is that of float32, rounded, also where it is written into an array."""
    rng, (n, k, m) = np.random.default_rng(seed), sizes
    a, b = (rng.normal(size=shape).astype(np.float16) for shape in ((n, k), (k, m)))
    expected = a.astype(np.float32).dot(b.astype(np.float32)).astype(np.float16)
    y, out = to_host(product(on_device(a), on_device(b))), on_device(np.full((n, m), np.nan, np.float16))
    assert y.dtype == np.float16 and np.array_equal(y, expected), f"{y} is not {expected}"
    assert product(on_device(a), on_device(b), out) is out and np.array_equal(to_host(out), expected)


def a_long_row_and_its_bias_are_rounded_once(linear: Op) -> None:
    """512, of which in float16 the last terms would be lost, and 512.25, of which the bias leaves 0.25."""
    inputs = np.full((1, 8192), 0.25), np.full((2, 8192), 0.25), np.array([0.25, -512])
    inputs[0][0, 0] = 1.25  # 512 + 0.25
    y = to_host(linear(*parameters_of(*inputs)).data)
    assert y.tolist() == [[512.5, 0.25]], f"{y} is not 512.5 and 0.25"


def small_net(seed: int, dtype: str = "float16") -> Sequential:
    """Layers with a norm of the batch, activations, a norm of rows, and dropout."""
    rng = np.random.default_rng(seed)
    model = nn.Sequential(
        nn.Linear(6, 8, rng=rng), nn.BatchNorm(8), nn.ReLU(), nn.Linear(8, 8, rng=rng), nn.GELU(),
        nn.LayerNorm(8), nn.Dropout(0.1, rng=rng), nn.Linear(8, 3, rng=rng),
    )  # fmt: skip
    model.to(dtype=dtype, device=DEVICE)
    return model


def gradients(model: Module, x: Array, *, later: bool = False, buffers: bool = False) -> list[np.ndarray]:
    """The gradients of a scaled loss, of weights ``later`` than the others, or written into ``buffers``."""
    for p in model.parameters():
        p.grad, p.grad_buffer = None, on_device(np.empty(p.shape, p.dtype)) if buffers else None
    with Tape() as tape:
        y = model(Tensor(x))
        loss = ops.mse(y, on_device(np.zeros(y.shape)))
    finish_weights(tape.backward(loss, 2.0**8, weights_later=later))
    return [to_host(p.grad) for p in model.parameters()]


def small_steps_of_running_statistics_count(layer: nn.BatchNorm) -> None:
    """Of a layer in float16 the running statistics take steps of 2 ** -13, which float16 loses beside 1."""
    layer.to(dtype="float16", device=DEVICE)
    assert layer.weight.dtype == np.float16
    x = on_device(np.array([[0, 1], [2, 5]], np.float16))
    assert layer(x).dtype == np.float16
    mean, var = to_host(layer.running_mean).tolist(), to_host(layer.running_var).tolist()
    assert mean == [2.0**-13, 3 * 2.0**-13], f"the mean is {mean}"
    assert var[0] == 1 + 2.0**-13, f"the variance is {var}"
    assert layer.eval()(x).dtype == np.float16


def asks_once_each_way(batch_norm: Op) -> None:
    """Forward passes its statistics on once and asks other ranks once, and so does backward ask them."""
    calls: list[str] = []
    inputs = parameters_of(np.arange(8).reshape(4, 2), np.ones(2), np.zeros(2))

    def gather(x: Array) -> list[Array]:
        calls.append("gather")
        return [x]

    with Tape() as tape:
        y = batch_norm(*inputs, observe=lambda *_: calls.append("observe"), gather=gather)
    assert calls == ["gather", "observe"], f"forward: {calls}"
    tape.backward(y, seed_like(y))
    assert calls == ["gather", "observe", "gather"], f"forward and backward: {calls}"


def a_small_eps_counts(layer_norm: Op) -> None:
    """A row of equal numbers becomes 0 also with an eps that is 0 in float16."""
    x, ones, zeros = parameters_of(np.ones((2, 4)), np.ones(4), np.zeros(4))
    with Tape() as tape, np.errstate(divide="raise", invalid="raise"):
        y = layer_norm(x, ones, zeros, eps=1e-8)
        tape.backward(y, seed_like(y))
    assert not to_host(y.data).any() and np.isfinite(to_host(x.grad)).any()


def layers_choose_alike_in_a_row(precision: str) -> None:
    """Convolution, pooling and ReLU choose, bit by bit, the same numbers in a row as one after the other."""
    gradients = []
    for in_a_row in (True, False):
        rng = np.random.default_rng(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, rng=rng), nn.MaxPool2d(2), nn.ReLU())
        net.to(dtype=precision, device=DEVICE)
        x = Tensor(on_device(net.parameters()[0].dtype.type(rng.normal(size=(4, 1, 30, 30)))))
        with bfloat16(precision == "bfloat16"), Tape() as tape:
            y = x
            for layer in [net] if in_a_row else net.layers:
                y = layer(y)
        tape.backward(y, on_device(np.random.default_rng(1).normal(size=y.shape).astype(y.dtype)))
        grads = [p.grad for p in net.parameters() if p.grad is not None]
        gradients.append([to_host(array) for array in (y.data, *grads)])
    assert all(map(np.array_equal, *gradients)), "the layers one by one differ in what they choose"
