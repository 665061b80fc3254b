"""Checkpoints: what a training must know to go on after its processes have ended, in files that are whole."""

from .checkpoints import Checkpoints, Generation

__all__ = ["Checkpoints", "Generation"]
