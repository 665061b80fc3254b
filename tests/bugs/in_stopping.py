"""Bugs of an orderly stop and of starting again; oracles: one step for all ranks, the undisturbed bits."""

import tempfile
from pathlib import Path

from backends.data_parallel.data_parallel import DataParallel
from backends.launch import supervise
from tests.backends.checkpoint import stop_laws
from tests.backends.checkpoint.resume_laws import Layout
from tests.backends.checkpoint.stop_laws import INT, TERM
from tests.bugs.bug import Bug
from tests.nets import mlp

# Laws


def one_step_for_all() -> None:
    for seed in (None, 0, 1, 2):
        for requests in ({1: (2, TERM)}, {0: (2, INT), 2: (2, TERM)}, {2: (5, TERM)}, {0: (4, INT)}, {}):
            stop_laws.ranks_stop_together(3, 5, requests, seed)


def the_step_is_saved_and_named() -> None:
    for requests, every in (({1: (2, TERM)}, 4), ({0: (4, TERM)}, 2), ({0: (3, TERM), 1: (1, INT)}, 1)):
        layout, late = Layout(2, DataParallel), stop_laws.LateDisk()
        stop_laws.a_stopped_training_goes_on(layout, mlp, 8, requests, every, disk=late)


def a_failed_rank_ends_the_wait() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stop_laws.rank_0_does_not_wait_for_a_failed_rank(Path(folder))


def only_crashes_start_again() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stop_laws.only_a_crash_starts_a_job_again(Path(folder))


def who_was_killed_is_named() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stop_laws.the_rank_that_was_killed_is_named(Path(folder))


def starts_are_counted_and_go_on() -> None:
    for endings in ([], [True], [True] * 2, [True] * 3):
        with tempfile.TemporaryDirectory() as folder:
            stop_laws.a_crashed_training_starts_again(Path(folder), endings, 2)


def a_cut_banner_is_not_shown() -> None:
    text = b"=" * 83 + b"\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 9\n"
    shown = b"".join(supervise.without_banner([b"loss 0.5\n", text]))
    assert shown == b"loss 0.5\n", f"shown: {shown!r}"


# Bugs


BUGS = [
    Bug("a rank stops at a step of its own", "StopAgreement.after_step", "if self.comm.size == 1:",
        "if self.comm.size == 1 or request is not None:", one_step_for_all,
        "never (finished|received)|ended|cannot go on|waits"),
    Bug("a rank stops as soon as the request is under way", "StopAgreement.after_step",
        "    return SIGNALS[int(requests.argmax())] if requests.any() else None\n",
        "    return SIGNALS[int(requests.argmax())] if requests.any() else request\n", one_step_for_all,
        "never (finished|received)|ended|cannot go on|waits"),
    Bug("the last step leaves its message open", "StopAgreement.after_step", "if last or requests.any():",
        "if requests.any():", one_step_for_all, "never (finished|received)|the signal None"),
    Bug("each rank ends by its own signal", "StopAgreement.after_step",
        "SIGNALS[int(requests.argmax())] if requests.any()",
        "(request or SIGNALS[int(requests.argmax())]) if requests.any()", one_step_for_all,
        "ranks stop after"),
    Bug("the step that all stop after is not saved", "TrainingCheckpoints.write",
        "if not due and self.agreed is None:", "if not due:", the_step_is_saved_and_named, "after step|says"),
    Bug("nobody waits for the last write", "TrainingCheckpoints.stop_if_agreed",
        "        self.files.wait()\n", "        pass\n", the_step_is_saved_and_named,
        "after step|says|not empty|no checkpoint"),
    Bug("the words name the checkpoint before", "TrainingCheckpoints.stop_if_agreed",
        '    problem = ""\n    try:\n        self.files.wait()\n',
        '    problem, newest = "", self.files.committed\n    try:\n        self.files.wait()\n        '
        "self.files.committed = newest\n", the_step_is_saved_and_named, "says"),
    Bug("the last write pushes out every other one", "Checkpoints.prune", "[-self.keep :]", "[-1:]",
        the_step_is_saved_and_named, "after step"),
    Bug("rank 0 waits for a rank that has failed", "Checkpoints.write",
        "self.disk.start(job, self.comm.progress)", "self.disk.start(job, lambda: None)",
        a_failed_rank_ends_the_wait, "rank 0 heard: .*rank 1 has not written"),
    Bug("who was ended by Open MPI's mpiexec is named", "supervise.Job.status",
        "if end and end[1] == TERMINATED and status - 128 in set(signal.Signals) - {signal.SIGTERM}:",
        "if end and end[1] < 0:", who_was_killed_is_named, "another status"),
    Bug("a refused setting starts the job again", "Job.crashed", "self.first_end() is None and ", "",
        only_crashes_start_again, "refuses a setting"),
    Bug("a signal that asks for an end starts the job again", "Job.crashed",
        "killed = status > 128 and status not in {128 + number for number in SIGNALS}",
        "killed = status > 128", only_crashes_start_again, "somebody ended"),
    Bug("a rank that lost another one is taken for the cause", "Job.crashed", "self.notes(rank.LOST)",
        "False", only_crashes_start_again, "lost another rank"),
    Bug("a banner that mpiexec could not finish is shown", "without_banner",
        'yield CUT_BANNER.sub(b"", text)', "yield text", a_cut_banner_is_not_shown,
        "shown: .*BAD TERMINATION"),
    Bug("one start too many", "Restarts.run", "restarts < self.limit", "restarts <= self.limit",
        starts_are_counted_and_go_on, "starts, wanted"),
    Bug("each start begins anew", "Restarts.run", "else resuming(sys.argv[1:], self.folder)",
        "else sys.argv[1:]", starts_are_counted_and_go_on, r"start \d: "),
    Bug("the folder that was resumed first is resumed again", "stopped.without",
        "            next(rest, None)\n", "            others += [word, next(rest)]\n",
        starts_are_counted_and_go_on, r"start \d: "),
]  # fmt: skip
