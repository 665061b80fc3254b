"""Bugs of what the lesson on experts computes: what is dropped, held and sent, and when messages go."""

from __future__ import annotations

import numpy as np

from tests.bugs.bug import Bug
from tests.minigrad_course.machines import expert_cost_laws, overlap_laws

# Laws


def capacities_are_enough() -> None:
    for tokens, experts, eighths in ((4, 3, 8), (64, 8, 10), (5, 2, 0), (8, 4, 4)):
        expert_cost_laws.a_capacity_is_the_least_that_is_enough(tokens, experts, 2, eighths)


def dropped_shares_are_means() -> None:
    for capacity in (0, 1, 2, 5):
        expert_cost_laws.a_dropped_share_is_the_mean_over_all_choices(4, 3, capacity)


def mixtures_are_counted() -> None:
    for experts, choices in ((1, 1), (3, 1), (4, 2)):
        expert_cost_laws.a_mixture_has_as_many_numbers(5, 7, experts, choices)


def bytes_are_counted() -> None:
    counts = np.array([[1, 0, 2, 5], [0, 0, 0, 0], [3, 1, 4, 0]])
    expert_cost_laws.bytes_are_those_of_every_row(counts, [2, 2, 0], width=3)


def forwards_hide_beside_backwards() -> None:
    for nbytes in (1, 3, 5):
        overlap_laws.a_forward_hides_beside_a_backward(4, 8, nbytes, 3, ranks=3)
    overlap_laws.times_add_up_in_sequence(4, 8, 3, 3, ranks=3)


def forwards_fill_once() -> None:
    for nbytes in (1, 5):
        overlap_laws.two_forwards_fill(4, nbytes, 3, ranks=3)


BUGS = [
    Bug("places are rounded down", "capacity_of", "math.ceil(", "int(", capacities_are_enough,
        "AssertionError"),
    Bug("a capacity is for one choice", "capacity_of", "factor * choices * tokens", "factor * tokens",
        capacities_are_enough, "AssertionError"),
    Bug("a token at the last place is dropped", "dropped_by_chance", "(x - capacity) * math.comb",
        "(x - capacity + 1) * math.comb", dropped_shares_are_means, "a share of"),
    Bug("what one expert drops is the share", "dropped_by_chance", "experts * sum(lost)", "sum(lost)",
        dropped_shares_are_means, "a share of"),
    Bug("each expert computes each token", "MixtureSize.flops", "self.choices * 4", "self.experts * 4",
        mixtures_are_counted, "operations"),
    Bug("one gate's row for all experts", "MixtureSize.gate", "self.experts * self.width", "self.width",
        mixtures_are_counted, "parameters"),
    Bug("results do not go back", "exchange_bytes", "(there + here)", "there", bytes_are_counted,
        "bytes by rank"),
    Bug("rows for the rank's own experts are sent", "exchange_bytes",
        "counts[rank].sum() - counts[rank, own].sum()", "counts[rank].sum()", bytes_are_counted,
        "bytes by rank"),
    Bug("gradients are not sent", "exchange_bytes", "2 * width", "width", bytes_are_counted, "bytes by rank"),
    Bug("computing does not wait for what it computes with", "in_turns",
        "if isinstance(step, Compute):\n                wait_for(micro)", "if isinstance(step, Compute):",
        forwards_hide_beside_backwards, "by the formula"),
    Bug("each message is waited for at once", "in_turns", '"all-to-all"\n                )',
        '"all-to-all"\n                )\n                wait_for(micro)', forwards_hide_beside_backwards,
        "by the formula"),
    Bug("the last message is not waited for", "in_turns", "for micro in [*arrived]:",
        "for micro in []:", forwards_fill_once, "never finished"),
]  # fmt: skip
