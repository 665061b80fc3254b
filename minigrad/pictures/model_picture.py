"""A picture of a model: a line for each layer, the shapes of its parameters, and their sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..tensor_base import TensorBase
from .table import Cell, Row, picture_of

if TYPE_CHECKING:
    from ..module import Module

LAYER, CONTAINER = "#CFE5F3", "#F1EFEA"


def model_picture(model: Module) -> str:
    """The SVG of a model: a row for each module in it, outermost first.

    A parameter that several modules share is counted where it comes first, and named where it comes again.
    """
    parameters = model.named_parameters()
    size = sum(p.size for p in parameters.values())
    trained = sum(p.size for p in parameters.values() if p.requires_grad)
    first = {id(p): name for name, p in parameters.items()}
    rows = [row_of(name, module, first) for name, module in [("", model), *model.named_modules()]]
    frozen = f", {size - trained:,} of them frozen" if trained < size else ""
    last = f"{size:,} parameters{frozen} in {len(parameters):,} arrays"
    title = f"{type(model).__name__}, a model of {last}"
    return picture_of(title, ("name", "layer", "parameters", "count"), rows, (3,), last=last)


def row_of(name: str, module: Module, first: dict[int, str]) -> Row:
    """The row of one module, which is called ``name``; ``first`` has the first name of each parameter."""
    inside = module.children()
    own = {key: value for key, value in vars(module).items() if isinstance(value, TensorBase)}
    prefix = f"{name}." if name else ""
    new = [value.size for key, value in own.items() if first.get(id(value)) == prefix + key]
    words = ", ".join(in_words(prefix, key, value, first) for key, value in own.items())
    layer = Cell(type(module).__name__, CONTAINER) if inside else Cell(module.in_one_line(), LAYER)
    return Cell(name), layer, Cell(words), Cell(f"{sum(new):,}" if new else "")


def in_words(prefix: str, key: str, parameter: TensorBase, first: dict[int, str]) -> str:
    """A parameter's name and shape, or the name under which it has come before."""
    before = first.get(id(parameter), prefix + key)
    if before != prefix + key:
        return f"{key} is {before}"
    return f"{key} {parameter.shape}" + " frozen" * (not parameter.requires_grad)
