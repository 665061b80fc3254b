"""Evaluate the expressions of ``answers.json.gz`` with the CuPy that is installed; print its answers as JSON.

An answer is the type of an error, or the place, shape, dtype, strides and ownership of a result. It has no
values, as the recorded answers come from a CuPy whose kernels did nothing. ``[v32] a += 1`` means that a is a
copy of v32, and the answer describes it after the statement.
"""

import gzip
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

ANSWERS = Path(__file__).with_name("answers.json.gz")
SHAPES = {
    "s": (),
    "v": (4,),
    "m": (3, 4),
    "t": (2, 3, 4),
    "q": (2, 3, 4, 5),
    "e": (0, 4),
    "o": (1,),
    "z": (3, 0),
}
HOST = {
    "hs": np.array(2.0),
    "hv": np.arange(4.0),
    "hm": np.ones((3, 4), np.float32),
    "hi": np.array([0, 2, 1, 1]),
    "hb": np.array([True, False, True, False]),
    "f32": np.float32(2),
    "f64": np.float64(2),
    "i64": np.int64(2),
}


def recorded() -> dict[str, Any]:
    """The real CuPy's answers by expression."""
    return json.loads(gzip.decompress(ANSWERS.read_bytes()))


rng = np.random.default_rng(0)
VALUES = {
    name + dtype[5:]: rng.integers(1, 9, shape).astype(dtype)
    for name, shape in SHAPES.items()
    for dtype in ("float32", "float64")
} | {
    "i": np.array([0, 2, 1, 1]),
    "b": np.array([True, False, True, True]),
    "u8": np.arange(8, dtype=np.uint8),
    "i32": np.array([3, 1, 2, 0], np.int32),
}
VIEWS = {
    **{name + "T": lambda arrays, name=name: arrays[name].T for name in ("m32", "t64", "q32")},
    "q32L": lambda arrays: cp.ascontiguousarray(arrays["q32"].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
    "t32g": lambda arrays: arrays["t32"][:, ::2, 1:],
    "m64r": lambda arrays: arrays["m64"][::-1, ::-1],
}


class DeviceArrays(dict[str, Any]):
    """Arrays of all ranks and orders: m32 is a float32 matrix, m32T its transpose, q32L has channels last.

    Each is made when it is first asked for, as an expression uses two of them.
    """

    def __missing__(self, name: str) -> Any:
        if name not in VALUES.keys() | VIEWS.keys():
            raise KeyError(name)
        self[name] = cp.asarray(VALUES[name]) if name in VALUES else VIEWS[name](self)
        return self[name]


def describe(x: Any) -> Any:
    if isinstance(x, cp.ndarray):
        strides = list(x.strides) if x.size > 1 else None
        return ["device", list(x.shape), str(x.dtype), strides, x.base is None]
    if isinstance(x, np.ndarray):
        return ["host", list(x.shape), str(x.dtype)]
    if isinstance(x, list | tuple):
        return [describe(part) for part in x]
    return type(x).__name__ + (":" + repr(x) if isinstance(x, bool | int) else "")


def answer(expression: str) -> Any:
    arrays = DeviceArrays()
    known = {**HOST, "A": arrays, "np": np, "cp": cp, "math": math}
    statement = re.fullmatch(r"\[(\w+)\] (.*)", expression)
    try:
        with np.errstate(all="ignore"):
            if statement is None:
                return describe(eval(expression, known, arrays))
            arrays["a"] = arrays[statement[1]].copy()
            exec(statement[2], known, arrays)
            return describe(arrays["a"])
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({expression: answer(expression) for expression in recorded()}))
