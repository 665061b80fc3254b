"""Bugs of what a GPU is asked to do; they are hunted where ``cupy`` is the double that counts calls."""

import inspect
import itertools
from functools import partial

import numpy as np

from minigrad import Parameter, Tape, nn, ops, optim
from minigrad.device import array_module, compiles_cuda, to_device
from minigrad.models import NETS
from minigrad.ops.conv import direct
from minigrad.ops.fast import im2col_kernels, loss_kernels, pool_kernels
from minigrad.ops.geometry import Geometry
from minigrad.sums import axis_sums
from minigrad.tape import once_for_all
from tests.bugs.bug import Bug
from tests.minigrad import gpu_laws, tape_laws

# Laws


def a_step_waits_once() -> None:
    def pooled(rng: np.random.Generator) -> nn.Module:
        return nn.Sequential(nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(196, 10, rng=rng))

    sgd = lambda parameters: optim.SGD(parameters, 0.01)  # noqa: E731
    gpu_laws.a_step_waits(1, gpu_laws.training_step(NETS["mlp"]._replace(build=pooled), sgd, 2))


def a_step_takes_few_kernels() -> None:
    sgd = lambda parameters: optim.SGD(parameters, 0.01)  # noqa: E731
    gpu_laws.a_step_launches(18 if compiles_cuda() else 32, gpu_laws.training_step(NETS["lenet"], sgd, 2))


def a_sum_of_a_gradient_is_no_view() -> None:
    x, g = to_device(np.ones((2, 3)), "cupy"), to_device(np.ones((2, 3)), "cupy")
    bias = Parameter(to_device(np.ones(3), "cupy"))

    def step() -> float:
        bias.grad = None
        with Tape() as tape:
            y = ops.add(x, bias)
        tape.backward(y, g)
        return 0.0

    gpu_laws.a_step_launches(2, step)


def clipping_waits_once_more() -> None:
    gpu_laws.a_step_waits(2, gpu_laws.training_step(NETS["mlp"], gpu_laws.clipping(optim.SGD), 2))


def products_copy_nothing() -> None:
    x, w, g = (to_device(np.ones(shape), "cupy") for shape in ((2, 5, 5, 2), (3, 2, 3, 3), (2, 3, 3, 3)))

    def step() -> float:
        _, pullbacks = im2col_kernels.im2col(x, w, Geometry((3, 3), (1, 1), (0, 0), (1, 1)))
        for pullback in pullbacks:
            pullback(g)
        return 0.0

    gpu_laws.products_copy(0, step)


def wrong_labels_stop_training() -> None:
    for kind, labels in itertools.product((np.float64, np.float16), ([0, 3, 1], [-1, 0, 1])):
        logits = np.random.default_rng(0).normal(size=(3, 3)).astype(kind)
        gpu_laws.a_wrong_label_stops_training(ops.cross_entropy, logits, np.array(labels, np.int16))
        gpu_laws.a_wrong_label_stops_training(ops.embedding, logits, np.array(labels))


def indices_are_uploaded_once() -> None:
    gpu_laws.an_index_is_uploaded_once(lambda x: x[np.array([1, 1])], np.ones((2, 3)))


def images_stay_channels_last() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    gpu_laws.images_keep_their_order(lambda x: to_device(x, "cupy"), x.transpose(0, 3, 1, 2))
    gpu_laws.sums_of_gradients_are_channels_last(lambda x: x * 2.0 + ops.tanh(x), x)


def one_device_is_asked_for() -> None:
    gpu_laws.arrays_of_two_devices_are_refused(ops.linear, np.ones((2, 2)), np.ones((2, 2)))


def lists_are_moved() -> None:
    gpu_laws.lists_go_to_the_other_operand(ops.add, np.ones((2, 2)), [1.0, 2.0])


def pooling_as_a_kernel_is_pooling() -> None:
    x = np.array([2.0, 2.0, 0.0, 1.0, np.nan, 0.0, -np.inf, np.nan]).reshape(2, 2, 2, 1)
    pooling = pool_kernels.max_of_places
    gpu_laws.pooling_is_the_readable_one(pooling, x, Geometry((2, 2), (2, 2), (0, 0), (1, 1)))
    pooling = partial(pooling, apart=False)
    gpu_laws.pooling_is_the_readable_one(
        pooling, x.reshape(1, 2, 4, 1), Geometry((1, 2), (1, 1), (0, 0), (1, 1))
    )


def cross_entropy_as_kernels_is_cross_entropy() -> None:
    logits, labels = 500 * np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 2, 1, 1], np.int16)
    readable = inspect.unwrap(ops.cross_entropy)
    gpu_laws.cross_entropy_is_the_readable_one(loss_kernels.cross_entropy, readable, logits, labels)


def a_function_is_one_kernel_each_way() -> None:
    x = np.array([-1e3, -1.0, 0.0, 2.0, np.nan])
    gpu_laws.a_function_is_few_kernels(2, gpu_laws.function_of_arrays(ops.relu), x)
    gpu_laws.a_function_is_few_kernels(2, gpu_laws.function_of_arrays(ops.sigmoid), x)
    logistic_loss = gpu_laws.function_of_arrays(ops.binary_cross_entropy_with_logits)
    gpu_laws.a_function_is_few_kernels(
        3, logistic_loss, np.array([-1e3, 0.5, 1e3]), np.array([0.0, 1.0, 0.5])
    )


def convolution_as_kernels_is_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (2, 5, 7, 2)) * 1.0, rng.integers(-4, 5, (3, 2, 2, 3)) * 1.0
    geometry = Geometry((2, 3), (2, 1), (1, 2), (1, 2))
    gpu_laws.convolution_is_the_readable_one(im2col_kernels.im2col, direct, x, w, geometry)


def an_update_as_a_kernel_is_the_update() -> None:
    settings = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.SGD(w, 0.5, **settings), [(2, 3), (4,)])


def adam_as_a_kernel_is_adam() -> None:
    falling = partial(optim.Adam, betas=(0.9, 0.1), amsgrad=True)
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.Adam(w, 0.5, weight_decay=0.1), [(2, 3), (4,)])
    gpu_laws.updates_are_the_readable_ones(lambda w: falling(w, 0.5), [(2, 3), (4,)])


def groups_are_one_kernel_each() -> None:
    groups = partial(optim.decay_groups, weight_decay=0.3)
    gpu_laws.updates_are_the_readable_ones(lambda w: optim.Adam(groups(w), 0.1), [(2, 3), (4,), (1, 2)], 2)


def an_own_update_is_used() -> None:
    class Sign(optim.SGD):
        def update(self, w, g, state, rate):
            w -= rate * array_module(g).sign(g)

    gpu_laws.updates_are_the_readable_ones(lambda w: Sign(w, 0.5), [(3,)], most=9)


def coefficients_may_be_on_the_gpu() -> None:
    gpu_laws.coefficients_may_be_arrays(lambda w: optim.AdamW(w, 0.5, weight_decay=0.1), [(2, 3), (4,)])


def what_was_given_away_is_computed_again() -> None:
    tape_laws.gives_results_away(once_for_all)


def tall_sums_are_short_chains() -> None:
    x = np.random.default_rng(0).integers(-9, 10, (32771, 3)).astype(np.float32)
    gpu_laws.tall_sums_are_short_chains(axis_sums, x, (0,))


# Bugs


BUGS = [
    Bug("labels on a GPU are looked at in every step", "checked_labels", "on_host and labels.size",
        "labels.size", a_step_waits_once, "waits 3 times"),
    Bug("a ReLU's ties are looked at on the host", "elementwise.relu", "    y = positive_part(x)\n",
        "    x.max().item()\n    y = positive_part(x)\n", a_step_waits_once, "waits 2 times"),
    Bug("clipping waits for each parameter", "squared_norms",
        "to_floats([array_module(x).vdot(x, x) for x in arrays])",
        "[float(array_module(x).vdot(x, x)) for x in arrays]", clipping_waits_once_more, "waits 13 times"),
    Bug("a stack of transposed matrices is multiplied", "im2col_kernels.im2col",
        "product(gs, windows(images), out=total)",
        "total += (windows(images)[None].transpose(0, 2, 1) @ gs.T[None])[0].T", products_copy_nothing,
        "operands of products"),
    Bug("windows start at the image's edge", "copy_kernel", "+ kx * dw - pw", "+ kx * dw",
        convolution_as_kernels_is_convolution, "the value"),
    Bug("a window beside the image wraps round", "copy_kernel", "(column >= 0) & (column < width)",
        "(width > 0)", convolution_as_kernels_is_convolution, "the value|a kernel uses elements"),
    Bug("a stride is not seen going back", "sum_kernel", "& (a % down == 0) ", "",
        convolution_as_kernels_is_convolution, "the image gradient"),
    Bug("a window's rows and columns change places", "sum_kernel", "* kh + ky) * kw + kx)",
        "* kw + kx) * kh + ky)", convolution_as_kernels_is_convolution, "the image gradient"),
    Bug("one image at a time is multiplied", "MOST_BYTES", "MOST_BYTES = 1 << 28", "MOST_BYTES = 1",
        convolution_as_kernels_is_convolution, "launches"),
    Bug("a kernel's ReLU has slope 1 at 0", "elementwise_kernels.where_positive", "choose(y != zero,",
        "choose(y >= zero,", a_function_is_one_kernel_each_way, "the gradient"),
    Bug("a ReLU's gradient is two kernels", "where_positive_without_a_mask",
        "    if kernels.can_take(g, y):\n        return", "    if False:\n        return",
        a_function_is_one_kernel_each_way, "launches"),
    Bug("a kernel's logistic function falls", "elementwise_kernels.logistic", "exp(-x)", "exp(x)",
        a_function_is_one_kernel_each_way, "the value"),
    Bug("a kernel's logistic slope is that at 1", "elementwise_kernels.logistic_gradient",
        "(one - y) * y * g", "(one - y) * g", a_function_is_one_kernel_each_way, "the gradient"),
    Bug("a kernel's exponential of a loss overflows", "logistic_losses", "exp(choose(x > 0, -x, x))",
        "exp(-x)", a_function_is_one_kernel_each_way, "the value"),
    Bug("a kernel's logistic loss has no target", "loss_kernels.logistic_gradient", "(1 + exp(-x)) - t)",
        "(1 + exp(-x)))", a_function_is_one_kernel_each_way, "the gradient"),
    Bug("a negative index on a GPU wraps round", "linear.embedding", "(indices >= 0) & (indices < rows)",
        "indices < rows", wrong_labels_stop_training, "the loss of"),
    Bug("an index of the host stays there", "unwrap",
        "if not isinstance(index, list | range) and (xp is np or not isinstance(index, np.ndarray)):",
        "if True:", indices_are_uploaded_once, "1 backward|TypeError"),
    Bug("an image arrives on the GPU in C order", "to_device", "if on_gpu(x) or x.flags.c_contiguous:",
        "if True:", images_stay_channels_last, "strides .* became"),
    Bug("a ufunc on the GPU writes C order", "memory_order.in_memory_order",
        "if not any(map(is_channels_last, arrays)) or", "if True or", images_stay_channels_last, "strides"),
    Bug("a sum of gradients is in C order", "sum_in_order", "a + b if xp is np else", "a + b if True else",
        images_stay_channels_last, "strides"),
    Bug("devices are mixed without a word of it", "op.check_inputs",
        "    if len({on_gpu(x) for x in shaped}) > 1:", "    if False:", one_device_is_asked_for,
        "TypeError|AssertionError"),
    Bug("a kernel gives the gradient to the last largest", "largest_kernel", "(x{i} > y) |", "(x{i} >= y) |",
        pooling_as_a_kernel_is_pooling, "the gradient"),
    Bug("a maximum of two windows gets the last one's gradient", "max_of_places", "d[place] += xp.where",
        "d[place] = xp.where", pooling_as_a_kernel_is_pooling, "the gradient"),
    Bug("a kernel compares NaN", "largest_kernel", " | (x{i} != x{i})", "", pooling_as_a_kernel_is_pooling,
        "the (gradient|largest)"),
    Bug("a kernel's Nesterov step is the plain one", "optim_kernels.sgd", "if optimizer.nesterov else",
        "if False else", an_update_as_a_kernel_is_the_update, "Mismatched"),
    Bug("an update is several kernels", "Optimizer.apply", "if gpu_form is not None and on_gpu(w) and",
        "if False and", an_update_as_a_kernel_is_the_update, "kernels"),
    Bug("each parameter has a kernel of its own", "MOST_PARAMETERS", "MOST_PARAMETERS = 16",
        "MOST_PARAMETERS = 1", an_update_as_a_kernel_is_the_update, "2 kernels"),
    Bug("an update starts at the wrong parameter", "kernel_of", "i < start{k + 1}", "i <= start{k + 1}",
        an_update_as_a_kernel_is_the_update, "a kernel uses elements|Mismatched"),
    Bug("a kernel's mean of squares is not corrected", "optim_kernels.adam", "sqrt({variance} / correction)",
        "sqrt(s)", adam_as_a_kernel_is_adam, "Mismatched"),
    Bug("a kernel knows no maximum", "optim_kernels.adam", 'variance = "max_s" if', 'variance = "s" if',
        adam_as_a_kernel_is_adam, "Mismatched"),
    Bug("a kernel has the settings of another group", "Optimizer.apply", "gpu_form(group, some)",
        "gpu_form(self, some)", groups_are_one_kernel_each, "Mismatched"),
    Bug("a kernel decays nothing", "optim_kernels.adam", 'f"g = {slope_with(decay)}"', '"g = g"',
        adam_as_a_kernel_is_adam, "Mismatched"),
    Bug("an optimizer of one's own gets SGD's kernel", "Optimizer.apply", "GPU_FORMS.get(type(self).update)",
        "GPU_FORMS.get(SGD.update)", an_own_update_is_used, "Mismatched"),
    Bug("a rate on the GPU is a number", "update_together", "if on_gpu(x) else x for x in numbers",
        "for x in [0]", coefficients_may_be_on_the_gpu, "Error"),
    Bug("a kernel's label has no share", "cross_entropy_gradient", "choose(label == i % classes, 1, 0)", "0",
        cross_entropy_as_kernels_is_cross_entropy, "the gradient"),
    Bug("a kernel's exponentials may overflow", "losses_of_rows", "(value > largest) |",
        "(value < largest) |", cross_entropy_as_kernels_is_cross_entropy, "the loss"),
    Bug("a kernel takes any number for a class", "IS_CLASS", "(label >= 0) & (label < classes)",
        "label == label", wrong_labels_stop_training, "the loss of"),
    Bug("a bias's gradient is a view, which its leaf copies", "undo_broadcast",
        "d.reshape(shape) if repeated or not shape else d", "d.reshape(shape)",
        a_sum_of_a_gradient_is_no_view, "3 kernels"),
    Bug("cross-entropy on a GPU is the readable one", "cross_entropy_from_the_softmax",
        "if plain and can_take(x) else", "if False else", a_step_takes_few_kernels, "more than (18|32)"),
    Bug("each backward makes its own 1", "seed_for", "xp is not np and not own:", "False:",
        a_step_takes_few_kernels, "more than (18|32)"),
    Bug("a result that was given away is read again", "once_for_all", "last[1][i] = read(g, i), None",
        "last[1][i] = read(g, i), read(g, i)", what_was_given_away_is_computed_again, "given away"),
    Bug("pooling looks for NaN on the host", "max_of_places", "    def to_x(",
        "    bool(xp.isnan(y).any())\n\n    def to_x(", a_step_waits_once, "waits 2 times"),
    Bug("a list beside a tensor of a GPU stays on the host", "as_operand", "    if array is not x and any(",
        "    if False and any(", lists_are_moved, "one device"),
    Bug("a tall sum is left to one block", "sums_on_gpu", "if rows <= TALL or", "if True or",
        tall_sums_are_short_chains, "long chains"),
    Bug("rows after the last part are in no sum", "sums_on_gpu", "if covered < rows:", "if False:",
        tall_sums_are_short_chains, "are others"),
]  # fmt: skip
