"""Own kernels: an ``ElementwiseKernel`` in the part of C++ that ``_statements`` knows runs with NumPy."""

from typing import Any

import numpy as np

from . import _array, _memory
from ._capture import kernel
from ._counts import note
from ._statements import TYPES, Lanes, Raw, compiled

CHOOSE = "#define choose(c, a, b) ((c) ? (a) : (b))"
TOGETHER = 1 << 16  # threads computed at a time, so that their variables stay in cache


class ElementwiseKernel:
    """Statements for each element of the arrays that are not raw; without such arrays for each i < ``size``.

    A parameter is "T x", "int8 x" or "raw T x": a type of NumPy, or a letter that stands for the same type
    everywhere. Constants have the types that NumPy gives them, where C++ would compute in double.
    """

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", preamble: str = ""
    ) -> None:
        if preamble not in ("", CHOOSE):
            raise NotImplementedError(f"the double knows the preamble {CHOOSE!r} only")
        inputs, outputs = ([p.split() for p in s.split(",")] for s in (in_params, out_params))
        self.params = [(raw == ["raw"], kind, name) for *raw, kind, name in (*inputs, *outputs)]
        self.nin, self.nargs, self.name = len(inputs), len(self.params), name
        self.code, self.declared = compiled(operation)

    @kernel
    def __call__(self, *args: Any, size: int | None = None) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(f"Wrong number of arguments for {self.name!r}.")
        _memory.check_device(*args)
        inputs, outputs = args[: self.nin], args[self.nin :]
        operands = [_memory.operand(x) for x in inputs]
        if not all(isinstance(x, _array.ndarray) for x in outputs):
            raise TypeError("Output arguments type must be cupy.ndarray")
        types, shape = self._types(args), self._shape(args, size)
        outputs = outputs or tuple(
            _memory.empty(shape, types[kind]) for _, kind, _ in self.params[self.nin :]
        )
        for (raw, *_), x in zip(self.params[self.nin :], outputs, strict=True):
            if x.shape != shape and not raw:
                raise ValueError("Out shape is mismatched")
        values = [np.asarray(x, types[kind]) for (_, kind, _), x in zip(self.params, operands, strict=False)]
        values += [_memory.read(x).copy() for x in outputs]
        self._compute(values, shape, types)
        note("launch")
        for x, new in zip(outputs, values[self.nin :], strict=True):
            _memory.write(x, new)
        return outputs[0] if len(outputs) == 1 else outputs

    def _compute(self, values: list[np.ndarray], shape: tuple[int, ...], types: dict[str, np.dtype]) -> None:
        """Run the statements for all elements; the outputs among ``values`` are written in place."""
        kinds = {name: np.dtype(TYPES.get(kind) or types[kind]) for name, kind in self.declared.items()}
        lanes = Lanes(kinds | {name: types[kind] for _, kind, name in self.params[self.nin :]})
        whole, elements = {}, {}
        for n, ((raw, _, name), x) in enumerate(zip(self.params, values, strict=True)):
            if raw:
                whole[name] = Raw(x.reshape(-1), lanes, writable=n >= self.nin)
            elif x.ndim or n >= self.nin:
                x = np.broadcast_to(x, shape) if n < self.nin else x
                elements[name] = x.reshape(-1)  # of an output a view
            else:
                whole[name] = x
        count = int(np.prod(shape))
        for first in range(0, count, TOGETHER):
            some = slice(first, min(first + TOGETHER, count))
            lanes.run(
                self.code, np.arange(some.start, some.stop), whole, {k: x[some] for k, x in elements.items()}
            )

    def _shape(self, args: tuple, size: int | None) -> tuple[int, ...]:
        """The shape of all elements."""
        arrays = [
            x
            for (raw, *_), x in zip(self.params, args, strict=False)
            if isinstance(x, _array.ndarray) and not raw
        ]
        if size is None:
            if not arrays:
                raise ValueError("Loop size is undecided.")
            return np.broadcast_shapes(*(x.shape for x in arrays))
        if arrays:
            raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
        return (size,)

    def _types(self, args: tuple) -> dict[str, np.dtype]:
        """The type of each kind of parameter; arrays of one kind have one type, numbers are cast to it."""
        types: dict[str, np.dtype] = {}
        for (_, kind, _), x in zip(self.params, args, strict=False):
            if len(kind) > 1:
                types[kind] = np.dtype(kind)
            if isinstance(x, _array.ndarray) and types.setdefault(kind, x.dtype) != x.dtype:
                raise TypeError(f"Type is mismatched. {kind} {x.dtype} {types[kind]}")
        return types


class ReductionKernel:
    """Refused: the double does not know its C++."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise NotImplementedError(
            "the double runs an ElementwiseKernel or a RawModule alone of all kernels in C++"
        )
