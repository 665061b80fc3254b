"""Laws of minigrad/pictures/model_picture.py: a picture of a model has each module once, in order, and each
parameter once, with its shape, and counts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from minigrad import Parameter, nn
from minigrad.module import Module
from tests.pictures import shown


def nested(sizes: list[int], depth: int, rng: np.random.Generator) -> nn.Sequential:
    """A model with a Sequential in it for each further depth."""
    layers: list[Module] = [nn.Linear(n, m, rng=rng) for n, m in zip(sizes, sizes[1:], strict=False)]
    return nn.Sequential(nn.Flatten(), *layers, *([nested(sizes, depth - 1, rng)] if depth else []))


def every_module(model: Module, name: str = "") -> Iterator[tuple[str, Module]]:
    """Modules by name, outermost first, as attributes and lists of layers hold them."""
    yield name, model
    for key, value in vars(model).items():
        inside = enumerate(value) if isinstance(value, list) else [(key, value)]
        for position, child in inside:
            if isinstance(child, Module):
                yield from every_module(child, f"{name}.{position}" if name else str(position))


def a_model_is_drawn_whole(picture: Callable[[Module], str], model: Module) -> None:
    """Rows of names, parameters in words, counts that add up, and the sum of frozen ones in the last line."""
    got = shown(picture(model))
    *lines, (last,) = got.rows(2)
    modules, first_names, total, frozen, arrays = list(every_module(model)), dict[int, str](), 0, 0, 0
    assert len(lines) == len(modules), f"{len(lines)} rows for {len(modules)} modules"
    for words, (name, module) in zip(lines, modules, strict=True):
        own = {key: value for key, value in vars(module).items() if isinstance(value, Parameter)}
        said, count = [], 0
        for key, value in own.items():
            whole = f"{name}.{key}" if name else key
            if id(value) in first_names:
                said.append(f"{key} is {first_names[id(value)]}")
                continue
            first_names[id(value)] = whole
            n = math.prod(value.shape)
            count, total, arrays = count + n, total + n, arrays + 1
            frozen += 0 if value.requires_grad else n
            said.append(f"{key} {value.shape}" + ("" if value.requires_grad else " frozen"))
        inside = any(child is not module for _, child in every_module(module))
        layer = type(module).__name__ if inside else repr(module)
        expected = [*([name] if name else []), layer, *([", ".join(said)] if said else [])]
        expected += [f"{count:,}"] if count else []
        assert words == expected, f"{name} is drawn as {words}, expected {expected}"
    middle = f", {frozen:,} of them frozen" if frozen else ""
    assert last == f"{total:,} parameters{middle} in {arrays} arrays", f"it says {last}: {total}, {frozen}"
    assert got.title == f"{type(model).__name__}, a model of {last}"
