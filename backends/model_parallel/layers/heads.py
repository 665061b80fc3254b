"""Each rank has some heads of an attention, and some neurons of the two layers that follow it.

Lecture section: model parallelism by neurons. Lesson: 17_sequences. Heads are consecutive neurons of one
linear layer and consecutive inputs of another, so a column layer and a row layer split them; between the two
a rank's heads attend as if there were no others (Shoeybi et al. 2019, Megatron-LM, section 3).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minigrad import nn, ops
from minigrad.device import Array
from minigrad.module import Module, Sequential
from minigrad.nn.attention import check_tokens
from minigrad.tensor import Tensor

from ...comm.communicator import Communicator
from .layer import ShardedLayer
from .linear import ColumnLinear, RowLinear
from .pass_through import PASS_THROUGH, Replicated, lookup
from .sequential import ShardedSequential, forward_on_shards
from .sharding import Shard, ShardedTensor, even_shard


class HeadsAttention(ShardedLayer):
    """Some of an attention's heads: x (B, S, width) is replicated, and so is the output, after an all-reduce.

    Forward is that all-reduce, backward one of the gradient of x. The ranks' heads differ by one at most; a
    rank without any takes part in the sums. ``core`` gets this rank's heads (B, S, heads, 3 D), and of a
    ``mask`` their part. Raises ValueError where it or a layer of it has a forward of its own.
    """

    token_wise = True

    def __init__(
        self,
        layer: nn.Attention,
        comm: Communicator,
        in_sharding: Shard | None = None,
        *,
        column: type[ColumnLinear] = ColumnLinear,
        row: type[RowLinear] = RowLinear,
    ):
        super().__init__()
        if reason := reason_against(layer):
            raise ValueError(reason)
        self.size = layer.size  # of a head
        self.heads = even_shard(-1, comm, layer.qkv.weight.shape[0] // (3 * self.size))
        self.qkv = column(layer.qkv, comm, neurons=self.heads.repeat(3 * self.size))
        self.core: Module = layer.core
        self.out = row(layer.out, comm, self.heads.repeat(self.size))
        self.splits_tokens = self.out.splits_tokens

    def sharded_forward(self, a: ShardedTensor, **masks: Any) -> ShardedTensor:
        check_tokens(a.local.shape)
        qkv = forward_on_shards(self.qkv, a).local
        tokens, heads = qkv.shape[:-1], self.heads.local_size
        if masks.get("mask") is not None:
            masks["mask"] = self.own_part(Tensor(masks["mask"]).data)
        o = self.core(ops.reshape(qkv, shape=(*tokens, heads, 3 * self.size)), **masks)
        o = ops.reshape(o, shape=(*tokens, heads * self.size))
        return forward_on_shards(self.out, ShardedTensor(o, (self.heads.repeat(self.size),)))

    def own_part(self, mask: Array) -> Array:
        """The mask of this rank's heads, from one that broadcasts to (B, heads, S, T); else ValueError."""
        if mask.ndim < 3 or mask.shape[-3] == 1:
            return mask
        if mask.shape[-3] != self.heads.length:
            raise ValueError(
                f"attention of {self.heads.length} heads cannot take a mask {mask.shape}; broadcast it"
            )
        return self.heads.on_axis(-3).local_part(mask)

    def describe(self) -> str:
        return f"{self.heads.local_size} of {self.heads.length} heads"


class HeadsBlock(ShardedLayer):
    """A block of a transformer by heads, and its feed-forward by columns and rows: x and y are replicated.

    Of B S width numbers forward is two all-reduces and backward two. Norms, dropout and the sums with x are
    computed whole by every rank. Raises ValueError for a block or an attention with a forward of its own, and
    for a feed-forward that is no Sequential of two linear layers and others that take a split input.
    """

    token_wise = True
    column: type[ColumnLinear] = ColumnLinear
    row: type[RowLinear] = RowLinear

    def __init__(self, layer: nn.TransformerBlock, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__()
        if reason := reason_against(layer):
            raise ValueError(reason)
        self.comm = comm
        self.norm1 = self.norm(layer.norm1)
        self.attention = HeadsAttention(layer.attention, comm, column=self.column, row=self.row)
        self.dropout1 = lookup(PASS_THROUGH, layer.dropout1, Replicated)(layer.dropout1, comm, None)
        self.norm2 = self.norm(layer.norm2)
        assert isinstance(layer.feed_forward, Sequential)  # or there is a reason
        self.feed_forward = self.columns_and_rows(layer.feed_forward)
        self.dropout2 = lookup(PASS_THROUGH, layer.dropout2, Replicated)(layer.dropout2, comm, None)

    def columns_and_rows(self, feed_forward: Sequential) -> ShardedSequential:
        """The first linear layer by columns, and the second by rows as the neurons of the first are split."""
        layers: list[ShardedLayer] = []
        in_sharding = None
        for layer in feed_forward.layers:
            if isinstance(layer, nn.Linear):
                kind = self.column if in_sharding is None else self.row
                layers.append(kind(layer, self.comm, in_sharding))
            else:
                layers.append(lookup(PASS_THROUGH, layer, Replicated)(layer, self.comm, in_sharding))
            in_sharding = layers[-1].out_sharding
        return ShardedSequential(layers)

    def sharded_forward(self, a: ShardedTensor, **masks: Any) -> ShardedTensor:
        a = self.between_products(a)
        y = forward_on_shards(self.attention, forward_on_shards(self.norm1, a), **masks)
        a = self.total(a, forward_on_shards(self.dropout1, y))
        y = self.feed_forward.sharded_forward(forward_on_shards(self.norm2, a))
        return self.total(a, forward_on_shards(self.dropout2, y))

    def norm(self, layer: Module) -> Replicated:
        """The form of a norm of this block."""
        return Replicated(layer)

    def total(self, a: ShardedTensor, y: ShardedTensor) -> ShardedTensor:
        """The sum of ``a``, which stands between products, and of y."""
        return ShardedTensor(a.local + self.between_products(y).local, a.shards)

    def between_products(self, a: ShardedTensor) -> ShardedTensor:
        """``a`` as this block's norms, dropouts and sums take it."""
        return a.gather()


def reason_against(layer: nn.TransformerBlock | nn.Attention) -> str | None:
    """Why a block or an attention cannot be split by heads: it is computed in another way; None if it can."""
    for part, kind in parts_of(layer):
        if not part.computes_as(kind):
            inside = "feed_forward.0 (column) and feed_forward.2 (row)"
            if isinstance(layer, nn.TransformerBlock) and reason_against(layer.attention) is None:
                inside = "attention (heads)"
            return (
                f"a split by heads would compute {type(part).__name__} as {kind.__name__}, whose forward it "
                f"does not have; name other layers, such as {inside}"
            )
    if isinstance(layer, nn.Attention) or not isinstance(layer.feed_forward, Sequential):
        return None
    inside = [part for part in layer.feed_forward.layers if lookup(PASS_THROUGH, part, None) is None]
    if len(inside) == 2 and all(part.computes_as(nn.Linear) for part in inside):
        return None
    return (
        "a block is split by heads if its feed-forward has two linear layers, and others that take a split "
        f"input, got {', '.join(type(part).__name__ for part in inside)}; name the layers inside of it"
    )


def parts_of(layer: nn.TransformerBlock | nn.Attention) -> Iterator[tuple[Module, type[Module]]]:
    """The layers of which a split form has one of its own, and the classes that they must compute as."""
    if isinstance(layer, nn.TransformerBlock):
        yield layer, nn.TransformerBlock
        yield layer.feed_forward, Sequential
        layer = layer.attention
    yield layer, nn.Attention
    yield layer.qkv, nn.Linear
    yield layer.out, nn.Linear
