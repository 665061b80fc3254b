"""Bugs of losses with settings, and of the activation functions that are computed in several steps."""

from functools import partial

import numpy as np

from backends.data_parallel import DataParallel
from minigrad import nn, ops, testing
from minigrad.ops.fast.elementwise_loops import of_elements
from tests.backends import weighted_mean_laws
from tests.bugs.bug import Bug
from tests.minigrad import token_loss_laws
from tests.minigrad.ops import extremes, loss_laws
from tests.minigrad.ops.fast.fast_form_laws import (
    are_the_readable_form,
    in_both_forms,
    is_exact_in_loops,
    loops_are_the_readable_form,
    loops_meet_no_gaps,
    write_exp,
    write_expm1,
    write_log1p,
)

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
    law = partial(in_both_forms, loss_laws.cross_entropy_is_by_the_book, ops.cross_entropy, x)
    law(labels, weight=weight, ignore_index=1, label_smoothing=0.25)
    law(labels, ignore_index=1)
    law(rng.random(x.shape), weight=weight, label_smoothing=0.25)


def gradients_of_losses_are_differences() -> None:
    x, labels = np.random.default_rng(0).normal(size=(3, 4)), np.array([0, 3, 1])
    settings = {"ignore_index": 1, "label_smoothing": 0.25, "weight": [0.5, 1.0, 2.0, 4.0]}
    law = partial(in_both_forms, testing.gradient_matches_difference)
    law(partial(ops.cross_entropy, **settings), x, labels)
    law(partial(ops.cross_entropy, weight=settings["weight"]), x, np.exp(x))
    y = np.array([[0.05, 0.25], [2.05, -3.15]])
    testing.gradient_matches_difference(partial(ops.huber_loss, delta=0.5), y, np.zeros_like(y))


def loops_of_elements_meet_no_gaps() -> None:
    loops_meet_no_gaps(of_elements, np.arange(6.0)[::-1], np.arange(12.0)[::2])


def the_loss_of_tokens_is_their_mean() -> None:
    token_loss_laws.is_the_mean_over_tokens(nn.CrossEntropyLoss, (3, 4, 5), 1, True, 0.25, "mean")


def losses_have_the_gradients_of_their_readable_forms() -> None:
    x, t = np.random.default_rng(0).normal(size=(2, 3, 4))
    law = partial(are_the_readable_form, g=np.array(1.0))
    law(partial(ops.binary_cross_entropy_with_logits, pos_weight=3.0, weight=[0.5, 1.0, 2.0, 4.0]), x, abs(t))
    law(ops.kl_div, x, np.maximum(t, 0))


def losses_of_pairs_are_by_the_book() -> None:
    rng = np.random.default_rng(0)
    x, y = 2 * rng.normal(size=(4, 3)), rng.choice([0.0, 0.25, 1.0], (4, 3))
    for name in loss_laws.PAIRS:
        in_both_forms(loss_laws.a_loss_of_pairs_is_by_the_book, getattr(ops, name), name, x, y, "mean")


def gelu_keeps_its_digits() -> None:
    for kind in (np.float32, np.float64):
        in_both_forms(extremes.exact_gelu_keeps_its_tail, ops.gelu, np.linspace(-9, 9, 37).astype(kind))


def slopes_of_activations_are_differences() -> None:
    x = np.array([[-3.05, -1.05, -0.15], [0.25, 2.95, 3.15]])
    gelu, elu = partial(ops.gelu, approximate="tanh"), partial(ops.elu, alpha=0.3)
    for f in (ops.silu, ops.softplus, ops.log_sigmoid, elu, ops.hardswish, ops.gelu, gelu):
        in_both_forms(testing.gradient_matches_difference, f, x)
    testing.gradient_matches_difference(ops.silu, np.asfortranarray(x))


def large_numbers_have_their_softplus() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 40))
    x[:4] = 21.0, -21.0, -800.0, np.nan
    for f in (ops.softplus, partial(ops.softplus, beta=2.0, threshold=0.5), ops.log_sigmoid):
        loops_are_the_readable_form(f, g, x, roundings=16)


def functions_in_loops_are_exact() -> None:
    x = np.concatenate([np.linspace(-110, 100, 211), np.linspace(-1, 1, 41), [-1e-6, np.inf, -np.inf]])
    with np.errstate(over="ignore"):
        for kind in (np.float32, np.float64):
            y = x.astype(kind)
            below, within = -abs(y), y[abs(y - 0.5) <= 0.5]
            is_exact_in_loops(write_exp, y, np.exp(y.astype(np.longdouble)), 1)
            is_exact_in_loops(write_expm1, below, np.expm1(below.astype(np.longdouble)), 2)
            is_exact_in_loops(write_log1p, within, np.log1p(within.astype(np.longdouble)), 3)


# Bugs

DIFFERENCE = "central difference"

BUGS = [
    Bug("each part of a batch is divided by its own weights", "PartOfMean.divisor",
        "return self.per_sample * len(y)", "return self.loss.divisor(y)",
        a_weighted_loss_is_that_of_the_whole_batch, "the (loss|gradient)"),
    Bug("a part of a batch passes for a whole one", "Batch.__getitem__",
        "self.is_part or len(places) < len(self)", "False", a_plain_weighted_loss_is_refused,
        "was not refused"),
    Bug("a weighted mean divides by all rows", "sum_of_factors", "return factors.sum()", "return None",
        cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("ignored rows are smoothed", "label_loss", "1 if is_soft else t.sum(axis=1, keepdims=True)", "1",
        cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("soft labels have no weights", "label_loss", "t = weights * (", "t = (1 if is_soft else weights) * (",
        cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("a logit takes from the logits of other rows", "cross_entropy.cross_entropy",
        "d.sum(axis=1, keepdims=True)", "d.sum()", gradients_of_losses_are_differences, "central difference"),
    Bug("the Huber loss is half of its line", "write_slope", "loss += s * (d - s * half)",
        "loss += s * d / x.dtype.type(2)", losses_of_pairs_are_by_the_book, "Mismatched"),
    Bug("the Huber loss is half of its line, on a slide", "clipped_loss",
        "slope * (d - slope / (2 * steepness))", "slope * d / 2", losses_of_pairs_are_by_the_book,
        "Mismatched"),
    Bug("a loss of pairs is steep below 0", "write_slope", "-limit if s < -limit else s", "s",
        losses_of_pairs_are_by_the_book, "Mismatched"),
    Bug("the weight of positives is of negatives", "loss.binary_cross_entropy_with_logits",
        "positive * t * of_ones + (1 - t) * of_zeros", "t * of_ones + positive * (1 - t) * of_zeros",
        losses_of_pairs_are_by_the_book, "Mismatched"),
    Bug("ignored rows are smoothed from the places of labels", "cross_entropy_from_the_softmax",
        "weighted(counts, of_all)", "of_all", cross_entropy_is_by_the_book, "cross-entropy"),
    Bug("smoothing takes as much from each class", "cross_entropy_from_the_softmax",
        "d -= weights * column(rest)", "d -= column(rest)", gradients_of_losses_are_differences,
        "central difference"),
    Bug("a soft label's target sums to 1", "of_probabilities", "p * t.sum(axis=1)[:, None]", "p * 1",
        gradients_of_losses_are_differences, "central difference"),
    Bug("the weight of positives has no slope", "binary_cross_entropy_with_logits_in_one_pass",
        "            d *= terms\n", "            pass\n", losses_have_the_gradients_of_their_readable_forms,
        "gradient 0"),
    Bug("0 log 0 is no number", "shares_without_a_mask", " and t.all() else", " else",
        losses_of_pairs_are_by_the_book, "Mismatched|nan"),
    Bug("a digit of the normal distribution is wrong", "SINGLE", "0.0374904822", "0.0375904822",
        gelu_keeps_its_digits, "gelu: .* for"),
    Bug("the normal distribution's tail is 1 less what is left", "normal_distribution.normal",
        "tail = p * t * e\n", "tail = one - (one - p * t * e)\n", gelu_keeps_its_digits, "gelu: .* for",
        thorough=True),
    Bug("the normal distribution's tail is 1 less what is left, on a slide", "normal_distribution",
        "tail = p * t * xp.exp(x * x * -0.5)", "tail = 1 - (1 - p * t * xp.exp(x * x * -0.5))",
        gelu_keeps_its_digits, "gelu: .* for"),
    Bug("the polynomial of the normal distribution is half as long", "normal_distribution.normal",
        "tuple(terms[middle:])", "tuple(terms[-1:])", gelu_keeps_its_digits, "gelu: .* for",
        thorough=True),
    Bug("the slope of SiLU is its share", "write_silu_gradient", "(share * (one + x[i] * (one - share)))",
        "share", slopes_of_activations_are_differences, DIFFERENCE, thorough=True),
    Bug("the slope of SiLU is its share, on a slide", "silu", "(share * (1 + x * (1 - share)))", "share",
        slopes_of_activations_are_differences, DIFFERENCE),
    Bug("the slope of GELU has the cube of its value", "write_gelu_by_tanh_gradient",
        "(c + three * cubic * square)", "(c + cubic * square)", slopes_of_activations_are_differences,
        DIFFERENCE, thorough=True),
    Bug("the density of GELU is none", "activation.exact_gelu",
        "normal_distribution(x) + x * normal_density(x)", "normal_distribution(x)",
        slopes_of_activations_are_differences, DIFFERENCE),
    Bug("the slope of ELU forgets alpha", "write_elu_gradient", "alpha * exp(x[i])", "exp(x[i])",
        slopes_of_activations_are_differences, DIFFERENCE, thorough=True),
    Bug("the slope of ELU forgets alpha, on a slide", "elu", "alpha * xp.exp(below)", "xp.exp(below)",
        slopes_of_activations_are_differences, DIFFERENCE),
    Bug("the ramp of hardswish has no end", "write_hardswish_gradient", "one if x[i] >= three else ", "",
        slopes_of_activations_are_differences, DIFFERENCE, thorough=True),
    Bug("the ramp of hardswish has no end, on a slide", "hardswish", "xp.where(x >= 3, 1, x / 3 + 0.5)",
        "x / 3 + 0.5", slopes_of_activations_are_differences, DIFFERENCE),
    Bug("labels of tokens are read sample by sample", "CrossEntropyLoss.rows",
        "labels.reshape((n, shape[-1]) if soft else n)", "labels.T.reshape(n)",
        the_loss_of_tokens_is_their_mean, "Not equal to tolerance"),
    Bug("ignored labels count in the divisor", "CrossEntropyLoss.count",
        "(weight[labels * counted] * counted).sum()",
        "weight[labels * counted].sum()", a_weighted_loss_is_that_of_the_whole_batch, "the loss"),
    Bug("log-sigmoid is linear, too", "log_sigmoid_in_one_pass", 'in_one_pass("softplus", x, -1.0, math.inf)',
        'in_one_pass("softplus", x, -1.0, 20.0)', large_numbers_have_their_softplus, "the value"),
    Bug("the threshold of softplus is of x", "write_softplus", "y[i] = x[i] if z > threshold",
        "y[i] = x[i] if x[i] > threshold", large_numbers_have_their_softplus, "the value", thorough=True),
    Bug("an array and its gradient are read in the order of their memory", "elementwise_loops.of_elements",
        "np.ascontiguousarray(a.transpose(order))", 'a.ravel("K")', slopes_of_activations_are_differences,
        DIFFERENCE),
    Bug("loops are compiled again for arrays with gaps", "elementwise_loops.of_elements",
        "np.ascontiguousarray(a.transpose(order))", "a.transpose(order)", loops_of_elements_meet_no_gaps,
        "gaps"),
    Bug("a term of the exponential is left out", "exponential.pieces",
        "range(7 if is_single(dtype) else 13, 0, -1)", "range(6 if is_single(dtype) else 12, 0, -1)",
        functions_in_loops_are_exact, "write_exp: .* for"),
    Bug("log 2 is rounded to 16 bits", "exponential.pieces", "number(1.4286068203094172e-6)", "number(0)",
        functions_in_loops_are_exact, "write_exp: .* for"),
    Bug("a power of two is one factor", "exponential.pieces", "a = integer(n >> 1)", "a = n",
        functions_in_loops_are_exact, "write_exp: .* for"),
    Bug("small exponentials are taken from 1", "expm1", "return p * scale + (scale - one)",
        "return (p * scale + scale) - one", functions_in_loops_are_exact, "write_expm1: .* for"),
    Bug("a logarithm is not less the half of log 2", "log1p", "(half_log_2 if x > less else zero)", "zero",
        functions_in_loops_are_exact, "write_log1p: .* for"),
]  # fmt: skip
