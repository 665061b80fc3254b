"""The verdict of ``minigrad prove --precision``: on masters, gradients and the loss scale."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from ..precision_laws import PrecisionComparison
from ..words import counted

COLUMNS = ("name", "shape", "max_abs_error", "max_rel_error", "worst_rank", "unequal")  # in JSON


def verdict_of(comparison: PrecisionComparison, config: dict[str, Any]) -> dict[str, Any]:
    """The verdict as ``--json`` writes it; ``unequal`` counts elements that differ from float32 masters."""
    *rows, loss, scale = comparison.differences
    worst = max(row.relative for row in (*rows, loss))
    unequal = sum(row.unequal for row in (*rows, scale))
    rule = comparison.rule
    return {
        "config": config,
        "bound": comparison.bound,
        "max_abs_error": max(row.absolute for row in (*rows, loss)),
        "max_rel_error": worst,
        "passed": worst <= comparison.bound and not unequal,
        "parameters": [dict(zip(COLUMNS, row, strict=True)) for row in rows],
        "loss": dict(zip(COLUMNS, loss, strict=True)),
        "loss_scale": {
            "value": rule.value,
            "steps": rule.steps,
            "skipped": rule.skipped,
            "unequal": scale.unequal,
            "worst_rank": scale.worst_rank,
        },
    }


def rows_of(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """What was compared: every parameter, and the loss."""
    return [*verdict["parameters"], verdict["loss"]]


def report(verdict: dict[str, Any], title: str) -> Table:
    """The table with a row for each parameter; a row that fails is red and has an x."""
    table = Table(title=f"{title}, masters against float32")
    for heading in ("parameter", "shape", "largest difference", "relative", "worst rank", "masters"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for p in rows_of(verdict):
        fails = p["max_rel_error"] > verdict["bound"] or p["unequal"]
        masters = "" if p is verdict["loss"] else f"{p['unequal']} differ" if p["unequal"] else "equal"
        table.add_row(
            f"{p['name']} x" if fails else p["name"],
            " x ".join(map(str, p["shape"])) or "1",
            f"{p['max_abs_error']:.1e}",
            f"{p['max_rel_error']:.1e}",
            str(p["worst_rank"]),
            masters,
            style="red" if fails else None,
        )
    return table


def conclusion(verdict: dict[str, Any]) -> Text:
    """The verdict in one line; it names the worst parameter and rank where the runs are not equal."""
    scale = verdict["loss_scale"]
    worst = max(rows_of(verdict), key=lambda row: row["max_rel_error"])
    relative = f"{worst['max_rel_error']:.1e} (allowed {verdict['bound']:.0e}, relative)"
    if verdict["passed"]:
        return Text(
            f"PROVED: masters and parameters are float32's bit for bit in {counted(scale['steps'], 'step')}, "
            f"of which all ranks left out {scale['skipped']}, and gradients the serial run's to {relative}",
            "bold green",
        )
    masters = max(verdict["parameters"], key=lambda row: row["unequal"])
    if masters["unequal"]:
        text = (
            f"{masters['name']} or its master on rank {masters['worst_rank']} differs from an update of "
            f"float32 by the same gradients in {counted(masters['unequal'], 'element')}"
        )
    elif scale["unequal"]:
        text = (
            f"the loss scale of rank {scale['worst_rank']}, or what it left out, is not as by rule: "
            f"{scale['value']:,.10g}, and {scale['skipped']} of {counted(scale['steps'], 'step')}"
        )
    else:
        where = f"{worst['name']} on rank {worst['worst_rank']}"
        text = f"{where} differs by {worst['max_abs_error']:.1e}, {relative}"
    return Text(f"NOT EQUAL: {text}", "bold red")
