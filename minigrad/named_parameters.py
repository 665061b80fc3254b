"""Parameters by name: a mapping, which a loop reads in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .tensor import Parameter


class NamedParameters(dict[str, Parameter]):
    """A dict of parameters by their dotted names, whose iterator gives pairs of name and parameter.

    So ``for name, p in model.named_parameters():`` is right, as in PyTorch; the names alone are ``keys()``.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items())
