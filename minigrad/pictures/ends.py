"""What a picture of many things shows: the first and the last of them."""

from __future__ import annotations


def ends_of(count: int, most: int) -> list[int]:
    """The numbers from 0 to ``count`` - 1; of more than ``most`` the first and the last, ``most`` in all."""
    first = most - most // 2
    return [*range(count)] if count <= most else [*range(first), *range(count - most // 2, count)]
