"""Each rank trains its own model; the models are averaged at the end, every few updates, or through a center.

Lecture section: ParallelSGD. Lesson: 09_model_averaging. It takes far fewer messages than one per step.
"""

from __future__ import annotations

import math

from minigrad.data import Batch, shares
from minigrad.device import Array, array_module
from minigrad.lookup import at_least_one
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.strategy import Strategy
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Work, forward_backward_pass

from ..comm.collectives import Allreduce, allreduce
from ..comm.communicator import Communicator
from ..consistency import (
    broadcast_model,
    check_same_batch,
    check_same_on_all_ranks,
    load_mean,
    refuse_half,
    running_statistics,
    trained_parameters,
    weighted,
)
from .allreduce_choice import AllreduceChoice, prepare_allreduce
from .flat import FlatLayout


class ParallelSGD(Strategy):
    """Independent training, and one average at the very end (Zinkevich, Weimer, Smola and Li 2010).

    Each rank updates its own model from its own share. After ``place`` one all-reduce in the whole run: 1 +
    parameters + running statistics elements (and in the second step a number from each rank, by which they
    see that they have the same batch). The strategies that derive from it combine the models every ``period``
    updates.

    By mathematics not equal to ``Serial``, except on one rank, which does the same to the last bit. For
    networks the result is far from it: models that diverge for epochs have a poor mean, and more ranks make
    it worse (``benchmarks/README.md`` has figures; ``LocalSGD`` stays close). Loss and gradients of a step
    are means over this rank's share (0 where that is empty). A checkpoint holds the losses of rank 0, from
    which all ranks resume.

    With ``same_start`` all ranks start with the parameters of rank 0, otherwise each with its own, which is
    worth little: networks that began differently have their hidden neurons in different orders. With
    ``local_batches`` every rank passes its own samples and trains on all of them, otherwise all ranks pass
    the whole batch.
    """

    own_state = ("updates", "samples")
    declaration = AllreduceChoice()
    traits = Traits(equals_serial=False, models_differ=True, same_layout_only=True, outermost_only=True)
    period: int | None = None  # None: one exchange, at the end

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        same_start: bool = True,
        local_batches: bool = False,
        micro_batches: int = 1,
    ):
        self.comm, self.allreduce, self.same_start = comm, allreduce, same_start
        self.local_batches = local_batches
        self.rank, self.size = comm.rank, comm.size
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.updates, self.samples = 0, 0  # since the last exchange; of this rank since the last average

    def place(self, model: Module) -> Module:
        """The whole model. Raises ValueError where ranks built different ones or chose different settings.

        It also refuses float16 parameters: their mean would not be that of an optimizer's float32 copies.
        """
        refuse_half(model, self)
        check_same_on_all_ranks(self.comm, model, self.declaration.settings(self))
        if self.same_start:
            broadcast_model(self.comm, model)
        prepare_allreduce(self.allreduce, self.comm)
        return self.hold(model)

    def check_batch(self, batch: Batch) -> None:
        if not self.local_batches:
            check_same_batch(self.comm, batch, "; or let each pass its own, with local_batches=True")

    def shard(self, batch: Batch) -> Batch:
        """The rank-th of ``size`` consecutive shares, whose sizes differ by at most one; or all, if local."""
        return batch if self.local_batches else batch[shares(len(batch), self.size)[self.rank]]

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """1: the loss is the mean over this rank's share."""
        return 1.0

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        self.samples += len(work.batch)
        return super().forward_backward(work, inner)

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """This rank's own update; every ``period``-th is followed by an exchange."""
        super().update(model, optimizer)
        self.updates += 1
        if self.updates == self.period:
            self.combine(model)

    def finalize(self, model: Module) -> None:
        """A last exchange, if there were updates since the previous one; then all have the same model."""
        if self.updates:
            self.combine(model)

    def combine(self, model: Module) -> None:
        if self.size > 1:
            self.exchange(model)
        self.updates = 0

    def exchange(self, model: Module) -> None:
        """Replace the parameters and running statistics by their mean over all ranks, in one all-reduce."""
        parameters = trained_parameters(model) if self.same_start else model.parameters()
        self.average([p.data for p in parameters], model)

    def average(self, arrays: list[Array], model: Module) -> None:
        """Replace ``arrays`` and the running statistics by their mean, weighted by the ranks' samples."""
        arrays = [*arrays, *running_statistics(model)]
        load_mean(arrays, self.allreduce(self.comm, weighted(arrays[0], arrays, float(self.samples))))
        self.samples = 0


class LocalSGD(ParallelSGD):
    """Parameters are averaged every ``period`` updates and at the end: ceil(updates / period) all-reduces.

    Each rank is weighted by its samples since the last average. With ``average_momentum`` the state of the
    optimizer is averaged in the same message. Equal to synchronous SGD for ``period`` 1 with plain SGD, or
    with averaged momentum; otherwise not equal to ``Serial`` (Stich 2019).
    """

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        period: int = 8,
        average_momentum: bool = True,
        same_start: bool = True,
        local_batches: bool = False,
        micro_batches: int = 1,
    ):
        super().__init__(
            comm, allreduce, same_start=same_start, local_batches=local_batches, micro_batches=micro_batches
        )
        self.period, self.average_momentum = at_least_one("period", period), average_momentum
        self.optimizer: Optimizer | None = None

    def update(self, model: Module, optimizer: Optimizer) -> None:
        if self.average_momentum and self.optimizer is not optimizer:
            self.optimizer = optimizer
            complete_state(optimizer)
        super().update(model, optimizer)

    def average(self, arrays: list[Array], model: Module) -> None:
        states = [] if self.optimizer is None else self.optimizer.state
        named = [(s, name) for s in states for name in sorted(s)]  # the same order on all ranks
        momenta = [s[name] for s, name in named if not isinstance(s[name], int | float)]
        numbers = [(s, name) for s, name in named if isinstance(s[name], int | float)]
        counts = array_module(arrays[0]).asarray([s[name] for s, name in numbers], arrays[0].dtype)
        super().average([*arrays, *momenta, counts], model)  # counts: such as Adam's number of steps
        for (state, name), mean in zip(numbers, counts.tolist(), strict=True):
            state[name] = round(mean) if isinstance(state[name], int) else mean


class DiLoCo(LocalSGD):
    """Local SGD whose averaged change is the gradient of an outer optimizer (Douillard et al. 2023).

    Every ``period`` updates, with x the common model after the last average and D = x - mean of the models:
    u <- outer_momentum u + D, and x <- x - outer_rate (D + outer_momentum u), which is Nesterov momentum.
    All ranks go on from x. The all-reduces are those of ``LocalSGD``, which this is to the last bit for
    outer rate 1 and outer momentum 0. The paper's outer momentum is 0.9, with 500 steps of Adam between two
    averages; with 8 steps of SGD with momentum it lets training diverge, so the default is 0.5. Holds two
    more copies of the parameters. Raises ValueError for a negative outer rate, and an outer momentum that is
    not in [0, 1).
    """

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        period: int = 8,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.5,
        average_momentum: bool = False,
        local_batches: bool = False,
        micro_batches: int = 1,
    ):
        super().__init__(
            comm,
            allreduce,
            period=period,
            average_momentum=average_momentum,
            local_batches=local_batches,
            micro_batches=micro_batches,
        )
        if not 0 <= outer_rate < math.inf:
            raise ValueError(f"outer_rate is a learning rate, 0 or more, got {outer_rate}")
        if not 0 <= outer_momentum < 1:
            raise ValueError(f"outer_momentum is at least 0 and below 1, got {outer_momentum}")
        self.outer_rate, self.outer_momentum = outer_rate, outer_momentum

    own_state = (*LocalSGD.own_state, "common", "velocity")

    def place(self, model: Module) -> Module:
        model = super().place(model)
        self.layout = FlatLayout(trained_parameters(model))
        self.common, self.velocity = self.layout.weights(), self.layout.zeros()
        return model

    def exchange(self, model: Module) -> None:
        """The mean of all ranks' models, in one all-reduce; then the outer step, the same on every rank."""
        super().exchange(model)
        mean = self.layout.weights()
        change = self.common - mean
        self.velocity = self.outer_momentum * self.velocity + change
        # x - rate (D + momentum u), from the mean: so that nothing is rounded for rate 1 and momentum 0
        self.common = mean - (
            (self.outer_rate - 1) * change + self.outer_rate * self.outer_momentum * self.velocity
        )
        self.layout.load(self.common)


class ElasticAveraging(ParallelSGD):
    """A spring pulls each model towards a common center: EASGD (Zhang, Choromanska and LeCun 2015).

    Every ``period`` updates d_i = alpha (x_i - c), x_i <- x_i - d_i and c <- c + sum of the d_i, in the form
    with one all-reduce, where every rank holds the center c; the sum of all x_i and c does not change.
    ``alpha`` is 0.9 / ranks by default; 0 lets the ranks train independently. After ``finalize`` the model is
    the center.
    """

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        alpha: float | None = None,
        period: int = 8,
        local_batches: bool = False,
        micro_batches: int = 1,
    ):
        super().__init__(comm, allreduce, local_batches=local_batches, micro_batches=micro_batches)
        self.period = at_least_one("period", period)
        self.alpha = 0.9 / comm.size if alpha is None else alpha
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is a share of the way to the center, 0 to 1, got {alpha}")

    own_state = (*ParallelSGD.own_state, "center")

    def place(self, model: Module) -> Module:
        model = super().place(model)
        self.layout = FlatLayout(trained_parameters(model))
        self.center = self.layout.weights()
        return model

    def exchange(self, model: Module) -> None:
        """Pull this rank's model and the center towards each other, in one all-reduce of the parameters."""
        pull = self.alpha * (self.layout.weights() - self.center)
        for parameter, part in zip(self.layout.parameters, self.layout.views(pull), strict=True):
            parameter.data -= part
        self.center += self.allreduce(self.comm, pull)

    def finalize(self, model: Module) -> None:
        """A last exchange, as above; then the model becomes the center, with averaged statistics."""
        super().finalize(model)
        if self.size > 1:
            self.layout.load(self.center)
            if running_statistics(model):
                self.average([], model)


def complete_state(optimizer: Optimizer) -> None:
    """Give the optimizer a state of zeros also for parameters that this rank's samples have not reached.

    All ranks need the same message layout. A trial update of a copy shows which state this optimizer has.
    """
    groups = optimizer.group_of_each()
    for parameter, state, group in zip(optimizer.parameters, optimizer.state, groups, strict=False):
        if parameter.requires_grad and not state:
            xp, w = array_module(parameter.data), parameter.data.copy()
            group.update(w, xp.ones_like(w), state, *group.coefficients(state, group.lr))
            for name, value in state.items():
                if isinstance(value, int):
                    state[name] = 0
                elif not isinstance(value, float):
                    value[...] = 0
