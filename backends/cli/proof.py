"""The proof by numbers: one step serial, one step parallel, every gradient on every rank compared."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minigrad import exact_convolutions
from minigrad.data import Batch
from minigrad.files import replacement
from minigrad.models import find_net
from minigrad.serial import Serial
from minigrad.strategy import Strategy

from ..comm import Communicator
from ..first_difference import first_difference
from ..launch.launch import run
from ..laws import Difference, Differences, bound_for, differences_from_serial
from ..precision_laws import differences_in_precision
from ..registry import class_of, load_strategy
from . import precision_proof
from .console import new_console
from .net_settings import NetSettings
from .next_command import NextCommand, lesson_of
from .options import ParallelOptions, device_option, dtype_option, exact_option, seed_option
from .parallel import ParallelConfig, chosen, members, ranks_of
from .precision import Precision, loss_scale_of, loss_scale_option, precision_option
from .run_folder import Json, check_outputs, write_json
from .strategy_flags import WithOptions, option

COLUMNS = ("name", "shape", "max_abs_error", "max_rel_error", "worst_rank")  # of a Difference, in JSON


@dataclass(frozen=True)
class Proof(NetSettings):
    """The settings of one comparison; every rank holds the same."""

    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    transport: str = "threads"
    device: str = device_option()
    dtype: str = dtype_option("float64")
    precision: str = precision_option()
    loss_scale: str | None = loss_scale_option()
    exact: bool = exact_option()
    batch: int = option(13, "number of samples in the step, over all ranks", metavar="N", min=1)
    seed: int = seed_option()

    def samples(self) -> Batch:
        """The first digits or the last rows of a text, with the padding at its end, copied for this rank.

        Raises ValueError where there are fewer than ``batch``.
        """
        data = self.load(find_net(self.net).datasets[0]).train
        if not 1 <= self.batch <= len(data):
            raise ValueError(f"--batch must be 1 to {len(data)}, got {self.batch}")
        some = data[: self.batch] if not self.sized_net.sizes else data[len(data) - self.batch :]
        return Batch(some.x.copy(), some.y.copy())

    def run(self, comm: Communicator, locate: bool = False) -> dict[str, Any] | None:
        """Compare on this rank; returns the verdict, as ``--json`` writes it, on rank 0, None on the others.

        To ``locate`` the first tensor that differs takes a second step, in which all layers are recorded.

        Raises ValueError for a strategy that does not compute the serial run's gradients.
        """
        if self.numbers.is_half:
            return self.verdict_in_sixteen_bits(comm)
        net = self.sized_net
        batch = net.prepare(self.samples(), self.dtype)
        backend = self.backend(comm)
        model, how = (net.build, net.loss), {"dtype": self.dtype, "device": self.device, "seed": self.seed}
        serial = Serial(self.parallel.micro or 1)
        with exact_convolutions(self.exact):
            differences = differences_from_serial(
                lambda _: backend, comm, *model, [batch], serial=serial, **how
            )
            located = (
                first_difference(self.backend, comm, *model, batch, serial=serial, **how) if locate else None
            )
        if comm.rank != 0:
            return None
        bound = bound_for(np.dtype(self.dtype))
        worst = max(d.relative for d in differences)
        rows = {d.name: dict(zip(COLUMNS, d, strict=False)) for d in differences}
        loss = rows.pop("loss")
        return {
            "config": self.config(backend),
            "bound": bound,
            "max_abs_error": max(d.absolute for d in differences),
            "max_rel_error": worst,
            "passed": worst <= bound,
            "parameters": list(rows.values()),
            "loss": loss,
            **({} if located is None else {"located": asdict(located)}),
        }

    def verdict_in_sixteen_bits(self, comm: Communicator) -> dict[str, Any] | None:
        """``run`` of several steps with master weights, one of which overflows."""
        net, numbers, backend = self.sized_net, self.numbers, self.backend(comm)
        with exact_convolutions(self.exact):
            comparison = differences_in_precision(
                lambda _: backend,
                comm,
                net.build,
                net.loss,
                numbers.prepared(net, self.samples()),
                precision=numbers.name,
                scale=partial(loss_scale_of, numbers.loss_scale),
                device=self.device,
                seed=self.seed,
                micros=self.parallel.micro or 1,
            )
        return precision_proof.verdict_of(comparison, self.config(backend)) if comm.rank == 0 else None

    @property
    def numbers(self) -> Precision:
        """The numbers of samples, parameters and activations."""
        return Precision(self.dtype if self.precision == "float32" else self.precision, self.loss_scale)

    def config(self, backend: Strategy) -> dict[str, Any]:
        """All settings by name, and those that the strategy chose by itself."""
        settings = asdict(self)
        return settings.pop("parallel") | settings | {"dtype": self.numbers.name} | chosen(backend)

    def backend(self, comm: Communicator) -> Strategy:
        backend = self.parallel.backend_on(comm, self.batch, self.sized_net.sample)
        if not backend.traits.equals_serial:
            schedule = self.parallel.schedule if self.parallel.strategy == "serial" else None
            name = f"schedule {schedule!r}" if schedule else f"strategy {self.parallel.strategy!r}"
            raise ValueError(
                f"by its mathematics {name} does not train like one serial machine, "
                "so there is nothing to prove; choose another one"
            )
        return backend


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
    title = title_of(verdict["config"])
    if "loss_scale" in verdict:
        return precision_proof.report(verdict, title)
    table = Table(title=title)
    for heading in ("parameter", "shape", "largest difference", "relative", "worst rank"):
        table.add_column(heading, justify="left" if heading == "parameter" else "right")
    for p in rows_of(verdict):
        shape = " x ".join(map(str, p["shape"])) or "1"
        fails = p["max_rel_error"] > verdict["bound"]
        table.add_row(
            f"{p['name']} x" if fails else p["name"],
            shape,
            f"{p['max_abs_error']:.1e}",
            f"{p['max_rel_error']:.1e}",
            str(p["worst_rank"]),
            style="red" if fails else None,
        )
    return table


def conclusion(verdict: dict[str, Any]) -> Text:
    """The verdict in one line; it names the worst parameter and rank where the runs are not equal."""
    if "loss_scale" in verdict:
        return precision_proof.conclusion(verdict)
    return Text(differences_in(verdict).conclusion(), "bold green" if verdict["passed"] else "bold red")


def differences_in(verdict: dict[str, Any]) -> Differences:
    """The differences that a verdict has."""
    rows = ([row.get(column, "") for column in COLUMNS] for row in rows_of(verdict))
    return Differences((Difference(*row) for row in rows), verdict["bound"])


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


@WithOptions
def prove(
    ranks: ParallelOptions,
    proof: Proof,
    json: Json = None,
    svg: Annotated[
        Path | None, typer.Option(help="also draw the table to this SVG file", metavar="FILE")
    ] = None,
    locate: Annotated[
        bool, typer.Option("--locate", help="also find the first tensor of the step that differs", metavar="")
    ] = False,
    *,
    flags: dict[str, Any],
) -> None:
    """Compare all gradients of one parallel step, on all ranks, with a serial step (status 1: not equal).

    Differences are relative to the largest element of each gradient, and at least a tenth of the model's.
    With --precision several steps are compared: master weights bit for bit, gradients to their rounding, and
    one step that overflows, which all ranks must leave out.
    """
    one_rank = "serial" if ranks.pipe > 1 or ranks.sequence > 1 else "replicated"
    settings = replace(proof, **ranks.configure(flags, proof.batch, one_rank))
    checked = settings.parallel.check(settings.backend)
    settings.numbers.check(members(checked) if checked is not None else [])
    if locate and settings.numbers.is_half:
        raise ValueError(
            "--locate compares tensors that are equal but for another order of sums, and 16 bits round each; "
            "leave --precision out"
        )
    notes = settings.numbers.notes(settings.device) if checked is not None else []
    print(*notes, sep="\n", end="\n" * bool(notes), flush=True)
    check_outputs(json=json, svg=svg)
    failed = []

    def work(comm) -> None:
        verdict = settings.run(comm, locate)
        if verdict is None:
            return
        if json is not None:
            write_json(json, verdict)
        console = new_console(record=svg is not None)
        console.print(report(verdict))
        console.print(conclusion(verdict), soft_wrap=svg is None)
        if locate:
            console.print(location(verdict), soft_wrap=svg is None)
        if svg is not None:
            with replacement(svg) as part:
                console.save_svg(str(part), title="minigrad prove")
        failed.append(not verdict["passed"])

    recover = class_of(load_strategy(settings.parallel.strategy)).traits.recovers
    status = run(settings.parallel.ranks, settings.transport, work, recover=recover)
    if checked is not None and status == 0 and not any(failed):
        lesson_of(checked).show(Console())
    elif any(failed) and not (locate or settings.numbers.is_half):
        again = shlex.join(["minigrad", *sys.argv[1:], "--locate"])
        NextCommand(again, "what is the first tensor that differs?").show(Console())
    sys.exit(1 if any(failed) else status)
