"""A training run with the settings of the command line, and its table."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from itertools import pairwise
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from minigrad import exact_convolutions
from minigrad.capture import Captured
from minigrad.data import Dataset
from minigrad.device import use_gpu_of
from minigrad.lr_schedules import SCHEDULES, Schedule, find_schedule, warm_up
from minigrad.metric import ACCURACY, Metric
from minigrad.models import Net, find_net
from minigrad.module import Module
from minigrad.nn.experts import share_dropped
from minigrad.optim import OPTIMIZERS, find_optimizer
from minigrad.strategy import Strategy
from minigrad.train import History, fit

from ..checkpoint.training_checkpoints import TrainingCheckpoints
from ..comm import Communicator
from ..launch.launch import cores
from ..process.signals import uninterrupted
from ..words import counted
from .checkpointing import NO_CHECKPOINTS, CheckpointOptions, check_settings, same_layout
from .curves import title_of
from .lengths import Lengths
from .net_settings import DATASETS
from .options import checked_by, choice, positive
from .parallel import chosen, members
from .precision import loss_scale_of
from .run_settings import RunSettings
from .strategy_flags import option
from .training_log import Append, TrainingLog
from .utilization import Utilization, utilization_of

LINES = 20  # about epochs, at most
GUESSING = 0.1  # the accuracy of a network that has learned nothing about the ten digits


def batch_size(text: str) -> int | None:
    """``--batch``: a number of samples, or "all" (None)."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--batch must be a number of samples of at least 1, or all; got {text!r}")
    return int(text)


@dataclass(frozen=True)
class Training(RunSettings):
    """The settings of one run. A ``batch`` of None is all samples."""

    dataset: str = choice("mnist5k", "--dataset", DATASETS)
    capture: bool = option(
        False, "record each step as CUDA graphs and launch these; one rank with --device cupy", "--capture"
    )
    epochs: int = option(8, "number of passes over the training samples", min=1)
    batch: int | None = option(
        64, "number of samples in a step over all ranks, or all", parser=str, metavar="N", callback=batch_size
    )
    optimizer: str = option("sgd", f"one of {', '.join(OPTIMIZERS)}", callback=checked_by(find_optimizer))
    lr: float | None = positive("--lr", "learning rate (default: the optimizer's own, or the net's)")
    lr_schedule: str = option(
        "cosine",
        f"schedule of the learning rate, one of {', '.join(SCHEDULES)}",
        callback=checked_by(find_schedule),
    )
    warm_up: int | None = option(
        None,
        "steps in which the learning rate rises from a tenth; a cosine begins after them (default: the "
        "net's, at most a quarter of all)",
        metavar="STEPS",
        min=0,
    )
    clip: float | None = positive("--clip", "scale gradients down to this joint norm", metavar="NORM")

    def config(self) -> dict[str, Any]:
        return super().config() | ({"text_sha256": self.of_text.sha256} if self.sized_net.sizes else {})

    def check_capture(self, traced: bool) -> None:
        """Raise ValueError where ``--capture`` cannot be, with the way out."""
        if not self.capture:
            return
        if self.device != "cupy":
            raise ValueError(
                f"--capture records CUDA graphs, and the device is {self.device}; add --device cupy, or "
                "leave --capture out"
            )
        if self.experts is not None:
            raise ValueError(
                "--capture records steps of fixed shapes, and experts have as many rows as chose them; leave "
                "--capture or --experts out"
            )
        if self.numbers.is_half:
            raise ValueError(
                "--capture repeats the numbers of one step, and a loss scale may change; leave --capture or "
                "--precision out"
            )
        ranks = self.parallel
        if ranks.ranks > 1 or ranks.plan is not None or ranks.strategy != "serial":
            raise ValueError(
                f"--capture is for one rank with --strategy serial, got {counted(ranks.ranks, 'rank')} with "
                f"{ranks.strategy}; leave out --capture, or the options of ranks and strategy"
            )
        if traced:
            raise ValueError(
                "--trace shows forward and backward, which --capture launches as one; leave one of them out"
            )

    def steps(self) -> int:
        """The number of steps of the run; it loads the data set, unless a step takes all samples."""
        if self.batch is None:
            return self.epochs
        return self.epochs * -(-len(self.load(self.dataset).train) // self.batch)

    def schedule(self, lr: float, steps: int) -> Schedule:
        """The learning rate of each step of a training that has so many."""
        make: Callable[..., Schedule] = find_schedule(self.lr_schedule)
        rise = self.warm_up_of(steps)
        if "from_step" in signature(make).parameters:  # a cosine begins after the warm-up
            make = partial(make, from_step=rise)
        return warm_up(make(lr, steps), rise, lr / 10)

    def warm_up_of(self, steps: int) -> int:
        """The steps of the warm-up: ``--warm-up``, or the net's, which gives way in a short training."""
        return min(find_net(self.net).warm_up, steps // 4) if self.warm_up is None else self.warm_up

    def check_momentum(self, backend: Strategy | None) -> None:
        """Raise ValueError where both the strategy and the optimizer would apply momentum."""
        takes_betas = "betas" in signature(find_optimizer(self.optimizer)).parameters
        for member in members(backend) if takes_betas else ():
            if member.traits.applies_momentum:
                raise ValueError(
                    f"{type(member).__name__} applies momentum before the exchange, and --optimizer "
                    f"{self.optimizer} would add its own; take --optimizer sgd, which then has none"
                )

    def check_warm_up(self) -> None:
        """Raise ValueError for a warm-up that does not end before the run."""
        if self.warm_up and self.warm_up >= (steps := self.steps()):
            raise ValueError(
                f"--warm-up {self.warm_up} must be less than the {steps} steps of the run; take a shorter "
                "one, more --epochs or a smaller --batch"
            )

    def notes(self) -> list[str]:
        """What these settings lead to and a user may not expect, a sentence each."""
        ranks, notes = self.parallel, self.numbers.notes(self.device)
        if self.batch is not None and self.batch < ranks.data:
            notes.append(
                f"note: {ranks.data} ranks share {counted(self.batch, 'sample')} in a step, so "
                f"{ranks.data - self.batch} of them have none; --batch {ranks.data} gives each one"
            )
        sizes, sharing = self.sized_net.sizes, ranks.sequence  # the ranks that share the tokens of a row
        if sharing > 1 and sizes["length"] < sharing:
            notes.append(
                f"note: {sharing} ranks share rows of {counted(sizes['length'], 'token')}, so "
                f"{sharing - sizes['length']} of them have none; --length {sharing} gives each one"
            )
        elif sharing > 1 and ranks.sequence_form == "ulysses" and sizes["heads"] < sharing:
            notes.append(
                f"note: {sharing - sizes['heads']} of {sharing} ranks have no head; "
                "--sequence-form ring keeps all busy"
            )
        if ranks.ranks > cores() and not os.environ.get("SLURM_JOB_ID"):
            notes.append(
                f"note: {ranks.ranks} ranks share {counted(cores(), 'core')}, so each step takes longer than "
                "on one rank for each core"
            )
        return notes

    def backend(self, comm: Communicator) -> Strategy:
        """The strategies on this rank."""
        if self.capture:
            return Captured(**self.parallel.options)
        batch = self.batch or len(self.load(self.dataset).train)
        return self.parallel.backend_on(comm, batch, self.sized_net.sample)

    def run(
        self,
        comm: Communicator,
        backend: Strategy,
        console: Console,
        save: Callable[[dict[str, Any]], object],
        checkpoint_options: CheckpointOptions = NO_CHECKPOINTS,
        append: Append = lambda records: None,
        log: bool = False,
    ) -> tuple[dict[str, Any], Module]:
        """Train on this rank; rank 0 shows the progress. Returns its measurements and the whole model.

        ``save`` is called after every epoch with the measurements so far, and ``append`` after every step and
        every test with its records. With ``log`` the progress is one line an epoch.
        """
        net, metric, numbers = self.sized_net, self.sized_net.metric, self.numbers
        tests, last = f"test_{metric.plural}", f"test_{metric.name}"  # in the figures
        if self.device == "cupy":
            use_gpu_of(comm.local_rank)
        data: Dataset = self.load(self.dataset)
        train, test = (numbers.prepared(net, part).to(self.device) for part in (data.train, data.test))
        lr, settings = self.optimizer_settings(net)
        steps = self.steps()
        if "momentum" in settings and any(member.traits.applies_momentum for member in members(backend)):
            settings["momentum"] = 0.0
        model = net.build(np.random.default_rng(self.seed)).to(dtype=numbers.name, device=self.device)
        say = console.print if comm.rank == 0 else lambda text: None
        checkpoints = TrainingCheckpoints(
            checkpoint_options.folder,
            comm,
            every=checkpoint_options.every,
            keep=checkpoint_options.keep,
            steps=steps,
            resume=checkpoint_options.resume or False,
            check=lambda generation: check_settings(generation, self.config()),
            facts={"config": self.config()},
            say=say,
        )
        saved = checkpoints.saved
        checkpoints.load_model(model)
        same = bool(saved) and same_layout(saved, self.config())
        for member in members(backend):
            member.declaration.set_chosen(member, saved.get("chosen", {}) if same else {})
        model = backend.place(model)
        optimizer = find_optimizer(self.optimizer)(model.parameters(), lr, **settings)
        if numbers.is_half:
            optimizer.with_master_weights(numbers.name, loss_scale_of(numbers.loss_scale))
        if self.clip is not None:
            optimizer.clipped(self.clip)
        history = checkpoints.load_rest(backend, model, optimizer, same_layout=same)
        results, skipped = list(saved.get(tests, [])), list(saved.get("skipped_steps", []))
        lengths = Lengths(saved, len(history.losses), self.epochs, steps // self.epochs)
        config = {"momentum": None, **self.config(), "lr": lr, "warm_up": self.warm_up_of(steps), **settings}
        config |= chosen(backend)
        schedule_of = partial(self.schedule, lr)
        rate = lengths.rate(schedule_of)
        for note in lengths.notes(self.lr_schedule, schedule_of):
            say(note)
        folder = checkpoint_options.folder
        about = {"config": config, "ranks": comm.size, "checkpoints": None if folder is None else str(folder)}
        records = TrainingLog(
            append,
            about,
            rate=lambda step: rate(step - bisect_right(skipped, step)),
            epoch_steps=steps // self.epochs,
            test_steps=steps if self.batch is None else steps // self.epochs,
            say=say,
            test=last,
        )

        def measurements(history: History, finished: bool) -> dict[str, Any]:
            return {
                **about,
                "finished": finished,
                "losses": history.losses,
                **({"loss_scale": optimizer.loss_scale, "skipped_steps": skipped} if numbers.is_half else {}),
                tests: results,
                **({"references": data.references} if data.references else {}),
                "seconds": history.seconds,
                "samples_per_second": history.samples_per_second,
            }

        def on_epoch(epoch: int, history: History) -> None:
            if self.batch is not None or epoch == self.epochs - 1:
                with comm.computing("test"):
                    results.append(metric.measure(model, test))
            records.update(history, results)
            every = 1 if log else -(-self.epochs // LINES)
            due = epoch % every == (self.epochs - 1) % every
            if due and comm.rank == 0 and (log or not (console.is_interactive or console.quiet)):
                with suppress(OSError):  # a closed pipe does not end the training
                    print(epoch_line(epoch, self.epochs, history, results, metric), flush=True)
            save(measurements(history, finished=False))

        shown = comm.rank == 0 and not log
        bar = progress_bar(console, steps, shown=shown, done=len(history.losses))
        with checkpoints, bar as show, exact_convolutions(self.exact):

            def on_step(step: int, loss: float) -> None:
                if len(skipped) < optimizer.skipped_steps:
                    skipped.append(step + 1)
                show(step, loss)
                records.update(history, results)
                more = {tests: results, "chosen": chosen(backend), "lengths": lengths.parts}
                more |= {"skipped_steps": skipped} if numbers.is_half else {}
                if checkpoints.write(**more):
                    save(measurements(history, finished=False))
                checkpoints.stop_if_agreed()

            fit(
                model,
                optimizer,
                net.loss,
                train,
                backend=backend,
                epochs=self.epochs,
                batch_size=self.batch,
                seed=self.seed,
                schedule=rate,
                start=history,
                on_step=on_step,
                on_epoch=on_epoch,
                span=comm.computing,
            )
        figures: dict[str, Any] = {}
        for member in members(backend):
            figures |= member.declaration.figures(member)
        figures |= measurements(history, finished=True)
        with exact_convolutions(self.exact):
            figures[last] = (results or [metric.measure(model, test)])[-1]
            figures[f"train_{metric.name}"] = metric.measure(model, train)
        speed = None
        if self.device == "numpy":
            speed = utilization_of(net, history.samples_per_second, comm.size, self.dtype)
        if speed is not None:
            figures["utilization"] = {**speed._asdict(), "share": speed.share}
        if figures.get("lost"):  # the ranks cannot come together, and the model is whole
            return figures, model
        whole = self.whole_model(backend, model)
        alike = backend.traits.equals_serial  # else the trained form has other places than the whole model
        share = share_dropped(whole, partial(metric.measure, whole, test)) if alike else None
        figures |= {} if share is None else {"dropped_share": share}
        backend.close()
        return figures, whole

    def whole_model(self, backend: Strategy, model: Module) -> Module:
        """The serial run's model with the trained arrays; all ranks call."""
        if backend.size == 1:
            return model
        arrays = backend.state.full_parameters(model) | backend.state.full_state(model)
        whole = self.sized_net.build(np.random.default_rng(self.seed)).to(dtype=self.numbers.name)
        for first, *others in whole.tied_parameters():
            arrays |= dict.fromkeys(others, arrays[first])
        whole.load_state_dict(arrays)
        return whole

    def model_notes(self) -> dict[str, str]:
        """What the file of the model says about it: all that is needed to build and to test it again."""
        notes = {"net": self.net, "dtype": self.numbers.name, "dataset": self.dataset}
        if self.sized_net.sizes:
            notes |= {name: str(size) for name, size in self.sized_net.sizes.items()}
            notes["symbols"] = self.of_text.symbols.decode("latin-1")
            notes |= {} if self.text is None else {"text": str(self.text.resolve())}
        return notes

    def optimizer_settings(self, net: Net) -> tuple[float, dict[str, float]]:
        """The learning rate and the other settings.

        The rate is --lr, else the net's for the net's optimizer, else the optimizer's own, or the net's.
        """
        takes = signature(find_optimizer(self.optimizer)).parameters
        own = takes["lr"].default
        if self.lr is None and own is Parameter.empty and net.optimizer != Training.optimizer:
            raise ValueError(
                f"the learning rate of {self.net} is one for {net.optimizer}, and {self.optimizer} needs "
                "another; pass --lr"
            )
        rate: Any = net.lr if own is Parameter.empty or self.optimizer == net.optimizer else own
        return self.lr or rate, {"momentum": net.momentum} if "momentum" in takes else {}


@contextmanager
def progress_bar(
    console: Console, steps: int, *, shown: bool, done: int = 0
) -> Iterator[Callable[[int, float], None]]:
    """Draw a progress bar; the function to call after every step, with the step and its loss."""
    if not (shown and console.is_interactive):
        yield lambda step, loss: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=4,
    )
    task = bar.add_task("training", total=steps, completed=done, loss="-")

    def start() -> None:
        bar.start()
        console.show_cursor(True)  # the bar hides it; a process that is killed cannot show it again

    try:
        uninterrupted(start)
        yield lambda _, loss: bar.update(task, advance=1, loss=f"{loss:.4f}")
    finally:
        bar.stop()


def epoch_line(
    epoch: int, epochs: int, history: History, results: list[float], metric: Metric = ACCURACY
) -> str:
    """Progress where there is no bar: step, mean loss of the epoch, test result, seconds, samples/s."""
    steps = len(history.losses)
    loss = np.mean(history.losses[-(steps // (epoch + 1)) :])
    result = f"{metric.progress(results[-1])}, " if results else ""
    speed = f"{history.seconds:.0f} s, {history.samples_per_second:,.0f} samples/s"
    return f"epoch {epoch + 1} of {epochs}: step {steps}, loss {loss:.2g}, {result}{speed}"


def report(metrics: dict[str, Any], backend: Strategy) -> Table:
    """The table of a finished run, with the rows of its strategies."""
    config = metrics["config"]
    table = Table(title=title_of(metrics), show_header=False)
    if (bounds := config["bounds"]) is not None:
        stages = ", ".join(f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in pairwise(bounds))
        table.add_row("pipeline", f"{config['schedule']}, {config['micro']} micro-batches")
        table.add_row("layers of the stages", f"{stages} (--bounds {','.join(map(str, bounds))})")
    if (plan := config["plan"]) is not None:
        table.add_row("split layers", ", ".join(f"{name} by {kind}" for name, kind in plan.items()) or "none")
    metric = find_net(config["net"]).metric
    guessing = f" (guessing: {GUESSING:.0%})" if metric is ACCURACY else ""
    table.add_row(f"test {metric.name}", metric.show(metrics[f"test_{metric.name}"]) + guessing)
    table.add_row(f"training {metric.name}", metric.show(metrics[f"train_{metric.name}"]))
    if "dropped_share" in metrics:
        table.add_row("choices without a place", f"{metrics['dropped_share']:.1%} of the test text's")
    for name, value in metrics.get("references", {}).items():
        table.add_row(name, metric.show(value))
    if metrics["losses"]:
        table.add_row(
            "loss, first and last step", f"{metrics['losses'][0]:.4f} to {metrics['losses'][-1]:.4f}"
        )
    if "loss_scale" in metrics:
        skipped = counted(len(metrics["losses"]), "step")
        skipped = f"{len(metrics['skipped_steps'])} of {skipped} left out"
        table.add_row(f"{config['precision']}: loss scale", f"{metrics['loss_scale']:,.10g}; {skipped}")
    for member in members(backend):
        for name, text in member.declaration.rows(member).items():
            table.add_row(name, text)
    table.add_row("training time", f"{metrics['seconds']:.1f} s")
    table.add_row("samples per second", f"{metrics['samples_per_second']:,.0f}")
    if (speed := metrics.get("utilization")) is not None:
        table.add_row("products", str(Utilization(speed["flops"], speed["peak"], speed["ranks"])))
    return table
