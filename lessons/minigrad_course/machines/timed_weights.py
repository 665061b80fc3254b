"""A layer whose weights take time on a rank's virtual clock, for lessons on when weights are whole.

Lecture section: data lifetimes. Lesson: 15_scale.
"""

import numpy as np

from minigrad import nn, ops
from minigrad.tensor import Parameter

from ..shared.timed_layer import then_backward


class TimedWeights(nn.Module):
    """Adds the mean of ``numbers`` weights; takes ``seconds`` of the clock of ``comm``, backward twice that.

    The weights are its own, so stage 3 of ZeRO gathers them before that time and frees them after it.
    """

    def __init__(self, numbers, comm, seconds):
        self.weight = Parameter(np.zeros(numbers, np.float32))
        self.comm, self.seconds = comm, seconds

    def work(self, name, seconds):
        with self.comm.computing(name):
            self.comm.compute(seconds)

    def forward(self, x):
        self.work("forward", self.seconds)
        y = x + ops.mean(self.weight)
        return then_backward(y, call=lambda: self.work("backward", 2 * self.seconds))
