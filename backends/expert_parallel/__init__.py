"""Ranks that share a batch and the experts of its tokens."""

from .expert_parallel import ExpertParallel

__all__ = ["ExpertParallel"]
