"""Ranks share each batch, and each mixture's experts: every token travels to the ranks of its experts.

Lecture section: data and model parallelism together. Lesson: 18_experts. ``naive.py`` sends all tokens to
all ranks instead.
"""

from __future__ import annotations

from dataclasses import replace

from minigrad.lookup import check_choice
from minigrad.module import Module
from minigrad.tensor import Parameter, Tensor

from ..comm.collectives import Allreduce, allreduce
from ..comm.communicator import Communicator
from ..data_parallel.data_parallel import DataParallel
from ..data_parallel.step_summary import StepSummary
from .exchange import exchange
from .own_experts import ExpertsOfRanks, OwnExperts, refuse_shared


class ExpertParallel(DataParallel):
    """Data parallelism whose ranks hold different experts; trains like ``Serial`` for any shares of both.

    Rank r has the r-th share of the experts of each mixture, perhaps none, and whole copies of all other
    layers. In forward every mixture is four all-to-alls of this micro-batch's tokens, two there and back and
    two in backward, and a small one of counts. The gradients of experts are of all ranks' tokens already;
    others are summed as in ``DataParallel``.

    With ``capacity_per="sample"`` each row of tokens brings places for itself, wherever it is. With "rank",
    as in most systems, all tokens of a rank's micro-batch share their places: that is another mixture, which
    a serial run has whose micro-batches are the ranks'.
    """

    state_class = ExpertsOfRanks

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
        capacity_per: str = "sample",
    ):
        super().__init__(comm, allreduce, micro_batches=micro_batches, batch_norm=batch_norm)
        check_choice("capacity_per", capacity_per, ["sample", "rank"])
        self.capacity_per = capacity_per
        equal = capacity_per == "sample" or comm.size == 1
        self.traits = replace(self.traits, communicates_in_forward=True, equals_serial=equal)

    def place(self, model: Module) -> Module:
        """The model with this rank's experts; raises ValueError for one that was placed before."""
        refuse_shared(model)
        return super().place(model)

    def use_ranks(self, model: Module) -> None:
        inner = tuple(strategy.state for strategy in self.inner)
        in_one_row = self.capacity_per == "rank"
        self.experts = OwnExperts(model, self.comm, exchange, inner=inner, in_one_row=in_one_row)
        super().use_ranks(model)
        of_ranks = self.batch_norm == "ranks"
        others = SummaryOfOthers(model, self.rank, self.size, self.experts.parameters, statistics=of_ranks)
        self.step_summary = others

    def on_grad(self, parameter: Tensor) -> bool:
        return parameter in self.experts.parameters


class SummaryOfOthers(StepSummary):
    """What ranks exchange with the gradients of all parameters but ``experts``, which they do not share."""

    def __init__(
        self, model: Module, rank: int, size: int, experts: set[Parameter], *, statistics: bool = True
    ):
        super().__init__(model, rank, size, statistics=statistics)
        self.parameters = [parameter for parameter in self.parameters if parameter not in experts]
        if not self.parameters:
            raise ValueError(
                "this rank's layers have nothing to train but experts, and ranks sum their losses with other "
                "gradients; train a gate, too"
            )
