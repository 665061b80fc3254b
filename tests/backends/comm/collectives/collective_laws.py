"""Laws of backends/comm/collectives/__init__.py: what a transport's own collectives must do,
as programs that each rank runs.

Every rank knows what every other one contributes: the oracle is the definition of the collective.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from backends.comm import Communicator, collectives
from minigrad.device import Array, array_module, to_device, to_host
from minigrad.testing import c_order, fortran_order, reversed_order, with_gaps
from tests.backends.comm.conformance import same


class Case(NamedTuple):
    """Arrays of ``rows``, which differ from rank to rank, times ``tail``; numbers where ``tail`` is None."""

    rows: tuple[int, ...]
    tail: tuple[int, ...] | None
    dtype: str
    layout: Callable[[np.ndarray], np.ndarray]
    root: int
    device: str = "numpy"

    def array(self, source: int, to: int = 0) -> Array:
        """What rank ``source`` has for rank ``to``, small whole numbers."""
        shape = self.shape(source, to)
        values = np.random.default_rng([source, to]).integers(-50, 50, shape).astype(self.dtype)
        return to_device(self.layout(np.asarray(values)), self.device)

    def shape(self, source: int, to: int) -> tuple[int, ...]:
        return () if self.tail is None else (self.rows[(source + 3 * to) % len(self.rows)], *self.tail)

    def part(self, source: int, to: int) -> Array:
        """An ``array`` of a shape that only ``to`` decides, for a sum."""
        return self._replace(rows=(self.rows[to % len(self.rows)],)).array(source, to)


def cases(device: str = "numpy") -> st.SearchStrategy[Case]:
    """Ragged, empty and large arrays, in four memory orders."""
    return st.builds(
        Case,
        rows=st.lists(st.sampled_from([0, 1, 2, 3, 5, 3000]), min_size=1, max_size=7).map(tuple),
        tail=st.sampled_from([(), (2,), (3, 2), (0,), None]),
        dtype=st.sampled_from(["float16", "float32", "float64", "int64"]),
        layout=st.sampled_from([c_order, fortran_order, with_gaps, reversed_order]),
        root=st.integers(0, 7),
        device=st.just(device),
    )


def same_as_sent(result: Array, sent: Array) -> None:
    """Equal in value, shape, dtype and device, and in the memory order of ``sent`` itself or of a copy."""
    assert array_module(result) is array_module(sent)
    same(result, sent)
    if array_module(sent) is np and min(sent.shape, default=0) > 1:
        orders = {sent.strides, sent.copy(order="K").strides}
        assert result.strides in orders, f"strides {result.strides}, those sent {sent.strides}"
        assert result.flags.writeable and result.flags.aligned


def broadcast_brings_the_roots_array(comm: Communicator, case: Case) -> None:
    root, x = case.root % comm.size, case.array(comm.rank)
    result = comm.collective(collectives.broadcast, x, root)
    same_as_sent(result, case.array(root))
    same(x, case.array(comm.rank))


def scatter_brings_each_its_part(comm: Communicator, case: Case) -> None:
    root = case.root % comm.size
    parts = [case.array(root, to) for to in range(comm.size)] if comm.rank == root else None
    same_as_sent(comm.collective(collectives.scatter, parts, root), case.array(root, comm.rank))


def gather_brings_all_to_the_root(comm: Communicator, case: Case) -> None:
    root = case.root % comm.size
    result = comm.collective(collectives.gather, case.array(comm.rank), root)
    assert len(result) == (comm.size if comm.rank == root else 0)
    for source, x in enumerate(result):
        same_as_sent(x, case.array(source))


def allgather_brings_all_to_all(comm: Communicator, case: Case) -> None:
    own = case.array(comm.rank)
    result = comm.collective(collectives.allgather, own)
    assert len(result) == comm.size and result[comm.rank] is own
    for source, x in enumerate(result):
        same_as_sent(x, case.array(source))


def alltoall_is_a_transpose(comm: Communicator, case: Case) -> None:
    result = comm.collective(collectives.alltoall, [case.array(comm.rank, to) for to in range(comm.size)])
    assert len(result) == comm.size
    for source, x in enumerate(result):
        same_as_sent(x, case.array(source, comm.rank))


def reduce_scatter_leaves_each_its_part_of_the_sum(comm: Communicator, case: Case) -> None:
    parts = [case.part(comm.rank, to) for to in range(comm.size)]
    result = comm.collective(collectives.reduce_scatter, parts)
    total = sum((to_host(case.part(source, comm.rank)) for source in range(comm.size)), np.array(0, "int8"))
    assert array_module(result) is array_module(parts[0]) and not any(result is part for part in parts)
    same(result, total.astype(case.dtype))
    for to, part in enumerate(parts):
        same(part, case.part(comm.rank, to))


def allreduce_sums(comm: Communicator, case: Case) -> None:
    x = case.part(comm.rank, 0)
    result = comm.collective(collectives.allreduce, x)
    total = sum((to_host(case.part(source, 0)) for source in range(comm.size)), np.array(0, "int8"))
    assert array_module(result) is array_module(x) and result is not x
    same(result, total.astype(case.dtype))
    if case.device == "numpy" and min(x.shape, default=0) > 1:
        assert result.strides == x.copy(order="K").strides
    same(x, case.part(comm.rank, 0))


def other_operators_combine(comm: Communicator, case: Case) -> None:
    """Operators that the transport's own calls do not have are left to ours."""
    parts = [case.part(comm.rank, to) for to in range(comm.size)]
    result = comm.collective(collectives.reduce_scatter, parts, np.maximum)
    same(result, np.max([to_host(case.part(source, comm.rank)) for source in range(comm.size)], axis=0))
    result = comm.collective(collectives.allreduce, parts[0], np.maximum)
    same(result, np.max([to_host(case.part(source, 0)) for source in range(comm.size)], axis=0))


LAWS: list[Callable[[Communicator, Case], None]] = [
    broadcast_brings_the_roots_array,
    scatter_brings_each_its_part,
    gather_brings_all_to_the_root,
    allgather_brings_all_to_all,
    alltoall_is_a_transpose,
    reduce_scatter_leaves_each_its_part_of_the_sum,
    allreduce_sums,
    other_operators_combine,
]


def holds_on_all_ranks(law: Callable[[Communicator, Case], None], comm: Communicator, case: Case) -> None:
    """The law, with one verdict: where it fails on one rank, it fails on all, and no rank goes on."""
    try:
        law(comm, case)
        error = None
    except (AssertionError, ValueError, IndexError) as failure:
        error = failure
    errors = collectives.naive_allreduce(comm, np.array(error is not None, dtype=int))
    if error is not None:
        raise error
    assert not errors, f"{law.__name__} fails on {errors} other ranks"
