"""Laws of minigrad/device.py, optim_kernels.py, minigrad/ops/fast/activation_kernels.py,
elementwise_kernels.py, loss_kernels.py, pool_kernels.py and im2col_kernels.py: what a GPU is asked to do,
counted on the double of CuPy; without it one test runs this file there.
"""

import inspect
import itertools
import math
from functools import cache, partial

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, models, nn, ops, optim
from minigrad.device import compiles_cuda, to_device
from minigrad.ops.conv import direct
from minigrad.ops.fast import im2col_kernels, loss_kernels
from minigrad.ops.fast.activation_kernels import ACTIVATIONS
from minigrad.ops.fast.pool_kernels import max_of_places
from minigrad.ops.geometry import Geometry
from minigrad.sums import axis_sums
from tests.bugs import in_gpu_calls
from tests.bugs.bug import hunt
from tests.double import ON_DOUBLE, check_on_double, needs_double
from tests.launches import ALL
from tests.minigrad import gpu_laws, kernel_sources

on_double = pytest.mark.skipif(not ON_DOUBLE, reason="cupy is not the double")
shapes = st.tuples(*[st.integers(1, 4)] * 4)


@pytest.mark.double
@pytest.mark.skipif(ON_DOUBLE, reason="this is the double")
@needs_double
def test_this_file_on_the_double(pytestconfig):
    check_on_double(__file__, pytestconfig)


def sgd(parameters):
    return optim.SGD(parameters, 0.01, momentum=0.9)


@on_double
@pytest.mark.parametrize("name", ALL)
def test_a_step_waits_for_the_loss_alone_and_copies_nothing(name):
    step = gpu_laws.training_step(ALL[name], sgd, 4)
    gpu_laws.a_step_waits(1, step)
    gpu_laws.a_step_uploads_nothing(step)
    gpu_laws.products_copy(20 if name == "transformer" else 0, step)  # 10 for each attention


@on_double
@pytest.mark.parametrize(
    ("name", "most", "without_cuda"),
    [
        ("mlp", 9, 14),
        ("lenet", 18, 32),
        ("vgg", 28, 54),
        ("sigmoid", 12, 12),
        ("with batch-norm", 34, 92),
        ("with layer norm", 12, 35),
    ],
)
def test_a_step_takes_few_kernels(name, most, without_cuda):
    step = gpu_laws.training_step(ALL[name], sgd, 4)
    gpu_laws.a_step_launches(most if compiles_cuda() else without_cuda, step)


@on_double
@pytest.mark.skipif(ON_DOUBLE and not compiles_cuda(), reason="needs a compiler of CUDA C++")
@pytest.mark.parametrize("name", ALL)
def test_no_sum_of_a_step_is_one_long_chain(name):
    gpu_laws.a_step_adds_no_long_chain(gpu_laws.training_step(ALL[name], sgd, 64))


@on_double
@pytest.mark.parametrize("rows", [1, 1000, 1031, 32768, 50021])
@pytest.mark.parametrize("columns", [1, 3, 32])
@pytest.mark.parametrize("images", [False, True])
def test_tall_sums_are_short_chains(rows, columns, images):
    x = np.random.default_rng(rows).integers(-9, 10, (rows, columns)).astype(np.float32)
    if images:  # channels-last
        x = x.reshape(1, rows, 1, columns).transpose(0, 3, 1, 2)
        gpu_laws.tall_sums_are_short_chains(axis_sums, x, (0, 2, 3))
    else:
        gpu_laws.tall_sums_are_short_chains(axis_sums, x, (0,))


@on_double
@pytest.mark.parametrize("make", [optim.SGD, optim.LARS, optim.Adam], ids=lambda make: make.__name__)
def test_norms_are_waited_for_once(make):
    gpu_laws.a_step_waits(2, gpu_laws.training_step(models.NETS["mlp"], gpu_laws.clipping(make), 4))


@on_double
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[np.array([0, 0])],
        lambda x: x[np.array([True, False])],
        lambda x: x[:, [1, 0, 1]],
        lambda x: ops.embedding(x, np.array([1, 0, 1])),
    ],
    ids=["integers", "booleans", "list", "embedding"],
)
def test_an_index_is_uploaded_once(f):
    gpu_laws.an_index_is_uploaded_once(f, np.arange(6.0).reshape(2, 3))


@on_double
@given(
    seed=st.integers(0, 99),
    place=st.integers(0, 2),
    label=st.sampled_from([-9, -1, 3, 7]),
    kind=st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_a_wrong_label_or_index_stops_training(seed, place, label, kind):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 3)
    labels[place] = label
    table = rng.normal(size=(3, 3)).astype(kind)
    smoothed = partial(ops.cross_entropy, label_smoothing=0.1, weight=[1.0, 2.0, 3.0])
    for loss in (ops.cross_entropy, smoothed, ops.nll_loss):
        gpu_laws.a_wrong_label_stops_training(loss, table, labels)
    gpu_laws.a_wrong_label_stops_training(ops.embedding, table, labels)


@on_double
@given(shape=shapes, order=st.permutations(range(4)), gap=st.integers(1, 2))
def test_an_array_keeps_its_order_on_the_way_to_the_gpu(shape, order, gap):
    x = np.arange(float(np.prod(shape))).reshape(shape).transpose(order)[::gap]
    gpu_laws.images_keep_their_order(lambda x: to_device(x, "cupy"), x)


@on_double
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 2.0 + ops.tanh(x) + x,
        lambda x: nn.BatchNorm(3, dtype=np.float64).to(device="cupy")(x) + x,
        lambda x: ops.max_pool2d(x, kernel=2) + ops.avg_pool2d(x, kernel=2),
    ],
    ids=["elementwise", "batch-norm", "pooling"],
)
def test_sums_of_gradients_are_channels_last(f):
    gpu_laws.sums_of_gradients_are_channels_last(f, np.random.default_rng(0).normal(size=(2, 3, 4, 6)))


TWO = np.ones((2, 2))
MIXED = {
    "add": (ops.add, [TWO, TWO]),
    "maximum": (ops.maximum, [TWO, TWO]),
    "matmul": (ops.matmul, [TWO, TWO]),
    "mse": (ops.mse, [TWO, TWO]),
    "linear": (ops.linear, [TWO, TWO, np.ones(2)]),
    "conv2d": (ops.conv2d, [np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2)), np.ones(1)]),
    "batch_norm": (ops.batch_norm, [np.ones((2, 2, 2, 2)), np.ones(2), np.ones(2)]),
    "concatenate": (ops.concatenate, [TWO, TWO]),
    "where": (ops.where, [TWO, TWO, TWO]),
}


@on_double
@pytest.mark.parametrize("name", MIXED)
def test_arrays_of_two_devices_are_refused(name):
    f, arrays = MIXED[name]
    gpu_laws.arrays_of_two_devices_are_refused(f, *arrays)


@on_double
def test_labels_on_the_gpu_beside_a_model_on_the_host_are_refused():
    for loss in (ops.cross_entropy, ops.embedding):
        with pytest.raises(TypeError, match=r"one device, got \(2, 2\) on the host.*\.to\(device="):
            loss(TWO, to_device(np.array([0, 1]), "cupy"))


@on_double
@pytest.mark.parametrize(
    "f", [ops.add, ops.divide, ops.power, ops.maximum, ops.matmul], ids=lambda f: f.__name__
)
def test_lists_go_to_the_other_operand(f):
    gpu_laws.lists_go_to_the_other_operand(f, TWO, [[1.0, 2.0], [3.0, 4.0]])


@on_double
@given(
    seed=st.integers(0, 99),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    rest=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    apart=st.booleans(),
)
def test_pooling_as_a_kernel(seed, kernel, rest, apart):
    rng, (kh, kw) = np.random.default_rng(seed), kernel
    values = [-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan]
    x = rng.choice(values, (2, 2 * kh + min(rest[0], kh - 1), kw + min(rest[1], kw - 1), 3))
    geometry = Geometry(kernel, kernel if apart else (1, 1), (0, 0), (1, 1))
    gpu_laws.pooling_is_the_readable_one(partial(max_of_places, apart=apart), x.astype(np.float32), geometry)


parameter_shapes = st.lists(st.sampled_from([(), (3,), (2, 3), (0, 2)]), min_size=1, max_size=5)


@on_double
@given(
    momentum=st.sampled_from([0.0, 0.9]),
    nesterov=st.booleans(),
    weight_decay=st.sampled_from([0.0, 0.1]),
    shapes=parameter_shapes,
)
def test_an_update_is_one_kernel(momentum, nesterov, weight_decay, shapes):
    settings = {"momentum": momentum, "nesterov": nesterov and momentum > 0, "weight_decay": weight_decay}
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.SGD(w, 0.5, **settings), shapes)


@on_double
@given(
    make=st.sampled_from([optim.HeavyBall, optim.LARS, optim.Adagrad, optim.Adam, optim.AdamW]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    shapes=parameter_shapes,
)
def test_an_update_of_other_optimizers_is_one_kernel(make, weight_decay, shapes):
    make = partial(make, lr=0.1, weight_decay=weight_decay)
    gpu_laws.updates_are_the_readable_ones(make, shapes)


@on_double
@given(
    make=st.sampled_from([optim.Adam, optim.AdamW]),
    maximize=st.booleans(),
    weight_decay=st.sampled_from([0.0, 0.1]),
)
def test_an_update_of_amsgrad_is_one_kernel(make, maximize, weight_decay):
    """And one for each parameter where the gradients change their signs."""
    shapes = [(3,), (2, 3), ()]
    make = partial(make, lr=0.1, weight_decay=weight_decay, amsgrad=True, maximize=maximize, betas=(0.9, 0.1))
    gpu_laws.updates_are_the_readable_ones(make, shapes, most=1 + maximize * len(shapes))


@on_double
@given(momentum=st.sampled_from([0.0, 0.9]), centered=st.booleans(), weight_decay=st.sampled_from([0.0, 0.1]))
def test_an_update_of_rmsprop_is_one_kernel(momentum, centered, weight_decay):
    settings = {"momentum": momentum, "centered": centered, "weight_decay": weight_decay, "eps": 1e-3}
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.RMSprop(w, 0.1, **settings), [(3,), (2, 3), ()])


@on_double
@pytest.mark.parametrize("name", ACTIVATIONS)
@given(
    x=st.lists(st.sampled_from([-30.0, -3.0, -1.0, 0.0, 1e-3, 2.0, 3.0, 30.0]), max_size=6),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_an_activation_is_one_kernel_each_way(name, x, kind):
    gpu_laws.a_function_is_few_kernels(2, gpu_laws.function_of_arrays(getattr(ops, name)), np.array(x, kind))


@on_double
def test_a_kernel_takes_a_limited_number_of_parameters():
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.SGD(w, 0.5), [(3,)] * 20, most=2)


@on_double
@pytest.mark.parametrize("make", [optim.SGD, optim.HeavyBall, optim.LARS, optim.Adagrad, optim.Adam])
def test_each_group_is_a_kernel(make):
    decays = partial(optim.decay_groups, weight_decay=0.3)
    gpu_laws.updates_are_the_readable_ones(lambda w: make(decays(w), 0.1), [(2, 3), (4,), (1, 2)], most=2)


@on_double
@given(
    make=st.sampled_from([optim.SGD, optim.HeavyBall, optim.Adagrad, optim.AdamW]), shapes=parameter_shapes
)
def test_coefficients_may_be_on_the_gpu(make, shapes):
    gpu_laws.coefficients_may_be_arrays(partial(make, lr=0.1, weight_decay=0.1), shapes)


@on_double
@given(
    seed=st.integers(0, 99),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    kind=st.sampled_from([np.float32, np.float64]),
    label_kind=st.sampled_from([np.int64, np.int32, np.uint8]),
    offset=st.sampled_from([0, 1000]),
)
def test_cross_entropy_as_kernels(seed, shape, kind, label_kind, offset):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=shape) + offset, rng.integers(0, shape[1], shape[0])
    readable = inspect.unwrap(ops.cross_entropy)
    gpu_laws.cross_entropy_is_the_readable_one(
        loss_kernels.cross_entropy, readable, logits.astype(kind), labels.astype(label_kind)
    )


@on_double
@given(
    name=st.sampled_from(["relu", "sigmoid", "binary_cross_entropy_with_logits"]),
    x=st.lists(st.sampled_from([-np.inf, -1e3, -1.0, -0.0, 0.0, 1e-3, 2.0, 1e3, np.inf, np.nan]), max_size=6),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_a_function_is_one_kernel_each_way(name, x, kind):
    x, most = np.array(x, kind), 2
    if name == "binary_cross_entropy_with_logits":  # infinity times a target of 0 is NaN in different places
        most, x = 3, np.nan_to_num(x, posinf=50, neginf=-50)
    targets = [np.linspace(0, 1, len(x)).astype(kind)] * (most - 2)
    gpu_laws.a_function_is_few_kernels(most, gpu_laws.function_of_arrays(getattr(ops, name)), x, *targets)


@on_double
@given(
    seed=st.integers(0, 99),
    sizes=st.tuples(*[st.integers(1, 3)] * 4),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_convolution_as_kernels(seed, sizes, kernel, stride, padding, dilation):
    rng, (n, channels, filters, more) = np.random.default_rng(seed), sizes
    height, width = (d * (k - 1) + more for k, d in zip(kernel, dilation, strict=True))
    x = rng.integers(-4, 5, (n, height, width, channels)).astype(np.float32)
    w = rng.integers(-4, 5, (filters, channels, *kernel)).astype(np.float32)
    geometry = Geometry(kernel, stride, padding, dilation)
    most = 4 if min(w.size // filters, filters, n * math.prod(geometry.output(height, width))) > 1 else 9
    gpu_laws.convolution_is_the_readable_one(im2col_kernels.im2col, direct, x, w, geometry, most)


@cache
def sources():
    """The C++ of the library's kernels, by the function that makes them, for float32 and float64."""
    with kernel_sources.recorded_sources() as by_maker:
        for dtype in (np.float32, np.float64):
            for name in ("lenet", "sigmoid", "with batch-norm"):
                gpu_laws.training_step(ALL[name], sgd, 2, dtype)
            gpu_laws.function_of_arrays(ops.cross_entropy)(
                *(to_device(a, "cupy") for a in (np.ones((2, 3), dtype), np.ones(2, np.int16)))
            )
            x, w = (
                to_device(np.ones((2, 5, 5, 2), dtype), "cupy"),
                to_device(np.ones((3, 2, 3, 3), dtype), "cupy"),
            )
            y, (to_image, _) = im2col_kernels.im2col(x, w, Geometry((3, 3), (1, 1), (0, 0), (1, 1)))
            to_image(y)
            parameter = Parameter(to_device(np.ones(3, dtype), "cupy"))
            parameter.grad = to_device(np.ones(3, dtype), "cupy")
            nesterov = partial(optim.SGD, momentum=0.9, nesterov=True)
            for name in ACTIVATIONS:
                x = Parameter(to_device(np.ones(3, dtype), "cupy"))
                with Tape() as tape:
                    y = getattr(ops, name)(x)
                tape.backward(y, parameter.grad)
            centered = partial(optim.RMSprop, centered=True, momentum=0.9)
            for make, decay in itertools.product(
                [*optim.OPTIMIZERS.values(), nesterov, centered], (0.0, 0.1)
            ):
                make([parameter], lr=0.1, weight_decay=decay).step()
    return by_maker


@on_double
def test_all_kernels_of_the_library_are_among_the_sources():
    assert set(sources()) == kernel_sources.makers_of_kernels()


@on_double
@pytest.mark.skipif(kernel_sources.nvrtc() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("maker", sorted(kernel_sources.makers_of_kernels()))
def test_a_kernel_is_cuda(maker):
    for source in sources()[maker]:
        kernel_sources.compiles(source)


@on_double
@pytest.mark.skipif(kernel_sources.nvrtc() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize(
    "python", [("loss = nan", "lose = nan"), ("x[own]", "x[own] // 1"), ("* classes", "** classes")]
)
def test_what_is_no_cuda_is_refused(python):
    for source in sources()["loss_kernels.py:losses_of_rows"]:
        with pytest.raises(AssertionError, match="error"):
            kernel_sources.compiles(source.replace(*python))


@on_double
@pytest.mark.parametrize("bug", in_gpu_calls.BUGS, ids=lambda bug: bug.name)
def test_its_law_catches_the_bug(bug):
    hunt(bug)
