"""A forward pass of training knows its step and its samples, for layers that draw random numbers.

Lecture section: synchronous data parallelism. Lesson: 02_backpropagation, by ``nn/dropout.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from .device import Array, to_floats
from .random_mask import Mask, Places, RandomMask

if TYPE_CHECKING:
    from .module import Module
    from .tokens import Tokens

current_pass: ContextVar[ForwardPass | None] = ContextVar("minigrad.current_pass", default=None)


class Observer(Protocol):
    """What looks at the layers of a forward pass, and at gradients."""

    def call(
        self, module: Module, forward: Callable[..., Any], inputs: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        """What ``forward(*inputs, **keywords)`` of the module gives."""

    def gradient(self, parameter: Any) -> None:
        """Called with each parameter whose gradient on this rank is final, before ranks reduce it."""


class ForwardPass:
    """Samples go forward inside ``with ForwardPass(step, places):``, and layers draw masks that are theirs.

    ``places`` are those of the samples in the whole batch of the step; ``is_part`` says whether the batch has
    others. ``step`` is None outside of training. ``tokens`` says which tokens of the samples' rows are here.
    ``path`` are the positions of the layer at work in the Sequentials around it, outermost first. A layer
    with a penalty carries it to the loss by ``ops.with_penalty``, with this ``weight``, the factor of the
    samples' mean loss in the scaled loss of the whole batch, and appends its value to ``penalties``. An
    ``observer`` sees every layer of the pass; by default it is that of the pass around, such as one around a
    step.
    """

    def __init__(
        self,
        step: int | None,
        places: Places,
        is_part: bool = False,
        *,
        tokens: Tokens | None = None,
        weight: float = 1.0,
        observer: Observer | None = None,
    ):
        self.step, self.places, self.is_part = step, places, is_part
        self.tokens, self.weight = tokens, weight
        self.observer = current_observer() if observer is None else observer
        self.penalties: list[Array] = []
        self.path: list[int] = []
        self.calls: Counter[Any] = Counter()  # masks drawn, by path, and what an observer counts
        self._entered: list[Any] = []

    def __enter__(self) -> ForwardPass:
        self._entered.append(current_pass.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        current_pass.reset(self._entered.pop())

    def mask(self, seed: int) -> Mask:
        """The next mask of the layer at work, whose seed it is."""
        path = tuple(self.path)
        self.calls[path] += 1
        mask = RandomMask(seed, path, self.calls[path] - 1, self.step or 0, self.places)
        return mask if self.tokens is None else self.tokens.mask(mask, len(self.places))

    def penalty(self) -> float:
        """The sum of the penalties that the layers have added."""
        return sum(to_floats(self.penalties), 0.0) if self.penalties else 0.0

    def copy(self) -> ForwardPass:
        """A pass that goes on from here, as the second run of a segment does; its penalties are not read."""
        settings: dict[str, Any] = {"tokens": self.tokens, "weight": self.weight}
        copy = ForwardPass(self.step, self.places, self.is_part, observer=self.observer, **settings)
        copy.path, copy.calls = self.path.copy(), self.calls.copy()
        return copy


def current_path() -> list[int]:
    """The path of the current pass, where a Sequential notes its layers; without a pass, an unused list."""
    return getattr(current_pass.get(), "path", [])


def current_observer() -> Observer | None:
    """The observer of the current pass; None where there is none."""
    return getattr(current_pass.get(), "observer", None)


def observed(on_grad: Callable[[Any], bool | None]) -> Callable[[Any], bool | None]:
    """``on_grad``, before which the observer of the current pass sees the gradient of this rank alone."""
    observer = current_observer()
    if observer is None:
        return on_grad

    def both(parameter: Any) -> bool | None:
        observer.gradient(parameter)
        return on_grad(parameter)

    return both


def check_whole_batch(loss: str) -> None:
    """Raise ValueError in a pass of a part of a batch, for a ``loss`` that is no mean over samples."""
    current = current_pass.get()
    if current is not None and current.step is not None and current.is_part:
        raise ValueError(
            f"{loss} of a part of the batch is no mean over its samples, by which a backend weights it; give "
            "the backend an nn.CrossEntropyLoss or a WeightedMean, which know the whole batch"
        )
