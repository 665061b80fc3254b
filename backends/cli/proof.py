"""The proof by numbers: one step serial, one step parallel, every gradient on every rank compared."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from minigrad import exact_convolutions
from minigrad.data import Batch
from minigrad.files import replacement
from minigrad.models import find_net
from minigrad.serial import Serial
from minigrad.strategy import Strategy

from ..comm import Communicator
from ..first_difference import first_difference
from ..launch.launch import run
from ..laws import differences_from_serial
from ..precision_laws import differences_in_precision
from ..registry import class_of, load_strategy
from .console import new_console
from .next_command import NextCommand, lesson_of
from .options import DTYPES, ParallelOptions, choice
from .parallel import ParallelConfig, chosen, members
from .precision import loss_scale_of
from .run_folder import Json, check_outputs, write_json
from .run_settings import RunSettings
from .strategy_flags import WithOptions, option
from .verdict import conclusion, location, report, verdict_of


@dataclass(frozen=True)
class Proof(RunSettings):
    """The settings of one comparison."""

    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    dtype: str = choice("float64", "--dtype", DTYPES, is_eager=True)
    batch: int = option(13, "number of samples in the step, over all ranks", min=1)

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
        verdict = verdict_of(differences, differences.bound, self.config() | chosen(backend))
        return verdict if located is None else {**verdict, "located": asdict(located)}

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
        if comm.rank != 0:
            return None
        return verdict_of(
            comparison.differences, comparison.bound, self.config() | chosen(backend), comparison.rule
        )

    def config(self) -> dict[str, Any]:
        return super().config() | {"dtype": self.numbers.name}

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


@WithOptions
def prove(
    ranks: ParallelOptions,
    proof: Proof,
    json: Json = None,
    svg: Annotated[Path | None, typer.Option(help="also draw the table to this SVG file")] = None,
    locate: Annotated[
        bool, typer.Option("--locate", help="also find the first tensor of the step that differs")
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
    settings.numbers.check(members(checked))
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
        lesson_of(checked).show()
    elif any(failed) and not (locate or settings.numbers.is_half):
        again = shlex.join(["minigrad", *sys.argv[1:], "--locate"])
        NextCommand(again, "what is the first tensor that differs?").show()
    sys.exit(1 if any(failed) else status)
