"""Laws of backends/comm/nccl.py: on threads and a double of ``cupy.cuda.nccl``, with a GPU for each rank."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cli.parallel import ParallelConfig
from backends.cli.proof import Proof
from backends.comm import Communicator, collectives, run_ranks
from backends.comm.communicator import Wrapper, wait_limit
from backends.comm.nccl import NcclComm
from backends.comm.trace import Traced
from backends.data_parallel.bucketed import Bucketed
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.device import to_device, to_host, use_gpu_of
from minigrad.testing import c_order, fortran_order
from tests.backends.comm.collectives.collective_laws import LAWS as COLLECTIVE_LAWS
from tests.backends.comm.collectives.collective_laws import Case, cases, holds_on_all_ranks
from tests.backends.comm.collectives.half_laws import is_bounded_sum, numbers
from tests.backends.comm.conformance import PROMISES
from tests.bugs.bug import Bug
from tests.minigrad.gpu_laws import counted


class WithWait(Wrapper):
    """Ranks as threads, with the bounded wait that MPI's ranks have."""

    def wait(self, done: Callable[[], Any], what: str, needs: Any = ()) -> None:
        start = time.monotonic()
        while not done():
            if time.monotonic() > start + wait_limit():
                raise TimeoutError(f"rank {self.members[self.rank]} waited {what}")
            time.sleep(1e-4)

    def remember_pending(self, what: str) -> Callable[[], None]:
        comm: Any = self.comm
        return comm.remember_pending(what)

    def split(self, color: int, key: int | None = None) -> WithWait:
        return WithWait(self.comm.split(color, key))


def on_gpus(ranks: int, work: Callable[[NcclComm], Any]) -> list[Any]:
    def with_gpu(comm: Communicator) -> Any:
        use_gpu_of(comm.rank)
        return work(NcclComm(WithWait(comm)))

    return run_ranks(ranks, with_gpu)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    before = os.environ.get("MINIGRAD_TIMEOUT")
    os.environ["MINIGRAD_TIMEOUT"] = str(seconds)
    try:
        yield
    finally:
        os.environ.pop("MINIGRAD_TIMEOUT")
        if before is not None:
            os.environ["MINIGRAD_TIMEOUT"] = before


def messages_keep_their_promises() -> None:
    for ranks in (1, 2, 3):
        for promise in PROMISES:
            on_gpus(ranks, promise)


def check_case(case: Case, ranks: int) -> None:
    def work(comm: NcclComm) -> None:
        for one in (comm, Traced(comm), comm.split(comm.rank % 2, key=-comm.rank)):
            for law in COLLECTIVE_LAWS:
                holds_on_all_ranks(law, one, case)

    on_gpus(ranks, work)


def each_collective_is_what_it_is_called() -> None:
    @settings(derandomize=True, database=None, deadline=None, max_examples=20)
    @given(cases("cupy"), st.integers(1, 3))
    def hold(case: Case, ranks: int) -> None:
        check_case(case, ranks)

    hold()


def a_few_collectives_are_what_they_are_called() -> None:
    """For the bugs."""
    check_case(Case((3,), (2,), "float32", c_order, 1, "cupy"), 2)
    check_case(Case((2, 3), (2,), "int64", fortran_order, 0, "cupy"), 3)
    check_case(Case((60,), (100,), "float64", fortran_order, 0, "cupy"), 2)


def gpus_sum_what_kernels_compute() -> None:
    """Several sums on their way, of arrays that nobody else has, on ranks that come one after the other."""

    def work(comm: NcclComm) -> None:
        assert comm.link is not None, "there is no NCCL"
        if comm.rank:
            comm.recv(comm.rank - 1)
        finishes = []
        for n in (7, 90_000):
            ones = to_device(np.ones((2, n)), "cupy")
            finishes.append(comm.start_allreduce((ones * (comm.rank + n)).T))
        if comm.rank + 1 < comm.size:
            comm.send(np.zeros(1), comm.rank + 1)
        for finish, n in reversed(list(zip(finishes, (7, 90_000), strict=True))):
            total, expected = to_host(finish()), sum(rank + n for rank in range(comm.size))
            assert total.shape == (n, 2) and (total == expected).all(), (
                f"{total[:2]} are sums, not {expected}"
            )
        comm.close()

    for ranks in (2, 3):
        on_gpus(ranks, work)


def large_arrays_stay_on_the_gpus() -> None:
    def work(comm: NcclComm) -> None:
        x = to_device(np.full(100_000, comm.rank), "cupy")
        comm.allreduce(x)
        comm.collective(collectives.broadcast, x, 1)
        comm.collective(collectives.allgather, x)
        comm.collective(collectives.reduce_scatter, [x] * comm.size)

    with counted() as events:
        on_gpus(3, work)
    if events is not None:
        assert events["nccl"] == 12 and events["copy to host bytes"] < 1000, events


def calls_that_differ_are_refused() -> None:
    """Small ones before NCCL sees them, large ones by NCCL; what one rank leaves out, after some time."""

    def small(comm: NcclComm) -> str:
        return error_of(lambda: comm.allreduce(to_device(np.ones(2 + comm.rank), "cupy")))

    def large(comm: NcclComm) -> str:
        error = error_of(comm.start_allreduce(to_device(np.ones(2000 + comm.rank), "cupy")))
        closed = error_of(comm.link.check_async_error)
        return error if "INVALID_ARGUMENT" in closed else f"NCCL goes on: {closed}"

    def missing(comm: NcclComm) -> str:
        assert comm.link is not None
        x = to_device(np.ones(2000), "cupy")
        return error_of(comm.start_allreduce(x)) if comm.rank else ""

    for words in on_gpus(2, small):
        assert "rank 0 has float64(2,), rank 1 has float64(3,)" in words, words
    for words in on_gpus(2, large):
        assert words.startswith("NCCL failed between ranks 0, 1 (NCCL_ERROR_INVALID_USAGE"), words
    with time_limit(0.3):
        first, second = on_gpus(2, missing)
    assert (first, second) == ("", "rank 1 waited for ranks 0, 1 to all-reduce float64(2000,)"), second


def sums_of_16_bits_stay_on_the_gpus() -> None:
    """NCCL adds float16: ranks get the same bits, and no copy on the host."""
    terms = numbers("alike", 3, 5000, 0)

    def work(comm: NcclComm) -> np.ndarray:
        return to_host(comm.allreduce(to_device(terms[comm.rank], "cupy")))

    with counted() as events:
        first, *others = on_gpus(3, work)
    assert first.dtype == np.float16 and all(other.tobytes() == first.tobytes() for other in others)
    is_bounded_sum(first, terms)
    assert events is None or events["nccl"] == 3, f"{events['nccl']} calls of NCCL"


def error_of(call: Callable[[], Any]) -> str:
    try:
        return f"returned {call()}"
    except (RuntimeError, TimeoutError, ValueError) as error:
        return str(error)


def ranks_that_share_a_gpu_take_the_host() -> None:
    """Four ranks, on three GPUs."""

    def work(comm: NcclComm) -> None:
        total = comm.allreduce(to_device(np.full(5000, comm.rank), "cupy"))
        assert comm.link is None and (to_host(total) == 6).all()

    on_gpus(4, work)


def gpus_sum_buckets_without_a_thread() -> None:
    def work(comm: NcclComm) -> None:
        backend, rng = Bucketed(comm, bucket_bytes=16, first_bucket_bytes=16), np.random.default_rng(0)
        layers = [nn.Linear(2, 2, rng=rng), nn.Linear(2, 2, rng=rng)]
        model = backend.place(nn.Sequential(*layers).to(dtype=np.float64, device="cupy"))
        backend.step(model, Batch(np.ones((2, 2)), np.array([0, 1])).to("cupy"), ops.cross_entropy)
        backend.close()

    with counted() as events:
        on_gpus(2, work)
    assert events is None or events["nccl"] == 2 * 4, f"NCCL's sums are {events['nccl']}, of 4 buckets"


def strategies_train_like_serial() -> None:
    for ranks in (2, 3):
        for parallel, by_nccl in (
            (ParallelConfig("bucketed", {"bucket_bytes": 4096}, data=ranks), True),
            (ParallelConfig("replicated", data=ranks), True),
            (ParallelConfig("sharded", {"stage": 2}, data=ranks), True),
            (ParallelConfig("sharded", {"stage": 3, "overlap": True}, data=ranks), False),
            (ParallelConfig("serial", pipe=ranks, schedule="1f1b", micro=4), False),
        ):
            with counted() as events:
                verdict = on_gpus(ranks, Proof(parallel, net="mlp", device="cupy").run)[0]
            assert verdict is not None and (verdict[0] if isinstance(verdict, tuple) else verdict)["passed"]
            assert events is None or not by_nccl or events["nccl"], f"{parallel} sums on the host"


LAWS = (
    messages_keep_their_promises,
    each_collective_is_what_it_is_called,
    gpus_sum_what_kernels_compute,
    large_arrays_stay_on_the_gpus,
    sums_of_16_bits_stay_on_the_gpus,
    calls_that_differ_are_refused,
    ranks_that_share_a_gpu_take_the_host,
    gpus_sum_buckets_without_a_thread,
    strategies_train_like_serial,
)

BUGS = [
    Bug("nobody waits for NCCL's event", "NcclComm.start",
        'self.comm.wait(lambda: self.has_ended(event), f"for {self.ranks} to {what}", self.members)', "pass",
        gpus_sum_what_kernels_compute, "are sums, not"),
    Bug("NCCL reads what is not computed", "NcclComm.start",
        "stream.wait_event(loaded_cuda().get_current_stream().record())", "pass",
        gpus_sum_what_kernels_compute, "are sums, not"),
    Bug("what NCCL reads is freed", "NcclComm.start", "self.in_flight[event] = sent, result",
        "self.in_flight[event] = (result,)", gpus_sum_what_kernels_compute, "are sums, not|illegal memory"),
    Bug("a maximum is a sum", "comm.nccl.OPERATORS", "np.maximum: 2", "np.maximum: 0",
        a_few_collectives_are_what_they_are_called, "not equal|fails on"),
    Bug("NCCL takes float16 for float32", "comm.nccl.DTYPES", '"float16", "float32"', '"float32", "float16"',
        sums_of_16_bits_stay_on_the_gpus, "no sums|illegal memory|NCCL"),
    Bug("float16 passes through the host", "nccl.can_take", "x.dtype.name in DTYPES",
        'x.dtype.name in DTYPES and x.dtype != "float16"', sums_of_16_bits_stay_on_the_gpus,
        "calls of NCCL"),
    Bug("half of an array is broadcast", "nccl.broadcast", "memory, memory, header.size, root",
        "memory, memory, header.size // 2, root", a_few_collectives_are_what_they_are_called,
        "not equal|fails on"),
    Bug("a part has the size of all parts", "nccl.reduce_scatter", "sent, total, total.size,",
        "sent, total, sent.size,", a_few_collectives_are_what_they_are_called,
        "illegal memory|NCCL failed|fails on"),
    Bug("parts of several sizes go to NCCL", "nccl.allgather", "len(set(texts)) > 1 or ", "",
        a_few_collectives_are_what_they_are_called, "NCCL failed"),
    Bug("the order of a gathered array is lost", "nccl.allgather", "row.transpose(back)",
        "row.reshape(x.shape)", a_few_collectives_are_what_they_are_called, "not equal|fails on"),
    Bug("buckets of NCCL are summed by a thread", "bucketed.open_reducer",
        "comm.sums_alone and allreduce is None", "False", gpus_sum_buckets_without_a_thread,
        "NCCL's sums are"),
    Bug("NCCL goes on after an error", "NcclComm.start", "self.link.abort()", "pass",
        calls_that_differ_are_refused, "NCCL goes on"),
]  # fmt: skip
