"""Parameters that travel together: each rank owns an equal part of them and of their summed gradient.

Lecture section: data lifetimes. Lesson: 06_data_parallel, by ``gathered_weights.py``.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from minigrad.device import Array, array_module, to_host
from minigrad.optim import Part
from minigrad.tensor import Parameter, Tensor

from ...comm.collectives import allgather, reduce_scatter
from ...comm.communicator import Communicator
from ..flat import FlatLayout

Start = Callable[[Callable[[Communicator], Any], str, int], Callable[[], Any]]
"""Starts a collective, with its name and bytes; returns the function that waits for its result."""

ORDER = "sharded layers must be called on all ranks in the same order"
NUMBERS = 16  # that a shape can tell apart, by its axes
HUGE = 1 << 22  # bytes from which pages of 2 MB are requested, as in NumPy: five times as fast to allocate


class FlatParameter:
    """Some parameters of one dtype, laid end to end and cut into equal parts; part k belongs to rank k.

    ``shard`` and ``grad_shard`` are this rank's parts of the weights and of the summed gradient. The
    parameters' ``data`` are views of the array ``unsharded``, of which ``shard`` is a view too. But with
    ``is_sharded`` the shard is another array, and the whole one has memory only while it is in use: between
    ``reshard`` and the next ``unshard`` the parameters' ``data`` read NaN. ``number`` is the same on all
    ranks, and another one for other flat parameters.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        comm: Communicator,
        start: Start,
        number: int = 0,
        is_sharded: bool = False,
    ):
        self.parameters = list(parameters)
        self.comm, self.start, self.number, self.is_sharded = comm, start, number, is_sharded
        self.layout = FlatLayout(self.parameters, comm.size)
        self.segments = self.layout.segments(comm.rank)
        if is_sharded:
            self.unsharded, self.free = freeable_array(self.parameters[0].data, self.layout.size)
        else:
            self.unsharded = self.layout.zeros()
        self.views = self.layout.views(self.unsharded)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            view[...] = parameter.data
            parameter.data = view
        self.shard: Array = self.unsharded[self.layout.parts[comm.rank]]
        self.grad_shard: Array | None = None
        self.missing: set[Tensor] = set(parameters)  # not yet announced in this step
        self.reached: set[Tensor] = set()  # by this rank's loss, after the step by any
        self.pending_all_gather: Callable[[], list[Array]] | None = None
        self.pending_reduce_scatter: Callable[[], Array] | None = None

        self.ref_count = 1  # of those that use the whole weights
        if is_sharded:
            self.shard = self.shard.copy()
            self.reshard()

    # Weights

    @property
    def is_whole(self) -> bool:
        """Whether this rank holds the whole weights now."""
        return self.ref_count > 0

    def unshard(self) -> None:
        """Gather the weights; they stay whole until ``reshard`` has been called as often."""
        if not self.ref_count:
            self.all_gather()
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = view
        self.ref_count += 1

    def reshard(self) -> None:
        self.ref_count -= 1
        if not self.ref_count:
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = nan_like(view)
            self.free()

    def unshard_for_good(self) -> None:
        """Gather the weights and keep them; the shard becomes a view of the whole array."""
        self.unshard()
        self.shard = self.unsharded[self.layout.parts[self.comm.rank]]

    def all_gather(self) -> None:
        """Copy the parts that the whole array lacks into it."""
        self.start_all_gather()
        for rank, part in enumerate(self.wait_all_gather()):
            if self.is_sharded or rank != self.comm.rank:
                self.unsharded[self.layout.parts[rank]] = part

    def start_all_gather(self) -> None:
        """Start to gather the parts of all ranks, unless that has been started."""
        if self.pending_all_gather is None:
            self.pending_all_gather = self.start(self.gather_parts, f"allgather ({ORDER})", self.shard.nbytes)

    def gather_parts(self, comm: Communicator) -> list[Array]:
        """The parts of all ranks; raises RuntimeError where a rank gathers another flat parameter.

        The number of this one is in the shape of what travels, so it adds no byte.
        """
        axes = (1,) * (self.number % NUMBERS)
        parts = allgather(comm, self.shard.reshape(*axes, -1))
        for rank, part in enumerate(parts):
            size = self.layout.parts[rank].stop - self.layout.parts[rank].start
            if part.shape != (*axes, size):
                shapes = ", ".join(str(parameter.shape) for parameter in self.parameters)
                raise RuntimeError(
                    f"rank {rank} sent other weights than rank {comm.rank} gathers, those of shapes "
                    f"{shapes}: {ORDER}, whatever the samples; call the same ones, or use stage=2"
                )
        return [part.reshape(-1) for part in parts]

    def wait_all_gather(self) -> list[Array]:
        """Wait for the started all-gather: the parts of all ranks, or no parts if none was started."""
        wait, self.pending_all_gather = self.pending_all_gather, None
        return [] if wait is None else wait()

    def values(self) -> list[np.ndarray]:
        """Copies of the parameters' values on the host; all ranks must call this together."""
        self.unshard()
        values = [to_host(parameter.data).copy() for parameter in self.parameters]
        self.reshard()
        return values

    # Gradients

    def start_reduce_scatter(self) -> None:
        """Start to sum the gradients over all ranks, and set them to None; None counts as zeros."""
        whole = self.layout.pack([p.grad for p in self.parameters])
        self.reached = {p for p in self.parameters if p.grad is not None}
        for parameter in self.parameters:
            parameter.grad = None
        parts = [whole[part] for part in self.layout.parts]
        self.pending_reduce_scatter = self.start(
            lambda comm: reduce_scatter(comm, parts), "reduce_scatter", whole.nbytes
        )

    def wait_reduce_scatter(self) -> None:
        """Wait for the started reduce-scatter; ``grad_shard`` becomes this rank's part of the sum."""
        if self.pending_reduce_scatter is not None:
            self.grad_shard, self.pending_reduce_scatter = self.pending_reduce_scatter(), None
            self.missing = set(self.parameters)

    def owned_gradient(self, parameter: Tensor) -> Array:
        """This rank's elements, perhaps none, of the summed gradient; before the first sum, of ``grad``."""
        mine = [segment for segment in self.segments if self.parameters[segment.n] is parameter]
        _, within, place = mine[0] if mine else (0, slice(0), slice(0))
        if self.grad_shard is not None:
            return self.grad_shard[place]
        return array_module(self.shard).ravel(parameter.grad)[within]

    def parts(self, numbers: dict[Parameter, int]) -> Iterator[Part]:
        """This rank's elements of each parameter that has a number, for the optimizer."""
        for n, _, place in self.segments:
            parameter = self.parameters[n]
            if parameter in numbers:
                grads = self.grad_shard if parameter in self.reached else None
                yield Part(numbers[parameter], self.shard[place], None if grads is None else grads[place])

    def all_gather_gradients(self) -> list[Array]:
        """The parameters' summed gradients, gathered from all ranks."""
        xp = array_module(self.shard)
        own = xp.zeros_like(self.shard) if self.grad_shard is None else self.grad_shard
        return self.layout.views(xp.concatenate(allgather(self.comm, own)))


def nan_like(like: Array) -> Array:
    """NaN in the shape and dtype of ``like``, read-only and without memory for it."""
    xp = array_module(like)
    return xp.broadcast_to(xp.asarray(xp.nan, like.dtype), like.shape)


def freeable_array(like: Array, size: int) -> tuple[Array, Callable[[], object]]:
    """An array of ``size`` zeros, and the function that frees its memory but not its address.

    Views of the array stay valid: they read zeros, and writing allocates memory again. Only Linux guarantees
    this, for private pages; elsewhere, and on a GPU, the function writes zeros and frees nothing.
    """
    xp = array_module(like)
    if xp is not np or sys.platform != "linux":
        array = xp.zeros(size, like.dtype)
        return array, lambda: array.fill(0)
    pages = mmap.mmap(-1, max(1, size * like.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if len(pages) >= HUGE:
        with suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, like.dtype, size), lambda: pages.madvise(mmap.MADV_DONTNEED)
