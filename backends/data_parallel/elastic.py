"""Ranks may die and others may join while they train: the training goes on, and no step is lost.

Lecture section: what a cluster would do. Lesson: 15_scale. Every rank holds the whole model, so the death of
one loses no state, only its share of the step. The order of the samples depends on the seed and the epoch
alone, so the training equals the serial run for any ranks in any step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.data import Batch
from minigrad.declaration import Flag
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.own_state import generator_states, set_generator_states
from minigrad.strategy import Strategy
from minigrad.tensor import Parameter
from minigrad.train import History
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Loss, forward_backward_pass

from ..comm.collectives import Allreduce, allgather, allreduce
from ..comm.communicator import Communicator
from ..comm.recoverable import Recoverable
from .allreduce_choice import AllreduceChoice
from .data_parallel import DataParallel
from .state_transfer import recv_state, send_state

END = 1 << 30  # the number of ranks that should train after the last step: all receive the trained model


class ElasticDeclaration(AllreduceChoice):
    """A run reports the ranks that died and joined, by the first of those that are left."""

    def check_options(self, ranks: int, options: Mapping[str, Any]) -> None:
        check_spares(ranks, options.get("spares", 0))

    def writes_report(self, backend: Elastic) -> bool:
        return backend.trains and backend.rank == 0

    def report(self, backend: Elastic, write: Callable[[], None]) -> None:
        """Where the rank that writes dies while it does, the next one writes."""
        while not backend.team.completes(write):
            backend.world.revoke()
            backend.regroup(END)

    def figures(self, backend: Elastic) -> dict[str, Any]:
        """The steps in which ranks died and joined."""
        return {
            "lost": {str(rank): {"steps": step} for rank, step in backend.deaths.items()},
            "arrivals": {str(rank): step for rank, step in backend.arrivals.items()},
        }

    def rows(self, backend: Elastic) -> dict[str, str]:
        changes = {"ranks that died": backend.deaths, "ranks that joined": backend.arrivals}
        texts = {n: ", ".join(f"{r} in step {s}" for r, s in those.items()) for n, those in changes.items()}
        return {name: text for name, text in texts.items() if text}


class Elastic(DataParallel):
    """Data parallelism whose ranks may die in any step; the others share out the samples anew and go on.

    A step is taken by all ranks of the ``team`` or by none: at its end they agree whether all have the
    gradients. Where a rank has died, the others shrink to the ranks that are alive and take the step again,
    and only then apply it. With ``spares`` the last ranks wait, idle, until they are needed; one that joins
    receives the whole state from a rank of the team. ``target(step)`` gives the number of ranks that a step
    should have, by default all but the spares; the team grows to it while ranks wait. At the end those that
    still wait receive the trained model.

    ``deaths`` and ``arrivals`` give, by a rank's number in the world, the step before which its death was
    noticed or it joined. Spares need a training loop that calls ``begin_training``, as ``fit`` does. Raises
    RuntimeError where the transport ends all ranks with one.
    """

    traits = Traits(resumable=False, recovers=True)  # a checkpoint is written by all ranks that were started
    declaration = ElasticDeclaration(
        {"spares": Flag(int, "number of ranks that wait until another one dies (default: 0)", "S")}
    )

    def __init__(
        self,
        comm: Communicator,
        allreduce: Allreduce = allreduce,
        *,
        spares: int = 0,
        micro_batches: int = 1,
        batch_norm: str = "ranks",
        target: Callable[[int], int] | None = None,
    ):
        check_spares(comm.size, spares)
        super().__init__(comm, allreduce, micro_batches=micro_batches, batch_norm=batch_norm)
        self.spares, full = spares, comm.size - spares
        self.target = (lambda step: full) if target is None else target
        self.world = self.team = self.comm = comm.recoverable()  # ranks that are alive; those that train
        self.members = list(self.world.members)  # of the world, when the team was last formed
        self.trainers = list(range(self.world.size))  # the team's ranks in the world
        self.trains = True
        self.optimizer: Optimizer | None = None
        self.history: History | None = None
        self.deaths: dict[int, int] = {}
        self.arrivals: dict[int, int] = {}

    @property
    def steps(self) -> int:
        """The number of steps that have been taken."""
        return 0 if self.history is None else len(self.history.losses)

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters and state arrays of the first living rank, also on spares."""
        own, chosen = model.state_dict(), self.declaration.chosen(self)
        while not self.world.completes(lambda: DataParallel.place(self, model)):
            model.load_state_dict(own)
            # Only some ranks may have measured the links to the end.
            self.declaration.set_chosen(self, chosen)
            self.world = self.comm = self.world.shrink()
            self.rank, self.size = self.comm.rank, self.comm.size
        self.trains = self.world.rank < max(1, min(self.target(self.steps), self.world.size))
        if not self.form_team(0):
            self.regroup(0)
        return model

    def begin_training(self, model: Module, optimizer: Optimizer, history: History) -> None:
        """Let spares wait; one that joins then has the state and the history of the others."""
        self.optimizer, self.history = optimizer, history
        while not self.trains:
            self.world.wait_for_change(self.trainers)
            self.world.revoke()
            self.regroup(0)

    def step(
        self,
        model: Module,
        batch: Batch,
        loss_fn: Loss,
        inner: ForwardBackward = forward_backward_pass,
        *,
        loss_scale: float = 1.0,
    ) -> float:
        """A step of the team, taken again by those that are left if a rank dies; RuntimeError on a spare."""
        if not self.trains:
            raise RuntimeError(
                "this rank is a spare, which waits in backend.begin_training; call that before a step"
            )
        self.grow(self.target(self.steps))
        number = self.step_number if self.history is None else self.steps
        losses: list[float] = []

        def attempt() -> None:
            self.count_steps_from(number)
            losses.append(DataParallel.step(self, model, batch, loss_fn, inner, loss_scale=loss_scale))

        with self.state.accumulate(model):  # which the attempts do not see
            restore = snapshot(model)
            while not self.team.completes(attempt):
                restore()
                self.world.revoke()
                self.regroup(self.target(self.steps))
        return losses[-1]

    def finalize(self, model: Module) -> None:
        """Give the ranks that still wait the trained model, so that they end too."""
        self.grow(END)

    def close(self) -> None:
        super().close()
        self.world.close()

    def refusal(self, inner: Strategy) -> str | None:
        return (
            f"{type(self).__name__} repeats a step with the ranks that are left; where ranks share a model, "
            "a rank that dies takes its part of the model with it, so leave out the other axes of the grid"
        )

    # Which ranks train

    def grow(self, goal: int) -> None:
        """Let waiting ranks join until ``goal`` ranks train, or all; the whole team calls."""
        if self.size < min(goal, self.world.size):
            self.world.revoke()
            self.regroup(goal)

    def regroup(self, goal: int) -> None:
        """Form a team of the ranks that are alive; all of them call, also those that wait."""
        self.world = self.world.shrink()
        while not self.form_team(goal):
            self.world = self.world.shrink()

    def form_team(self, goal: int) -> bool:
        """Let ranks that wait join until ``goal`` ranks train; whether all are still alive.

        Raises RuntimeError where no rank that trains is alive.
        """
        formed: list[tuple[Plan, Recoverable]] = []

        def work() -> None:
            rows = allgather(self.world, np.array([self.trains, goal, self.steps]))
            plan = Plan.of(np.array(rows).tolist())
            self.transfer_state(plan)
            everyone = len(plan.trainers) == self.world.size
            team = self.world if everyone else self.world.split(int(self.world.rank in plan.trainers))
            formed.append((plan, team))

        if not self.world.completes(work):
            return False
        plan, self.team = formed[-1]
        self.trainers, self.trains = plan.trainers, self.world.rank in plan.trainers
        self.note_changes(plan)
        self.comm, self.rank, self.size = self.team, self.team.rank, self.team.size
        self.buckets, self.steps_of_model = [], 0  # a message has a place for each rank
        if self.model is not None:
            self.use_ranks(self.model)
        return True

    def transfer_state(self, plan: Plan) -> None:
        """Send the state from the first rank that has it to those that join."""
        is_holder = self.world.rank == plan.holder
        if not plan.joiners or not (is_holder or self.world.rank in plan.joiners):
            return
        if self.model is None or self.optimizer is None or self.history is None:
            raise RuntimeError("ranks can join once the training loop has called backend.begin_training")
        state = self.model, self.optimizer, self.history
        if not is_holder:
            recv_state(self.world, plan.holder, *state)
        for rank in plan.joiners if is_holder else ():
            send_state(self.world, rank, *state)

    def note_changes(self, plan: Plan) -> None:
        """Remember which ranks have died and joined; the first of the team says so."""
        dead = sorted(set(self.members) - set(self.world.members))
        joiners = [] if plan.is_end else [self.world.members[rank] for rank in plan.joiners]
        self.members = list(self.world.members)
        self.deaths |= dict.fromkeys(dead, plan.step)
        self.arrivals |= dict.fromkeys(joiners, plan.step)
        if self.world.rank == plan.trainers[0] and (dead or joiners):
            changes = [f"rank {rank} died" for rank in dead] + [f"rank {rank} joined" for rank in joiners]
            left = f"{len(plan.trainers)} {'rank trains' if len(plan.trainers) == 1 else 'ranks train'} on"
            warnings.warn(f"step {plan.step}: {', '.join(changes)}; {left}", stacklevel=2)


class Plan(NamedTuple):
    """The next team, by ranks of the world: those that train, and those of them that need the state.

    ``holder`` has it, after ``step`` steps; ``is_end`` says that these are all.
    """

    trainers: list[int]
    joiners: list[int]
    holder: int
    step: int
    is_end: bool

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Plan:
        """From each rank's row: whether it trains, the number of ranks that should, the steps taken.

        The row of the first rank that trains counts. Raises RuntimeError where none does.
        """
        trainers = [rank for rank, (trains, _, _) in enumerate(rows) if trains]
        if not trainers:
            raise RuntimeError(
                "every rank that held the model has died, and spares hold none; train again, with "
                "--checkpoint DIR to lose less"
            )
        _, goal, step = rows[trainers[0]]
        waiting = [rank for rank, (trains, _, _) in enumerate(rows) if not trains]
        joiners = waiting[: max(goal - len(trainers), 0)]
        return cls(sorted(trainers + joiners), joiners, trainers[0], step, goal == END)


def snapshot(model: Module) -> Callable[[], None]:
    """A function that undoes what an interrupted step changes: gradients, statistics, random generators."""
    arrays = [
        (owner, attribute, getattr(owner, attribute).copy())
        for _, owner, attribute in model.named_arrays()
        if not isinstance(getattr(owner, attribute), Parameter)
    ]
    states = generator_states(model)

    def restore() -> None:
        for owner, attribute, value in arrays:
            getattr(owner, attribute)[...] = value
        set_generator_states(model, states)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.grad = None

    return restore


def check_spares(ranks: int, spares: int) -> None:
    """Raise ValueError unless a rank is left that trains."""
    if not 0 <= spares < ranks:
        raise ValueError(
            f"of {ranks} ranks 0 to {ranks - 1} can be spares, got {spares}; take fewer or start more ranks"
        )
