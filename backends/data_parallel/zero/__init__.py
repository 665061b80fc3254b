"""Each rank owns a part of the optimizer's state, of the gradients and of the weights: the stages of ZeRO."""

from .gathered_weights import GatheredWeights
from .sharded import Sharded

__all__ = ["GatheredWeights", "Sharded"]
