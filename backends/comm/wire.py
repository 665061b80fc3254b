"""The form of an array between processes: a first piece with a header, then the memory itself.

A small array is part of the first piece. A large one follows as a second message, from its own memory into
the receiver's without a copy. A header is only a few numbers, each of which is checked, and the receiver
takes no more memory than bytes have arrived.
"""

from __future__ import annotations

import math
import re
import struct
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from minigrad.device import Array, array_module, to_device
from minigrad.environment import variable

from .gpu import synchronize
from .pinned_buffers import page_locked

INLINE = 4096  # the most bytes of an array that is part of the first piece
START = struct.Struct("<4sBB18s")  # format, number of axes, whether on a GPU, NumPy's text for the dtype
SIGN = b"mga1"  # a minigrad array, and the version of this format
AXES = 64  # at most, as in NumPy; after the start come their lengths (8 bytes each) and order (1 byte each)
PIECE = INLINE + START.size + 9 * AXES  # the longest first piece
DTYPE = re.compile(rb"[<>|][biufcmMSUV][1-9]\d{0,8}(\[\w{1,8}\])?")  # no objects, no fields


class Header(NamedTuple):
    """The header of a first piece: ``shape`` and ``order`` are those of the memory, outermost axis first."""

    dtype: np.dtype
    shape: tuple[int, ...]
    order: tuple[int, ...]
    on_device: bool

    @property
    def logical_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[i] for i in np.argsort(self.order))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def to_bytes(self) -> bytes:
        """The header as bytes; TypeError for a dtype that the receiver would not restore."""
        n = len(self.shape)
        start = START.pack(SIGN, n, self.on_device, text_of(self.dtype))
        return start + struct.pack(f"<{n}q{n}B", *self.shape, *self.order)

    @classmethod
    def read(cls, first: bytes | bytearray | memoryview) -> tuple[Header, int]:
        """The header with which a first piece begins, and its length; ValueError where there is none."""
        if len(first) < START.size:
            raise ValueError(f"{NO_ARRAY}: {len(first)} bytes are too few")
        sign, n, on_device, text = START.unpack_from(first)
        end = START.size + 9 * n
        if sign != SIGN or n > AXES or on_device > 1 or len(first) < end:
            raise ValueError(f"{NO_ARRAY}: it begins with {bytes(first[: START.size])!r}")
        numbers = struct.unpack_from(f"<{n}q{n}B", first, START.size)
        header = cls(dtype_of(text.rstrip(b"\0")), numbers[:n], numbers[n:], bool(on_device))
        possible = min(header.shape, default=0) >= 0 and math.prod(max(length, 1) for length in header.shape)
        if not 0 < possible * header.dtype.itemsize < 1 << 63 or sorted(header.order) != list(range(n)):
            raise ValueError(f"{NO_ARRAY}: its axes are {header.shape}, in the order {header.order}")
        return header, end


NO_ARRAY = "what came is no array that minigrad sent; run the same version of it on all ranks"


@lru_cache(256)
def text_of(dtype: np.dtype) -> bytes:
    """NumPy's text for a dtype; TypeError for one that the receiver would not restore."""
    text = dtype.str.encode()
    if dtype.names or not DTYPE.fullmatch(text):
        raise TypeError(f"an array of dtype {dtype} cannot be sent; send numbers, fields one by one")
    return text


@lru_cache(256)
def dtype_of(text: bytes) -> np.dtype:
    """The dtype of plain numbers, texts or times with this text; ValueError where there is none."""
    with suppress(TypeError, ValueError):
        if DTYPE.fullmatch(text):
            return np.dtype(text.decode())
    raise ValueError(f"{NO_ARRAY}: it names the dtype {text!r}")


def cuda_aware() -> bool:
    """Whether this MPI reads and writes GPU memory itself, as the user declares."""
    return variable("MINIGRAD_CUDA_AWARE") == "1"


def pack(x: Array) -> tuple[bytes, Array | None, bool]:
    """The first piece, the memory of a large array as bytes, and whether this is a copy already."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    if x.dtype.hasobject:
        raise TypeError(f"an array of Python objects ({x.dtype}{x.shape}) cannot be sent; send numbers")
    xp = array_module(x)
    base, order = in_memory_order(x)
    private = base is not x and not xp.may_share_memory(base, x)
    if xp is not np and not cuda_aware():
        base, private = to_pinned_host(base), True
    first = Header(base.dtype, base.shape, order, xp is not np).to_bytes()
    if base.nbytes <= INLINE:
        return first + base.tobytes(), None, True
    return first, base.reshape(-1).view(np.uint8), private


def in_memory_order(x: Array) -> tuple[Array, tuple[int, ...]]:
    """``x`` with its axes in memory order, and their numbers; a copy only where ``x`` has gaps.

    So arrays in Fortran order or channels-last order are sent without a copy.
    """
    if x.flags.c_contiguous:
        return x, tuple(range(x.ndim))
    order = tuple(sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis])))
    return array_module(x).ascontiguousarray(x.transpose(order)), order


def unpack(first: bytes | bytearray | memoryview) -> tuple[Header, Array | None]:
    """A first piece's header, and the array itself where it is small; ValueError for other bytes."""
    header, end = Header.read(first)
    large = header.nbytes > INLINE
    check_length(header, len(first) - end, 0 if large else header.nbytes)
    if large:
        return header, None
    return header, finish(np.frombuffer(first, header.dtype, header.size, end).copy(), header)


def check_length(header: Header, nbytes: int, needed: int) -> None:
    """Raise ValueError unless the number of bytes is that of the header."""
    if nbytes != needed:
        raise ValueError(
            f"{NO_ARRAY}: {nbytes} bytes came with {header.dtype}{header.logical_shape}, not {needed}"
        )


def room_for(header: Header) -> Array:
    """Fresh memory for a large array, flat; on the GPU where MPI can write there."""
    if not (header.on_device and cuda_aware()):
        return np.empty(header.size, header.dtype)
    flat = array_module(to_device(np.empty(0), "cupy")).empty(header.size, header.dtype)
    synchronize()  # kernels that run may still use this memory, which its last owner has freed
    return flat


def finish(flat: Array, header: Header) -> Array:
    """The array that was sent, in its own memory order and on its own kind of device."""
    if array_module(flat) is np:
        flat.resize(header.shape, refcheck=False)  # in place: the array owns its memory, it is no view
    else:
        flat = flat.reshape(header.shape)
    if header.on_device:
        flat = to_device(flat, "cupy")
    in_order = header.order == tuple(range(len(header.order)))
    return flat if in_order else flat.transpose(np.argsort(header.order))


def to_pinned_host(x: Array) -> np.ndarray:
    """A C-contiguous GPU array in host memory, page-locked where possible: then the copy is fast."""
    host = page_locked(x, x.nbytes)[: x.nbytes].view(x.dtype).reshape(x.shape)
    x.get(out=host)
    return host
