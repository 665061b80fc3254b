"""What a strategy's ranks hold of a serial run's state: the whole from the parts, and the parts of a whole.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``strategy.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .device import Array, array_module, on_gpu, to_host
from .module import Module
from .optim import Optimizer
from .tensor import Parameter

Values = dict[str, Any]


class PlacedState:
    """The state of the model that ``backend`` placed; by default every rank holds all of it.

    Values are arrays by the names that they have in a serial run. A strategy whose ranks hold parts names a
    subclass, its ``state_class``; in a Stack the ``full_`` methods go through those of all strategies.
    """

    def __init__(self, backend: Any):
        self.backend = backend

    def parameter_values(self, model: Module) -> Values:
        """The parameters of this rank's ``model``; all ranks call."""
        return {name: to_host(p.data) for name, p in model.named_parameters().items()}

    def gradient_values(self, model: Module) -> Values:
        """The gradients of this rank's ``model``, None where there is none; all ranks call."""
        grads = {name: p.grad for name, p in model.named_parameters().items()}
        return {name: None if g is None else to_host(g) for name, g in grads.items()}

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

    def own_values(self) -> dict[str, Any]:
        """The attributes that the strategy names in ``own_state``, by name."""
        return {name: vars(self.backend)[name] for name in self.backend.own_state}

    def set_own_values(self, values: dict[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        vars(self.backend).update({name: values[name] for name in self.backend.own_state})

    @contextmanager
    def accumulate(self, model: Module) -> Iterator[None]:
        """Add the gradients of a ``with`` block to those of earlier steps, which the block does not see."""
        earlier: dict[Parameter, Array] = {}
        for parameter in model.parameters():
            if parameter.grad is not None:
                earlier[parameter], parameter.grad = parameter.grad.copy(), None
        yield
        for parameter, g in earlier.items():
            if parameter.grad is not None:
                g += parameter.grad
            parameter.grad = g

    def drain(self, model: Module) -> None:
        """Called between two steps, before a checkpoint: afterwards no message is on its way.

        Then training can go on from this rank's part of a serial run's state and ``own_state``.
        All ranks call.
        """

    def full_parameters(self, model: Module) -> dict[str, np.ndarray]:
        """The serial run's parameters, by name; all ranks call."""
        return self.unshard(model, self.states[0].parameter_values(model))

    def full_state(self, model: Module) -> dict[str, np.ndarray]:
        """The serial run's other arrays, by name: running statistics and the like; all ranks call."""
        arrays = ((name, getattr(owner, attribute)) for name, owner, attribute in model.named_arrays())
        values = {name: to_host(v).copy() for name, v in arrays if not isinstance(v, Parameter)}
        return self.unshard(model, values)

    def full_gradients(self, model: Module) -> dict[str, np.ndarray | None]:
        """The serial run's gradients, by name, None where the loss does not reach; all ranks call."""
        return self.unshard(model, self.states[0].gradient_values(model))

    def full_optimizer_state(self, model: Module, optimizer: Optimizer, key: str) -> Values:
        """The serial run's ``key`` of the optimizer's state, as ``optimizer_values``; all ranks call."""
        return self.unshard(model, self.states[0].optimizer_values(model, optimizer, key))

    def load_optimizer_state(self, model: Module, optimizer: Optimizer, whole: dict[str, Values]) -> None:
        """Give this rank's optimizer its part of a serial run's state, by key and name; sends nothing."""
        parts = {key: self.shard(model, values) for key, values in whole.items()}
        self.states[0].set_optimizer_values(model, optimizer, parts)

    def total_squares(self, model: Module, optimizer: Optimizer, squares: np.ndarray) -> np.ndarray:
        """The serial run's sums of squares from this rank's, a row for each of the optimizer's parameters.

        Rows of the model's other parameters, and of those that only other ranks hold, stand at the end. A
        parameter that is not the model's keeps its row.
        """
        rows_of = {p: i for i, p in enumerate(model.parameters())}
        pairs = [(n, rows_of[p]) for n, p in enumerate(optimizer.parameters) if p in rows_of]
        numbers, rows = [n for n, _ in pairs], [row for _, row in pairs]
        totals = np.zeros((len(rows_of), 2))
        totals[rows] = squares[numbers]
        for state in reversed(self.states):
            totals = state.global_square_norms(model, totals)
        squares = squares.copy()
        squares[numbers] = totals[rows]
        return np.concatenate([squares, np.delete(totals, rows, axis=0)])

    @property
    def states(self) -> Sequence[PlacedState]:
        """This state and, in a Stack, those of the strategies inside; the first one's values count."""
        return [self, *(inner.state for inner in self.backend.inner)]

    def unshard(self, model: Module, values: Values) -> Values:
        """``unshard_values`` of all strategies, innermost first."""
        for state in reversed(self.states):
            values = state.unshard_values(model, values)
        return values

    def shard(self, model: Module, values: Values) -> Values:
        """``shard_values`` of all strategies, outermost first."""
        for state in self.states:
            values = state.shard_values(model, values)
        return values


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

    A parameter ``like`` without axes has such arrays, in its dtype or, of master weights, in float32.
    """
    return value.ndim == 0 and (value.shape != like.shape or value.dtype not in (like.dtype, np.float32))
