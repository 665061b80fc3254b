"""Convolution, max pooling and ReLU, three layers that often follow one another.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.

>>> from minigrad import ops
>>> ops.conv_pool2d([[[[1.0, 2.0, 3.0]]]], [[[[1.0, 1.0]]]], pool=(1, 2)).data.tolist()
[[[[5.0]]]]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..faster import faster
from ..integer_settings import Pair, pair
from ..keyword_settings import settings_by_name
from . import elementwise
from .conv import conv2d
from .pool import max_pool2d

if TYPE_CHECKING:
    from ..tensor import Tensor


@settings_by_name
@faster
def conv_pool2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    pool: Pair,
    relu: bool = False,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """``conv2d`` of x (N, C, H, W), then ``max_pool2d`` with kernel ``pool``, then with ``relu`` max(y, 0).

    The value is (N, F, H', W'); a ReLU before the pooling would not change it. Where there is a faster form,
    it takes less time and memory than the ops one by one. Values that only the rounding of the bias makes
    equal are then no tie: the gradient goes to the larger one. Raises ValueError and TypeError as these ops.
    """
    tile, inputs = pair(pool, "pool", 1), (x, weight) if bias is None else (x, weight, bias)
    y = conv2d(*inputs, stride=stride, padding=padding, dilation=dilation, groups=groups)
    y = max_pool2d(y, kernel=tile)
    return elementwise.relu(y) if relu else y


@faster
def pays(x: Any, weight: Any) -> bool:
    """Whether a Sequential takes ``conv_pool2d`` for its layers: where it is faster."""
    return False
