"""``train --checkpoint DIR`` and ``--resume DIR``: the options, and which training may go on from which."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from minigrad.strategy import Strategy

from ..checkpoint.checkpoints import Damaged, Generation, generation_names, read_generation
from ..checkpoint.disk import Disk
from ..checkpoint.training_state import refuse_unresumable
from ..launch.restarts import Restarts
from .strategy_flags import option

checkpoint_option = partial(option, rich_help_panel="Checkpoints")
AXIS_OF_TOKENS = {"sequence": 1, "sequence_form": "ring", "sequence_options": {}}
"""Settings that checkpoints have since the sequence axis; those before are of one rank."""
LAYOUT = (
    *("strategy", "options", "data", "pipe", "model", "plan", "schedule", "micro", "chunks", "bounds"),
    *AXIS_OF_TOKENS,
)
# A training that resumes may change these, and no others.
FREE = (
    *LAYOUT,
    "epochs",
    "text",  # its content may not change, its name may
    "timetable",
    "pipe_options",
    "recompute",
    "split_tokens",
    "transport",
    "device",
    "capture",
)


@dataclass(frozen=True)
class CheckpointOptions:
    """Where and how often a training writes checkpoints, and the folder of those that it goes on from."""

    checkpoint: Path | None = checkpoint_option(
        None,
        "write checkpoints into this folder, also at the end and at a signal; --resume goes on from it",
        metavar="DIR",
    )
    every: int = checkpoint_option(100, "number of steps between two checkpoints", min=1)
    keep: int = checkpoint_option(2, "number of the newest checkpoints that are kept", min=1)
    resume: Path | None = checkpoint_option(
        None,
        "go on from the newest whole checkpoint in this folder, and write others into it; a larger --epochs "
        "goes on after the end",
        metavar="DIR",
    )
    restarts: int = checkpoint_option(
        0, "start again from the newest checkpoint, at most N times, when a process has died", min=0
    )

    def check(self, backend: Strategy | None, config: dict[str, Any]) -> None:
        """Raise ValueError for folders, strategies and settings that do not fit, before a rank starts."""
        if self.restarts and self.folder is None:
            raise ValueError("--restarts goes on from a checkpoint; add --checkpoint DIR, or leave it out")
        if self.folder is None:
            return
        if backend is not None:
            refuse_unresumable(backend)
        if config["capture"]:
            raise ValueError(
                "--capture keeps the optimizer's state in a recording; leave out --capture, or --checkpoint "
                "and --resume"
            )
        if self.resume is not None:
            names = generation_names(Disk(), self.resume)
            if not names:
                raise ValueError(f"there is no checkpoint in {self.resume}; leave --resume out to begin anew")
            with suppress(Damaged):
                check_settings(read_generation(self.resume / names[0]), config)
        others = generation_names(Disk(), self.checkpoint) if self.checkpoint is not None else []
        folders = [folder.resolve() for folder in (self.checkpoint, self.resume) if folder is not None]
        if others and folders[1:] != folders[:1]:
            raise ValueError(
                f"{self.checkpoint} holds checkpoints already, the newest {others[0]}; pass --resume "
                f"{self.checkpoint} to go on from it, or name another folder"
            )

    @property
    def folder(self) -> Path | None:
        """Where checkpoints are written; None if they are not."""
        return self.checkpoint or self.resume

    def restarting(self) -> Restarts | None:
        """How the training starts again when a process has died; None if it does not."""
        return Restarts(self.restarts, self.folder) if self.folder is not None and self.restarts else None


def check_settings(generation: Generation, config: dict[str, Any]) -> None:
    """Raise ValueError, with the first difference, where the training of a checkpoint had other settings."""
    if "config" not in generation.facts:
        raise ValueError(
            f"{generation.folder} was written by your own program, not by minigrad train; resume it there, "
            "or leave --resume out"
        )
    settings = generation.facts["config"]
    if not isinstance(settings, dict) or not isinstance(settings.get("epochs"), int):
        raise ValueError(f"{generation.folder} has no settings of a training; take another checkpoint")
    if settings.get("text_sha256") != config.get("text_sha256") and settings.get("net") == config.get("net"):
        name = settings.get("text") or "the course's prose"
        raise ValueError(
            f"{generation.folder} comes from a training on another text, or {name} has changed since; take "
            "that text, or leave --resume out"
        )
    for name, value in settings.items():
        if name not in FREE and config.get(name) != value:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{generation.folder} comes from a training {setting(flag, value)}, and this is one "
                f"{setting(flag, config.get(name))}; pass the same settings to resume it, or leave "
                "--resume out"
            )


def setting(flag: str, value: Any) -> str:
    """Whether, and how, a command line has a setting; None and False stand for a flag that it lacks."""
    if value is None or value is False:
        return f"without {flag}"
    return f"with {flag}" if value is True else f"with {flag} {value}"


def same_layout(facts: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether the run that wrote a checkpoint had these ranks, strategies and options."""
    before = AXIS_OF_TOKENS | facts["config"]
    return all(before.get(name) == config.get(name) for name in LAYOUT)


NO_CHECKPOINTS = CheckpointOptions()
