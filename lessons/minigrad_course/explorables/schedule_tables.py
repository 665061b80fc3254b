"""The schedules of backends/pipeline written out, which the workshop offers to take."""

from __future__ import annotations

from typing import Any

from backends.pipeline import SCHEDULES, Schedule
from backends.pipeline.gantt import text_of_plan
from backends.pipeline.schedule_file import description_of

RANKS, MICROS = (2, 3, 4), range(1, 9)
ABOUT = {
    "gpipe-batched": "GPipe with the weight gradients of all micro-batches as one product, at the end.",
    "1f1b-pairs": "1F1B with the weight gradients of two micro-batches as one product.",
    "1f1b-batched": "1F1B with the weight gradients of all micro-batches as one product, at the end.",
}
"""What the orders that are made from other ones do; the others say it themselves."""


def workshop_data() -> dict[str, Any]:
    """Every schedule's instructions for some ranks and micro-batches, by name, and why others have none."""
    return {
        "ranks": list(RANKS),
        "micros": list(MICROS),
        "schedules": {name: written_out(schedule) for name, schedule in SCHEDULES.items()},
    }


def workshop_texts() -> dict[str, str]:
    """What stands on the page without JavaScript."""
    return {"fallback": text_of_plan("1f1b", ranks=4, micros=4)}


def written_out(schedule: Schedule) -> dict[str, Any]:
    """The ranks' instructions by "ranks,micro-batches", as in a file; sentences where there are none."""
    tables, refusals, shape = {}, {}, {}
    for ranks in RANKS:
        for micros in MICROS:
            try:
                description = description_of(schedule.of(ranks, micros))
            except ValueError as error:
                refusals[f"{ranks},{micros}"] = str(error)
            else:
                tables[f"{ranks},{micros}"] = "|".join(row.replace(" ", "") for row in description["ranks"])
                shape = {key: description[key] for key in ("route", "chunks")}
    about = ABOUT.get(schedule.name) or (schedule.order.__doc__ or "").partition("\n")[0]
    return {"about": about, "tables": tables, "refusals": refusals, **shape}
