"""What a strategy's ranks hold of a serial run's state: the whole from the parts, and the parts of a whole.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``strategy.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .device import Array, array_module, on_gpu, to_host
from .module import Module
from .optim import Optimizer
from .own_state import OwnState
from .tensor import Parameter

Values = dict[str, Any]
SquareNorms = Callable[[Module, np.ndarray], np.ndarray]
Unshard = Callable[[Module, Values], Values]


class PlacedState(OwnState):
    """The state of a model that was placed; by default every rank holds all of it.

    Values are arrays by the names that they have in a serial run.
    """

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The serial run's arrays, by name, from those of all ranks; all ranks call."""
        return values

    def shard_values(self, model: Module, values: Values) -> Values:
        """This rank's arrays, by name, of the serial run's: the inverse of ``unshard_values``."""
        return values

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """The serial run's sums of squares, a row for each of the model's parameters, from this rank's.

        Ranks that hold parts add theirs up; rows of parameters that only other ranks hold stand at the end.
        """
        return squares

    def drain(self, model: Module) -> None:
        """Called between two steps, before a checkpoint: afterwards no message is on its way.

        Then this rank's part of a serial run's state and ``own_state`` are all that it holds, and training
        can go on from them, here or in other objects. All ranks call.
        """

    def full_parameters(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        """The serial run's parameters, by name; all ranks call.

        ``unshard`` stands for ``unshard_values``, here and below, where a Stack has its own.
        """
        values = {name: to_host(p.data) for name, p in model.named_parameters().items()}
        return (unshard or self.unshard_values)(model, values)

    def full_state(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        """The serial run's other arrays, by name: running statistics and the like; all ranks call."""
        arrays = ((name, getattr(owner, attribute)) for name, owner, attribute in model.named_arrays())
        values = {name: to_host(v).copy() for name, v in arrays if not isinstance(v, Parameter)}
        return (unshard or self.unshard_values)(model, values)

    def full_gradients(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray | None]:
        """The serial run's gradients, by name, None where the loss does not reach; all ranks call."""
        grads = {name: p.grad for name, p in model.named_parameters().items()}
        values = {name: None if g is None else to_host(g) for name, g in grads.items()}
        return (unshard or self.unshard_values)(model, values)

    def optimizer_values(self, model: Module, optimizer: Optimizer, key: str) -> Values:
        """``key`` of the optimizer's state, by the name of the parameter: an array of its shape, or a number.

        None where there is none, as for parameters that no gradient has reached. All ranks call.
        """
        states = dict(zip(optimizer.parameters, optimizer.state, strict=True))
        return {n: host_copy(states.get(p, {}).get(key)) for n, p in model.named_parameters().items()}

    def set_optimizer_values(self, model: Module, optimizer: Optimizer, values: dict[str, Values]) -> None:
        """Replace the optimizer's state by ``values``, by key and then as ``optimizer_values`` gives it."""
        names = {parameter: name for name, parameter in model.named_parameters().items()}
        optimizer.state = [state_of(names[p], p.data, values) for p in optimizer.parameters]

    def full_optimizer_state(
        self, model: Module, optimizer: Optimizer, key: str, unshard: Unshard | None = None
    ) -> Values:
        """The serial run's ``key`` of the optimizer's state, as ``optimizer_values``; all ranks call."""
        return (unshard or self.unshard_values)(model, self.optimizer_values(model, optimizer, key))

    def load_optimizer_state(
        self, model: Module, optimizer: Optimizer, whole: dict[str, Values], shard: Unshard | None = None
    ) -> None:
        """Give this rank's optimizer its part of a serial run's state, by key and name; sends nothing."""
        parts = {key: (shard or self.shard_values)(model, values) for key, values in whole.items()}
        self.set_optimizer_values(model, optimizer, parts)


def host_copy(value: Any) -> Any:
    """A copy of an array on the host; a number stays a number, as an array without axes; None stays None."""
    return None if value is None else np.array(to_host(value) if on_gpu(value) else value)


def state_of(name: str, like: Array, values: dict[str, Values]) -> dict[str, Any]:
    """The optimizer's state of the parameter called ``name``, whose elements on this rank are ``like``."""
    state = {key: of_key[name] for key, of_key in values.items() if of_key.get(name) is not None}
    xp = array_module(like)
    return {
        key: value.item() if is_number(value, like) else xp.array(value, order="C")
        for key, value in state.items()
    }


def is_number(value: np.ndarray, like: Array) -> bool:
    """Whether a value is a number of the optimizer's, such as a count, and not an array without axes.

    A parameter ``like`` without axes has such arrays, in its own dtype, which is not that of a count.
    """
    return value.ndim == 0 and (value.shape != like.shape or value.dtype != like.dtype)
