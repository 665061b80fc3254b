"""A tensor is an array that a tape may follow; its operators and methods are the ops.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import ops
from .device import Array, array_module, to_host
from .ops.axes import Axis, axis_of
from .tensor_base import TensorBase, as_operand


def reflected(op: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
    """The operator that Python calls on the right operand, where the left one is no tensor."""
    return lambda self, other: op(other, self)


def ordered(comparison: Callable[[Any, Any], Any]) -> Callable[[Tensor, Any], Tensor]:
    """The operator that compares a tensor with its right operand, element by element."""
    return lambda self, other: self.compared(other, comparison)


class Tensor(TensorBase):
    """An array (``data``) and, when it was computed under a tape, its place on it (``tape``, ``index``).

    ``Tensor(x, requires_grad=True)`` is a leaf: ``backward`` adds its gradient to ``grad``, an array
    of the same shape and dtype. Only leaves have gradients. Raises TypeError where a gradient is
    asked of integers.
    """

    __slots__ = ()
    __array_priority__ = 1000  # so that ndarray + Tensor asks the Tensor
    __array_ufunc__ = None

    def detach(self) -> Tensor:
        """The data as a constant, whose memory is shared."""
        return Tensor(self.data)

    def numpy(self) -> np.ndarray:
        """The data on the host."""
        return to_host(self.data)

    def item(self) -> float:
        """The one element as a Python number."""
        return self.data.item()

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise TypeError("a tensor without axes cannot be walked through; its one number is .item()")
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"a tensor of shape {self.shape} is neither true nor false; take .numpy().any() or .all()"
            )
        return bool(self.data.item())

    def __float__(self) -> float:
        return float(self.one_number())

    def __int__(self) -> int:
        return int(self.one_number())

    def __format__(self, spec: str) -> str:
        """The number that it holds, as in ``f"{loss:.3f}"``; without a format what ``repr`` returns."""
        return format(self.one_number(), spec) if spec else repr(self)

    def one_number(self) -> float:
        """The one element; raises TypeError for a tensor of several, or of none."""
        if self.size != 1:
            raise TypeError(
                f"a tensor of shape {self.shape} is not one number; take .mean(), .sum() or an element first"
            )
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The data, for NumPy's functions. Raises TypeError where a gradient would get lost on the way."""
        if self.requires_grad:
            raise TypeError(
                "a tensor that requires a gradient cannot become part of a NumPy array, which has none; join "
                "tensors with ops.stack or ops.concatenate, or take .numpy() where no gradient is needed"
            )
        return np.array(self.numpy(), dtype) if copy else np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        flag = ", requires_grad=True" if self.requires_grad else ""
        numbers = np.array2string(self.numpy(), threshold=20)
        return f"{type(self).__name__}({numbers}, dtype={self.dtype}{flag})"

    # Operators

    def __eq__(self, other: object) -> Any:
        """Element by element, as in NumPy, without a gradient; False where ``other`` holds no numbers."""
        return self.compared(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else Tensor(~equal.data)

    __hash__ = object.__hash__  # a key by what it is: Python asks for identity before equality

    def compared(self, other: Any, comparison: Callable[[Any, Any], Any]) -> Any:
        """A comparison element by element, without a gradient; NotImplemented unless ``other`` is numbers."""
        try:
            operand = other.data if isinstance(other, Tensor) else as_operand(other, (self,))
            return Tensor(comparison(self.data, operand))
        except TypeError:
            return NotImplemented

    __lt__, __le__, __gt__, __ge__ = map(ordered, (operator.lt, operator.le, operator.gt, operator.ge))
    __add__, __sub__, __mul__, __truediv__ = ops.add, ops.subtract, ops.multiply, ops.divide
    __pow__, __matmul__, __neg__, __abs__ = ops.power, ops.matmul, ops.negative, ops.abs
    __radd__, __rsub__, __rmul__ = reflected(ops.add), reflected(ops.subtract), reflected(ops.multiply)
    __rtruediv__, __rpow__, __rmatmul__ = reflected(ops.divide), reflected(ops.power), reflected(ops.matmul)

    def __getitem__(self, index: Any) -> Tensor:
        return ops.getitem(self, index=index)

    # Methods, named as in NumPy; those that take settings by position too are written out

    exp, log, sqrt, tanh, sigmoid, relu = ops.exp, ops.log, ops.sqrt, ops.tanh, ops.sigmoid, ops.relu

    def clip(self, low: float | None = None, high: float | None = None) -> Tensor:
        return ops.clip(self, low=low, high=high)

    def sum(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return ops.sum(self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return ops.mean(self, axis=axis, keepdims=keepdims)

    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return ops.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return ops.min(self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return ops.prod(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> Tensor:
        return ops.var(self, axis=axis, keepdims=keepdims, ddof=ddof)

    def std(self, axis: Axis = None, keepdims: bool = False, ddof: float = 0) -> Tensor:
        return ops.std(self, axis=axis, keepdims=keepdims, ddof=ddof)

    def cumsum(self, axis: int) -> Tensor:
        return ops.cumsum(self, axis=axis)

    def cumprod(self, axis: int) -> Tensor:
        return ops.cumprod(self, axis=axis)

    def sort(self, axis: int = -1, descending: bool = False) -> Tensor:
        return ops.sort(self, axis=axis, descending=descending)

    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
        return ops.argsort(self, axis=axis, descending=descending, stable=stable)

    def topk(self, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
        return ops.topk(self, k=k, axis=axis, largest=largest)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The index of the largest element along ``axis``, of all elements in a row when None; a constant."""
        axis = None if axis is None else axis_of(axis, max(self.ndim, 1))
        return Tensor(array_module(self.data).argmax(self.data, axis=axis, keepdims=keepdims))

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """The index of the smallest element, as ``argmax``."""
        axis = None if axis is None else axis_of(axis, max(self.ndim, 1))
        return Tensor(array_module(self.data).argmin(self.data, axis=axis, keepdims=keepdims))

    def astype(self, dtype: Any) -> Tensor:
        return ops.astype(self, dtype=dtype)

    def reshape(self, *shape: Any) -> Tensor:
        return ops.reshape(self, shape=shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        return ops.transpose(self, axes=axes[0] if len(axes) == 1 else axes or None)

    @property
    def T(self) -> Tensor:
        return ops.transpose(self)

    def flip(self, axis: Axis = None) -> Tensor:
        return ops.flip(self, axis=axis)

    def roll(self, shift: int | Sequence[int], axis: Axis = None) -> Tensor:
        return ops.roll(self, shift=shift, axis=axis)

    def repeat(self, repeats: int | Sequence[int], axis: int | None = None) -> Tensor:
        return ops.repeat(self, repeats=repeats, axis=axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        return ops.diagonal(self, offset=offset, axis1=axis1, axis2=axis2)

    def tril(self, k: int = 0) -> Tensor:
        return ops.tril(self, k=k)

    def triu(self, k: int = 0) -> Tensor:
        return ops.triu(self, k=k)

    def masked_fill(self, mask: Any, value: Any) -> Tensor:
        return ops.masked_fill(self, mask, value=value)

    def gather(self, indices: Any, axis: int) -> Tensor:
        return ops.gather(self, indices, axis=axis)

    def squeeze(self, axis: Axis = None) -> Tensor:
        return ops.squeeze(self, axis=axis)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        return ops.flatten(self, start_axis=start_axis, end_axis=end_axis)


class Parameter(Tensor):
    """A leaf that an optimizer updates in place. Set ``requires_grad`` to False to freeze it.

    A strategy may set ``grad_buffer`` to an array of the same shape and dtype: where the op supports it, the
    next gradient is written straight into this array, which becomes ``grad``. ``grad_buffer`` is then None
    until it is set again. ``updated_by`` names the strategy that updates it, from ``place`` to ``close``; an
    optimizer then does not step by itself.
    """

    __slots__ = ("grad_buffer", "updated_by")
    is_parameter = True

    def __init__(self, data: Any, requires_grad: bool = True):
        super().__init__(data, requires_grad)
        # In place updates must not reach an array that the caller still holds.
        self.data = array_module(self.data).array(self.data, order="C")
        self.grad_buffer: Array | None = None
        self.updated_by: str | None = None

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """A copy belongs to no strategy."""
        slots = {name: getattr(self, name) for name in (*TensorBase.__slots__, *Parameter.__slots__)}
        del slots["__weakref__"]
        return None, slots | {"grad_buffer": None, "updated_by": None}
