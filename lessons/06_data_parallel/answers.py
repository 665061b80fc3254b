"""The answers to the questions on lesson 06, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import barrier
from backends.comm.collectives.link import Link
from backends.data_parallel import DataParallel, Sharded
from minigrad import ops, optim
from minigrad.data import Batch, shares
from minigrad.nn import Linear, Sequential
from minigrad.serial import Serial


def model():
    return Sequential(Linear(3, 4, rng=np.random.default_rng(0))).to(dtype=np.float64)


def error(weight, samples, ranks=3):
    """The largest difference of a gradient from the serial one, where ranks weigh by ``weight``."""
    rng = np.random.default_rng(1)
    batch = Batch(rng.normal(size=(samples, 3)), rng.integers(0, 4, samples))

    class Weighed(DataParallel):
        def loss_weight(self, mine, batch):
            return weight(len(mine), len(batch), self.size)

    def gradients(backend):
        placed = backend.place(model())
        backend.step(placed, batch, ops.cross_entropy)
        return np.concatenate([g.ravel() for g in backend.state.full_gradients(placed).values()])

    serial = gradients(Serial())
    return abs(run_ranks(ranks, lambda comm: gradients(Weighed(comm)))[0] - serial).max()


def same_weight(student):
    of_9, of_7 = error(student.weight, 9), error(student.weight, 7)
    assert of_7 > 1e-3, f"the gradient of 7 samples is still right, to {of_7:.0e}; return 1 / ranks"
    return (
        f"the gradient of 9 samples is wrong by {of_9:.0e}, of 7 samples by {of_7:.3f}: equal shares hide it"
    )


def ends(layers, size):
    """The milliseconds at which the last message of buckets of ``size`` layers has arrived."""
    free = 0.0
    for last in range(size, layers + 1, size):  # a bucket is full when its last layer is announced
        free = max(free, last) + 1 + 0.5 * size
    return free


def small_buckets(student):
    size = student.LAYERS_IN_A_BUCKET
    assert size == 2, f"a bucket holds {size} layers, and ends at {ends(8, size):g} ms; let it hold 2"
    return (
        f"buckets of 2 end at {ends(8, 2):g} ms, one of 8 at {ends(8, 8):g} ms: each message of 2 ms is over "
        "when the next bucket is full, so only the last one is seen"
    )


def memory(ranks):
    """Bytes of weights, gradients and momentum that rank 0 holds after a step of stage 3, counted."""

    def work(comm):
        backend = Sharded(comm, stage=3)
        placed = backend.place(model().to(dtype=np.float32))
        optimizer = optim.SGD(placed.parameters(), 0.1, momentum=0.9)
        rng = np.random.default_rng(1)
        batch = Batch(rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 4, 8))
        backend.step(placed, batch, ops.cross_entropy)
        backend.update(placed, optimizer)
        return sum(3 * flat.shard.nbytes for flat in backend.flats)

    return run_ranks(ranks, work)[0]


def stage_3(student):
    parameters, ranks = 16, 4
    formula, counted = student.bytes_on_a_rank(parameters, ranks), memory(ranks)
    assert formula == counted, f"your formula says {formula:g} bytes, a rank of 4 holds {counted} in stage 3"
    return f"a rank holds {counted} bytes instead of {12 * parameters}: the 4 ranks share all three arrays"


def seconds(serial, shared, samples, ranks):
    """Seconds of a step on a virtual clock: ``serial`` on every rank, ``shared`` divided by samples."""

    def work(comm):
        mine = shares(samples, ranks)[comm.rank]
        comm.compute(serial + shared * (mine.stop - mine.start) / samples)
        barrier(comm)
        return comm.time()

    return max(VirtualCluster(ranks, Link(0.0)).run(work))


def five_percent(student):
    share = student.SERIAL_SHARE
    one, twenty, many = (seconds(share, 1 - share, 2000, ranks) for ranks in (1, 20, 200))
    words = f"with {share:.0%} serial work 20 ranks are {one / twenty:.1f} times as fast"
    assert share == 0.05, f"{words}; take 5 %"
    return (
        f"{words}, 200 ranks {one / many:.1f} times: 20 ranks need 0.05 + 0.95 / 20 of the time, two parts "
        "that are nearly equal. So 1 / f ranks reach about half of the limit 1 / f"
    )


def growing_batch(student):
    samples = student.SAMPLES_IN_ALL
    one, several = (seconds(0.004, samples / 1000, samples, ranks) for ranks in (1, 16))
    words = f"{samples:,} samples: {one / several:.1f} times as fast, {1e3 * several:.0f} ms a step"
    assert samples == 1024, f"{words}; take 1,024 samples"
    return (
        f"{words}. The serial 4 ms are {0.004 / several:.1%} of the step of 16 ranks, and only "
        f"{0.004 / one:.1%} of the time that one rank needs for this batch: the shared work grows with the "
        "batch, the serial part does not"
    )


def share_of_two_times(student):
    rng = np.random.default_rng(6)
    for case in range(20):
        serial, shared, ranks = rng.uniform(0, 10), rng.uniform(1, 100), int(rng.integers(2, 33))
        one, several = (seconds(serial, shared, 32 * ranks, p) for p in (1, ranks))
        own, true = student.serial_share(one, several, ranks), serial / one
        assert own is not None and np.isclose(own, true, rtol=1e-6, atol=1e-9), (
            f"case {case}, {one:.1f} s on one rank, {several:.1f} s on {ranks}: your function says {own}, "
            f"the serial share is {true:.4f}; write serial_share"
        )
    four, eight = student.serial_share(100, 40, 4), student.serial_share(100, 30, 8)
    return (
        f"20 programs have the serial share that you say. For this one it is {four:.0%} from 4 ranks and "
        f"{eight:.0%} from 8: it does not grow, so messages are not the reason. 20 s are serial, 80 shared"
    )


QUESTIONS = [
    Question("b", same_weight, (("    return mine / samples\n", "    return 1 / ranks\n"),)),
    Question("a", small_buckets, (("LAYERS_IN_A_BUCKET = 8", "LAYERS_IN_A_BUCKET = 2"),)),
    Question(
        "a",
        stage_3,
        (("    return 8 * parameters + 4 * parameters / ranks\n", "    return 12 * parameters / ranks\n"),),
    ),
    Question("c", five_percent, (("SERIAL_SHARE = 0.10", "SERIAL_SHARE = 0.05"),)),
    Question("b", growing_batch, (("SAMPLES_IN_ALL = 64", "SAMPLES_IN_ALL = 1024"),)),
    Question(
        "a",
        share_of_two_times,
        (("    return several / one\n", "    return (ranks * several / one - 1) / (ranks - 1)\n"),),
    ),
]
