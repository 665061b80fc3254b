"""``train --checkpoint DIR`` and ``--resume DIR``: when a training writes its state, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from minigrad.backend import Backend
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.train import History

from ..checkpoint.checkpoints import (
    REAL,
    Checkpoints,
    Damaged,
    Generation,
    generation_names,
    newest_generation,
    numbers_in,
    read_generation,
)
from ..checkpoint.disk import Disk
from ..checkpoint.stop_agreement import StopAgreement
from ..checkpoint.training_state import (
    gather_state,
    load_model_state,
    load_state,
    refuse_unresumable,
)
from ..comm import Communicator
from ..comm.allgather_json import allgather_json
from ..launch import rank
from ..launch.restarts import Restarts
from ..launch.stop_request import StopRequest
from ..launch.stopped import Stopped
from .parallel import chosen
from .strategy_flags import option

PANEL: dict[str, Any] = {"rich_help_panel": "Checkpoints"}
LAYOUT = ("strategy", "options", "data", "pipe", "model", "plan", "schedule", "micro", "chunks", "bounds")
FREE = (*LAYOUT, "timetable", "pipe_options", "recompute", "transport", "device", "capture")  # any may resume


@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often a training writes checkpoints, and the folder of those that it goes on from."""

    checkpoint: Path | None = option(
        None,
        "write checkpoints into this folder, also when a signal ends the training; --resume goes on from it",
        metavar="DIR",
        **PANEL,
    )
    every: int = option(100, "number of steps between two checkpoints", min=1, **PANEL)
    keep: int = option(2, "number of the newest checkpoints that are kept", min=1, **PANEL)
    resume: Path | None = option(
        None, "go on from the newest whole checkpoint in this folder", metavar="DIR", **PANEL
    )
    restarts: int = option(
        0, "start again from the newest checkpoint, at most N times, when a process has died", min=0, **PANEL
    )

    def check(self, backend: Backend | None, config: dict[str, Any]) -> None:
        """Raise ValueError for folders, strategies and settings that do not fit, before a rank starts."""
        if self.restarts and self.checkpoint is None:
            raise ValueError("--restarts goes on from a checkpoint; add --checkpoint DIR, or leave it out")
        if self.checkpoint is None and self.resume is None:
            return
        if backend is not None and self.checkpoint is not None:
            refuse_unresumable(backend)
        if config["capture"]:
            raise ValueError(
                "--capture keeps the optimizer's state in a recording; leave out --capture, or --checkpoint "
                "and --resume"
            )
        names = generation_names(Disk(), self.resume) if self.resume is not None else ["any"]
        if not names:
            raise ValueError(f"there is no checkpoint in {self.resume}; leave --resume out to begin anew")
        if self.resume is not None:
            with suppress(Damaged):
                check_settings(read_generation(self.resume / names[0]), config)
        others = generation_names(Disk(), self.checkpoint) if self.checkpoint is not None else []
        folders = [folder.resolve() for folder in (self.checkpoint, self.resume) if folder is not None]
        if others and folders[1:] != folders[:1]:
            raise ValueError(
                f"{self.checkpoint} holds checkpoints already, the newest {others[0]}; pass --resume "
                f"{self.checkpoint} to go on from it, or name another folder"
            )

    def restarting(self) -> Restarts | None:
        """How the training starts again when a process has died; None if it does not."""
        if self.checkpoint is None or not self.restarts:
            return None
        return Restarts(self.restarts, self.checkpoint)


def check_settings(generation: Generation, config: dict[str, Any]) -> None:
    """Raise ValueError, with the first difference, where the training of a checkpoint had other settings."""
    if "config" not in generation.facts:
        raise ValueError(
            f"{generation.folder} is of a program of your own, not of minigrad train; go on from it there, "
            "or leave --resume out"
        )
    for name, value in generation.facts["config"].items():
        if name not in FREE and config.get(name) != value:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{generation.folder} is of a training with {flag} {value}, and this one has "
                f"{config.get(name)}; pass the same settings to resume it, or leave --resume out"
            )


NO_CHECKPOINTS = CheckpointOptions()


class TrainingCheckpoints:
    """The checkpoints of one training on this rank; all ranks construct it, before the model is placed.

    With ``resume`` it reads the newest whole generation. Raises ValueError where there is none, or one of a
    training with other settings.

    Inside ``with`` a signal only requests the training's end: all ranks stop after a step on which they
    agree, and save it.
    """

    def __init__(
        self,
        options: CheckpointOptions,
        comm: Communicator,
        config: dict[str, Any],
        say: Callable[[str], object],
        disk: Disk = REAL,
        request: StopRequest | None = None,
    ):
        self.options, self.comm, self.config, self.say, self.disk = options, comm, config, say, disk
        self.arrays: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        if options.resume is not None:
            self.read(options.resume)
        self.files = None
        if options.checkpoint is not None:
            self.files = Checkpoints(options.checkpoint, comm, keep=options.keep, disk=disk)
        self.request, self.agreement = request or StopRequest(), StopAgreement(comm)
        self.agreed: int | None = None  # the signal on which all ranks stop after this step

    def __enter__(self) -> Self:
        if self.files is not None:
            self.request.__enter__()
            rank.note(f"{rank.SAVES}.{self.comm.rank}", "")
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.request.__exit__(kind, *error)
        if kind is None and self.request.number is not None:
            self.request.act(self.request.number)  # it came after the last step, as it would without us
        if kind is not None and self.files is not None:
            self.files.abandon()

    def read(self, folder: Path) -> None:
        """Read the newest whole generation in a folder, and say which; ValueError where there is none."""
        generation, self.arrays, skipped = newest_generation(folder, self.comm, self.disk)
        for problem in skipped:
            self.say(f"skipped a checkpoint: {problem}")
        if generation is None:
            raise ValueError(f"no checkpoint in {folder} is whole; leave --resume out to begin anew")
        self.facts = generation.facts
        check_settings(generation, self.config)
        self.say(f"resumed from {generation.folder}, at step {generation.step}")

    @property
    def history(self) -> History:
        """That of the steps before."""
        return History(**self.facts["history"]) if self.facts else History()

    @property
    def accuracies(self) -> list[float]:
        """The test accuracies of the epochs before."""
        return list(self.facts.get("test_accuracies", []))

    @property
    def same_layout(self) -> bool:
        """Whether the run that this one resumes had the same ranks, strategies and options."""
        return all(self.facts["config"].get(name) == self.config.get(name) for name in LAYOUT)

    @property
    def chosen(self) -> dict[str, Any]:
        """What strategies chose by themselves in the run that this one resumes, with the same ranks."""
        return self.facts.get("chosen", {}) if self.facts and self.same_layout else {}

    def load_model(self, model: Module) -> None:
        """Give a serial model the saved arrays, if this run resumes one."""
        if self.facts:
            load_model_state(model, self.arrays)

    def load_rest(self, backend: Backend, model: Module, optimizer: Optimizer) -> None:
        """Give a rank, whose model has been placed, everything else that was saved."""
        if not self.facts:
            return
        same = self.same_layout
        load_state(self.comm, backend, model, optimizer, self.arrays, self.facts, same_layout=same)
        self.arrays = {}

    def write(
        self,
        backend: Backend,
        model: Module,
        optimizer: Optimizer,
        history: History,
        accuracies: list[float],
        *,
        last: bool,
    ) -> bool:
        """Begin to write a checkpoint, if the step is one of those, and say so; all ranks call every step.

        It is also one of those if all ranks stop after it. ``last`` says that no step comes after it. Where
        ranks may lag, nobody waits for them after any other step: they stop after one that is saved anyway.
        """
        step = len(history.losses)
        if self.files is None:
            return False
        due = step % self.options.every == 0
        if backend.may_lag:
            if not (due or last):
                return False
            backend.drain(model)
        self.agreed = self.agreement.after_step(self.request.number, last=last or backend.may_lag)
        if not due and self.agreed is None:
            return False
        arrays, facts, own = gather_state(self.comm, backend, model, optimizer)
        figures = {"history": vars(history), "test_accuracies": accuracies, "config": self.config}
        figures["chosen"] = chosen(backend)
        self.attempt(Checkpoints.wait)  # apart: where the one before failed, this one is written all the same
        self.attempt(lambda files: files.write(step, arrays, {**facts, **figures}, own))
        return True

    def stop_if_agreed(self) -> None:
        """Raise Stopped, on all ranks, if they have agreed to stop after this step, once it is written."""
        if self.files is None or self.agreed is None:
            return
        problem = ""
        try:
            self.files.wait()
        except OSError as error:
            problem = f"{error}; "
        self.request.restore()
        problem, newest = allgather_json(self.comm, [problem, self.files.committed])[0]  # of who commits
        if not newest:
            raise Stopped(self.agreed, f"{problem}no checkpoint of this run was written", "")
        saved = f"step {numbers_in(newest)[0]} is saved in {self.files.folder / newest}"
        raise Stopped(self.agreed, problem + saved, str(self.files.folder))

    def close(self) -> None:
        """Return when the last checkpoint is written."""
        self.attempt(Checkpoints.wait)

    def attempt(self, job: Callable[[Checkpoints], None]) -> None:
        """Do ``job``; a disk that is full does not end the training, which says so."""
        if self.files is not None:
            try:
                job(self.files)
            except OSError as error:
                self.say(f"{error}; the training goes on")
