"""A readable form of an op, or of a step of one, and the faster forms that ``fast`` joins to it.

The readable shelf, this folder, imports nothing of the fast one, and computes everything without it. A faster
form computes what the readable one does, to rounding, for some arguments; for all others it returns
NotImplemented, as a method of Python's operators does.
Lecture section: back-propagation. Lesson: 02_backpropagation, by ``layer_norm.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Form = TypeVar("Form", bound=Callable[..., Any])


class faster(Generic[P, R]):  # noqa: N801 - it decorates
    """``readable``, or the first of its faster forms that takes the arguments."""

    def __init__(self, readable: Callable[P, R]):
        self.readable = readable
        self.forms: list[Callable[..., Any]] = []
        update_wrapper(self, readable)

    def __call__(self, *arguments: P.args, **settings: P.kwargs) -> R:
        for form in self.forms:
            result = form(*arguments, **settings)
            if result is not NotImplemented:
                return result
        return self.readable(*arguments, **settings)


class faster_on_gpu(faster[P, R]):  # noqa: N801 - it decorates
    """``readable``, whose faster forms take arrays of a GPU alone; an op asks none of them on the host."""


def form_of(function: Callable[..., Any]) -> Callable[[Form], Form]:
    """Decorates a faster form of ``function``, an op or a step of one that is decorated with ``faster``."""
    readable = inspect.unwrap(function, stop=lambda f: isinstance(f, faster))
    assert isinstance(readable, faster), f"decorate {function} with @faster"

    def join(form: Form) -> Form:
        readable.forms.append(form)
        anything: Any = form
        if isinstance(anything, FunctionType):
            anything.__qualname__ = readable.readable.__qualname__  # which Python's errors say
        return form

    return join
