"""Bugs of captured steps; they are hunted where ``cupy`` is the double, which records graphs."""

from functools import partial

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

bug_of = partial(Bug, where="minigrad.capture")

BUGS = [
    bug_of("the rate is a number in the graph", right="update._replace(coefficients=of_gpu)",
        wrong="update", law=captured_heavy_ball_with_batch_norm_is_eager,
        says="losses|array"),
    bug_of("samples are not copied to the graph's memory",
        right="self.batch.x[...], self.batch.y[...] = batch.x, batch.y", wrong="self.batch = batch",
        law=captured_heavy_ball_with_batch_norm_is_eager, says="losses"),
    bug_of("a graph has the same masks at each launch",
        right="array.set(mask._replace(step=step).keep(array.shape, p))", wrong="pass",
        law=captured_dropout_with_adam_is_eager, says="losses"),
    bug_of("a graph has one mask for all layers", right="        self.calls += 1\n", wrong="",
        law=captured_dropout_with_adam_is_eager, says="losses"),
    bug_of("a graph counts its recordings as steps", right="self.latest.run(batch, step)",
        wrong="self.latest.run(batch, len(self.steps))",
        law=captured_dropout_with_adam_is_eager, says="losses"),
    bug_of("the loss is read in the capture", right="mean_loss(work).data)",
        wrong="mean_loss(work).data.get())", law=captured_dropout_with_adam_is_eager,
        says="cannot be captured .*D2H"),
    bug_of("the steps of Adam are not counted", right="self.updates = list(self.optimizer.updates())",
        wrong="self.updates = self.updates or list(self.optimizer.updates())",
        law=captured_dropout_with_adam_is_eager, says="losses|state"),
    bug_of("a graph's memory is that of everybody",
        right="using_allocator(self.pool.malloc)", wrong="Device()",
        law=captured_changes_are_eager, says="losses|array|state"),
    bug_of("a graph's memory is given back", right="using_allocator(self.pool.malloc)",
        wrong="using_allocator(self.cuda.MemoryPool().malloc)",
        law=captured_heavy_ball_with_batch_norm_is_eager, says="IllegalAddress"),
    bug_of("the settings of the optimizer are numbers in the graph",
        right="update is None or update.constants != constants_of(optimizer)", wrong="update is None",
        law=captured_changes_are_eager, says="losses|state"),
    bug_of("a graph goes by the mode of its first step", right="*arrays, *modes,", wrong="*arrays,",
        law=captured_changes_are_eager, says="losses|array|gradient"),
    bug_of("a graph keeps the statistics that were there first", right="*modes, *addresses)",
        wrong="*modes)", law=captured_restored_arrays_are_eager, says="running|accuracies"),
    bug_of("a graph keeps the state that was there first",
        right="[value.data.ptr for value in values if on_gpu(value)]", wrong="[]",
        law=captured_restored_arrays_are_eager, says="losses|state|accuracies"),
    bug_of("a graph starts before the samples are there",
        right="        self.stream.wait_event(outer.record())\n", wrong="",
        law=captured_steps_with_late_kernels_are_eager, says="losses|finite|loss is"),
    bug_of("nobody waits for the graph", right="        outer.wait_event(self.stream.record())\n", wrong="",
        law=captured_steps_with_late_kernels_are_eager, says="losses|accuracies|loss is"),
    bug_of("the loss of several micro-batches is that of the last",
        right="        self.losses = []\n        loss_fn", wrong="        loss_fn",
        law=captured_micro_batches_are_eager, says="losses"),
    bug_of("the divisor of micro-batches is that of their part",
        right="if isinstance(loss_fn, WeightedMean):", wrong="if False:",
        law=captured_micro_batches_have_one_divisor, says="of a part of the batch"),
    bug_of("nothing is ever captured", right="if self.is_new:", wrong="if True:",
        law=a_captured_step_is_two_graphs, says="graph launch': 0"),
    bug_of("the loss is read where nobody asks", right="            self.passes.run()\n",
        wrong="            self.passes.run()\n            self.loss()\n", law=a_captured_step_is_two_graphs,
        says="synchronize': [12]"),
    Bug("a product is CuPy's in a capture", "minigrad.cublas", "not in DEFAULT_STREAMS", "in DEFAULT_STREAMS",
        captured_micro_batches_are_eager, "cuBLAS API during stream capture"),
    Bug("cuBLAS gets a matrix of rows for one of columns", "minigrad.cublas", "int(not left_by_columns)",
        "int(left_by_columns)", captured_micro_batches_are_eager, "losses|status|IllegalAddress"),
    Bug("cuBLAS has no workspace", "minigrad.cublas",
        '    call(xp, "cublasSetWorkspace_v2", pointer, workspace.data.ptr, workspace.nbytes)',
        "    pass", captured_micro_batches_are_eager, "without a workspace"),
]  # fmt: skip
