"""Which layer is split how: a plan that a person can read, from a file or chosen by what it would move.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. A plan gives kinds by layer name,
``{"1": "column", "3": "row"}``; layers it does not name stay whole. The default plan moves the fewest numbers
per rank and step: 2 for each weight that a rank holds, as in an all-reduce of its gradient over a data axis,
and the activations that collectives move for its samples (Gholami et al. 2018). So a layer is split where it
has more weights than the batch has activations: rather linear layers than convolutions.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minigrad import nn
from minigrad.device import array_module
from minigrad.module import Module, Sequential, evaluation_mode
from minigrad.tensor import Tensor

from .kinds import UNNAMED

Plan = dict[str, str]

FIRST = {nn.Linear: "column", nn.Conv2d: "filters"}  # x whole, y cut
SECOND = {nn.Linear: "row", nn.Conv2d: "channels"}  # x cut, y whole


class Choice(NamedTuple):
    """How a layer is split (None: whole), and the numbers it makes each rank move in a step."""

    name: str
    layer: str
    kind: str | None
    weights: float
    activations: float


def read_plan(file: Path) -> Plan:
    """The plan in a JSON or (by its ending) TOML file. Raises ValueError where there is none in it."""
    toml = file.suffix == ".toml"
    example = "write one such as " + ('1 = "column"' if toml else '{"1": "column", "3": "row"}')
    if not file.is_file():
        raise ValueError(f"there is no plan file {file}; {example}")
    try:
        text = file.read_text()
        plan = tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=unique)
    except ValueError as error:  # of either format, and of text that is none
        raise ValueError(f"the plan {file} cannot be read: {error}; {example}") from error
    wrong = [repr(plan)]
    if isinstance(plan, dict):
        wrong = [f"{kind!r} for layer {name}" for name, kind in plan.items() if not isinstance(kind, str)]
    if wrong:
        raise ValueError(f"the plan {file} must give a kind for each layer, got {wrong[0]}; {example}")
    return plan


def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary; raises ValueError for a name that stands twice: JSON would take the last."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} stands in it twice")
    return dict(pairs)


def default_plan(model: Module, ranks: int, batch_size: int, sample: Sequence[int] | None = None) -> Plan:
    """The plan of ``choose``."""
    choices = choose(model, ranks, batch_size, sample)
    return {choice.name: choice.kind for choice in choices if choice.kind is not None}


def choose(model: Module, ranks: int, batch_size: int, sample: Sequence[int] | None = None) -> list[Choice]:
    """The cheapest choice for every layer, where ``ranks`` share the model and see ``batch_size`` samples.

    Convolutions are only split where the shape of a ``sample`` is given. In a model that is not a Sequential
    each linear layer is chosen for by itself, whole in and whole out.
    """
    tied = {name.rpartition(".")[0] for names in tied_parameters(model) for name in names}
    if isinstance(model, Sequential):
        return cheapest(layers_of(model), ranks, batch_size, sample, tied, first=True)
    linear = [(name, module) for name, module in modules(model) if isinstance(module, nn.Linear)]
    return [c for pair in linear for c in cheapest([pair], ranks, batch_size, None, tied, first=False)]


def cheapest(
    layers: Sequence[tuple[str, Module]],
    ranks: int,
    batch_size: int,
    sample: Sequence[int] | None,
    tied: set[str],
    *,
    first: bool,
) -> list[Choice]:
    """The cheapest choices for layers one behind the other; ``first``: their input needs no gradient.

    The best way to each layer is kept twice, for a whole and for a cut activation.
    """
    share = batch_size * (ranks - 1) / ranks
    best: dict[bool, list[Choice]] = {False: []}
    n_out = 0
    for (name, layer), (n_in, n_out) in zip(layers, widths(layers, sample), strict=True):
        weights = sum(p.size for p in layer.parameters())
        found: dict[bool, list[Choice]] = {}

        def way(before: list[Choice], kind: str | None, moved: float, cut: bool, held: float) -> None:
            choices = [*before, Choice(name, layer.in_one_line(), kind, 2 * held, share * moved)]  # noqa: B023
            if cut not in found or numbers(choices) < numbers(found[cut]):  # noqa: B023
                found[cut] = choices  # noqa: B023

        for cut, before in best.items():
            if isinstance(layer, tuple(UNNAMED)):  # what is cut stays cut
                way(before, None, 0, cut, weights)
                continue
            gather = n_in if cut else 0
            way(before, None, gather, False, weights)
            can = type(layer) in FIRST and name not in tied and n_in and n_out
            if can and vars(layer).get("settings", {}).get("groups", 1) == 1:
                back = 0 if first else n_in
                way(before, FIRST[type(layer)], gather + 2 * back, True, weights / ranks)
                way(before, SECOND[type(layer)], 2 * n_out + (0 if cut else back), False, weights / ranks)
        best, first = found, first and not weights
    if True in best:
        last = best[True][-1]
        best[True][-1] = last._replace(activations=last.activations + share * n_out)
    return min(best.values(), key=numbers)


def numbers(choices: Sequence[Choice]) -> float:
    """What each rank moves in a step."""
    return sum(choice.weights + choice.activations for choice in choices)


def show(choices: Sequence[Choice]) -> str:
    """The choices and their cost as text, a line for each layer that has weights, and one for the sum."""
    rows = [("layer", "", "split by", "weights x 2", "activations")]
    for c in (c for c in choices if c.weights):
        rows.append((c.name, c.layer, c.kind or "-", f"{c.weights:,.0f}", f"{c.activations:,.0f}"))
    sums = (f"{sum(c.weights for c in choices):,.0f}", f"{sum(c.activations for c in choices):,.0f}")
    rows.append(("all", "", "", *sums))
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(n) if i < 3 else text.rjust(n)
            for i, (text, n) in enumerate(zip(row, width, strict=True))
        )
        for row in rows
    )


def widths(layers: Sequence[tuple[str, Module]], sample: Sequence[int] | None) -> list[tuple[int, int]]:
    """Numbers per sample that go into and come out of each layer; 0 where they are not known.

    With a ``sample`` the layers are run on a batch of none, elsewise linear layers tell.
    """
    found, before = [], 0
    x = None if sample is None else no_samples([layer for _, layer in layers], sample)
    for _, layer in layers:
        n_in = n_out = before
        if x is not None:
            with evaluation_mode(layer):
                n_in, x = math.prod(x.shape[1:]), layer(x)
            n_out = math.prod(x.shape[1:])
        elif isinstance(layer, nn.Linear):
            n_out, n_in = layer.weight.shape
        elif layer.parameters():
            n_out = 0
        found.append((n_in, n_out))
        before = n_out
    return found


def no_samples(layers: Sequence[Module], sample: Sequence[int]) -> Tensor:
    """A batch of no samples of a shape, in the dtype and on the device of the layers' parameters."""
    like = next((p.data for layer in layers for p in layer.parameters()), np.zeros(0, np.float32))
    return Tensor(array_module(like).zeros((0, *sample), like.dtype))


def modules(model: Module, prefix: str = "") -> Iterator[tuple[str, Module]]:
    """Every module inside, by dotted name, outermost first."""
    for name, child in model.children().items():
        yield prefix + name, child
        yield from modules(child, f"{prefix}{name}.")


def layers_of(model: Sequential, prefix: str = "") -> list[tuple[str, Module]]:
    """The layers by name, those of a Sequential inside in its place."""
    found = []
    for name, layer in model.children().items():
        inner = isinstance(layer, Sequential)
        found += layers_of(layer, f"{prefix}{name}.") if inner else [(prefix + name, layer)]
    return found


def tied_parameters(model: Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names: dict[int, list[str]] = {}
    for name, owner, attribute in model.named_arrays():
        names.setdefault(id(getattr(owner, attribute)), []).append(name)
    return [found for found in names.values() if len(found) > 1]


def check_plan(plan: Mapping[str, str], model: Module, kinds: Any) -> None:
    """Raise ValueError, naming the layers that can be split and how, for a plan that does not fit ``model``.

    ``kinds(layer)`` are the kinds that a layer can have.
    """
    layers = {name: (layer, kinds(layer)) for name, layer in modules(model)}
    last = layers_of(model)[-1][0] if isinstance(model, Sequential) and len(model) else None
    possible = "; ".join(f'"{name}" ({", ".join(k)})' for name, (_, k) in layers.items() if k)
    for name, kind in plan.items():
        if name not in layers:
            raise ValueError(
                f"the plan names layer {name!r}, which the model does not have; "
                f"layers that can be split, and how: {possible or 'none'}"
            )
        layer, found = layers[name]
        word = str(kind).partition(" ")[0]  # of "tiles 2x3"
        if kind not in found and not (word in found and word in ("rows", "tiles")):
            otherwise = "name layers inside of it" if layer.children() else "leave it out of the plan"
            raise ValueError(
                f"layer {name}, {layer.in_one_line()}, cannot be split by {kind!r}; "
                + (f"choose {', '.join(found)}" if found else otherwise)
            )
        if kind == "classes" and name != last:
            raise ValueError(
                f"layer {name} cannot be split by 'classes': only the last layer of a Sequential can be; "
                "choose column"
            )
    for names in tied_parameters(model):
        owners = [name.rpartition(".")[0] for name in names]
        if named := [owner for owner in owners if owner in plan]:
            raise ValueError(
                f"layer {named[0]} shares a parameter with others ({', '.join(names)}), which do not all "
                "need the same part of it; leave them out of the plan"
            )
