"""Parameters that travel together: each rank owns one equal part of them and of their summed gradient.

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
from minigrad.optimizer import Part
from minigrad.tensor import Parameter, Tensor

from ..comm.collectives import allgather, reduce_scatter
from ..comm.communicator import Background, Communicator
from .flat import Flat

HUGE = 1 << 22  # bytes from which on pages of 2 MB are asked for, as NumPy does: they come five times as fast

Start = Callable[[Callable[[Communicator], Any], str, int], Callable[[], Any]]
"""Starts a collective, given its name and the bytes of the array; what it returns waits for the result."""


class Unit:
    """Some parameters of one dtype, laid end to end and cut into equal parts; part k belongs to rank k.

    ``weights`` and ``gradient`` are this rank's parts: ``flat.part_size`` elements each, the last of them
    padding. The parameters' ``data`` are views of the array ``whole``. A unit that is ``lent`` has weights of
    its own, and the array no memory but while the unit is open: then ``data`` reads NaN.
    """

    def __init__(
        self, parameters: Sequence[Parameter], comm: Communicator, start: Start, *, lent: bool = False
    ):
        self.parameters = list(parameters)
        self.comm, self.start = comm, start
        self.flat = Flat(self.parameters, comm.size)
        self.pieces = self.flat.pieces(comm.rank)
        if lent:
            self.whole, self.give_back = lendable(self.parameters[0].data, self.flat.size)
        else:
            self.whole, self.give_back = self.flat.zeros(), None
        self.views = self.flat.views(self.whole)
        for parameter, view in zip(self.parameters, self.views, strict=True):
            view[...] = parameter.data
            parameter.data = view
        self.weights: Array = self.whole[self.flat.part(comm.rank)]
        self.gradient: Array | None = None
        self.missing: set[Tensor] = set(parameters)  # not yet announced in this step
        self.reached: set[Tensor] = set()  # by this rank's loss, after the step by any
        self.coming: Callable[[], list[Array]] | None = None
        self.reducing: Callable[[], Array] | None = None
        self.users = 1
        if lent:
            self.weights = self.weights.copy()
            self.close()

    # Weights

    def open(self) -> None:
        """The weights are whole until ``close`` was called as often."""
        if not self.users:
            self.gather()
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = view
        self.users += 1

    def close(self) -> None:
        self.users -= 1
        if not self.users and self.give_back is not None:
            for parameter, view in zip(self.parameters, self.views, strict=True):
                parameter.data = not_a_number(view)
            self.give_back()

    def keep(self) -> None:
        """Be whole for good: what this rank owns is a part of the array from then on."""
        self.open()
        self.weights, self.give_back = self.whole[self.flat.part(self.comm.rank)], None

    def gather(self) -> None:
        """Put all ranks' parts into their places."""
        self.fetch()
        for rank, part in enumerate(self.fetched()):
            if rank != self.comm.rank or self.give_back is not None:
                self.whole[self.flat.part(rank)] = part

    def fetch(self) -> None:
        """Start to gather all ranks' parts, unless that was done."""
        if self.coming is None:
            nbytes = self.weights.nbytes
            self.coming = self.start(lambda comm: allgather(comm, self.weights), "allgather", nbytes)

    def fetched(self) -> list[Array]:
        """Wait for what ``fetch`` started: all ranks' parts, or nothing."""
        finish, self.coming = self.coming, None
        return [] if finish is None else finish()

    # Gradients

    def reduce(self) -> None:
        """Start to sum the gradients over all ranks, and forget them; those it lacks count as zeros."""
        whole = self.flat.packed([p.grad for p in self.parameters])
        self.reached = {p for p in self.parameters if p.grad is not None}
        for parameter in self.parameters:
            parameter.grad = None
        parts = [whole[self.flat.part(rank)] for rank in range(self.comm.size)]
        self.reducing = self.start(lambda comm: reduce_scatter(comm, parts), "reduce_scatter", whole.nbytes)

    def reduced(self) -> None:
        """Wait for the sum that ``reduce`` started; this rank's part of it is ``gradient``."""
        if self.reducing is not None:
            self.gradient, self.reducing = self.reducing(), None
            self.missing = set(self.parameters)

    def owned(self, parameter: Tensor) -> Array:
        """This rank's elements, maybe none, of the summed gradient; of ``grad`` before the first sum."""
        mine = [piece for piece in self.pieces if self.parameters[piece.n] is parameter]
        _, within, place = mine[0] if mine else (0, slice(0), slice(0))
        if self.gradient is not None:
            return self.gradient[place]
        return array_module(self.weights).ravel(parameter.grad)[within]

    def parts(self, numbers: dict[Parameter, int]) -> Iterator[Part]:
        """What this rank updates: its elements of each parameter that has a number, no padding."""
        for n, _, place in self.pieces:
            parameter = self.parameters[n]
            if parameter in numbers:
                g = None if self.gradient is None or parameter not in self.reached else self.gradient[place]
                yield Part(numbers[parameter], self.weights[place], g)

    def full_gradients(self) -> list[Array]:
        """The parameters' summed gradients, gathered from all ranks."""
        xp = array_module(self.weights)
        own = xp.zeros_like(self.weights) if self.gradient is None else self.gradient
        return self.flat.views(xp.concatenate(allgather(self.comm, own)))


class Starter:
    """Starts collectives: each runs at once, or behind the others in the ``background`` if there is one."""

    def __init__(self, comm: Communicator):
        self.comm = comm
        self.background: Background | None = None

    def __call__(self, job: Callable[[Communicator], Any], what: str, nbytes: int) -> Callable[[], Any]:
        if self.background is not None:
            return self.background.start(job, what, nbytes)
        result = job(self.comm)
        return lambda: result

    def close(self) -> None:
        """End the background."""
        if self.background is not None:
            self.background.close()
            self.background = None


def lendable(like: Array, size: int) -> tuple[Array, Callable[[], object]]:
    """An array of ``size`` zeros, and the function that gives its memory back and leaves it its address.

    Views of it stay valid: they read zeros, and get memory again where they are written. Only Linux promises
    that of private pages; elsewhere, and on a GPU, the zeros are written, and the memory is kept.
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


def not_a_number(like: Array) -> Array:
    """NaN in the shape and dtype of ``like``, read-only and without memory for it."""
    xp = array_module(like)
    return xp.broadcast_to(xp.asarray(xp.nan, like.dtype), like.shape)


def buckets(parameters: Sequence[Parameter], nbytes: int, first: int | None = None) -> list[list[Parameter]]:
    """The parameters, last first, in groups of at most ``nbytes``, or of one that is larger.

    The ``first`` group has a limit of its own, where it is given.

    Backward comes to the last layers first, so their group is complete early (Li et al. 2020).
    """
    found: list[list[Parameter]] = []
    room = 0
    for parameter in reversed(parameters):
        if not found or parameter.data.nbytes > room:
            room = nbytes if found or first is None else first
            found.append([])
        found[-1].append(parameter)
        room -= parameter.data.nbytes
    return found


def by_owner(model: Module) -> list[list[Parameter]]:
    """The trained parameters in groups by the module that holds them first, last module first."""
    groups: dict[Module, list[Parameter]] = {}
    seen: set[Parameter] = set()
    for _, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        if isinstance(value, Parameter) and value.requires_grad and value not in seen:
            seen.add(value)
            groups.setdefault(owner, []).append(value)
    return list(groups.values())[::-1]
