"""Parameters that travel together: each rank owns an equal part of them and of their summed gradient.

Lecture section: data lifetimes. Lesson: 06_data_parallel.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from minigrad.device import Array, array_module
from minigrad.module import Module
from minigrad.optim import Part
from minigrad.tensor import Parameter, Tensor

from ...comm.collectives import allgather, reduce_scatter
from ...comm.communicator import Communicator
from ..flat import FlatLayout

# Bytes from which pages of 2 MB are requested, as in NumPy: allocating them is five times as fast.
HUGE = 1 << 22

Start = Callable[[Callable[[Communicator], Any], str, int], Callable[[], Any]]
"""Starts a collective, with its name and bytes; returns the function that waits for its result."""


class FlatParameter:
    """Some parameters of one dtype, laid end to end and cut into equal parts; part k belongs to rank k.

    ``shard`` and ``grad_shard`` are this rank's parts of the weights and of the summed gradient. The
    parameters' ``data`` are views of the array ``unsharded``. With ``reshard_after_forward`` the shard has
    memory of its own, and the array has memory only between ``unshard`` and ``reshard``; otherwise ``data``
    reads NaN.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        comm: Communicator,
        start: Start,
        *,
        reshard_after_forward: bool = False,
    ):
        self.parameters = list(parameters)
        self.comm, self.start = comm, start
        self.layout = FlatLayout(self.parameters, comm.size)
        self.segments = self.layout.segments(comm.rank)
        self.free: Callable[[], object] | None = None
        if reshard_after_forward:
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
        self.ref_count = 1
        if reshard_after_forward:
            self.shard = self.shard.copy()
            self.reshard()

    # Weights

    def unshard(self) -> None:
        """Gather the weights; they stay whole until ``reshard`` has been called as often."""
        if not self.ref_count:
            self.all_gather()
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = view
        self.ref_count += 1

    def reshard(self) -> None:
        self.ref_count -= 1
        if not self.ref_count and self.free is not None:
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = nan_like(view)
            self.free()

    def unshard_for_good(self) -> None:
        """Gather the weights and keep them; the shard becomes a view of the whole array."""
        self.unshard()
        self.shard, self.free = self.unsharded[self.layout.parts[self.comm.rank]], None

    def all_gather(self) -> None:
        """Copy the parts of all ranks into the whole array."""
        self.start_all_gather()
        for rank, part in enumerate(self.wait_all_gather()):
            if rank != self.comm.rank or self.free is not None:
                self.unsharded[self.layout.parts[rank]] = part

    def start_all_gather(self) -> None:
        """Start to gather the parts of all ranks, unless that has been started."""
        if self.pending_all_gather is None:
            job = lambda comm: allgather(comm, self.shard)  # noqa: E731
            self.pending_all_gather = self.start(job, "allgather", self.shard.nbytes)

    def wait_all_gather(self) -> list[Array]:
        """Wait for the started all-gather: the parts of all ranks, or no parts if none was started."""
        wait, self.pending_all_gather = self.pending_all_gather, None
        return [] if wait is None else wait()

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


def nan_like(like: Array) -> Array:
    """NaN in the shape and dtype of ``like``, read-only and without memory for it."""
    xp = array_module(like)
    return xp.broadcast_to(xp.asarray(xp.nan, like.dtype), like.shape)


def group_by_owner(model: Module) -> list[list[Parameter]]:
    """The trained parameters in groups by the module that holds them first, last module first."""
    names = {name for name, p in model.named_parameters().items() if p.requires_grad}
    groups: dict[Module, list[Parameter]] = {}
    for name, owner, attribute in model.named_arrays():
        if name in names:
            groups.setdefault(owner, []).append(getattr(owner, attribute))
    return list(groups.values())[::-1]
