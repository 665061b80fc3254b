"""A module is what holds parameters: layers, and layers made of layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .device import array_module, to_device, to_host
from .tensor import Parameter, Tensor


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
        return self.forward_range(x, 0, len(self.layers))

    def forward_range(self, x: Any, start: int, stop: int) -> Any:
        """``x`` after layers ``start`` to ``stop - 1``."""
        for i in range(start, stop):
            try:
                x = self.layers[i](x)
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
