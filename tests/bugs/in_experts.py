"""Bugs of mixtures of experts: routes, places, penalties, and what travels between their ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel.bucketed import Bucketed
from backends.expert_parallel import ExpertParallel
from backends.expert_parallel.exchange import exchange
from backends.grid import Grid
from backends.laws import trains_like_serial
from backends.pipeline import Pipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.routing import route
from minigrad.work import forward_backward_pass
from tests.backends.expert_parallel import expert_laws
from tests.backends.expert_parallel.expert_laws import Net
from tests.bugs.bug import Bug
from tests.minigrad import tokens_laws
from tests.minigrad.nn import experts_laws
from tests.minigrad.nn.experts_laws import Mixture

# Laws


def mixtures_are_loops() -> None:
    """With few and many places, ties, padding, and one choice or two."""
    for seed in range(3):
        for capacity in (0.5, 1.0, 10.0):
            for choices in (1, 2):
                mixture = Mixture(choices=choices, capacity=capacity, length=7, seed=seed)
                experts_laws.is_loops(mixture)
                experts_laws.is_loops(mixture._replace(ties=True))
                experts_laws.is_loops(mixture._replace(padding=3))


def second_runs_are_loops() -> None:
    experts_laws.is_loops(Mixture(length=7, capacity=0.5), again=True)


def places_are_those_of_decimals() -> None:
    routes = route(np.ones((1, 10, 3)), choices=3, capacity=0.1)
    assert routes.counts.tolist() == [1, 1, 1], f"places {routes.counts}"


def shared_experts_train_like_serial() -> None:
    expert_laws.trains(ExpertParallel, 2, expert_laws.TiedNet(), (3,))


def experts_used_elsewhere_are_refused() -> None:
    try:
        run_ranks(2, lambda comm: ExpertParallel(comm).place(expert_laws.LeakyNet(np.random.default_rng(0))))
    except ValueError as error:
        assert "is also a parameter of a mixture" in str(error), error
    else:
        raise AssertionError("it was not refused")


def penalties_are_terms_of_the_loss() -> None:
    for again in (False, True):
        tokens_laws.penalties_are_terms_of_the_loss(forward_backward_pass, 0.25, again, 0)


def penalties_of_all_stages_are_in_the_loss() -> None:
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(size=(4, 3)), rng.integers(0, 3, 4))]

    def build(rng: np.random.Generator) -> Any:
        return nn.Sequential(
            tokens_laws.Penalized(rng), nn.Tanh(), tokens_laws.Penalized(rng), nn.Linear(3, 3, rng=rng)
        )

    def work(comm: Any) -> None:
        pipeline = Pipeline(comm, bounds=(0, 2, 4), micro_batches=2)
        trains_like_serial(lambda comm: pipeline, comm, build, ops.cross_entropy, batches)

    run_ranks(2, work)


def ranks_train_like_serial() -> None:
    expert_laws.trains(ExpertParallel, 2, Net(experts=2, choices=1), (5,))
    expert_laws.trains(ExpertParallel, 3, Net(), (7, 1))


def no_token_is_lost() -> None:
    counts = np.random.default_rng(0).integers(0, 4, (3, 5)).tolist()
    expert_laws.conserves_tokens(exchange, counts)


def stages_train_like_serial() -> None:
    def strategy(comm: Any) -> Stack:
        grid = Grid(comm, data=2, pipe=2)
        return Stack(ExpertParallel(grid.data), Pipeline(grid.pipe, micro_batches=2))

    expert_laws.trains(strategy, 4, Net(), (5,))


def outer_ranks_train_like_serial() -> None:
    def strategy(comm: Any) -> Stack:
        data = Bucketed(comm.split(comm.rank % 2, comm.rank // 2), bucket_bytes=100)
        return Stack(data, ExpertParallel(comm.split(comm.rank // 2, comm.rank % 2)))

    expert_laws.trains(strategy, 4, Net(), (5,))


def checkpoints_are_of_serial_runs() -> None:
    expert_laws.resumes(ExpertParallel, 2, ExpertParallel, 3)


def tokens_on_ranks_are_routed_like_rows() -> None:
    """The ranks of a ring have the first and the last tokens of rows, and those between."""
    batches = expert_laws.batches_of((4,))
    for net in (Net(capacity=0.5), Net(capacity=10.0, penalty=3.0)):
        run_ranks(
            2,
            lambda comm, net=net: trains_like_serial(
                SequenceParallel, comm, net.build, expert_laws.LOSS, batches
            ),
        )


# Bugs

SERIAL = "of its scale on rank"

BUGS = [
    Bug("an expert of two mixtures is cut twice", "Experts.share",
        "if len(parameter.data) == len(self.gate.data):", "if True:", shared_experts_train_like_serial,
        "grouped_linear takes"),
    Bug("experts in another module are cut, too", "refuse_uses_elsewhere",
        "not isinstance(owner, Experts) and", "False and", experts_used_elsewhere_are_refused,
        "not refused"),
    Bug("the gate does not learn from what it weighs", "Experts.mixture", "ops.gather(gates,",
        "ops.gather(gates.detach(),", mixtures_are_loops, "input .* has"),
    Bug("the weights of two choices are not of sum 1", "Experts.mixture", "if k > 1:", "if False:",
        mixtures_are_loops, "Not equal"),
    Bug("one token more than there are places", "routing.route", "n_experts + 1) < places",
        "n_experts + 1) <= places", mixtures_are_loops, "Not equal"),
    Bug("earlier tokens choose twice before later ones once", "queue_positions",
        """.swapaxes(1, 2).reshape(-1)
    order = np.argsort(queues, kind="stable")
    sizes = np.bincount(queues, minlength=rows * n_experts)
    starts = np.cumsum(sizes) - sizes
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order)) - starts[queues[order]]
    return positions.reshape(rows, k, length).swapaxes(1, 2)""",
        """.reshape(-1)
    order = np.argsort(queues, kind="stable")
    sizes = np.bincount(queues, minlength=rows * n_experts)
    starts = np.cumsum(sizes) - sizes
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order)) - starts[queues[order]]
    return positions.reshape(rows, length, k)""", mixtures_are_loops, "Not equal"),
    Bug("places are taken in any order", "queue_positions", 'np.argsort(queues, kind="stable")',
        "np.argsort(queues)[::-1]", mixtures_are_loops, "Not equal"),
    Bug("the second expert overwrites the first", "segment_sum",
        "return sum_by_row(x, segments, count), (",
        "y = array_module(x).zeros((count, *x.shape[1:]), x.dtype)\n    y[segments] = x\n    return y, (",
        mixtures_are_loops, "Not equal"),
    Bug("of equal gates any comes first", "routing.route",
        'np.argsort(-gates, axis=2, kind="stable")[:, :, :choices]',
        "np.argsort(gates, axis=2)[:, :, ::-1][:, :, :choices]", mixtures_are_loops, "Not equal"),
    Bug("padding takes places", "routing.route", "if tokens.document is not None:", "if False:",
        mixtures_are_loops, "Not equal|assert"),
    Bug("a row's places are those of its padding too", "routing.route", "lengths / n_experts, 9",
        "np.full(len(counted), counted.shape[1]) / n_experts, 9", mixtures_are_loops, "Not equal|assert"),
    Bug("rounding makes a place more", "routing.route",
        "np.ceil(np.round(capacity * choices * lengths / n_experts, 9))",
        "np.ceil(capacity * choices * lengths / n_experts)", places_are_those_of_decimals, "places"),
    Bug("slots are not sorted by expert", "routing.route", 'slots[np.argsort(chosen, kind="stable")]',
        "slots", mixtures_are_loops, "Not equal"),
    Bug("a second run counts dropped choices again", "nn.experts.Experts",
        'own_state = ("routed", "dropped")', "own_state = ()", second_runs_are_loops, "assert"),
    Bug("balance is measured after dropping", "routing.route", "for row in of_rows[:, :, 0]]",
        "for row in np.where(has_place, of_rows, n_experts)[:, :, 0]]", mixtures_are_loops, "assert"),
    Bug("balance is measured by the gates alone, with their gradient", "Experts.carrying_penalty",
        "ops.sum(gates * array_module(gates.data).asarray(factors, gates.dtype))",
        "ops.sum(ops.mean(gates, axis=1) ** 2) * (self.penalty * n_experts / max(rows, 1))",
        mixtures_are_loops, "assert"),
    Bug("a penalty is a sum over rows", "Experts.carrying_penalty", "n_experts / max(rows, 1)", "n_experts",
        mixtures_are_loops, "assert"),
    Bug("a penalty has the weight of the whole batch", "Experts.carrying_penalty", "weight=current.weight",
        "weight=1.0", mixtures_are_loops, "input .* has"),
    Bug("a penalty has a gradient and no value", "Experts.carrying_penalty",
        "current.penalties.append(penalty.data)", "pass", mixtures_are_loops, "assert"),
    Bug("a penalty has a value and no gradient", "with_penalty", "full((), weight, dtype)",
        "full((), 0.0, dtype)", penalties_are_terms_of_the_loss, "Not equal"),
    Bug("a penalty's gradient is weighed by that of its carrier", "with_penalty",
        "array_module(g).full((), weight, dtype)", "(weight * g).sum()", penalties_are_terms_of_the_loss,
        "Not equal"),
    Bug("a second run adds its penalties", "ForwardPass.copy",
        "copy.path, copy.calls =", "copy.penalties = self.penalties\n    copy.path, copy.calls =",
        penalties_are_terms_of_the_loss, "assert"),
    Bug("a second run forgets the weight of penalties", "ForwardPass.copy",
        '"weight": self.weight', '"weight": 1.0',
        penalties_are_terms_of_the_loss, "Not equal"),
    Bug("a reported loss has no penalties", "Work.weighted",
        "((0.0 if loss is None else loss.item()) + forward_pass.penalty())",
        "(0.0 if loss is None else loss.item())", penalties_are_terms_of_the_loss, "assert"),
    Bug("penalties are reported without their weight", "Work.weighted",
        "self.loss_weight * ((0.0 if loss is None else loss.item()) + forward_pass.penalty())",
        "self.loss_weight * (0.0 if loss is None else loss.item()) + forward_pass.penalty()",
        penalties_are_terms_of_the_loss, "assert"),
    Bug("a pass does not know the weight of its samples", "Work.forward_pass", ", weight=self.seed",
        "", penalties_are_terms_of_the_loss, "Not equal"),
    Bug("a pipeline reports the penalties of its last stage", "engine.Engine.forward",
        "if loss is not None or forward_pass.penalties:", "if loss is not None:",
        penalties_of_all_stages_are_in_the_loss, "loss .* differs"),
    Bug("a rank's tokens have the routes of the first ones", "SplitTokens.local_part", "x[:, self.own]",
        "x[:, : len(self.own)]", tokens_on_ranks_are_routed_like_rows, SERIAL),
    Bug("choices stand in the order of ranks", "SplitTokens.all_gather", "return whole",
        "return xp.concatenate(parts, axis=1)", tokens_on_ranks_are_routed_like_rows, SERIAL),
    Bug("the mean gate of a row is that of some tokens", "Experts.carrying_penalty",
        "np.maximum(routes.lengths, 1)", "np.maximum(routes.counted.sum(1), 1)",
        tokens_on_ranks_are_routed_like_rows, SERIAL),
    Bug("the inverse of a permutation is the permutation", "exchange.exchange",
        'places = np.argsort(order, kind="stable")', "places = order", no_token_is_lost, "Not equal|equal"),
    Bug("results go back in the order of experts", "exchange.exchange",
        "y = ops.embedding(y, xp.asarray(places))", "pass", no_token_is_lost, "equal"),
    Bug("what arrives is taken for sorted", "exchange.exchange", 'np.argsort(expert_of, kind="stable")',
        "np.arange(len(expert_of))", no_token_is_lost, "equal"),
    Bug("gradients of experts are summed over ranks", "SummaryOfOthers.__init__",
        "for parameter in self.parameters if parameter not in experts", "for parameter in self.parameters",
        ranks_train_like_serial, SERIAL),
    Bug("outer ranks sum gradients that are not yet of all inner ones", "ExpertParallel.on_grad",
        "return parameter in self.experts.parameters", "return True", outer_ranks_train_like_serial, SERIAL),
    Bug("a norm leaves the experts of other ranks out", "ExpertsOfRanks.global_square_norms",
        "np.where(self.backend.experts.is_stack, 1.0, float(self.backend.rank == 0))",
        "float(self.backend.rank == 0)", ranks_train_like_serial, SERIAL),
    Bug("a norm counts other layers on every rank", "ExpertsOfRanks.global_square_norms",
        "float(self.backend.rank == 0)", "1.0", ranks_train_like_serial, SERIAL),
    Bug("the experts of other stages are not gathered", "OwnExperts.__init__", "in reversed(inner)", "in ()",
        stages_train_like_serial, f"{SERIAL}|shape"),
    Bug("a rank goes on with all experts' state", "ExpertsOfRanks.shard_values",
        "values[n][shares(len(values[n]), size)[rank]]", "values[n]", checkpoints_are_of_serial_runs,
        "shape|broadcast"),
    Bug("a rank without samples waits in no exchange", "ExpertParallel.__init__",
        "communicates_in_forward=True", "communicates_in_forward=False", ranks_train_like_serial,
        "rank|deadlock|wait"),
]  # fmt: skip
