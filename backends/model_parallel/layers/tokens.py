"""Between the products of a split block each rank has some tokens: the bytes of an all-reduce, less memory.

Lecture section: model parallelism by neurons. Lesson: 17_sequences. An all-reduce is a reduce-scatter and an
all-gather. Norms, dropout, biases and residuals act on each token alone, so they stand between the two: a
block holds only this rank's tokens there (Korthikanti et al. 2022, section 4). Of the gradients of norms
and biases every rank computes one term, that of its tokens.
"""

from __future__ import annotations

from minigrad import nn, ops
from minigrad.device import Array
from minigrad.module import Module
from minigrad.nn.attention import check_tokens
from minigrad.op import op
from minigrad.ops.linear import as_rows
from minigrad.product import product
from minigrad.pullback import OpResult

from ...comm import collectives, differentiable
from ...comm.communicator import Communicator
from ...comm.differentiable import concatenate, cut
from .heads import HeadsBlock
from .linear import ColumnLinear, RowLinear, split_tokens_of
from .pass_through import Replicated, lookup
from .sharding import Shard, ShardedTensor, even_shard

TOKENS = 1
"""The axis of tokens (N, S, features)."""


def on_tokens(a: ShardedTensor, comm: Communicator) -> ShardedTensor:
    """``a`` (N, S, features) split by its tokens, as evenly as can be; from a whole one without a message.

    Raises ValueError for other axes.
    """
    check_tokens(a.local.shape)
    return a.redistribute(even_shard(TOKENS, comm, a.shape[TOKENS]))


class TokenWise(Replicated):
    """A layer that acts on each token alone: this rank's tokens, of which it has a term of the gradients."""

    splits_tokens = True

    def __init__(self, layer: Module, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer)
        self.comm, self.partial = comm, dict.fromkeys(layer.parameters(), comm)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        a = on_tokens(a, self.comm)
        return ShardedTensor(self.layer(a.local), a.shards)


def normalizes_each_token(layer: Module) -> bool:
    """Whether a layer is a norm over the last axis alone."""
    return lookup({nn.LayerNorm: True, nn.RMSNorm: True}, layer, False) and layer.parameters()[0].ndim == 1


class TokenRowLinear(RowLinear):
    """A row layer whose sum is scattered: x (N, S, features) is split by features, y by tokens.

    Forward is one reduce-scatter, after which the bias is added to this rank's tokens; backward is one
    all-gather.
    """

    splits_tokens = True

    def __init__(self, layer: nn.Linear, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer, comm, in_sharding)
        if self.bias is not None:
            self.partial[self.bias] = comm

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        y = ops.linear(a.redistribute(self.shard).local, self.weight)
        tokens = even_shard(TOKENS, self.shard.comm, y.shape[TOKENS])
        y = differentiable.reduce_scatter(y, comm=tokens.comm, axis=TOKENS, sizes=tokens.sizes)
        return ShardedTensor(y if self.bias is None else y + self.bias, (tokens,))


class RegatheredColumnLinear(ColumnLinear):
    """A column layer that holds only its own tokens, and gathers all again for the gradient of its weight.

    Backward sends one all-gather more (Korthikanti et al. 2022, section 4.2.2).
    """

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        if split_tokens_of(a, self.shard.comm) is None:
            return super().sharded_forward(a)
        y = linear_of_gathered(a.local, *self.own_parameters, comm=self.shard.comm)
        return ShardedTensor(y, (self.shard,))


@op
def linear_of_gathered(x: Array, weight: Array, bias: Array | None = None, *, comm: Communicator) -> OpResult:
    """x w.T + b for all ranks' x (N, S of the rank, in), of which only this rank's is held for backward.

    Backward is one reduce-scatter, of the gradient of x, and one all-gather, of x.
    """

    def gathered() -> list[Array]:
        return collectives.allgather(comm, x)

    xs = gathered()
    sizes = [part.shape[TOKENS] for part in xs]
    y = product(concatenate(xs, TOKENS), weight.T)
    del xs

    def to_x(g: Array) -> Array:
        return collectives.reduce_scatter(comm, cut(product(g, weight), TOKENS, sizes))

    def to_weight(g: Array) -> Array:
        return product(as_rows(g).T, as_rows(concatenate(gathered(), TOKENS)))

    return (y, (to_x, to_weight)) if bias is None else (y + bias, (to_x, to_weight, lambda g: g))


class TokensBlock(HeadsBlock):
    """A block by heads, columns and rows whose input and output are split by tokens (N, S, width).

    Forward is two all-gathers and two reduce-scatters, and so is backward.
    """

    splits_tokens = True
    row = TokenRowLinear

    def norm(self, layer: Module) -> Replicated:
        return TokenWise(layer, self.comm) if normalizes_each_token(layer) else Replicated(layer)

    def between_products(self, a: ShardedTensor) -> ShardedTensor:
        return on_tokens(a, self.comm)


class RegatheredTokensBlock(TokensBlock):
    """A block split by tokens that holds no gathered input; backward gathers the two of them again."""

    column = RegatheredColumnLinear
