"""Bugs of elastic data parallelism: without a death or a join nearly all of them do nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from backends.comm.collectives import ring_allreduce
from backends.data_parallel.elastic import Elastic
from tests.backends.data_parallel import elastic_laws
from tests.backends.data_parallel.elastic_laws import Faults
from tests.bugs.bug import Bug

# Laws: a rank dies in some step, before another of its communications each time; then ranks join.


def for_some_faults(law: Callable[..., None], **settings: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for left in range(45, 100, 11):
            law(Elastic, Faults(4, {1: left}, seed=left), **settings)
            law(Elastic, Faults(4, {0: left, 3: left + 9}, [2, 2, 3], seed=left), **settings)
        law(Elastic, Faults(3, {}, [2]), **settings)


def survivors_and_joiners_train_like_serial() -> None:
    for_some_faults(elastic_laws.all_that_live_train_like_serial)


def all_learn_of_a_death() -> None:
    """In a ring each rank needs only the one before it."""
    for left in range(45, 100, 5):
        ring = partial(Elastic, allreduce=ring_allreduce)
        elastic_laws.all_that_live_train_like_serial(ring, Faults(4, {1: left}, seed=left))


def every_sample_counts_once() -> None:
    for_some_faults(elastic_laws.every_sample_counts_once)


def a_repeated_step_is_the_first_attempt_of_others() -> None:
    for_some_faults(elastic_laws.is_data_parallel_on_the_ranks_of_each_step)


def gradients_of_steps_add_up() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for left in range(35, 70, 3):
            elastic_laws.gradients_add_up(Elastic, Faults(3, {1: left}, seed=left))


def links_are_measured_by_all_that_live() -> None:
    for victim, left in ((0, 49), (1, 25)):
        elastic_laws.links_are_measured_by_all_that_live(Elastic, victim, left)


def an_agreement_is_the_same_on_all_that_live() -> None:
    for left in range(8):
        elastic_laws.agrees(seed=left, left=left, other=left // 2)


# Bugs

DIFFERENT = "Not equal to tolerance|Arrays are not equal"
STUCK = "no rank can go on"

BUGS = [
    Bug("only those who wait for the dead rank learn of its death", "Recoverable.completes",
        "        self.revoke()\n        return", "        return", all_learn_of_a_death, STUCK),
    Bug("a rank that has its gradients applies a step that others repeat", "Recoverable.completes",
        "    return self.agree(True)", "    return True", survivors_and_joiners_train_like_serial,
        f"{STUCK}|{DIFFERENT}|another batch"),
    Bug("the agreement is taken before the gradients are summed", "Elastic.step",
        "while not self.team.completes(attempt):",
        "while not self.team.completes(lambda: None) or attempt():", survivors_and_joiners_train_like_serial,
        f"{STUCK}|{DIFFERENT}|died|revoked"),
    Bug("the shares stay those of the ranks before the death", "SynchronousDataParallel.shard",
        "shares(len(batch), self.size)[self.rank]",
        "shares(len(batch), self.size + len(vars(self)['deaths']))[self.rank]", every_sample_counts_once,
        "its batch has"),
    Bug("the ranks that were there share the batch, and a joiner takes a share again",
        "SynchronousDataParallel.shard", "shares(len(batch), self.size)[self.rank]",
        "(shares(len(batch), self.size - len(vars(self)['arrivals']) or 1) * 9)[self.rank]",
        every_sample_counts_once, "its batch has"),
    Bug("the loss is weighted by the number of ranks that were started", "Strategy.loss_weight",
        "return len(mine) / len(batch)",
        "return bool(len(mine)) / (len(vars(self)['deaths']) + self.size if 'deaths' in vars(self) else 1)",
        survivors_and_joiners_train_like_serial, DIFFERENT),
    Bug("a joiner has no momentum", "recv_state",
        "    Strategy().state.set_optimizer_values(model, optimizer, values[OPTIMIZER])\n", "",
        survivors_and_joiners_train_like_serial, DIFFERENT),
    Bug("a joiner begins with the first step", "recv_state", '    vars(history).update(facts["history"])\n',
        "", survivors_and_joiners_train_like_serial, f"{DIFFERENT}|losses|{STUCK}|another batch"),
    Bug("a joiner draws other masks than the rank that sent it the state", "Elastic.step",
        "number = self.step_number if self.history is None else self.steps", "number = self.step_number",
        a_repeated_step_is_the_first_attempt_of_others, f"{DIFFERENT}|losses", thorough=True),
    Bug("a joiner has the parameters that it was built with", "recv_state",
        '    model.load_state_dict(values[MODEL][""])\n', "", survivors_and_joiners_train_like_serial,
        DIFFERENT),
    Bug("the statistics count an interrupted step twice", "snapshot",
        "            getattr(owner, attribute)[...] = value\n", "            pass\n",
        a_repeated_step_is_the_first_attempt_of_others, DIFFERENT),
    Bug("a repeated step draws new masks", "Elastic.step", "        self.count_steps_from(number)\n", "",
        a_repeated_step_is_the_first_attempt_of_others, f"{DIFFERENT}|losses"),
    Bug("a repeated step adds to the gradients of the interrupted one", "snapshot",
        "                parameter.grad = None\n", "                pass\n",
        survivors_and_joiners_train_like_serial, DIFFERENT),
    Bug("a repeated step forgets the gradients of the steps before", "Elastic.step",
        "    with self.state.accumulate(model):  # which the attempts do not see\n", "    if self.trains:\n",
        gradients_of_steps_add_up, DIFFERENT),
    Bug("spares wait for ever at the end", "Elastic.finalize", "    self.grow(END)\n", "    pass\n",
        survivors_and_joiners_train_like_serial, f"{STUCK}|ranks .* are missing|every rank that held"),
    Bug("links are measured by those alone whose measurement a death interrupted", "Elastic.place",
        "        self.declaration.set_chosen(self, chosen)\n", "", links_are_measured_by_all_that_live,
        STUCK),
    Bug("an agreement is decided when the first ranks have come", "RecoverableThreads.decide",
        "if decision.alive is None and all(", "if decision.alive is None and any(",
        an_agreement_is_the_same_on_all_that_live, "answers differ|no rank can go on"),
]  # fmt: skip
