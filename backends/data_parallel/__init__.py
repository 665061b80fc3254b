"""Every rank holds the whole model and a share of the batch."""

from .replicated import DataParallel

__all__ = ["DataParallel"]
