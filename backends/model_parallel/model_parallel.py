"""Every rank holds a part of the layers that a plan names, and computes with the whole batch.

Lecture section: model parallelism. Lesson: 11_model_parallel. ``plan.py`` says what a plan is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.data import Batch
from minigrad.declaration import Declaration
from minigrad.device import array_module, unflatten
from minigrad.lookup import at_least_one
from minigrad.module import Module, Sequential, evaluation_mode, is_sequential
from minigrad.placed_state import PlacedState, Values
from minigrad.recompute import Recomputed
from minigrad.sample import inputs_of
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from minigrad.traits import Traits
from minigrad.work import Loss

from ..comm.collectives import Allreduce, allreduce
from ..comm.communicator import Communicator, WithAllreduce
from ..consistency import broadcast_model, check_same_batch, check_same_on_all_ranks
from ..placement import Placeholder, loss_of_output, refuse_placed, shards_of
from .layers.class_parallel import ClassLinear, class_parallel_loss
from .layers.layer import ShardedLayer
from .layers.pass_through import ELEMENTWISE, PASS_THROUGH, Replicated, lookup
from .layers.process_grid import process_grid_of
from .layers.sequential import ShardedSequential, named_in_errors
from .layers.sharding import Shard, ShardedTensor
from .layers.tokens import RegatheredTokensBlock, TokensBlock, TokenWise, normalizes_each_token
from .layers.vocabulary import TokensVocabularyEmbedding
from .plan import SPLITS, Plan, check_plan, default_plan
from .spatial.layers import SPATIAL, tiling_of


class SplitLayers(PlacedState):
    """The state of a model of whose layers each rank holds a part."""

    backend: ModelParallel

    def unshard_values(self, model: Module, values: Values) -> Values:
        """The whole arrays, by name, made of the parts of all ranks; None stays None."""
        return values | {name: shard.gather(values[name]) for name, shard in split_arrays(model, values)}

    def shard_values(self, model: Module, values: Values) -> Values:
        return values | {name: shard.local_part(values[name]) for name, shard in split_arrays(model, values)}

    def global_square_norms(self, model: Module, squares: np.ndarray) -> np.ndarray:
        """Sums over the ranks, in which what several hold counts once."""
        rank, size = self.backend.rank, self.backend.size
        shards, names = shards_of(model), model.named_parameters()
        parameters = [array[1:] for array in model.named_arrays() if array[0] in names]
        once = [shards[p].parts / size if p in shards else float(rank == 0) for p in parameters]
        return allreduce(self.backend.comm, squares * np.array(once)[:, None])


def split_arrays(model: Module, values: Values) -> Iterator[tuple[str, Shard]]:
    """The names of ``values`` that are split, and how."""
    shards = shards_of(model)
    for name, owner, attribute in model.named_arrays():
        value = values.get(name)
        if (owner, attribute) in shards and value is not None and value.ndim:  # numbers are whole
            yield name, shards[owner, attribute]


class ModelParallel(Strategy):
    """Every rank has the whole batch and its part of the layers in the plan; trains like serial.

    ``plan`` maps names of layers to kinds of split. None chooses the default plan for ``batch_size`` samples
    (see ``plan.py``), which is then in ``self.plan``. In a Sequential, also a nested one, activations stay
    split between layers; in other models each layer of the plan has a whole input and a whole output.
    ``sample`` is the shape of one input. With it the layers are made to fit the inputs that they will get: a
    "row" layer then takes the features as a split Flatten leaves them. Layers sum over ranks by
    ``allreduce``, which is the transport's own by default.

    With ``split_tokens`` each rank has some of the tokens (N, S, features) between the products of blocks
    that the plan splits by "heads", and in norms after them: an all-reduce becomes a reduce-scatter and an
    all-gather. With ``gather_again`` gathered tokens are not held, but gathered again in backward.

    >>> from backends.comm import run_ranks
    >>> from minigrad import nn
    >>> def shapes(comm):
    ...     net = nn.Sequential(nn.Linear(4, 6, rng=0), nn.ReLU(), nn.Linear(6, 2, rng=1))
    ...     plan = {"0": "column", "2": "row"}
    ...     return [p.shape for p in ModelParallel(comm, plan).place(net).parameters()]
    >>> run_ranks(2, shapes)[0]
    [(3, 4), (3,), (2, 3), (2,)]
    """

    traits = Traits(splits_layers=True)
    declaration, state_class = Declaration(chooses={"plan": "plan"}), SplitLayers
    splits, pass_through = SPLITS, PASS_THROUGH

    def __init__(
        self,
        comm: Communicator,
        plan: Mapping[str, str] | None = None,
        *,
        sample: Sequence[int] | None = None,
        batch_size: int = 64,
        micro_batches: int = 1,
        split_tokens: bool = False,
        gather_again: bool = False,
        allreduce: Allreduce | None = None,
    ):
        comm = comm if allreduce is None else WithAllreduce(comm, allreduce)
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.requested_plan = None if plan is None else dict(plan)
        self.plan: Plan = self.requested_plan or {}
        self.sample = None if sample is None else tuple(sample)
        self.batch_size = at_least_one("batch_size", batch_size)
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.split_tokens, self.gather_again = split_tokens, gather_again
        if gather_again and not split_tokens:
            raise ValueError("gather_again is of tokens that are split; pass split_tokens=True too")
        if split_tokens:
            block = RegatheredTokensBlock if gather_again else TokensBlock
            tables = {nn.TransformerBlock: block, nn.TokenEmbedding: TokensVocabularyEmbedding}
            kinds = {layer: dict.fromkeys(self.splits[layer], form) for layer, form in tables.items()}
            self.splits = {**self.splits, **kinds}
        self.tiling = cache(partial(tiling_of, comm=comm))  # one for all layers that are split alike
        self.process_grid = cache(partial(process_grid_of, comm=comm))
        self.partial: dict[Tensor, Communicator] = {}  # of these, each rank has a term of the gradient

    def place(self, model: Module) -> Module:
        """This rank's part of ``model``, with rank 0's parameters.

        Raises ValueError if ranks have different models or plans, or if the plan does not fit the model.
        """
        refuse_placed(model, ShardedLayer, Placeholder)
        settings = self.declaration.settings(self) | {"plan": self.requested_plan}
        check_same_on_all_ranks(self.comm, model, settings)
        if self.requested_plan is None:
            self.plan = default_plan(model, self.size, self.batch_size, self.sample)
        check_plan(self.plan, model, self.splits)
        broadcast_model(self.comm, model)
        ties = model.tied_parameters()
        if is_sequential(model):
            first = None if self.sample is None else ShardedTensor(inputs_of([model], self.sample, 0))
            model = self.sharded_sequential(model, first)
        else:
            self.replace_inside(model)
        keep_ties(model, ties)
        layers = [layer for layer in model.modules() if isinstance(layer, ShardedLayer)]
        self.partial = {parameter: comm for layer in layers for parameter, comm in layer.partial.items()}
        return self.hold(model)

    def sharded_sequential(
        self,
        model: Sequential,
        a: ShardedTensor | None = None,
        in_sharding: Shard | None = None,
        prefix: str = "",
    ) -> ShardedSequential:
        """The sharded layers of a Sequential whose input has its features split by ``in_sharding``.

        ``a``, if it is known, is an input without samples, which is passed through the layers.
        """
        layers: list[ShardedLayer] = []
        for i, layer in enumerate(model.layers):
            name = f"{prefix}{i}"
            with named_in_errors(i):
                if is_sequential(layer):
                    layers.append(self.sharded_sequential(layer, a, in_sharding, f"{name}."))
                elif layers and layers[-1].splits_tokens and normalizes_each_token(layer):
                    layers.append(TokenWise(layer, self.comm))
                else:
                    layers.append(self.split(name, layer, in_sharding))
                with evaluation_mode(layers[-1]):
                    a = None if a is None else layers[-1].sharded_forward(a)
            in_sharding = layers[-1].out_sharding if a is None else a.feature_shard()
        return ShardedSequential(layers, model.bounds if isinstance(model, Recomputed) else ())

    def split(self, name: str, layer: Module, in_sharding: Shard | None = None) -> ShardedLayer:
        """The sharded layer called ``name``, whose input has its features split by ``in_sharding``."""
        kind = self.plan.get(name)
        tiling = None if kind is None else self.tiling(kind)
        if kind is None or (tiling is not None and isinstance(layer, (*ELEMENTWISE, nn.Dropout))):
            self.replace_inside(layer, f"{name}.")
            return lookup(self.pass_through, layer, Replicated)(layer, self.comm, in_sharding)
        if tiling is not None:
            return lookup(SPATIAL, layer, Replicated)(layer, tiling)
        form = lookup(self.splits, layer, {})[kind.partition(" ")[0]]  # of "grid 2x3"
        return form(layer, self.process_grid(kind) or self.comm, in_sharding)

    def replace_inside(self, model: Module, prefix: str = "") -> None:
        """Replace the layers that the plan names by sharded ones, with whole inputs and outputs."""
        for child, layer in model.children().items():
            name = prefix + child
            planned = [other for other in self.plan if f"{other}.".startswith(f"{name}.")]
            if planned and is_sequential(layer):
                model.replace(child, self.sharded_sequential(layer, prefix=f"{name}."))
            elif name in planned:
                with named_in_errors(name):
                    model.replace(child, self.split(name, layer))
            elif planned:
                self.replace_inside(layer, f"{name}.")

    def check_batch(self, batch: Batch) -> None:
        check_same_batch(self.comm, batch)

    def loss_for(self, model: Module, loss_fn: Loss) -> Loss:
        """Where each rank has some of the classes, ``loss_fn`` without gathering them."""
        heads = [m for _, m in model.named_modules() if isinstance(m, ClassLinear) and m.training]
        loss_fn = class_parallel_loss(loss_fn, heads[0].shard) if heads else loss_fn
        return loss_of_output(loss_fn, self.size)

    def on_grad(self, parameter: Tensor) -> bool:
        return parameter not in self.partial

    def finish(self, model: Module, loss: float) -> float:
        """Sum the gradients of which each rank has one term: one all-reduce for each group and dtype."""
        together: dict[tuple[Communicator, Any], list[Tensor]] = {}
        for parameter, comm in self.partial.items():
            if parameter.grad is not None:
                together.setdefault((comm, parameter.dtype), []).append(parameter)
        for (comm, _), parameters in together.items():
            xp = array_module(parameters[0].data)
            terms = [p.grad.reshape(-1) for p in parameters if p.grad is not None]
            total = allreduce(comm, xp.concatenate(terms))
            for parameter, g in zip(parameters, unflatten(total, parameters), strict=True):
                parameter.grad = g
        return loss

    def close(self) -> None:
        """Drop the groups of ranks; the layers still need them to compute, and free them in the end."""
        super().close()
        self.tiling.cache_clear()
        self.process_grid.cache_clear()
        self.partial = {}

    def refusal(self, inner: Strategy) -> str:
        return "ModelParallel splits layers, so nothing can stand inside of it; put it innermost"


def keep_ties(model: Module, ties: Sequence[Sequence[str]]) -> None:
    """Let the parts of a parameter that had several names be one again."""
    places = {name: (owner, attribute) for name, owner, attribute in model.named_arrays()}
    for first, *others in ties:
        owner, attribute = places[first]
        for name in others:
            setattr(places[name][0], places[name][1], getattr(owner, attribute))
