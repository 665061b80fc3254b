"""Some ranks hold the parameters, the others send them gradients."""

from .parameter_server import ParameterServer

__all__ = ["ParameterServer"]
