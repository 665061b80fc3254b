"""An op that is given what does not fit says so in one line: what it got, what it needs, the way out."""

import re

import numpy as np
import pytest

from minigrad import Tensor, ops
from minigrad.testing import on_device

RNG = np.random.default_rng(0)


def zeros(*shape):
    return on_device(np.zeros(shape))


def whole(*numbers):
    return on_device(np.array(numbers))


OPS = {
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
        lambda: ops.cross_entropy(zeros(2, 3), whole(0, 3)),
        ValueError,
        "0 to 3.*0 to 2",
    ),
    "negative labels": (lambda: ops.cross_entropy(zeros(2, 3), whole(-1, 2)), ValueError, "-1 to 2.*0 to 2"),
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
    "embedding": (lambda: ops.embedding(zeros(3, 2), whole(0, 3)), ValueError, "0 to 3.*0 to 2.*enlarge"),
    "one embedding": (lambda: ops.embedding(zeros(3, 2), 5), ValueError, "5 to 5.*0 to 2"),
    "float indices": (lambda: ops.embedding(zeros(3, 2), zeros(1)), TypeError, "integer.*float64.*astype"),
    "dropout": (lambda: ops.dropout(zeros(3), p=1.0, rng=RNG), ValueError, "0 <= p < 1, got 1.0"),
    "clip": (lambda: ops.clip(zeros(3)), ValueError, "bound.*low="),
    "split": (lambda: ops.split(Tensor(zeros(5)), sections=2), ValueError, "size 5.*2 equal.*positions"),
    "pad": (lambda: ops.pad(zeros(2, 2), width=[(1, 1)]), ValueError, r"2 axes needs 2.*got \[\(1, 1\)\]"),
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
