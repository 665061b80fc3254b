"""How many numbers any algorithm must send to multiply matrices: no schedule of the products sends fewer.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. Irony, Toledo and Tiskin 2004. All
bounds follow from one inequality (Loomis and Whitney 1949): w products a_il b_lj, which use x entries of A
and y of B and add to z of C, are at most sqrt(x y z). So x + y + z >= 3 w^(2/3). Bounds are for the classical
sum of m k n products, and count the numbers that a rank sends and receives.
"""

from __future__ import annotations


def numbers_touched(products: float) -> float:
    """The least count of entries of A, B and C together that take part in so many products."""
    return 3 * products ** (2 / 3)


def without_a_limit(m: int, k: int, n: int, ranks: int) -> float:
    """What a rank sends and receives at least, on average, if all compute alike many of the products.

    It has (m k + k n + m n) / p entries of the three matrices. The others that its products touch it
    receives, or sends as terms of C. The memory is as large as it needs.
    """
    return numbers_touched(m * k * n / ranks) - (m * k + k * n + m * n) / ranks


def with_memory(m: int, k: int, n: int, ranks: int, memory: float) -> float:
    """What a rank that holds at most ``memory`` numbers sends and receives at least.

    Its work is cut into phases of M numbers sent or received, where M is the ``memory``. In a phase it meets
    at most 2 M entries of each matrix, M that it holds and M that pass, so it computes at most sqrt(2 M)^3
    of its m k n / p products. All phases but the last one are full.
    """
    full_phases = m * k * n / ranks / (2 * memory) ** 1.5 - 1
    return full_phases * memory
