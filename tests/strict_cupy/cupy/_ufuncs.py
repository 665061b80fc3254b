"""Elementwise functions: NumPy's values in C order, CuPy's refusals. Each call is one kernel."""

from pathlib import Path
from typing import Any

import numpy as np

from . import _array, _counts, _indexing, _memory, _products
from ._capture import kernel
from ._counts import note

NAMES = frozenset(Path(__file__).with_name("names.txt").read_text(encoding="utf-8").split())
"""The names that CuPy 14.2 has."""


class ufunc:
    """NumPy's ufunc of this name on device arrays and numbers."""

    # The types whose ``at`` has a kernel; other ufuncs have no ``at``.
    SCATTERED = {"add": "ilqefdILQ", "subtract": "iI"} | dict.fromkeys(("maximum", "minimum"), "ilqfdILQ")
    SCATTERED |= dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), "")
    ATOMIC = {"maximum": np.fmax, "minimum": np.fmin}  # C's, which pass over NaN

    def __init__(self, name: str) -> None:
        self._function: np.ufunc = getattr(np, name)
        self.__name__, self.name = name, "cupy_" + name
        self.nin, self.nout, self.nargs = self._function.nin, self._function.nout, self._function.nargs

    def __repr__(self) -> str:
        return f"<ufunc '{self.name}'>"

    @kernel
    def __call__(
        self, *args: Any, out: Any = None, dtype: Any = None, casting: Any = "same_kind", **settings: Any
    ) -> Any:
        if settings:
            raise TypeError(f"Wrong arguments {settings}")
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"Wrong number of arguments for {self.name!r}.")
        inputs, outputs = args[: self.nin], args[self.nin :]
        if out is not None:
            outputs = out if isinstance(out, tuple) else (out,)
        outputs = tuple(x for x in outputs if x is not None)
        _memory.check_device(*(x for x in (*inputs, *outputs)))
        operands = [_memory.operand(x) for x in inputs]
        self._check_outputs(outputs, np.broadcast_shapes(*map(np.shape, operands)))
        dtype = None if dtype is None else _memory.check_dtype(dtype)
        try:
            with np.errstate(all="ignore"):
                if outputs:
                    results = self._write(operands, outputs, dtype, casting)
                else:  # CuPy casts the operands to the kernel that writes dtype
                    values = self._function(
                        *operands, dtype=dtype, casting="unsafe" if dtype else "same_kind"
                    )
                    results = tuple(map(_memory.result, values if isinstance(values, tuple) else (values,)))
        except TypeError as error:  # NumPy's own subclass of it
            raise TypeError(str(error)) from None
        if any(x.size for x in results):
            note("launch")
        for x in results:
            _memory.check_dtype(x.dtype)
        return results[0] if self.nout == 1 else results

    def _check_outputs(self, outputs: tuple, shape: tuple[int, ...]) -> None:
        for x in outputs:
            if isinstance(x, np.ndarray):
                raise TypeError(f"Unsupported type {type(x)}")
            if not isinstance(x, _array.ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
            if x.shape != shape:
                raise ValueError("Out shape is mismatched")

    def _write(self, operands: list, outputs: tuple, dtype: np.dtype | None, casting: Any) -> tuple:
        for x in operands:  # an operand that overlaps with what is written is copied first
            memory = outputs[0]._memory
            if (
                isinstance(x, np.ndarray)
                and np.may_share_memory(x, memory)
                and not _indexing.is_same(x, memory)
            ):
                note("launch")
                break
        values = tuple(np.empty_like(x._memory) for x in outputs)
        self._function(*operands, out=values, dtype=dtype, casting=casting)
        for x, value in zip(outputs, values, strict=True):
            _memory.write(x, value)
        return outputs

    @kernel
    def at(self, a: Any, indices: Any, b: Any = None) -> None:
        if self.__name__ not in self.SCATTERED:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if not isinstance(a, _array.ndarray):
            raise AttributeError(f"{type(a)} has no _scatter_op")
        _memory.check_device(a)
        index = _indexing.Index(indices)
        if not index.gathers:
            part = _memory.view(index.view(a._memory), a)
            self(part, b, out=part)
            return
        types = self.SCATTERED[self.__name__]
        if types and a.dtype.char not in types:
            raise TypeError(f"cupy.{self.__name__}.at only supports the data types {', '.join(types)}")
        addend = _memory.read(b).astype(a.dtype) if isinstance(b, _array.ndarray) else np.asarray(b, a.dtype)
        note("launch", index.kernels + 1)
        values = _memory.read(a).copy(order="K")
        places, atomic = index.wrapped(values), self.ATOMIC.get(self.__name__, self._function)
        atomic.at(values, places, addend)
        if a.dtype.kind == "f" and atomic is self._function:
            _counts.remark("atomicAdd of floats: the order of the sum is not determined")
        elif a.dtype == np.float64:  # CuPy's atomicMax of doubles calls fmaxf
            values[places] = values[places].astype(np.float32)
        _memory.write(a, values)

    def reduce(
        self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        if self.__name__ == "add":
            return array.sum(axis, dtype, out, keepdims)
        if self.__name__ == "multiply":
            return array.prod(axis, dtype, out, keepdims)
        raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")

    def accumulate(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        if self.__name__ == "add":
            return array.cumsum(axis, dtype, out)
        if self.__name__ == "multiply":
            return array.cumprod(axis, dtype, out)
        raise NotImplementedError(f"`{self.name}.accumulate` is not supported yet")

    def outer(self, a: Any, b: Any, **settings: Any) -> Any:
        return self(a.reshape(a.shape + (1,) * b.ndim), b.reshape((1,) * a.ndim + b.shape), **settings)


UFUNCS = {
    name: ufunc(name) for name in sorted(NAMES - {"matmul"}) if isinstance(getattr(np, name, None), np.ufunc)
}


def __getattr__(name: str) -> Any:
    """``_ufuncs.add`` is ``UFUNCS["add"]``; ``matmul`` is here for the operator @."""
    if name == "matmul":
        return _products.matmul
    if name in UFUNCS:
        return UFUNCS[name]
    raise AttributeError(name)
