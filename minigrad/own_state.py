"""What an object must remember from step to step, for a checkpoint to hold it.

Lecture section: gradient compression. Lesson: 10_gradient_compression, by ``compressor.py``.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OwnState:
    """Names in ``own_state`` the attributes that change from step to step and that nothing else tells.

    They are arrays, lists of arrays, numbers or None.
    """

    own_state: ClassVar[tuple[str, ...]] = ()

    def own_values(self) -> dict[str, Any]:
        """These attributes by name."""
        return {name: vars(self)[name] for name in self.own_state}

    def set_own_values(self, values: dict[str, Any]) -> None:
        """Go on from what ``own_values`` gave."""
        for name in self.own_state:
            vars(self)[name] = values[name]
