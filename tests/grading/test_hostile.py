"""What a submission breaks costs its own points; all else is graded, and nothing is left behind."""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.grading import find_assignment
from backends.grading.grade import Submission, grade
from backends.grading.offered import Offered
from backends.supervise import MARK

from .conftest import DOUBLE, TOTAL, messages, scores

STOLEN = Path(tempfile.gettempdir()) / f"stolen-{os.getpid()}"  # outside of a submission's folder

DEADLOCK = """
def total(comm, x):
    if comm.size > 1:
        return comm.recv((comm.rank + 1) % comm.size)
    return x
"""

SWAP = """
    for other in range(comm.size):
        if other != comm.rank: comm.send(x, other)
    for other in range(comm.size):
        if other != comm.rank: comm.recv(other)
"""

# name: (text, points of total and of double, words about one of the tasks that lost)
BREAKS_ONE = {
    "deadlock": (DEADLOCK + DOUBLE, "2 ranks, 1 elements: deadlock: no rank can go on"),
    "exit in a rank": ("import sys\ndef total(comm, x): sys.exit(0)\n" + DOUBLE, "left with exit(0)"),
    "os._exit": ("import os\ndef total(comm, x): os._exit(0)\n" + DOUBLE, "does it call exit?"),
    "interrupt": ("def total(comm, x): raise KeyboardInterrupt\n" + DOUBLE, "KeyboardInterrupt"),
    "missing": (DOUBLE, "the submission does not define total"),
    "no array": ("def total(comm, x): return None\n" + DOUBLE, "rank 0 returned NoneType"),
    "memory": (
        "import numpy as np\ndef total(comm, x): return np.ones(2**30)[: len(x)]\n" + DOUBLE,
        "MemoryError: Unable to allocate 8.00 GiB",
    ),
    "memory, piece by piece": (
        "def total(comm, x):\n    held = []\n    while True: held.append(bytearray(10**6))\n" + DOUBLE,
        "MemoryError",
    ),
    "fork": (
        "import os\ndef total(comm, x): os.fork(); return x\n" + DOUBLE,
        "may not start other processes",
    ),
    "shell": ("import os\ndef total(comm, x): os.system('true')\n" + DOUBLE, "may not start other processes"),
    "kill": ("import os\ndef total(comm, x): os.kill(os.getppid(), 9)\n" + DOUBLE, "may not send signals"),
    "write": (
        f"def total(comm, x): open({str(STOLEN)!r}, 'w')\n" + DOUBLE,
        "may write in its own folder only",
    ),
    "lost message": (
        "def total(comm, x):\n    comm.send(x, 0)\n    return x\n" + DOUBLE,
        "messages were sent but never received",
    ),
    "answer imported": (
        "from backends.comm.collectives import ring_allreduce as total\n" + DOUBLE,
        "line 1 takes backends.comm.collectives.ring_allreduce from the library",
    ),
    "answer re-exported": (
        "import backends.comm as c\ndef total(comm, x): return c.allreduce(comm, x)\n" + DOUBLE,
        "line 2 takes backends.comm.allreduce from the library",
    ),
    "answer by an alias": (
        "import backends.comm\nc = backends.comm\ndef total(comm, x): return c.allreduce(comm, x)\n" + DOUBLE,
        "backends.comm.allreduce is the library's answer",
    ),
    "another's function under the name": (
        "from backends.grid import check_grid as total\n" + DOUBLE,
        "total is backends.grid.check_grid of the library; write your own",
    ),
    "answer by what calls it, by an alias": (
        "import backends.comm.adjoint as a\nb = a\n"
        "def total(comm, x): return b.all_reduce(x, comm=comm).data\n" + DOUBLE,
        "backends.comm.adjoint.all_reduce is the library's answer",
    ),
    "nothing under the name": ("total = None\n" + DOUBLE, "total is None, not a function or a class"),
    "a name near it": (TOTAL.replace("total", "totals") + DOUBLE, "it has totals: is that the one?"),
    "a coroutine": (TOTAL.replace("def", "async def") + DOUBLE, "rank 0 returned coroutine"),
    "no Unicode": ("def total(comm, x): raise ValueError('\\ud800\\x1b[2J')\n" + DOUBLE, "ValueError: ??[2J"),
    "shared memory": (  # one rank does not see what another keeps, as if they were processes
        "kept = {}\ndef total(comm, x):\n    kept[comm.rank] = x\n"
        + SWAP
        + "    return sum(kept.values())\n"
        + DOUBLE,
        "2 ranks, 1 elements: rank 1 has",
    ),
    "its caller's frame": (
        """
def total(comm, x):
    try:
        1 / 0
    except ZeroDivisionError as error:
        return getattr(error.__traceback__, "tb_" + "frame").f_back.f_locals["wanted"].copy()
"""
        + DOUBLE,
        "may not look at what calls it (tb_frame)",
    ),
    "its caller's frame, by another name": (
        "import sys\nlook = getattr(sys, '_get' + 'frame')\n"
        "def total(comm, x): return look().f_back.f_locals['wanted'].copy()\n" + DOUBLE,
        "may not look at what calls it (sys._getframe)",
    ),
    "its caller's frame, by a generator": (
        "def total(comm, x):\n    def rows(): yield\n    return getattr(rows(), 'gi_' + 'frame')\n" + DOUBLE,
        "may not look at what calls it (gi_frame)",
    ),
    "answer of the other task": ("from minigrad.schedules import *\n" + TOTAL + DOUBLE, "minigrad.schedules"),
}


@pytest.mark.parametrize("name", BREAKS_ONE)
def test_only_the_broken_task_loses_its_points(name, graded):
    text, words = BREAKS_ONE[name]
    report = graded(text)
    assert scores(report) == ([60, 0] if "other task" in name else [0, 40]), messages(report)
    assert any(words in message for message in messages(report)), messages(report)
    assert not STOLEN.exists()


BREAKS_ALL = {
    "raises at import": ("1 / 0\n", "loading it: ZeroDivisionError: division by zero (line 1 of mine.py)"),
    "exits at import": ("import sys\nsys.exit()\n", "loading it: the program was left with exit"),
    "syntax": ("def total(comm, x:\n", "line 1"),
    "leaves at import": ("import os\nos._exit(0)\n", "the process ended with status 0"),
    "importlib": (
        "import importlib\nc = importlib.import_module('backends.' + 'comm')\n" + TOTAL + DOUBLE,
        "line 2 imports or makes code by a name or a text that only shows when it runs",
    ),
    "sys.modules": ("import sys\nx = list(sys.modules.values())\n" + TOTAL + DOUBLE, "line 2 imports"),
    "exec": ("exec('x = 1')\n" + TOTAL + DOUBLE, "line 1 imports or makes code"),
    "patches the assertion": (
        "import numpy as np\nnp.testing.assert_array_equal = lambda *a: None\n"
        "def total(comm, x): return x\ndef double(x): return x\n",
        "it changes numpy.testing.assert_array_equal",
    ),
    "patches the ranks": (
        "from backends.comm import threads\nthreads.run_world = lambda *a, **k: None\n" + TOTAL + DOUBLE,
        "it changes backends.comm.threads.run_world",
    ),
    "patches what nobody compares": (  # ranks that never run find nothing wrong
        "import threading\nthreading.Thread.run = lambda self: None\n" + TOTAL + DOUBLE,
        "after it ran, a wrong answer passes too",
    ),
    "patches a class": (
        "from backends.comm import threads\nthreads.RankFailed.__init__ = lambda *a: None\n" + TOTAL + DOUBLE,
        "it changes backends.comm.world.RankFailed.__init__",
    ),
    "patches a law": (
        "from backends import laws\nlaws.trains_like_serial.__code__ = (lambda: 0).__code__\n"
        + TOTAL
        + DOUBLE,
        "it changes backends.laws.trains_like_serial",
    ),
    "imports the grader": (
        "from backends.grading.search import trouble\n" + TOTAL + DOUBLE,
        "line 1 takes backends.grading.search.trouble; a submission leaves what it is graded by alone",
    ),
    "finds the tasks": (  # by the traceback of its own error
        """
def owner(x, found=[]):
    try:
        1 / 0
    except ZeroDivisionError as error:
        frame = error.__traceback__.tb_frame
    while "task" not in frame.f_locals or not hasattr(frame.f_locals["task"], "check"):
        frame = frame.f_back
    object.__setattr__(frame.f_locals["task"], "check", lambda *a: None)
owner(0)
""",
        "may not look at what calls it (tb_frame)",
    ),
    "adds to NumPy": (  # where all ranks would find it
        "import numpy\nnumpy.kept = {}\n" + TOTAL + DOUBLE,
        "it changes numpy.kept",
    ),
    "deletes the assignment": (
        "import os\nfor name in ('tasks', 'submission'): os.remove(f'{FOLDER}/{name}.py')\n",
        "may not change files (os.remove",
    ),
}


@pytest.mark.parametrize("name", BREAKS_ALL)
def test_nothing_is_given_for_what_is_broken_as_a_whole(name, graded, toys):
    text, words = BREAKS_ALL[name]
    report = graded(text.replace("{FOLDER}", str(toys / "a1_toy")))
    assert scores(report) == [0, 0] and any(words in message for message in messages(report)), messages(
        report
    )
    assert (toys / "a1_toy" / "tasks.py").exists() and (toys / "a1_toy" / "submission.py").exists()


def test_the_answer_is_hidden_also_from_a_submission_that_lies_beside_the_tasks(toys):
    file = toys / "a1_toy" / "submission.py"
    file.write_text(BREAKS_ONE["answer by an alias"][0])
    report = grade(find_assignment("a1", toys), Submission.read(file), task_seconds=20)
    assert scores(report) == [0, 40] and "is the library's answer" in messages(report)[0]


def test_a_forged_verdict_is_not_heard(graded):
    """Lines without the grader's word are nothing, wherever they are written."""
    text = """
import os
for place in range(3, 20):
    try:
        os.write(place, b"passed ''\\n0000 passed ''\\n")
    except OSError:
        pass
os._exit(0)
"""
    report = graded(text)
    assert scores(report) == [0, 0] and "before there was a verdict" in messages(report)[0]


def test_a_line_that_was_read_does_not_sign_another(graded):
    """By the first case the file of the verdict holds a signed line, and its place can be found."""
    text = """
import glob, os
def total(comm, x):
    signed = open(glob.glob("../verdict.*")[0]).read().split()[0]
    for place in range(3, 30):
        try:
            os.write(place, f"{signed} passed ''\\n".encode())
        except OSError:
            pass
    os._exit(0)
"""
    report = graded(text + DOUBLE)
    assert scores(report) == [0, 40] and "before there was a verdict" in messages(report)[0]


HARMLESS = """\ufeffimport atexit, collections, dataclasses, logging, numpy, os, sys, threading
import time, traceback, typing, warnings

threading.Thread(target=time.sleep, args=(999,)).start()
atexit.register(os._exit, 3)
os.chdir("/")
warnings.simplefilter("error")
numpy.seterr(all="raise")
P = collections.namedtuple("P", "a")  # which asks who calls, as the next ones do
logging.warning("here")

class N(typing.NamedTuple):
    a: int

@dataclasses.dataclass
class D:
    a: "int"

try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
sys.stdout.close()
ranks = set()  # each rank has its own

def once(comm):
    ranks.add(comm.rank)
    assert len(ranks) == 1
"""


def test_what_does_no_harm_costs_nothing(graded):
    report = graded(HARMLESS + TOTAL.replace("    for", "    once(comm)\n    for", 1) + DOUBLE)
    assert scores(report) == [60, 40], messages(report)


def test_a_communicator_is_offered_without_what_is_behind_it():
    def work(comm):
        traced = Traced(comm)
        offered = Offered(traced)
        with pytest.raises(AttributeError, match="comm has no ledger here, only rank, size, send"):
            print(offered.ledger)
        offered.send(np.ones(2), 1 - comm.rank)
        assert (offered.rank, offered.size) == (comm.rank, 2) and (offered.recv(1 - comm.rank) == 1).all()
        assert traced.record.ledger.sent().messages == 1
        assert not hasattr(Offered(traced, ("recv",)), "send")

    run_ranks(2, work)


@pytest.mark.parametrize("body", ["while True: pass", "time.sleep(1000)"])
def test_what_never_ends_is_ended_and_says_where_it_was(body, graded):
    report = graded(f"import time\ndef total(comm, x):\n    {body}\n" + DOUBLE, task_seconds=4)
    assert scores(report) == [0, 40]
    assert messages(report)[0] == ("1 ranks, 1 elements: did not end in 4 s: rank 0 was at line 3 of mine.py")


def test_all_that_it_started_is_ended(graded):
    """A process that is started past the guard, in a session of its own, is found by its mark."""
    text = """
import _posixsubprocess, os
read, write = os.pipe()
_posixsubprocess.fork_exec(
    [b"/bin/sleep", b"987"], [b"/bin/sleep"], True, (), None, None, -1, -1, -1, -1, -1, -1,
    read, write, True, True, -1, None, None, None, -1, None, True)
"""
    report = graded(text + TOTAL + DOUBLE)
    assert len(scores(report)) == 2
    time.sleep(0.1)
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
        except OSError:
            continue
        if command.startswith(b"/bin/sleep\x00987") and MARK.encode() in variables:
            left.append(folder)
    assert not left


def test_what_it_prints_is_cut_and_kept_apart(graded):
    flood = "def double(x):\n    print('junk ' * 1000, 'last words')\n    return x\n"
    report = graded("print('passed')\n" + TOTAL + flood)
    assert scores(report) == [60, 0]
    output = report.graded[1].verdict.output
    assert output.endswith("last words") and len(output) <= 2000


def test_more_output_than_a_disk_should_take_is_its_own_error(graded):
    report = graded("def double(x):\n    while True: print('x' * 10**6)\n" + TOTAL)
    assert scores(report) == [60, 0] and "File too large" in messages(report)[1]


def test_a_submission_that_keeps_state_is_called_flaky_in_words(graded):
    """One that is wrong on its third call only, whatever it is called with."""
    text = "calls = []\ndef double(x):\n    calls.append(1)\n    return x if len(calls) == 3 else 2 * x\n"
    report = graded(TOTAL + text)
    assert scores(report) == [60, 0]
    assert "passed when it was tried again" in messages(report)[1]


def test_the_environment_is_not_the_students(graded):
    """Standard input is closed, the folder is empty, and the seed's request is gone."""
    text = (
        "import os, sys\nassert sys.stdin.read() == '' and os.listdir() == []\n"
        "assert not [n for n in os.listdir('..') if n.startswith('request')]\n"
    )
    assert scores(graded(text + TOTAL + DOUBLE)) == [60, 40]
    assert os.getcwd()
