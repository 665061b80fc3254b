"""Which grid of ranks trains a net fastest in the memory that each rank has."""

from .estimate import Estimate, Stages
from .hardware import Hardware
from .layout import Layout
from .planner import best_first, layouts
from .transformer_sizes import TransformerSizes

__all__ = ["Estimate", "Hardware", "Layout", "Stages", "TransformerSizes", "best_first", "layouts"]
