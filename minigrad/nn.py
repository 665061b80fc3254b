"""Layers: modules that hold parameters and apply ops. Randomness is always the explicit ``rng=``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import ops
from .device import Array, array_module, to_device, to_host
from .ops.conv import Pair, pair
from .ops.dropout import check_probability
from .tape import current_tape
from .tensor import Parameter, Tensor

Rng = np.random.Generator


class Module:
    """What holds parameters: its attributes that are Parameters, arrays, modules, or lists of modules.

    Subclasses write ``forward``. Arrays that are no parameters (running statistics) are part of the state.
    """

    def forward(self, x: Any) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} needs a forward method")

    def __call__(self, x: Any) -> Tensor:
        try:
            return self.forward(x)
        except (ValueError, TypeError) as error:
            if not self.children():  # the innermost layer signs the error
                error.args = (f"in {self!r}: {error}",)
            raise

    def children(self) -> dict[str, Module]:
        """The modules directly inside, by attribute name (by position for lists)."""
        found: dict[str, Module] = {}
        for name, value in vars(self).items():
            if isinstance(value, Module):
                found[name] = value
            elif isinstance(value, list):
                found.update({f"{name}.{i}": m for i, m in enumerate(value) if isinstance(m, Module)})
        return found

    def named_arrays(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        """(name, owner, attribute) of every parameter and state array, outermost first."""
        for name, value in vars(self).items():
            if isinstance(value, Parameter | np.ndarray) or hasattr(value, "__cuda_array_interface__"):
                yield prefix + name, self, name
        for name, child in self.children().items():
            yield from child.named_arrays(f"{prefix}{name}.")

    def named_parameters(self) -> dict[str, Parameter]:
        """Every parameter by its dotted name; one that is used twice stands under its first name."""
        found: dict[int, tuple[str, Parameter]] = {}
        for name, owner, attribute in self.named_arrays():
            value = getattr(owner, attribute)
            if isinstance(value, Parameter):
                found.setdefault(id(value), (name, value))
        return dict(found.values())

    def parameters(self) -> list[Parameter]:
        """Every parameter once."""
        return list(self.named_parameters().values())

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies, on the host, of all parameters and state arrays by dotted name."""
        values = ((name, getattr(owner, attribute)) for name, owner, attribute in self.named_arrays())
        return {name: to_host(v.data if isinstance(v, Parameter) else v).copy() for name, v in values}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Copy ``state`` into the parameters and state arrays, in place.

        Raises KeyError where names are missing or unknown, ValueError where a shape differs; the
        model is then unchanged.
        """
        here = {name: getattr(owner, attribute) for name, owner, attribute in self.named_arrays()}
        if missing := sorted(here.keys() - state.keys()):
            raise KeyError(f"the state lacks {', '.join(missing)}; it was saved from a different model")
        if unknown := sorted(state.keys() - here.keys()):
            raise KeyError(
                f"the model has no {', '.join(unknown)}; the state was saved from a different model"
            )
        for name, value in here.items():
            if np.shape(state[name]) != value.shape:
                raise ValueError(
                    f"{name} has shape {value.shape}, the state {np.shape(state[name])}; build the same model"
                )
        for name, value in here.items():
            array = value.data if isinstance(value, Parameter) else value
            array[...] = array_module(array).asarray(state[name])

    def to(self, *, dtype: Any = None, device: str | None = None) -> Module:
        """Convert floating parameters and state arrays to ``dtype`` and move them to ``device``, in place."""
        for _, owner, attribute in list(self.named_arrays()):
            value = getattr(owner, attribute)
            array = value.data if isinstance(value, Parameter) else value
            if dtype is not None and array.dtype.kind == "f":
                array = array.astype(dtype)
            if device is not None:
                array = to_device(array, device)
            if isinstance(value, Parameter):
                value.data, value.grad = array, None
            else:
                setattr(owner, attribute, array)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"

    def describe(self) -> str:
        """The settings, as they stand between the parentheses of the representation."""
        return ", ".join(f"{name}={child!r}" for name, child in self.children().items())


class Sequential(Module):
    """Layers applied in order; ``model[2]`` is the third. Parameters are named by position: "2.weight"."""

    def __init__(self, *layers: Module):
        self.layers = list(layers)

    def children(self) -> dict[str, Module]:
        return {str(i): layer for i, layer in enumerate(self.layers)}

    def forward(self, x: Any) -> Tensor:
        for i, layer in enumerate(self.layers):
            try:
                x = layer(x)
            except (ValueError, TypeError) as error:
                error.args = (f"layer {i}, {error}",)
                raise
        return x

    def __getitem__(self, i: int) -> Module:
        return self.layers[i]

    def __len__(self) -> int:
        return len(self.layers)

    def describe(self) -> str:
        return ", ".join(map(repr, self.layers))


class Linear(Module):
    """y = x w.T + b, weight (n_out, n_in) drawn uniformly within 1 / sqrt(n_in)."""

    def __init__(self, n_in: int, n_out: int, *, rng: Rng, bias: bool = True, dtype: Any = np.float32):
        self.weight = Parameter(uniform(rng, (n_out, n_in), n_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), n_in, dtype)) if bias else None

    def forward(self, x: Any) -> Tensor:
        return ops.linear(x, self.weight) if self.bias is None else ops.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        n_out, n_in = self.weight.shape
        return f"{n_in}, {n_out}"


class Conv2d(Module):
    """Convolution; weight (n_out, n_in / groups, kh, kw) drawn uniformly within 1 / sqrt(fan in)."""

    def __init__(
        self,
        n_in: int,
        n_out: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        rng: Rng,
        dtype: Any = np.float32,
    ):
        if groups < 1 or n_in % groups or n_out % groups:
            raise ValueError(f"groups={groups} must divide the {n_in} input and the {n_out} output channels")
        kh, kw = pair(kernel, "kernel", 1)
        fan_in = n_in // groups * kh * kw
        self.weight = Parameter(uniform(rng, (n_out, n_in // groups, kh, kw), fan_in, dtype))
        self.bias = Parameter(uniform(rng, (n_out,), fan_in, dtype)) if bias else None
        self.settings = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
        }

    def forward(self, x: Any) -> Tensor:
        inputs = (x, self.weight) if self.bias is None else (x, self.weight, self.bias)
        return ops.conv2d(*inputs, **self.settings)

    def describe(self) -> str:
        n_out, n_in, kh, kw = self.weight.shape
        changed = {k: v for k, v in self.settings.items() if v != (0 if k == "padding" else 1)}
        kernel = kh if kh == kw else (kh, kw)
        return ", ".join(
            [
                f"{n_in * self.settings['groups']}, {n_out}, {kernel}",
                *(f"{k}={v}" for k, v in changed.items()),
            ]
        )


class Pool(Module):
    """A pooling window; ``stride`` defaults to ``kernel``."""

    def __init__(self, kernel: Pair, *, stride: Pair | None = None, padding: Pair = 0):
        self.settings = {"kernel": kernel, "stride": stride, "padding": padding}

    def describe(self) -> str:
        return str(self.settings["kernel"])


class MaxPool2d(Pool):
    """The largest element of each window."""

    def forward(self, x: Any) -> Tensor:
        return ops.max_pool2d(x, **self.settings)


class AvgPool2d(Pool):
    """The mean of each window."""

    def forward(self, x: Any) -> Tensor:
        return ops.avg_pool2d(x, **self.settings)


class BatchNorm(Module):
    """Normalises each channel of (N, C) or (N, C, H, W) over the batch, then scales and shifts it.

    Under an open tape it uses the batch's statistics and moves the running ones towards them
    (``running += momentum * (batch - running)``, variance unbiased as in PyTorch); with no tape open
    it uses the running ones.
    """

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(channels, dtype))
        self.bias = Parameter(np.zeros(channels, dtype))
        self.running_mean: Array = np.zeros(channels, dtype)
        self.running_var: Array = np.ones(channels, dtype)
        self.momentum, self.eps = momentum, eps

    def forward(self, x: Any) -> Tensor:
        if current_tape.get() is None:
            statistics = (self.running_mean, self.running_var)
            return ops.batch_norm(x, self.weight, self.bias, statistics=statistics, eps=self.eps)
        return ops.batch_norm(x, self.weight, self.bias, eps=self.eps, observe=self.observe)

    def observe(self, mean: Array, var: Array, count: int) -> None:
        """Move the running statistics towards those of a batch of ``count`` values per channel."""
        if count:
            self.running_mean += self.momentum * (mean - self.running_mean)
            self.running_var += self.momentum * (var * (count / max(count - 1, 1)) - self.running_var)

    def describe(self) -> str:
        return str(self.weight.shape[0])


class LayerNorm(Module):
    """Normalises the last axis of each sample, then scales and shifts it."""

    def __init__(self, features: int, *, eps: float = 1e-5, dtype: Any = np.float32):
        self.weight = Parameter(np.ones(features, dtype))
        self.bias = Parameter(np.zeros(features, dtype))
        self.eps = eps

    def forward(self, x: Any) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return str(self.weight.shape[0])


class Embedding(Module):
    """A table of ``rows`` vectors of ``width``, looked up by integer."""

    def __init__(self, rows: int, width: int, *, rng: Rng, dtype: Any = np.float32):
        self.weight = Parameter(rng.normal(size=(rows, width)).astype(dtype))

    def forward(self, x: Any) -> Tensor:
        return ops.embedding(self.weight, x)

    def describe(self) -> str:
        return "{}, {}".format(*self.weight.shape)


class Dropout(Module):
    """Zeroes each element with probability ``p`` under an open tape; with none it is the identity."""

    def __init__(self, p: float = 0.5, *, rng: Rng):
        check_probability(p)
        self.p, self.rng = p, rng

    def forward(self, x: Any) -> Tensor:
        if current_tape.get() is None:
            return x if isinstance(x, Tensor) else Tensor(x)
        return ops.dropout(x, p=self.p, rng=self.rng)

    def describe(self) -> str:
        return str(self.p)


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
    """x times the normal distribution function, in its tanh form."""

    def forward(self, x: Any) -> Tensor:
        return ops.gelu(x)


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


def uniform(rng: Rng, shape: tuple[int, ...], fan_in: int, dtype: Any) -> np.ndarray:
    """Uniform within 1 / sqrt(fan_in), PyTorch's default for linear and convolution layers."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    return rng.uniform(-bound, bound, shape).astype(dtype)
