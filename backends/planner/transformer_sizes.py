"""A transformer by its sizes alone, so that a plan needs no net that fits into this machine.

Lecture section: what a cluster would do. Lesson: 15_scale. B samples, S tokens, width h, a
heads of size D, L blocks, V symbols; the layers are ``minigrad.models.transformer``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minigrad.nn.experts import check_mixture

from ..model_parallel.activation_memory import Block, Part, activation_memory
from .layout import Layout, Place
from .net_sizes import NetSizes, Passes, StageCosts, passes
from .transfers import (
    AllGather,
    AllReduce,
    ExpertAllToAll,
    HeadsAllToAll,
    KeyRing,
    ReduceScatter,
    Sizes,
    Transfer,
    part_sizes,
    token_sizes,
)

STATISTICS = 4  # numbers of both norms of a block, for each token, as the loops of minigrad hold them
INDEX = 8  # bytes of a symbol, or of a label
CHOICE = 36  # bytes that a mixture holds of each choice besides rows: indices, weights, and which has a place
EXPERT_TENSORS = 4  # of a mixture, besides its gate
TENSORS = 11  # of a block: two norms, qkv without a bias, out, and two linear layers


@dataclass(frozen=True)
class TransformerSizes(NetSizes):
    """``blocks`` of ``heads`` and ``hidden`` neurons (by default 4 h) between a table of symbols, used twice.

    With ``experts`` each block has so many feed-forwards instead of one, of which each token takes
    ``choices``; the planner takes gates to choose all alike, so that no token is dropped.
    """

    symbols: int
    length: int
    width: int
    heads: int
    blocks: int
    hidden: int = 0
    experts: int = 0
    choices: int = 1
    itemsize: int = 4
    states: int = 2  # AdamW's

    def __post_init__(self) -> None:
        if self.experts:
            check_mixture(self.experts, self.choices, capacity=1.0, penalty=0.0)

    @property
    def neurons(self) -> int:
        return self.hidden or 4 * self.width

    def output(self, layer: int, layout: Layout, place: Place) -> int:
        return self.own_tokens(layout)[place.sequence] * self.width

    def tied(self, layout: Layout, place: Place, batch: int) -> int:
        part = PartOfTransformer(self, layout, place, 0, self.splits_table(layout, batch))
        return part.symbols * self.width

    def work(self) -> Sequence[float]:
        """Operations of each layer forward, for one sample; the law counts products and pairs by loops.

        A block takes 24 S h^2 + 2 S (S + 1) h, as a causal attention leaves out pairs; the scores 2 S h V.
        """
        whole = PartOfTransformer(self, Layout(), Place(), rows=1, table=False)
        scores = whole.scores(by_tokens=False, tied=True)
        return [0.0, *[whole.block().forward] * self.blocks, 0.0, scores.forward]

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    def own_tokens(self, layout: Layout) -> Sizes:
        """The tokens of each rank of the sequence axis."""
        return token_sizes(self.length, layout.sequence, layout.form)

    def splits_table(self, layout: Layout, batch: int) -> bool:
        """Whether the default plan splits the table: where its weights are more than what that sends.

        The law compares with ``default_plan``.
        """
        rows = max(batch // layout.data, 1)
        weights = (self.symbols + self.length) * self.width
        return layout.model > 1 and weights > rows * self.length * (2 * self.width + 3)

    def reason_against(self, layout: Layout, batch: int) -> str | None:
        if reason := super().reason_against(layout, batch):
            return reason
        data, _, sequence, model = layout.shape
        heads = self.heads // model
        if heads < 1:
            return f"{model} ranks share {self.heads} heads"
        if sequence > 1 and layout.form == "ulysses" and heads < sequence:
            return f"{sequence} ranks share {heads} heads"
        if sequence > 1 and 2 * sequence > self.length:
            return f"{sequence} ranks share {self.length} tokens"
        if layout.split_tokens and (model == 1 or self.length // sequence < model):
            return f"{model} ranks share {self.length // sequence} tokens"
        if self.experts and model > 1:
            return "experts are not split by neurons"
        if layout.expert_parallel and not 1 < data <= self.experts:
            return f"{data} ranks share {self.experts} experts"
        return None

    # Stages

    def stage(self, layers: range, layout: Layout, place: Place, rows: int, batch: int) -> StageCosts:
        part = PartOfTransformer(self, layout, place, rows, self.splits_table(layout, batch))
        costs, last = StageCosts(), self.blocks + 2
        by_tokens = False  # whether what stands between two layers is split by tokens
        if 0 in layers:
            costs = costs.plus(part.embedding())
            by_tokens = part.table and layout.split_tokens
        inner = range(max(layers.start, 1), min(layers.stop, last))
        if inner and layout.split_tokens and not by_tokens:
            # Each rank takes its tokens of a whole activation, and gradients are gathered.
            costs, by_tokens = costs.plus(StageCosts(model=passes([], [part.gathered()]))), True
        blocks = len(range(inner.start, min(inner.stop, self.blocks + 1)))
        costs = costs.plus(part.block(), blocks).plus(part.norm(), len(inner) - blocks)
        if last in layers:
            return costs.plus(part.scores(by_tokens=by_tokens, tied=0 in layers))
        # A layer or a stage behind it needs all tokens on each rank.
        return costs.plus(StageCosts(model=passes([part.gathered()]))) if by_tokens else costs


@dataclass(frozen=True)
class PartOfTransformer:
    """The layers of a transformer at one ``place``, for ``rows`` samples; ``table`` says if it is split."""

    net: TransformerSizes
    layout: Layout
    place: Place
    rows: int
    table: bool

    @property
    def tokens(self) -> int:
        return self.net.own_tokens(self.layout)[self.place.sequence]

    @property
    def heads(self) -> int:
        return self.share(self.net.heads)

    @property
    def neurons(self) -> int:
        return self.share(self.net.neurons)

    @property
    def symbols(self) -> int:
        return self.share(self.net.symbols) if self.table else self.net.symbols

    def share(self, n: int) -> int:
        """The size of this rank's part of n, which the model axis splits."""
        return part_sizes(n, self.layout.model)[self.place.model]

    @property
    def between(self) -> Sizes:
        """The tokens of each rank of the model axis between products."""
        if self.layout.split_tokens:
            return part_sizes(self.tokens, self.layout.model)
        return (self.tokens,) * self.layout.model

    @property
    def numbers(self) -> int:
        """Numbers of a whole activation."""
        return self.rows * self.tokens * self.net.width

    def sum(self) -> AllReduce:
        return AllReduce(self.numbers, self.layout.model)

    def gathered(self) -> AllGather:
        return AllGather(tuple(self.rows * self.net.width * n for n in self.between))

    def scattered(self) -> ReduceScatter:
        return ReduceScatter(self.gathered().sizes)

    def embedding(self) -> StageCosts:
        """The table, and places; if the table is split, a sum of all ranks' vectors."""
        net, tokens = self.net, self.layout.split_tokens
        model = passes([self.sum()]) if self.table else passes()
        if self.table and tokens:
            model = passes([self.scattered()], [self.gathered()])
        return StageCosts(
            parameters=(self.symbols + net.length) * net.width,
            tensors=2,
            activations=self.rows * self.tokens * (INDEX + self.table),  # and whose symbol it is
            model=model,
            partial=net.length * net.width if self.table and tokens else 0,
        )

    def norm(self) -> StageCosts:
        h, own = self.net.width, self.between[self.place.model]
        nbytes = self.rows * own * (h + STATISTICS // 2) * self.net.itemsize
        return StageCosts(2 * h, 2, activations=nbytes, partial=2 * h if self.layout.split_tokens else 0)

    def scores(self, *, by_tokens: bool, tied: bool) -> StageCosts:
        """The scores of all symbols and their cross-entropy; of split symbols all are labels as often."""
        net, n = self.net, self.rows * self.tokens
        forward: tuple[Transfer, ...] = (self.gathered(),) if by_tokens else ()
        backward: tuple[Transfer, ...] = ()
        loss = n * (net.itemsize + 2 * INDEX)  # a number, and two indices, of each label
        if self.table:
            maximum, total = AllGather((n,) * self.layout.model), AllReduce(n, self.layout.model)
            forward += (maximum, total, total)  # of each token: largest score, exponentials, its label's
            backward = (self.scattered(),) if by_tokens else (self.sum(),)
            loss = n * 2 * INDEX / self.layout.model  # indices of one's own symbols alone
        products = 2.0 * n * net.width * self.symbols
        nbytes = net.itemsize * n * (net.width + self.symbols) + loss
        parameters = 0 if tied else self.symbols * net.width
        return StageCosts(
            parameters,
            0 if tied else 1,
            products,
            2 * products,
            activations=nbytes,
            model=passes(forward, backward),
        )

    def block(self) -> StageCosts:
        net, layout, h = self.net, self.layout, self.net.width
        mine = self.heads * net.head_size
        feed_forward = (2 * h + 1) * self.neurons + h
        experts = self.own_experts() * feed_forward
        parameters = 4 * h + 4 * mine * h + h + (experts + net.experts * h if net.experts else feed_forward)
        gate, projections = 2.0 * self.tokens * h * net.experts, 8.0 * self.tokens * h * mine
        products = self.rows * (projections + 4.0 * self.expert_rows() * h * self.neurons + gate)
        core = self.core()
        return StageCosts(
            parameters,
            TENSORS + bool(net.experts),
            forward=products + core,
            backward=2 * products + 2.5 * core,  # a blocked attention makes five products there, of two
            core_forward=core if layout.form == "ring" else 0.0,
            core_backward=2.5 * core if layout.form == "ring" else 0.0,
            activations=self.activations(),
            model=self.between_products(),
            sequence=passes(
                [*self.attention(backward=False), *self.choices()], self.attention(backward=True)
            ),
            experts=passes(self.exchange()),
            partial=6 * h if layout.split_tokens else 0,
            own_experts=experts if layout.expert_parallel else 0,
            own_tensors=EXPERT_TENSORS if layout.expert_parallel else 0,
        )

    def between_products(self) -> Passes:
        """Two sums each way, of whole activations or as parts."""
        if self.layout.split_tokens:
            both = [self.gathered(), self.scattered()] * 2
            return passes(both, both)
        sums = [self.sum()] * 2 if self.layout.model > 1 else []
        return passes(sums, sums)

    def attention(self, *, backward: bool) -> tuple[Transfer, ...]:
        """What the sequence axis sends, of this rank's heads."""
        layout, size = self.layout, self.net.head_size
        tokens = self.net.own_tokens(layout)
        if layout.sequence == 1:
            return ()
        if layout.form == "ring":
            return (KeyRing(self.rows, tokens, self.heads * size, backward),)
        return (HeadsAllToAll(self.rows, tokens, part_sizes(self.heads, layout.sequence), size, backward),)

    def choices(self) -> tuple[AllGather, ...]:
        """Which experts the tokens of all ranks choose, for the places in whole rows: an index for each."""
        net, tokens = self.net, self.net.own_tokens(self.layout)
        if self.layout.sequence == 1 or not net.experts:
            return ()
        return (AllGather(tuple(self.rows * n * net.choices * INDEX // net.itemsize for n in tokens)),)

    def core(self) -> float:
        """Operations of scores and values of the pairs of a query and a key.

        A ring's ranks have as many pairs each, by zig-zag.
        """
        all_pairs = self.net.length * (self.net.length + 1) / 2
        pairs = all_pairs if self.exchanges_heads else all_pairs / self.layout.sequence
        return self.rows * (4.0 * pairs * self.core_heads * self.net.head_size)

    def activations(self) -> float:
        """Bytes of a block, by ``activation_memory``.

        Behind an all-to-all over heads the output of the rank's heads, for all tokens, and that of all heads,
        for its own, are two arrays. A mixture of experts holds of each choice the row at its expert and the
        result, of each token all gates, and indices.
        """
        net, n, more = self.net, self.tokens, 0.0
        block = Block(max(n, 1), net.width, net.heads, net.neurons)
        part = Part(self.heads, self.neurons, self.between[self.place.model])
        if self.exchanges_heads:
            heads_output = n * self.heads * net.head_size
            more = net.length * self.core_heads * (4 * net.head_size + 1) + heads_output
            part = part._replace(heads=0)
        if net.experts:
            part = part._replace(hidden=0)
            numbers = n * (net.experts + (1 if net.choices > 1 else -1))
            numbers += n * net.choices * net.width + self.expert_rows() * (net.width + 2 * net.neurons)
            indices = n * net.choices * CHOICE
            indices += self.expert_rows() * 2 * INDEX * self.layout.expert_parallel  # the two orders of rows
            more += numbers + indices / net.itemsize
        numbers = n * net.width * activation_memory(block, part, statistics=STATISTICS) + more
        return round(net.itemsize * self.rows * numbers, 3)

    def expert_rows(self) -> float:
        """The rows that pass a feed-forward here, for each sample of this rank, if gates choose all alike."""
        chosen = self.tokens * (self.net.choices if self.net.experts else 1)
        if not self.layout.expert_parallel:
            return chosen
        return chosen * self.layout.data * self.own_experts() / self.net.experts

    @property
    def exchanges_heads(self) -> bool:
        return self.layout.sequence > 1 and self.layout.form == "ulysses"

    @property
    def core_heads(self) -> int:
        """The heads whose attention this rank computes."""
        if self.exchanges_heads:
            return part_sizes(self.heads, self.layout.sequence)[self.place.sequence]
        return self.heads

    def own_experts(self) -> int:
        if self.layout.expert_parallel:
            return part_sizes(self.net.experts, self.layout.data)[self.place.data]
        return self.net.experts

    def exchange(self) -> tuple[Transfer, ...]:
        """The rows that travel to the experts, if gates choose all alike."""
        net, ranks = self.net, self.layout.data
        if not self.layout.expert_parallel:
            return ()
        each = part_sizes(self.rows * self.tokens * net.choices, net.experts)
        return (ExpertAllToAll(net.width, (each,) * ranks, part_sizes(net.experts, ranks)),)
