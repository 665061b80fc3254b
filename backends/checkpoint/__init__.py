"""Checkpoints: what a training must know to go on after its processes have ended, in files that are whole."""

from .checkpoints import Checkpoints, Generation
from .memory_checkpoints import Lost, PartnerCopies, XorParity
from .training_checkpoints import TrainingCheckpoints
from .training_state import gather_state, load_model_state, load_state

__all__ = [
    "Checkpoints",
    "Generation",
    "Lost",
    "PartnerCopies",
    "TrainingCheckpoints",
    "XorParity",
    "gather_state",
    "load_model_state",
    "load_state",
]
