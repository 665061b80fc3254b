"""Assignment a7: what each stage of a pipeline does, and when. README.md has the tasks.

Every function gives one stage's instructions in order: ``Forward(i)`` and ``Backward(i)`` for
micro-batch i, ``Weight((i,))`` or ``Weight((i, j, ...))`` for the gradients of the weights. Stages are
numbered 0 to stages - 1, micro-batches 0 to micros - 1. Import these three and NumPy.
"""

from backends.pipeline import Backward, Forward, Weight  # noqa: F401


def gpipe(stage, stages, micros):
    """All micro-batches forward, then all back, in any order; full backwards."""
    raise NotImplementedError("task 1: yield Forward(...) and Backward(...)")


def one_f_one_b(stage, stages, micros):
    """One forward, one backward: as fast as GPipe where stages take equally long; full backwards.

    At most min(micros, stages - stage) micro-batches are in flight.
    """
    raise NotImplementedError("task 2: some forwards ahead, then in turn")


def my_schedule(stage, stages, micros):
    """Yours: sooner done than 1F1B where F = B = W; at most min(micros, stages) in flight on every stage."""
    raise NotImplementedError("tasks 3 and 4: split the backward in two")


def zero_bubble(stage, stages, micros):
    """No stage waits between its first and its last instruction, for F = B = W and micros >= 2 stages - 1.

    At most 2 stages - 1 micro-batches are in flight.
    """
    raise NotImplementedError("task 5: no bubble")
