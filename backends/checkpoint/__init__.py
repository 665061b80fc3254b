"""Checkpoints: what a training must know to go on after its processes have ended, in files that are whole."""

from .checkpoints import Checkpoints, Generation
from .memory_checkpoints import Lost, PartnerCopies, XorParity

__all__ = ["Checkpoints", "Generation", "Lost", "PartnerCopies", "XorParity"]
