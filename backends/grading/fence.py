"""What a player may not do: stands here until the fence proper is in its place."""

from __future__ import annotations

from pathlib import Path

from .guard import forbid
from .limits import limit


def refusal(source: str, starter: str) -> str | None:
    """Why a submission is not graded; None where its text has nothing that it may not have."""
    return None


def prefix() -> list[str]:
    """What a player's command begins with."""
    return []


def enter(mebibytes: int, seconds: float) -> None:
    """From now on this process has so much memory and time, and may change its own folder only."""
    limit(mebibytes, seconds)
    forbid(Path.cwd(), "")
