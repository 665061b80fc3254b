"""Which net a command takes, of which sizes, and the data that it learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import typer

from minigrad.data import Dataset
from minigrad.mnist import load
from minigrad.models import NETS, Net, find_net
from minigrad.text import Text, text

from .strategy_flags import option

SIZES = ("length", "width", "heads", "blocks")  # of a net for text
MIXTURE = ("experts", "choices", "capacity", "penalty")  # of its mixtures of experts, where it has them
DATASETS = tuple(dict.fromkeys(name for net in NETS.values() for name in net.datasets))

of_text = partial(option, rich_help_panel="Nets for text")


def set_defaults(context: typer.Context, net: str) -> str:
    """Give the options of a training, which a proof does not have, the defaults that suit the net."""
    defaults = {"optimizer": NETS[net].optimizer, **NETS[net].defaults} if net in NETS else {}
    if {option.name for option in context.command.params} >= defaults.keys():
        context.default_map = defaults
    return net


def size(help: str, most: int) -> Any:
    """A size of a net for text; None stands for the net's own."""
    return of_text(None, help, min=1, max=most)


@dataclass(frozen=True, kw_only=True)
class NetSettings:
    """A net by its name, and for one that learns from text its sizes and the file of the text.

    A size of None is the net's own. A ``text`` of None is the course's prose. Without ``experts`` there are
    none; other settings of theirs that are None are those of ``nn.Experts``.
    """

    net: str = option("lenet", f"the network, one of {', '.join(NETS)}", is_eager=True, callback=set_defaults)
    text: Path | None = of_text(None, "the text (default: the course's own)")
    length: int | None = size("symbols in a row (default: 64)", 65_536)
    width: int | None = size("numbers that stand for a symbol (default: 128)", 65_536)
    heads: int | None = size("heads of each attention (default: 4)", 65_536)
    blocks: int | None = size("transformer blocks (default: 2)", 1_000)
    experts: int | None = size("experts in each block, of which a token takes a few (default: none)", 65_536)
    choices: int | None = size(
        "experts that each token takes (default: 1); with several, later tokens may take places first", 65_536
    )
    capacity: float | None = of_text(
        None, "places at an expert, as a multiple of an even share of the tokens (default: 1.25)", metavar="F"
    )
    penalty: float | None = of_text(
        None, "weight in the loss of how uneven experts are chosen (default: 0.01)", metavar="ALPHA"
    )

    def own_sizes(self) -> dict[str, Any]:
        """The sizes, of None the net's; ValueError for a field that the net does not have."""
        for name in ("text", *SIZES, *MIXTURE):
            if getattr(self, name) is not None:
                self.check_text(name)
                if name in MIXTURE and self.experts is None:
                    raise ValueError(f"--{name} is for experts; pass --experts 4 too, or leave it out")
        return {name: getattr(self, name) or find_net(self.net).sizes.get(name) for name in SIZES}

    def check_text(self, flag: str) -> None:
        """Raise ValueError where the net learns from images, for which ``flag`` means nothing."""
        net = find_net(self.net)
        if not net.sizes:
            raise ValueError(
                f"--{flag} is for nets that learn from text, and {self.net} takes {of_shape(net)}; leave it "
                "out, or choose --net transformer"
            )

    def check_dataset(self, dataset: str) -> None:
        """Raise ValueError unless the net's inputs are like the samples of ``dataset``."""
        net = find_net(self.net)
        if dataset not in net.datasets:
            other = next(name for name in (NetSettings.net, *NETS) if dataset in NETS[name].datasets)
            raise ValueError(
                f"{self.net} takes {of_shape(net)}, and {dataset} has {of_shape(NETS[other])}; choose "
                f"--net {other}, or --dataset {net.datasets[0]}"
            )

    @cached_property
    def sized_net(self) -> Net:
        """The net, with a table of all symbols of the text."""
        net = find_net(self.net)
        if not net.sizes:
            return net
        return net_of_sizes(net, vars(self), self.of_text.symbols)

    def load(self, dataset: str) -> Dataset:
        """The data set, a ``Text`` or images."""
        return self.of_text if dataset == "text" else load(dataset)

    @cached_property
    def of_text(self) -> Text:
        """The text in rows of the net's length."""
        length = self.length or find_net(self.net).sizes["length"]
        return text(length, self.text)


def net_of_sizes(net: Net, sizes: Mapping[str, Any], symbols: bytes) -> Net:
    """The net with those sizes that are known, for this many symbols."""
    known = {name: sizes[name] for name in (*SIZES, *MIXTURE) if sizes.get(name) is not None}
    return net.resized(symbols=len(symbols), **known)


def of_shape(net: Net) -> str:
    """What the net's inputs are, in words."""
    if "length" in net.sizes:
        return f"rows of {net.sample[0]} symbols"
    return f"images of {' x '.join(map(str, net.sample[1:]))}"
