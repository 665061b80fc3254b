"""Assignment a1: back-propagation, from one layer's derivative to the tape. README.md has the text.

An *op* takes arrays, and keyword settings, and returns ``(value, pullbacks)``: its result, and a tuple with
one function for each array, in their order. A pullback takes ``g``, the gradient of the loss with respect to
the op's value, in the value's shape, and returns the gradient with respect to its input, in the input's
shape and dtype.

Ops and pullbacks change none of the arrays they are given, and return new arrays, never memory of an
input; a pullback may return ``g`` itself. A pullback may be called again, with another ``g``. Arrays are
float64 or float32, in any memory order, and may hold no samples at all. Import NumPy, and nothing of the
library.
"""

import numpy as np  # noqa: F401


def linear(x, weight, bias):
    """x weight.T + bias, x (N, in), weight (out, in), bias (out,): the value (N, out), and 3 pullbacks."""
    raise NotImplementedError("task 1: three products and a sum")


def relu(x):
    """max(x, 0) for x of any shape; the gradient at 0 is 0. One pullback."""
    raise NotImplementedError("task 2: where does g pass?")


def cross_entropy(logits, labels):
    """The mean of -log softmax(logits)[label] over the samples, a number; one pullback, to the logits.

    ``logits`` are (N, classes), up to some thousands in magnitude; ``labels`` integers (N,). The loss of no
    samples is 0. ``g`` is a number.
    """
    raise NotImplementedError("task 3: softmax minus one-hot, over N")


def conv2d(x, weight, bias, *, stride=1, padding=0):
    """Slide weight (F, C, kh, kw) over x (N, C, H, W), and add bias (F,): (N, F, H', W'), three pullbacks.

    ``padding`` rows and columns of zeros are put around each image; the window moves by ``stride``:
    H' = (H + 2 padding - kh) // stride + 1, and W' likewise. No kernel is turned round:
    value[n, f, i, j] = bias[f] + the sum over c, a, b of
    weight[f, c, a, b] * padded[n, c, i * stride + a, j * stride + b].
    """
    raise NotImplementedError("task 4: the value first; then who has used x[n, c, h, w]?")


class Tape:
    """What was computed, in the order in which it was computed; ``backward`` walks it in reverse.

    What ``leaf``, ``constant`` and ``run`` return is yours to design; its attribute ``value`` is the array.
    """

    def leaf(self, x):
        """The array ``x`` as an input whose gradient is wanted."""
        raise NotImplementedError("task 5: make room for what backward needs")

    def constant(self, x):
        """The array ``x`` as an input whose gradient nobody needs."""
        raise NotImplementedError("task 5")

    def run(self, op, *inputs, **settings):
        """Call ``op(*arrays, **settings)``, once, and remember its pullbacks; its value.

        ``inputs`` came from this tape; the same may be given twice.
        """
        raise NotImplementedError("task 5")

    def backward(self, output, seed):
        """The gradients of sum(seed * output.value): a list, one for each leaf, in the order they were made.

        None for a leaf on which the output does not depend. A pullback is called once if the way to a leaf
        leads through it, and otherwise not at all. The arrays in the list are new: they share no memory with
        one another, with a leaf's value or with ``seed``. Called once for each tape; a tape may be long.
        """
        raise NotImplementedError("task 5: the reverse order is the whole trick")
