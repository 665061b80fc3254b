"""Every rank holds a part of the model and sees the whole batch."""

from .model_parallel import ModelParallel

__all__ = ["ModelParallel"]
