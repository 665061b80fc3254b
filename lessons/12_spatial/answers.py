"""The answers to the questions on lesson 12, and the laws that show them."""

import numpy as np
from minigrad_course.lesson.questions import Question

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.model_parallel import ModelParallel
from backends.model_parallel.layers.sharding import ShardedTensor
from backends.model_parallel.spatial.receptive_field import Window
from minigrad import Tensor, nn

SAMPLES, CHANNELS = 2, 8


def sent(kind, height, width, ranks, rank, kernel=3, stride=1):
    """The messages and numbers that ``rank`` sends for one convolution, forward."""

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        layers = (
            nn.Conv2d(1, CHANNELS, 1, rng=rng, dtype=np.float64),  # its output is split
            nn.Conv2d(CHANNELS, 1, kernel, stride=stride, padding=kernel // 2, rng=rng, dtype=np.float64),
        )
        model = ModelParallel(traced, {"0": kind, "1": kind}).place(nn.Sequential(*layers))
        first, second = model.layers
        a = first.sharded_forward(ShardedTensor(Tensor(np.ones((SAMPLES, 1, height, width)))))
        before = traced.record.ledger.sent()
        second.sharded_forward(a)
        after = traced.record.ledger.sent()
        return after.messages - before.messages, (after.bytes - before.bytes) // 8

    return run_ranks(ranks, work)[rank]


def rows_borrowed(stride, kernel=5, padding=2, owned=range(12, 24)):
    """How many rows above and below its own rows the outputs of the middle rank use, counted one by one."""
    outputs = [o for o in range(36) if o * stride in owned]
    touched = [o * stride - padding + tap for o in outputs for tap in range(kernel)]
    return max(0, owned.start - min(touched)), max(0, max(touched) + 1 - owned.stop)


def strided(student):
    stride = student.STRIDE
    above, below = rows_borrowed(stride)
    assert stride == 2, f"with the stride {stride} it gets {above} from above and {below} from below; take 2"
    _, numbers = sent("rows", 36, 8, 3, 1, kernel=5, stride=stride)
    assert (above, below) == Window(5, stride, 2).halo and numbers == 3 * 8 * SAMPLES * CHANNELS
    return (
        f"it receives {above} rows from above and {below} from below, and sends "
        f"{numbers // 8 // SAMPLES // CHANNELS}: the last output of its rows 12 to 23 belongs to row 22, "
        "and uses the rows 20 to 24"
    )


def taller(student):
    height = student.HEIGHT
    _, numbers = sent("rows", height, 32, 4, 1)
    assert height == 64, f"with the height {height} a rank sends {numbers:,} numbers; take the height 64"
    return (
        f"a rank sends {numbers:,} numbers, as with the height 32: one row to each side, for each of "
        f"{SAMPLES} images and {CHANNELS} channels 32 pixels, however many rows are between them"
    )


def tiles(student):
    kind = student.SPLIT
    messages, numbers = sent(kind, 64, 64, 16, 5)
    assert kind in ("tiles 4x4", "tiles"), (
        f'by {kind} a rank sends {numbers:,} numbers in {messages} messages; take "tiles 4x4"'
    )
    _, slices = sent("rows", 64, 64, 16, 5)
    return (
        f"with tiles a rank sends {numbers:,} numbers in {messages} messages, with slices {slices:,}. Rows "
        "go first, two sides of 16 pixels, then columns of 18, which hold the rows just received; so corners "
        "come through a neighbor"
    )


QUESTIONS = [
    Question("b", strided, (("STRIDE = 1", "STRIDE = 2"),)),
    Question("c", taller, (("HEIGHT = 32", "HEIGHT = 64"),)),
    Question("b", tiles, (('SPLIT = "rows"', 'SPLIT = "tiles 4x4"'),)),
]
