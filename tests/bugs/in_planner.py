"""Bugs of the planner: what it says that layouts send, hold and take, and which one it calls the best."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from backends.cli.plan_command import PlanOptions
from backends.comm.collectives.link import Link
from backends.planner import Hardware, Layout, TransformerSizes
from tests.backends.cli import plan_laws, utilization_laws
from tests.backends.planner import planner_laws, transfer_laws
from tests.bugs.bug import Bug

# Laws

NET = TransformerSizes(11, 6, 12, 3, 2)
MANY = replace(NET, symbols=900)  # the table is split
HARDWARE = Hardware(1e9, Link(1e-5, 1e8), np.inf)


def sends(layout: Layout, sizes: TransformerSizes = NET) -> None:
    planner_laws.sends_what_ranks_send(sizes, planner_laws.net_of(sizes), layout, 7)


def split_layers_send_what_is_counted() -> None:
    sends(Layout(model=2))
    sends(Layout(model=3, split_tokens=True))
    sends(Layout(data=2, model=2, split_tokens=True), MANY)


def pipelines_send_what_is_counted() -> None:
    sends(Layout(data=2, pipe=2, micro=3, bounds=(0, 2, 5)))


def stages_of_split_layers_send_what_is_counted() -> None:
    sends(Layout(pipe=2, model=2, micro=2, split_tokens=True, bounds=(0, 2, 5)))


def sequences_send_what_is_counted() -> None:
    for form in ("ring", "ulysses"):
        sends(Layout(sequence=2, model=2, form=form))


def experts_send_and_hold_what_is_counted() -> None:
    sizes, layout = replace(NET, experts=3, choices=3), Layout(data=2, expert_parallel=True)
    planner_laws.sends_what_ranks_send(sizes, planner_laws.net_of(sizes), layout, 6)
    if planner_laws.HOLDS_IN_LOOPS:
        planner_laws.holds_what_tapes_hold(sizes, planner_laws.net_of(sizes), layout, 6)


def rings_send_every_block() -> None:
    transfer_laws.goes_round(2, (3, 0, 4, 1), 5)


def heads_are_exchanged() -> None:
    transfer_laws.exchanges_heads(2, (3, 1, 0), (1, 2, 1), 4)


def rows_come_back_from_experts() -> None:
    transfer_laws.exchanges_rows(3, ((1, 2, 0), (4, 0, 3)), (2, 1))


def equal_stages_wait() -> None:
    planner_laws.waits_as_schedules_do(3, 4, TransformerSizes(1, 8, 8, 2, 3))


def sequences_divide_activations() -> None:
    for form in ("ring", "ulysses"):
        sizes = TransformerSizes(11, 12, 8, 2, 2)
        planner_laws.divides_activations(sizes, Layout(sequence=2, form=form), 3)


def peaks_are_of_the_fastest_product() -> None:
    utilization_laws.the_peak_is_of_the_fastest_product([0.02, 0.004, 0.03])


def all_ranks_count() -> None:
    utilization_laws.all_ranks_count(1000.0, 3, 1e10)


def operations_are_those_of_products() -> None:
    utilization_laws.operations_are_those_of_products()


def operations_are_counted() -> None:
    planner_laws.computes_what_loops_count(NET)


def parts_are_the_whole() -> None:
    planner_laws.shares_the_work(NET, Layout(model=2), 4)


def tables_are_split_as_by_the_default_plan() -> None:
    for symbols in (11, 40, 90, 900):
        for rows in (1, 2, 4):
            planner_laws.splits_as_the_default_plan(replace(NET, symbols=symbols), 2, rows)


def the_best_stands_first() -> None:
    planner_laws.finds_the_best(NET, 4, HARDWARE, 8)
    planner_laws.finds_the_best(NET, 4, HARDWARE._replace(memory=80e3), 8)


def the_layout_that_holds_least_is_named() -> None:
    planner_laws.refuses_by_the_least(NET, 1, 21)
    planner_laws.refuses_by_the_least(NET, 2, 40)


def narrow_tables_keep_their_numbers() -> None:
    for width in (60, 80):
        plan_laws.table_keeps_its_numbers(PlanOptions(experts=4), width, 3)


def a_speed_is_of_the_best_repetition() -> None:
    plan_laws.speed_is_of_the_best_repetition(1)


# Bugs

BUGS = [
    Bug("the bubble is forgotten", "Stages.estimate", "float(plan.makespan)",
        "layout.micro * (forward[busiest].total + backward[busiest].total)", equal_stages_wait, "Estimate"),
    Bug("every stage holds all micro-batches", "RankStep.memory",
        "min(layout.micro, layout.pipe - self.place.pipe)", "layout.micro", equal_stages_wait, "holds"),
    Bug("ranks of a sequence hold all activations", "PartOfTransformer.activations", "self.net, self.tokens",
        "self.net, self.net.length", sequences_divide_activations, "bytes"),
    Bug("an all-to-all joins heads in place", "PartOfTransformer.activations", " + heads_output", "",
        sequences_divide_activations, "bytes"),
    Bug("a sequence axis sums the gradients of its share", "RankStep.sums",
        "numbers = mine.parameters + summary + layout.sequence",
        "numbers = mine.parameters // layout.sequence + summary + layout.sequence",
        sequences_send_what_is_counted, "counted"),
    Bug("a rank's ring carries all heads", "PartOfTransformer.attention",
        "KeyRing(self.rows, tokens, self.heads * size,", "KeyRing(self.rows, tokens, self.net.width,",
        sequences_send_what_is_counted, "counted"),
    Bug("gradients of one's own experts are summed", "RankStep.sums", "- mine.own_experts", "",
        experts_send_and_hold_what_is_counted, "counted"),
    Bug("a rank holds all experts", "PartOfTransformer.own_experts", "if self.layout.expert_parallel:",
        "if False:", experts_send_and_hold_what_is_counted, "counted|AssertionError"),
    Bug("ranks of a sequence compute all pairs", "PartOfTransformer.core",
        "all_pairs / self.layout.sequence", "all_pairs", sequences_divide_activations,
        "AssertionError|assert"),
    Bug("keys go round once more", "KeyRing.sent", "range(p - 1)", "range(p)", rings_send_every_block,
        "counted"),
    Bug("gradients of keys travel with them from the start", "KeyRing.sent", "(rank - 1 - t)", "(rank - t)",
        rings_send_every_block, "counted"),
    Bug("backward three arrays go to the heads", "HeadsAllToAll.sent", "(1, 3) if self.backward else (3, 1)",
        "(3, 1)", heads_are_exchanged, "counted"),
    Bug("heads send to themselves too", "HeadsAllToAll.sent", "(sum(self.heads) - self.heads[rank])",
        "sum(self.heads)", heads_are_exchanged, "counted"),
    Bug("results of experts do not come back", "ExpertAllToAll.sent", "if other != rank", "if False",
        rows_come_back_from_experts, "counted"),
    Bug("gradients of split layers are summed over the model axis", "RankStep.sums",
        "AllReduce(mine.partial, layout.model)", "AllReduce(mine.parameters, layout.model)",
        split_layers_send_what_is_counted, "counted"),
    Bug("ranks sum the gradients of whole layers", "PartOfTransformer.block",
        "mine = self.heads * net.head_size", "mine = net.width", split_layers_send_what_is_counted,
        "counted|AssertionError"),
    Bug("only the forward sums of a block are counted", "PartOfTransformer.between_products",
        "return passes(sums, sums)", "return passes(sums)", split_layers_send_what_is_counted, "counted"),
    Bug("a split table sends nothing for the loss", "PartOfTransformer.scores",
        "forward += (maximum, total, total)", "pass", split_layers_send_what_is_counted, "counted"),
    Bug("tokens are not gathered between stages", "TransformerSizes.stage",
        "passes([part.gathered()])", "passes()", stages_of_split_layers_send_what_is_counted, "counted"),
    Bug("a table on two stages is summed over none", "RankStep.sums", "place.pipe in ends", "False",
        pipelines_send_what_is_counted, "counted"),
    Bug("activations cross one way", "RankStep.sent", "self.input * (place.pipe > 0)", "0",
        pipelines_send_what_is_counted, "counted"),
    Bug("a causal attention computes all pairs", "PartOfTransformer.core", "(self.net.length + 1) / 2",
        "self.net.length", operations_are_counted, "counted"),
    Bug("every rank computes all heads", "PartOfTransformer.block",
        "8.0 * self.tokens * h * mine", "8.0 * self.tokens * h * h", parts_are_the_whole,
        "operations"),
    Bug("a table is split for the activations of one sample", "TransformerSizes.splits_table",
        "rows * self.length", "self.length", tables_are_split_as_by_the_default_plan, "the plan is"),
    Bug("the layout that computes least stands first", "best_first", "(e.seconds, e.memory.total)",
        "(e.compute, e.memory.total)", the_best_stands_first, "the order is"),
    Bug("the search ends before better layouts", "best_first",
        "if len(best) == most and least > best[-1].seconds", "if len(best) == most", the_best_stands_first,
        "others are the best"),
    Bug("a layout over memory may be the best", "best_first", "> hardware.memory",
        "> 2 * hardware.memory", the_best_stands_first, "over memory"),
    Bug("ranks on all four axes are not tried", "planner.planner.shapes",
        "n for n in divisors if ranks // data % n == 0",
        "n for n in divisors[:1] if ranks // data % n == 0", the_best_stands_first, "is missing"),
    Bug("where nothing fits, no more micro-batches are tried", "best_first", "for many in (False, True):",
        "for many in (False,):", the_layout_that_holds_least_is_named, "nothing fits"),
    Bug("micro-batches are doubled, and never of one sample", "micros_of", "(doublings | {most})",
        "doublings", the_layout_that_holds_least_is_named, "nothing fits"),
    Bug("a table has all columns on any terminal", "widths_of", "3 * len(part) + 1 <= columns",
        "3 * len(part) + 1 <= 10 * columns", narrow_tables_keep_their_numbers, "characters"),
    Bug("the lines between columns take no room", "widths_of", "sum(part.values()) + 3 * len(part) + 1",
        "sum(part.values())", narrow_tables_keep_their_numbers, "characters"),
    Bug("the speed is of a rank that others starved", "PlanMeasurement.hardware", "max(slowest)",
        "min(slowest)", a_speed_is_of_the_best_repetition, "operations a second"),
    Bug("the peak is of the slowest product", "peak_of_product", "max(min(times), 1e-9)", "max(times)",
        peaks_are_of_the_fastest_product, "operations a second"),
    Bug("a share is of one rank's peak", "Utilization.share", "(self.ranks * self.peak)", "self.peak",
        all_ranks_count, "a share of .*, right is"),
    Bug("images get a gradient", "operations_of_sample", "(0 if net.sizes else sum(work[:1]))", "0",
        operations_are_those_of_products, "mlp: .* operations, right are"),
    Bug("the input of a transformer's first block needs no gradient", "operations_of_sample",
        "(0 if net.sizes else sum(work[:1]))", "sum(work[:1])",
        operations_are_those_of_products, "transformer: .* operations, right are"),
]  # fmt: skip
