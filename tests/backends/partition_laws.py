"""Laws of backends/partition.py: no other cut has a smaller largest part."""

from fractions import Fraction
from itertools import combinations, pairwise


def sums(costs, bounds):
    """The parts' costs, exactly."""
    return [sum(map(Fraction, costs[a:b])) for a, b in pairwise(bounds)]


def every_way(n, parts):
    """All bounds, in the order of the first bound, then the second, ..."""
    return [[0, *inner, n] for inner in combinations(range(1, n), parts - 1)]


def is_a_partition(bounds, n, parts):
    assert len(bounds) == parts + 1 and (bounds[0], bounds[-1]) == (0, n), bounds
    assert all(a < b for a, b in pairwise(bounds)), f"{bounds} leave a part empty"


def largest_is_smallest(optimal, costs, parts):
    """No way of all has a smaller largest part; and of the best ones it is the first."""
    bounds = optimal(costs, parts)
    is_a_partition(bounds, len(costs), parts)
    ways = every_way(len(costs), parts)
    least = min(max(sums(costs, way)) for way in ways)
    assert max(sums(costs, bounds)) == least
    assert bounds == next(way for way in ways if max(sums(costs, way)) == least), "another tie than promised"
