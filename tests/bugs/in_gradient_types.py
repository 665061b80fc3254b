"""Bugs that types of gradients find in forward: sums over ranks that layers leave out, or do twice."""

from __future__ import annotations

from backends.comm.gradient_types import RULES
from tests.backends.comm import gradient_type_laws
from tests.backends.model_parallel import parameter_type_laws
from tests.bugs.bug import Bug

# Laws


def columns_and_rows() -> None:
    parameter_type_laws.columns_and_rows()


def filters_and_channels() -> None:
    parameter_type_laws.filters_and_channels()


def gathered_layers() -> None:
    parameter_type_laws.gathered_layers()


def classes() -> None:
    parameter_type_laws.classes()


def heads() -> None:
    parameter_type_laws.heads()


def tokens() -> None:
    parameter_type_laws.tokens()


def segments() -> None:
    parameter_type_laws.segments()


def tokens_gathered_again() -> None:
    parameter_type_laws.tokens_gathered_again()


def blocks_are_refused_exactly_where_they_are_wrong() -> None:
    for block in gradient_type_laws.BLOCKS:
        gradient_type_laws.block_is_refused_exactly_where_it_is_wrong(block, ranks=2)


def rules_hold() -> None:
    for name in gradient_type_laws.OPS:
        gradient_type_laws.rule_holds(name, RULES[name], ranks=3, seed=1)


# Bugs

PARTIAL = "is partial over 2 ranks, which compute differently here, and nothing sums it"
ROWS = "linear.reduce_then_add_bias"

BUGS = [
    # What each layer leaves out, or does twice
    Bug("types: columns without fan_out", "linear.whole_for_columns",
        "return differentiable.fan_out(a.gather().local, comm=comm)", "return a.gather().local",
        columns_and_rows, f"linear in layer 2: the gradient of the result of tanh {PARTIAL}; put fan_out"),
    Bug("types: rows without fan_in", ROWS, "total = differentiable.fan_in(y, comm=comm)", "total = y",
        columns_and_rows, "add in layer 4: 4.bias is added to a term of a sum on each of 2 ranks"),
    Bug("types: the bias is in every term", ROWS,
        "total = differentiable.fan_in(y, comm=comm)\n    return total if bias is None else total + bias",
        "return differentiable.fan_in(y if bias is None else y + bias, comm=comm)",
        columns_and_rows, "layer 4: 4.bias is added to a term .* so it counts 2 times; add it after fan_in"),
    Bug("types: the gradient of a sum is summed again", ROWS,
        "total = differentiable.fan_in(y, comm=comm)", "total = differentiable.all_reduce(y, comm=comm)",
        columns_and_rows, f"the gradient of 4.bias {PARTIAL}"),
    Bug("types: parts are joined for uses that differ", "linear.whole_for_columns",
        "differentiable.all_gather(", "differentiable.join_in(",
        tokens, f"layer 1.attention.qkv: the gradient of the result of join_in {PARTIAL}"),
    Bug("types: parts are gathered for one loss", "layers.sharding.Shard.join_in",
        "differentiable.join_in, part", "differentiable.all_gather, part",
        classes, "the loss is replicated with a partial gradient over 2 ranks"),
    Bug("types: norms of tokens are not summed", "tokens.TokenWise.__init__",
        "dict.fromkeys(layer.parameters(), comm)", "{}",
        tokens, f"layer_norm in layer 1.norm1: the gradient of 1.norm1.weight {PARTIAL}.* after backward"),
    Bug("types: biases of tokens are not summed", "tokens.TokenRowLinear.__init__",
        "self.bias is not None", "self.bias is None",
        tokens, f"add in layer 1.attention.out: the gradient of 1.attention.out.bias {PARTIAL}"),
    Bug("types: places of tokens are not summed", "TokensVocabularyEmbedding.__init__",
        "self.partial[self.position] = comm", "pass",
        tokens, f"layer 0: the gradient of the result of getitem {PARTIAL}"),
    Bug("types: places are in every term", "VocabularyEmbedding.summed",
        "differentiable.fan_in(y, comm=self.shard.comm) + places",
        "differentiable.fan_in(y + places, comm=self.shard.comm)",
        heads, "add in layer 0: the result of .* is added to a term of a sum on each of 2 ranks"),
    Bug("types: symbols are not summed", "VocabularyEmbedding.summed",
        "differentiable.fan_in(y, comm=self.shard.comm) + places", "y + places",
        heads, "add in layer 0: the result of .* is added to a term of a sum on each of 2 ranks"),
    Bug("types: filters without fan_out", "FilterConv2d.sharded_forward",
        "in_channels_last(differentiable.fan_out, a.gather().local, comm=self.shard.comm)",
        "a.gather().local",
        filters_and_channels, f"conv2d in layer 3: the gradient of the result of tanh {PARTIAL}"),
    Bug("types: gathered columns without fan_out", "GatheredLinear.sharded_forward",
        "differentiable.fan_out(a.gather().local, comm=self.comm)", "a.gather().local",
        gathered_layers, f"linear in layer 2: the gradient of the result of tanh {PARTIAL}"),
    Bug("types: tokens to gather again are joined", "RegatheredColumnLinear.sharded_forward",
        "linear_of_gathered(a.local, *self.own_parameters, comm=self.shard.comm)",
        "ops.linear(a.gather().local, *self.own_parameters)",
        tokens_gathered_again, f"layer 1.attention.qkv: the gradient of the result of join_in {PARTIAL}"),
    # What the types do not see
    Bug("types: fan_out leaves the gradient as it is", "gradient_types.RULES",
        '"fan_out": (REPLICATED, FAN_OUT)', '"fan_out": (REPLICATED, REPLICATED)',
        rules_hold, "fan_out: .* is no adjoint"),
    Bug("types: an all-gather is for one loss", "gradient_types.RULES",
        '"all_gather": (SPLIT, FAN_OUT)', '"all_gather": (SPLIT, REPLICATED)',
        rules_hold, "all_gather: .* is no adjoint"),
    Bug("types: what is split may be replicated", "gradient_types.result_of",
        "if REPLICATED in kinds and {*kinds} != {REPLICATED}", "if REPLICATED in kinds and PARTIAL in kinds",
        blocks_are_refused_exactly_where_they_are_wrong, "is wrong, and the types say ''"),
    Bug("types: any op may take a term", "gradient_types.result_of",
        "(op not in LINEAR or kinds.count(PARTIAL) > 1)", "kinds.count(PARTIAL) > 1",
        blocks_are_refused_exactly_where_they_are_wrong, "is wrong, and the types say ''"),
    Bug("types: a bias may be in every term", "gradient_types.result_of",
        "later = inputs[weights[0] + 1 :] if weights else inputs", "later = [] if weights else inputs",
        blocks_are_refused_exactly_where_they_are_wrong, "is wrong, and the types say"),
    Bug("types: a sum may be of what is summed", "gradient_types.SERVES_AS",
        "PARTIAL: (SPLIT,)", "PARTIAL: (SPLIT, REPLICATED)",
        blocks_are_refused_exactly_where_they_are_wrong, "is wrong, and the types say"),
    Bug("types: any loss will do", "TypedTape.check_loss",
        "self.types_of(loss).items()", "{}.items()",
        blocks_are_refused_exactly_where_they_are_wrong, "is wrong, and the types say ''"),
    Bug("types: a segment that runs again is not seen", "TypedEntries.append",
        "isinstance(entry, Segment)", "not isinstance(entry, list)",
        segments, "."),
]  # fmt: skip
