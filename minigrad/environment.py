"""Environment variables that take one of a few values; another value raises ValueError."""

import os

VALUES = {
    "MINIGRAD_MALLOC": ("", "default"),
    "MINIGRAD_OPS": ("", "fast", "readable"),
    "MINIGRAD_CHECK": ("", "arrays", "messages", "all"),
    "MINIGRAD_CUDA_AWARE": ("", "0", "1"),
}


def variable(name: str) -> str:
    """The variable's value, "" where it is not set; raises ValueError for an unknown value."""
    value = os.environ.get(name, "")
    if value not in VALUES[name]:
        known = ", ".join(repr(known) for known in VALUES[name] if known)
        raise ValueError(f"{name} takes {known}, got {value!r}; unset it, or choose one of these")
    return value


def check_variables() -> None:
    """Raise ValueError for a variable with an unknown value."""
    for name in VALUES:
        variable(name)
