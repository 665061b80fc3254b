"""Laws of backends/data_parallel/parameter_server/server.py, consistency.py and parameter_server.py: the
laws catch every server with one thing wrong.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from backends.data_parallel.flat import FlatLayout
from minigrad import optim
from tests.backends.data_parallel.parameter_server.broken_servers import broken
from tests.backends.data_parallel.parameter_server.served_training import is_the_simulated_training
from tests.backends.data_parallel.parameter_server.server_laws import (
    a_straggler_holds_the_others_up_only_after_s_steps,
    shards_are_even_and_cover_everything_once,
)

SPEEDS = [1.0, 1.37, 3.71, 1.93, 1.11]


def momentum(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9)


CUT = "shares(self.size, parts)"
BUGS = {
    "applies a gradient twice": (
        "server",
        {},
        [("            self.pushes.append(push)\n", "            self.pushes += [push, push._replace()]\n")],
    ),
    "applies a gradient twice, and counts it once": (
        "server",
        {},
        [
            (
                "        optimizer.lr = lr\n",
                "        optimizer.step(self.parts(mean, reached))\n        optimizer.lr = lr\n",
            )
        ],
    ),
    "answers half-updated parameters": (
        "server",
        {},
        [
            ("        self.version += 1\n", "        self.version += 1\n        old = self.weights.copy()\n"),
            (
                "        optimizer.lr = lr\n",
                "        optimizer.lr, self.answer = lr, np.concatenate([self.answer[:20], old[19:]])\n",
            ),
        ],
    ),
    "counts staleness from the version before": (
        "server",
        {},
        [("self.version - p.version for p", "max(self.version - 1 - p.version, 0) for p")],
    ),
    "counts staleness from the update after": (
        "server",
        {},
        [("self.version - p.version for p in pushes", "self.version + 1 - p.version for p in pushes")],
    ),
    "workers never learn the version": (
        "parameter_server",
        {},
        [("self.versions = [int(answer[0]) for answer in answers]", "pass")],
    ),
    "the bound is one too wide": (
        "consistency",
        {"staleness": 1},
        [("clock - server.version <= self.staleness", "clock - server.version <= self.staleness + 1")],
    ),
    "the bound is one too narrow": (
        "consistency",
        {"staleness": 1},
        [("clock - server.version <= self.staleness", "clock - server.version < self.staleness")],
    ),
    "does not wait for the slowest": (
        "consistency",
        {"staleness": 1},
        [("min(server.clocks.values(), default=0)", "max(server.clocks.values(), default=0)")],
    ),
    "softsync divides by all workers": (
        "server",
        {"softsync": 2},
        [("weight / sum(weights)", "weight / (sum(weights) * len(self.clocks))")],
    ),
    "softsync adds without dividing": (
        "server",
        {"softsync": 1},
        [("weight / sum(weights)", "weight / weights[0]")],
    ),
    "softsync takes one too many": (
        "consistency",
        {"softsync": 1},
        [("Asynchronous(workers // softsync)", "Asynchronous(workers // softsync + 1)")],
    ),
    "forgets what is left at the end": (
        "parameter_server",
        {"softsync": 2},
        [("if self.server is not None and self.server.pushes and", "if False and")],
    ),
    "keeps a momentum for each worker": (
        "server",
        {},
        [
            (
                "        optimizer.step(self.parts(mean, reached))\n",
                "        own = self.__dict__.setdefault('own', {})\n"
                "        optimizer.state = own.setdefault(pushes[0].worker, [])\n"
                "        optimizer.step(self.parts(mean, reached))\n",
            )
        ],
    ),
    "lets the workers' momentum act too": (
        "parameter_server",
        {},
        [("        elif not self.reason:\n", "        elif not self.reason:\n            optimizer.step()\n"),
         ("        self.layout.load(array_module", "        _ = (array_module")],
    ),
    "the stale rate is lr / (tau + 1)": (
        "server",
        {"stale_rate": "divided"},
        [("self.stale_rate(age,", "self.stale_rate(age + 1,")],
    ),
    "the stale rate is forgotten": (
        "server",
        {"stale_rate": "divided"},
        [("self.stale_rate(age, share, optimizer.adaptive)", "1")],
    ),
    "a gradient counts as a whole batch": (
        "server",
        {},
        [("self.stale_rate(age, share,", "self.stale_rate(age, 1.0,")],
    ),
    "a mean of several gradients counts as one": (
        "consistency",
        {"softsync": 2},
        [("min(len(pushes) / max", "min(1 / max")],
    ),
    "the rate stays divided": (
        "server",
        {},
        [("        optimizer.lr = lr\n", "")],
    ),
    "a shard begins one element late": (
        "flat",
        {},
        [(CUT, f"[slice(cut.start + (cut.start > 0), cut.stop) for cut in {CUT}]")],
    ),
    "each server holds the first part": ("flat", {}, [(CUT, f"{CUT}[:1] * parts")]),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_the_simulation_catches(bug):
    name, settings, changes = BUGS[bug]
    # Shapes that do not fit, and messages left over, are also caught.
    with pytest.raises((AssertionError, RuntimeError, ValueError, IndexError)):
        is_the_simulated_training(SPEEDS, [9] * 5, momentum, broken(name, *changes), servers=2, **settings)


@pytest.mark.parametrize(
    "settings", [{}, {"staleness": 1}, {"softsync": 1}, {"softsync": 2}, {"stale_rate": "divided"}]
)
def test_the_simulation_holds_without_a_bug(settings):
    is_the_simulated_training(SPEEDS, [9] * 5, momentum, broken("server"), servers=2, **settings)


class LateStart(FlatLayout):
    def __init__(self, parameters, parts):
        super().__init__(parameters, parts)
        self.parts = [slice(part.start + (part.start > 0), part.stop) for part in self.parts]


class Overlapping(FlatLayout):
    def __init__(self, parameters, parts):
        super().__init__(parameters, parts)
        self.parts = [slice(part.start, min(part.stop + 1, self.size)) for part in self.parts]


@pytest.mark.parametrize("bug", [LateStart, Overlapping])
def test_the_law_of_shards_catches(bug):
    with pytest.raises((AssertionError, ExceptionGroup)):
        given(st.integers(1, 60), st.integers(1, 9))(
            lambda n, servers: shards_are_even_and_cover_everything_once(n, servers, bug)
        )()


@pytest.mark.parametrize("change", [1, -1])
def test_the_law_of_the_bound_catches(change):
    wider = broken(
        "consistency",
        ("return BoundedStaleness(staleness)", f"return BoundedStaleness(max(staleness + {change}, 0))"),
    )
    with pytest.raises(AssertionError):
        a_straggler_holds_the_others_up_only_after_s_steps(1, wider.ParameterServer)
