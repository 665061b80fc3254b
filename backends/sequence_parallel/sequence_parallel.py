"""Every rank has the whole model and some tokens of each row; attention goes over all ranks.

Lecture section: sequence parallelism. Lesson: 17_sequences. The ranks' losses are terms of one loss and
their gradients add up, as in data parallelism, from which it derives; what is shared is a sample.
``ring.py`` and ``ulysses.py`` have the two forms of attention, ``split_tokens.py`` has what layers ask.
"""

from __future__ import annotations

from minigrad.data import Batch
from minigrad.lookup import check_choice
from minigrad.module import Module
from minigrad.strategy import Strategy
from minigrad.tokens import Tokens
from minigrad.weighted_mean import WeightedMean
from minigrad.work import Loss

from ..comm.collectives import Allreduce, allreduce
from ..comm.communicator import Communicator
from ..data_parallel.data_parallel import DataParallel
from .parts_of_rows import PartsOfRows
from .split_tokens import FORMS, SplitTokens
from .token_order import ORDERS, columns_of


class SequenceParallel(DataParallel):
    """Ranks share the tokens of x (B, S, ...) and their labels y (B, S); trains like ``Serial``.

    ``form`` is "ring", for any number of ranks, or "ulysses", an all-to-all over heads, where at most as many
    ranks as heads have work. ``order`` is that of ``columns_of``: by default "zigzag" for a ring, where all
    ranks then have as much work under a causal mask, and "contiguous" for ulysses, which knows no other. Any
    number of tokens may be shared, fewer than there are ranks too. A model's layers act on each token alone,
    or ask the tokens of the pass, as attention, positions and dropout do (``token_wise``).
    """

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        form: str = "ring",
        order: str | None = None,
        micro_batches: int = 1,
    ):
        super().__init__(comm, allreduce, micro_batches=micro_batches)
        check_choice("form", form, tuple(FORMS))
        if form == "ulysses" and order not in (None, "contiguous"):
            raise ValueError(
                "an all-to-all over heads brings all tokens together, so there is nothing to balance; "
                'leave order out, or take form="ring"'
            )
        self.form, self.order = form, order or ("zigzag" if form == "ring" else "contiguous")
        check_choice("order", self.order, ORDERS)

    parts_of_rows: PartsOfRows | None = None  # of the loss that it trains with

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters of rank 0; ValueError for layers that mix tokens."""
        if self.size > 1:
            refuse_mixed_tokens(model)
        return super().place(model)

    def shard(self, batch: Batch) -> Batch:
        """All rows, of which it takes this rank's columns; raises ValueError for targets without them."""
        x, y = batch.x, batch.y
        if x.ndim < 2 or x.shape[:2] != y.shape[:2]:
            raise ValueError(
                f"--sequence shares tokens x (B, S, ...) and their labels y (B, S), got {x.shape} and "
                f"{y.shape}; a label of a whole row belongs to no rank: repeat it for each token, with an "
                "ignored one, such as -1, where it does not count"
            )
        tokens = Tokens() if batch.tokens is None else batch.tokens
        columns = columns_of(x.shape[1], self.size, self.order)
        own = columns[self.rank]
        split = SplitTokens(*tokens.arrays(), comm=self.comm, columns=columns, form=self.form)
        return Batch(x[:, own], y[:, own], batch.places, batch.is_part or self.size > 1, split)

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """1: a rank's loss has the divisor of all tokens."""
        return 1.0

    def loss_by_parts(self, loss_fn: Loss) -> Loss:
        """``loss_fn`` with the divisor of whole rows; ValueError where it has none."""
        if self.size == 1:
            return loss_fn
        if not isinstance(loss_fn, WeightedMean):
            raise ValueError(
                "--sequence gives each rank some tokens, whose mean loss has another weight on each; take "
                "nn.CrossEntropyLoss(class_axis=-1), or WeightedMean(total, divisor) of "
                "minigrad.weighted_mean"
            )
        if self.parts_of_rows is None or self.parts_of_rows.loss is not loss_fn:
            self.parts_of_rows = PartsOfRows(loss_fn)
        return self.parts_of_rows

    def refusal(self, inner: Strategy) -> str | None:
        if isinstance(inner, SequenceParallel):
            return "tokens can be shared once; give one SequenceParallel all these ranks"
        if isinstance(inner, DataParallel):
            return f"whole rows are shared before their tokens; put {type(inner).__name__} first"
        return super().refusal(inner)


def refuse_mixed_tokens(model: Module) -> None:
    """Raise ValueError for a layer that may mix the tokens of a row, of which a rank has only some."""
    for layer in model.modules():
        if not layer.token_wise or layer.unchanged_type() is None:
            name = type(layer).__name__
            raise ValueError(
                f"{name} may mix the tokens of a row, which --sequence shares among ranks; if it acts on "
                f"each token (B, S, ...) alone, say so: token_wise = True in class {name}"
            )
