"""Bugs of optimizers: groups of parameters with settings of their own, AMSGrad, steps up the gradient."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.comm.communicator import Communicator
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import trains_like_serial
from backends.pipeline import Pipeline
from minigrad import Parameter, nn, ops, optim
from minigrad.optim import Optimizer
from tests.backends import stack_laws
from tests.backends.data_parallel.averaging_laws import equals_the_textbook
from tests.backends.data_parallel.zero import sharded_laws
from tests.bugs.bug import Bug
from tests.minigrad.optim_laws import (
    CASES,
    a_rate_scales_all_groups,
    follows_recurrence,
    groups_follow_the_recurrence,
    lars_of_all,
    of_elements,
    sgd,
)
from tests.nets import batches_of, grouped, mlp

SERIAL = "of its scale on rank"

# Laws


def groups_have_their_settings() -> None:
    settings = [{"lr": 0.1, "momentum": 0.5}, {"weight_decay": 0.3}, {"lr": 0.4, "momentum": 0.9}, {}]
    for limit in (None, 0.7):
        groups_follow_the_recurrence(optim.SGD, of_elements(sgd), settings, limit, 0)


def groups_of_lars_have_their_settings() -> None:
    own = [{"weight_decay": 0.3}, {"trust": 0.5, "lr": 0.2}, {}]
    settings = [{"lr": 0.5, "momentum": 0.5, "weight_decay": 0.1, "trust": 0.1}, *own]
    groups_follow_the_recurrence(optim.LARS, lars_of_all, settings, None, 0)


def rates_of_groups_follow_the_schedule() -> None:
    a_rate_scales_all_groups(optim.HeavyBall, [1.0, 0.1], [0.5, 0.0, 0.2, 0.1], 0)


def only_matrices_decay() -> None:
    parameters = [Parameter(np.ones(shape)) for shape in ((), (3,), (2, 3), (2, 1, 1))]
    decays = {
        p: group["weight_decay"] for group in optim.decay_groups(parameters, 0.5) for p in group["params"]
    }
    assert [decays[p] for p in parameters] == [0, 0, 0.5, 0.5], f"they decay by {[*decays.values()]}"


def a_parameter_is_in_one_group() -> None:
    w = Parameter(np.ones(2))
    try:
        optim.SGD([{"params": [w]}, {"params": [w], "lr": 0.5}], 0.1)
    except ValueError:
        return
    raise AssertionError("it has two rates")


def shards_know_their_groups() -> None:
    for stage in (1, 3):
        sharded_laws.law(Sharded, 3, [5, 4], optimizer="groups", stage=stage)


def stages_and_split_layers_know_their_groups() -> None:
    stack_laws.law((2, 2, 2), {"1": "column", "3": "row"}, optimizer="groups")


def ranks_without_samples_have_the_state_of_groups() -> None:
    def make(parameters: list[Parameter]) -> Optimizer:
        matrices, others = optim.decay_groups(parameters, 0.1)
        return optim.SGD([matrices | {"momentum": 0.9}, others], 0.1)

    run_ranks(3, lambda comm: equals_the_textbook(partial(LocalSGD, period=1), comm, [2, 7], make, 1))


def a_stage_may_have_no_parameters() -> None:
    def build(rng: np.random.Generator) -> nn.Module:
        return nn.Sequential(*mlp(rng).layers, nn.Tanh())

    def work(comm: Communicator) -> None:
        strategy = partial(Pipeline, bounds=(0, 8, 9))
        batches = batches_of([4, 4])
        trains_like_serial(strategy, comm, build, ops.cross_entropy, batches, optimizer=grouped)

    run_ranks(2, work)


def follows_at_fixed_settings(name: str, gradients: Sequence[float], **settings: Any) -> None:
    make, recurrence, _ = CASES[name]
    settings = {"lr": 0.1, "weight_decay": 0.2} | settings
    arrays = [np.full(2, g) for g in gradients]
    follows_recurrence(
        partial(make, **settings), lambda w, gs: recurrence(w, gs, **settings), np.ones(2), arrays
    )


def amsgrad_is_the_papers() -> None:
    adam = {"betas": (0.5, 0.9), "eps": 1e-3, "amsgrad": True}
    for name in ("Adam", "AdamW"):
        follows_at_fixed_settings(name, [2.0, 0.1, -0.1, 0.3], **adam)


def a_maximum_is_sought_upwards() -> None:
    follows_at_fixed_settings("plain", [2.0, -0.1], maximize=True)


BUGS = [
    Bug("a group has the settings of the whole optimizer", "Optimizer.group_of_each",
        "group_of.get(parameter, self)", "self", groups_have_their_settings, "Mismatched"),
    Bug("groups have one rate", "Optimizer.updates", "[group.lr for group in group_of]",
        "[self.lr for group in group_of]", groups_have_their_settings, "Mismatched"),
    Bug("groups have one rate where norms are needed", "Optimizer.rates",
        "[group.lr for group in self.group_of_each()]", "[self.lr] * len(self.parameters)",
        groups_have_their_settings, "Mismatched"),
    Bug("a group overrides nothing", "optimizer_of", "settings | own", "own | settings",
        groups_have_their_settings, "Mismatched|multiple values|missing"),
    Bug("the decay in a rate of LARS is the whole optimizer's", "LARS.rates",
        "group.trust, group.weight_decay", "group.trust, self.weight_decay",
        groups_of_lars_have_their_settings, "Mismatched"),
    Bug("a schedule moves no group", "Optimizer.updates",
        "group.lr = group.rate = group.ratio * self.lr", "pass",
        rates_of_groups_follow_the_schedule, "Mismatched"),
    Bug("the ratio of a group is lost", "Optimizer.updates", "group.ratio * self.lr", "self.lr",
        rates_of_groups_follow_the_schedule, "Mismatched"),
    Bug("biases decay", "decay_groups", "p.ndim > 1", "p.ndim > 0", only_matrices_decay, "decay by"),
    Bug("nothing decays but vectors", "decay_groups", "weight_decay * decays", "weight_decay * (not decays)",
        only_matrices_decay, "decay by"),
    Bug("a parameter is in two groups", "Optimizer.__init__", "len(set(in_groups)) < len(in_groups)", "False",
        a_parameter_is_in_one_group, "two rates"),
    Bug("shards are in groups as they lie", "Sharded.update", "enumerate(optimizer.parameters)",
        "enumerate(model.parameters())", shards_know_their_groups, SERIAL),
    Bug("a joint norm leaves parameters out", "Optimizer.clip", "squares[:, 1].sum()",
        "squares[:2, 1].sum()", stages_and_split_layers_know_their_groups, SERIAL),
    Bug("a state of its own is completed by another group's settings", "complete_state",
        "group.update(w", "optimizer.update(w", ranks_without_samples_have_the_state_of_groups,
        "expected float64"),
    Bug("groups of a rank without parameters are none", "decay_groups",
        "isinstance(parameters, ParametersElsewhere)", "False", a_stage_may_have_no_parameters, "got none"),
    Bug("a rank without parameters has no groups", "Optimizer.__init__", "if elsewhere else []",
        "if False else []",
        a_stage_may_have_no_parameters, "got none"),
    Bug("AMSGrad forgets its maximum", "Adam.update", "xp.maximum(state[\"max_s\"], s, out=state[\"max_s\"])",
        "s", amsgrad_is_the_papers, "by the book"),
    Bug("a maximum of corrected means", "Adam.update", "s = xp.maximum(state[\"max_s\"], s, ",
        "s = xp.maximum(state[\"max_s\"], s / correction, ", amsgrad_is_the_papers, "by the book"),
    Bug("a step goes down whatever is asked", "Optimizer.apply", "g=-update.g", "g=update.g",
        a_maximum_is_sought_upwards, "by the book"),
]  # fmt: skip
