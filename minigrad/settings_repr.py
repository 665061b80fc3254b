"""What an object with settings prints as: its class, and its settings."""

from __future__ import annotations

from pathlib import Path


def settings_repr(self: object) -> str:
    """``TopK(ratio=0.01)``, for ``__repr__``: the class, and attributes that are numbers, text or paths."""
    settings = {name: str(x) if isinstance(x, Path) else x for name, x in vars(self).items()}
    plain = [f"{name}={x!r}" for name, x in settings.items() if isinstance(x, bool | int | float | str)]
    return f"{type(self).__name__}({', '.join(plain)})"
