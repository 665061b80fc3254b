"""A pipeline's step as a picture that fills: each instruction appears when its rank carries it out."""

from __future__ import annotations

from html import escape

from backends.pipeline import Costs, find_schedule, simulate

UNIT, ROW, GAP = 20, 34, 4  # pixels of a unit of time, of a rank's row, and between two rows


def schedule_picture(schedule: str = "1f1b", ranks: int = 4, micros: int = 6) -> str:
    """SVG of the simulated step, where a backward takes twice the time of a forward.

    ``style.css`` lets it fill and then turn green, and shows the end at once to a reader who wants no motion.
    """
    run = simulate(find_schedule(schedule).of(ranks, micros), Costs(forward=1, backward=2))
    boxes = []
    for event in run.events:
        kind, micro = type(event.instruction).__name__[0], event.instruction.micros[0]
        x, y = UNIT * event.start, event.rank * (ROW + GAP)
        width = UNIT * (event.stop - event.start)
        boxes.append(
            f'<g class="{kind}" style="--start: {event.start}">'
            f'<rect x="{x}" y="{y}" width="{width - 1}" height="{ROW}" rx="3"/>'
            f'<text x="{x + width / 2:g}" y="{y + ROW / 2 + 5:g}">{kind}{micro}</text></g>'
        )
    words = f"{schedule.upper()} on {ranks} ranks with {micros} micro-batches: forwards F, backwards B"
    size = f"0 0 {UNIT * run.makespan} {ranks * (ROW + GAP)}"
    opening = f'<svg class="schedule" viewBox="{size}" role="img" aria-label="{escape(words)}">'
    return f"{opening}{''.join(boxes)}</svg>"
