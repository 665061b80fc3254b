"""Bugs of training in sixteen bits that the proof of it must catch: masters, gradients, and who skips."""

from __future__ import annotations

from minigrad import optim
from tests.backends.precision_laws import losses_are_checked_without_rounding, trains
from tests.bugs.bug import Bug

# Laws


def ranks_train() -> None:
    trains("data")


def clipping_ranks_train() -> None:
    trains("data", optimizer=lambda p: optim.SGD(p, 0.5, momentum=0.9).clipped(0.1))


def shards_train() -> None:
    trains("ZeRO 1")
    trains("ZeRO 3")


def pipelines_train() -> None:
    trains("pipe")


def stacks_train() -> None:
    trains("data x pipe")


def split_layers_train() -> None:
    trains("model", 3, size=16.0)  # the largest gradient is in the first layer, of which each rank has a part


# Bugs

MASTERS = r"[1-9]\d* elements of masters"
BUGS = (
    Bug("a master is rounded after the step", "MasterWeights.step",
        'state["master"] = copy.w', 'state["master"] = copy.w.astype(part.w.dtype).astype(copy.w.dtype)',
        ranks_train, MASTERS),
    Bug("the parameter is updated in 16 bits", "MasterWeights.copy",
        'state["master"] if "master" in state else w.astype(np.float32)', "w.astype(np.float32)",
        ranks_train, MASTERS),
    Bug("gradients are clipped with their scale", "MasterWeights.step",
        "optimizer.apply(optimizer.updates(copies, total))",
        "s = np.float32(self.scale.value); optimizer.apply(u._replace(g=u.g / s) for u in optimizer.updates("
        "[c if c.g is None else c._replace(g=c.g * s) for c in copies], total))",
        clipping_ranks_train, MASTERS),
    Bug("each rank decides alone whether it skips", "MasterWeights.step",
        "np.isfinite(total(optimizer.squares(copies))).all()", "np.isfinite(optimizer.squares(copies)).all()",
        shards_train, MASTERS),
    Bug("an optimizer counts a step that is left out", "MasterWeights.step",
        "self.scale.skip_step()", "self.scale.skip_step(); list(optimizer.updates(copies, total))",
        ranks_train, MASTERS),
    Bug("a scale is halved after it was used for the next step", "DynamicScale.skip_step",
        "self.value /= 2", "self.value /= 4", ranks_train, "loss scale"),
    Bug("a pipeline reports the loss with its scale", "engine.Engine.forward",
        "work.weighted(forward_pass, loss)", "work.weighted(forward_pass, loss) * work.loss_scale",
        pipelines_train, r"loss \(\) differs"),
    Bug("a pipeline starts from the loss without its scale", "engine.Engine.backward",
        "else micro.seed", "else micro.loss_weight", pipelines_train, "differs by"),
    Bug("a mean is checked by rounded sums", "MeanCheck.check", "bfloat16(on=False), ", "",
        losses_are_checked_without_rounding, "no mean over samples"),
    Bug("a sum over tokens is checked by rounded sums", "PartsOfRows.check", "bfloat16(on=False), ", "",
        losses_are_checked_without_rounding, "no sum over tokens"),
    Bug("ranks of split layers skip without one another", "SplitLayers.global_square_norms",
        "allreduce(self.backend.comm, squares * np.array(once)[:, None])", "squares",
        split_layers_train, MASTERS),
    Bug("a stage of a pipeline skips alone", "PipelineState.global_square_norms",
        "np.concatenate(rows)", "squares", pipelines_train, MASTERS),
    Bug("a stack asks only its outermost ranks whether a gradient is finite", "PlacedState.total_squares",
        "reversed(self.states)", "self.states[:1]", stacks_train, MASTERS),
)  # fmt: skip
