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

SERVER, RULES, STRATEGY = (
    f"backends.data_parallel.parameter_server.{module}"
    for module in ("server", "consistency", "parameter_server")
)
FLAT = "backends.data_parallel.flat"
BOOK = "Not equal to tolerance"
STEP = "        optimizer.step(self.parts(mean, reached))\n"
SERVES = """            while (pushes := self.consistency.next_update(self)) is not None:
                self.apply(pushes, optimizer)
            for ready in self.ready_workers():
                comm.send(self.answer, ready, PULL)
"""
HALF_UPDATED = """            old = self.answer.copy()
            while (pushes := self.consistency.next_update(self)) is not None:
                self.apply(pushes, optimizer)
            for ready in self.ready_workers():
                old[:20] = self.answer[:20]
                comm.send(old, ready, PULL)
"""
BOUND = "clock - server.version <= self.staleness"

BUGS = [
    Bug("a gradient is applied twice", SERVER, STEP, STEP * 2, whoever_comes_is_served, BOOK),
    Bug("a pull returns half-updated parameters", SERVER, SERVES, HALF_UPDATED,
        whoever_comes_is_served, BOOK),
    Bug("staleness is counted from the version before", SERVER, "self.version - p.version for p",
        "max(self.version - 1 - p.version, 0) for p", whoever_comes_is_served, f"Counter|{BOOK}"),
    Bug("workers never learn the version", STRATEGY,
        "self.versions = [int(answer[0]) for answer in answers]", "pass", whoever_comes_is_served,
        f"Counter|{BOOK}"),
    Bug("each worker has a momentum of its own", SERVER, STEP,
        "        own = self.__dict__.setdefault('own', {})\n"
        f"        optimizer.state = own.setdefault(pushes[0].worker, [])\n{STEP}",
        whoever_comes_is_served, BOOK),
    Bug("a server's part begins one element late", FLAT, "shares(self.size, parts)",
        "[slice(cut.start + (cut.start > 0), cut.stop) for cut in shares(self.size, parts)]",
        whoever_comes_is_served, "cannot reshape"),
    Bug("a worker may be one step further ahead", RULES, BOUND, f"{BOUND} + 1",
        nobody_is_further_ahead_than_the_bound, f"Counter|{BOOK}"),
    Bug("a worker may be one step less ahead", RULES, BOUND, BOUND.replace("<=", "<"),
        nobody_is_further_ahead_than_the_bound, f"Counter|{BOOK}"),
    Bug("an update does not wait for the slowest", RULES, "min(server.clocks.values(), default=0)",
        "max(server.clocks.values(), default=0)", nobody_is_further_ahead_than_the_bound,
        f"Counter|{BOOK}"),
    Bug("softsync divides by all workers", SERVER, "weight / sum(weights)",
        "weight / (sum(weights) * len(self.clocks))", several_gradients_make_an_update, BOOK),
    Bug("softsync takes one gradient too many", RULES, "Asynchronous(workers // softsync)",
        "Asynchronous(workers // softsync + 1)", several_gradients_make_an_update,
        f"Counter|{BOOK}"),
    Bug("what is left at the end is not applied", STRATEGY,
        "if self.server is not None and self.server.pushes and", "if False and",
        several_gradients_make_an_update, f"Counter|{BOOK}"),
    Bug("a stale gradient counts one update too old", SERVER, "self.stale_rate(age,",
        "self.stale_rate(age + 1,", old_gradients_count_less, BOOK),
    Bug("the default rate is the naive one", STRATEGY, 'stale_rate: str = "damped"',
        'stale_rate: str = "naive"', the_default_trains, "accuracy"),
    Bug("a gradient counts as a whole batch", SERVER, "self.stale_rate(age, share,",
        "self.stale_rate(age, 1.0,", old_gradients_count_less, BOOK),
    Bug("the rate stays divided", SERVER, "        optimizer.lr = lr\n", "", old_gradients_count_less, BOOK),
]  # fmt: skip
