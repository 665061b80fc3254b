"""``@op`` lifts a function of arrays to one of tensors, and records it on the open tape.

An op returns its value and one pullback per array input, each ``g -> gradient of that input``. Arrays
are positional, settings keyword-only. A pullback may be None where no gradient exists (labels,
indices). It returns a fresh array, ``g`` itself, or a view of either, never one that a closure
holds, in the shape of the input, or as that was broadcast to the value: the tape sums it. Ops never write
into an input. ``__all__`` has the words that ops are written with, so that their files import them from here.
Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, cast

import numpy as np

from .bfloat16 import OPEN, in_bfloat16, rounded_result
from .device import Array, array_module, on_gpu
from .dtypes import alike, floating, in_dtype_of
from .faster import faster, faster_on_gpu
from .half import half_by_value, half_in_single, layer_in_single, loss_in_single
from .keyword_settings import check_positions, name_of, settings_by_name
from .lookup import check_choice
from .pullback import OpResult, Pullback, shape_of
from .tape import current_tape, once
from .tensor_base import TensorBase, as_array, as_operand, as_tensor, tensor_class

if TYPE_CHECKING:
    from .tensor import Tensor

__all__ = [
    "Array", "OpResult", "Pullback", "alike", "array_module", "as_tensor", "check_choice", "faster",
    "faster_on_gpu", "floating", "half_by_value", "half_in_single", "in_dtype_of", "layer_in_single",
    "loss_in_single", "once", "op", "settings_by_name", "shape_of",
]  # fmt: skip
P = ParamSpec("P")


def op(
    function: Callable[P, OpResult], gpu_form: Callable[..., OpResult] | None = None
) -> Callable[P, Tensor]:
    """Lift ``function(*arrays, **settings) -> (value, pullbacks)`` to tensors.

    Inputs may be Tensors, arrays, numbers or nested lists. A NumPy scalar counts as a number, so
    that it does not widen a float32 tensor. ``gpu_form`` computes the same where the first input is no NumPy
    array. Raises TypeError where some of the arrays are on a GPU and some are not, where settings are passed
    by position, and, in the first call, where ``function`` returns something else. Backward raises
    ValueError for a gradient that does not have the shape of its input.
    """
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    positional = [kind for kind in kinds if kind is not inspect.Parameter.KEYWORD_ONLY]
    if positional != [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2:
        return lift(function, gpu_form)
    two = lift_two(cast(Any, function), gpu_form)
    if len(kinds) == 2:
        return two
    general: Callable[..., Tensor] = lift(function, gpu_form)

    @wraps(function)
    def either(x: Any, y: Any, *more: Any, **settings: Any) -> Tensor:
        return general(x, y, *more, **settings) if settings or more else two(x, y)

    return cast("Callable[P, Tensor]", either)


def host_form(function: Callable[..., OpResult]) -> Callable[..., OpResult]:
    """What computes ``function`` of NumPy's arrays: the readable form where the faster ones are for GPUs."""
    return function.readable if isinstance(function, faster_on_gpu) else function


def lift(
    function: Callable[P, OpResult], gpu_form: Callable[..., OpResult] | None = None
) -> Callable[P, Tensor]:
    """The readable form, for any number of inputs and any settings."""
    elsewhere = cast("Callable[..., OpResult]", gpu_form or function)
    compute = host_form(cast("Callable[..., OpResult]", function))
    tensor: Any = TensorBase  # until the first call, whose result is checked
    name = name_of(function)

    @wraps(function)
    def lifted(*inputs: Any, **settings: Any) -> Tensor:
        nonlocal tensor
        try:
            arrays = [x.data if isinstance(x, tensor) else as_operand(x, inputs) for x in inputs]
            if len(arrays) == 1 and type(arrays[0]) is not np.ndarray:
                arrays = [as_array(arrays[0])]  # a number stays one only where another input is an array
            form = compute if type(arrays[0]) is np.ndarray else elsewhere
            result = form(*arrays, **settings)
        except (TypeError, ValueError) as error:
            check_inputs(function, inputs, error)
            raise
        if tensor is TensorBase:
            check_result(function, result, arrays)
            tensor = tensor_class()
        if OPEN.count and in_bfloat16.get():
            result = rounded_result(result, arrays)
        value, pullbacks = result
        right = type(value) is np.ndarray and (value.ndim or "dtype" in settings)
        out = tensor(value if right else as_0d_array(value, *arrays))
        tape = current_tape.get()
        if tape is not None:
            entry = []
            for x, pullback in zip(inputs, pullbacks, strict=True):
                if pullback is not None and isinstance(x, tensor):
                    index = x.index if x.tape is tape else tape.index_of(x)
                    if index is not None:
                        entry.append((index, x.data.shape, pullback))
            if entry:
                tape.entries.append(entry)
                out.tape, out.index, out.requires_grad = tape, len(tape.entries) - 1, True
                tape.ops[out.index] = name
        return out

    return lifted


def lift_two(
    function: Callable[[Array, Array], OpResult], gpu_form: Callable[..., OpResult] | None = None
) -> Callable[..., Tensor]:
    """``lift`` written out for two inputs without settings: a chain of small ops is a third faster."""
    new, ndarray, elsewhere = object.__new__, np.ndarray, gpu_form or function
    name = name_of(function)
    compute = host_form(function)
    tensor: Any = TensorBase  # until the first call, whose result is checked

    @wraps(function)
    def lifted(x: Any, y: Any) -> Tensor:
        nonlocal tensor
        a = x.data if isinstance(x, tensor) else as_operand(x, (y,))
        b = y.data if isinstance(y, tensor) else as_operand(y, (x,))
        try:
            result = (compute if type(a) is ndarray else elsewhere)(a, b)
        except (TypeError, ValueError) as error:
            check_inputs(function, (x, y), error)
            raise
        if tensor is TensorBase:
            check_result(function, result, [a, b])
            tensor = tensor_class()
        if OPEN.count and in_bfloat16.get():
            result = rounded_result(result, (a, b))
        value, (to_x, to_y) = result
        out = new(tensor)
        out.data = value if type(value) is ndarray else as_0d_array(value, a, b)
        out.grad = out.tape = None
        out.requires_grad = False
        out.index = -1
        tape = current_tape.get()
        if tape is not None:
            entry = []
            if isinstance(x, tensor):
                i = x.index if x.tape is tape else tape.index_of(x)
                if i is not None and to_x is not None:
                    entry.append((i, a.shape, to_x))
            if isinstance(y, tensor):
                i = y.index if y.tape is tape else tape.index_of(y)
                if i is not None and to_y is not None:
                    entry.append((i, b.shape, to_y))
            if entry:
                entries = tape.entries
                entries.append(entry)
                out.tape, out.index, out.requires_grad = tape, len(entries) - 1, True
                tape.ops[out.index] = name
        return out

    return lifted


def check_inputs(function: Callable[..., Any], inputs: Sequence[Any], error: Exception) -> None:
    """Raise TypeError, which says more than the ``error`` of an op, where its inputs are of the wrong kind.

    These are settings that were passed by position, and arrays of the host among those of a GPU.
    """
    check_positions(function, name_of(function), len(inputs))
    if isinstance(error, TypeError):
        arrays = [x.data if isinstance(x, TensorBase) else x for x in inputs]
        lists = (list, tuple)
        arrays = [np.asarray(x) if isinstance(x, lists) else x for x in arrays]
        shaped = [x for x in arrays if hasattr(x, "shape")]  # numbers belong to the host and to a GPU
        if len({on_gpu(x) for x in shaped}) > 1:
            places = ", ".join(f"{x.shape} on {'a GPU' if on_gpu(x) else 'the host'}" for x in shaped)
            raise TypeError(
                f"{name_of(function)} takes arrays of one device, got {places}; move the model and the data "
                'to the same one, with .to(device="cupy") or .to(device="numpy")'
            ) from None


def check_result(function: Callable[..., Any], result: Any, arrays: Sequence[Any]) -> None:
    """Raise TypeError unless an op's ``result`` is a value, and a pullback or None for each of its inputs."""
    name, rule = name_of(function), "an op returns its value and a tuple of pullbacks, one for each input"
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(f"{name} returned {kind_of(result)}; {rule}: return y, (lambda g: ...,)")
    value, pullbacks = result
    if isinstance(value, TensorBase) or value is None:
        raise TypeError(f"the value that {name} returned is {kind_of(value)}; compute it from the arrays")
    if not isinstance(pullbacks, tuple | list) or not all(p is None or callable(p) for p in pullbacks):
        raise TypeError(
            f"the pullbacks that {name} returned are {kind_of(pullbacks)}; {rule}, None where there is no "
            "gradient: (lambda g: ...,)"
        )
    if len(pullbacks) != len(arrays):
        raise TypeError(f"{name} returned {len(pullbacks)} pullbacks for {len(arrays)} inputs; {rule}")


def kind_of(x: Any) -> str:
    """What x is, in a few words for an error message."""
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of ({', '.join(type(item).__name__ for item in x)})"
    is_array = isinstance(x, np.ndarray) or on_gpu(x)
    return f"an array {x.shape}" if is_array and x.ndim else type(x).__name__


def as_0d_array(value: Any, *operands: Any) -> Array:
    """A number as the 0-d array it stands for, in the operands' dtype: NumPy 1 makes it a double."""
    if on_gpu(value):
        return value
    value = np.asarray(value)
    floats = [x.dtype for x in operands if hasattr(x, "dtype") and x.dtype.kind == "f"]
    if not floats or value.dtype.kind != "f":
        return value
    dtype = np.result_type(*floats)
    return value.astype(dtype) if value.dtype.itemsize > max(dtype.itemsize, 4) else value
