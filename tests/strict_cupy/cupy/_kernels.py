"""Own kernels: an ``ElementwiseKernel`` whose statements are Python as well as C++ is computed by NumPy."""

from typing import Any

import numpy as np

from . import _array, _memory
from ._capture import kernel
from ._counts import note

CHOOSE = "#define choose(c, a, b) ((c) ? (a) : (b))"
FUNCTIONS = {"choose": np.where} | {
    name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "floor", "ceil")
}


class ElementwiseKernel:
    """Statements ``output = expression``, with + - * / comparisons & | and ``FUNCTIONS``; semicolons between.

    A parameter is "T x" or "int8 x": a type of NumPy, or a letter that stands for the same type everywhere.
    Constants have the types that NumPy gives them, where C++ would compute in double.
    """

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str = "kernel", preamble: str = ""
    ) -> None:
        if preamble not in ("", CHOOSE):
            raise NotImplementedError(f"the double knows the preamble {CHOOSE!r} only")
        self.inputs, self.outputs = ([p.split() for p in s.split(",")] for s in (in_params, out_params))
        self.nin, self.nargs, self.name = len(self.inputs), len(self.inputs) + len(self.outputs), name
        statements = (statement.partition("=") for statement in operation.split(";"))
        self.statements = [(target.strip(), expression.strip()) for target, _, expression in statements]

    @kernel
    def __call__(self, *args: Any) -> Any:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(f"Wrong number of arguments for {self.name!r}.")
        _memory.check_device(*args)
        inputs, outputs = args[: self.nin], args[self.nin :]
        operands = [_memory.operand(x) for x in inputs]
        if not all(isinstance(x, _array.ndarray) for x in outputs):
            raise TypeError("Output arguments type must be cupy.ndarray")
        types = self._types(args)
        shape = np.broadcast_shapes(*map(np.shape, operands))
        outputs = outputs or tuple(_memory.empty(shape, types[kind]) for kind, _ in self.outputs)
        for x in outputs:
            if x.shape != shape:
                raise ValueError("Out shape is mismatched")
        names = {
            name: np.asarray(x, types[kind]) for (kind, name), x in zip(self.inputs, operands, strict=True)
        }
        names |= {name: _memory.read(x).copy() for (_, name), x in zip(self.outputs, outputs, strict=True)}
        kinds = {name: types[kind] for kind, name in self.outputs}
        with np.errstate(all="ignore"):
            for target, expression in self.statements:
                value = eval(expression, {**FUNCTIONS, **names})
                names[target] = np.asarray(value).astype(kinds[target])
        note("launch")
        for (_, name), x in zip(self.outputs, outputs, strict=True):
            _memory.write(x, names[name])
        return outputs[0] if len(outputs) == 1 else outputs

    def _types(self, args: tuple) -> dict[str, np.dtype]:
        """The type of each kind of parameter; arrays of one kind have one type, numbers are cast to it."""
        types: dict[str, np.dtype] = {}
        for (kind, _), x in zip([*self.inputs, *self.outputs], args, strict=False):
            if len(kind) > 1:
                types[kind] = np.dtype(kind)
            if isinstance(x, _array.ndarray) and types.setdefault(kind, x.dtype) != x.dtype:
                raise TypeError(f"Type is mismatched. {kind} {x.dtype} {types[kind]}")
        return types


class RawKernel:
    """Refused: it would need a compiler."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        raise NotImplementedError("the double runs no kernels in C++")


ReductionKernel = RawModule = RawKernel
