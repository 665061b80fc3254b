"""Each rank has the vectors of some symbols: the table of an embedding, and of scores, split by its rows.

Lecture section: model parallelism by neurons. Lesson: 17_sequences. A rank looks up 0 for symbols of others,
and the ranks' vectors are summed; scores are classes as in ``class_parallel.py`` (Shoeybi et al. 2019,
section 3). A table that stands at both ends of a model is split alike at both, and stays one parameter.
"""

from __future__ import annotations

from minigrad import nn
from minigrad.device import Array, array_module, on_gpu
from minigrad.nn.token_embedding import places_of
from minigrad.ops.selection import sum_by_row
from minigrad.pullback import OpResult
from minigrad.tensor import Parameter, Tensor

from ...comm import differentiable
from ...comm.communicator import Communicator
from ...comm.typed_tape import typed_op
from .class_parallel import ClassLinear
from .layer import ShardedLayer
from .sharding import Shard, ShardedTensor, even_shard
from .tokens import TOKENS


@typed_op
def embedding_of_part(weight: Array, indices: Array, *, shard: Shard) -> OpResult:
    """The rows ``indices`` (B, S) of a table (symbols, width) of which this rank has some; others are 0.

    Raises TypeError for indices that are not integers, ValueError for one that is no row of the whole table;
    on a GPU, where the host would have to wait for it, its vector is NaN.
    """
    xp, gpu = array_module(weight), on_gpu(indices)
    indices = xp.asarray(indices)
    if indices.dtype.kind not in "iu":
        raise TypeError(
            f"embedding needs integer indices, got {indices.dtype}; convert them with .astype(int)"
        )
    if not gpu and indices.size and not (indices.min() >= 0 and indices.max() < shard.length):
        raise ValueError(
            f"embedding indices run from {int(indices.min())} to {int(indices.max())}, "
            f"the table has rows 0 to {shard.length - 1}; enlarge the table or correct the indices"
        )
    (rows, width), flat = weight.shape, indices.reshape(-1)
    own = flat - shard.local_slice.start
    mine = (own >= 0) & (own < rows)
    own *= mine
    if rows:
        value = xp.where(mine[:, None], xp.take(weight, own, axis=0), weight.dtype.type(0))
    else:
        value = xp.zeros((flat.size, width), weight.dtype)
    if gpu:
        value = xp.where(((flat >= 0) & (flat < shard.length))[:, None], value, xp.nan)

    def to_weight(g: Array) -> Array:
        g = g.reshape(-1, width)
        return sum_by_row(g * mine[:, None], own, rows) if rows else g[:0]

    return value.reshape(*indices.shape, width), (to_weight, None)


class VocabularyEmbedding(ShardedLayer):
    """The vectors of some symbols, and all places: x (B, S) and y (B, S, width) are replicated.

    Forward is one all-reduce, backward sends nothing. Raises ValueError as ``nn.TokenEmbedding``.
    """

    token_wise = True
    weight: Parameter
    position: Parameter

    def __init__(self, layer: nn.TokenEmbedding, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__()
        self.shard = even_shard(0, comm, len(layer.weight))
        self.shard_parameter("weight", layer.weight, self.shard)
        self.shard_parameter("position", layer.position)

    def sharded_forward(self, a: ShardedTensor) -> ShardedTensor:
        x = a.gather().local
        places = places_of(self.position, x.shape)
        return self.summed(embedding_of_part(self.weight, x, shard=self.shard), places)

    def summed(self, y: Tensor, places: Tensor) -> ShardedTensor:
        """The ranks' terms ``y`` added up, and the vectors of ``places``."""
        return ShardedTensor(differentiable.fan_in(y, comm=self.shard.comm) + places)

    def describe(self) -> str:
        return f"{self.shard.local_size} of {self.shard.length}, {self.weight.shape[1]}, {len(self.position)}"


class TokensVocabularyEmbedding(VocabularyEmbedding):
    """The vectors of some symbols, whose sum is scattered by tokens; each rank adds the places of its own.

    Forward is one reduce-scatter, backward one all-gather.
    """

    splits_tokens = True

    def __init__(self, layer: nn.TokenEmbedding, comm: Communicator, in_sharding: Shard | None = None):
        super().__init__(layer, comm)
        self.partial[self.position] = comm

    def summed(self, y: Tensor, places: Tensor) -> ShardedTensor:
        tokens = even_shard(TOKENS, self.shard.comm, y.shape[TOKENS])
        y = differentiable.reduce_scatter(y, comm=tokens.comm, axis=TOKENS, sizes=tokens.sizes)
        return ShardedTensor(y + places[..., tokens.local_slice, :], (tokens,))


class VocabularyUnembedding(ClassLinear):
    """The scores of some symbols: x (B, S, width) is replicated or split by tokens, y is for the loss alone.

    Backward all-reduces, or reduces and scatters, the gradient of x. In eval mode y is whole.
    """
