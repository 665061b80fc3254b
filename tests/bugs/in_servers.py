"""Bugs of parameter servers; their oracle is the same training as a list of events on one machine."""

from typing import Any

from minigrad import optim
from tests.backends.data_parallel.parameter_server.served_training import is_the_simulated_training
from tests.backends.default_training import serial, served
from tests.bugs.bug import Bug

# Laws


def is_simulated(servers: int = 2, **rule: Any) -> None:
    """Workers of unlike speeds, whose gradients meet at every staleness."""
    speeds = [1.0, 1.37, 3.71, 1.93, 1.11]
    momentum = lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9)  # noqa: E731
    is_the_simulated_training(speeds, [9] * 5, momentum, servers=servers, **rule)


def whoever_comes_is_served() -> None:
    is_simulated()


def nobody_is_further_ahead_than_the_bound() -> None:
    is_simulated(staleness=1)


def several_gradients_make_an_update() -> None:
    for n in (1, 2):
        is_simulated(softsync=n)


def old_gradients_count_less() -> None:
    for rate in ("damped", "divided"):
        is_simulated(stale_rate=rate)


def the_default_trains() -> None:
    """Nearly as one machine does: at most four points of a hundred less."""
    actual, expected = served(0, 4), serial(0)
    assert actual > expected - 0.04, f"accuracy {actual}, serial {expected}"


# Bugs

BOOK = "Not equal to tolerance"
BOUND = "clock - server.version <= self.staleness"

BUGS = [
    Bug("a gradient is applied twice", "Server.apply", "    optimizer.step(self.parts(mean, reached))\n",
        "    optimizer.step(self.parts(mean, reached))\n    optimizer.step(self.parts(mean, reached))\n",
        whoever_comes_is_served, BOOK),
    Bug("a pull returns half-updated parameters", "Server.serve",
        "        while (pushes := self.consistency.next_update(self)) is not None:\n            "
        "self.apply(pushes, optimizer)\n        for ready in self.ready_workers():\n            "
        "comm.send(self.answer, ready, PULL)\n",
        "        old = self.answer.copy()\n        while (pushes := self.consistency.next_update(self)) is "
        "not None:\n            self.apply(pushes, optimizer)\n        for ready in self.ready_workers():\n"
        "            old[:20] = self.answer[:20]\n            comm.send(old, ready, PULL)\n",
        whoever_comes_is_served, BOOK),
    Bug("staleness is counted from the version before", "Server.apply", "self.version - p.version for p",
        "max(self.version - 1 - p.version, 0) for p", whoever_comes_is_served, f"Counter|{BOOK}"),
    Bug("workers never learn the version", "ParameterServer.use",
        "self.versions = [int(answer[0]) for answer in answers]", "pass", whoever_comes_is_served,
        f"Counter|{BOOK}"),
    Bug("each worker has a momentum of its own", "Server.apply",
        "    optimizer.step(self.parts(mean, reached))\n",
        "    own = self.__dict__.setdefault('own', {})\n    optimizer.state = "
        "own.setdefault(pushes[0].worker, [])\n    optimizer.step(self.parts(mean, reached))\n",
        whoever_comes_is_served, BOOK),
    Bug("a server's part begins one element late", "FlatLayout.__init__", "shares(self.size, parts)",
        "[slice(cut.start + (cut.start > 0), cut.stop) for cut in shares(self.size, parts)]",
        whoever_comes_is_served, "cannot reshape"),
    Bug("a worker may be one step further ahead", "BoundedStaleness.may_proceed", BOUND,
        "clock - server.version <= self.staleness + 1", nobody_is_further_ahead_than_the_bound,
        f"Counter|{BOOK}"),
    Bug("a worker may be one step less ahead", "BoundedStaleness.may_proceed", BOUND,
        "clock - server.version < self.staleness", nobody_is_further_ahead_than_the_bound, f"Counter|{BOOK}"),
    Bug("an update does not wait for the slowest", "BoundedStaleness.next_update",
        "min(server.clocks.values(), default=0)", "max(server.clocks.values(), default=0)",
        nobody_is_further_ahead_than_the_bound, f"Counter|{BOOK}"),
    Bug("softsync divides by all workers", "Server.apply", "weight / sum(weights)",
        "weight / (sum(weights) * len(self.clocks))", several_gradients_make_an_update, BOOK),
    Bug("softsync takes one gradient too many", "consistency_model", "Asynchronous(workers // softsync)",
        "Asynchronous(workers // softsync + 1)", several_gradients_make_an_update, f"Counter|{BOOK}"),
    Bug("what is left at the end is not applied", "ParameterServer.conclude",
        "if self.server is not None and self.server.pushes and", "if False and",
        several_gradients_make_an_update, f"Counter|{BOOK}"),
    Bug("a stale gradient counts one update too old", "Server.apply", "self.stale_rate(age,",
        "self.stale_rate(age + 1,", old_gradients_count_less, BOOK),
    Bug("the default rate is the naive one", "ParameterServer.__init__", 'stale_rate: str = "damped"',
        'stale_rate: str = "naive"', the_default_trains, "accuracy"),
    Bug("a gradient counts as a whole batch", "Server.apply", "self.stale_rate(age, share,",
        "self.stale_rate(age, 1.0,", old_gradients_count_less, BOOK),
    Bug("the rate stays divided", "Server.apply", "    optimizer.lr = lr\n", "", old_gradients_count_less,
        BOOK),
]  # fmt: skip
