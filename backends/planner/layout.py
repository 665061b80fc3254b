"""How ranks are shared out among the axes of a grid, and what each axis does.

Lecture section: data and model parallelism together. Lesson: 15_scale, by ``planner.py``.
"""

from __future__ import annotations

from typing import NamedTuple

FORMS = ("ring", "ulysses")


class Layout(NamedTuple):
    """The ranks of each axis, micro-batches of a rank, and by what form a sequence is shared.

    ``split_tokens`` is that of the model axis; with ``expert_parallel`` the ranks of the data axis share the
    experts. ``bounds`` are the first layers of the pipeline's stages and, last, the number of layers.
    """

    data: int = 1
    pipe: int = 1
    sequence: int = 1
    model: int = 1
    micro: int = 1
    form: str = "ring"
    split_tokens: bool = False
    expert_parallel: bool = False
    bounds: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The ranks of data, pipe, sequence and model."""
        return self[:4]

    def words(self) -> str:
        """The axes that have several ranks: "data 2 x model 4, split tokens"."""
        sequence = f"{self.form} {self.sequence}"
        names = (f"data {self.data}", f"pipe {self.pipe}", sequence, f"model {self.model}")
        axes = [name for name, ranks in zip(names, self.shape, strict=True) if ranks > 1]
        more = [f"{self.micro} micro-batches"] if self.micro > 1 else []
        more += ["split tokens"] if self.split_tokens else []
        more += ["experts by rank"] if self.expert_parallel else []
        return ", ".join([" x ".join(axes) or "1 rank", *more])


class Place(NamedTuple):
    """The coordinates of a rank in a ``Layout``."""

    data: int = 0
    pipe: int = 0
    sequence: int = 0
    model: int = 0
