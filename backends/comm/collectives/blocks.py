"""An array as p blocks, and blocks as one message.

Lecture section: synchronous data parallelism. Lesson: 05_messages, by ``doubling.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from minigrad.data import shares
from minigrad.device import Array, array_module


def chunks(x: Array, parts: int) -> list[Array]:
    """``x``, flat, in ``parts`` consecutive pieces whose sizes differ by at most one; some may be empty.

    Views of ``x`` where it is C-contiguous, of a copy where it is not.
    """
    flat = array_module(x).ascontiguousarray(x).reshape(-1)
    return [flat[share] for share in shares(flat.size, parts)]


def whole(pieces: Sequence[Array], like: Array) -> Array:
    """The pieces of ``chunks`` as one new array in the shape and memory order of ``like``."""
    return in_shape_of(like, array_module(like).concatenate(pieces))


def in_shape_of(like: Array, flat: Array) -> Array:
    """``flat``, in the shape and memory order of ``like``: itself where that is C order, else a copy."""
    if like.flags.c_contiguous:
        return flat.reshape(like.shape)
    shaped = array_module(like).empty_like(like, dtype=flat.dtype)  # keeps images channels-last
    shaped[...] = flat.reshape(like.shape)
    return shaped


def pack(blocks: Sequence[Array], sizes: Sequence[int] | None) -> Array:
    """Blocks as one message: stacked where they are all alike, else joined along their first axis."""
    xp = array_module(blocks[0])
    if sizes is None:
        return xp.stack(blocks)
    if [len(block) for block in blocks] != list(sizes):
        raise ValueError(
            f"blocks of {[len(block) for block in blocks]} rows were announced as {list(sizes)} rows; "
            "pass the same sizes, one for each rank, on every rank"
        )
    return xp.concatenate(blocks)


def unpack(message: Array, sizes: Sequence[int] | None) -> list[Array]:
    """The blocks of ``pack``: ``sizes`` rows each, or None where all are alike."""
    if sizes is None:
        return [message[i, ...] for i in range(len(message))]
    if len(message) != sum(sizes):
        raise ValueError(
            f"a message of {len(message)} rows cannot be blocks of {list(sizes)} rows; "
            "pass the same sizes, one for each rank, on every rank"
        )
    ends = list(accumulate(sizes))
    return [message[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def lengths(sizes: Sequence[int] | None, ranks: Sequence[int]) -> list[int] | None:
    """The sizes of some ranks' blocks; None where all are alike."""
    return None if sizes is None else [sizes[rank] for rank in ranks]


def check_parts(parts: Sequence[Array] | None, ranks: int, what: str) -> Sequence[Array]:
    """The parts; ValueError unless there is one for each rank."""
    if parts is None or len(parts) != ranks:
        n = 0 if parts is None else len(parts)
        raise ValueError(f"{what} among {ranks} ranks needs {ranks} parts, got {n}; pass one for each rank")
    return parts
