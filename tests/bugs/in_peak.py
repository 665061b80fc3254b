"""Bugs of what the lessons say of a peak: speed-ups, operations, prefetch, rooflines of splits."""

from __future__ import annotations

import math

from backends.comm.collectives.link import Link
from backends.planner import Hardware
from tests.bugs.bug import Bug
from tests.minigrad_course.machines import (
    prefetch_laws,
    scaling_law_laws,
    sharding_roofline_laws,
    transformer_flops_laws,
)

# Laws


def speedups_are_quotients() -> None:
    for serial, shared, ranks in ((0, 5, 3), (1, 19, 20), (7, 3, 4)):
        scaling_law_laws.fixed_work_is_a_quotient_of_times(serial, shared, ranks)


def growing_speedups_are_quotients() -> None:
    for serial, each, ranks in ((0, 5, 3), (1, 19, 20), (7, 3, 4)):
        scaling_law_laws.growing_work_is_a_quotient_of_times(serial, each, ranks)


def forwards_are_counted() -> None:
    transformer_flops_laws.a_forward_is_that_of_the_planner(2, 3, 2, 11, 5)
    transformer_flops_laws.products_are_those_of_the_weights(2, 3, 2, 11, 5)


def steps_are_those_of_the_paper() -> None:
    transformer_flops_laws.a_step_is_that_of_the_paper(24, 2304, 512, 51_200, 2048)


def a_peak_is_one() -> None:
    transformer_flops_laws.a_machine_at_its_peak_is_used_whole(1000, 8, 3)


LAYERS = [(2, 2), (4, 1), (3, 1), (6, 2)]


def steps_have_closed_forms() -> None:
    prefetch_laws.closed_forms_are_steps(LAYERS)


def real_steps_take_as_long() -> None:
    for prefetch in (0, 1, 2, 3):
        prefetch_laws.stage_3_takes_as_long(LAYERS, prefetch, ranks=2)


def bounds_are_least() -> None:
    for latency, flops in ((0, 3), (2, 9), (3, 30)):
        machine = Hardware(flops, Link(latency, 2), math.inf)
        for name in sharding_roofline_laws.TRIALS:
            for n, m, choices in ((2, 3, 2), (3, 1, 1), (1, 5, 3)):
                sharding_roofline_laws.a_bound_is_the_least_number_of_tokens(name, machine, 3, n, m, choices)


BUGS = [
    Bug("the serial part is shared too", "amdahl", "serial + (1 - serial) / ranks",
        "(serial + 1 - serial) / ranks", speedups_are_quotients, "times, the times say"),
    Bug("a rank's own work is serial too", "gustafson", "serial * (ranks - 1)", "serial * ranks",
        growing_speedups_are_quotients, "times, the times say"),
    Bug("a serial share is that of p ranks", "karp_flatt", "/ (ranks - 1)", "/ ranks",
        speedups_are_quotients, "a serial share of"),
    Bug("a mask halves the core", "transformer_flops", "core=4 * tokens", "core=2 * tokens",
        forwards_are_counted, "the planner says"),
    Bug("a table is looked up, not multiplied", "transformer_flops", "2 * tokens * width * symbols",
        "0 * tokens * width * symbols", forwards_are_counted, "the planner says"),
    Bug("a step is two forwards", "TransformerFlops.model", "3 * (", "2 * (", steps_are_those_of_the_paper,
        "paper"),
    Bug("scores are computed again", "TransformerFlops.recomputed", "self.products + self.core",
        "self.products + self.core + self.scores", steps_are_those_of_the_paper, "paper"),
    Bug("the peak is that of one rank", "utilization", "ranks * peak", "peak", a_peak_is_one,
        "a utilization of"),
    Bug("backward computes as long as forward", "passes_of", "2 * c", "c", real_steps_take_as_long,
        "formula"),
    Bug("all-gathers share the link", "prefetch.step_seconds",
        "link = arrivals[one.layer] = max(link, clock)", "link = arrivals[one.layer] = clock",
        real_steps_take_as_long, "formula"),
    Bug("a reduction waits for nothing", "prefetch.step_seconds", "max(link, clock) + one.reduce",
        "max(link, clock + one.reduce)", real_steps_take_as_long, "formula"),
    Bug("a reduction goes beside an all-gather", "one_ahead_seconds", "before.reduce + after.gather",
        "max(before.reduce, after.gather)", steps_have_closed_forms, "by the formula"),
    Bug("the last reduction is hidden", "one_ahead_seconds", " + hidden + passes[-1].reduce", " + hidden",
        steps_have_closed_forms, "by the formula"),
    Bug("a layer on its way takes no memory", "prefetch.most_held", "passes[i + 1 : i + 1 + prefetch]",
        "passes[i + 1 : i + prefetch]", real_steps_take_as_long, "numbers, by the formula"),
    Bug("any prefetch is one layer", "GatheredWeights.gather_after", "i + 1 + self.prefetch", "i + 2",
        real_steps_take_as_long, "formula"),
    Bug("gradients travel beside forward too", "data_roofline", "4 * choices", "6 * choices",
        bounds_are_least, "data: "),
    Bug("only experts that are chosen have gradients", "data_roofline", "itemsize * experts * weights",
        "itemsize * weights", bounds_are_least, "data: "),
    Bug("a sum sends as much as an all-gather", "model_roofline", "sends = 2 * (ranks - 1)",
        "sends = ranks - 1", bounds_are_least, "model: "),
    Bug("model ranks compute the whole layer", "model_roofline", "4 * width * hidden / ranks",
        "4 * width * hidden", bounds_are_least, "model: "),
    Bug("a query sees all keys", "sequence_roofline", "2 * width * (length + 1)", "4 * width * (length + 1)",
        bounds_are_least, "sequence: "),
    Bug("keys travel without values", "sequence_roofline", "hops * 2 * itemsize", "hops * itemsize",
        bounds_are_least, "sequence: "),
    Bug("rows stay with their expert", "expert_roofline", "sends = 2 * (ranks - 1)", "sends = ranks - 1",
        bounds_are_least, "experts: "),
    Bug("a stage's message has no latency", "pipeline_roofline", "latency, itemsize", "0.0, itemsize",
        bounds_are_least, "pipeline: "),
    Bug("messages of activations cost nothing", "ShardingRoofline.tokens", "self.compute - self.message",
        "self.compute", bounds_are_least, "computing takes"),
]  # fmt: skip
