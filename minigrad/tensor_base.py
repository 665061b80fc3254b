"""What ops and the tape know of a tensor: its array, its place on a tape, and its gradient.

``Tensor`` derives from ``TensorBase`` and adds operators and methods, which are ops. So ops stand on this
file, and ``tensor.py`` stands on the ops.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``tensor.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .device import Array, in_c_order, on_gpu, to_device

if TYPE_CHECKING:
    from .tape import OnGrad, Tape
    from .tensor import Tensor


class TensorBase:
    """The base class of ``Tensor``, the one class that derives from it directly."""

    __slots__ = ("data", "grad", "requires_grad", "tape", "index", "__weakref__")
    grad_buffer: Array | None = None  # see Parameter
    is_parameter = False

    def __init__(self, data: Any, requires_grad: bool = False):
        self.data: Array = data_of(data)
        self.grad: Array | None = None
        self.requires_grad = requires_grad
        self.tape: Tape | None = None
        self.index = -1
        if requires_grad and self.data.dtype.kind != "f":
            raise TypeError(
                f"a tensor of dtype {self.data.dtype} cannot have a gradient; "
                "convert it with .astype(np.float32)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    def accumulate_grad(self, g: Array, *, private: bool = True) -> None:
        """Add a final gradient to ``grad``, kept in the tensor's own dtype and its own memory.

        It lies in C order, or as the tensor's own elements do. One that is not ``private`` may be in someone
        else's hands too.
        """
        if isinstance(g, np.generic):
            g = np.array(g)
        in_order = g.flags.c_contiguous or g.strides == self.data.strides
        if g.dtype != self.data.dtype or not in_order:
            g = in_c_order(g, self.data.dtype)
        elif self.grad is None and not private:
            g = g.copy("K")
        if self.grad is None:
            self.grad = g
        else:
            self.grad += g

    def backward(self, seed: Array | float | None = None, on_grad: OnGrad | None = None) -> None:
        """Short for ``tape.backward(self, seed, on_grad)`` on the tape that recorded this tensor."""
        if self.tape is None:
            raise RuntimeError(
                "backward needs a tensor that was computed inside `with Tape() as tape:` "
                "from tensors that require gradients; this one is a constant"
            )
        self.tape.backward(self, seed, on_grad)


def tensor_class() -> type[Tensor]:
    """``Tensor``, whose module imports this one: the class of every op's value."""
    return cast("type[Tensor]", TensorBase.__subclasses__()[0])


def as_tensor(x: Any) -> Tensor:
    """x itself if it is a tensor, else a constant that holds it."""
    return cast("Tensor", x) if isinstance(x, TensorBase) else tensor_class()(x)


def data_of(x: Any) -> Array:
    """The array that a tensor holds, or that ``x`` is; raises TypeError where it is no array of numbers."""
    return x.data if isinstance(x, TensorBase) else as_array(x)


def as_array(x: Any) -> Array:
    """``x`` as an array of numbers in the machine's byte order; device arrays stay where they are.

    Raises TypeError for anything else.
    """
    if on_gpu(x):
        return x
    array = np.asarray(x)
    if array.dtype.kind in "OSUmM":
        raise TypeError(
            f"a tensor holds numbers, not {array.dtype} as in {type(x).__name__}; pass numbers, arrays or "
            "nested lists of numbers, and join tensors with ops.stack or ops.concatenate"
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_operand(x: Any, others: Sequence[Any] = ()) -> Any:
    """What an op gets for an input that is no Tensor: an array, or a Python number, which has no dtype.

    A nested list goes to the device of the ``others``, the op's inputs; an array stays where it is.
    """
    if isinstance(x, np.generic):
        return x.item()
    if isinstance(x, int | float):
        return x
    array = as_array(x)
    if array is not x and any(on_gpu(y.data if isinstance(y, TensorBase) else y) for y in others):
        return to_device(array, "cupy")
    return array
