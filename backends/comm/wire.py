"""What an array looks like between processes: a first piece that says what comes, then the memory itself.

A small array travels inside the first piece. A large one follows as a second message, straight from its
own memory into the receiver's: nobody copies or pickles it.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np

from minigrad.device import Array, array_module, to_device
from minigrad.environment import variable

INLINE = 4096  # bytes of an array that still travel in the first piece
PIECE = INLINE + 1024  # the longest first piece


class Header(NamedTuple):
    """What the first piece says: ``shape`` and ``order`` are those of the memory, outermost axis first."""

    dtype: Any
    shape: tuple[int, ...]
    order: tuple[int, ...]
    on_device: bool

    @property
    def logical_shape(self) -> tuple[int, ...]:
        return tuple(self.shape[i] for i in np.argsort(self.order))

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize


def cuda_aware() -> bool:
    """Whether the user says that this MPI reads and writes GPU memory itself."""
    return variable("MINIGRAD_CUDA_AWARE") == "1"


def pack(x: Array) -> tuple[bytes, Array | None, bool]:
    """The first piece, the memory of a large array as bytes, and whether that is a copy already."""
    if not hasattr(x, "dtype"):
        x = np.asarray(x)
    if x.dtype.hasobject:
        raise TypeError(f"an array of Python objects ({x.dtype}{x.shape}) cannot be sent; send numbers")
    xp = array_module(x)
    base, order = in_memory_order(x)
    private = base is not x and not np.may_share_memory(base, x) if xp is np else False
    if xp is not np and not cuda_aware():
        base, private = to_pinned_host(base), True
    elif xp is not np:
        xp.cuda.get_current_stream().synchronize()  # MPI knows nothing of CUDA's streams
    dtype = base.dtype if base.dtype.names else base.dtype.str
    first = pickle.dumps(Header(dtype, base.shape, order, xp is not np)[:], protocol=5)
    if len(first) > PIECE - INLINE:
        raise TypeError(
            f"the dtype {x.dtype} takes {len(first)} bytes to describe; send its fields one by one"
        )
    if base.nbytes <= INLINE:
        return first + base.tobytes(), None, True
    return first, base.reshape(-1).view(np.uint8), private


def in_memory_order(x: Array) -> tuple[Array, tuple[int, ...]]:
    """``x`` with its axes as they lie in memory, and their numbers; a copy only where ``x`` has gaps.

    So Fortran order and channels-last travel as they lie, and are never scrambled.
    """
    if x.flags.c_contiguous:
        return x, tuple(range(x.ndim))
    order = tuple(sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis])))
    return array_module(x).ascontiguousarray(x.transpose(order)), order


def unpack(first: bytes | bytearray) -> tuple[Header, Array | None]:
    """What a first piece says, and the array itself where it is small."""
    header = Header(*pickle.loads(first))
    if header.nbytes > INLINE:
        return header, None
    length = len(pickle.dumps(tuple(header), protocol=5))
    flat = np.frombuffer(first, header.dtype, header.size, length).copy()
    return header, finish(flat, header)


def room_for(header: Header) -> Array:
    """Fresh memory for a large array, flat; on the GPU where MPI can write there."""
    flat = np.empty(header.size, header.dtype)
    return to_device(flat, "cupy") if header.on_device and cuda_aware() else flat


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
    try:
        memory = array_module(x).cuda.alloc_pinned_memory(max(1, x.nbytes))
        host = np.frombuffer(memory, x.dtype, x.size).reshape(x.shape)
    except Exception:  # page-locked memory is limited; any other does
        host = np.empty(x.shape, x.dtype)
    x.get(out=host)
    return host
