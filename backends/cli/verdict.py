"""The verdict of ``minigrad prove``: what was compared, how far it differs, and what that says.

With ``--precision`` it is also on masters and the loss scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..laws import Difference, Differences
from ..precision_laws import ScaleRule
from ..words import counted
from .parallel import ranks_of

COLUMNS = ("name", "shape", "max_abs_error", "max_rel_error", "worst_rank", "unequal")  # in JSON


def verdict_of(
    differences: Sequence[Difference], bound: float, config: dict[str, Any], rule: ScaleRule | None = None
) -> dict[str, Any]:
    """The verdict as ``--json`` writes it.

    In sixteen bits, whose loss scale follows a ``rule``, ``unequal`` counts elements that differ from float32
    masters.
    """
    columns = COLUMNS[:-1] if rule is None else COLUMNS
    rows: dict[str, dict[str, Any]] = {d.name: dict(zip(columns, d, strict=False)) for d in differences}
    scale, loss = rows.pop("loss scale", {}), rows.pop("loss")
    compared = [*rows.values(), loss]
    worst = max(row["max_rel_error"] for row in compared)
    unequal = any(row.get("unequal") for row in (*compared, scale))
    verdict = {
        "config": config,
        "bound": bound,
        "max_abs_error": max(row["max_abs_error"] for row in compared),
        "max_rel_error": worst,
        "passed": worst <= bound and not unequal,
        "parameters": list(rows.values()),
        "loss": loss,
    }
    if rule is not None:
        verdict["loss_scale"] = {
            "value": rule.value,
            "steps": rule.steps,
            "skipped": rule.skipped,
            "unequal": scale["unequal"],
            "worst_rank": scale["worst_rank"],
        }
    return verdict


def rows_of(verdict: dict[str, Any]) -> list[dict[str, Any]]:
    """What was compared: every parameter, and the loss."""
    return [*verdict["parameters"], verdict["loss"]]


def title_of(config: dict[str, Any]) -> str:
    """What was compared on which ranks, and with which serial run."""
    who, serial = config["strategy"], "one serial machine"
    if config["pipe"] > 1:
        pipeline = f"{config['schedule']} pipeline"
        who = f"{who} {pipeline}s" if config["data"] > 1 else f"a {pipeline}"
        serial += f" with {config['micro']} micro-batches"
    if config["sequence"] > 1:
        tokens = f"tokens by {config['sequence_form']}"
        who = tokens if config["data"] == config["pipe"] == 1 else f"{who}, {tokens}"
    ranks = f"{ranks_of(**config)} ({config['transport']})"
    run = f"{config['net']}, batch {config['batch']}, {who} on {ranks}, {config['dtype']}"
    return f"{run}: gradients against {serial}"


def report(verdict: dict[str, Any]) -> Table:
    """The table with a row for each parameter; a row that fails is red and has an x."""
    half = "loss_scale" in verdict
    table = Table(title=title_of(verdict["config"]) + (", masters against float32" if half else ""))
    headings = ("parameter", "shape", "largest difference", "relative", "worst rank", "masters")
    for heading in headings if half else headings[:-1]:
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for p in rows_of(verdict):
        fails = p["max_rel_error"] > verdict["bound"] or p.get("unequal")
        masters = "" if p is verdict["loss"] else f"{p['unequal']} differ" if p.get("unequal") else "equal"
        table.add_row(
            f"{p['name']} x" if fails else p["name"],
            " x ".join(map(str, p["shape"])) or "1",
            f"{p['max_abs_error']:.1e}",
            f"{p['max_rel_error']:.1e}",
            str(p["worst_rank"]),
            *([masters] if half else []),
            style="red" if fails else None,
        )
    return table


def conclusion(verdict: dict[str, Any]) -> Text:
    """The verdict in one line; it names the worst parameter and rank where the runs are not equal."""
    if "loss_scale" in verdict:
        text = conclusion_in_sixteen_bits(verdict)
    else:
        rows = ([row[column] for column in COLUMNS[:-1]] for row in rows_of(verdict))
        text = Differences((Difference(*row) for row in rows), verdict["bound"]).conclusion()
    return Text(text, "bold green" if verdict["passed"] else "bold red")


def conclusion_in_sixteen_bits(verdict: dict[str, Any]) -> str:
    scale = verdict["loss_scale"]
    worst = max(rows_of(verdict), key=lambda row: row["max_rel_error"])
    relative = f"{worst['max_rel_error']:.1e} (allowed {verdict['bound']:.0e}, relative)"
    if verdict["passed"]:
        return (
            f"PROVED: masters and parameters are float32's bit for bit in {counted(scale['steps'], 'step')}, "
            f"of which all ranks left out {scale['skipped']}, and gradients the serial run's to {relative}"
        )
    masters = max(verdict["parameters"], key=lambda row: row["unequal"])
    if masters["unequal"]:
        return (
            f"NOT EQUAL: {masters['name']} or its master on rank {masters['worst_rank']} differs from an "
            f"update of float32 by the same gradients in {counted(masters['unequal'], 'element')}"
        )
    if scale["unequal"]:
        return (
            f"NOT EQUAL: the loss scale of rank {scale['worst_rank']}, or what it left out, is not as by "
            f"rule: {scale['value']:,.10g}, and {scale['skipped']} of {counted(scale['steps'], 'step')}"
        )
    where = f"{worst['name']} on rank {worst['worst_rank']}"
    return f"NOT EQUAL: {where} differs by {worst['max_abs_error']:.1e}, {relative}"


def location(verdict: dict[str, Any]) -> Text:
    """Where the runs first differ, in one line."""
    located, first = verdict["located"], verdict["located"]["first"]
    left_out = (
        f", {located['left_out']} others are not of one form in both runs" if located["left_out"] else ""
    )
    if first is None and verdict["passed"]:
        return Text(f"All {located['compared']} tensors agree{left_out}", "bold green")
    if first is None:
        return Text(
            f"NOT LOCATED: all {located['compared']} tensors of a second step agree{left_out}", "bold red"
        )
    micro = "" if first["micro"] is None else f", micro-batch {first['micro']}"
    agreed = f"; {first['agreed']} agreed" if first["agreed"] else ""
    return Text(
        f"FIRST DIFFERENCE: {first['what']}, on rank {first['rank']}{micro}, by {first['absolute']:.1e}, "
        f"relative {first['relative']:.1e}{agreed}",
        "bold red",
    )
