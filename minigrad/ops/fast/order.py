"""The largest elements of rows, which need not be sorted, and of long rows by groups.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``fast/__init__.py``.
"""

from __future__ import annotations

import numpy as np

from ...device import Array, array_module
from ...faster import form_of
from ..gather import places_of
from ..order import largest_of_rows, turned

GROUP = 8  # elements of a group, a power of two
LONG = 32  # times k are the elements of rows in which groups pay; more than 2 GROUP


@form_of(largest_of_rows)
def largest_by_partition(rows: Array, k: int, largest: bool) -> Array:
    """Only the k largest are sorted."""
    if not 0 < k < rows.shape[-1]:
        return NotImplemented
    chosen = any_largest(rows, k, largest)
    return elements(chosen, turned(array_module(rows).argsort(elements(rows, chosen), -1), largest))


def any_largest(rows: Array, k: int, largest: bool) -> Array:
    """Indices of the k largest, or smallest, elements of each row, in any order.

    The k largest are in the k groups whose largest elements are largest. Of 1,024 elements it takes a third
    of the time to look for 8 there.
    """
    n = rows.shape[-1]
    if type(rows) is np.ndarray and n >= LONG * k:
        few = members_of_groups(rows, k, largest)
        return elements(few, any_largest(elements(rows, few), k, largest))
    order = array_module(rows).argpartition(rows, n - k if largest else k - 1, -1)
    return order[..., n - k :] if largest else order[..., :k]


def members_of_groups(rows: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Indices of the elements of k groups, among which the k largest, or smallest, of each row are."""
    n, others = rows.shape[-1], rows.shape[:-1]
    count = n // GROUP
    best, better = rows[..., : GROUP * count], np.maximum if largest else np.fmin  # NaN is the largest
    while best.shape[-1] > count:
        half = best.shape[-1] // 2
        best = better(best[..., :half], best[..., half:])
    members = any_largest(best, k, largest)[..., None, :] + count * np.arange(GROUP)[:, None]
    rest = np.broadcast_to(np.arange(GROUP * count, n), (*others, n - GROUP * count))
    return np.concatenate([members.reshape(*others, GROUP * k), rest], -1)


def elements(rows: Array, order: Array) -> Array:
    """The elements of each row at its indices in ``order``."""
    return array_module(rows).take(rows.reshape(-1), places_of(order, rows, rows.ndim - 1))
