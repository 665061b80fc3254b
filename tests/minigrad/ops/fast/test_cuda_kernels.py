"""Laws of minigrad/ops/fast/cuda_kernels.py and columns.py: on the double of CuPy; without it one
test runs this file there.
"""

import inspect
from functools import partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import ops
from minigrad.device import compiles_cuda
from minigrad.ops.fast import loss_kernels
from minigrad.ops.fast.columns import FEW, split
from tests.bugs import in_cuda
from tests.bugs.bug import hunt
from tests.double import ON_DOUBLE, check_on_double, needs_double
from tests.minigrad import gpu_laws
from tests.minigrad.ops.fast.cuda_laws import (
    gradients_are_those_of_the_host,
    kernels_are_the_readable_form,
    random_arrays,
    steepest_of,
)

needs_kernels = pytest.mark.skipif(
    not ON_DOUBLE or not compiles_cuda(), reason="needs the double and a compiler of CUDA C++"
)
sizes = st.sampled_from([1, 2, 3, 31, 33, 64, 100])
n_inputs = st.sampled_from([1, 3, 33, 100, 600])
row_counts = st.sampled_from([1, 2, 3, 31, 64, FEW, FEW + 1, 1500])
dtypes = st.sampled_from([np.float32, np.float64])
seeds = st.integers(0, 99)


@pytest.mark.double
@pytest.mark.skipif(ON_DOUBLE, reason="this is the double")
@needs_double
def test_this_file_on_the_double(pytestconfig):
    check_on_double(__file__, pytestconfig)


@needs_kernels
@given(
    seed=seeds,
    n=row_counts,
    n_in=n_inputs,
    n_out=sizes,
    dtype=dtypes,
    bias=st.booleans(),
    relu=st.booleans(),
    special=st.booleans(),
)
def test_linear(seed, n, n_in, n_out, dtype, bias, relu, special):
    x, g, w, b = random_arrays(seed, dtype, (n, n_in), (n, n_out), (n_out, n_in), (n_out,), special=special)
    inputs, most = (x, w, b) if bias else (x, w), 2 if n <= FEW else 3
    most += 6 * ([n, n_in, n_out].count(1) > 1)  # CuPy multiplies vectors by two kernels
    function, readable = gpu_laws.function_of_arrays(ops.linear), inspect.unwrap(ops.linear)
    activation = "relu" if relu else "none"
    kernels_are_the_readable_form(function, readable, most, g, *inputs, activation=activation)


@needs_kernels
@given(
    seed=seeds,
    n=row_counts.filter(lambda n: n > 1),
    channels=sizes,
    dtype=dtypes,
    relu=st.booleans(),
    fixed=st.booleans(),
    special=st.booleans(),
)
def test_batch_norm(seed, n, channels, dtype, relu, fixed, special):
    shapes = [(n, channels)] * 2 + [(channels,)] * 4
    x, g, *others = random_arrays(seed, dtype, *shapes, special=special)
    weight, bias, mean, variance = others
    function = gpu_laws.function_of_arrays(ops.batch_norm)

    def with_statistics(form):
        def normalized(x, weight, bias, mean, variance):
            y, pullbacks = form(x, weight, bias, relu=relu, statistics=(mean, variance))
            return y, (*pullbacks, None, None)

        return normalized

    if fixed:
        forms = with_statistics(function), with_statistics(inspect.unwrap(ops.batch_norm))
        inputs = x, weight, bias, mean, variance**2
        kernels_are_the_readable_form(
            *forms, 4 if n > FEW else 3, g, *inputs, steepest=1 / (1e-5 + (variance**2).min())
        )
    else:
        readable = inspect.unwrap(ops.batch_norm)
        most = 6 if n > FEW else 4
        kernels_are_the_readable_form(
            function, readable, most, g, x, weight, bias, relu=relu, steepest=steepest_of(x, 0)
        )


@needs_kernels
@given(
    seed=seeds,
    n=row_counts,
    shape=st.lists(sizes, min_size=1, max_size=2),
    dtype=dtypes,
    special=st.booleans(),
)
def test_layer_norm(seed, n, shape, dtype, special):
    n = n if len(shape) == 1 else min(n, 5)
    x, g, weight, bias = random_arrays(seed, dtype, *[(n, *shape)] * 2, *[tuple(shape)] * 2, special=special)
    function, readable = gpu_laws.function_of_arrays(ops.layer_norm), inspect.unwrap(ops.layer_norm)
    steepest = steepest_of(x, tuple(range(1, x.ndim)))
    kernels_are_the_readable_form(
        function, readable, 4 if n > FEW else 3, g, x, weight, bias, steepest=steepest, infinity_is_nan=True
    )


@needs_kernels
@given(
    seed=seeds,
    n=st.sampled_from([1, 2, 31, 33, 64, 1000, 1025]),
    classes=sizes,
    dtype=dtypes,
    label_kind=st.sampled_from([np.int64, np.int32, np.uint8]),
    special=st.booleans(),
)
def test_cross_entropy(seed, n, classes, dtype, label_kind, special):
    x, g = random_arrays(seed, dtype, (n, classes), (), special=special)
    labels = np.random.default_rng(seed).integers(0, classes, n).astype(label_kind)
    one_block = n <= loss_kernels.MOST_ROWS and n * classes <= loss_kernels.MOST_LOGITS
    most, readable = 2 if one_block else 3, inspect.unwrap(ops.cross_entropy)
    kernels_are_the_readable_form(loss_kernels.cross_entropy, readable, most, np.ones_like(g), x, labels)


@needs_kernels
def test_a_label_that_is_no_class_makes_the_loss_nan():
    for label in (-1, 3):
        logits, labels = np.zeros((2, 3), np.float32), np.array([0, label])
        gpu_laws.a_wrong_label_stops_training(ops.cross_entropy, logits, labels)


@given(rows=st.integers(1, 1 << 22), columns=st.integers(1, 5000), few=st.sampled_from([0, FEW]))
def test_the_parts_of_a_matrix_are_all_its_rows(rows, columns, few):
    (across, parts), each = split(rows, columns, few)
    assert (parts - 1) * each < rows <= parts * each and (across - 1) * 32 < columns <= across * 32
    assert parts == 1 or parts * across <= 264


OF_WIDER_GRADIENTS = {  # an op, the shapes of its value and of its inputs
    "convolution": (partial(ops.conv2d, padding=1), (8, 16, 12, 12), (8, 4, 12, 12), (16, 4, 3, 3), (16,)),
    "pooled convolution": (
        partial(ops.conv_pool2d, padding=1, pool=2, relu=True),
        (8, 16, 6, 6), (8, 4, 12, 12), (16, 4, 3, 3), (16,),
    ),
    "linear": (ops.linear, (40, 33), (40, 20), (33, 20), (33,)),
    "linear with ReLU": (partial(ops.linear, activation="relu"), (40, 33), (40, 20), (33, 20), (33,)),
    "small linear": (ops.linear, (40, 5), (40, 20), (5, 20), (5,)),
    "small linear with ReLU": (partial(ops.linear, activation="relu"), (40, 5), (40, 20), (5, 20), (5,)),
    "batch-norm": (ops.batch_norm, (40, 20), (40, 20), (20,), (20,)),
    "batch-norm with ReLU": (partial(ops.batch_norm, relu=True), (40, 20), (40, 20), (20,), (20,)),
    "layer norm": (ops.layer_norm, (40, 20), (40, 20), (20,), (20,)),
}  # fmt: skip


@needs_kernels
@pytest.mark.parametrize("name", OF_WIDER_GRADIENTS)
def test_a_gradient_of_another_dtype_with_gaps(name):
    """As of an op whose value is multiplied by float64: a kernel reads memory, whatever lies there."""
    op, value, *inputs = OF_WIDER_GRADIENTS[name]
    arrays = random_arrays(0, np.float32, *inputs)
    gradients_are_those_of_the_host(op, np.random.default_rng(1).normal(size=value), *arrays)


@needs_kernels
def test_labels_and_statistics_with_gaps():
    x, *parameters, mean, variance = random_arrays(0, np.float32, (40, 20), (20,), (20,), (20,), (20,))
    labels, g = np.arange(40) % 20, np.ones((), np.float32)
    gradients_are_those_of_the_host(ops.cross_entropy, g, x, others=[labels])
    fixed = lambda x, w, b, *statistics: ops.batch_norm(x, w, b, statistics=statistics)  # noqa: E731
    gradients_are_those_of_the_host(fixed, x, x, *parameters, others=[mean, variance**2])


@needs_kernels
@pytest.mark.parametrize("bug", in_cuda.BUGS, ids=lambda bug: bug.name)
def test_its_law_catches_the_bug(bug):
    hunt(bug)
