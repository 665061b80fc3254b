"""Bugs of captured steps; they are hunted where ``cupy`` is the double, which records graphs."""

from minigrad.capture import Captured
from tests.bugs.bug import Bug
from tests.minigrad.capture_laws import Case, a_step_is_two_graphs, captured_equals_eager, training_step
from tests.minigrad.captured_change_laws import (
    a_change_is_seen,
    a_step_is_one_graph,
    calls_do_not_depend_on_the_number_of_modules,
    steps_of_a_number_that_changes_are_not_kept,
)

# Laws


def captured_dropout_with_adam_is_eager() -> None:
    captured_equals_eager(Captured, Case(net="branches", optimizer="adam", schedule="constant"))


def captured_heavy_ball_with_batch_norm_is_eager() -> None:
    captured_equals_eager(Captured, Case(net="normalized", optimizer="heavy ball", schedule="warm-up"))


def captured_changes_are_eager() -> None:
    for change, net in (("momentum", "mlp"), ("frozen layers", "normalized"), ("a frozen weight", "mlp")):
        captured_equals_eager(Captured, Case(net=net, optimizer="sgd", change=change))


def captured_restored_arrays_are_eager() -> None:
    for net in ("normalized", "mlp"):
        captured_equals_eager(Captured, Case(net=net, change="restored arrays"))


def captured_micro_batches_are_eager() -> None:
    captured_equals_eager(Captured, Case(net="convolutional", samples=11, batch=5, micro_batches=2))


def captured_micro_batches_have_one_divisor() -> None:
    captured_equals_eager(Captured, Case(loss="weighted", micro_batches=2))


def captured_steps_with_late_kernels_are_eager() -> None:
    captured_equals_eager(Captured, Case(late=True))


def a_captured_step_is_two_graphs() -> None:
    a_step_is_two_graphs(training_step(Captured(), Case()), 0)
    a_step_is_two_graphs(training_step(Captured(), Case(), read=False), 0, reads=0)


def changes_of_a_model_are_seen() -> None:
    for change in (
        "a layer in a list",
        "a number",
        "a number in a list",
        "statistics",
        "a setting of the loss",
    ):
        a_change_is_seen(change)


def a_new_array_of_a_parameter_is_seen() -> None:
    a_change_is_seen("the array of a parameter")


def a_frozen_weight_is_seen() -> None:
    a_change_is_seen("a frozen weight")


def a_transposed_weight_is_seen() -> None:
    a_change_is_seen("a transposed weight")


def an_activation_without_arrays_is_seen() -> None:
    a_change_is_seen("a layer without attributes")


def a_setting_of_the_loss_is_seen() -> None:
    a_change_is_seen("a setting of the loss")


def a_number_is_seen() -> None:
    a_change_is_seen("a number")


def another_gradient_is_seen() -> None:
    a_change_is_seen("a gradient")


def a_momentum_in_a_list_is_seen() -> None:
    a_change_is_seen("a momentum in a list", "adam")


def a_decay_of_a_group_is_seen() -> None:
    a_change_is_seen("the decay of a group", "groups")


def a_late_array_of_a_parameter_is_seen() -> None:
    a_change_is_seen("the array of a parameter, late")


def changes_are_seen_by_one_graph() -> None:
    for change in ("the rate", "the decay", "a checkpoint"):
        a_change_is_seen(change, "adam", together=True)


def clipping_is_seen_by_one_graph() -> None:
    a_change_is_seen("clipping", "adam", together=True)


def a_constant_rate_is_not_uploaded() -> None:
    a_step_is_one_graph("sgd", uploads=0)


def a_step_walks_through_nothing() -> None:
    calls_do_not_depend_on_the_number_of_modules(together=False)


# Bugs


BUGS = [
    Bug("the rate is a number in the graph", "CapturedUpdate.apply", "g=g, coefficients=of_gpu", "g=g",
        captured_heavy_ball_with_batch_norm_is_eager, "losses|array"),
    Bug("samples are not copied to the graph's memory", "CapturedStep.run",
        "self.batch.x[...], self.batch.y[...] = batch.x, batch.y", "self.batch = batch",
        captured_heavy_ball_with_batch_norm_is_eager, "losses"),
    Bug("a graph has the same masks at each launch", "StepMasks.begin",
        "array.set(mask._replace(step=step).keep(array.shape, p))", "pass",
        captured_dropout_with_adam_is_eager, "losses"),
    Bug("a graph has one mask for all layers", "StepMasks.array", "    self.calls += 1\n", "",
        captured_dropout_with_adam_is_eager, "losses"),
    Bug("a graph counts its recordings as steps", "Captured.launch", "step.run(batch, number)",
        "step.run(batch, len(self.steps))", captured_dropout_with_adam_is_eager, "losses"),
    Bug("the loss is read in the capture", "CapturedStep.compute", "forward_pass, loss = mean_loss(work)\n",
        "forward_pass, loss = mean_loss(work)\n            loss.data.get()\n",
        captured_dropout_with_adam_is_eager, "cannot be captured .*D2H"),
    Bug("the steps of Adam are not counted", "CapturedUpdate.count_step",
        "self.updates = list(self.optimizer.updates())",
        "self.updates = self.updates or list(self.optimizer.updates())", captured_dropout_with_adam_is_eager,
        "losses|state"),
    Bug("a graph's memory is that of everybody", "Recording.capture", "using_allocator(self.pool.malloc)",
        "Device()", captured_changes_are_eager, "losses|array|state"),
    Bug("a graph's memory is given back", "Recording.capture", "using_allocator(self.pool.malloc)",
        "using_allocator(self.cuda.MemoryPool().malloc)", captured_heavy_ball_with_batch_norm_is_eager,
        "IllegalAddress"),
    Bug("the settings of the optimizer are numbers in the graph", "CapturedStep.update",
        "update is None or not update.is_current()", "update is None",
        captured_changes_are_eager, "losses|state"),
    Bug("a graph keeps the state that was there first", "constants_of",
        " + [x for state in optimizer.state for x in state.values() if x.__class__ is kind]", "",
        captured_restored_arrays_are_eager, "losses|state|accuracies"),
    Bug("a graph starts before the samples are there", "Recording.ordered",
        "    self.stream.wait_event(outer.record(self.event))\n", "",
        captured_steps_with_late_kernels_are_eager, "losses|finite|loss is"),
    Bug("nobody waits for the graph", "Recording.ordered",
        "    outer.wait_event(self.stream.record(self.event))\n", "",
        captured_steps_with_late_kernels_are_eager, "losses|accuracies|loss is"),
    Bug("the loss of several micro-batches is that of the last", "CapturedStep.compute",
        "    self.losses = []\n    loss_fn", "    loss_fn", captured_micro_batches_are_eager, "losses"),
    Bug("the divisor of micro-batches is that of their part", "CapturedStep.compute",
        "if isinstance(loss_fn, WeightedMean):", "if False:", captured_micro_batches_have_one_divisor,
        "of a part of the batch"),
    Bug("nothing is ever captured", "Recording.run", "if self.is_new:", "if True:",
        a_captured_step_is_two_graphs, "graph launch': 0"),
    Bug("the loss is read where nobody asks", "CapturedStep.run", "        self.recording.run()\n",
        "        self.recording.run()\n        self.loss()\n", a_captured_step_is_two_graphs,
        "synchronize': [12]"),
    Bug("a step looks at the model once", "Snapshot.is_current",
        " and identical(self.objects, self.read())", "", changes_of_a_model_are_seen,
        "have not seen a layer in a list"),
    Bug("a step does not look into lists", "Snapshot", "(dict, list, tuple, set, frozenset)", "dict",
        changes_of_a_model_are_seen, "have not seen a layer in a list"),
    Bug("a step does not look into the loss function", "Snapshot",
        '[model, getattr(loss_fn, "__dict__", None)]', "[model]", a_setting_of_the_loss_is_seen,
        "have not seen"),
    Bug("a step does not look at the arrays of parameters", "Snapshot.read", '"data", "requires_grad"',
        '"index", "requires_grad"', a_new_array_of_a_parameter_is_seen, "have not seen"),
    Bug("a step does not look which parameters are frozen", "Snapshot.read", '"data", "requires_grad"',
        '"data", "index"', a_frozen_weight_is_seen, "have not seen"),
    Bug("a graph goes by where an array begins", "identity", "x.data.ptr, x.shape, x.strides", "x.data.ptr",
        a_transposed_weight_is_seen, "have not seen"),
    Bug("a graph goes by no layer without arrays", "identity", "else id(x)", "else 0",
        an_activation_without_arrays_is_seen, "have not seen"),
    Bug("a graph goes by no numbers", "identity", "return repr(x) if", "return '' if", a_number_is_seen,
        "have not seen"),
    Bug("the model is walked through in each step", "Captured.launch",
        "if snapshot is None or not snapshot.is_current(model, loss_fn):", "if True:",
        a_step_walks_through_nothing, "calls by the number of layers"),
    Bug("steps without a graph are kept", "Captured.launch", "del self.steps[key]", "pass",
        steps_of_a_number_that_changes_are_not_kept, "steps are kept"),
    Bug("an update goes by gradients that are gone", "CapturedStep.update",
        "if not identical(self.gradients, [p.grad for p in self.snapshot.parameters]):", "if False:",
        another_gradient_is_seen, "have not seen"),
    Bug("a list of the optimizer is compared with itself", "constants_of",
        "v.copy() if v.__class__ in (list, dict) else v", "v", a_momentum_in_a_list_is_seen, "have not seen"),
    Bug("a graph keeps the settings of groups", "constants_of", "(optimizer, *optimizer.groups)",
        "(optimizer,)", a_decay_of_a_group_is_seen, "have not seen"),
    Bug("an update goes by parameters that are gone", "constants_of", "for x in (p, p.data, p.requires_grad)",
        "for x in ()", a_late_array_of_a_parameter_is_seen, "have not seen"),
    Bug("a graph with its update keeps the settings", "Captured.launch",
        "not step.own_update.is_current()", "False", changes_are_seen_by_one_graph,
        "have not seen the decay"),
    Bug("a graph with its update has the gradients of the step before", "CapturedUpdate.apply", "g=g, ", "",
        changes_are_seen_by_one_graph, "have not seen|Illegal"),
    Bug("a graph clips by the norms of the step before", "Captured.launch",
        "not optimizer.needs_norms and optimizer.limit is None", "True", clipping_is_seen_by_one_graph,
        "have not seen"),
    Bug("coefficients are uploaded once", "CapturedUpdate.upload", "if rows != self.rows:",
        "if self.coefficients is None or not self.rows:", changes_are_seen_by_one_graph,
        "have not seen the rate"),
    Bug("coefficients are uploaded in each step", "CapturedUpdate.upload", "if rows != self.rows:",
        "if True:", a_constant_rate_is_not_uploaded, "copy to device': 1"),
    Bug("a single loss is stacked", "to_floats", "len(scalars) == 1 or ", "", a_constant_rate_is_not_uploaded,
        "'launch': 3"),
    Bug("a product is CuPy's in a capture", "on_own_stream", "not in DEFAULT_STREAMS", "in DEFAULT_STREAMS",
        captured_micro_batches_are_eager, "cuBLAS API during stream capture"),
    Bug("cuBLAS gets a matrix of rows for one of columns", "cublas.product", "int(not left_by_columns)",
        "int(left_by_columns)", captured_micro_batches_are_eager, "losses|status|IllegalAddress"),
    Bug("cuBLAS has no workspace", "handle_of",
        '    call(xp, "cublasSetWorkspace_v2", pointer, workspace.data.ptr, workspace.nbytes)', "    pass",
        captured_micro_batches_are_eager, "without a workspace"),
]  # fmt: skip
