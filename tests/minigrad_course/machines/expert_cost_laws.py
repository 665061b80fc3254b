"""Laws of lessons/minigrad_course/machines/expert_costs.py: each formula is a count of what it says."""

import itertools

import numpy as np
from minigrad_course.machines.expert_costs import MixtureSize, capacity_of, dropped_by_chance, exchange_bytes


def a_capacity_is_the_least_that_is_enough(tokens: int, experts: int, choices: int, eighths: int) -> None:
    """The least number of places with factor * choices * tokens places in all; the factor is in eighths."""
    places = capacity_of(tokens, experts, choices, eighths / 8)
    assert 8 * experts * places >= eighths * choices * tokens
    assert places == 0 or 8 * experts * (places - 1) < eighths * choices * tokens, f"{places} is too many"


def a_dropped_share_is_the_mean_over_all_choices(tokens: int, experts: int, capacity: int) -> None:
    """All ``experts ** tokens`` rows of choices, counted."""
    dropped = 0
    for choices in itertools.product(range(experts), repeat=tokens):
        dropped += sum(max(0, choices.count(expert) - capacity) for expert in range(experts))
    expected = dropped / tokens / experts**tokens
    share = dropped_by_chance(tokens, experts, capacity)
    assert abs(share - expected) < 1e-12, f"a share of {share}, counted {expected}"


def a_mixture_has_as_many_numbers(width: int, hidden: int, experts: int, choices: int) -> None:
    """Parameters are those of arrays; the products of a token are counted by array."""
    size = MixtureSize(width, hidden, experts, choices)
    expert = [np.zeros((hidden, width)), np.zeros(hidden), np.zeros((width, hidden)), np.zeros(width)]
    gate = np.zeros((experts, width))
    numbers = gate.size + experts * sum(array.size for array in expert)
    assert size.parameters == numbers, f"{size.parameters} parameters, {numbers} numbers in arrays"
    products = gate.size + choices * (expert[0].size + expert[2].size)
    assert size.flops == 2 * products, f"{size.flops} operations, {products} products and as many sums"


def bytes_are_those_of_every_row(
    counts: np.ndarray, experts: list[int], width: int, itemsize: int = 8
) -> None:
    """Each row is followed from its rank to the rank of its expert, back, and the same again backward."""
    owner = [rank for rank, n in enumerate(experts) for _ in range(n)]
    expected = [0] * len(counts)
    for rank, expert in np.ndindex(counts.shape):
        if owner[expert] != rank:
            row = width * itemsize * int(counts[rank, expert])
            expected[rank] += 2 * row + 8  # the row, the gradient of its result, and the count
            expected[owner[expert]] += 2 * row  # the result, the gradient of the row
    sent = [exchange_bytes(counts, experts, rank, width, itemsize) for rank in range(len(counts))]
    assert sent == expected, f"{sent} bytes by rank, counted {expected}"
