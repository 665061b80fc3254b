"""CUDA C++ on the host: a ``RawModule`` is compiled by g++, and the threads of a block take turns.

Each array that a kernel gets ends where memory begins that nobody may touch: a thread that reads or writes
beyond it is an IndexError. ``order`` says which thread of a block is first; a kernel whose
result depends on it has a race.
"""

import ctypes
import hashlib
import mmap
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import _array, _memory
from ._capture import kernel
from ._counts import note

HEADER = Path(__file__).with_name("cuda_on_host.h")
SIGNATURE = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\(\w+\) )?(\w+)\(([^)]*)\)', re.DOTALL
)
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "unsigned char": np.uint8,
    "int": np.int32,
    "long long": np.int64,
}
MOST_THREADS = 1024  # of a block

order = int(os.environ.get("STRICT_CUPY_ORDER", "0"))


class RawModule:
    """The kernels of a text of CUDA C++, compiled at the first ``get_function``, as the real one's."""

    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        if options != ("-std=c++17",):
            raise NotImplementedError(f"the double compiles with -std=c++17 only, got {options}")
        self.code, self.library = code, None

    def get_function(self, name: str) -> Callable[..., None]:
        signatures = dict(SIGNATURE.findall(self.code))
        if self.library is None:
            self.library = ctypes.PyDLL(str(compiled(self.code, signatures)))  # ranks as threads wait: GIL
        macros = dict(re.findall(r"^#define (\w+) (.+)$", self.code, re.MULTILINE))
        return RawKernel(self.library, name, parameters(signatures[name], macros))


def parameters(signature: str, macros: dict[str, str]) -> list[tuple[type, bool, bool]]:
    """The type of each parameter, whether it is an array, and whether the kernel writes it."""
    kinds = []
    for text in filter(str.strip, signature.split(",")):
        words = re.sub(r"__restrict__|\*", " ", text).split()
        kind = " ".join(word for word in words[:-1] if word != "const")
        kinds.append((TYPES[macros.get(kind, kind)], "*" in text, "*" in text and "const" not in words))
    return kinds


def compiled(code: str, signatures: dict[str, str]) -> Path:
    """The library of ``code``, from the cache or from g++; raises NotImplementedError where there is none."""
    launchers = ""
    for name, signature in signatures.items():
        arguments = " ".join(signature.split())
        names = ", ".join(text.split()[-1].lstrip("*") for text in signature.split(",") if text.strip())
        launchers += (
            f'extern "C" int launch_{name}(int grid_x, int grid_y, int grid_z, int block_x, int turns'
            f"{', ' * bool(arguments)}{arguments}) {{\n"
            f"    Size grid = {{grid_x, grid_y, grid_z}};\n"
            f"    return launch(grid, block_x, turns, [=] {{ {name}({names}); }});\n}}\n"
        )
    text = f"{HEADER.read_text(encoding='utf-8')}\n{code}\n{launchers}"
    folder = Path(tempfile.gettempdir()) / f"strict-cupy-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        own = library.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        command = ["g++", "-O2", "-std=c++17", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(own)]
        try:
            run = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=300)
        except FileNotFoundError:
            raise NotImplementedError("the double needs g++ for CUDA C++") from None
        if run.returncode:
            raise RuntimeError(f"CompileException: {run.stderr[:3000]}")
        own.rename(library)
    return library


class RawKernel:
    """A kernel of a ``RawModule``; the double makes none from a text alone."""

    def __init__(self, library: Any, name: str = "", parameters: Any = None) -> None:
        if parameters is None:
            raise NotImplementedError("the double has RawModule alone for CUDA C++")
        self._launch, self._parameters, self.name = getattr(library, f"launch_{name}"), parameters, name

    @kernel
    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]) -> Any:
        grid, (threads, *more) = (*grid, 1, 1)[:3], block
        if more or not 0 < threads <= MOST_THREADS or min(grid) < 1 or max(grid[1:]) > 65535:
            raise ValueError(f"CUDA_ERROR_INVALID_VALUE: grid {grid}, block {block}")
        if len(args) != len(self._parameters):
            raise TypeError(f"{self.name} has {len(self._parameters)} parameters, got {len(args)} arguments")
        _memory.check_device(*args)
        arguments, outputs, values = [], [], []
        for x, (kind, is_array, is_written) in zip(args, self._parameters, strict=True):
            if not is_array:
                if type(x) is not kind:  # a number of Python is passed as 8 bytes
                    raise TypeError(f"{self.name} takes {kind.__name__}, got {type(x).__name__}")
                values.append(np.ctypeslib.as_ctypes_type(kind)(x))
            elif isinstance(x, _array.ndarray):
                if x.dtype != kind or not x.flags.c_contiguous:
                    raise TypeError(
                        f"{self.name} takes {kind.__name__} in C order, got {x.dtype} {x.strides}"
                    )
                memory = fenced(_memory.read(x))
                arguments.append(memory)  # it lives as long as the call
                outputs += [(x, memory)] * is_written
                values.append(ctypes.c_void_p(memory.ctypes.data if x.size else 0))
            elif type(x) is int and x == 0:
                values.append(ctypes.c_void_p(0))
            else:
                raise TypeError(
                    f"{self.name} takes arrays of the device, or 0 for none, got {type(x).__name__}"
                )
        note("launch")
        result = self._launch(*grid, threads, order, *values)
        if result == 2:
            raise IndexError(f"{self.name}: a thread reads or writes beyond the end of an array")
        if not result:
            raise RuntimeError(f"{self.name}: some threads of a block ended where others wait for them")
        for x, memory in outputs:
            _memory.write(x, memory)


def fenced(x: np.ndarray) -> np.ndarray:
    """A copy of ``x`` whose last byte is the last one before a page without access."""
    pages = -(-max(x.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages), ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError("mprotect failed")
    copy = np.frombuffer(memory, x.dtype, x.size, pages - x.nbytes).reshape(x.shape)
    copy[...] = x
    return copy
