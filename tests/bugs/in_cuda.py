"""Bugs of kernels in CUDA C++, in the text of their files; they are hunted on the double of CuPy with g++."""

import inspect
from functools import partial

import numpy as np

from minigrad import ops
from minigrad.ops.fast import loss_kernels
from tests.bugs.bug import Bug, Law
from tests.minigrad import gpu_laws
from tests.minigrad.ops.fast.cuda_laws import (
    gradients_are_those_of_the_host,
    kernels_are_the_readable_form,
    random_arrays,
)

# Laws


def a_linear_layer_is_the_readable_one() -> None:
    for rows, n_out in ((40, 33), (1030, 33), (40, 3)):
        shapes = (rows, 5), (rows, n_out), (n_out, 5), (n_out,)
        x, g, w, b = random_arrays(0, np.float64, *shapes, special=rows == 40)
        linear = gpu_laws.function_of_arrays(ops.linear)
        x[0], b[0] = 0, 0  # a value of 0, where a ReLU lets nothing through
        kernels_are_the_readable_form(linear, inspect.unwrap(ops.linear), 3, g, x, w, b, activation="relu")


def a_batch_norm_is_the_readable_one() -> None:
    for rows in (40, 1030):
        x, g, w, b = random_arrays(0, np.float64, (rows, 33), (rows, 33), (33,), (33,))
        x += 1000.0 * (rows > 40)
        function, readable = gpu_laws.function_of_arrays(ops.batch_norm), inspect.unwrap(ops.batch_norm)
        kernels_are_the_readable_form(function, readable, 6, g, x, w, b, relu=True, steepest=1e4)


def a_layer_norm_is_the_readable_one() -> None:
    x, g, w, b = random_arrays(0, np.float64, (40, 100), (40, 100), (100,), (100,))
    function, readable = gpu_laws.function_of_arrays(ops.layer_norm), inspect.unwrap(ops.layer_norm)
    kernels_are_the_readable_form(function, readable, 3, g, x, w, b, steepest=10)


def a_loss_is_the_readable_one() -> None:
    x, g = random_arrays(0, np.float64, (40, 5), ())
    labels, readable = np.arange(40) % 5, inspect.unwrap(ops.cross_entropy)
    x *= 500
    kernels_are_the_readable_form(loss_kernels.cross_entropy, readable, 2, np.ones_like(g), x, labels)


def a_wrong_label_makes_the_loss_nan() -> None:
    gpu_laws.a_wrong_label_stops_training(ops.cross_entropy, np.zeros((2, 3)), np.array([0, 3]))


def wider_gradients_are_those_of_the_host() -> None:
    x, w = random_arrays(0, np.float32, (8, 4, 12, 12), (16, 4, 3, 3))
    gradients_are_those_of_the_host(ops.conv2d, np.ones((8, 16, 10, 10)), x, w)
    x, w, b = random_arrays(0, np.float32, (40, 20), (33, 20), (33,))
    gradients_are_those_of_the_host(partial(ops.linear, activation="relu"), np.ones((40, 33)), x, w, b)


def labels_with_gaps_are_those_of_the_host() -> None:
    (x,) = random_arrays(0, np.float32, (40, 20))
    gradients_are_those_of_the_host(ops.cross_entropy, np.ones(()), x, others=[np.arange(40) % 20])


# Bugs


def in_cuda(name: str, right: str, wrong: str, law: Law, says: str) -> Bug:
    """A bug in the text of the kernels."""
    edit = f'.read_text(encoding="utf-8").replace({right!r}, {wrong!r})'
    return Bug(name, "cuda_kernels.source", '.read_text(encoding="utf-8")', edit, law, says)


BUGS = [
    in_cuda("columns are added up before all threads have written",
        "second[lane][column] = own.second;\n    __syncthreads();", "second[lane][column] = own.second;",
        a_linear_layer_is_the_readable_one, "gradient 3"),
    in_cuda("the next sums of columns are written while these are read",
        "__syncthreads();  // before the next", "// before the next", a_batch_norm_is_the_readable_one,
        "the value|gradient|different"),
    in_cuda("a ReLU has slope 1 at 0", "y[i] != 0 ? g[i]", "y[i] >= 0 ? g[i]",
        a_linear_layer_is_the_readable_one, "gradient"),
    in_cuda("a kernel's ReLU turns NaN into 0", "relu && value <= 0", "relu && !(value > 0)",
        a_linear_layer_is_the_readable_one, "the value"),
    in_cuda("a block reads beyond the last column", "column < columns ? end : 0", "end",
        a_linear_layer_is_the_readable_one, "beyond the end|gradient"),
    in_cuda("the last rows are left out", "begin + each < rows ? begin + each : rows", "begin + each",
        a_linear_layer_is_the_readable_one, "beyond the end|gradient"),
    in_cuda("a small layer passes its ReLU at 0", "y[j] != 0 ? (double)g[j]", "y[j] >= 0 ? (double)g[j]",
        a_linear_layer_is_the_readable_one, "gradient"),
    in_cuda("a small layer's last thread writes more", "i < of_x + of_w + n_out", "i >= of_x + of_w",
        a_linear_layer_is_the_readable_one, "beyond the end"),
    in_cuda("a small layer's ReLU stops NaN", "relu && total <= 0", "relu && !(total > 0)",
        a_linear_layer_is_the_readable_one, "the value"),
    in_cuda("the first part of a matrix is all of it", "Two of_row = terms(row);",
        "Two of_row = terms(row % 512);", a_linear_layer_is_the_readable_one, "gradient"),
    in_cuda("the means of parts are taken for the mean", "part(i).second + size * deviation * deviation",
        "part(i).second", a_batch_norm_is_the_readable_one, "the value"),
    in_cuda("a variance is that of E[x^2] - E[x]^2", "double deviation = value(row) - centre;",
        "double deviation = sqrt(fabs(value(row) * value(row) - centre * centre));",
        a_batch_norm_is_the_readable_one, "the value"),
    in_cuda("a batch-norm's gradient does not see its mean", "(x[i] - centre) * slope - shift",
        "(x[i] - centre) * slope", a_batch_norm_is_the_readable_one, "gradient 1"),
    in_cuda("a batch-norm's gradient passes the ReLU", "before_relu(g, y, i) * factor", "g[i] * factor",
        a_batch_norm_is_the_readable_one, "gradient 1"),
    in_cuda("halves of a row are added up before they are written",
        "half; half /= 2) {\n        __syncthreads();\n        if (place",
        "half; half /= 2) {\n        if (place", a_layer_norm_is_the_readable_one, "the value"),
    in_cuda("a layer norm's gradient is not centred", "weight[c] - shift - normal", "weight[c] - normal",
        a_layer_norm_is_the_readable_one, "gradient 1"),
    in_cuda("rows have the statistics of columns", "by_row ? row : of_thread.column", "of_thread.column",
        a_layer_norm_is_the_readable_one, "beyond the end|gradient 2"),
    in_cuda("losses are added up before they are written",
        "half; half /= 2) {\n        __syncthreads();\n        if (row",
        "half; half /= 2) {\n        if (row", a_loss_is_the_readable_one, "the value"),
    in_cuda("a loss's exponentials overflow", "exp(of_row[c] - most)", "exp(of_row[c])",
        a_loss_is_the_readable_one, "the value"),
    in_cuda("a label that is no class is one", "label < classes;", "label < classes + 1;",
        a_wrong_label_makes_the_loss_nan, "the loss of|beyond the end"),
    Bug("a convolution reads a wider gradient as it lies", "implicit.convolve_and_pool",
        "once(lambda g: xp.ascontiguousarray(g, x.dtype))", "once(xp.ascontiguousarray)",
        wider_gradients_are_those_of_the_host, "takes float32"),
    Bug("a linear layer reads a wider gradient as it lies", "by_products", "as_rows(g), x.dtype)",
        "as_rows(g))", wider_gradients_are_those_of_the_host, "takes float"),
    Bug("labels with gaps are read one after another", "loss_kernels.cross_entropy",
        "map(xp.ascontiguousarray, (logits, labels))", "(logits, labels)",
        labels_with_gaps_are_those_of_the_host, "takes int64 in C order"),
]  # fmt: skip
