"""Bugs of float16 on several ranks: sums and messages, strategies, overflows and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from backends.comm import Communicator, collectives, run_ranks
from minigrad.device import Array
from tests.backends import half_laws
from tests.backends.comm.collectives.half_laws import all_reduce_16_bounded, numbers, reductions_are_bounded
from tests.bugs.bug import Bug

# Laws


def sums(allreduce: Callable[[Communicator, Array], Array]) -> None:
    for kind in ("alike", "cancelling", "large"):
        for ranks in (3, 4):
            terms = numbers(kind, ranks, 9, 0)
            run_ranks(ranks, lambda comm, terms=terms: all_reduce_16_bounded(allreduce, comm, terms))


def naive_sums_are_bounded() -> None:
    sums(collectives.naive_allreduce)


def ring_sums_are_bounded() -> None:
    sums(collectives.ring_allreduce)


def doubling_sums_are_bounded() -> None:
    sums(collectives.doubling_allreduce)


def halving_sums_are_bounded() -> None:
    sums(collectives.rabenseifner_allreduce)


def trees_are_bounded() -> None:
    for kind in ("alike", "large"):
        terms = numbers(kind, 4, 9, 0)
        run_ranks(4, lambda comm, terms=terms: reductions_are_bounded(comm, terms))


def data_sends_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["data"])


def buckets_send_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["buckets"])


def shards_send_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["ZeRO 2"])


def rings_send_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["ring of 3"])


def symbols_send_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["model, symbols"])


def pipes_send_half() -> None:
    half_laws.sends_half_the_bytes(half_laws.LAYOUTS["pipe"])


def pipes_scale_their_gradients() -> None:
    half_laws.gradients_are_serial(half_laws.LAYOUTS["pipe"])


def stages_skip_together() -> None:
    for rank in range(2):
        half_laws.ranks_skip_together(half_laws.LAYOUTS["pipe"], rank)


def shards_skip_together() -> None:
    half_laws.ranks_skip_together(half_laws.LAYOUTS["ZeRO 2"], 1)


def resumes() -> None:
    layouts = [half_laws.LAYOUTS[name] for name in ("data", "ZeRO 1", "model")]
    with TemporaryDirectory() as folder:
        half_laws.resumes_bit_for_bit(layouts, Path(folder))


def parameters_have_sixteen_bytes() -> None:
    for stage in (1, 2, 3):
        half_laws.takes_the_bytes_of_zero(stage, 2)


# Bugs

BYTES = "rank . sent"

BUGS = [
    Bug("a sum of 16 bits is sent in 32", "doubling.doubling_allreduce",
        "    total = x\n", "    x = x.astype(np.float32)\n    total = x\n",
        doubling_sums_are_bounded, "rank . sent|got float32"),
    Bug("each rank adds to its own numbers", "naive_allreduce", "for source in range(comm.size)\n",
        "for source in [comm.rank, *others]\n", naive_sums_are_bounded, "for one sum"),
    Bug("a sum that has passed by is rounded again", "send_recv.combine", "asarray(operator(first, second))",
        "asarray(operator(first, second) * first.dtype.type(1 + 2.0**-10))",
        ring_sums_are_bounded, "no sums"),
    Bug("a sum stays among the finite numbers", "send_recv.combine", "asarray(operator(first, second))",
        "asarray(operator(first, second)).clip(-65504, 65504)", halving_sums_are_bounded,
        "beyond the numbers"),
    Bug("a reduction goes up the tree in 32 bits", "tree.reduce", "    total = x\n",
        "    x = x.astype(np.float32)\n    total = x\n", trees_are_bounded, "rank . sent|expected"),
    Bug("the summary has the parameters' dtype", "StepSummary.dtype", "np.result_type(np.float32, *",
        "np.result_type(*", data_sends_half, BYTES),
    Bug("the summary pulls the gradients to its dtype", "bucket.make_buckets",
        "groups if groups[-1][0].dtype == summary.dtype else [*groups, []]", "groups", data_sends_half,
        BYTES),
    Bug("a bucket has float32", "bucket.make_buckets", "group), group[0].dtype)",
        'group), "float32")', buckets_send_half, BYTES),
    Bug("gradients of shards are packed in float32", "FlatLayout.pack",
        "empty(self.size, first.dtype)", 'empty(self.size, "float32")', shards_send_half, BYTES),
    Bug("a ring passes on what it computes with", "Ring.pass_on", "self.in_dtype(x)", "x",
        rings_send_half, BYTES),
    Bug("a loss of split classes has float16", "sharded_cross_entropy", "logits = widened(logits)",
        "logits = logits + 0", symbols_send_half, BYTES),
    Bug("a stage hands on float32", "Engine.forward", "self.p2p.send(hop, y.data)",
        'self.p2p.send(hop, y.data.astype("float32"))', pipes_send_half, f"{BYTES}|float"),
    Bug("the last stage starts without the scale", "Engine.backward", "else micro.seed",
        "else micro.loss_weight",
        pipes_scale_their_gradients, "units off"),
    Bug("each rank skips by its gradients alone", "MasterWeights.step",
        "np.isfinite(total(optimizer.squares(copies)))", "np.isfinite(optimizer.squares(copies))",
        shards_skip_together, "rank . has|rank . updates"),
    Bug("norms of other stages are not known", "PipelineState.global_square_norms",
        "return np.concatenate(rows)", "return squares",
        stages_skip_together, "rank . has|rank . updates"),
    Bug("what is not finite becomes a number", "MasterWeights.unscaled", "d = g.astype(np.float32)",
        "d = np.nan_to_num(g.astype(np.float32))", shards_skip_together, "value"),
    Bug("a skipped step rounds the masters", "MasterWeights.step", "self.scale.skip_step()\n",
        "self.scale.skip_step()\n        for part in parts:\n            part.w[...] *= 0.5\n",
        shards_skip_together, "updates .* without a step"),
    Bug("a checkpoint has the scale, and nobody reads it", "training_state.load_state",
        'masters.scale.set_own_values(facts["loss_scale"])', "pass", resumes, "with the scale"),
    Bug("skipped steps are forgotten", "StaticScale.own_values", '"skipped": self.skipped', '"skipped": 0',
        resumes, "with the scale"),
    Bug("masters are read as 16 bits", "placed_state.state_of", 'xp.array(value, order="C")',
        'xp.array(value, like.dtype, order="C")', resumes, "goes on with another"),
    Bug("masters of shards are read as 16 bits", "ShardedOptimizer.set_optimizer_values",
        "xp.array(np.ravel(value)[within])", "xp.array(np.ravel(value)[within], parameter.dtype)", resumes,
        "goes on with another"),
    Bug("masters on ranks have 16 bits", "MasterWeights.copy", "w.astype(np.float32)", "w.copy()",
        parameters_have_sixteen_bytes, "not .* 1680"),
    Bug("gradients stay whole in stage 2", "FlatParameter.start_reduce_scatter", "parameter.grad = None",
        "pass", parameters_have_sixteen_bytes, "take"),
]  # fmt: skip
