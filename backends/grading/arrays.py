"""What is wrong with an array that a submission returned or changed, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .task import Wrong


def alike(what: str, found: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise Wrong unless ``found`` is an array of this shape and dtype."""
    if type(found) is not np.ndarray:  # a subclass may compare as it likes
        raise Wrong(f"{what} is {'None' if found is None else f'a {type(found).__name__}'}, not an array")
    if found.shape != shape:
        raise Wrong(f"{what} has shape {found.shape}, it should be {shape}")
    if found.dtype != dtype:
        raise Wrong(f"{what} is {found.dtype}, it should be {np.dtype(dtype)}")


def equal(what: str, found: np.ndarray, wanted: np.ndarray, slack: float = 0.0, about: float = 1e-6) -> None:
    """Raise Wrong, and say how, where two alike arrays differ by more than ``slack``.

    ``about`` is how exactly (relative) ``found`` must be a multiple of ``wanted`` to be told as one.
    """
    apart = abs(found - wanted)
    if (apart <= slack).all():
        return
    if wanted.any() and not found.any():
        raise Wrong(f"{what} is 0 everywhere, it should not be")
    at = np.unravel_index(np.argmax(np.where(np.isnan(apart), np.inf, apart)), found.shape)
    largest = np.unravel_index(np.argmax(abs(wanted)), wanted.shape)
    factor = found[largest] / wanted[largest] if wanted[largest] else np.nan
    if (
        found.size > 1
        and abs(factor - 1) > about
        and np.allclose(found, factor * wanted, rtol=about, atol=1e-3 * about * abs(wanted).max())
    ):
        raise Wrong(f"{what} is {factor:.4g} times what it should be")
    place = f" at {', '.join(map(str, at))}" if at else ""
    is_, should = (f"{x[at]:.6g}" for x in (found, wanted))
    if is_ == should:  # the last bits
        is_, should = (f"{x[at]:.17g}" for x in (found, wanted))
    raise Wrong(f"{what} is {is_}{place}, it should be {should}")


def private(what: str, found: np.ndarray, others: Mapping[str, np.ndarray]) -> None:
    """Raise Wrong where ``found`` is memory of one of the others."""
    for name, other in others.items():
        if np.may_share_memory(found, other):
            raise Wrong(f"{what} is memory of {name}: return a new array")


def unchanged(inputs: Mapping[str, np.ndarray], before: Sequence[np.ndarray]) -> None:
    """Raise Wrong where an input has not the bits that it had."""
    for (name, x), old in zip(inputs.items(), before, strict=True):
        if x.tobytes() != old.tobytes():
            raise Wrong(f"{name} was changed: work on a copy")


def counted(n: int, noun: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def listed(items: Sequence[Any]) -> str:
    """``1, 2 and 3``."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last
