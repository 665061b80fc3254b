"""Laws of backends/process/hang_report.py and rank.py: where no rank goes on, it names who stopped first,
who waits for whom, and the stacks of all ranks.
"""

import os
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cli import train as train_command
from backends.data_parallel import DataParallel
from backends.process import rank
from backends.process.hang_report import place_in, place_of_main_thread
from backends.process.sweep import MARK
from tests.backends.process.hang_laws import (
    does_not_return_from_python,
    leaves_out_a_barrier,
    names_the_rank_that_stopped_first,
    tells_apart_who_waits_and_who_does_not,
    waits_for_nobody,
)

places = st.integers(2, 4).flatmap(lambda ranks: st.tuples(st.just(ranks), st.integers(0, ranks - 1)))


@given(places, st.integers(0, 3), st.sampled_from([waits_for_nobody, leaves_out_a_barrier]))
def test_a_deadlock_names_the_rank_that_stopped_first(place, steps, stop):
    names_the_rank_that_stopped_first(stop, ranks=place[0], culprit=place[1], steps=steps)


@settings(max_examples=5)
@given(places, st.integers(0, 3))
def test_a_rank_that_does_not_return_from_python_is_named(place, steps):
    names_the_rank_that_stopped_first(
        does_not_return_from_python, ranks=place[0], culprit=place[1], steps=steps
    )


@st.composite
def wait_graphs(draw):
    ranks = draw(st.integers(1, 5))
    numbers = st.integers(0, ranks - 1)
    waits = st.tuples(st.sets(numbers, min_size=1), st.integers(0, 3).map(float))
    return draw(st.dictionaries(numbers, waits)), ranks


@given(wait_graphs())
def test_who_waits_longest_is_named_only_where_all_wait(graph):
    tells_apart_who_waits_and_who_does_not(*graph)


def test_a_rank_that_never_ends_does_not_keep_the_process(tmp_path):
    """Rank 0 runs on the main thread, where nothing can be raised while it sleeps."""
    script = (
        "import time\n"
        "from backends import run_on_ranks\n"
        "def work(comm):\n"
        "    comm.recv(0) if comm.rank else time.sleep(600)\n"
        "run_on_ranks(work)\n"
    )
    (tmp_path / "own.py").write_text(script, encoding="utf-8")
    variables = {**os.environ, "MINIGRAD_TIMEOUT": "0.2"}
    command = [sys.executable, "own.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, encoding="utf-8", timeout=100
    )
    assert ended.returncode == 1
    assert "rank 0 does not wait: it is at own.py:4, in work" in ended.stderr
    assert "rank 0 stopped first" in ended.stderr and "rank 1 waits, since" in ended.stderr
    assert 'own.py", line 4, in work' in ended.stderr


class Forgetful(DataParallel):
    """Rank 1 leaves its third update out: it waits for a message that nobody sends."""

    steps = 0

    def update(self, model, optimizer):
        self.steps += 1
        if self.steps == 3 and self.rank == 1:
            self.comm.recv(0, tag=99)
        super().update(model, optimizer)


def test_a_rank_without_a_launcher_of_minigrad_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(MARK, raising=False)
    rank.write_stacks_on_signal()
    assert not list(tmp_path.iterdir())


def test_a_training_leaves_the_stacks_beside_its_metrics(minigrad, tmp_path, monkeypatch):
    monkeypatch.setattr(train_command.Training, "backend", lambda config, comm: Forgetful(comm))
    train = ("train", "--net", "sigmoid", "--batch", "1000", "--epochs", "2", "--data", "2")
    status, _, errors = minigrad(*train, "--transport", "threads")
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} == {"metrics.jsonl", "stacks.txt"}
    said, head, *waits = errors.splitlines()
    assert status == 1 and head == "minigrad: deadlock: no rank can go on"
    assert said == f"minigrad: the stacks of all ranks are in runs/{folder.name}/stacks.txt"
    assert any("rank 1 waits to receive from rank 0 (tag 99)" in line for line in waits)
    stacks = (folder / "stacks.txt").read_text(encoding="utf-8")
    assert "rank 0\n" in stacks and "rank 1\n" in stacks and "in update" in stacks


FAULTHANDLER = """Thread 0x00007f16304986c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/own/signals.py", line 119 in wait

Current thread 0x00007f16311fdb80 (most recent call first):
  File "{library}/threading.py", line 7 in join
  File "/a b/own.py", line 8 in <listcomp>
  File "/own/rank.py", line 9 in main
"""


def test_the_place_of_a_thread_is_its_first_line_outside_of_python():
    text = FAULTHANDLER.format(library=os.path.dirname(os.__file__))
    assert place_of_main_thread(text, "/own/rank.py") == "own.py:8, in <listcomp>"
    assert place_of_main_thread(text, "/other/rank.py") == place_of_main_thread("", "/own/rank.py") == ""
    assert place_in([(os.__file__, 3, "wait")]) == "os.py:3, in wait"
