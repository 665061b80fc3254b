"""Communication as ops: each is a linear map over all ranks, and its pullback is the adjoint map.

<F x, y> = <x, F* y>, where both sides are sums over the ranks, is what "gradient" means here. Read a
collective as a matrix of copies and sums: its transpose sums where the collective copied, and sends
in the other direction.

      broadcast  <->  sum to the root          all_gather  <->  reduce_scatter
      scatter    <->  gather                   send        <->  receive
      all_to_all <->  all_to_all               all_reduce  <->  all_reduce

What is the gradient of an all-reduce? That depends on what the loss is, so each op says what it assumes.
A value is *partial* where every rank has its own and the loss is a function of all of them; it is
*replicated* where all ranks hold the same one and compute the same loss, which counts once.

      partial to partial      all_reduce   all-reduce   each rank uses the sum for a loss of its own;
                                                        the loss is the sum of those
      partial to replicated   fan_in       identity     Megatron's g, after a row-parallel layer
      replicated to partial   fan_out      all-reduce   Megatron's f, before a column-parallel layer; it
                                                        leaves x as it is

all_reduce(x) is fan_out(fan_in(x)). The same holds for shares: ``all_gather`` is partial to partial,
``join_in`` partial to replicated, ``share_out`` replicated to partial. Using one in place of another
is wrong by a factor of p, without an error.

The result of an op that only one rank gets (``gather``, ``sum_to``, ``send``) is a 0 on the others: a
token, on which ``backward`` can be called, or which can be added to a loss. Every rank must call
backward, in the same order: the input must require a gradient on all ranks or on none, and every
rank's loss must depend on its result. Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from minigrad.data import shares
from minigrad.device import Array, array_module
from minigrad.ops import transpose
from minigrad.pullback import OpResult
from minigrad.tensor import Tensor

from . import collectives
from .collectives.send_recv import Tag
from .communicator import Communicator
from .typed_tape import typed_op


@typed_op
def fan_out(x: Array, *, comm: Communicator) -> OpResult:
    """All ranks use the same x, so their gradients add up: replicated in, partial out."""
    return x, (lambda g: collectives.allreduce(comm, g),)


@typed_op
def fan_in(x: Array, *, comm: Communicator) -> OpResult:
    """Partial results add up; each rank gets the whole gradient: partial in, replicated out."""
    return collectives.allreduce(comm, x), (lambda g: g,)


@typed_op
def all_reduce(x: Array, *, comm: Communicator) -> OpResult:
    """The sum over all ranks, which each rank uses for its own loss: partial in, partial out."""
    return collectives.allreduce(comm, x), (lambda g: collectives.allreduce(comm, g),)


@typed_op
def share_out(x: Array, *, comm: Communicator, axis: int = 0, sizes: Sequence[int] | None = None) -> OpResult:
    """Rank k takes the k-th part of x: replicated in, partial out; all gather the gradients."""
    part = cut(x, axis, sizes or even(x.shape[axis], comm))[comm.rank]
    return part, (lambda g: concatenate(collectives.allgather(comm, g), axis),)


@typed_op
def join_in(x: Array, *, comm: Communicator, axis: int = 0) -> OpResult:
    """All ranks' x, concatenated along ``axis``, for one loss: partial in, replicated out; parts go back."""
    xs = collectives.allgather(comm, x)
    rank, sizes = comm.rank, [part.shape[axis] for part in xs]
    return concatenate(xs, axis), (lambda g: cut(g, axis, sizes)[rank],)


@typed_op
def broadcast(x: Array, *, comm: Communicator, root: int = 0) -> OpResult:
    """The root's x on every rank; the ranks' gradients add up at the root. Other ranks' x gets zeros."""

    def to_root(g: Array) -> Array:
        total = collectives.reduce(comm, g, root=root)
        return zeros(g) if total is None else total

    zeros = zeros_of(x)
    return collectives.broadcast(comm, x, root), (to_root,)


@typed_op
def sum_to(x: Array, *, comm: Communicator, root: int = 0) -> OpResult:
    """The sum over all ranks on the root, a token elsewhere; each rank gets the root's gradient."""
    total = collectives.reduce(comm, x, root=root)
    return token(x) if total is None else total, (lambda g: collectives.broadcast(comm, g, root),)


@typed_op
def scatter(
    x: Array, *, comm: Communicator, root: int = 0, axis: int = 0, sizes: Sequence[int] | None = None
) -> OpResult:
    """The k-th part of the root's x, cut along ``axis``, on rank k; the root gathers the gradients.

    ``sizes`` are the parts' lengths, by default as even as they can be. Other ranks' x gets zeros.
    """
    parts = cut(x, axis, sizes or even(x.shape[axis], comm)) if comm.rank == root else None
    zeros = zeros_of(x)

    def to_root(g: Array) -> Array:
        gs = collectives.gather(comm, g, root)
        return concatenate(gs, axis) if gs else zeros(g)

    return collectives.scatter(comm, parts, root), (to_root,)


@typed_op
def gather(x: Array, *, comm: Communicator, root: int = 0, axis: int = 0) -> OpResult:
    """All ranks' x, concatenated, on the root, a token elsewhere; the root scatters the gradient."""
    xs = collectives.gather(comm, x, root)
    sizes = [part.shape[axis] for part in xs]

    def from_root(g: Array) -> Array:
        return collectives.scatter(comm, cut(g, axis, sizes) if sizes else None, root)

    return concatenate(xs, axis) if xs else token(x), (from_root,)


@typed_op
def all_gather(x: Array, *, comm: Communicator, axis: int = 0) -> OpResult:
    """All ranks' x, concatenated along ``axis``, on every rank: partial in, partial out.

    Each rank uses all of it in its own way, so the gradients of a part add up on the rank it came from.
    Where all ranks go on to compute the same loss, take ``join_in``.
    """
    xs = collectives.allgather(comm, x)
    sizes = [part.shape[axis] for part in xs]
    return concatenate(xs, axis), (lambda g: collectives.reduce_scatter(comm, cut(g, axis, sizes)),)


@typed_op
def reduce_scatter(
    x: Array, *, comm: Communicator, axis: int = 0, sizes: Sequence[int] | None = None
) -> OpResult:
    """The k-th part of the sum over all ranks, cut along ``axis``, on rank k; all gather the gradients.

    ``sizes``, the same on every rank, are the parts' lengths, by default as even as they can be.
    """
    part = collectives.reduce_scatter(comm, cut(x, axis, sizes or even(x.shape[axis], comm)))
    return part, (lambda g: concatenate(collectives.allgather(comm, g), axis),)


@typed_op
def all_to_all(
    x: Array,
    *,
    comm: Communicator,
    axis: int = 0,
    to_axis: int | None = None,
    sizes: Sequence[int] | None = None,
) -> OpResult:
    """The k-th part of x along ``axis`` goes to rank k; received parts are concatenated along ``to_axis``.

    With two axes it turns an array cut along one into the same array cut along the other. ``sizes`` are
    the lengths of the parts; the gradients go in the other direction.
    """
    joint = axis if to_axis is None else to_axis
    xs = collectives.alltoall(comm, cut(x, axis, sizes or even(x.shape[axis], comm)))
    lengths = [part.shape[joint] for part in xs]
    return concatenate(xs, joint), (
        lambda g: concatenate(collectives.alltoall(comm, cut(g, joint, lengths)), axis),
    )


@typed_op
def send(x: Array, *, comm: Communicator, to: int, tag: int = Tag.FORWARD) -> OpResult:
    """Send x to another rank; the token's backward starts by receiving the gradient, with ``tag`` + 1."""
    comm.send(x, to, tag)
    return token(x), (lambda g: comm.recv(to, tag + 1),)


@typed_op
def receive(stub: Array, *, comm: Communicator, source: int, tag: int = Tag.FORWARD) -> OpResult:
    """The array that another rank sends; backward sends the gradient back, with ``tag`` + 1.

    ``stub`` only connects it to the tape, and gets zeros: the token of an earlier ``send``, or a leaf,
    ``Tensor(0.0, requires_grad=True)``.
    """
    zeros = zeros_of(stub)

    def back(g: Array) -> Array:
        comm.send(g, source, tag + 1)
        return zeros(g)

    return comm.recv(source, tag), (back,)


def token(x: Array) -> Array:
    """A 0, the result on ranks that get none: backward can be called on it, a loss may add it."""
    return array_module(x).zeros((), x.dtype)


def zeros_of(x: Array) -> Callable[[Array], Array]:
    """A function that makes zeros like ``x``, on its argument's device, without a reference to ``x``."""
    shape, dtype = x.shape, x.dtype
    return lambda g: array_module(g).zeros(shape, dtype)


def even(n: int, comm: Communicator) -> list[int]:
    """``n`` in one part for each rank, whose sizes differ by at most one."""
    return [share.stop - share.start for share in shares(n, comm.size)]


def cut(x: Array, axis: int, sizes: Sequence[int]) -> list[Array]:
    """``x`` in parts of ``sizes`` along ``axis``; ValueError unless they add up to its length."""
    if sum(sizes) != x.shape[axis]:
        raise ValueError(
            f"parts of {list(sizes)} do not make the {x.shape[axis]} of axis {axis} of {x.shape}"
        )
    before = (slice(None),) * (axis % x.ndim)
    return [x[*before, end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def concatenate(parts: Sequence[Array], axis: int) -> Array:
    return array_module(parts[0]).concatenate(parts, axis)


def in_channels_last(communicate: Callable[..., Tensor], x: Tensor, **settings: Any) -> Tensor:
    """``communicate(x, **settings)``, where images are sent with the channels last, as they are in memory.

    A message is then one contiguous block, and the result has the same memory order. Transposes are views.
    """
    if x.ndim != 4:
        return communicate(x, **settings)
    if "axis" in settings:
        settings["axis"] = (0, 3, 1, 2)[settings["axis"]]
    y = communicate(transpose(x, axes=(0, 2, 3, 1)), **settings)
    return transpose(y, axes=(0, 3, 1, 2))
