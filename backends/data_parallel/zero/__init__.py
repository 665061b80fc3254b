"""Each rank owns a part of the optimizer's state, of the gradients and of the weights: the stages of ZeRO."""

from .sharded import Sharded

__all__ = ["Sharded"]
