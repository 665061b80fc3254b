"""Bugs of the ops that gather, order, scan and contract; their oracles: differences and NumPy's forms."""

import math
from functools import partial

import numpy as np

from minigrad import nn, ops, product, testing
from minigrad.ops.scan import running_sums
from minigrad.ops.selection import sum_by_row
from minigrad.sums import axis_sums
from tests.bugs.bug import Bug
from tests.minigrad.ops import linear_laws
from tests.minigrad.ops.extremes import (
    extrema_at_places_are_exact,
    near,
    products_have_the_gradients_of_their_factors,
)
from tests.minigrad.ops.fast.fast_form_laws import (
    adds_in_short_chains,
    in_both_forms,
    is_the_product,
    loops_are_the_readable_form,
    sums_over_axes,
    sums_rows_as_add_at,
    sums_up_to_each,
)
from tests.minigrad.ops.numpy_forms import a_constant_has_no_deviation_and_no_slope as a_constant_has_no_slope
from tests.minigrad.ops.numpy_forms import equals_its_form
from tests.minigrad.ops.op_laws import (
    half_precision_loses_only_its_own_digits,
    has_the_dtype_of_a_layer,
    integers_are_floats,
)

# Laws


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 2, shape)


def einsum_is_numpys_and_its_gradient_the_difference() -> None:
    for subscripts, shapes in (
        ("ij,jk->ki", [(2, 3), (3, 2)]),
        ("iji,j->j", [(2, 3, 2), (3,)]),
        ("ij,i->j", [(2, 3), (1,)]),
        ("ij,kji->k", [(2, 3), (2, 3, 2)]),
    ):
        einsum = lambda *xs, subscripts=subscripts: ops.einsum(subscripts, *xs)  # noqa: E731
        operands = [drawn(*shape) for shape in shapes]
        in_both_forms(equals_its_form, einsum, "einsum", *operands, subscripts=subscripts)
        in_both_forms(testing.gradient_matches_difference, einsum, *operands)


def linear_layers_take_any_axes() -> None:
    inputs = drawn(2, 3, 4), drawn(5, 4), drawn(5)
    equals_its_form(ops.linear, "linear_of_any_axes", *inputs)
    testing.gradient_matches_difference(ops.linear, *inputs)


def whole(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(float)


def a_linear_layer_has_its_activation() -> None:
    for activation in ("relu", "gelu"):
        for leading in ((70,), (2, 35)):
            inputs = whole(*leading, 3), whole(40, 3), whole(40)
            g = whole(*leading, 40)[::-1]
            linear_laws.computes_its_activation(ops.linear, activation, g, *inputs)


def a_linear_layer_holds_one_array_more() -> None:
    for shape in ((40, 8), (4, 10, 8)):
        linear_laws.holds_its_rows_and_one_array(ops.linear, "relu", np.ones(shape), 16)


def weights_of_an_activation_may_wait() -> None:
    linear_laws.weights_wait(ops.linear, "relu", whole(6, 3) + 0.3, whole(4, 3), whole(4))


def an_approximate_gelu_is_another() -> None:
    x = np.linspace(-3, 3, 12).reshape(4, 3)
    linear_laws.takes_the_activations_it_can([nn.GELU("tanh")], 0, x, rtol=1e-10)


def zeros_have_gradients() -> None:
    for x in ([2.0, 0.0, 3.0], [0.5, 0.0, 2.0, 0.0, 3.0], [2.0, 3.0]):
        testing.gradient_matches_difference(ops.prod, np.array(x))
        cumprod = partial(ops.cumprod, axis=0)
        in_both_forms(testing.gradient_matches_difference, cumprod, np.array(x))


def sums_up_to_each_place() -> None:
    for axis in (0, 1):
        in_both_forms(equals_its_form, ops.cumsum, "cumsum", drawn(2, 3), axis=axis)
        in_both_forms(equals_its_form, ops.cumprod, "cumprod", drawn(2, 3), axis=axis)
        testing.gradient_matches_difference(partial(ops.cumsum, axis=axis), drawn(2, 3))


def sums_up_to_each_place_of_long_rows() -> None:
    x = np.full((2, 9000), 0.1, np.float32)
    for backwards in (False, True):
        sums_up_to_each(running_sums, x, 1, backwards, chain=2)


def a_number_is_its_own_sum() -> None:
    for op, name in ((ops.cumsum, "cumsum"), (ops.cumprod, "cumprod")):
        in_both_forms(equals_its_form, op, name, np.array(2.0), axis=0)


def sums_up_to_each_place_of_slices() -> None:
    for backwards in (False, True):
        sums_up_to_each(running_sums, drawn(9, 200), 0, backwards, chain=9)


def loops_along_an_axis_are_the_readable_form() -> None:
    x, indices = np.arange(24.0).reshape(2, 3, 4), np.array([[[2, 0, 1, 1], [2, 1, 0, 2]]] * 2)
    for axis in (1, 2):
        places = indices if axis == 1 else np.repeat(indices[:, :1], 3, axis=1)
        for op in (lambda x, i=places, k=axis: ops.gather(x, i, axis=k),
                   lambda x, i=places, k=axis: ops.scatter_add(x, i, 1.5, axis=k)):  # fmt: skip
            g = np.random.default_rng(0).integers(1, 9, op(x).shape).astype(float)
            loops_are_the_readable_form(op, g, x, roundings=0)


def a_column_times_a_long_row_is_their_product() -> None:
    a, b = np.arange(3.0)[:, None], np.arange(2.0 * product.LONG_ROW)[None]
    is_the_product(product.product, a, b)
    is_the_product(product.product, np.arange(6.0).reshape(3, 2), b.reshape(2, -1))


def rows_chosen_often_are_sums() -> None:
    g, rows = np.arange(24.0).reshape(12, 2), np.array([0] * 9 + [3, 3, 1])
    sums_rows_as_add_at(sum_by_row, g, rows, 4)


def sums_over_axes_have_short_chains() -> None:
    x = np.arange(4 * 5 * 6 * 90.0).reshape(4, 5, 6, 90)
    for order in ((1, 2, 0, 3), (3, 2, 0, 1)):
        y = x.transpose(order)
        for axes in ((order.index(3),), (order.index(0), order.index(1))):
            sums_over_axes(axis_sums, y, axes)
    columns = np.full((40000, 3), 0.1, np.float32)
    adds_in_short_chains(lambda x: axis_sums(x, (0,)), 0, columns)
    adds_in_short_chains(lambda x: axis_sums(x.reshape(200, 200, 3), (0, 1)), 0, columns)
    adds_in_short_chains(lambda x: axis_sums(x, (1,)), 1, np.full((3, 40000), 0.1, np.float32))


def sums_between_axes_that_stay_have_short_chains() -> None:
    for shape, axes in (((2, 3000, 3), (1,)), ((3000, 2, 3), (0, 2))):
        x, rest = np.full(shape, 0.1, np.float32), [i for i in range(3) if i not in axes]
        matrix = x.transpose(*axes, *rest).reshape(-1, math.prod(shape[i] for i in rest))
        adds_in_short_chains(lambda _, x=x, axes=axes: axis_sums(x, axes).ravel(), 0, matrix)


def many_rows_have_a_variance() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (200_000, 2)).astype(np.float32)
    exact = np.var(x.astype(np.float64), axis=0)
    near(ops.var(x, axis=0).numpy(), exact, 16 * np.finfo(np.float32).eps * exact, "var")


def infinities_are_factors() -> None:
    for row in ([np.inf], [2.0, np.inf, 3.0], [1e-200, 1e-200]):
        g = np.arange(1.0, len(row) + 1)
        law = products_have_the_gradients_of_their_factors
        in_both_forms(law, ops.prod, ops.cumprod, np.array(row), g)


def half_precision_is_normalised() -> None:
    x, ones = np.array([[299.0, 300.0, 301.0, 303.0]]), np.ones(4)
    half_precision_loses_only_its_own_digits(ops.layer_norm, x, ones, ones)
    half_precision_loses_only_its_own_digits(partial(ops.rms_norm, eps=1e-3), x, ones)


def integers_have_losses_and_a_softmax() -> None:
    x, y = np.array([[0, 2, 5]]), np.array([[3, 1, 9]])
    for f, *inputs in ((ops.l1_loss, x, y), (ops.softmax, x), (ops.logsumexp, x), (ops.exp, x)):
        integers_are_floats(f, *inputs, dtype=np.uint8)


def layers_have_the_dtype_of_their_weights() -> None:
    x, w = np.ones((2, 3)), np.ones((4, 3), np.float32)
    has_the_dtype_of_a_layer(ops.linear, np.dtype(np.float32), x, w)
    has_the_dtype_of_a_layer(lambda out: ops.mse(out, x), np.dtype(np.float32), x.astype(np.float32))


def softmax_goes_along_the_first_of_three_axes() -> None:
    x, g = np.random.default_rng(0).normal(size=(2, 5, 2, 3))
    for op in (ops.softmax, ops.log_softmax):
        loops_are_the_readable_form(partial(op, axis=0), g, x)


def several_indices_add_up() -> None:
    x, i = drawn(2, 3, 4), np.array([1, 0, 1])
    for index in ((i, i), (slice(None), i), (slice(None), i, i), (slice(0, 2), i), (..., i), (None, 1, i)):
        in_both_forms(testing.gradient_matches_difference, partial(ops.getitem, index=index), x)


def samples_have_a_variance() -> None:
    equals_its_form(ops.var, "var_ddof", drawn(2, 3), axis=1, ddof=1)
    testing.gradient_matches_difference(partial(ops.var, axis=1, ddof=1), drawn(2, 3))
    testing.gradient_matches_difference(partial(ops.std, axis=1, ddof=1), drawn(2, 3))


def elements_are_gathered_and_scattered() -> None:
    x, indices, values = drawn(3, 4), np.array([[2, 2, 0], [0, 2, 2]]), drawn(2, 3)
    for op, name, inputs in (
        (ops.gather, "gather", (x, indices)),
        (ops.scatter, "scatter", (x, indices, values)),
        (ops.scatter_add, "scatter_add", (x, indices, values)),
    ):
        for axis in (0, 1):
            equals_its_form(op, name, *inputs, axis=axis)
            testing.gradient_matches_difference(partial(op, axis=axis), *inputs)
    for reduce in ("sum", "mean", "amax", "amin"):
        for own in (True, False):
            settings = {"axis": 1, "reduce": reduce, "include_self": own}
            law = partial(in_both_forms, equals_its_form)
            law(ops.scatter_reduce, "scatter_reduce", x, indices, values, **settings)
            testing.gradient_matches_difference(partial(ops.scatter_reduce, **settings), x, indices, values)


def extrema_meet_nan() -> None:
    in_both_forms(extrema_at_places_are_exact, ops.scatter_reduce, "amax")


def elements_are_ordered() -> None:
    x = np.array([[3.0, 1.0, 2.0, 5.0], [0.5, 4.0, 0.25, 1.5]])
    for descending in (False, True):
        equals_its_form(ops.sort, "sort", x, descending=descending)
        testing.gradient_matches_difference(partial(ops.sort, descending=descending), x)
        first = lambda x, **settings: ops.topk(x, **settings)[0]  # noqa: E731
        in_both_forms(equals_its_form, first, "topk", x, k=2, largest=descending)
        for many in (np.arange(70.0), np.where(np.arange(70) % 9, np.arange(70.0), np.nan)):
            equals_its_form(first, "topk", many, k=2, largest=descending)
        order = ops.argsort(x, descending=descending, stable=True).numpy()
        assert np.array_equal(np.take_along_axis(x, order, -1), ops.sort(x, descending=descending).numpy()), (
            f"the order is {order}"
        )


BORDERS = "reflect", "edge", "wrap"


def elements_move_and_vanish_as_in_numpy() -> None:
    for op, name, settings in (
        (ops.roll, "roll", {"shift": (1, -1), "axis": (0, 1)}),
        (ops.flip, "flip", {"axis": 1}),
        (ops.tile, "tile", {"reps": (2, 1, 3)}),
        (ops.repeat, "repeat", {"repeats": [2, 0, 1], "axis": 1}),
        (ops.repeat, "repeat", {"repeats": 3, "axis": 0}),
        (ops.tril, "tril", {"k": 1}),
        (ops.triu, "triu", {"k": 1}),
        (ops.diagonal, "diagonal", {"offset": -1}),
        *((ops.pad, "pad_with_its_own", {"width": [(2, 1), (0, 2)], "mode": mode}) for mode in BORDERS),
    ):
        x = drawn(4, 3)
        in_both_forms(equals_its_form, op, name, x, **settings)
        in_both_forms(testing.gradient_matches_difference, partial(op, **settings), x)


DIFFERENCE = "the gradient's slope is .*, the central difference"

BUGS = [
    Bug("a letter is summed before the other operand has it", "contract",
        "x, first = summed(x, first, needed | set(second))", "x, first = summed(x, first, needed)",
        einsum_is_numpys_and_its_gradient_the_difference, "einsum is|shape"),
    Bug("a size of 1 does not broadcast", "single", "if x.shape[i] != sizes[c]]", "if False]",
        einsum_is_numpys_and_its_gradient_the_difference, "cannot reshape"),
    Bug("the output's letters keep the order of the product", "einsum.einsum",
        "axes=[term.index(c) for c in output]", "axes=sorted(term.index(c) for c in output)",
        einsum_is_numpys_and_its_gradient_the_difference, "einsum is"),
    Bug("a diagonal's gradient goes down a column", "shape.diagonal", "i + max(offset, 0)] = g", "0 * i] = g",
        einsum_is_numpys_and_its_gradient_the_difference, DIFFERENCE),
    Bug("rows are read in another order", "as_rows", "x.reshape(math.prod(x.shape[:-1]), x.shape[-1])",
        "x.T.reshape(x.shape[-1], -1).T", linear_layers_take_any_axes, "linear_of_any_axes is"),
    Bug("a bias is added twice", "activated_in_place", "    y += bias\n", "    y += 2 * bias\n",
        a_linear_layer_has_its_activation, "the value is off by .*, no loops"),
    Bug("loops add the bias twice", "write_biased_relu", "z = y[i, j] + shift", "z = y[i, j] + 2 * shift",
        a_linear_layer_has_its_activation, "the value is off by .*, loops"),
    Bug("a gradient is masked by another row", "write_biased_relu_gradient",
        "y[i, j] == zero else g[i, j]\n                d[i, j] = before\n                chains",
        "y[i - 1, j] == zero else g[i, j]\n                d[i, j] = before\n                chains",
        a_linear_layer_has_its_activation, "the gradient of .* is off by .*, loops"),
    Bug("the last rows are left out of a bias's gradient", "write_biased_relu_gradient",
        " or i == len(y) - 1", "", a_linear_layer_has_its_activation,
        "the gradient of the bias is off by .*, loops"),
    Bug("sums of 32 rows have the rows before, too", "write_biased_gelu_gradient", "chains[j] = zero", "pass",
        a_linear_layer_has_its_activation, "the gradient of the bias is off by .*, loops", thorough=True),
    Bug("the slope of a GELU has no density", "write_biased_gelu_gradient",
        "z[i, j] * density)\n                d[i, j] = before\n                total",
        "0 * density)\n                d[i, j] = before\n                total",
        a_linear_layer_has_its_activation, "the gradient of .* is off by .*, loops", thorough=True),
    Bug("a GELU's gradient is taken without the bias", "write_biased_gelu",
        "x = z[i, j] + bias[j]\n                z[i, j] = x", "x = z[i, j] + bias[j]",
        a_linear_layer_has_its_activation, "the gradient of .* is off by .*, loops", thorough=True),
    Bug("the readable ReLU lets every gradient pass", "linear.activated", "where_positive(g, value)", "g + 0",
        a_linear_layer_has_its_activation, "the gradient of .* is off by .*, readable"),
    Bug("a linear layer holds what its ReLU was taken of", "activated_in_place",
        "positive_part(y, out=y)\n        before = once(lambda g: where_positive(g, value))",
        "positive_part(y)\n        before = once(lambda g: where_positive(g + 0 * y, value))",
        a_linear_layer_holds_one_array_more, "the tape holds"),
    Bug("weights that wait get the gradient after the activation", "WeightPullback.sum",
        "as_rows(p.before(g))", "as_rows(g)", weights_of_an_activation_may_wait, "Not equal to tolerance"),
    Bug("an approximate GELU is taken for the exact one", "activation_of",
        'kind is GELU and exact', "kind is GELU", an_approximate_gelu_is_another,
        "ops, one by one"),
    Bug("products of others are those of the elements before", "products_of_others",
        "before * after[..., ::-1]", "before", zeros_have_gradients, DIFFERENCE),
    Bug("sums of products forget what is behind their own half", "sums_of_products_after",
        "products[:-step] * products[step:], 2 * step", "products[:-step], 2 * step", zeros_have_gradients,
        DIFFERENCE),
    Bug("a product is divided by an infinity", "is_divisible", "(size <= info.max)", "True",
        infinities_are_factors, "the gradient of a product"),
    Bug("a product that is too small is divided", "is_divisible", "(size >= info.tiny)", "(size >= 0)",
        infinities_are_factors, "the gradient of a product"),
    Bug("sums are taken from the front again", "scan.cumsum",
        "(lambda g: running_sums(g, axis, backwards=True),)", "(lambda g: running_sums(g, axis),)",
        sums_up_to_each_place, DIFFERENCE),
    Bug("the gradient of a factor counts its product", "write_gradient_of_products",
        "d[i, j] = y[i, j - 1] * total", "d[i, j] = y[i, j] * total", zeros_have_gradients, DIFFERENCE),
    Bug("running products forget the factors behind", "write_gradient_of_products",
        "            total *= x[i, j]\n", "", zeros_have_gradients, DIFFERENCE),
    Bug("a number has no axis to sum along", "scan.sums_by_loops",
        "(loops.can_take(x) and x.ndim):\n        return NotImplemented\n    y =",
        "loops.can_take(x):\n        return NotImplemented\n    y =", a_number_is_its_own_sum, "IndexError"),
    Bug("a number has no axis to multiply along", "cumprod_by_loops",
        "(loops.can_take(x) and x.ndim):\n        return NotImplemented\n    axis =",
        "loops.can_take(x):\n        return NotImplemented\n    axis =", a_number_is_its_own_sum, "."),
    Bug("a row's products go on in the next one", "write_products",
        "    for i in range(rows):\n        product = x.dtype.type(1)\n",
        "    product = x.dtype.type(1)\n    for i in range(rows):\n", sums_up_to_each_place, "cumprod is"),
    Bug("sums of rows have the precision of their numbers", "write_sums_of_rows", "total += x[i, j]\n",
        "total = x.dtype.type(total + x[i, j])\n", sums_up_to_each_place_of_long_rows, "off by"),
    Bug("slices are summed from the front again", "write_sums_of_slices",
        "i = slices - 1 - k if backwards else k", "i = k", sums_up_to_each_place_of_slices, "off by"),
    Bug("a long row is multiplied by the first number only", "product.product", "np.multiply(a, b, out=out)",
        "np.multiply(a[:1], b, out=out)", a_column_times_a_long_row_is_their_product,
        "another product|non-broadcastable"),
    Bug("two columns times two rows are one of each", "product.product",
        "len(b) == 1 and a.shape[1] == 1 and ", "",
        a_column_times_a_long_row_is_their_product, "another product|broadcast"),
    Bug("a row that is chosen again replaces the first one", "add_rows", "row[j] += part[j]",
        "row[j] = part[j]", rows_chosen_often_are_sums, "differ from add.at's"),
    Bug("elements are taken along the axis behind", "take_along", "y[b, i, a] = x[b, indices[b, i, a], a]",
        "y[b, i, a] = x[b, i, indices[b, i, a]]", loops_along_an_axis_are_the_readable_form, "the value"),
    Bug("what goes to one place twice goes there once", "add_along", "row[places[i]] += part[i]",
        "row[places[i]] = part[i]", loops_along_an_axis_are_the_readable_form, "gradient 0|the value"),
    Bug("all go to the first place along the axis", "add_along",
        "x[b, indices[b, i, a], a] += values[b, i, a]", "x[b, 0, a] += values[b, i, a]",
        loops_along_an_axis_are_the_readable_form, "gradient 0|the value"),
    Bug("the readable gather takes places of another axis", "gather.places_of",
        "places * strides[axis]) + others", "places) + others", loops_along_an_axis_are_the_readable_form,
        "the value|gradient"),
    Bug("sums come in memory order", "axis_sums", "[rest.index(axis) for axis in sorted(rest)]",
        "[*range(len(rest))]", sums_over_axes_have_short_chains, "not \\("),
    Bug("columns are one long chain", "sums_over", "column_sums(x.reshape(-1, math.prod(shape)))",
        "x.reshape(-1, math.prod(shape)).sum(axis=0)", sums_over_axes_have_short_chains, "off by .* eps"),
    Bug("long rows are one chain", "row_sums", "<= 64 * 64", "<= 1 << 20", sums_over_axes_have_short_chains,
        "off by .* eps"),
    Bug("numbers of rows overlap", "sums_at_whole_slices", "numbers = numbers * n + xp",
        "numbers = numbers + xp", several_indices_add_up, DIFFERENCE),
    Bug("a sample is taken for all", "variance", "n, squares = builtins.max(count(x, axes) - ddof, 0)",
        "n, squares = count(x, axes)", samples_have_a_variance, "var_ddof is"),
    Bug("a deviation of 0 divides", "reduce.std", "xp.where(y == 0, np.inf, 2 * y)", "(2 * y)",
        a_constant_has_no_slope, "AssertionError|RuntimeWarning"),
    Bug("what is written over keeps its gradient", "gather.scatter", "        d.reshape(-1)[places] = 0\n",
        "", elements_are_gathered_and_scattered, DIFFERENCE),
    Bug("all values for one place get its gradient", "of_the_last", "last[places] == numbers",
        "last[places] >= 0", elements_are_gathered_and_scattered, DIFFERENCE),
    Bug("indices count from the start of memory", "gather.places_of",
        "if strides[axis] == 1 else places * strides[axis]", "if strides[axis] else places",
        elements_are_gathered_and_scattered, "gather is|ValueError"),
    Bug("distinct places are looked for in a part of them", "of_distinct_places", "== places.size else",
        "> 0 else", elements_are_gathered_and_scattered, DIFFERENCE),
    Bug("the readable einsum takes axes in the order of its operand", "with_axes",
        "axes=[term.index(c) for c in letters if c in term]", "axes=[*range(len(term))]",
        einsum_is_numpys_and_its_gradient_the_difference, "einsum is|cannot"),
    Bug("the readable topk begins with the smallest", "largest_of_rows",
        "argsort(rows, -1), largest)[..., :k]", "argsort(rows, -1), False)[..., :k]", elements_are_ordered,
        "topk is"),
    Bug("the readable border is full of the first element", "shape.bordered", "asarray(places.reshape(-1))",
        "asarray(0 * places.reshape(-1))", elements_move_and_vanish_as_in_numpy, "pad_with_its_own"),
    Bug("readable indices count from the end", "sums_at", ".reshape(shape)[index]",
        "[::-1].reshape(shape)[index]", several_indices_add_up, DIFFERENCE),
    Bug("the readable extremum of a row is of all rows", "extremum_by_row", 'kind="stable")]',
        'kind="stable") * 0]', extrema_meet_nan, "amax is"),
    Bug("a mean does not count what was there", "gather.scatter_reduce", "divisor = counts + counted if",
        "divisor = xp.maximum(counts, 1) if", elements_are_gathered_and_scattered, "scatter_reduce is"),
    Bug("all values get the gradient of the largest", "gather.scatter_reduce", "v == xp.take(y, places)",
        "v == v", elements_are_gathered_and_scattered, DIFFERENCE),
    Bug("a largest value passes over NaN", "extremum_in_place", "np.maximum if", "np.fmax if",
        extrema_meet_nan, "amax is"),
    Bug("a falling order has rising gradients", "order.sort", "turned(rows_along(g, axis), descending)",
        "rows_along(g, axis)", elements_are_ordered, DIFFERENCE),
    Bug("the largest are taken from the front", "any_largest",
        "order[..., n - k :] if largest else order[..., :k]", "order[..., :k]", elements_are_ordered,
        "topk is"),
    Bug("a group of NaN and small elements is one of NaN", "members_of_groups",
        "np.maximum if largest else np.fmin", "np.maximum if largest else np.minimum", elements_are_ordered,
        "topk is"),
    Bug("elements behind the last whole group are forgotten", "members_of_groups", "GROUP * k), rest], -1)",
        "GROUP * k)], -1)", elements_are_ordered, "topk is"),
    Bug("a falling order counts from behind", "order.argsort", "turned(rows.shape[-1] - 1 - order, True)",
        "turned(order, True)", elements_are_ordered, "the order is"),
    Bug("a gradient rolls on", "shape.roll", "rolled(g, [(a, -n) for a, n in steps], flat)",
        "rolled(g, steps, flat)", elements_move_and_vanish_as_in_numpy, DIFFERENCE),
    Bug("the upper triangle loses its diagonal", "elementwise.triu", "~on_or_below(x, index(k) - 1)",
        "~on_or_below(x, index(k))", elements_move_and_vanish_as_in_numpy, "triu is"),
    Bug("a border is that of the other axis", "bordered_axis_by_axis", "map(int, pairs[i])",
        "map(int, pairs[-1 - i])", elements_move_and_vanish_as_in_numpy, "pad_with_its_own"),
    Bug("the gradient of a border is lost", "shape.chosen", "sum_by_row(g.swapaxes(0, axis), places, n)",
        "g.swapaxes(0, axis)[:n]", elements_move_and_vanish_as_in_numpy, DIFFERENCE),
    Bug("what is repeated is summed over others", "shape.repeat", "sum_by_row(g.swapaxes(0, axis), rows, n)",
        "sum_by_row(g.swapaxes(0, axis)[::-1], rows, n)", elements_move_and_vanish_as_in_numpy, DIFFERENCE),
    Bug("what lies between axes is one long chain", "sums_over", "if x.size > LONG * math.prod(rest):",
        "if False:", sums_between_axes_that_stay_have_short_chains, "off by"),
    Bug("a variance is one long chain", "variance", "axis_sums(centred * centred, axes)",
        "(centred * centred).sum(axis=axes)", many_rows_have_a_variance, "var:"),
    Bug("half precision adds in half precision", "in_single",
        "x.astype(np.float32, copy=False) if is_floating(x) else x", "x", half_precision_is_normalised,
        "in half precision|Warning"),
    Bug("a loss of integers wraps around", "loss.pair", "return alike(x, y)", "return x, y",
        integers_have_losses_and_a_softmax, "of "),
    Bug("an exponential of small integers has half precision", "elementwise.exp",
        "array_module(x).exp(floating(x))", "array_module(x).exp(x)", integers_have_losses_and_a_softmax,
        "is float16"),
    Bug("float64 samples widen a layer", "linear.linear", "x = in_dtype_of(weight, x)", "pass",
        layers_have_the_dtype_of_their_weights, "float64"),
    Bug("float64 targets widen a loss", "alike", "return x, floating(y, x)", "return x, y",
        layers_have_the_dtype_of_their_weights, "float64"),
    Bug("axes are led back by the order that led there", "by_rows", "[order.index(i) for i in range(x.ndim)]",
        "order", softmax_goes_along_the_first_of_three_axes, "shape|the value"),
]  # fmt: skip
