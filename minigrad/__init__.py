"""minigrad: a small tape-based autograd whose parallel strategies are proved to train like one machine.

Lecture section: back-propagation. Lesson: 02_backpropagation.
"""

from . import nn, ops, optim
from .allocator import keep_freed_memory
from .environment import variable
from .exact_convolutions import exact_convolutions
from .op import op
from .recompute import recomputed
from .tape import Tape, no_grad
from .tensor import Parameter, Tensor

__all__ = [
    "Parameter", "Tape", "Tensor", "exact_convolutions", "nn", "no_grad", "op", "ops", "optim", "recomputed",
]  # fmt: skip

keep_freed_memory()
if variable("MINIGRAD_OPS") != "readable":
    from .ops import fast  # noqa: F401 - its forms join those of ops


def __getattr__(name: str) -> str:
    """``__version__``, which is read only when it is asked for."""
    from importlib.metadata import version

    if name != "__version__":
        raise AttributeError(f"module 'minigrad' has no attribute {name!r}")
    return version("minigrad-course")
