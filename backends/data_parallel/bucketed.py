"""While backward computes the gradients of one layer, those of the layers after it are already being summed.

Lecture section: synchronous data parallelism (reduction of layer i during back-propagation of layer i - 1).
Lesson: 06_data_parallel. As PyTorch's DistributedDataParallel does it (Li et al. 2020, arXiv 2006.15704).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from minigrad.device import Array, array_module, on_gpu
from minigrad.lookup import at_least_one, check_choice
from minigrad.module import Module
from minigrad.tensor import Tensor

from ..comm import collectives
from ..comm.collectives import AUTOMATIC, Allreduce, AutomaticAllreduce
from ..comm.communicator import Communicator
from .allreduce_choice import AllreduceChoice
from .bucket import Bucket, make_buckets
from .data_parallel import DataParallel
from .flat import buckets

PROGRESS = (AUTOMATIC, "thread", "test", "none", "blocking")
MOST = 64  # buckets, where their size is chosen


class Reducer(NamedTuple):
    """How all-reduces advance while the rank computes; ``poll`` is called whenever a gradient is final.

    ``start`` starts to sum an array over all ranks, and returns the function that waits for the sum.
    """

    start: Callable[[Array], Callable[[], Array]]
    poll: Callable[[], object]
    close: Callable[[], object]


class BucketedDeclaration(AllreduceChoice):
    """Adds how the gradients were divided into buckets."""

    def rows(self, backend: Bucketed) -> dict[str, str]:
        rows = super().rows(backend)
        if not backend.overlaps:
            rows["buckets"] = (
                "one, at the end: all ranks are on one machine (--option progress=thread: several)"
            )
        elif backend.automatic_buckets:
            rows["buckets"] = f"of at most {backend.bucket_bytes:,} bytes"
        return rows


class Bucketed(DataParallel):
    """``DataParallel`` whose gradients travel in buckets, each sent as soon as backward has filled it.

    Parameters fill buckets of at most ``bucket_bytes`` (or one parameter that is larger) in reverse order of
    registration, which is about the order in which backward reaches them; the first has
    ``first_bucket_bytes``, so that communication begins early. (PyTorch has 25 MiB and 1 MiB, for larger
    nets.) "auto" takes, also for the first bucket, the size with the least cost by the links that an
    ``AutomaticAllreduce`` measured. The last bucket carries the summary, so it waits for the end of backward:
    one bucket alone overlaps with nothing.

    ``progress`` chooses how all-reduces advance during backward: "thread", in a background thread; "test", by
    the rank, which polls MPI whenever a gradient is final; "none", not before ``finish``, unless MPI has a
    progress thread (MPICH: MPIR_CVAR_ASYNC_PROGRESS=1); "blocking", at once, while the rank waits. "test" and
    "none" do the whole sum in ``finish`` if ``allreduce`` is given, or if the transport has no all-reduce
    that can be started.

    "auto" is "thread", except where NCCL's sums go on alone: there it is "none"; and except where a thread
    would only take cores from backward: MPI processes that are all on one machine, with weights in its
    memory, sum one message after backward, as ``DataParallel`` does.
    """

    declaration = BucketedDeclaration()

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce | None = None,
        *,
        bucket_bytes: int | str = 1 << 18,
        first_bucket_bytes: int = 1 << 16,
        progress: str = AUTOMATIC,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
    ):
        super().__init__(
            comm, allreduce or collectives.allreduce, micro_batches=micro_batches, batch_norm=batch_norm
        )
        self.progress, self.algorithm = progress, allreduce
        check_choice("progress", progress, PROGRESS)
        self.automatic_buckets = bucket_bytes == AUTOMATIC
        if self.automatic_buckets and not isinstance(self.allreduce, AutomaticAllreduce):
            raise ValueError(
                "bucket_bytes='auto' chooses by measured links; add --allreduce auto, or pass a number"
            )
        if isinstance(bucket_bytes, str) and not self.automatic_buckets:
            raise ValueError(f"bucket_bytes is a number of bytes, or 'auto'; got {bucket_bytes!r}")
        self.bucket_bytes = 1 if isinstance(bucket_bytes, str) else at_least_one("bucket_bytes", bucket_bytes)
        self.first_bucket_bytes = at_least_one("first_bucket_bytes", first_bucket_bytes)
        self.overlaps = True  # False where place finds that it costs more than it hides
        self.reducer: Reducer | None = None  # opened once, by all ranks together
        self.bucket_of: dict[Tensor, Bucket] = {}
        self.waiting: deque[Bucket] = deque()  # not yet started in this step
        self.sums: dict[Bucket, Callable[[], Array]] = {}  # the started ones

    def place(self, model: Module) -> Module:
        """Place as ``DataParallel``, and make the buckets."""
        model = super().place(model)
        self.overlaps = self.progress != AUTOMATIC or not cores_are_shared(self.comm, model)
        if not self.overlaps:
            self.bucket_of = {}
            return model
        first = self.first_bucket_bytes
        if self.automatic_buckets and isinstance(self.allreduce, AutomaticAllreduce):
            nbytes = sum(p.data.nbytes for p in self.summary.parameters)
            first = self.bucket_bytes = best_bucket_bytes(nbytes, self.allreduce.seconds)
        groups = buckets(self.summary.parameters, self.bucket_bytes, first)
        xp = array_module(self.summary.parameters[0].data)
        self.buckets = make_buckets(groups, self.summary, xp.zeros)
        self.bucket_of = {p: b for b in self.buckets for p in b.views}
        self.waiting = deque(self.buckets)
        self.reducer = self.reducer or open_reducer(self.progress, self.comm, self.algorithm)
        self.start, self.poll, _ = self.reducer
        return model

    def on_grad(self, parameter: Tensor) -> None:
        """Put the gradient into its bucket, and start the complete buckets, in their order.

        Raises RuntimeError, naming the parameter, for a second announcement in one step.
        """
        bucket = self.bucket_of.get(parameter)
        if bucket is None:  # frozen, or not the model's
            return
        if parameter not in bucket.missing:
            raise RuntimeError(
                f"rank {self.rank}: {self.names[parameter]} was announced twice in one step, and its bucket "
                "may be on its way; use micro_batches, or pass on_grad only to the last backward of a step"
            )
        bucket.fill([parameter])
        while len(self.waiting) > 1 and not self.waiting[0].missing:
            self.send(self.waiting.popleft())
        self.poll()

    def send(self, bucket: Bucket) -> None:
        self.sums[bucket] = self.start(bucket.message)

    def reduce(self) -> list[Array]:
        """Start the remaining buckets, the last one with the summary, and wait for all."""
        if not self.overlaps:
            return super().reduce()
        while self.waiting:
            self.send(self.waiting.popleft())
        self.waiting.extend(self.buckets)
        return [self.sums.pop(bucket)() for bucket in self.buckets]

    def close(self) -> None:
        """Free the buckets, and the thread or the communicator that summed them."""
        super().close()
        if self.reducer is not None:
            self.reducer.close()
            del self.start, self.poll
        self.reducer, self.bucket_of, self.waiting = None, {}, deque()


def step_seconds(count: int, nbytes: int, backward: float, seconds: Callable[[float], float]) -> float:
    """Backward and the sums of ``count`` even buckets: C_j = max(R_j, C_(j-1)) + c_j (Li et al. 2020).

    Backward takes ``backward`` seconds and fills one bucket after the other; ``seconds`` are those of an
    all-reduce, by bytes.
    """
    each, end = seconds(nbytes / count), 0.0
    for bucket in range(1, count + 1):
        end = max(bucket / count * backward, end) + each
    return end


def best_bucket_bytes(nbytes: int, seconds: Callable[[float], float]) -> int:
    """The size of the buckets, of at most ``MOST``, with which a step takes least.

    Backward is taken to last as long as one all-reduce of all ``nbytes``: where it is much shorter or longer,
    the size matters little. For c(n) = alpha + n beta the best number of buckets is near
    sqrt(nbytes beta / alpha).
    """
    backward = seconds(nbytes)
    count = min(range(1, MOST + 1), key=lambda count: step_seconds(count, nbytes, backward, seconds))
    return max(1, -(-nbytes // count))


def cores_are_shared(comm: Communicator, model: Module) -> bool:
    """Whether sums would take cores from backward: in processes of one machine, without a GPU.

    All ranks call together. Ranks that are threads are for learning, so their sums overlap.
    """
    one_machine = comm.has_own_allreduce and len(set(comm.nodes)) == 1
    return one_machine and not any(on_gpu(p.data) for p in model.parameters())


def open_reducer(progress: str, comm: Communicator, allreduce: Allreduce | None) -> Reducer:
    """The reducer for this ``progress`` of ``Bucketed``; all ranks call together."""
    if progress == AUTOMATIC:
        progress = "none" if comm.sums_alone and allreduce is None else "thread"
    if progress == "thread":
        background, algorithm = comm.background(), allreduce or collectives.allreduce

        def start_in_background(x: Array) -> Callable[[], Array]:
            return background.start(lambda comm: algorithm(comm, x), "allreduce", x.nbytes)

        return Reducer(start_in_background, lambda: None, background.close)
    own = comm.split(0)  # so that its messages do not mix with those that layers send during backward
    if progress == "blocking":

        def sum_at_once(x: Array) -> Callable[[], Array]:
            total = own.allreduce(x) if allreduce is None else allreduce(own, x)
            return lambda: total

        return Reducer(sum_at_once, lambda: None, own.close)
    if allreduce is not None:
        return Reducer(lambda x: lambda: allreduce(own, x), lambda: None, own.close)
    return Reducer(own.start_allreduce, own.progress if progress == "test" else lambda: None, own.close)
