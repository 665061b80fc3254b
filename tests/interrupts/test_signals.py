"""Laws of backends/process/signals.py: a signal ends a process also where the code that it
meets swallows the exception.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backends.process import signals
from backends.process.rank import stat_of
from tests.bugs.mutant import mutant

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys, time
from tests.bugs.mutant import mutant

signals = mutant("backends.process.signals", *{change!r})
signals.TIMEOUT = {seconds}

def kill():
    os.kill(os.getpid(), {number})

def main():
    {code}
    while True:
        time.sleep(0.01)

signals.guarded(main)
"""
WAIT = """import __main__, time
__main__.kill()
end = time.monotonic() + 0.2  # longer than REPEAT: the signal comes again
while time.monotonic() < end: time.sleep(0.01)
"""
BAR = """
import os, signal, time
from rich.console import Console
from backends.process.signals import guarded
from tests.bugs.mutant import mutant

class Terminal(Console):
    def show_cursor(self, show=True):
        shown = super().show_cursor(show)
        if not show:
            os.kill(os.getpid(), signal.SIGTERM)
        return shown

def main():
    bar = mutant("backends.cli.training", *{change!r}).progress_bar
    with bar(Terminal(force_terminal=True), 10, shown=True):
        time.sleep(5)

guarded(main)
"""
SWALLOWED = {
    "in an except": "\n    try: kill(), time.sleep(1)\n    except SystemExit: pass",
    "in a destructor": "\n    class Noisy:\n        def __del__(self): kill(), time.sleep(1)\n    Noisy()",
    "in an import": "import slow",
    "in an import that fails in another way": "\n    try: import broken\n    except ImportError: sys.exit(1)",
    "nowhere": "kill()",
}
SPAWNS = "\n    signals.uninterrupted(lambda: (kill(), time.sleep(0.2), print('spawned', file=sys.stderr)))"
REQUEST = """
    from backends.process.stop_request import StopRequest
    signals.uninterrupted(lambda: (kill(), time.sleep(0.01)))
    end = time.monotonic() + 2 * signals.TIMEOUT
    with StopRequest() as request:
        while request.number is None and time.monotonic() < end: time.sleep(0.01)
    print("heard", request.number, file=sys.stderr)
    os._exit(0)"""
BUGS = {
    "interrupts all": ("code is uninterrupted.__code__ or ", ""),
    "once only": ("os.kill(os.getpid(), number)\n            elif", "pass\n            elif"),
    "not handed on": ("elif callable(handler)", "elif False and callable(handler)"),
    "in imports too": ("and not postponed(frame)", ""),
}
CAUGHT = {
    "once only": ["in an except", "in a destructor"],
    "in imports too": ["in an import that fails in another way"],
}


def status(folder: Path, number: int, code: str, *change: tuple[str, str]) -> tuple[int, str]:
    """The exit status of a process whose main thread gets the signal in ``code``, and its words.

    With a ``change`` it gives up early, for only what happens before that is a part of the law.
    """
    (folder / "slow.py").write_text(WAIT, encoding="utf-8")
    broken = "".join(f"    {line}\n" for line in WAIT.splitlines())
    (folder / "broken.py").write_text(
        f"try:\n{broken}except BaseException:\n    raise ImportError from None\n", encoding="utf-8"
    )
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT.format(change=change, number=int(number), code=code, seconds=1.0 if change else 4.5),
        ],
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": ""},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    return run.returncode, run.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", SWALLOWED)
def test_a_swallowed_signal_ends_the_process(tmp_path, where, number):
    end, words = status(tmp_path, number, SWALLOWED[where])
    name = signal.Signals(number).name
    assert end == 128 + number and f"was interrupted by {name}; nothing was kept" in words, words


def test_what_is_uninterrupted_comes_to_its_end(tmp_path):
    end, words = status(tmp_path, signal.SIGTERM, SPAWNS)
    assert end == 143 and words.startswith("spawned\nminigrad: ")
    end, words = status(tmp_path, signal.SIGTERM, SPAWNS, BUGS["interrupts all"])
    assert "spawned" not in words


def test_a_signal_just_before_a_request_to_stop_is_heard(tmp_path):
    end, words = status(tmp_path, signal.SIGTERM, REQUEST)
    assert (end, words) == (0, "heard 15\n") or (end == 143 and "nothing was kept" in words), words
    broken = (status(tmp_path, signal.SIGTERM, REQUEST, BUGS["not handed on"])[1] for _ in range(3))
    assert any("it did not stop by itself" in words for words in broken)  # unless the request comes too late


def test_a_thread_that_reads_the_signal_after_the_request_began_hands_it_on(tmp_path):
    late = ("while number := source.read(1):", "while number := (source.read(1), time.sleep(0.2))[0]:")
    assert status(tmp_path, signal.SIGTERM, REQUEST, late) == (0, "heard 15\n")
    deaf = (" or number[0] in heard", "")
    assert status(tmp_path, signal.SIGTERM, REQUEST, late, deaf) == (0, "heard None\n")


def ends_with_its_cursor(*change: tuple[str, str]) -> bool:
    """Whether a process that gets a signal while its progress bar hides the cursor ends well and shows it."""
    run = subprocess.run(
        [sys.executable, "-c", BAR.format(change=change)],
        env={"PYTHONPATH": str(ROOT), "PATH": "", "TERM": "xterm"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    assert "\x1b[?25l" in run.stdout, run
    return run.returncode == 143 and run.stdout.rfind("\x1b[?25l") < run.stdout.rfind("\x1b[?25h")


def test_a_bar_that_is_interrupted_at_its_start_leaves_the_cursor():
    assert ends_with_its_cursor()
    assert not ends_with_its_cursor(("uninterrupted(start)", "start()"))


@pytest.mark.parametrize(("bug", "where"), [(bug, where) for bug, cases in CAUGHT.items() for where in cases])
def test_the_law_catches(tmp_path, bug, where):
    end, words = status(tmp_path, signal.SIGTERM, SWALLOWED[where], BUGS[bug])
    assert end != 143 or "nothing was kept" not in words, words


def leaves_no_descriptors(module, seconds: float) -> bool:
    """Whether commands that run one after the other in one process leave as many open files as before.

    They have ``seconds`` for it: a thread closes its end.
    """

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    for _ in range(10):
        module.guarded(lambda: None)
    end = time.monotonic() + seconds
    while opened() > before and time.monotonic() < end:
        time.sleep(0.01)
    return opened() <= before


def test_commands_in_one_process_leave_no_descriptors():
    signals.guarded(lambda: None)  # whatever is opened once
    assert leaves_no_descriptors(signals, seconds=20)


DESCRIPTOR_BUGS = {
    "the thread is not told": ("os.close(writer)", "pass"),
    "the thread keeps its end": ("open(reader,", "open(os.dup(reader),"),
}


@pytest.mark.parametrize("bug", DESCRIPTOR_BUGS)
def test_the_law_of_descriptors_catches(bug):
    assert not leaves_no_descriptors(mutant("backends.process.signals", DESCRIPTOR_BUGS[bug]), seconds=0.5)


AT_IMPORT = """
import os, signal, sys

class Kill:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.argv = ["minigrad", "lesson"]
sys.meta_path.insert(0, Kill())
from backends.__main__ import main
main()
"""


@pytest.mark.parametrize("name", ["backends.process", "faulthandler", "backends.process.signals", "typer"])
def test_a_signal_while_modules_are_loaded_ends_the_command_in_one_line(name):
    command = [sys.executable, "-c", AT_IMPORT.format(name=name)]
    run = subprocess.run(command, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, timeout=60)
    assert (run.returncode, run.stderr.count(b"\n")) == (130, 1), run
    words = b"starting or ending" if name != "typer" else b"nothing was kept"
    assert words in run.stderr, run


def test_a_process_that_a_signal_has_stopped_is_told_from_one_that_runs():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert stat_of(process.pid)[1] in ("R", "S", "D")
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert stat_of(process.pid) == (Path(sys.executable).name, "T")
    finally:
        process.kill()
        process.wait()
    assert stat_of(process.pid) == ("", "")
