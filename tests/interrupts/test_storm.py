"""Commands that a signal ends at a random moment: the right status, soon, one line, and nothing left behind.

A dozen runs, of which the quick lane does every fourth; MINIGRAD_STORM says how many, and MINIGRAD_STORM_SEED
draws others.
"""

import os
import signal

import pytest

from .interrupted import SOON, Case, storm

NUMBER = os.environ.get("MINIGRAD_STORM")
CASES = [
    pytest.param(case, marks=[pytest.mark.thorough] if NUMBER is None and i % 4 != 2 else [])
    for i, case in enumerate(storm(int(os.environ.get("MINIGRAD_STORM_SEED", "0")), int(NUMBER or "12")))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_ends_as_a_shell_expects_and_leaves_nothing(case: Case, tmp_path, record_property):
    run = case.run(tmp_path)
    record_property("seconds", round(run.seconds, 2))
    assert not run.left, run.text
    assert run.cursor_shown, run.text
    if run.late:
        assert run.status == 0, run.text
        return
    assert run.status == 128 + case.number, (run.status, run.text)
    assert run.seconds < SOON, run.text
    if run.listened and not (case.target == "launcher" and case.number == signal.SIGKILL):
        assert len(run.words) == 1 and "Traceback" not in run.text, run.text
    for folder in set(tmp_path.glob("runs/*")) - {tmp_path / "runs" / "lessons"}:
        assert (folder / "metrics.jsonl").exists()
