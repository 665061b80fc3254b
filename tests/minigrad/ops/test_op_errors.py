"""Laws of minigrad/keyword_settings.py, minigrad/ops/geometry.py, cross_entropy.py, elementwise.py and
einsum.py: an op that is given what does not fit says in one line what it got, what it needs, and the way
out.
"""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from minigrad import Parameter, Tape, Tensor, op, ops
from minigrad.testing import on_device

RNG = np.random.default_rng(0)


NONE: Any = None


def zeros(*shape):
    return on_device(np.zeros(shape))


def whole(*numbers):
    return on_device(np.array(numbers))


def own(result, *inputs):
    """An op called ``cube`` of the user's own, which returns what ``result`` makes of its inputs."""

    def cube(*xs: Any, scale: float = 1.0) -> Any:
        return result(*xs)

    return lambda: op(cube)(*(Tensor(zeros(*shape)) for shape in inputs or [(3,)]))


def own_of_two(result):
    def cube(x, y):
        return result(x, y)

    return lambda: op(cube)(zeros(3), zeros(3))


def back(pullback, shape=(3,), reduce=False):
    """Backward of such an op, whose pullback is a function of g and x."""

    def cube(x):
        return x.sum() if reduce else x**3, (lambda g: pullback(g, x),)

    def step():
        leaf = Parameter(zeros(*shape))
        with Tape() as tape:
            y = op(cube)(leaf)
        tape.backward(y, 1.0)

    return step


class Cube:
    """An op of the user's own that has no ``__name__``."""

    def __init__(self, power):
        self.power = power

    def __call__(self, x):
        if not self.power > 0:
            raise ValueError(f"a power of {self.power}")
        return x**self.power, (lambda g: g * self.power * x ** (self.power - 1),)


@pytest.mark.parametrize(
    "cube", [Cube(3), partial(lambda x, power: Cube(power)(x), power=3)], ids=["object", "partial"]
)
def test_an_op_need_not_have_a_name(cube):
    leaf = Parameter(on_device(np.full(3, 2.0)))
    with Tape() as tape:
        y = op(cube)(leaf)
    tape.backward(y, 1.0)
    assert (leaf.grad == 12).all() and (y.data == 8).all()


def test_the_error_of_an_op_without_a_name_is_left_as_it_is():
    with pytest.raises(ValueError, match="a power of 0"):
        op(Cube(0))(zeros(3))


RULE = "cube returned .*an op returns its value and a tuple of pullbacks"
OPS = {
    "an op of a value alone": (own(lambda x: x**3), TypeError, RULE),
    "an op of two values, which are rows": (
        own(lambda x: x, (2, 2)),
        TypeError,
        r"cube returned an array \(2, 2\)",
    ),
    "an op of a number alone": (own(lambda x: float(x.sum())), TypeError, "cube returned float"),
    "an op of nothing": (own(lambda x: None), TypeError, "cube returned NoneType"),
    "a pullback that is no tuple": (own(lambda x: (x, lambda g: g)), TypeError, "cube returned are function"),
    "a gradient for a pullback": (
        own(lambda x: (x, (x,))),
        TypeError,
        r"cube returned are a tuple of \(ndarray\)",
    ),
    "a pullback too few": (
        own(lambda x, y: (x, (lambda g: g,)), (3,), (3,)),
        TypeError,
        "cube returned 1 pullbacks for 2 inputs",
    ),
    "a pullback too many": (
        own(lambda x: (x, (lambda g: g,) * 2)),
        TypeError,
        "cube returned 2 pullbacks for 1 inputs",
    ),
    "an op of two inputs without pullbacks": (own_of_two(lambda x, y: x * y), TypeError, RULE),
    "an op of two inputs with one pullback": (
        own_of_two(lambda x, y: (x * y, (lambda g: g,))),
        TypeError,
        "1 pullbacks for 2 inputs",
    ),
    "a tensor for a value": (own(lambda x: (Tensor(x), (None,))), TypeError, "cube returned is Tensor"),
    "a gradient that is a number": (back(lambda g, x: 1.0), TypeError, r"gradient of cube .*\(3,\) is float"),
    "no gradient": (back(lambda g, x: None), TypeError, "gradient of cube .*is NoneType"),
    "a gradient that is a list": (back(lambda g, x: [1.0] * 3), TypeError, "gradient of cube .*is list"),
    "a smaller gradient": (
        back(lambda g, x: g[:1]),
        ValueError,
        r"gradient of cube .*\(3,\) has shape \(1,\)",
    ),
    "a gradient without axes": (back(lambda g, x: g.sum()), ValueError, r"cube .*\(3,\) has shape \(\)"),
    "a larger gradient": (back(lambda g, x: np.ones(4)), ValueError, r"cube .*\(3,\) has shape \(4,\)"),
    "an outer product": (back(lambda g, x: g[:, None] * x), ValueError, r"cube .*\(3,\) has shape \(3, 3\)"),
    "a transposed gradient": (
        back(lambda g, x: g.T, (2, 3)),
        ValueError,
        r"cube .*\(2, 3\) has shape \(3, 2\)",
    ),
    "a gradient of the value's shape": (
        back(lambda g, x: g, (2, 3), reduce=True),
        ValueError,
        r"cube .*\(2, 3\) has shape \(\)",
    ),
    "a setting by position": (
        lambda: ops.softmax(zeros(2, 3), 1),  # pyright: ignore
        TypeError,
        "softmax takes 1 arg.*by name: axis=",
    ),
    "a shape by position": (lambda: ops.reshape(zeros(6), (3, 2)), TypeError, "reshape .*by name: shape="),  # pyright: ignore
    "an epsilon by position": (
        lambda: ops.layer_norm(zeros(2, 3), zeros(3), zeros(3), 1e-5),  # pyright: ignore
        TypeError,
        "layer_norm .*by name: eps=",
    ),
    "a reduction by position": (lambda: ops.mse(zeros(2), zeros(2), "sum"), TypeError, "mse .*reduction="),  # pyright: ignore
    "a kernel by position": (
        lambda: ops.max_pool2d(zeros(1, 1, 4, 4), 2),  # pyright: ignore
        TypeError,
        "max_pool2d .*by name: kernel=, stride=",
    ),
    "sections by position": (lambda: ops.split(zeros(4), 2), TypeError, "split .*by name: sections=, axis="),  # pyright: ignore
    "k by position": (lambda: ops.topk(zeros(4), 2), TypeError, "topk .*by name: k="),  # pyright: ignore
    "a stride by position": (
        lambda: ops.conv1d(zeros(1, 1, 4), zeros(1, 1, 2), None, 2),  # pyright: ignore
        TypeError,
        "conv1d .*by name: stride=",
    ),
    "an axis of concatenate by position": (
        lambda: ops.concatenate(zeros(2), zeros(2), 0),
        ValueError,
        "axis= by name",
    ),
    "an axis of stack by position": (
        lambda: ops.stack(zeros(2), zeros(2), 0),
        ValueError,
        r"\(2,\), \(\); .*axis=",
    ),
    "matmul": (lambda: ops.matmul(zeros(2, 3), zeros(4, 5)), ValueError, r"\(2, 3\).*\(4, 5\).*transpose"),
    "matmul of a vector": (lambda: zeros(2, 3) @ Tensor(zeros(2)), ValueError, r"\(2, 3\).*\(2,\)"),
    "matmul of a number": (lambda: Tensor(zeros(2, 3)) @ 2.0, ValueError, r"\(2, 3\).*\(\).*\*"),
    "linear": (lambda: ops.linear(zeros(2, 3), zeros(4, 5)), ValueError, r"\(2, 3\).*\(4, 5\).*5 features"),
    "linear's bias": (
        lambda: ops.linear(zeros(2, 3), zeros(4, 3), zeros(3)),
        ValueError,
        r"bias.*\(4,\).*\(3,\)",
    ),
    "labels out of range": (
        lambda: ops.cross_entropy(zeros(2, 3), np.array([0, 3])),
        ValueError,
        "0 to 3.*0 to 2",
    ),
    "negative labels": (
        lambda: ops.cross_entropy(zeros(2, 3), np.array([-1, 2])),
        ValueError,
        "-1 to 2.*0 to 2",
    ),
    "float labels": (
        lambda: ops.cross_entropy(zeros(2, 3), zeros(2)),
        TypeError,
        "integer labels.*float64.*astype",
    ),
    "too few labels": (
        lambda: ops.cross_entropy(zeros(2, 3), whole(0)),
        ValueError,
        r"\(2, 3\).*\(1,\).*per row",
    ),
    "mse": (lambda: ops.mse(zeros(2), zeros(3)), ValueError, r"\(2,\).*\(3,\).*reshape"),
    "mse with a number": (lambda: ops.mse(zeros(2), 0.0), ValueError, r"\(2,\).*\(\)"),
    "binary cross-entropy": (
        lambda: ops.binary_cross_entropy_with_logits(zeros(2), zeros(3)),
        ValueError,
        r"\(2,\).*\(3,\).*one-hot",
    ),
    "reduction": (
        lambda: ops.l1_loss(zeros(2), zeros(2), reduction="avg"),
        ValueError,
        "unknown reduction 'avg'; choose one of mean, sum, none$",
    ),
    "reduction of kl_div": (
        lambda: ops.kl_div(zeros(2), zeros(2), reduction="avg"),
        ValueError,
        "one of mean, sum, none, batchmean",
    ),
    "huber": (lambda: ops.huber_loss(zeros(2), zeros(3)), ValueError, r"\(2,\).*\(3,\).*reshape"),
    "huber's delta": (
        lambda: ops.huber_loss(zeros(2), zeros(2), delta=0),
        ValueError,
        "delta must be positive, got 0",
    ),
    "smooth l1's beta": (
        lambda: ops.smooth_l1_loss(zeros(2), zeros(2), beta=-1),
        ValueError,
        "beta.*l1_loss",
    ),
    "labels of images": (
        lambda: ops.cross_entropy(zeros(2, 3, 4), whole(0, 1)),
        ValueError,
        r"\(2, 3, 4\).*\(2,\).*per row or pixel",
    ),
    "labels of images out of range": (
        lambda: ops.nll_loss(zeros(1, 3, 2), np.array([[0, 3]]), ignore_index=0),
        ValueError,
        "0 to 3.*0 to 2",
    ),
    "class weights": (
        lambda: ops.cross_entropy(zeros(1, 3), whole(0), weight=[1.0, 2.0]),
        ValueError,
        r"weight for each of 3 classes, got the shape \(2,\)",
    ),
    "smoothing": (
        lambda: ops.cross_entropy(zeros(1, 3), whole(0), label_smoothing=2),
        ValueError,
        "between 0 and 1, got 2",
    ),
    "a soft label to ignore": (
        lambda: ops.cross_entropy(zeros(1, 3), zeros(1, 3), ignore_index=0),
        ValueError,
        "ignore_index.*soft labels",
    ),
    "pos_weight": (
        lambda: ops.binary_cross_entropy_with_logits(zeros(2, 3), zeros(2, 3), pos_weight=[1.0, 2.0]),
        ValueError,
        r"pos_weight of shape \(2,\).*\(2, 3\)",
    ),
    "softplus": (lambda: ops.softplus(zeros(2), beta=0), ValueError, "beta must be positive, got 0"),
    "gelu": (lambda: ops.gelu(zeros(2), approximate="erf"), ValueError, "'erf'; choose one of none, tanh"),
    "dropout's seed": (
        lambda: ops.dropout(zeros(2), p=0.5, rng=0),  # pyright: ignore
        TypeError,
        r"generator.*rng=0; write rng = np\.random\.default_rng",
    ),
    "embedding": (
        lambda: ops.embedding(zeros(3, 2), np.array([0, 3])),
        ValueError,
        "0 to 3.*0 to 2.*enlarge",
    ),
    "one embedding": (lambda: ops.embedding(zeros(3, 2), 5), ValueError, "5 to 5.*0 to 2"),
    "float indices": (lambda: ops.embedding(zeros(3, 2), zeros(1)), TypeError, "integer.*float64.*astype"),
    "dropout": (lambda: ops.dropout(zeros(3), p=1.0, rng=RNG), ValueError, "0 <= p < 1, got 1.0"),
    "clip": (lambda: ops.clip(zeros(3)), ValueError, "bound.*low="),
    "split": (lambda: ops.split(Tensor(zeros(5)), sections=2), ValueError, "size 5.*2 equal.*positions"),
    "pad": (lambda: ops.pad(zeros(2, 2), width=[(1, 1)]), ValueError, r"2 axes needs 2.*got \[\(1, 1\)\]"),
    "pad by another mode": (
        lambda: ops.pad(zeros(2), width=1, mode="mirror"),
        ValueError,
        "'mirror'.*reflect, edge, wrap",
    ),
    "pad of nothing": (
        lambda: ops.pad(zeros(2, 0), width=1, mode="wrap"),
        ValueError,
        r"axis 1.*\(2, 0\).*wrap",
    ),
    "flatten backwards": (
        lambda: ops.flatten(zeros(2, 3, 4), start_axis=2, end_axis=-2),
        ValueError,
        "ends at axis -2.*before axis 2",
    ),
    "logits of one sample": (
        lambda: ops.cross_entropy(zeros(3), zeros(3)),
        ValueError,
        r"cross_entropy.*\(3,\).*x\[None\]",
    ),
    "log-probabilities of one sample": (
        lambda: ops.nll_loss(zeros(3), whole()),
        ValueError,
        r"nll_loss.*\(3,\).*x\[None\]",
    ),
    "split into none": (lambda: ops.split(zeros(4), sections=0), ValueError, "size 4.*0 equal.*positions"),
    "split into fewer": (lambda: ops.split(zeros(4), sections=-1), ValueError, "-1 equal.*positions"),
    "negative pad": (lambda: ops.pad(zeros(2), width=-1), ValueError, "integers from 0 on.*got -1.*x\\["),
    "half a pad": (lambda: ops.pad(zeros(2), width=1.5), ValueError, "integers from 0 on.*got 1.5"),
    "pad by one pair": (
        lambda: ops.pad(zeros(2, 2), width=(1, 2)),
        ValueError,
        r"2 axes needs 2.*got \(1, 2\)",
    ),
    "flatten": (lambda: ops.flatten(zeros(2, 3), start_axis=7), ValueError, "2 axes has no axis 7.*-2 to 1"),
    "ddof": (lambda: ops.var(zeros(2), axis=1, ddof=1), ValueError, "1 axes has no axis 1"),
    "cumsum": (lambda: ops.cumsum(zeros(2, 3), axis=NONE), TypeError, "integer, got None"),
    "cumprod": (lambda: ops.cumprod(zeros(2, 3), axis=-3), ValueError, "2 axes has no axis -3"),
    "sort": (lambda: ops.sort(zeros(2, 3), axis=2), ValueError, "2 axes has no axis 2"),
    "topk": (lambda: ops.topk(zeros(2, 3), k=4), ValueError, "3 elements along axis 1.*0 to 3, got 4"),
    "gather": (lambda: ops.gather(zeros(2), np.array([2]), axis=0), ValueError, "2 to 2.*size 2 has 0 to 1"),
    "gather from behind": (lambda: ops.gather(zeros(2), np.array([-1]), axis=0), ValueError, "-1 to -1"),
    "gather a row": (lambda: ops.gather(zeros(2, 3), whole(0), axis=1), ValueError, r"\(2, 3\).*got \(1,\)"),
    "gather too long": (
        lambda: ops.gather(zeros(1, 3), whole([0], [0]), axis=1),
        ValueError,
        r"got \(2, 1\)",
    ),
    "gather by floats": (
        lambda: ops.gather(zeros(2), zeros(1), axis=0),
        TypeError,
        "gather.*integer.*float64",
    ),
    "scatter": (
        lambda: ops.scatter(zeros(2), np.array([0, 5]), zeros(2), axis=0),
        ValueError,
        "scatter's indices run from 0 to 5.*0 to 1",
    ),
    "scatter by another reduction": (
        lambda: ops.scatter_reduce(zeros(2), whole(0), zeros(1), axis=0, reduce="prod"),
        ValueError,
        "'prod'.*sum, mean, amax, amin",
    ),
    "scatter too many": (lambda: ops.scatter(zeros(2), whole(0), zeros(2), axis=0), ValueError, "broadcast"),
    "roll": (
        lambda: ops.roll(zeros(2, 3), shift=(1, 2, 3), axis=(0, 1)),
        ValueError,
        r"one.*each.*\(1, 2, 3\)",
    ),
    "roll half": (lambda: ops.roll(zeros(2), shift=0.5), ValueError, "integer.*0.5"),  # pyright: ignore
    "repeat": (lambda: ops.repeat(zeros(2), repeats=-1), ValueError, "size 2.*from 0 on.*got -1"),
    "repeat a list": (
        lambda: ops.repeat(zeros(2), repeats=[1, 2, 3]),
        ValueError,
        r"list of 2, got \[1, 2, 3\]",
    ),
    "repeat half": (lambda: ops.repeat(zeros(2), repeats=0.5), ValueError, "from 0 on.*0.5"),  # pyright: ignore
    "topk of half": (lambda: ops.topk(zeros(2), k=0.5), TypeError, "float.*integer"),  # pyright: ignore
    "tile": (lambda: ops.tile(zeros(2), reps=(2, -1)), ValueError, r"from 0 on.*\(2, -1\)"),
    "tril": (lambda: ops.tril(zeros(3)), ValueError, r"n, m.*\(3,\)"),
    "diagonal": (lambda: ops.diagonal(zeros(3)), ValueError, r"two axes.*\(3,\)"),
    "diagonal twice": (lambda: ops.diagonal(zeros(3, 3), axis2=-2), ValueError, r"\(0, -2\).*twice"),
    "masked_fill": (
        lambda: ops.masked_fill(zeros(2, 3), np.array([True] * 2), value=0),
        ValueError,
        r"\(2,\).*\(2, 3\)",
    ),
    "einsum of arrays": (lambda: ops.einsum(zeros(2), zeros(2)), TypeError, "ij,jk->ik"),  # pyright: ignore
    "einsum's sizes": (
        lambda: ops.einsum("ij,jk", zeros(2, 3), zeros(2, 3)),
        ValueError,
        r"'ij,jk' have sizes 3 and 2.*\(2, 3\), \(2, 3\)",
    ),
    "einsum's operands": (lambda: ops.einsum("ij,jk", zeros(2, 3)), ValueError, "names 2 operands, got 1"),
    "einsum's axes": (lambda: ops.einsum("ijk->k", zeros(2, 3)), ValueError, "'ijk'.*3 axes.*has 2"),
    "einsum's letters": (lambda: ops.einsum("i1->i", zeros(2, 3)), ValueError, "letters.*'i1->i'"),
    "einsum's output": (lambda: ops.einsum("ij->ik", zeros(2, 3)), ValueError, "output of einsum 'ij->ik'"),
    "einsum's output twice": (lambda: ops.einsum("ij->ii", zeros(2, 3)), ValueError, "each once"),
    "axis": (lambda: ops.sum(zeros(2, 3), axis=2), ValueError, "2 axes has no axis 2.*-2 to 1"),
    "axis of a number": (lambda: ops.max(zeros(), axis=1), ValueError, "no axis 1"),
    "float axis": (lambda: ops.mean(zeros(2), axis=1.0), TypeError, r"integer.*1\.0"),  # pyright: ignore
    "axis twice": (lambda: ops.var(zeros(2, 3), axis=(0, -2)), ValueError, r"\(0, -2\).*twice"),
    "transpose twice": (lambda: ops.transpose(zeros(2, 3), axes=(0, 0)), ValueError, r"\(0, 0\).*twice"),
    "transpose one": (lambda: ops.transpose(zeros(2, 3), axes=(0,)), ValueError, r"2 axes.*each.*\(0,\)"),
    "concatenate nothing": (lambda: ops.concatenate(), ValueError, "at least one"),
    "concatenate an empty list": (lambda: ops.concatenate([]), ValueError, "at least one"),
    "stack nothing": (lambda: ops.stack([], axis=1), ValueError, "at least one"),
    "concatenate numbers": (lambda: ops.concatenate(zeros(), 1.0), ValueError, "along an axis.*use stack"),
    "concatenate along None": (lambda: ops.concatenate(zeros(2), axis=NONE), TypeError, "integer, got None"),
    "batch_norm's bias": (
        lambda: ops.batch_norm(zeros(2, 3), zeros(3), zeros(1)),
        ValueError,
        r"\(3,\) and \(1,\)",
    ),
    "batch_norm of a number": (lambda: ops.batch_norm(1.0, zeros(1), zeros(1)), ValueError, r"N, C.*\(\)"),
    "layer_norm by a number": (lambda: ops.layer_norm(zeros(2, 3), 1.0, 0.0), ValueError, r"\(3,\).*\(\)"),
    "linear of a number": (lambda: ops.linear(2.0, zeros(4, 5)), ValueError, r"\(\).*\(4, 5\)"),
    "linear by a number": (lambda: ops.linear(zeros(2, 3), 1.0), ValueError, r"\(2, 3\).*\(\)"),
    "linear's number": (lambda: ops.linear(zeros(2, 3), zeros(4, 3), 1.0), ValueError, r"bias \(4,\).*\(\)"),
    "embedding in a vector": (lambda: ops.embedding(zeros(3), whole(0)), ValueError, r"rows, width.*\(3,\)"),
    "cross-entropy of a number": (lambda: ops.cross_entropy(1.0, whole(0)), ValueError, r"N, classes.*\(\)"),
    "one target for all": (
        lambda: ops.binary_cross_entropy_with_logits(zeros(2), 1.0),
        ValueError,
        r"\(2,\).*\(\).*full_like",
    ),
    "no kernel": (
        lambda: ops.conv2d(zeros(1, 1, 5, 5), zeros(1, 1, 0, 0)),
        ValueError,
        "kernel.*at least 1.*0, 0",
    ),
    "half a stride": (
        lambda: ops.conv2d(zeros(1, 1, 5, 5), zeros(1, 1, 3, 3), stride=1.5),  # pyright: ignore
        ValueError,
        "stride.*integers.*1.5",
    ),
    "half a pool": (
        lambda: ops.max_pool2d(zeros(1, 1, 4, 4), kernel=(2, 1.5)),  # pyright: ignore
        ValueError,
        "kernel.*integers",
    ),
    "groups": (
        lambda: ops.conv2d(zeros(1, 2, 5, 5), zeros(2, 1, 3, 3), groups=2.0),  # pyright: ignore
        ValueError,
        "groups.*integer.*2.0",
    ),
    "conv by a number": (lambda: ops.conv2d(zeros(1, 1, 5, 5), 1.0), ValueError, r"kh, kw.*\(\)"),
    "conv's number": (
        lambda: ops.conv2d(zeros(1, 1, 5, 5), zeros(1, 1, 3, 3), 1.0),
        ValueError,
        r"bias \(1,\).*\(\)",
    ),
    "same at a stride": (
        lambda: ops.conv2d(zeros(1, 1, 5, 5), zeros(1, 1, 3, 3), stride=2, padding="same"),
        ValueError,
        r'padding="same".*stride 1.*\(2, 2\).*number',
    ),
    "a padding's name": (
        lambda: ops.conv2d(zeros(1, 1, 5, 5), zeros(1, 1, 3, 3), padding="full"),
        ValueError,
        "'full'.*same, valid",
    ),
    "conv1d of a matrix": (
        lambda: ops.conv1d(zeros(3, 8), zeros(1, 3, 3)),
        ValueError,
        r"N, C, L.*\(3, 8\).*x\[None\]",
    ),
    "conv_transpose1d of a matrix": (
        lambda: ops.conv_transpose1d(zeros(3, 8), zeros(3, 1, 3)),
        ValueError,
        r"N, C, L.*\(3, 8\).*x\[None\]",
    ),
    "conv1d by half a stride": (
        lambda: ops.conv1d(zeros(1, 3, 8), zeros(1, 3, 3), stride=1.5),  # pyright: ignore
        ValueError,
        "stride must be an integer.*1.5",
    ),
    "conv_transpose's channels": (
        lambda: ops.conv_transpose2d(zeros(1, 3, 8, 8), zeros(4, 2, 3, 3)),
        ValueError,
        r"\(1, 3, 8, 8\).*\(4, 2, 3, 3\).*3 channels.*takes 4",
    ),
    "conv_transpose of a matrix": (
        lambda: ops.conv_transpose2d(zeros(8, 8), zeros(1, 1, 3, 3)),
        ValueError,
        r"N, C, H, W.*\(8, 8\)",
    ),
    "conv_transpose's bias": (
        lambda: ops.conv_transpose2d(zeros(1, 2, 8, 8), zeros(2, 3, 3, 3), zeros(2)),
        ValueError,
        r"bias \(3,\).*\(2,\)",
    ),
    "conv_transpose's output padding": (
        lambda: ops.conv_transpose2d(zeros(1, 1, 8, 8), zeros(1, 1, 3, 3), stride=2, output_padding=2),
        ValueError,
        r"output_padding \(2, 2\).*stride \(2, 2\)",
    ),
    "conv_transpose of nothing": (
        lambda: ops.conv_transpose2d(zeros(1, 1, 1, 1), zeros(1, 1, 3, 3), padding=2),
        ValueError,
        r"\(1, 1\).*\(-1, -1\).*less padding",
    ),
    "an adaptive pool of nothing": (
        lambda: ops.adaptive_avg_pool2d(zeros(1, 1, 0, 3), output_size=2),
        ValueError,
        r"pixels.*\(1, 1, 0, 3\)",
    ),
    "an adaptive pool to nothing": (
        lambda: ops.adaptive_max_pool2d(zeros(1, 1, 3, 3), output_size=(2, 0)),
        ValueError,
        r"output_size.*at least 1.*\(2, 0\)",
    ),
    "interpolation by nothing": (
        lambda: ops.interpolate(zeros(1, 1, 3, 3), scale_factor=(1, 0)),
        ValueError,
        r"scale_factor.*above 0.*\(1, 0\)",
    ),
    "interpolation to nothing": (
        lambda: ops.interpolate(zeros(1, 1, 3, 3), scale_factor=0.25),
        ValueError,
        r"0.25.*no pixel.*\(3, 3\)",
    ),
    "interpolation by a factor and to a size": (
        lambda: ops.interpolate(zeros(1, 1, 3, 3), scale_factor=2, size=6),
        ValueError,
        "either size or scale_factor.*6.*2",
    ),
    "interpolation of corners without blending": (
        lambda: ops.interpolate(zeros(1, 1, 3, 3), size=6, align_corners=True),
        ValueError,
        "align_corners.*bilinear.*nearest",
    ),
    "interpolation by another mode": (
        lambda: ops.interpolate(zeros(1, 1, 3, 3), scale_factor=2, mode="cubic"),
        ValueError,
        "'cubic'.*nearest, nearest-exact, bilinear",
    ),
    "groups of channels": (
        lambda: ops.group_norm(zeros(2, 4), zeros(4), zeros(4), groups=3),
        ValueError,
        "groups=3.*4 channels",
    ),
    "group_norm": (
        lambda: ops.group_norm(zeros(2, 4), zeros(2), zeros(4), groups=2),
        ValueError,
        r"\(2, 4\), \(2,\)",
    ),
    "instance_norm of one value": (
        lambda: ops.instance_norm(zeros(2, 4, 1)),
        ValueError,
        "several.*group_norm",
    ),
    "instance_norm": (
        lambda: ops.instance_norm(zeros(2, 4, 3), zeros(3), zeros(3)),
        ValueError,
        r"\(2, 4, 3\).*\(3,\)",
    ),
    "rms_norm": (lambda: ops.rms_norm(zeros(2, 3), zeros(2)), ValueError, r"\(2, 3\).*\(3,\).*\(2,\)"),
    "batch_norm": (lambda: ops.batch_norm(zeros(2, 3), zeros(4), zeros(4)), ValueError, r"\(2, 3\).*\(4,\)"),
    "layer_norm": (lambda: ops.layer_norm(zeros(2, 3), zeros(4), zeros(4)), ValueError, r"\(3,\).*\(4,\)"),
    "conv channels": (
        lambda: ops.conv2d(zeros(1, 3, 8, 8), zeros(4, 2, 3, 3)),
        ValueError,
        r"\(1, 3, 8, 8\).*\(4, 2, 3, 3\).*3 channels",
    ),
    "conv of a matrix": (
        lambda: ops.conv2d(zeros(8, 8), zeros(1, 1, 3, 3)),
        ValueError,
        r"N, C, H, W.*\(8, 8\)",
    ),
    "conv window": (
        lambda: ops.conv2d(zeros(1, 1, 2, 2), zeros(1, 1, 3, 3)),
        ValueError,
        r"\(3, 3\).*not fit.*\(2, 2\).*padding",
    ),
    "conv stride": (
        lambda: ops.conv2d(zeros(1, 1, 4, 4), zeros(1, 1, 3, 3), stride=0),
        ValueError,
        "stride.*at least 1.*0",
    ),
    "pool window": (
        lambda: ops.max_pool2d(zeros(1, 1, 2, 2), kernel=3),
        ValueError,
        r"\(3, 3\).*not fit.*\(2, 2\)",
    ),
    "pool of a matrix": (lambda: ops.avg_pool2d(zeros(4, 4), kernel=2), ValueError, r"N, C, H, W.*\(4, 4\)"),
    "pool of a signal alone": (lambda: ops.max_pool1d(zeros(4), kernel=2), ValueError, r"N, C, L.*\(4,\)"),
    "pool padding": (
        lambda: ops.max_pool2d(zeros(1, 1, 4, 4), kernel=2, padding=2),
        ValueError,
        "padding.*half",
    ),
}


@pytest.mark.parametrize(("mistake", "kind", "words"), OPS.values(), ids=OPS)
def test_a_mistake_is_named_in_one_line(mistake, kind, words):
    with pytest.raises(kind) as caught:
        mistake()
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(words, message), message
