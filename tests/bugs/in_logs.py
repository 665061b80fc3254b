"""Bugs of what a run leaves while it runs: its log, its curves, and its last words where it hangs."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.backends.cli.log_laws import (
    draws_within_its_share,
    ignores_a_torn_last_line,
    makes_its_folder_with_the_first_record,
    reports_each_step_once,
)
from tests.backends.process.hang_laws import (
    does_not_return_from_python,
    leaves_out_a_barrier,
    names_the_rank_that_stopped_first,
    tells_apart_who_waits_and_who_does_not,
    waits_for_nobody,
)
from tests.bugs.bug import Bug

# Laws


def each_step_has_one_line() -> None:
    for resumed in (0, 4, 5, 6):
        for tested in (True, False):
            with TemporaryDirectory() as folder:
                file = Path(folder) / "metrics.jsonl"
                reports_each_step_once(file, epochs=3, epoch_steps=3, resumed=resumed, tested=tested)


def torn_lines_are_no_records() -> None:
    for share in (0.0, 0.6, 0.9, 1.0):
        with TemporaryDirectory() as folder:
            ignores_a_torn_last_line(Path(folder) / "metrics.jsonl", [{"step": 1}, {"step": 12345}], share)


def folders_come_with_their_first_record() -> None:
    with TemporaryDirectory() as folder:
        makes_its_folder_with_the_first_record(Path(folder))


def drawing_has_its_share() -> None:
    assert draws_within_its_share([5.0] * 40, [0.5, 2.0] * 20) > 4


def whoever_stopped_first_is_named() -> None:
    names_the_rank_that_stopped_first(waits_for_nobody, ranks=3, culprit=1, steps=1)
    names_the_rank_that_stopped_first(leaves_out_a_barrier, ranks=3, culprit=2, steps=1)


def whoever_does_not_wait_is_named() -> None:
    names_the_rank_that_stopped_first(does_not_return_from_python, ranks=3, culprit=1, steps=1)


def waits_lead_to_whoever_stopped() -> None:
    tells_apart_who_waits_and_who_does_not({0: ({1}, 1.0), 1: ({0}, 0.0)}, 3)
    tells_apart_who_waits_and_who_does_not({0: ({1}, 0.0), 1: ({2}, 1.0)}, 3)


# Bugs

LOG = "minigrad.metrics_log"

BUGS = [
    Bug("lines wait in a buffer", "MetricsLog.__init__", ", buffering=0", "", each_step_has_one_line,
        "instead of"),
    Bug("a torn line is a record", "read_metrics", '*lines, _ = file.read_bytes().split(b"\\n")',
        "lines = file.read_bytes().splitlines()", torn_lines_are_no_records, "no JSON"),
    Bug("the last record is a torn line", "first_and_last", "*lines, _ = log.read().split(",
        "lines = log.read().split(", torn_lines_are_no_records, "no JSON"),
    Bug("the rate is that of the next step", "TrainingLog.records", "self.rate(self.steps - 1)",
        "self.rate(self.steps)", each_step_has_one_line, "instead of"),
    Bug("an epoch ends before its last step", "TrainingLog.records", "-(-self.steps // self.epoch_steps)",
        "self.steps // self.epoch_steps + 1", each_step_has_one_line, "instead of"),
    Bug("tests come before their steps", "TrainingLog.records",
        " and self.steps == (self.tests + 1) * self.test_steps", "", each_step_has_one_line, "instead of"),
    Bug("resumed steps have no line", "TrainingLog.__init__", "self.steps = self.tests = 0",
        "self.steps = self.tests = -1", each_step_has_one_line, "."),
    Bug("resumed steps get this run's seconds", "TrainingLog.records",
        "history.seconds if self.steps == len(history.losses) else None", "history.seconds",
        each_step_has_one_line, "."),
    Bug("the folder of another run is taken", "RunFolder.is_own", '.get("run") == self.run',
        '.get("run") is not None', folders_come_with_their_first_record, "."),
    Bug("errors name a file that was renamed", "RunFolder.create", ", name=path / LOG", "",
        folders_come_with_their_first_record, "part/metrics.jsonl"),
    Bug("a folder without a record", "RunFolder.append", "elif records:\n",
        "elif records := records or [{}]:\n", folders_come_with_their_first_record,
        "before there was anything to write"),
    Bug("drawings are not added up", "Curves.redraw", "self.spent += self.last", "self.spent = self.last",
        drawing_has_its_share, "."),
    Bug("a drawing costs nothing", "Curves.redraw", "self.last = perf_counter() - begin", "self.last = 0.0",
        drawing_has_its_share, "."),
    Bug("the last that stopped is the first", "HangReport.first_stopped", "return [min(waits",
        "return [max(waits", whoever_stopped_first_is_named, "stopped first"),
    Bug("only ranks that wait are looked at", "HangReport.first_stopped", "sorted(peers & ranks - waiting)",
        "[]", whoever_does_not_wait_is_named, "stopped: "),
    Bug("whoever does not wait is to blame", "HangReport.first_stopped", "sorted(peers & ranks - waiting)",
        "sorted(ranks - waiting)", waits_lead_to_whoever_stopped, "of 3 ranks"),
    Bug("a rank that has arrived is missed", "ThreadComm.barrier_with",
        "absent = (m for r, m in enumerate(self.members) if r not in values)",
        "absent = (m for r, m in enumerate(self.members) if r in values)", whoever_stopped_first_is_named,
        "stopped"),
    Bug("the stacks come after the report", "Hang.__init__", "self.__cause__ = RankStacks(stacks)",
        "self.add_note(stacks)", whoever_stopped_first_is_named, "does not stand last"),
    Bug("one stack is kept", "World.start", "self.threads_of[rank] = threading.get_ident()",
        "self.threads_of = {rank: threading.get_ident()}", whoever_does_not_wait_is_named, "."),
]  # fmt: skip
