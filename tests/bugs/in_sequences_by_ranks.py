"""Bugs of rows whose tokens are on several ranks: rings, exchanges of heads, places, masks and losses."""

from __future__ import annotations

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.sequence_parallel import SequenceParallel
from backends.sequence_parallel.naive import naive_ring_attention
from backends.sequence_parallel.ring import ring_attention
from backends.sequence_parallel.split_tokens import SplitTokens
from backends.sequence_parallel.token_order import ORDERS, columns_of
from backends.sequence_parallel.ulysses import ulysses_attention
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.nn import CrossEntropyLoss
from minigrad.random_mask import RandomMask
from minigrad.weighted_mean import WeightedMean
from tests.backends.model_parallel.transformer_laws import Net
from tests.backends.sequence_parallel import ring_laws, sequence_laws
from tests.backends.sequence_parallel.ring_laws import Rows
from tests.bugs.bug import Bug
from tests.minigrad.ops.fast.fast_form_laws import readable_forms

# Laws

NET = Net(heads=3, size=2, blocks=1)
ROWS = (Rows(3, 6), Rows(3, 7), Rows(4, 3), Rows(2, 8, documents=True), Rows(3, 12, causal=False))


def rings_are_whole() -> None:
    for rows in ROWS:
        for order in ORDERS:
            columns = columns_of(rows.length, rows.ranks, order)
            sent = ring_laws.sent_by_ring(columns, rows)
            ring_laws.attends_over_ranks(ring_attention, columns, rows, sent=sent)


def readable_rings_are_whole() -> None:
    with readable_forms():
        rings_are_whole()


def the_slide_is_whole() -> None:
    rows = Rows(3, 6)
    columns = columns_of(rows.length, rows.ranks)

    def naive(*x, causal, **settings):
        return naive_ring_attention(*x, **settings)

    sent = ring_laws.sent_by_ring(columns, rows, arrays=2)
    ring_laws.attends_over_ranks(naive, columns, rows, sent=sent)


def heads_are_whole() -> None:
    for rows in (Rows(2, 5, heads=3), Rows(4, 3, heads=3), Rows(3, 7, heads=2, documents=True)):
        columns = columns_of(rows.length, rows.ranks, "contiguous")
        sent = ring_laws.sent_by_ulysses(columns, rows)
        ring_laws.attends_over_ranks(ring_laws.as_one(ulysses_attention), columns, rows, sent=sent)


def tokens_are_on_one_rank() -> None:
    for order in ORDERS:
        for length in (0, 3, 8, 13):
            ring_laws.shares_tokens(columns_of, length, 3, order)


def zigzag_is_balanced() -> None:
    ring_laws.is_balanced(columns_of, 3, 2)


def the_link_is_hidden() -> None:
    ring_laws.hides_the_link(ring_attention, columns_of, 3, 2.0, 1.0)


def the_link_is_hidden_in_backward() -> None:
    ring_laws.hides_two_messages(ring_attention, columns_of, 3, 3.0, 1.0)


def training_is_serial() -> None:
    for form in ("ring", "ulysses"):
        sequence_laws.trains(lambda comm, form=form: SequenceParallel(comm, form=form), 3, NET, sizes=(3, 2))


def documents_are_apart() -> None:
    sequence_laws.trains(SequenceParallel, 2, NET, sizes=(3, 2), documents=True)


def documents_of_a_keyword_are_apart() -> None:
    batches = sequence_laws.packed_batches(NET, (3, 2))
    build = lambda rng: sequence_laws.Packed(NET, rng)  # noqa: E731
    sequence_laws.trains(SequenceParallel, 2, NET, batches=batches, build=build)


def whole_masks_are_drawn() -> None:
    tokens = lambda comm, length, order: SplitTokens(  # noqa: E731
        comm=comm, columns=columns_of(length, comm.size, order)
    )
    sequence_laws.draws_whole_masks(tokens, 3, 7, "zigzag")


def losses_are_of_tokens() -> None:
    batches = [Batch(batch.x, np.abs(batch.y)) for batch in Net(tokens=5).batches(3, 2)]
    loss = CrossEntropyLoss(class_axis=-1)
    sequence_laws.trains(SequenceParallel, 3, Net(tokens=5), loss=loss, batches=batches)


def totals_of_rows_are_refused() -> None:
    loss = WeightedMean(lambda out, y: ops.sum(ops.mean(out * out, axis=1)), len)
    sequence_laws.refuses(SequenceParallel, NET.build, "no sum over tokens", NET.batches(2)[0], loss)


def flat_masks_are_refused() -> None:
    def work(comm: Communicator) -> None:
        tokens = SplitTokens(comm=comm, columns=columns_of(6, 2))
        tokens.mask(RandomMask(0, places=range(6)), 2).keep((6, 3), 0.5)

    try:
        run_ranks(2, work)
    except ValueError as error:
        assert "in 2 rows" in str(error), error
    else:
        raise AssertionError("it was not refused")


def stacks_train_like_serial() -> None:
    sequence_laws.trains_in_a_stack({"data": 2, "sequence": 2, "model": 2}, NET)


def segments_run_again_alike() -> None:
    sequence_laws.trains(SequenceParallel, 2, NET, build=sequence_laws.again(NET, "segments"), sizes=(3, 2))


def experts_have_places_for_rows() -> None:
    sequence_laws.trains(SequenceParallel, 2, NET, build=sequence_laws.with_experts(NET), sizes=(3, 2))


class Mixing(nn.Linear):
    """A linear layer whose forward adds the other tokens."""

    def forward(self, x):
        return super().forward(x + ops.sum(x, axis=1, keepdims=True))


def mixed_tokens_are_refused() -> None:
    for layer in (lambda rng: Mixing(6, 6, rng=rng), lambda rng: nn.BatchNorm(6)):
        sequence_laws.refuses(
            SequenceParallel,
            lambda rng, layer=layer: nn.Sequential(NET.build(rng)[0], layer(rng), *NET.build(rng)[1:]),
            "may mix the tokens of a row",
            NET.batches(2)[0],
        )


def means_of_parts_are_refused() -> None:
    loss = lambda out, y: CrossEntropyLoss(class_axis=-1)(out, y)  # noqa: E731
    words = "whose mean loss has another weight on each"
    batch = NET.batches(2)[0]
    batch = Batch(batch.x, np.abs(batch.y))
    sequence_laws.refuses(SequenceParallel, NET.build, words, batch, loss)


# Bugs

SERIAL, WHOLE = "of its scale on rank", "of rank . is off by"

BUGS = [
    Bug("a total over rows is taken for one over tokens", "PartsOfRows.check", "self.done = True",
        "self.done = True\n    return", totals_of_rows_are_refused, "nobody says"),
    Bug("a mask of rows that were joined is cut", "ColumnsMask.keep", "if shape[0] != self.rows:",
        "if False:", flat_masks_are_refused, "not refused"),
    Bug("the partner in zig-zag is off by one", "token_order.columns_of", "parts[-1 - r]", "parts[-2 - r]",
        tokens_are_on_one_rank, "tokens are shared as|IndexError"),
    Bug("the plain order is called zig-zag", "token_order.columns_of", 'if order == "contiguous":',
        "if order in ORDERS:", zigzag_is_balanced, "ranks see"),
    Bug("zig-zag has neighboring parts", "token_order.columns_of",
        "columns[parts[r]], columns[parts[-1 - r]]", "columns[parts[2 * r]], columns[parts[2 * r + 1]]",
        zigzag_is_balanced, "ranks see"),
    Bug("the gradients stay one hop from home", "Ring.backward",
        "home if passed is None else home + passed()", "home", rings_are_whole, f"d[kv] {WHOLE}"),
    Bug("the gradients of the ranks before are dropped", "Ring.backward",
        "d if passed is None else d + passed()", "d + 0 * d if passed is None else d + 0 * passed()",
        rings_are_whole, f"d[kv] {WHOLE}"),
    Bug("the mask is that of the rank ahead", "Ring.mask", "(rank - t)", "(rank + t)", rings_are_whole,
        WHOLE),
    Bug("a step overwrites the gradient of the queries", "Ring.backward", "dq += to_q", "dq = to_q",
        rings_are_whole, f"dq {WHOLE}"),
    Bug("a block that nobody sees is not passed on", "Ring.forward",
        "if t < p - 1 else None", "if t < p - 1 and not self.mask(t).allows_none() else None",
        rings_are_whole, "wait|deadlock|sent|off by"),
    Bug("one's own gradients go round", "Ring.backward", "if t == 0:", "if t < 0:", rings_are_whole, "sent"),
    Bug("the next block is sent after the tile", "Ring.forward",
        "finish = self.pass_on(kv, Tag.KEYS) if t < p - 1 else None",
        "finish = (lambda: self.pass_on(kv, Tag.KEYS)()) if t < p - 1 else None",
        the_link_is_hidden, r"\(\d"),
    Bug("gradients wait for their hop", "Ring.backward",
        "passed = self.pass_on(d if passed is None else d + passed(), Tag.KEYS_GRADIENT)",
        "arrived = self.pass_on(d if passed is None else d + passed(), Tag.KEYS_GRADIENT)()\n"
        "            passed = lambda arrived=arrived: arrived",
        the_link_is_hidden_in_backward, r"\(\d"),
    Bug("merged values keep their scales", "tiles.merge", "o * weight + other * other_weight", "o + other",
        rings_are_whole, f"value {WHOLE}"),
    Bug("rows without keys are no numbers", "tiles.merge", "whole = finite(both)", "whole = both",
        rings_are_whole, "no numbers"),
    Bug("backward forgets the softmax's divisor", "tiles.gradients_of_block", " - delta[..., None]", "",
        readable_rings_are_whole, f"d[qk] {WHOLE}"),
    Bug("the slide leaves the last hop out", "naive_ring_attention", "if p > 1:", "if p < 1:",
        the_slide_is_whole, f"d[kv] {WHOLE}|sent"),
    Bug("heads are shared as tokens are", "ulysses_attention", "to_axis=TOKENS)",
        "to_axis=TOKENS, sizes=[len(own) for own in columns])", heads_are_whole, "parts|off by|sent|sizes"),
    Bug("queries come before the exchange", "ulysses_attention", "to_axis=HEADS, sizes=lengths",
        "to_axis=HEADS, sizes=[o.shape[HEADS]] * comm.size", heads_are_whole,
        "parts|off by|sent|sizes|shape"),
    Bug("the order of heads is that of arrival", "differentiable.all_to_all", "return concatenate(xs, joint)",
        "return concatenate([*xs[comm.rank :], *xs[: comm.rank]], joint)", heads_are_whole, "off by|axis"),
    Bug("places are those of the rank", "SplitTokens.places", "self.own if", "np.arange(shape[1]) if",
        training_is_serial, SERIAL),
    Bug("masks are drawn for the rank's tokens", "ColumnsMask.keep",
        "self.tokens.local_part(self.whole.keep((shape[0], self.tokens.length, *shape[2:]), p))",
        "self.whole.keep(shape, p)", whole_masks_are_drawn, "assert|tolist"),
    Bug("masks are those of the first columns", "SplitTokens.local_part", "x[:, self.own]",
        "x[:, : len(self.own)]", training_is_serial, SERIAL),
    Bug("a part that runs again draws masks of whole rows", "ForwardPass.copy", '"tokens": self.tokens',
        '"tokens": None', segments_run_again_alike, f"{SERIAL}|wait|shape"),
    Bug("a pass without documents has no tokens", "AttentionCore.forward",
        "Tokens() if tokens is None else tokens", "tokens or Tokens()", training_is_serial, SERIAL),
    Bug("the divisor of a loss is that of the part", "PartsOfRows.for_parts_of",
        "PartOfMean(self.loss if self.done else self, self.divisor(y) / len(y))", "self.loss.for_parts_of(y)",
        losses_are_of_tokens, SERIAL),
    Bug("a rank's loss counts by its tokens", "SequenceParallel.loss_weight", "return 1.0",
        "return mine.x.shape[1] / batch.x.shape[1]", training_is_serial, SERIAL),
    Bug("a mean over the rank's tokens is taken", "SequenceParallel.loss_by_parts",
        "if not isinstance(loss_fn, WeightedMean):",
        "if not isinstance(loss_fn, WeightedMean):\n        return loss_fn\n    if not loss_fn:",
        means_of_parts_are_refused, "nobody says"),
    Bug("groups of the data axis have all tokens", "Grid.along", "line[axis] = 0",
        "line[axis] = 0\n    line[2] = 0", stacks_train_like_serial, f"{SERIAL}|wait|Error"),
    Bug("documents stand in the order of ranks", "SplitTokens.all_gather", "return whole",
        "return xp.concatenate(parts, axis=1)", documents_of_a_keyword_are_apart, SERIAL),
    Bug("documents of a keyword are forgotten", "SplitTokens.self_attention",
        "documents = self.all_gather(Tensor(documents).data)", "documents = self.document",
        documents_of_a_keyword_are_apart, SERIAL),
    Bug("the shares of experts are those of the rank's tokens", "routing.route",
        "of_rows[:, :, 0]]", "experts[:, :, 0]]", experts_have_places_for_rows, SERIAL),
    Bug("the penalty of experts is that of all tokens on each rank", "routing.route",
        "np.maximum(lengths, 1)[:, None]\n", "np.maximum(tokens.local_part(counted).sum(1), 1)[:, None]\n",
        experts_have_places_for_rows, SERIAL),
    Bug("documents of the batch are forgotten", "SplitTokens.self_attention",
        "documents = self.document", "documents = None", documents_are_apart, SERIAL),
    Bug("a forward of one's own inherits what another does", "Module.__init_subclass__",
        'if "forward" in cls.__dict__ or "__call__" in cls.__dict__:', 'if "token_wise" in cls.__dict__:',
        mixed_tokens_are_refused, "nobody says"),
]  # fmt: skip
