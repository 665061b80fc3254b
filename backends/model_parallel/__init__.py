"""Every rank holds a part of the model and sees the whole batch."""

from .layers import LayerWise
from .place import ModelParallel

__all__ = ["LayerWise", "ModelParallel"]
