"""A plan has the split of each layer; it is read from a file, or chosen so that ranks send the least.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. A plan maps names of layers to kinds
of split, as in ``{"1": "column", "3": "row"}``; layers that it does not name are replicated. The default plan
sends the fewest numbers per rank and step: 2 for each weight that a rank holds, as in an all-reduce of its
gradient over a data axis, and the activations that collectives send for the batch (Gholami et al. 2018). So
it splits the layers that have more weights than the batch has activations: linear layers before convolutions.
Blocks of transformers are split by heads whatever that sends, as whole ones would be most of the work, done
by all ranks alike. A table of symbols at both ends is split where that sends less.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minigrad import nn
from minigrad.module import Module, Sequential, evaluation_mode, is_sequential
from minigrad.sample import inputs_of

from .grid_products.linear import GridLinear
from .layers.class_parallel import ClassLinear
from .layers.conv import ChannelConv2d, FilterConv2d, GatheredConv2d, GroupedConv2d
from .layers.heads import HeadsAttention, HeadsBlock, reason_against
from .layers.linear import ColumnLinear, RowLinear
from .layers.pass_through import ELEMENTWISE, PASS_THROUGH, ShardedLayerClass, lookup
from .layers.vocabulary import VocabularyEmbedding, VocabularyUnembedding
from .naive import GatheredLinear
from .spatial.layers import SPATIAL

Plan = dict[str, str]

Splits = Mapping[type[Module], Mapping[str, ShardedLayerClass]]

SPLITS: Splits = {
    nn.Linear: {
        "column": ColumnLinear,
        "row": RowLinear,
        "gathered": GatheredLinear,
        "classes": ClassLinear,
        "grid": GridLinear,
    },
    nn.Conv2d: {
        "filters": FilterConv2d,
        "channels": ChannelConv2d,
        "groups": GroupedConv2d,
        "gathered-filters": GatheredConv2d,
    },
    nn.Attention: {"heads": HeadsAttention},
    nn.TransformerBlock: {"heads": HeadsBlock},
    nn.TokenEmbedding: {"vocabulary": VocabularyEmbedding},
    nn.Unembedding: {"vocabulary": VocabularyUnembedding},
}
FIRST = {nn.Linear: "column", nn.Conv2d: "filters"}  # x replicated, y split
SECOND = {nn.Linear: "row", nn.Conv2d: "channels"}  # x split, y replicated


class Choice(NamedTuple):
    """A layer's split (None: replicated), and the numbers that each rank sends for it in a step."""

    name: str
    layer: str
    kind: str | None
    weights: float
    activations: float


def read_plan(file: Path) -> Plan:
    """The plan in a JSON or (by its ending) TOML file. Raises ValueError if the file has no plan."""
    toml = file.suffix == ".toml"
    example = "write one such as " + ('1 = "column"' if toml else '{"1": "column", "3": "row"}')
    if not file.is_file():
        raise ValueError(f"there is no plan file {file}; {example}")
    try:
        text = file.read_text(encoding="utf-8")
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
    """The pairs as a dictionary; raises ValueError for a repeated name, of which JSON would take the last."""
    names = [name for name, _ in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} stands in it twice")
    return dict(pairs)


def default_plan(model: Module, ranks: int, batch_size: int, sample: Sequence[int] | None = None) -> Plan:
    """The plan of ``choose``."""
    choices = choose(model, ranks, batch_size, sample)
    return {choice.name: choice.kind for choice in choices if choice.kind is not None}


def choose(model: Module, ranks: int, batch_size: int, sample: Sequence[int] | None = None) -> list[Choice]:
    """The cheapest choice for each layer, for the ranks that share the model and the batch size.

    Convolutions are only split if the shape of a ``sample`` is known. In a model that is not a Sequential the
    choice for each linear layer assumes a whole input and a whole output.
    """
    tied = {name.rpartition(".")[0] for names in model.tied_parameters() for name in names}
    if is_sequential(model):
        layers = layers_of(model)
        tables = {name for name, layer in layers if isinstance(layer, (nn.TokenEmbedding, nn.Unembedding))}
        can_be_split = tables and tables == tied and layers[-1][0] in tied and sample is not None
        ways = [set[str](), tables] if can_be_split else [set[str]()]
        plans = (cheapest(layers, ranks, batch_size, sample, tied, way, first=True) for way in ways)
        return min(plans, key=numbers)
    blocks = [name for name, module in model.named_modules() if isinstance(module, nn.TransformerBlock)]
    alone = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, nn.TransformerBlock))
        and not any(name.startswith(f"{block}.") for block in blocks)
    ]
    return [c for pair in alone for c in cheapest([pair], ranks, batch_size, None, tied, first=False)]


def cheapest(
    layers: Sequence[tuple[str, Module]],
    ranks: int,
    batch_size: int,
    sample: Sequence[int] | None,
    tied: set[str],
    vocabulary: Collection[str] = (),
    *,
    first: bool,
) -> list[Choice]:
    """The cheapest choices for consecutive layers; ``first``: their input needs no gradient.

    The layers that ``vocabulary`` names are split by it, and blocks of transformers by heads.
    """
    share = batch_size * (ranks - 1) / ranks
    # Dynamic programming: the cheapest choices up to a layer, by whether its output is split.
    best: dict[bool, list[Choice]] = {False: []}
    n_out, counted = 0, set[int]()
    for (name, layer), (n_in, n_out) in zip(layers, widths(layers, sample), strict=True):
        weights = sum(p.size for p in layer.parameters() if id(p) not in counted)
        counted |= {id(p) for p in layer.parameters()}
        grouped = isinstance(layer, nn.Conv2d) and layer.settings["groups"] > 1
        can_be_split = layer.unchanged_type() in FIRST and name not in tied and n_in and n_out and not grouped
        ways: list[tuple[bool, list[Choice]]] = []
        for split, before in best.items():
            gather, back = n_in if split else 0, 0 if first else n_in
            stays = lookup(PASS_THROUGH, layer, None) is not None  # a split input stays split
            # The kind, the activations to send, whether the output is split, and the weights to store.
            options: list[tuple[str | None, int, bool, float]]
            options = [(None, 0, split, weights) if stays else (None, gather, False, weights)]
            if can_be_split:
                row_back = 0 if split else back
                options.append((FIRST[type(layer)], gather + 2 * back, True, weights / ranks))
                options.append((SECOND[type(layer)], 2 * n_out + row_back, False, weights / ranks))
            shares = any(owner.startswith(f"{name}.") for owner in tied)
            if isinstance(layer, nn.TransformerBlock) and not shares:
                attention = sum(p.size for p in layer.attention.parameters())
                if reason_against(layer) is None:
                    options = [("heads", gather + 8 * n_out, False, weights / ranks)]  # 4 all-reduces
                elif reason_against(layer.attention) is None:  # its feed-forward are experts, for example
                    stored = weights - attention + attention / ranks
                    name += ".attention"
                    options = [("heads", gather + 4 * n_out, False, stored)]
            if name in vocabulary and isinstance(layer, nn.TokenEmbedding):
                options = [("vocabulary", 2 * n_out, False, weights / ranks)]
            elif name in vocabulary:
                rows = n_in // layer.parameters()[0].shape[1]  # of each the loss sums 3 numbers
                options = [("vocabulary", gather + 2 * n_in + 6 * rows, False, weights / ranks)]
            for kind, activations, split_output, stored in options:
                text = type(layer).__name__ if layer.children() else layer.in_one_line()
                choice = Choice(name, text, kind, 2 * stored, share * activations)
                ways.append((split_output, [*before, choice]))
        best = {key: min((way for split, way in ways if split == key), key=numbers) for key, _ in ways}
        first = first and not weights
    if True in best:
        last = best[True][-1]
        best[True][-1] = last._replace(activations=last.activations + share * n_out)
    return min(best.values(), key=numbers)


def numbers(choices: Sequence[Choice]) -> float:
    """The count of numbers that each rank sends in a step."""
    return sum(choice.weights + choice.activations for choice in choices)


def show(choices: Sequence[Choice]) -> str:
    """A table of the choices and their costs: a line for each layer that has weights, and one for the sum."""
    rows = [("layer", "", "split by", "weights x 2", "activations")]
    for c in (c for c in choices if c.weights or c.kind):
        rows.append((c.name, c.layer, c.kind or "-", f"{c.weights:,.0f}", f"{c.activations:,.0f}"))
    sums = (f"{sum(c.weights for c in choices):,.0f}", f"{sum(c.activations for c in choices):,.0f}")
    rows.append(("all", "", "", *sums))
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([f"{text:{side}{n}}" for text, side, n in zip(row, "<<<>>", width, strict=True)] for row in rows)
    return "\n".join("  ".join(row) for row in cells)


def widths(layers: Sequence[tuple[str, Module]], sample: Sequence[int] | None) -> list[tuple[int, int]]:
    """Numbers per sample in each layer's input and output, for inputs of shape ``sample``; 0 if unknown."""
    sizes, before = [], 0
    x = None if sample is None else inputs_of([layer for _, layer in layers], sample, 0)
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
        sizes.append((n_in, n_out))
        before = n_out
    return sizes


def layers_of(model: Sequential, prefix: str = "") -> list[tuple[str, Module]]:
    """The layers by name; a nested Sequential is replaced by its layers."""
    layers = []
    for name, layer in model.children().items():
        inner = is_sequential(layer)
        layers += layers_of(layer, f"{prefix}{name}.") if inner else [(prefix + name, layer)]
    return layers


def check_plan(plan: Mapping[str, str], model: Module, splits: Splits = SPLITS) -> None:
    """Raise ValueError, naming the layers that can be split, for a plan that does not fit ``model``."""
    layers: dict[str, tuple[Module, list[str]]] = {}
    for name, layer in model.named_modules():
        tiles = ("rows", "tiles") if isinstance(layer, (*SPATIAL, *ELEMENTWISE, nn.Dropout)) else ()
        layers[name] = layer, [*lookup(splits, layer, {}), *tiles]
    last = layers_of(model)[-1][0] if is_sequential(model) and len(model) else None
    possible = "; ".join(f'"{name}" ({", ".join(k)})' for name, (_, k) in layers.items() if k)
    for name, kind in plan.items():
        if name not in layers:
            raise ValueError(
                f"the plan names layer {name!r}, which the model does not have; "
                f"layers that can be split, and how: {possible or 'none'}"
            )
        layer, legal = layers[name]
        word = str(kind).partition(" ")[0]  # of "tiles 2x3"
        if kind not in legal and not (word in legal and word in ("rows", "tiles", "grid")):
            otherwise = "name layers inside of it" if layer.children() else "leave it out of the plan"
            raise ValueError(
                f"layer {name}, {layer.in_one_line()}, cannot be split by {kind!r}; "
                + (f"choose {', '.join(legal)}" if legal else otherwise)
            )
        gives_classes = kind == "classes" or kind == "vocabulary" and isinstance(layer, nn.Unembedding)
        if gives_classes and name != last:
            raise ValueError(
                f"layer {name} cannot be split by {kind!r}: only the last layer of a Sequential can be; "
                + ("choose column" if kind == "classes" else "leave it out of the plan")
            )
    for names in model.tied_parameters():
        owners = [name.rpartition(".")[0] for name in names]
        if all(plan.get(owner) == "vocabulary" for owner in owners):
            continue  # all need the same rows
        named = [owner for owner in owners if any(f"{owner}.".startswith(f"{name}.") for name in plan)]
        if named:  # the owner itself, or a layer that it is inside of
            raise ValueError(
                f"layer {named[0]} shares a parameter with others ({', '.join(names)}), which do not all "
                "need the same part of it; leave them out of the plan"
                + (', or split all by "vocabulary"' if "vocabulary" in plan.values() else "")
            )
