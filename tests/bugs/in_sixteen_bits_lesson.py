"""Bugs of what the lesson on sixteen bits computes: holes, lost gradients, sums, scales and bytes."""

from __future__ import annotations

import numpy as np

from tests.bugs.bug import Bug
from tests.minigrad_course.machines import half_precision_laws as laws

# Laws


def holes_are_distances() -> None:
    for place in (1, 500, 1023, 1024, 15360, 20000, len(laws.NUMBERS) - 1):
        laws.a_hole_is_the_distance_of_neighbors(place)


def lost_shares_are_counted() -> None:
    sizes = np.array([0, 1, 2.0**-14, -(2.0**-15), 2.0**-24, 2.0**-25, -1.01 * 2.0**-25, 0], np.float32)
    for power in (0, -2, 3):
        laws.shares_are_those_of_rounded_arrays(sizes, power)


def sums_are_bounded() -> None:
    rng = np.random.default_rng(0)
    laws.a_bound_is_no_larger_than_needed()
    for ranks, power in ((1, 0), (2, 0), (4, 3), (5, -20)):
        laws.a_bound_holds_in_any_order((rng.normal(size=(ranks, 200)) * 2.0**power).astype(np.float16))


def scales_follow_the_rule() -> None:
    exponents = [0, 0, 3, 3, -1, -1, -1, 2, -2, 0, 0, 0, 4, 0]
    for start, interval in ((16, 2), (12, 3), (13, 1)):
        laws.a_path_is_that_of_the_dynamic_scale(exponents, start, interval)


def bytes_are_counted() -> None:
    for itemsize in (2, 4):
        for momentum in (0.0, 0.9):
            laws.bytes_are_those_of_arrays(itemsize, momentum)


def ranks_share_bytes() -> None:
    for itemsize in (2, 4):
        for stage in range(4):
            laws.shares_of_ranks_add_up(itemsize, 2, 3, stage)


BUGS = [
    Bug("subnormal numbers have holes that shrink", "hole", "max(exponent - 10, LEAST)", "(exponent - 10)",
        holes_are_distances, "a hole of"),
    Bug("a number is in the power of two above it", "hole", "[1] - 1", "[1]", holes_are_distances,
        "a hole of"),
    Bug("the least number is lost", "lost_shares", "2.0 ** (LEAST - 1)", "2.0**LEAST",
        lost_shares_are_counted, "AssertionError"),
    Bug("half of the least number is no tie", "lost_shares", "sizes <= 2.0", "sizes < 2.0",
        lost_shares_are_counted, "AssertionError"),
    Bug("zeros count as lost", "lost_shares", "np.abs(g[g != 0])", "np.abs(g.ravel())",
        lost_shares_are_counted, "AssertionError"),
    Bug("a gradient below 0 counts as lost", "lost_shares", "np.abs(g[g != 0])", "g[g != 0]",
        lost_shares_are_counted, "AssertionError"),
    Bug("all additions round once", "sum_error_bound", "** (ranks - 1) - 1", "** 1 - 1", sums_are_bounded,
        "above the bound"),
    Bug("each rank rounds, and not each addition", "sum_error_bound", "** (ranks - 1) - 1", "** ranks - 1",
        sums_are_bounded, "a bound of"),
    Bug("the largest power of two is finite", "scale_path", "a + k < END", "a + k <= END",
        scales_follow_the_rule, "expected"),
    Bug("good steps count on after one that is left out", "scale_path", "if taken[-1] else 0",
        "if taken[-1] else good", scales_follow_the_rule, "expected"),
    Bug("good steps count on after the scale is doubled", "scale_path", "k, good = k + 1, 0",
        "k, good = k + 1, 1", scales_follow_the_rule, "expected"),
    Bug("float32 has copies, too", "bytes_of_a_parameter", "(4 if itemsize < 4 else 0)", "4",
        bytes_are_counted, "in arrays"),
    Bug("moments have the bytes of the parameter", "bytes_of_a_parameter", "4 * moments",
        "itemsize * moments", bytes_are_counted, "in arrays"),
    Bug("the first stage shares gradients", "bytes_of_a_parameter", "(optimizer, itemsize, itemsize)",
        "(itemsize, itemsize, optimizer)", ranks_share_bytes, "on all ranks"),
]  # fmt: skip
