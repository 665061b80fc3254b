"""Laws of minigrad/memory_order.py and minigrad/ops/: laws of minigrad/memory_order.py and minigrad/ops/:
images stay channels-last in memory, forward and backward, through every op that takes images.
"""

import numpy as np
import pytest

from minigrad import ops
from minigrad.testing import on_device
from tests.minigrad.ops import op_laws

RNG = np.random.default_rng(0)
IMAGES, OTHER = (RNG.uniform(0.5, 2, (2, 3, 4, 5)) for _ in range(2))
CHANNELS = RNG.normal(size=3)
FILTERS = RNG.normal(size=(3, 3, 3, 3))

UNARY = [
    ops.negative, ops.abs, ops.exp, ops.log, ops.sqrt, ops.tanh, ops.sigmoid, ops.relu, ops.leaky_relu,
    ops.gelu, ops.silu, ops.softplus, ops.log_sigmoid, ops.elu, ops.hardswish, ops.sin, ops.cos,
]  # fmt: skip
BINARY = [ops.add, ops.subtract, ops.multiply, ops.divide, ops.power, ops.maximum, ops.minimum]
OTHERS = {
    "clip": (lambda x: ops.clip(x, low=1), []),
    "where": (lambda x: ops.where(x.data > 1, x, 0.0), []),
    "dropout": (lambda x: ops.dropout(x, p=0.5, rng=np.random.default_rng(0)), []),
    "batch_norm": (ops.batch_norm, [CHANNELS, CHANNELS]),
    "batch_norm_fixed": (
        lambda x, w, b: ops.batch_norm(x, w, b, statistics=(on_device(CHANNELS), on_device(CHANNELS**2))),
        [CHANNELS, CHANNELS],
    ),
    "conv2d": (ops.conv2d, [FILTERS]),
    "conv2d_bias": (lambda x, w, b: ops.conv2d(x, w, b, padding=1), [FILTERS, CHANNELS]),
    "conv2d_stride": (lambda x, w: ops.conv2d(x, w, stride=2, padding=1), [FILTERS]),
    "conv2d_same": (lambda x, w: ops.conv2d(x, w, padding="same"), [FILTERS[:, :, :2]]),
    "conv_transpose2d": (lambda x, w: ops.conv_transpose2d(x, w, stride=2, padding=1), [FILTERS]),
    "conv_transpose2d_more": (
        lambda x, w: ops.conv_transpose2d(x, w, dilation=2, output_padding=1),
        [FILTERS],
    ),
    "group_norm": (lambda x, w, b: ops.group_norm(x, w, b, groups=3), [CHANNELS, CHANNELS]),
    "instance_norm": (ops.instance_norm, []),
    "nearest": (lambda x: ops.interpolate(x, scale_factor=2), []),
    "bilinear": (lambda x: ops.interpolate(x, scale_factor=2, mode="bilinear"), []),
    "to a size": (lambda x: ops.interpolate(x, size=(5, 4), mode="bilinear"), []),
    "adaptive_avg_pool2d": (lambda x: ops.adaptive_avg_pool2d(x, output_size=3), []),
    "adaptive_max_pool2d": (lambda x: ops.adaptive_max_pool2d(x, output_size=3), []),
    "max_pool2d_ceil": (lambda x: ops.max_pool2d(x, kernel=2, ceil_mode=True), []),
    "avg_pool2d_ceil": (lambda x: ops.avg_pool2d(x, kernel=2, ceil_mode=True), []),
    "max_pool2d": (lambda x: ops.max_pool2d(x, kernel=2), []),
    "avg_pool2d": (lambda x: ops.avg_pool2d(x, kernel=2), []),
    "concatenate": (lambda x: ops.concatenate(x, x, axis=1), []),
    "pad": (lambda x: ops.pad(x, width=1), []),
    "reflect": (lambda x: ops.pad(x, width=1, mode="reflect"), []),
}


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.__name__)
def test_elementwise_ops(op):
    op_laws.channels_last_is_kept(op, on_device(IMAGES))


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_ops_of_two_images(op):
    other = op_laws.channels_last(on_device(OTHER))
    op_laws.channels_last_is_kept(lambda x: op(x, other), on_device(IMAGES))
    op_laws.channels_last_is_kept(lambda x: op(x, 2.0), on_device(IMAGES))


@pytest.mark.parametrize("name", OTHERS)
def test_ops_with_settings(name):
    op, others = OTHERS[name]
    if name in ("concatenate", "pad"):  # going back they hand out views of g
        y = op(op_laws.channels_last(on_device(IMAGES)))
        assert op_laws.is_channels_last(y.data)
    else:
        op_laws.channels_last_is_kept(op, on_device(IMAGES), *map(on_device, others))


def test_the_gradient_of_flatten_is_channels_last_where_its_input_was():
    op_laws.pullbacks_keep_the_contract(lambda x: ops.flatten(x, start_axis=1), on_device(IMAGES))
    _, entry = op_laws.pullbacks_of(
        lambda x: ops.flatten(x, start_axis=1), [op_laws.channels_last(on_device(IMAGES))]
    )
    assert op_laws.is_channels_last(entry[0][2](on_device(np.ones((2, 60)))))
