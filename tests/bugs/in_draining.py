"""Bugs of checkpoints of strategies whose messages are on their way between two steps."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from backends.comm import run_ranks
from backends.data_parallel.backup_workers import BackupWorkers
from backends.data_parallel.compression.compressed import Compressed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.pipeline.asynchronous import AsynchronousPipeline
from backends.pipeline.pipeline import Pipeline
from minigrad import optim
from tests.backends.checkpoint.drain_laws import (
    another_layout_holds_what_was_saved,
    cluster,
    every_sample_counts_once,
    is_serial_on_the_listed_contributors,
    nobody_waits_for_a_late_rank,
)
from tests.backends.checkpoint.resume_laws import (
    Layout,
    goes_on_in_another_layout,
    goes_on_with_the_same_bits,
    training,
)
from tests.backends.data_parallel.parameter_server.served_training import is_the_simulated_training
from tests.backends.pipeline import stale_training
from tests.bugs.bug import Bug
from tests.nets import batches_of, dropping, mlp

SIZES = (7, 4, 6, 5)


def adam(parameters):
    return optim.Adam(parameters, 0.01, eps=1e-3)


def momentum(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9)


# Laws


def servers_go_on(**rule: Any) -> None:
    layout = Layout(5, partial(ParameterServer, servers=2, **rule), cluster(1.0, 1.37, 3.71))
    goes_on_with_the_same_bits(layout, mlp, adam, batches_of(SIZES), 2, drained=True)


def asynchronous_servers_go_on() -> None:
    servers_go_on()


def stale_servers_go_on() -> None:
    servers_go_on(staleness=1)


def servers_keep_statistics() -> None:
    layout = Layout(4, partial(ParameterServer, staleness=0))
    goes_on_with_the_same_bits(layout, dropping, adam, batches_of([9, 7, 8]), 1, drained=True)


def drained_servers_are_simulated() -> None:
    speeds = [1.0, 1.37, 3.71, 1.93, 1.11]
    rules: list[dict[str, Any]] = [{}, {"softsync": 2}, {"staleness": 1}]
    for rule in rules:
        is_the_simulated_training(speeds, [9] * 5, momentum, servers=2, drains=[3], **rule)


def samples_count_once() -> None:
    for seed in range(3):
        strategy = partial(ParameterServer, stale_rate="naive")
        every_sample_counts_once(Layout(4, strategy, partial(run_ranks, seed=seed)), [7, 2, 5, 6], 2)


def backup_workers_go_on() -> None:
    layout = Layout(4, partial(BackupWorkers, backups=1), cluster(1.0, 1.0, 1.37, 3.71))
    for k in (2, len(SIZES)):
        goes_on_with_the_same_bits(layout, mlp, adam, batches_of(SIZES), k, drained=True)


def late_workers_are_not_waited_for() -> None:
    layout = Layout(4, partial(BackupWorkers, backups=1), cluster(1.0, 1.0, 1.0, 20.0))
    nobody_waits_for_a_late_rank(layout, batches_of([6] * 7), 4, 24)


def contributors_are_listed() -> None:
    layout = Layout(4, partial(BackupWorkers, backups=1), partial(run_ranks, seed=1))
    is_serial_on_the_listed_contributors(layout, mlp, adam, batches_of(SIZES), 2)


def pipedream_goes_on() -> None:
    layout = Layout(3, AsynchronousPipeline)
    goes_on_with_the_same_bits(layout, mlp, adam, batches_of(SIZES), 2, drained=True)


def a_loss_has_its_step() -> None:
    batches = batches_of(SIZES)
    batches[3].x[...] = np.nan
    try:
        with TemporaryDirectory() as folder, np.errstate(invalid="ignore"):
            training(Layout(3, AsynchronousPipeline), mlp, momentum, batches, Path(folder), drained={2})
    except FloatingPointError as error:
        assert "nan at step 3;" in str(error), error


def drained_pipelines_are_the_serial_loop() -> None:
    for versions in ("stashing", "2bw"):
        stale_training.law(versions, drains=[4], optimizer="adam")


def shares_go_on() -> None:
    layout = Layout(3, partial(ProportionalDataParallel, every=2), cluster(1, 2, 4))
    goes_on_with_the_same_bits(layout, mlp, adam, batches_of([7, 5, 9, 8, 6]), 3)


def stages_hold_what_servers_saved() -> None:
    servers = Layout(4, partial(ParameterServer, servers=2))
    stages = Layout(2, lambda comm: Pipeline(comm, micro_batches=2))
    for pair in ((servers, stages), (stages, servers)):
        another_layout_holds_what_was_saved(*pair, mlp, adam, batches_of(SIZES))


def residuals_are_for_the_same_ranks() -> None:
    layouts = Layout(3, Compressed), Layout(2, DataParallel)
    try:
        goes_on_in_another_layout(*layouts, mlp, momentum, batches_of(SIZES), 2)
    except ValueError as error:
        assert "resume with the same ranks" in str(error), error
    else:
        raise AssertionError("residuals of three ranks were taken by two")


# Bugs

DRAIN = "    backend.state.drain(model)\n"
DIFFERS = r"rank \d: .*(differs|losses|is not)"
DEADLOCK = "Deadlock"
BOOK = "Not equal to tolerance"

BUGS = [
    Bug("nothing is drained", "gather_state", DRAIN, "", pipedream_goes_on, "."),
    Bug("one rank alone drains", "gather_state", DRAIN,
        "    if comm.rank == 0:\n        backend.state.drain(model)\n", pipedream_goes_on, DEADLOCK),
    Bug("the last rank does not drain", "gather_state", DRAIN,
        "    if comm.rank < comm.size - 1:\n        backend.state.drain(model)\n", asynchronous_servers_go_on,
        f"{DEADLOCK}|reshape"),
    Bug("pushes that wait are lost", "ParameterServer.conclude",
        "        self.server.apply(self.server.pushes, self.optimizer)\n",
        "        self.server.pushes.clear()\n", drained_servers_are_simulated, f"Counter|{BOOK}"),
    Bug("pushes that wait count twice", "ParameterServer.conclude",
        "        self.server.apply(self.server.pushes, self.optimizer)\n",
        "        self.server.pushes *= 2\n        self.server.apply(self.server.pushes, self.optimizer)\n",
        drained_servers_are_simulated, f"Counter|{BOOK}"),
    Bug("the last push is applied again", "Server.take", "    if push.samples:\n",
        "    self.last, again = push, vars(self).get('last')\n    if again is not None and push.clock == 2 "
        "and self.clocks[push.worker] == 3:\n        "
        "self.pushes.append(again._replace(gradient=again.gradient.copy()))\n    if push.samples:\n",
        samples_count_once, "after . steps on rank"),
    Bug("workers go on with the parameters that they have", "ServersState.drain",
        "    self.backend.use(self.newest_answers())\n",
        "    self.backend.versions = [int(answer[0]) for answer in self.newest_answers()]\n",
        asynchronous_servers_go_on, DIFFERS),
    Bug("workers do not learn the newest version", "ServersState.drain",
        "    self.backend.use(self.newest_answers())\n",
        "    versions = self.backend.versions\n    self.backend.use(self.newest_answers())\n    "
        "self.backend.versions = versions\n", asynchronous_servers_go_on, "."),
    Bug("the version is not saved", "ParameterServer.state_class", '("steps", "samples", "versions")',
        '("steps", "samples")', stale_servers_go_on, "."),
    Bug("the clocks begin anew", "Server.resume", "dict.fromkeys(self.clocks, steps)",
        "dict.fromkeys(self.clocks, 0)", stale_servers_go_on, "."),
    Bug("the second server's state is lost", "ServersState.owned_by", "if number >= 0 else",
        "if number == 0 else", asynchronous_servers_go_on, "."),
    Bug("all servers have the first one's state", "ServersState.owned_by", "in layout.segments(number) if",
        "in layout.segments(0) if", asynchronous_servers_go_on, "."),
    Bug("the counts begin anew", "ServersState.set_own_values",
        "        backend.server.set_own_values(values)\n", "", samples_count_once, "counts"),
    Bug("a checkpoint has one worker's statistics", "ServersState.drain", "load_mean(statistics, allreduce(",
        "str(allreduce(", servers_keep_statistics, DIFFERS),
    Bug("the samples of workers are forgotten", "ParameterServer.state_class",
        '("steps", "samples", "versions")', '("steps", "versions")', servers_keep_statistics, DIFFERS),
    Bug("late workers get no answer", "BackupWorkersState.drain", "    self.backend.finalize(model)\n", "",
        backup_workers_go_on, DEADLOCK),
    Bug("all ranks agree after every step", "TrainingCheckpoints.write", "    if backend.traits.may_lag:\n",
        "    if False:\n", late_workers_are_not_waited_for, DEADLOCK),
    Bug("ranks agree before they drain", "TrainingCheckpoints.write", "        backend.state.drain(model)\n",
        "", late_workers_are_not_waited_for, DEADLOCK),
    Bug("updates are counted anew", "BackupWorkersState.set_own_values", 'int(values["version"])', "0",
        contributors_are_listed, "."),
    Bug("who has which update is forgotten", "BackupWorkersState.set_own_values",
        "backend.received = dict.fromkeys(backend.received, version)", "pass", backup_workers_go_on,
        DEADLOCK),
    Bug("batches in flight are dropped", "AsynchronousPipeline.finalize",
        "range(max(steps - self.delay, 0), steps)", "range(0)", drained_pipelines_are_the_serial_loop,
        "drained"),
    Bug("one batch in flight is dropped", "AsynchronousPipeline.finalize",
        "range(max(steps - self.delay, 0), steps)", "range(max(steps - self.delay, 0), steps - 1)",
        drained_pipelines_are_the_serial_loop, "drained"),
    Bug("the stash is not emptied", "AsynchronousPipeline.finalize", "enumerate(self.end(), ",
        "enumerate(self.engine.drain(), ", pipedream_goes_on, DIFFERS),
    Bug("steps before a drain are forgotten", "AsynchronousPipeline.finalize",
        "enumerate(self.end(), self.step_number - steps)", "enumerate(self.end())", a_loss_has_its_step,
        "at step 1"),
    Bug("staleness is counted anew", "AsynchronousState.set_own_values",
        '    self.backend.staleness = Counter(dict(values["staleness"]))\n', "", pipedream_goes_on, DIFFERS),
    Bug("shares begin evenly", "ProportionalDataParallel.own_state",
        '("speeds", "steps", "samples", "seconds")', '("steps", "samples", "seconds")', shares_go_on,
        DIFFERS),
    Bug("the steps to the next exchange begin anew", "ProportionalDataParallel.own_state",
        '("speeds", "steps", "samples", "seconds")', '("speeds", "samples", "seconds")', shares_go_on,
        DIFFERS),
    Bug("what was measured binds to the ranks", "load_state", "if backend.traits.same_layout_only or any",
        "if backend.own_state or any", stages_hold_what_servers_saved, "resume with the same ranks"),
    Bug("residuals are taken by other ranks", "Compressed.traits", "same_layout_only=True, ", "",
        residuals_are_for_the_same_ranks, "."),
]  # fmt: skip
