"""Bugs of losses with settings, and of the activation functions that are computed in several steps."""

from functools import partial

import numpy as np

from backends.data_parallel import DataParallel
from minigrad import nn, ops, testing
from tests.backends import weighted_mean_laws
from tests.bugs.bug import Bug
from tests.minigrad import extremes, loss_laws

# Laws


def a_weighted_loss_is_that_of_the_whole_batch() -> None:
    loss = nn.CrossEntropyLoss(weight=[0.2, 1.0, 3.0], ignore_index=0)
    weighted_mean_laws.gradients_are_of_the_whole_batch(DataParallel, 2, loss, [5])


def a_plain_weighted_loss_is_refused() -> None:
    for loss in (partial(ops.cross_entropy, ignore_index=0), partial(ops.cross_entropy, reduction="sum")):
        weighted_mean_laws.a_part_is_refused(DataParallel, loss, "cross_entropy with")


def cross_entropy_is_by_the_book() -> None:
    rng = np.random.default_rng(0)
    x, labels, weight = rng.normal(size=(3, 4, 2)), np.array([[0, 3], [1, 1], [2, 0]]), [0.5, 1.0, 2.0, 4.0]
    law = partial(loss_laws.cross_entropy_is_by_the_book, ops.cross_entropy, x)
    law(labels, weight=weight, ignore_index=1, label_smoothing=0.25)
    law(labels, ignore_index=1)
    law(rng.random(x.shape), weight=weight, label_smoothing=0.25)


def gradients_of_losses_are_differences() -> None:
    x, labels = np.random.default_rng(0).normal(size=(3, 4)), np.array([0, 3, 1])
    settings = {"ignore_index": 1, "label_smoothing": 0.25, "weight": [0.5, 1.0, 2.0, 4.0]}
    testing.gradient_matches_difference(partial(ops.cross_entropy, **settings), x, labels)
    y = np.array([[0.05, 0.25], [2.05, -3.15]])
    testing.gradient_matches_difference(partial(ops.huber_loss, delta=0.5), y, np.zeros_like(y))


def losses_of_pairs_are_by_the_book() -> None:
    rng = np.random.default_rng(0)
    x, y = 2 * rng.normal(size=(4, 3)), rng.choice([0.0, 0.25, 1.0], (4, 3))
    for name in loss_laws.PAIRS:
        loss_laws.a_loss_of_pairs_is_by_the_book(getattr(ops, name), name, x, y, "mean")


def gelu_keeps_its_digits() -> None:
    for kind in (np.float32, np.float64):
        extremes.exact_gelu_keeps_its_tail(ops.gelu, np.linspace(-9, 9, 37).astype(kind))


def slopes_of_activations_are_differences() -> None:
    x = np.array([[-3.05, -1.05, -0.15], [0.25, 2.95, 3.15]])
    for f in (ops.silu, ops.softplus, ops.log_sigmoid, partial(ops.elu, alpha=0.3), ops.hardswish):
        testing.gradient_matches_difference(f, x)
    testing.gradient_matches_difference(ops.silu, np.asfortranarray(x))


# Bugs

LABELS, ACTIVATION = "minigrad.ops.label_loss", "minigrad.ops.activation"

BUGS = [
    Bug("each part of a batch is divided by its own weights", "minigrad.weighted_mean",
        "per_sample * len(part)", "self.divisor(part)", a_weighted_loss_is_that_of_the_whole_batch,
        "the (loss|gradient)"),
    Bug("a part of a batch passes for a whole one", "minigrad.data",
        "self.is_part or len(places) < len(self)", "False", a_plain_weighted_loss_is_refused,
        "was not refused"),
    Bug("a weighted mean divides by all rows", LABELS, "divisor = xp.sum(factor)", "pass",
        cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("ignored rows are smoothed", LABELS, "(counted * of_all)", "of_all", cross_entropy_is_by_the_book,
        "cross-entropy"),
    Bug("soft labels have no weights", LABELS, "        t = weights * t\n", "        pass\n",
        cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("ignored rows are smoothed going back", LABELS, "rest = counted * scaled", "rest = scaled",
        gradients_of_losses_are_differences, "central difference"),
    Bug("the Huber loss is half of its line", "minigrad.ops.regression_loss",
        "each = slope * (-0.5 / steepness)", "each = slope * -0.25", losses_of_pairs_are_by_the_book,
        "Mismatched"),
    Bug("the weight of positives is of negatives", "minigrad.ops.loss", "1 + (positive - 1) * t  #",
        "1 + (positive - 1) * (1 - t)  #", losses_of_pairs_are_by_the_book, "Mismatched"),
    Bug("a digit of the normal distribution is wrong", "minigrad.ops.normal_distribution", "0.0374904822",
        "0.0375904822", gelu_keeps_its_digits, "gelu: .* for"),
    Bug("the normal distribution's tail is 1 less what is left", "minigrad.ops.normal_distribution",
        "    out += t\n", "    out += t\n    np.subtract(1, 1 - out, out=out)\n", gelu_keeps_its_digits,
        "gelu: .* for"),
    Bug("the slope of SiLU is its share", ACTIVATION,
        "        d += 1\n        d *= share", "        d *= share", slopes_of_activations_are_differences,
        "central difference"),
    Bug("the slope of ELU forgets alpha", ACTIVATION, "* (1 - alpha) + alpha", "* 1",
        slopes_of_activations_are_differences, "central difference"),
    Bug("the ramp of hardswish has no end", ACTIVATION, "np.clip(x, -3, 3, out=d)", "np.copyto(d, x)",
        slopes_of_activations_are_differences, "central difference"),
    Bug("an array and its gradient are read in the order of their memory", "minigrad.ops.blocks",
        "x.transpose(outermost_first).reshape(-1)", 'x.ravel("K")', slopes_of_activations_are_differences,
        "central difference"),
]  # fmt: skip
