"""The kernels' C++ as CuPy wraps it, and NVRTC, the compiler that CuPy gives it to; it needs no GPU.

``pip install nvidia-cuda-nvrtc-cu12`` (or ``nvidia-cuda-nvrtc``) brings the compiler; nothing depends on it.
"""

from __future__ import annotations

import ast
import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import minigrad
from minigrad import device, optim_kernels

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "uint8": "unsigned char",
    "int32": "int",
    "int16": "short",
    "int64": "long long",
}
ARRAYS = """
template <typename T> struct CArray {
    T *data;
    __device__ T &operator[](ptrdiff_t i) { return data[i]; }
    __device__ const T &operator[](ptrdiff_t i) const { return data[i]; }
};
struct CIndexer {
    ptrdiff_t n, i;
    __device__ ptrdiff_t size() const { return n; }
    __device__ ptrdiff_t get() const { return i; }
    __device__ void set(ptrdiff_t k) { i = k; }
};
"""


@contextmanager
def recorded_sources() -> Iterator[dict[str, set[str]]]:
    """The C++ of all kernels that run in the block, by the function of the library that made them."""
    import cupy  # pyright: ignore[reportMissingImports]

    sources: dict[str, set[str]] = {}

    class Recorded(cupy.ElementwiseKernel):
        def __init__(self, *text: str, preamble: str):
            super().__init__(*text, preamble=preamble)
            self.text = *text, preamble
            maker = sys._getframe(2).f_code
            self.maker = f"{Path(maker.co_filename).name}:{maker.co_name}"

        def __call__(self, *args: Any, **size: int) -> Any:
            sources.setdefault(self.maker, set()).add(source(self.text, args))
            return super().__call__(*args, **size)

    caches = device.elementwise_kernel, optim_kernels.kernel_of
    for kernels in caches:
        kernels.cache_clear()
    try:
        with patch.object(cupy, "ElementwiseKernel", Recorded):
            yield sources
    finally:
        for kernels in caches:
            kernels.cache_clear()


def source(text: tuple[str, ...], args: tuple) -> str:
    """What CuPy compiles when an ElementwiseKernel made of ``text`` is called with ``args``."""
    inputs, outputs, statements, name, preamble = text
    types, signature, elements = {}, [], []
    written = [False] * (inputs.count(",") + 1) + [True] * (outputs.count(",") + 1)
    declared = [text.split() for text in f"{inputs}, {outputs}".split(", ")]
    for (*_, kind, _), x in zip(declared, args, strict=True):
        if len(kind) == 1 and hasattr(x, "dtype"):
            types[kind] = C_TYPES[str(x.dtype)]
    for (*raw, kind, parameter), x, out in zip(declared, args, written, strict=True):
        c_type, const = types.get(kind) or C_TYPES[kind], "" if out else "const "
        if not hasattr(x, "dtype"):
            signature.append(f"const {c_type} {parameter}")
            continue
        signature.append(f"{const}CArray<{c_type}> {'' if raw else '_raw_'}{parameter}")
        if not raw:
            elements.append(f"{const}{c_type} &{parameter} = _raw_{parameter}[_ind.get()];")
    typedefs = "".join(f"typedef {c_type} {kind};\n" for kind, c_type in types.items())
    loop = "for (ptrdiff_t i = blockIdx.x * blockDim.x + threadIdx.x; i < _ind.size(); i += blockDim.x)"
    body = "\n".join(["_ind.set(i);", *elements, statements])
    head = f'{typedefs}{preamble}\nextern "C" __global__ void {name}({", ".join(signature)}, CIndexer _ind)'
    return f"{ARRAYS}{head} {{\n{loop} {{\n{body};\n}} }}\n"


def makers_of_kernels() -> set[str]:
    """The functions of the library that call ``elementwise_kernel``."""
    makers = set()
    for path in Path(minigrad.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for function in ast.walk(ast.parse(text if "elementwise_kernel" in text else "")):
            if isinstance(function, ast.FunctionDef):
                names = {node.func.id for node in ast.walk(function) if is_call_of_a_name(node)}  # type: ignore
                if "elementwise_kernel" in names:
                    makers.add(f"{path.name}:{function.name}")
    return makers


def is_call_of_a_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def nvrtc() -> ctypes.CDLL | None:
    """The compiler's library from one of NVIDIA's wheels, if it is installed."""
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    paths = sorted(path for folder in folders or () for path in Path(folder).rglob("libnvrtc.so.*"))
    return ctypes.CDLL(str(paths[0])) if paths else None


def compiles(text: str) -> None:
    """NVRTC takes ``text`` as CUDA C++."""
    library, program = nvrtc(), ctypes.c_void_p()
    assert library is not None
    options = (ctypes.c_char_p * 2)(b"--std=c++17", b"--gpu-architecture=compute_80")
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    failed, length = library.nvrtcCompileProgram(program, len(options), options), ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(length))
    log = ctypes.create_string_buffer(length.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert not failed, f"{log.value.decode()}\n{text}"
