"""Bugs of what an engineer brings: nets, buffers, hooks, losses, initial numbers, data and loops."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel import BackupWorkers
from minigrad import cifar, mnist, nn, no_grad, optim
from minigrad.nn import init
from tests.backends import constant_laws, own_net_laws
from tests.backends.comm import conformance
from tests.bugs.bug import Bug
from tests.minigrad import cifar_laws, optimizer_state_laws, tape_laws
from tests.minigrad.nn import element_loss_laws, init_laws

# Laws


def an_own_net_trains_by_all_axes() -> None:
    own_net_laws.an_own_net_trains_like_serial("data, pipe, model")


def an_own_net_trains_beside_synchronized_batch_norms() -> None:
    own_net_laws.an_own_net_trains_like_serial("data, synchronized")


def an_own_net_trains_where_experts_may_be() -> None:
    own_net_laws.an_own_net_trains_like_serial("experts")


def a_mask_stays_as_it_is() -> None:
    constant_laws.a_constant_stays_as_it_is(name="no binary fraction")
    constant_laws.a_constant_stays_as_it_is(BackupWorkers, name="no binary fraction")


def what_is_wrong_shows_beside_a_mask() -> None:
    constant_laws.what_is_wrong_shows_beside_a_constant()


def a_training_with_a_mask_is_right() -> None:
    constant_laws.a_right_training_with_a_mask_is_proved()


def hooks_are_layers_in_their_place() -> None:
    own_net_laws.hooks_are_layers_in_their_place()


def collectives_have_the_names_of_mpi4py() -> None:
    run_ranks(3, conformance.collectives_have_the_names_of_mpi4py)


def optimizers_go_on_with_the_same_bits() -> None:
    for make in (lambda ps: optim.Adam(ps, 0.3), lambda ps: optim.SGD(ps, 0.3, momentum=0.9)):
        optimizer_state_laws.goes_on_with_the_same_bits(make, 3, 6)


def nothing_is_recorded_without_gradients() -> None:
    tape_laws.nothing_is_recorded(no_grad)


def initial_numbers_are_by_the_book() -> None:
    init_laws.xavier_is_by_the_book(init, (40, 10, 3), 0.5)
    for mode in ("fan_in", "fan_out"):
        init_laws.kaiming_is_by_the_book(init, (40, 10, 3), mode, "leaky_relu", 0.5)


def losses_of_elements_are_by_the_book() -> None:
    x, y = np.random.default_rng(0).random((2, 5, 3))
    for name in element_loss_laws.FORMULAS:
        for reduction in ("mean", "sum"):
            element_loss_laws.is_by_the_book(name, x, y, reduction)


def the_nll_loss_is_by_the_book() -> None:
    x, labels = np.random.default_rng(0).normal(size=(5, 3)), np.array([1, 0, 2, 2, 1])
    for weight in (None, [0.5, 1.0, 3.0]):
        element_loss_laws.nll_is_by_the_book(nn.NLLLoss, x, labels, weight, 0)


def images_are_read_as_they_were_written() -> None:
    for classes, labels in ((10, "fine"), (100, "fine"), (100, "coarse")):
        with tempfile.TemporaryDirectory() as folder:
            cifar_laws.cifar_is_read(cifar.load, Path(folder), classes, 2, 0, labels)
    with tempfile.TemporaryDirectory() as folder:
        cifar_laws.idx_files_are_read(mnist.from_folder, Path(folder), 3, 0, True)


# Bugs

BUGS = [
    Bug("what a hook returns is thrown away", "hooks.changed", "return x if y is None else y", "return x",
        hooks_are_layers_in_their_place, "Mismatch"),
    Bug("a hook of the gradient is called with another layer's", "Hooks.tensor",
        "hooks.get(port.layer)", 'hooks.get(port.layer.replace("0", "3"))',
        hooks_are_layers_in_their_place, "Mismatch"),
    Bug("a hook is called with the inputs of its layer, too", "Hooks.tensor",
        'if port.end.startswith("input"):', "if not port.end:", hooks_are_layers_in_their_place, "Mismatch"),
    Bug("a hook sees a gradient without what comes after", "hooks.hooked", "(lambda g: changed(hook, g),)",
        "(lambda g: (changed(hook, g), g)[1],)", hooks_are_layers_in_their_place, "Mismatch"),
    Bug("own buffers of ranks part where batch-norms are synchronized", "StepSummary.__init__",
        "if statistics or not isinstance(o, BatchNorm)", "if statistics",
        an_own_net_trains_beside_synchronized_batch_norms, "0.center differs|the loss"),
    Bug("buffers are the sum over ranks", "StepSummary.unpack", "weighted_sum / fraction", "weighted_sum * 2",
        an_own_net_trains_by_all_axes, "differs|the loss"),
    Bug("a buffer is looked for among the experts' parameters", "refuse_uses_elsewhere",
        "id(vars(owner)[attribute]) in stacks", "vars(owner)[attribute] in stacks",
        an_own_net_trains_where_experts_may_be, "unhashable"),
    Bug("what the root has is nothing", "Communicator.bcast", "if self.rank == root", "if self.rank",
        collectives_have_the_names_of_mpi4py, ""),
    Bug("a reduction is always a sum", "Communicator.reduce", "as_array(x), op,", "as_array(x), np.add,",
        collectives_have_the_names_of_mpi4py, ""),
    Bug("who does not gather has an empty list", "Communicator.gather",
        "return arrays if self.rank == root else None", "return arrays",
        collectives_have_the_names_of_mpi4py, ""),
    Bug("parts come from rank 0", "Communicator.scatter", "self.collective(scatter, arrays, root)",
        "self.collective(scatter, arrays)", collectives_have_the_names_of_mpi4py, ""),
    Bug("a loaded state is that of the file", "Optimizer.load_state_dict",
        'array(x) if hasattr(x, "shape") else x', "x", optimizers_go_on_with_the_same_bits,
        "the state changed"),
    Bug("a saved state goes on with the optimizer", "Optimizer.state_dict", "to_host(x).copy()", "to_host(x)",
        optimizers_go_on_with_the_same_bits, "the state changed|differs"),
    Bug("the learning rate is not saved", "NO_SETTINGS", '"groups", "master_weights"',
        '"groups", "master_weights", "lr"', optimizers_go_on_with_the_same_bits, ""),
    Bug("inside no_grad the tape goes on", "tape.no_grad", "current_tape.set(None)",
        "current_tape.set(current_tape.get())", nothing_is_recorded_without_gradients, ""),
    Bug("a window has one input", "init.fans", "return n_in * math.prod(window)", "return n_in",
        initial_numbers_are_by_the_book, "deviation"),
    Bug("a uniform number is within one deviation", "kaiming_uniform_", "math.sqrt(3) * ", "",
        initial_numbers_are_by_the_book, "is"),
    Bug("the gain of a leaky ReLU is that of a ReLU", "init.kaiming", "(1 + slope * slope)", "1",
        initial_numbers_are_by_the_book, "deviation"),
    Bug("a part of a sum is weighted by its samples", "ElementLoss.for_parts_of",
        'self if self.reduction == "mean" else super().for_parts_of(y)', "self",
        losses_of_elements_are_by_the_book, "Mismatch"),
    Bug("a mean over elements divides by samples", "OpLoss.count", "np.prod(np.shape(y))", "len(y)",
        losses_of_elements_are_by_the_book, "Mismatch"),
    Bug("a log-probability is taken for a logit", "OpLoss.__call__", "type(self).op(",
        "ops.cross_entropy(",
        the_nll_loss_is_by_the_book, "Mismatch"),
    Bug("a state array that nobody wrote becomes a mean", "StepSummary.written", "(s != before).any()",
        "True", a_mask_stays_as_it_is, "changed on rank"),
    Bug("a collector averages what nobody wrote", "StepSummary.unpack",
        "if written and fraction", "if fraction", a_mask_stays_as_it_is, "changed on rank"),
    Bug("a huge constant is the scale of what changes", "laws.distances", "difference(x, start[name])", "x",
        what_is_wrong_shows_beside_a_mask, "PROVED"),
    Bug("equal infinities differ", "laws.difference", ", where=a != b", "", a_training_with_a_mask_is_right,
        "NOT EQUAL"),
    Bug("coarse labels are fine ones", "cifar.load", '0 if classes == 10 or labels == "coarse" else 1', "0",
        images_are_read_as_they_were_written, "Mismatch"),
    Bug("colors stand beside one another", "cifar.load", "reshape(-1, 3, 32, 32)",
        "reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)", images_are_read_as_they_were_written, "Mismatch"),
    Bug("the test set is the training set", "mnist.from_folder", "x, y, x_test, y_test = arrays",
        "x, y, x_test, y_test = arrays[:2] * 2", images_are_read_as_they_were_written, "not equal"),
]  # fmt: skip
