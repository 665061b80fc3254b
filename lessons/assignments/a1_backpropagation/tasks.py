"""What assignment a1 is held to. The laws of ops are in slopes.py, that of the tape in programs.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
from minigrad_course.grading import Part, Task, Wrong
from minigrad_course.grading.assignment import load_file

from backends.comm import Communicator

slopes = load_file(Path(__file__).parent / "slopes.py", "slopes_of_a1")
programs = load_file(Path(__file__).parent / "programs.py", "programs_of_a1")
Layer, check_op = slopes.Layer, slopes.check_op


# Callable[..., Any]s: the definitions, in float64


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.einsum("ni,oi->no", x, weight) + bias


def mean_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> Any:
    z = logits - logits.max(axis=1, keepdims=True)
    each = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(z)), labels]
    return each.sum() / max(len(each), 1)


def windows(x: Any, weight: Any, bias: Any, stride: int, padding: int) -> np.ndarray:
    """One window at a time."""
    (count, _, height, width), (filters, _, kh, kw) = x.shape, weight.shape
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    rows, columns = (height + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    value = np.empty((count, filters, rows, columns))
    for n, f, i, j in np.ndindex(*value.shape):
        window = padded[n, :, i * stride : i * stride + kh, j * stride : j * stride + kw]
        value[n, f, i, j] = (window * weight[f]).sum() + bias[f]
    return value


def check_linear(submission: Any, case: Any, comm: Communicator) -> None:
    check_op(submission.linear, linear, case.arrays(), case)


def check_relu(submission: Any, case: Any, comm: Communicator) -> None:
    """Slopes with the mask held where it is: so they are exact, and 0 where x is 0."""
    x = case.arrays()["x"] // 2  # more zeros
    check_op(submission.relu, lambda moved: moved * (x > 0), {"x": x}, case)


def check_cross_entropy(submission: Any, case: Any, comm: Communicator) -> None:
    logits = case.arrays()["logits"] * np.array(case.settings["scale"], case.dtype)
    labels = np.random.default_rng(case.seed).integers(0, logits.shape[1], len(logits))
    original = labels.copy()
    check_op(
        lambda x: submission.cross_entropy(x, labels),
        lambda x: mean_cross_entropy(x, original),
        {"logits": logits},
        case,
        step=1e-5,
    )
    if not np.array_equal(labels, original):
        raise Wrong("labels was changed: work on a copy")


def check_conv2d(submission: Any, case: Any, comm: Communicator) -> None:
    check_op(
        lambda *inputs: submission.conv2d(*inputs, **case.settings),
        lambda *inputs: windows(*inputs, **case.settings),
        case.arrays(),
        case,
    )


def images(n: int, c: int, f: int, kh: int, kw: int, more: int, stride: int, padding: int) -> dict[str, Any]:
    """Images that hold at least one window; wider than high, and not a whole number of strides."""
    height, width = max(kh - 2 * padding, 1) + more, max(kw - 2 * padding, 1) + more + 1
    return {"x": (n, c, height, width), "weight": (f, c, kh, kw), "bias": (f,)}


def layers(shapes: Callable[..., dict[str, tuple[int, ...]]], *sizes: Any, **settings: Any) -> Any:
    """Cases whose shapes follow from drawn sizes and settings; they shrink to the first of each list."""

    def layer(sizes: tuple[int, ...], settings: dict[str, int], order: str, dtype: str, seed: int) -> Any:
        return Layer(shapes(*sizes, **settings), settings, order, dtype, seed)

    return st.builds(
        layer,
        st.tuples(*map(st.sampled_from, sizes)),
        st.fixed_dictionaries({name: st.sampled_from(values) for name, values in settings.items()}),
        st.sampled_from(list(slopes.ORDERS)),
        st.sampled_from(["float64", "float32"]),
        st.integers(0, 2**16),
    )


def without_gradient(oracle: Callable[..., Any]) -> Any:
    """A wrong answer: the right value, and gradients of zeros."""

    def op(*inputs: Any, **settings: Any) -> Any:
        value = np.asarray(oracle(*inputs, **settings), inputs[0].dtype)
        floats = [x for x in inputs if x.dtype.kind == "f"]
        return value, tuple(lambda g, x=x: np.zeros(x.shape, x.dtype) for x in floats)

    return op


LINEAR = layers(
    lambda n, i, o: {"x": (n, i), "weight": (o, i), "bias": (o,)}, [2, 1, 3, 0], [3, 1, 2], [4, 1, 2]
)
RELU = layers(lambda shape: {"x": shape}, [(2, 3), (5,), (1,), (2, 3, 2), (2, 2, 3, 3), (0, 3)])
LOGITS = layers(lambda n, classes, scale: {"logits": (n, classes)}, [2, 1, 3, 0], [3, 2, 1], scale=[1, 1000])
IMAGES = layers(
    images, [1, 2, 0], [1, 2], [1, 2], [2, 1, 3], [2, 3, 1], [1, 2, 0, 3], stride=[1, 2, 3], padding=[0, 1, 2]
)


def op_task(
    name: str, points: int, title: str, cases: Any, check: Any, oracle: Callable[..., Any], *parts: Part
) -> Task:
    broken = SimpleNamespace(**{name: without_gradient(oracle)})
    return Task(name, points, title, cases, check, broken, examples=100, parts=parts)


SMALL = Part("for small logits", 0.5, lambda case: case.settings["scale"] == 1)
PLAIN = Part("with stride 1 and no padding", 0.5, lambda case: case.settings == {"stride": 1, "padding": 0})

TASKS = (
    op_task("linear", 15, "the linear layer", LINEAR, check_linear, linear),
    op_task("relu", 10, "ReLU", RELU, check_relu, lambda x: np.maximum(x, 0)),
    op_task("cross_entropy", 20, "cross-entropy", LOGITS, check_cross_entropy, mean_cross_entropy, SMALL),
    op_task("conv2d", 30, "convolution with stride and padding", IMAGES, check_conv2d, windows, PLAIN),
    Task(
        "Tape",
        25,
        "the tape",
        programs.PROGRAMS,
        programs.check_tape,
        SimpleNamespace(Tape=programs.Forgetful),
        examples=100,
    ),
)
