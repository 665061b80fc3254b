"""Bugs of captured steps; they are hunted where ``cupy`` is the double, which records graphs."""

from minigrad.capture import Captured
from tests.bugs.bug import Bug
from tests.minigrad.capture_laws import Case, a_step_is_two_graphs, captured_equals_eager, training_step

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
    a_step_is_two_graphs(training_step(Captured(), Case()), 1)
    a_step_is_two_graphs(training_step(Captured(), Case(), read=False), 1, reads=0)


# Bugs


BUGS = [
    Bug("the rate is a number in the graph", "CapturedUpdate.apply", "update._replace(coefficients=of_gpu)",
        "update", captured_heavy_ball_with_batch_norm_is_eager, "losses|array"),
    Bug("samples are not copied to the graph's memory", "CapturedStep.run",
        "self.batch.x[...], self.batch.y[...] = batch.x, batch.y", "self.batch = batch",
        captured_heavy_ball_with_batch_norm_is_eager, "losses"),
    Bug("a graph has the same masks at each launch", "StepMasks.begin",
        "array.set(mask._replace(step=step).keep(array.shape, p))", "pass",
        captured_dropout_with_adam_is_eager, "losses"),
    Bug("a graph has one mask for all layers", "StepMasks.array", "    self.calls += 1\n", "",
        captured_dropout_with_adam_is_eager, "losses"),
    Bug("a graph counts its recordings as steps", "Captured.launch", "self.latest.run(batch, step)",
        "self.latest.run(batch, len(self.steps))", captured_dropout_with_adam_is_eager, "losses"),
    Bug("the loss is read in the capture", "CapturedStep.forward_backward", "mean_loss(work).data)",
        "mean_loss(work).data.get())", captured_dropout_with_adam_is_eager, "cannot be captured .*D2H"),
    Bug("the steps of Adam are not counted", "CapturedUpdate.run",
        "self.updates = list(self.optimizer.updates())",
        "self.updates = self.updates or list(self.optimizer.updates())", captured_dropout_with_adam_is_eager,
        "losses|state"),
    Bug("a graph's memory is that of everybody", "Recording.capture", "using_allocator(self.pool.malloc)",
        "Device()", captured_changes_are_eager, "losses|array|state"),
    Bug("a graph's memory is given back", "Recording.capture", "using_allocator(self.pool.malloc)",
        "using_allocator(self.cuda.MemoryPool().malloc)", captured_heavy_ball_with_batch_norm_is_eager,
        "IllegalAddress"),
    Bug("the settings of the optimizer are numbers in the graph", "CapturedStep.update",
        "update is None or update.constants != constants_of(optimizer)", "update is None",
        captured_changes_are_eager, "losses|state"),
    Bug("a graph goes by the mode of its first step", "Captured.launch", "*arrays, *modes,", "*arrays,",
        captured_changes_are_eager, "losses|array|gradient"),
    Bug("a graph keeps the statistics that were there first", "Captured.launch", "*modes, *addresses)",
        "*modes)", captured_restored_arrays_are_eager, "running|accuracies"),
    Bug("a graph keeps the state that was there first", "constants_of",
        "[value.data.ptr for value in values if on_gpu(value)]", "[]", captured_restored_arrays_are_eager,
        "losses|state|accuracies"),
    Bug("a graph starts before the samples are there", "Recording.ordered",
        "    self.stream.wait_event(outer.record())\n", "", captured_steps_with_late_kernels_are_eager,
        "losses|finite|loss is"),
    Bug("nobody waits for the graph", "Recording.ordered", "    outer.wait_event(self.stream.record())\n", "",
        captured_steps_with_late_kernels_are_eager, "losses|accuracies|loss is"),
    Bug("the loss of several micro-batches is that of the last", "CapturedStep.forward_backward",
        "    self.losses = []\n    loss_fn", "    loss_fn", captured_micro_batches_are_eager, "losses"),
    Bug("the divisor of micro-batches is that of their part", "CapturedStep.forward_backward",
        "if isinstance(loss_fn, WeightedMean):", "if False:", captured_micro_batches_have_one_divisor,
        "of a part of the batch"),
    Bug("nothing is ever captured", "Recording.run", "if self.is_new:", "if True:",
        a_captured_step_is_two_graphs, "graph launch': 0"),
    Bug("the loss is read where nobody asks", "CapturedStep.run", "        self.passes.run()\n",
        "        self.passes.run()\n        self.loss()\n", a_captured_step_is_two_graphs,
        "synchronize': [12]"),
    Bug("a product is CuPy's in a capture", "on_own_stream", "not in DEFAULT_STREAMS", "in DEFAULT_STREAMS",
        captured_micro_batches_are_eager, "cuBLAS API during stream capture"),
    Bug("cuBLAS gets a matrix of rows for one of columns", "cublas.product", "int(not left_by_columns)",
        "int(left_by_columns)", captured_micro_batches_are_eager, "losses|status|IllegalAddress"),
    Bug("cuBLAS has no workspace", "handle_of",
        '    call(xp, "cublasSetWorkspace_v2", pointer, workspace.data.ptr, workspace.nbytes)', "    pass",
        captured_micro_batches_are_eager, "without a workspace"),
]  # fmt: skip
