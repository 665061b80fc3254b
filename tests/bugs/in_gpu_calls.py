"""Bugs of what a GPU is asked to do; they are hunted where ``cupy`` is the double that counts calls."""

import inspect
import itertools

import numpy as np

from minigrad import ops, optim
from minigrad.device import to_device
from minigrad.models import NETS
from minigrad.ops import loss_kernels, pool_kernels
from minigrad.ops.geometry import Geometry
from tests.bugs.bug import Bug
from tests.minigrad import gpu_laws

# Laws


def a_step_waits_once() -> None:
    sgd = lambda parameters: optim.SGD(parameters, 0.01)  # noqa: E731
    gpu_laws.a_step_waits(1, gpu_laws.training_step(NETS["lenet"], sgd, 2))


def a_step_takes_few_kernels() -> None:
    sgd = lambda parameters: optim.SGD(parameters, 0.01)  # noqa: E731
    gpu_laws.a_step_launches(57, gpu_laws.training_step(NETS["lenet"], sgd, 2))


def clipping_waits_once_more() -> None:
    gpu_laws.a_step_waits(2, gpu_laws.training_step(NETS["mlp"], gpu_laws.clipping(optim.SGD), 2))


def products_copy_nothing() -> None:
    sgd = lambda parameters: optim.SGD(parameters, 0.01)  # noqa: E731
    gpu_laws.products_copy_no_operand(gpu_laws.training_step(NETS["lenet"], sgd, 2))


def wrong_labels_stop_training() -> None:
    for kind, labels in itertools.product((np.float64, np.float16), ([0, 3, 1], [-1, 0, 1])):
        logits = np.random.default_rng(0).normal(size=(3, 3)).astype(kind)
        gpu_laws.a_wrong_label_stops_training(ops.cross_entropy, logits, np.array(labels))
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


def cross_entropy_as_kernels_is_cross_entropy() -> None:
    logits, labels = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 2, 1, 1])
    readable = inspect.unwrap(ops.cross_entropy)
    gpu_laws.cross_entropy_is_the_readable_one(loss_kernels.cross_entropy, readable, logits, labels)


def an_update_as_a_kernel_is_the_update() -> None:
    settings = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}
    gpu_laws.an_update_is_the_readable_one(lambda w: optim.SGD(w, 0.5, **settings), (2, 3))


# Bugs

LOSS, OPTIM, DEVICE = "minigrad.ops.loss", "minigrad.optim", "minigrad.device"

BUGS = [
    Bug("labels on a GPU are looked at in every step", LOSS, "    if on_gpu(labels):\n        check_kind",
        "    if on_gpu(labels):\n        checked_labels(labels, shape_of(logits))\n        check_kind",
        a_step_waits_once, "waits 3 times"),
    Bug("a ReLU's ties are looked at on the host", "minigrad.ops.elementwise",
        "    y = xp.maximum(x, xp.zeros", "    x.max().item()\n    y = xp.maximum(x, xp.zeros",
        a_step_waits_once, "waits 4 times"),
    Bug("clipping waits for each parameter", OPTIM,
        "to_floats([array_module(x).vdot(x, x) for x in arrays])",
        "[float(array_module(x).vdot(x, x)) for x in arrays]", clipping_waits_once_more, "waits 13 times"),
    Bug("a stack of one transposed matrix is multiplied as a stack", "minigrad.ops.im2col",
        "product(stack[0].T, gs[0]) if len(stack) == 1 else ", "", products_copy_nothing,
        "operands of products"),
    Bug("a wrong label on a GPU wraps round", LOSS, "(labels >= 0) & (labels < classes)", "labels == labels",
        wrong_labels_stop_training, "the loss of"),
    Bug("a negative index on a GPU wraps round", "minigrad.ops.linear", "(indices >= 0) & (indices < rows)",
        "indices < rows", wrong_labels_stop_training, "the loss of"),
    Bug("an index of the host stays there", "minigrad.ops.shape",
        "    if xp is np or not isinstance(index, list | np.ndarray):", "    if True:",
        indices_are_uploaded_once, "1 backward|TypeError"),
    Bug("an image arrives on the GPU in C order", DEVICE, "if on_gpu(x) or x.flags.c_contiguous:", "if True:",
        images_stay_channels_last, "strides .* became"),
    Bug("a ufunc on the GPU writes C order", "minigrad.ops.geometry",
        "if not any(map(is_channels_last, arrays)) or", "if True or", images_stay_channels_last, "strides"),
    Bug("a sum of gradients is in C order", DEVICE, "a + b if xp is np else", "a + b if True else",
        images_stay_channels_last, "strides"),
    Bug("devices are mixed without a word of it", "minigrad.op",
        "    if len({on_gpu(x) for x in shaped}) > 1:", "    if False:", one_device_is_asked_for,
        "TypeError|AssertionError"),
    Bug("a kernel gives the gradient to the last largest", "minigrad.ops.pool_kernels", "(x{i} > y) |",
        "(x{i} >= y) |", pooling_as_a_kernel_is_pooling, "the gradient"),
    Bug("a kernel compares NaN", "minigrad.ops.pool_kernels", " | (x{i} != x{i})", "",
        pooling_as_a_kernel_is_pooling, "the (gradient|largest)"),
    Bug("a kernel's Nesterov step is the plain one", "minigrad.optim_kernels", "if nesterov else",
        "if False else", an_update_as_a_kernel_is_the_update, "Mismatched"),
    Bug("an update is several kernels", OPTIM, "if on_gpu(w) and g.dtype == w.dtype:", "if False:",
        an_update_as_a_kernel_is_the_update, "kernels"),
    Bug("a kernel's label has no share", "minigrad.ops.loss_kernels", "choose(label == column, 1, 0)",
        "0", cross_entropy_as_kernels_is_cross_entropy, "the gradient"),
    Bug("a kernel's exponentials may overflow", "minigrad.ops.loss_kernels", "p = exp(x - largest)",
        "p = exp(x)", cross_entropy_as_kernels_is_cross_entropy, "the loss"),
    Bug("a kernel takes any number for a class", "minigrad.ops.loss_kernels",
        "(label >= 0) & (label < classes)", "label == label", wrong_labels_stop_training, "the loss of"),
    Bug("a bias's gradient is a view, which its leaf copies", "minigrad.tape",
        "    if on_gpu(g) and not repeated:", "    if False:", a_step_takes_few_kernels, "61 kernels"),
    Bug("cross-entropy on a GPU is the readable one", LOSS,
        "if on_gpu(logits) and logits.dtype in (np.float32, np.float64):", "if False:",
        a_step_takes_few_kernels, "more than 57"),
    Bug("pooling looks for NaN on the host", "minigrad.ops.pool_kernels", "    def to_x(",
        "    bool(xp.isnan(y).any())\n\n    def to_x(", a_step_waits_once, "waits 3 times"),
    Bug("a list beside a tensor of a GPU stays on the host", "minigrad.tensor",
        "    if array is not x and any(", "    if False and any(", lists_are_moved, "one device"),
]  # fmt: skip
