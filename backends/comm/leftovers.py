"""What thread ranks forgot: started and never finished, sent and never received."""

from __future__ import annotations

from .world import World


def report_leftovers(world: World, started: list[dict[object, str]]) -> None:
    """Raise RuntimeError where something was started and not finished, or sent and not received."""
    if unfinished := [text for texts in started for text in texts.values()]:
        raise RuntimeError(f"{'; '.join(unfinished)}; call what starting it returned")
    lost = [
        f"{world.owners[m.sender]} to {rank} (tag {tag}, sent at {m.where})"
        for (_, rank, tag), box in world.boxes.items()
        for m in box
    ]
    if lost:
        raise RuntimeError(f"messages were sent but never received: {', '.join(lost)}; add the missing recv")
