"""Which grid of ranks trains a net fastest in the memory that each rank has."""

from .estimate import Estimate, estimate
from .hardware import Hardware
from .layout import Layout
from .planner import best_first, layouts
from .transformer_sizes import TransformerSizes

__all__ = ["Estimate", "Hardware", "Layout", "TransformerSizes", "best_first", "estimate", "layouts"]
