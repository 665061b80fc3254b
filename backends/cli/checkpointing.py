"""``train --checkpoint DIR`` and ``--resume DIR``: when a training writes its state, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minigrad.backend import Backend
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.train import History

from ..checkpoint.checkpoints import Checkpoints, Damaged, Generation, generation_names, read_generation
from ..checkpoint.disk import Disk
from ..checkpoint.training_state import (
    gather_state,
    load_model_state,
    load_state,
    refuse_unresumable,
)
from ..comm import Communicator
from .parallel import chosen
from .strategy_flags import option

PANEL: dict[str, Any] = {"rich_help_panel": "Checkpoints"}
LAYOUT = ("strategy", "options", "data", "pipe", "model", "plan", "schedule", "micro", "chunks", "bounds")
FREE = (*LAYOUT, "timetable", "pipe_options", "recompute", "transport", "device", "capture")  # any may resume


@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often a training writes checkpoints, and the folder of those that it goes on from."""

    checkpoint: Path | None = option(
        None, "write checkpoints into this folder, from which --resume goes on", metavar="DIR", **PANEL
    )
    every: int = option(100, "number of steps between two checkpoints", min=1, **PANEL)
    keep: int = option(2, "number of the newest checkpoints that are kept", min=1, **PANEL)
    resume: Path | None = option(
        None, "go on from the newest whole checkpoint in this folder", metavar="DIR", **PANEL
    )

    def check(self, backend: Backend | None, config: dict[str, Any]) -> None:
        """Raise ValueError for folders, strategies and settings that do not fit, before a rank starts."""
        if self.checkpoint is None and self.resume is None:
            return
        if backend is not None:
            refuse_unresumable(backend)
        if config["capture"]:
            raise ValueError(
                "--capture keeps the optimizer's state in a recording; leave it or --checkpoint out"
            )
        names = generation_names(Disk(), self.resume) if self.resume is not None else ["any"]
        if not names:
            raise ValueError(f"there is no checkpoint in {self.resume}; leave --resume out to begin anew")
        if self.resume is not None:
            with suppress(Damaged):
                check_settings(read_generation(self.resume / names[0]), config)
        others = generation_names(Disk(), self.checkpoint) if self.checkpoint is not None else []
        if others and self.checkpoint != self.resume:
            raise ValueError(
                f"{self.checkpoint} holds checkpoints already, the newest {others[0]}; pass --resume "
                f"{self.checkpoint} to go on from it, or name another folder"
            )


def check_settings(generation: Generation, config: dict[str, Any]) -> None:
    """Raise ValueError, with the first difference, where the training of a checkpoint had other settings."""
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
    """

    def __init__(
        self,
        options: CheckpointOptions,
        comm: Communicator,
        config: dict[str, Any],
        say: Callable[[str], object],
    ):
        self.options, self.comm, self.config, self.say = options, comm, config, say
        self.arrays: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        if options.resume is not None:
            self.read(options.resume)
        self.files = None
        if options.checkpoint is not None:
            self.files = Checkpoints(options.checkpoint, comm, keep=options.keep)

    def read(self, folder: Path) -> None:
        generation, self.arrays, skipped = Checkpoints(folder, self.comm).newest()
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
        self, backend: Backend, model: Module, optimizer: Optimizer, history: History, accuracies: list[float]
    ) -> bool:
        """Begin to write a checkpoint, if the step is one of those, and say so; all ranks call every step."""
        step = len(history.losses)
        if self.files is None or step % self.options.every:
            return False
        arrays, facts, own = gather_state(self.comm, backend, model, optimizer)
        figures = {"history": vars(history), "test_accuracies": accuracies, "config": self.config}
        figures["chosen"] = chosen(backend)
        self.attempt(lambda files: files.write(step, arrays, {**facts, **figures}, own))
        return True

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
