"""Bugs of transformers that are split over ranks: heads, tokens, symbols, and what they send and hold."""

from __future__ import annotations

import numpy as np

from backends.comm import run_ranks
from backends.model_parallel.layers.sharding import ShardedTensor, even_shard
from backends.model_parallel.model_parallel import ModelParallel
from minigrad import loops, nn
from minigrad.tensor import Tensor
from tests.backends.model_parallel import transformer_laws as laws
from tests.bugs.bug import Bug

# Laws

NET = laws.Net(heads=3, tokens=5, symbols=7)


def heads_train_like_serial() -> None:
    laws.splits_heads("heads", NET, 2, micro=2)
    laws.splits_heads("heads", NET, 4)


def heads_see_their_masks() -> None:
    laws.sees_masks("heads", NET, 2, "heads")


def own_forwards_run() -> None:
    for change in ("attention", "a last norm of all tokens", "a dropout of its own"):
        laws.changed_block("tokens", change, None)


def norms_of_two_axes_see_all_tokens() -> None:
    laws.changed_block("tokens", "a last norm of two axes", None)


def whole_results_are_cut() -> None:
    laws.changed_block("tokens", "several dropouts", None)


def shared_blocks_stay_whole() -> None:
    laws.changed_block("heads", "a shared block", None)


def wrong_rows_are_refused() -> None:
    laws.refuses("heads", NET.build, NET.plan(vocabulary=True), np.zeros((1, 2, 5), int))


def tokens_train_like_serial() -> None:
    laws.splits_heads("tokens", NET, 2, micro=2)


def gathered_again_trains_like_serial() -> None:
    laws.splits_heads("gathered again", NET, 3)


def tables_train_like_serial() -> None:
    laws.splits_heads("heads", NET._replace(symbols=6), 3, vocabulary=True)
    laws.splits_heads("heads", NET, 3, vocabulary=True)
    laws.splits_heads("tokens", NET, 2, vocabulary=True)


def tables_on_two_stages_train_like_serial() -> None:
    laws.stacks("tokens", laws.Net(tokens=4))


def segments_hold_their_inputs() -> None:
    for form in laws.FORMS:
        laws.keeps_inputs(form, laws.Net(blocks=1, tokens=8), 2)


def blocks_send_what_closed_forms_say() -> None:
    for form in laws.FORMS:
        laws.sends(form, NET, 3, 2)


def blocks_hold_what_the_table_says() -> None:
    for form in laws.FORMS:
        laws.holds(form, NET, 3, 2, tiles=True, statistics=4 if loops.available() else 2)


def tokens_are_no_features() -> None:
    """Where there are as many tokens as features."""

    def work(comm):
        a = ShardedTensor(Tensor(np.ones((2, 2, 4))), (even_shard(1, comm, 4),))
        assert a.shape == (2, 4, 4) and a.feature_shard() is None, "tokens are features"

    run_ranks(2, work)


def the_default_plan_splits_blocks() -> None:
    def work(comm):
        backend = ModelParallel(comm, sample=(5,))
        backend.place(NET.build(np.random.default_rng(0)))
        return backend.plan

    for plan in run_ranks(2, work):
        assert plan == NET.plan(), f"the plan is {plan}"
    table = nn.TokenEmbedding(9_000, 4, 5, rng=0)
    run_ranks(2, lambda comm: chosen(comm, nn.Sequential(table, nn.LayerNorm(4), nn.Unembedding(table))))


def chosen(comm, model: nn.Module) -> None:
    backend = ModelParallel(comm, sample=(5,))
    backend.place(model)
    assert backend.plan == {"0": "vocabulary", "2": "vocabulary"}, f"the plan is {backend.plan}"


# Bugs

SERIAL = "of its scale on rank"

BUGS = [
    Bug("columns do not add up the gradients of their input", "whole_for_columns",
        "return differentiable.fan_out(a.gather().local, comm=comm)", "return a.gather().local",
        heads_train_like_serial, SERIAL),
    Bug("gathered tokens give their gradients to their owner alone", "whole_for_columns",
        "differentiable.all_gather(", "differentiable.join_in(", tokens_train_like_serial, SERIAL),
    Bug("the bias of a row is inside of the sum", "TokenRowLinear.sharded_forward",
        "a.redistribute(self.shard).local, self.weight)",
        "a.redistribute(self.shard).local, self.weight, self.bias)", tokens_train_like_serial, SERIAL),
    Bug("the gradients of norms are those of some tokens", "TokenWise.__init__",
        "dict.fromkeys(layer.parameters(), comm)", "{}", tokens_train_like_serial, SERIAL),
    Bug("the gradient of a row's bias is that of some tokens", "TokenRowLinear.__init__",
        "self.partial[self.bias] = comm", "pass", tokens_train_like_serial, SERIAL),
    Bug("the bias of a row is divided by the ranks", "reduce_then_add_bias", "total + bias",
        "total + bias * (1 / comm.size)", heads_train_like_serial, SERIAL),
    Bug("tokens drop alike on all ranks", "ShardedMask.keep",
        "keep = self.whole.keep(self.tensor.shape, p)", "return self.whole.keep(shape, p)",
        tokens_train_like_serial, SERIAL),
    Bug("a head belongs to two ranks", "HeadsAttention.sharded_forward",
        "o = self.core(ops.reshape(qkv, shape=(*tokens, heads, 3 * self.size)), **masks)",
        "qkv = ops.reshape(qkv, shape=(*tokens, heads, 3 * self.size))\n    "
        "twice = [0, *range(heads)][:heads]\n    o = self.core(qkv[:, :, twice] if heads else qkv, **masks)",
        heads_train_like_serial, SERIAL),
    Bug("the neurons of heads are split evenly", "HeadsAttention.__init__",
        "neurons=self.heads.repeat(3 * self.size)", "neurons=None", heads_train_like_serial,
        f"{SERIAL}|reshape"),
    Bug("a rank's heads see by the masks of the first ones", "HeadsAttention.own_part",
        "self.heads.on_axis(-3).local_part(mask)", "mask[..., : self.heads.local_size, :, :]",
        heads_see_their_masks, SERIAL),
    Bug("rows of any shape are looked up", "VocabularyEmbedding.sharded_forward",
        "places_of(self.position, x.shape)", "self.position[: x.shape[-1]]",
        wrong_rows_are_refused, "attention takes tokens"),
    Bug("a block forgets what it came from", "HeadsBlock.total",
        "a.local + self.between_products(y).local", "self.between_products(y).local",
        heads_train_like_serial, SERIAL),
    Bug("a subclass computes as its class", "Module.computes_as",
        "type(self).forward is kind.forward", "True", own_forwards_run, SERIAL),
    Bug("every norm is of one axis", "normalizes_each_token", "== 1", ">= 1",
        norms_of_two_axes_see_all_tokens, "layer_norm of x"),
    Bug("a whole result is added to a part", "HeadsBlock.total", "self.between_products(y).local", "y.local",
        whole_results_are_cut, "broadcast|shapes"),
    Bug("the default plan splits blocks that share parameters", "cheapest", "and not shares", "",
        shared_blocks_stay_whole, "shares a parameter"),
    Bug("labels of other ranks' classes count", "sharded_cross_entropy",
        "own[mine] = p[place]\n    own = allreduce(comm, own)", "own[mine] = p[place]",
        tables_train_like_serial, SERIAL),
    Bug("padding pulls its scores down", "sharded_cross_entropy", "p *= (counted / total)[:, None]",
        "p *= (1 / total)[:, None]", tables_train_like_serial, SERIAL),
    Bug("padding counts as the first symbol", "sharded_cross_entropy", "xp.flatnonzero(here & counted)",
        "xp.flatnonzero(here)", tables_train_like_serial, SERIAL),
    Bug("the divisor of a loss is that of its part", "class_parallel_loss",
        "part.divisor(y)", "entropy.divisor(y)", tables_on_two_stages_train_like_serial, SERIAL),
    Bug("symbols of others are the first of one's own", "embedding_of_part",
        "mine = (own >= 0) & (own < rows)", "own = own.clip(0, max(rows - 1, 0))\n    mine = own == own",
        tables_train_like_serial, SERIAL),
    Bug("places are added by every rank", "VocabularyEmbedding.summed",
        "differentiable.fan_in(y, comm=self.shard.comm) + places",
        "differentiable.fan_in(y + places, comm=self.shard.comm)", tables_train_like_serial, SERIAL),
    Bug("all ranks' tokens stand at the first places", "TokensVocabularyEmbedding.summed",
        "places[..., tokens.local_slice, :]", "places[..., : tokens.local_size, :]", tables_train_like_serial,
        SERIAL),
    Bug("the gradient of places is that of some tokens", "TokensVocabularyEmbedding.__init__",
        "self.partial[self.position] = comm", "pass", tables_train_like_serial, SERIAL),
    Bug("a table in parts is two parameters", "keep_ties", "for name in others:", "for name in others[1:]:",
        tables_train_like_serial, f"{SERIAL}|KeyError|inf"),
    Bug("the gradient of a table is summed over the ranks too", "VocabularyEmbedding.__init__",
        'self.shard_parameter("position", layer.position)',
        'self.shard_parameter("position", layer.position)\n    self.partial[self.weight] = comm',
        tables_train_like_serial, SERIAL),
    Bug("tokens are taken for features", "ShardedTensor.feature_shard",
        "self.shard_of(1 if self.local.ndim == 4 else self.local.ndim - 1)", "self.shard_of(1)",
        tokens_are_no_features, "tokens are features"),
    Bug("what is gathered again is one's own", "linear_of_gathered",
        "as_rows(g).T, as_rows(concatenate(gathered(), TOKENS))",
        "as_rows(cut(g, TOKENS, sizes)[comm.rank]).T, as_rows(x)", gathered_again_trains_like_serial,
        SERIAL),
    Bug("what is gathered again was held", "linear_of_gathered",
        "def gathered() -> list[Array]:\n        return collectives.allgather(comm, x)\n\n    "
        "xs = gathered()",
        "held = collectives.allgather(comm, x)\n\n    def gathered() -> list[Array]:\n        return held\n\n"
        "    xs = gathered()", blocks_hold_what_the_table_says, "AssertionError"),
    Bug("a block sums tokens over ranks and takes its own", "TokenRowLinear.sharded_forward",
        "differentiable.reduce_scatter(y, comm=tokens.comm, axis=TOKENS, sizes=tokens.sizes)",
        "tokens.share_out(differentiable.fan_in(y, comm=tokens.comm))", blocks_send_what_closed_forms_say,
        "AssertionError|assert"),
    Bug("columns gather tokens, and sum gradients of all", "whole_for_columns", "if tokens is None:",
        "if True:", blocks_send_what_closed_forms_say, "AssertionError|assert"),
    Bug("a segment that is split is not recomputed", "ShardedSequential.sharded_forward",
        "if tape is None or not self.bounds:", "if True:", segments_hold_their_inputs, "the tape"),
    Bug("blocks are split only if that sends less", "cheapest",
        'options = [("heads", gather + 8 * n_out, False, weights / ranks)]',
        'options.append(("heads", gather + 8 * n_out, False, weights / ranks))',
        the_default_plan_splits_blocks, "the plan is"),
    Bug("tables are never split", "model_parallel.plan.choose",
        "[set[str](), tables] if can_be_split else [set[str]()]", "[set[str]()]",
        the_default_plan_splits_blocks, "the plan is"),
]  # fmt: skip
