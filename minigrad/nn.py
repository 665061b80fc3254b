"""Layers: modules that apply one op each. Randomness is always the explicit ``rng=``: one generator for
all layers of a net, or a seed for one layer (two layers of one seed draw the same numbers).

Lecture section: synchronous data parallelism (batch-norm). Lesson: 06_data_parallel.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from . import ops
from .cross_entropy_loss import CrossEntropyLoss
from .data import shares
from .device import Array
from .forward_pass import current_pass
from .lookup import check_choice
from .module import Module, Sequential, evaluation_mode
from .ops.adaptive_pool import Sizes
from .ops.batch_norm import Gather, Observe
from .ops.conv1d import one
from .ops.conv_pool import pays
from .ops.dropout import check_probability, generator_needed
from .ops.geometry import Pair, pair
from .own_state import OwnState
from .random_mask import Mask, RandomMask
from .tensor import Parameter, Tensor

__all__ = [
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "CrossEntropyLoss",
    "Dropout",
    "ELU",
    "Embedding",
    "Flatten",
    "GELU",
    "GhostBatchNorm",
    "GroupNorm",
    "InstanceNorm",
    "Hardswish",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Upsample",
    "evaluation_mode",
]

BLOCK = 1 << 16  # numbers drawn at a time
Rng = np.random.Generator


class Linear(Module):
    """y = x w.T + b, weight (n_out, n_in) drawn uniformly within 1 / sqrt(n_in).

    Takes (..., n_in), returns (..., n_out). Raises ValueError for another shape, TypeError without ``rng``.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        rng: Rng | int | None = None,
        bias: bool = True,
        dtype: Any = np.float32,
    ):
        rng = generator(self, rng)
        self.weight = Parameter(uniform(rng, (n_out, n_in), n_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), n_in, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight) if self.bias is None else ops.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        n_out, n_in = self.weight.shape
        return f"{n_in}, {n_out}"


class Convolution(Module):
    """A convolution along the last axes, by a weight drawn uniformly within 1 / sqrt(fan in)."""

    convolve: Callable[..., Tensor]

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        check_groups(groups, n_in, n_out)
        shape = n_out, n_in // groups, *self.sizes(kernel)
        rng, fan_in = generator(self, rng), math.prod(shape[1:])
        self.weight = Parameter(uniform(rng, shape, fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        """The kernel's size along each axis."""
        raise NotImplementedError

    def forward(self, x: Any) -> Tensor:
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return self.convolve(*inputs, **self.settings)

    def describe(self) -> str:
        n_out, n_in, *sizes = self.weight.shape
        return f"{n_in * self.settings['groups']}, {n_out}, {one_size(sizes)}{changed(self.settings)}"


class Conv2d(Convolution):
    """Convolution; weight (n_out, n_in / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in).

    Takes images (N, n_in, H, W), returns (N, n_out, H', W') with H' = (H + 2 padding - dilation (kh - 1) - 1)
    // stride + 1, and W' alike. Raises ValueError for other shapes and settings, TypeError without ``rng``.
    ``ops.conv2d`` says how it rounds in float32, and how to have it more exact.
    """

    convolve = staticmethod(ops.conv2d)

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        return pair(kernel, "kernel", 1)

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """A max pooling with windows side by side, and a ReLU beside it: see ``ops.conv_pool2d``."""
        kinds = [unchanged_type(layer) for layer in following[:2]]
        n = 2 if kinds in ([ReLU, MaxPool2d], [MaxPool2d, ReLU]) else int(kinds[:1] == [MaxPool2d])
        return n if n and unchanged_type(self) is Conv2d and pooling_in(following[:n]).has_tiles() else 0

    def forward_with(self, x: Any, following: Sequence[Module]) -> tuple[Tensor, int]:
        if not pays(x, self.weight):
            return self(x), 0
        n = self.in_one_pass(following)
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        kernel = pooling_in(following[:n]).settings["kernel"]
        try:
            return ops.conv_pool2d(*inputs, pool=kernel, relu=n == 2, **self.settings), n
        except (ValueError, TypeError):
            pass  # the layer where it comes from raises it again
        return self(x), 0


class Conv1d(Convolution):
    """Convolution of signals; weight (n_out, n_in / groups, kernel) drawn as that of ``Conv2d``.

    Takes (N, n_in, L), returns (N, n_out, L') with L' = (L + 2 padding - dilation (kernel - 1) - 1) // stride
    + 1. Its settings are numbers. Raises ValueError for other shapes and settings, TypeError without ``rng``.
    """

    convolve = staticmethod(ops.conv1d)

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        return (one(kernel, "kernel", 1),)


class TransposedConvolution(Convolution):
    """A transposed convolution along the last axes, by a weight drawn uniformly within 1 / sqrt(fan in)."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng | int | None = None,
        dtype: Any = np.float32,
    ):
        check_groups(groups, n_in, n_out)
        shape = n_in, n_out // groups, *self.sizes(kernel)
        rng, fan_in = generator(self, rng), math.prod(shape[1:])
        self.weight = Parameter(uniform(rng, shape, fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {"stride": stride, "padding": padding, "output_padding": output_padding}
        self.settings |= {"dilation": dilation, "groups": groups}

    def describe(self) -> str:
        n_in, n_out, *sizes = self.weight.shape
        return f"{n_in}, {n_out * self.settings['groups']}, {one_size(sizes)}{changed(self.settings)}"


class ConvTranspose1d(TransposedConvolution):
    """Transposed convolution of signals; weight (n_in, n_out / groups, kernel) as in ``ConvTranspose2d``.

    Takes (N, n_in, L), returns (N, n_out, L') with L' = (L - 1) stride - 2 padding + dilation (kernel - 1) +
    output_padding + 1. Its settings are numbers. Raises ValueError for other shapes and settings, TypeError
    without ``rng``.
    """

    convolve = staticmethod(ops.conv_transpose1d)

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        return (one(kernel, "kernel", 1),)


class ConvTranspose2d(TransposedConvolution):
    """Transposed convolution; weight (n_in, n_out / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in).

    Takes images (N, n_in, H, W), returns (N, n_out, H', W') with H' = (H - 1) stride - 2 padding + dilation
    (kh - 1) + output_padding + 1, and W' alike. The fan in is n_out / groups * kh * kw, as in PyTorch. Raises
    ValueError for other shapes and settings, TypeError without ``rng``.
    """

    convolve = staticmethod(ops.conv_transpose2d)

    def sizes(self, kernel: Pair) -> tuple[int, ...]:
        return pair(kernel, "kernel", 1)


class Pool(Module):
    """A pooling window; ``stride`` defaults to ``kernel``."""

    def __init__(self, kernel: Pair, *, stride: Pair | None = None, padding: Pair = 0, **settings: Any):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding, **settings}

    def describe(self) -> str:
        return str(self.settings["kernel"])


class MaxPool2d(Pool):
    """The largest element of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool2d(x, **self.settings)

    def has_tiles(self) -> bool:
        """Whether windows stand side by side, on images without padding."""
        kernel, stride, *others = self.settings.values()
        return stride in (None, kernel) and tuple(others) in ((0, 1, False), ((0, 0), (1, 1), False))


def pooling_in(layers: Sequence[Module]) -> MaxPool2d:
    return next(layer for layer in layers if isinstance(layer, MaxPool2d))


class AvgPool2d(Pool):
    """The mean of each window: (N, C, H, W) becomes (N, C, H', W'), else ValueError."""

    def __init__(
        self,
        kernel: Pair,
        *,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel, stride=stride, padding=padding, **settings)

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool2d(x, **self.settings)


class MaxPool1d(Pool):
    """The largest element of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    def __init__(
        self,
        kernel: int,
        *,
        stride: int | None = None,
        padding: int = 0,
        dilation: int = 1,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode)

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool1d(x, **self.settings)


class AvgPool1d(Pool):
    """The mean of each window: (N, C, L) becomes (N, C, L'), else ValueError."""

    def __init__(
        self,
        kernel: int,
        *,
        stride: int | None = None,
        padding: int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        settings = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        super().__init__(kernel, stride=stride, padding=padding, **settings)

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool1d(x, **self.settings)


class AdaptivePool(Module):
    """Windows that make images (N, C, H, W) to (N, C, *output_size); 1 pools all of an image."""

    def __init__(self, output_size: Sizes):
        self.output_size = output_size

    def describe(self) -> str:
        return str(self.output_size)


class AdaptiveAvgPool2d(AdaptivePool):
    """The mean of each window of ``ops.adaptive_avg_pool2d``."""

    def forward(self, x: Any) -> Tensor:
        return ops.adaptive_avg_pool2d(x, output_size=self.output_size)


class AdaptiveMaxPool2d(AdaptivePool):
    """The largest element of each window of ``ops.adaptive_max_pool2d``."""

    def forward(self, x: Any) -> Tensor:
        return ops.adaptive_max_pool2d(x, output_size=self.output_size)


class Upsample(Module):
    """Images of another size, by a factor or to a size: see ``ops.interpolate``."""

    def __init__(
        self,
        scale_factor: float | tuple[float, float] | None = None,
        *,
        size: Pair | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ):
        self.settings: dict[str, Any] = {"scale_factor": scale_factor, "size": size, "mode": mode}
        self.settings["align_corners"] = align_corners

    def forward(self, x: Any) -> Tensor:
        return ops.interpolate(x, **self.settings)

    def describe(self) -> str:
        factor, size, mode, aligned = self.settings.values()
        return f"{factor or f'size={size}'}, mode={mode}{', align_corners=True' * aligned}"


class Embedding(Module):
    """A table of ``rows`` vectors of ``width``, looked up by integer."""

    def __init__(self, rows: int, width: int, *, rng: Rng | int | None = None, dtype: Any = np.float32):
        self.weight = Parameter(sample(partial(generator(self, rng).normal, 0, 1), (rows, width), dtype))

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, x)

    def describe(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class Dropout(Module, OwnState):
    """Zeroes each element with probability ``p`` in training mode; in eval mode it is the identity.

    The masks of a training step depend on the layer's ``seed``, drawn from ``rng``, on its position, the step
    and the place of each sample in the whole batch: not on ranks, micro-batches or a second run. Outside of
    a step each call has a new mask. Raises ValueError for p outside of 0 <= p < 1, and in a step for an input
    whose first axis is no multiple of the samples.
    """

    own_state = ("calls",)

    def __init__(self, p: float = 0.5, *, rng: Rng | int | None = None):
        check_probability(p)
        self.p, self.seed = p, int(generator(self, rng).integers(1 << 63))
        self.calls = 0  # outside of steps

    def forward(self, x: Any) -> Tensor:
        if not self.training:
            return x if isinstance(x, Tensor) else Tensor(x)
        return ops.dropout(x, p=self.p, rng=self.next_mask())

    def next_mask(self) -> Mask:
        """The mask of this call."""
        current = current_pass.get()
        if current is not None:
            return current.mask(self.seed)
        self.calls += 1
        return RandomMask(self.seed, step=self.calls)

    def describe(self) -> str:
        return str(self.p)


class BatchNorm(Module):
    """Normalises each channel of (N, C), (N, C, L) or (N, C, H, W) over the batch, then scales and shifts it.

    In training mode it uses the batch's statistics and moves the running ones towards them
    (``running += momentum * (batch - running)``, variance unbiased as in PyTorch); in eval mode it uses
    the running ones and leaves them as they are. Where ranks share the batch, each normalises its own samples
    until ``synchronize``.
    """

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        self.running_mean: Array = np.zeros(channels, dtype)
        self.running_var: Array = np.ones(channels, dtype)
        self.momentum, self.eps = momentum, eps
        self.gathers: dict[str, Gather] = {}

    def forward(self, x: Any) -> Tensor:
        if not self.training:
            statistics = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, statistics=statistics, eps=self.eps)
        return self.normalize(x, self.observe)

    def normalize(self, x: Any, observe: Observe) -> Tensor:
        """``x`` normalised by its own statistics, which are passed to ``observe``."""
        gather = self.gather if self.gathers else None
        return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, observe=observe, gather=gather)

    def in_one_pass(self, following: Sequence[Module]) -> int:
        """A ReLU: see ``ops.batch_norm``. Subclasses may normalise otherwise, and ranks may fail halfway."""
        alone = unchanged_type(self) is BatchNorm and not self.gathers
        return int(alone and [unchanged_type(layer) for layer in following[:1]] == [ReLU])

    def forward_with(self, x: Any, following: Sequence[Module]) -> tuple[Tensor, int]:
        own, running = {"observe": self.observe}, {"statistics": (self.running_mean, self.running_var)}
        settings: dict[str, Any] = own if self.training else running
        try:
            return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, relu=True, **settings), 1
        except (ValueError, TypeError):
            pass  # the layer where it comes from raises it again
        return self(x), 0

    def synchronize(self, axis: str, gather: Gather) -> None:
        """Use the statistics of all ranks along an axis of the grid, inner axes first.

        ``gather`` returns their arrays, see ``ops.batch_norm``; it replaces an earlier one along the axis.
        """
        self.gathers[axis] = gather

    def gather(self, x: Array) -> list[Array]:
        """``x`` of all ranks whose statistics are used."""
        arrays = [x]
        for gather in reversed(self.gathers.values()):
            arrays = [part for array in arrays for part in gather(array)]
        return arrays

    def observe(self, mean: Array, var: Array, count: float) -> None:
        """Move the running statistics towards those of a batch of ``count`` values per channel."""
        if count:
            self.move(mean, unbiased(var, count))

    def move(self, mean: Array, var: Array) -> None:
        self.running_mean += self.momentum * (mean - self.running_mean)
        self.running_var += self.momentum * (var - self.running_var)

    def describe(self) -> str:
        return str(self.weight.shape[0])


class GhostBatchNorm(BatchNorm):
    """Batch-norm over groups: each of ``groups`` consecutive shares of the batch is normalised by itself.

    Does on one machine what ``groups`` ranks do that each normalise their own share (Goyal et al. 2017);
    Hoffer, Hubara and Soudry 2017 use it to train on large batches. The running statistics move once, towards
    the groups' mean, weighted by their samples.
    """

    def __init__(self, channels: int, groups: int, **settings: Any):
        super().__init__(channels, **settings)
        self.groups = groups

    def normalize(self, x: Any, observe: Observe) -> Tensor:
        starts = [share.start for share in shares(x.shape[0], self.groups)]
        statistics: list[tuple[Array, Array, float]] = []
        parts = []
        for part in ops.split(x, sections=starts[1:]):
            parts.append(super().normalize(part, lambda *values: statistics.append(values)))
        if n := sum(count for *_, count in statistics):
            self.move(
                sum(mean * (count / n) for mean, _, count in statistics),
                sum(unbiased(var, count) * (count / n) for _, var, count in statistics),
            )
        return ops.concatenate(*parts, axis=0)


class LayerNorm(Module):
    """Normalises the last axis, or axes, of each sample, then scales and shifts it.

    ``features`` is the size of that axis, or the shape of these axes.
    """

    def __init__(self, features: int | tuple[int, ...], *, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.bias = Parameter(np.zeros(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return sizes_of(self.weight)


class RMSNorm(Module):
    """Divides the last axis, or axes, of each sample by its root mean square, then scales it.

    ``features`` is the size of that axis, or the shape of these axes. ``eps`` is by default the dtype's own.
    """

    def __init__(self, features: int | tuple[int, ...], *, eps: float | None = None, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)

    def describe(self) -> str:
        return sizes_of(self.weight)


class GroupNorm(Module):
    """Normalises each of ``groups`` groups of channels of each sample (N, C, ...), then scales and shifts.

    Batches of any size, also shared among ranks, train alike. Raises ValueError where the groups do not
    divide the channels.
    """

    def __init__(self, groups: int, channels: int, *, eps: float = 1e-5, dtype: Any = np.float32):
        check_groups(groups, channels, channels)
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        self.groups, self.eps = groups, eps

    def forward(self, x: Any) -> Tensor:
        return ops.group_norm(x, self.weight, self.bias, groups=self.groups, eps=self.eps)

    def describe(self) -> str:
        return f"{self.groups}, {self.weight.shape[0]}"


class InstanceNorm(Module):
    """Normalises each channel of each sample (N, C, ...); ``affine`` also scales and shifts it.

    It has no running statistics: in eval mode it does the same.
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, affine: bool = False, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(channels, dtype)) if affine else None
        self.bias = Parameter(np.zeros(channels, dtype)) if affine else None
        self.channels, self.eps = channels, eps

    def forward(self, x: Any) -> Tensor:
        inputs = (x,) if self.weight is None else (x, self.weight, self.bias)
        return ops.instance_norm(*inputs, eps=self.eps)

    def describe(self) -> str:
        return f"{self.channels}{', affine=True' if self.weight is not None else ''}"


class Flatten(Module):
    """(N, ...) to (N, features)."""

    def forward(self, x: Any) -> Tensor:
        return ops.flatten(x, start_axis=1)


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Any) -> Tensor:
        return ops.relu(x)


class LeakyReLU(Module):
    """x where positive, else ``slope`` * x."""

    def __init__(self, slope: float = 0.01):
        self.slope = slope

    def forward(self, x: Any) -> Tensor:
        return ops.leaky_relu(x, slope=self.slope)

    def describe(self) -> str:
        return str(self.slope)


class GELU(Module):
    """x times the normal distribution function, or with ``approximate="tanh"`` nearly so."""

    def __init__(self, approximate: str = "none"):
        check_choice("approximation", approximate, ("none", "tanh"))
        self.approximate = approximate

    def forward(self, x: Any) -> Tensor:
        return ops.gelu(x, approximate=self.approximate)

    def describe(self) -> str:
        return "" if self.approximate == "none" else f"approximate={self.approximate!r}"


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: Any) -> Tensor:
        return ops.silu(x)


class Softplus(Module):
    """log(1 + e ** (beta x)) / beta, and x where beta x > ``threshold``."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Tensor:
        return ops.softplus(x, beta=self.beta, threshold=self.threshold)

    def describe(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class ELU(Module):
    """x where positive, else ``alpha`` (e ** x - 1)."""

    def __init__(self, alpha: float = 1.0):
        self.alpha = alpha

    def forward(self, x: Any) -> Tensor:
        return ops.elu(x, alpha=self.alpha)

    def describe(self) -> str:
        return str(self.alpha)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, x: Any) -> Tensor:
        return ops.log_sigmoid(x)


class Hardswish(Module):
    """x times a ramp from 0 at -3 to 1 at 3."""

    def forward(self, x: Any) -> Tensor:
        return ops.hardswish(x)


class Sigmoid(Module):
    """1 / (1 + e ** -x)."""

    def forward(self, x: Any) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Any) -> Tensor:
        return ops.tanh(x)


class Softmax(Module):
    """exp(x) / sum(exp(x)) along the last axis."""

    def forward(self, x: Any) -> Tensor:
        return ops.softmax(x)


WRITTEN: dict[type[Module], Any] = {
    kind: (kind.forward, kind.__call__) for kind in (Conv2d, MaxPool2d, BatchNorm, ReLU)
}
"""The methods of layers that one pass computes together, as they are written here."""


def unchanged_type(layer: Module) -> type[Module] | None:
    """The class of a layer; None where a method of ``WRITTEN`` was replaced, as a spy or a counter does."""
    kind = type(layer)
    written = WRITTEN.get(kind) in (None, (kind.forward, kind.__call__))
    return kind if written and not layer.has_own_forward() else None


def generator(layer: Module, rng: Rng | int | None) -> Rng:
    """``rng``, or a new generator of the seed that it is; raises TypeError for anything else."""
    if isinstance(rng, numbers.Integral):
        return np.random.default_rng(int(rng))
    if not isinstance(rng, Rng):
        raise generator_needed(type(layer).__name__, rng)
    return rng


def check_groups(groups: int, n_in: int, n_out: int) -> None:
    if groups < 1 or n_in % groups or n_out % groups:
        raise ValueError(f"groups={groups} must divide the {n_in} input and the {n_out} output channels")


def one_size(sizes: list[int]) -> int | tuple[int, ...]:
    """A kernel's sizes, written as one number where they are equal."""
    return sizes[0] if len(set(sizes)) == 1 else tuple(sizes)


def changed(settings: dict[str, Any]) -> str:
    """The settings of a convolution that are not the default ones, for its description."""
    changes = {k: v for k, v in settings.items() if v != (0 if "padding" in k else 1)}
    return "".join(f", {k}={v}" for k, v in changes.items())


def sizes_of(weight: Tensor) -> str:
    return str(weight.shape[0] if weight.ndim == 1 else weight.shape)


def uniform(rng: Rng, shape: tuple[int, ...], fan_in: int, dtype: Any) -> np.ndarray:
    """Uniform within 1 / sqrt(fan_in), PyTorch's default for linear and convolution layers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return sample(partial(rng.uniform, -bound, bound), shape, dtype)


def sample(draw: Callable[[int], np.ndarray], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of one stream's numbers, a block at a time: whole, in float64, they take twice more memory."""
    a = np.empty(shape, dtype)
    for block in np.array_split(a.reshape(-1), range(BLOCK, a.size, BLOCK)):
        block[:] = draw(block.size)
    return a


def unbiased(var: Array, count: float) -> Array:
    """The estimate of a variance that ``count`` values gave when divided by ``count``."""
    return var * (count / max(count - 1, 1))
