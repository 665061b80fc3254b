"""cupyx of the double."""

from typing import Any

import cupy


def scatter_add(a: Any, slices: Any, value: Any) -> None:
    cupy.add.at(a, slices, value)  # pyright: ignore[reportAttributeAccessIssue]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotImplementedError(f"the double has no cupyx.{name}")
