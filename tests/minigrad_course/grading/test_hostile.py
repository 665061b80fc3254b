"""Laws of lessons/minigrad_course/grading/grade.py, restricted_comm.py and
lessons/minigrad_course/grading/worker/worker.py: what a submission breaks costs its own points; all else
is graded, and so is the next file.
"""

import os
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from minigrad_course.grading import find_assignment
from minigrad_course.grading.grade import START_SECONDS, SubmissionFile, grade
from minigrad_course.grading.restricted_comm import RestrictedComm
from minigrad_course.grading.sandbox import protections

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.process.sweep import MARK

from .conftest import DOUBLE, TOTAL, messages, scores

STOLEN = Path(tempfile.gettempdir()) / f"stolen-{os.getpid()}"  # outside of a submission's folder
SEED = 987654321
HOSTILE_SECONDS = 4  # of a task: some texts use it up
SANDBOXED = {"seccomp", "namespaces"} <= set(protections())
sandboxed = pytest.mark.skipif(not SANDBOXED, reason="needs seccomp and namespaces")

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

# Honest mistakes, name: (text, words about the task that lost)
MISTAKES = {
    "deadlock": (DEADLOCK + DOUBLE, "2 ranks, 1 elements: deadlock: no rank can go on"),
    "exit in a rank": ("def total(comm, x): raise SystemExit(0)\n" + DOUBLE, "left with exit(0)"),
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
    "lost message": (
        TOTAL.replace("return", "if comm.rank: comm.send(x, 0)\n    return") + DOUBLE,
        "messages were sent but never received",
    ),
    "a message to itself": ("def total(comm, x):\n    comm.send(x, comm.rank)\n" + DOUBLE, "sends itself"),
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
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_words(name, judged):
    text, words = MISTAKES[name]
    reason = judged(text, "total")
    assert reason is not None and words in reason, reason
    assert judged(text, "double") is None


FIRST = "deadlock"


@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.thorough) for name in MISTAKES if name != FIRST)]
)
def test_only_the_broken_task_loses_its_points(name, graded):
    text, words = MISTAKES[name]
    report = graded(text)
    assert scores(report) == [0, 40], messages(report)
    assert words in messages(report)[0], messages(report)


FAILS_AS_A_WHOLE = {
    "raises at import": ("1 / 0\n", "loading it: ZeroDivisionError: division by zero (line 1 of mine.py)"),
    "exits at import": ("raise SystemExit\n", "loading it: the program was left with exit"),
}


@pytest.mark.parametrize("name", FAILS_AS_A_WHOLE)
def test_nothing_is_given_for_what_cannot_be_loaded(name, graded):
    text, words = FAILS_AS_A_WHOLE[name]
    report = graded(text, "double")
    assert scores(report) == [0] and words in messages(report)[0], messages(report)


# Programs that take what they are not given; all are refused, and what they do is tried again below, unread

TAKEN = {  # name: (text, its words)
    "os._exit": ("import os\ndef total(comm, x): os._exit(0)\n", "line 1 imports os"),
    "sys.exit": ("import sys\ndef total(comm, x): sys.exit(0)\n", "line 1 imports sys"),
    "write": (f"def total(comm, x): open({str(STOLEN)!r}, 'w')\n", "line 1 uses open"),
    "answer imported": ("from backends.comm.collectives import ring_allreduce as total\n", "line 1 imports"),
    "answer re-exported": (
        "import backends.comm as c\ntotal = c.allreduce\n",
        "line 1 imports backends.comm",
    ),
    "answer of another": ("from minigrad.lr_schedules import *\n", "line 1 imports minigrad.lr_schedules"),
    "another's function": ("from backends.grid import check_grid as total\n", "line 1 imports backends.grid"),
    "its caller's frame": (
        "def total(comm, x):\n    try: 1 / 0\n    except ZeroDivisionError as e:\n"
        "        return getattr(e.__traceback__, 'tb_' + 'frame').f_back.f_locals['wanted']\n",
        "line 4",
    ),
    "its caller's frame by a generator": (
        "def total(comm, x):\n    def rows(): yield\n    return rows().gi_frame\n",
        "line 3 uses .gi_frame",
    ),
    "its caller's frame by logging": (
        "import logging\ndef total(comm, x): return logging.currentframe().f_back\n",
        "line 1 imports logging",
    ),
    "every frame by a pool": (
        "import sys\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "frames = ThreadPoolExecutor().submit(sys._current_frames).result()\n",
        "line 1 imports sys",
    ),
    "all objects": ("x = __builtins__['__import__']('gc').get_objects()\n", "line 1 uses __builtins__"),
    "what a method is bound to": (
        "def total(comm, x): return getattr(comm.send, '__se' + 'lf__')\n",
        "line 1 calls getattr with a name that only shows when it runs",
    ),
    "a method's globals": ("def total(comm, x): return comm.send.__func__\n", "line 1 uses .__func__"),
    "code that is compiled": ("f = compile('1', '<frozen x>', 'eval')\n", "line 1 uses compile"),
    "the shell by ctypes": (
        "import numpy as np\nnp.ctypeslib.ctypes.pythonapi['system'](b'true')\n",
        "line 2 uses .ctypes",
    ),
    "importlib": ("import importlib\n", "line 1 imports importlib"),
    "sys.modules": ("import sys\nx = list(sys.modules.values())\n", "line 1 imports sys"),
    "exec": ("exec('x = 1')\n", "line 1 uses exec"),
    "patches the assertion": (
        "import numpy as np\nnp.testing.assert_array_equal = lambda *a: None\n",
        "line 2 changes what it imports",
    ),
    "patches a class": ("from backends.comm import threads\nthreads.RankFailed.x = 1\n", "line 1 imports"),
    "patches threads": ("import threading\nthreading.Thread.run = print\n", "line 1 imports threading"),
    "patches a law": ("from backends import laws\n", "line 1 imports backends; import what"),
    "imports the grader": (
        "from minigrad_course.grading.counterexample import trouble\n",
        "line 1 imports minigrad_course.grading",
    ),
    "adds to NumPy": ("import numpy\nnumpy.kept = {}\n", "line 2"),
    "deletes the assignment": ("import os\nos.remove('tasks.py')\n", "line 1 imports os"),
    "a database": ("import sqlite3\nsqlite3.connect(':memory:')\n", "line 1 imports sqlite3"),
    "syntax": ("def total(comm, x:\n", "line 1 is not Python: '(' was never closed\n"),
    "a bell in a name": ("x = 'a\n\x07\x1b[2J'\n", "line 1 is not Python: unterminated string literal"),
}


def test_what_takes_more_than_it_is_given_is_told_so_once_and_nothing_of_it_runs(toys, tmp_path):
    for name, (text, words) in TAKEN.items():
        file = tmp_path / "mine.py"
        file.write_text(text + TOTAL + DOUBLE, encoding="utf-8")
        heard = []
        report = grade(find_assignment("a1", toys), SubmissionFile.read(file), on_result=heard.append)
        assert scores(report) == [0, 0] and words in report.refused, (name, report.refused)
        assert heard == [] and {*messages(report)} == {"was not tried: nothing of the file was run"}
        assert "\x1b" not in report.refused and "\x07" not in report.refused
    assert not STOLEN.exists()


# The same and worse, run without being read: the process itself holds


@pytest.fixture
def unread(toys, tmp_path, monkeypatch):
    """Grades the toy's second task, without a look at the text."""
    toy = find_assignment("a1", toys).only("double")
    monkeypatch.setattr("minigrad_course.grading.grade.check_in_process", lambda source, starter: None)

    def unread(text, **settings):
        submission = SubmissionFile(tmp_path / "mine.py", text, "")
        return grade(toy, submission, **{"task_seconds": 20, "seed": SEED, **settings})

    return unread


def graded_at_once(names: list[str], texts: dict[str, str], unread) -> dict[str, Any]:
    """The reports of these texts by their names.

    Three are graded at a time: some wait until their time is up.
    """

    def report(name):
        double = "" if "def double" in texts[name] else "def double(x): return x\n"
        return unread(FIND + texts[name] + double, task_seconds=HOSTILE_SECONDS)

    with ThreadPoolExecutor(3) as executor:
        return dict(zip(names, executor.map(report, names), strict=True))


FIND = """
import gc, os, sys, socket, signal
def find(kind):
    return [x for x in gc.get_objects() if type(x).__name__ == kind]
parents = [os.getppid()]
while parents[-1] > 1:
    try:
        parents.append(int(open(f"/proc/{parents[-1]}/stat").read().rpartition(")")[2].split()[1]))
    except OSError:
        break
def tried(*calls):
    for call in calls:
        try:
            print("done:", call(), flush=True)
        except BaseException as error:
            print(type(error).__name__, flush=True)
"""

AGAINST_THE_GRADER = {  # each may stop a grader that shares a machine with it
    "ends, stops and limits all that it can name": """
import resource, threading
for pid in [*parents[:3], -1, 0]:
    for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGINT):
        tried(lambda: os.kill(pid, number), lambda: os.killpg(max(pid, 0), number),
              lambda: signal.pidfd_send_signal(os.pidfd_open(pid), number))
    tried(lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)))
""",
    "forks without end": """
def bomb():
    while True: os.fork()
tried(bomb)
""",
    "prints without end": "while True: print('x' * 10**6)\n",
    "writes on every descriptor": """
for place in range(1, 64):
    tried(lambda: os.write(place, b"passed ''\\n" * 10))
""",
    "says that it is gigantic": """
for line in [x for x in gc.get_objects() if isinstance(x, socket.socket)]:
    tried(lambda: line.sendall(b"\\xff" * 12 + b"x" * 10**6))
""",
    "nests its words": """
for line in [x for x in gc.get_objects() if isinstance(x, socket.socket)]:
    deep = b"[" * 10**6
    tried(lambda: line.sendall(len(deep).to_bytes(4, "big") + bytes(8) + deep))
""",
    "returns what is gigantic": "def double(x): return b'x' * 10**8\n",
    "returns a list in a list": """
def double(x):
    for _ in range(10**5): x = [x]
    return x
""",
    "returns itself": "def double(x):\n    x = []\n    x.append(x)\n    return x\n",
    "returns without end": "def double(x):\n    while True: yield x\n",
    "raises gigantic words": "def double(x): raise ValueError('x' * 10**8)\n",
    "raises what raises when it is said": """
class E(BaseException):
    def __str__(self): raise E
    __repr__ = __str__
def double(x): raise E
""",
    "has gigantic names": "globals().update({'x' * 10**4 + str(n): n for n in range(10**4)})\n",
    "ends by a fault": """
import faulthandler
def double(x): faulthandler._sigsegv()
""",
    "calls itself without end": "def double(x): return double(x)\n",
    "takes all threads": """
import threading, time
started = []
def one():
    started.append(threading.Thread(target=time.sleep, args=(99,)))
    started[-1].start()
tried(lambda: [one() for _ in range(9999)])
""",
    "takes all memory, shared": """
import mmap
held = []
tried(lambda: [held.append(mmap.mmap(-1, 2**28)) for _ in range(99)],
      lambda: [held.append(os.memfd_create(str(n))) or os.ftruncate(held[-1], 2**28) for n in range(99)])
def double(x):
    held = [bytearray(2**20) for _ in range(10**4)]
""",
}
GAINS_NOTHING = {  # name: a text that takes double for granted
    "the verdict in the player's own functions": """
import minigrad_course.grading.worker as worker, minigrad_course.grading.worker.rpc as rpc
worker.Worker.answer = lambda self, line, what, *parts: True
rpc.Serializer.encode = lambda self, value: True
""",
    "an answer for every question": """
for program in find("Worker"):
    tried(lambda: program.send("return", program.encode(None)))
    tried(lambda: program.send("raise", program.encode([["Wrong", "passed", None, None, None, False]])))
""",
    "asks the judge for what it has": """
for program in find("Worker"):
    for number in range(-3, 50):
        for question in (("call", number, [], {}), ("attribute", number, "__dict__"), ("name", "tasks"),
                         ("method", number, "__class__", [], {}), ("load", "1", "f"), ("items", number, 5)):
            tried(lambda: program.request(*question))
""",
    "what the grader looks at": """
import numpy, builtins, operator
numpy.testing.assert_array_equal = lambda *a, **k: None
numpy.array_equal = numpy.allclose = lambda *a, **k: True
builtins.AssertionError = ValueError
""",
    "an array that agrees with everything": """
import numpy as np
class Agrees(np.ndarray):
    __eq__ = __array_ufunc__ = lambda *a, **k: np.bool_(True)
    __ne__ = lambda *a: np.bool_(False)
    __array_function__ = lambda *a, **k: True
def double(x): return x.view(Agrees)
""",
    "an object that agrees with everything": """
class Agrees:
    __eq__ = __ne__ = __lt__ = __le__ = __array__ = lambda *a, **k: True
    __class__ = list
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __iter__(self): return iter([self])
def double(x): return Agrees()
""",
    "no number": "import numpy as np\ndef double(x): return np.full(len(x), np.nan)\n",
    "an array that changes later": """
import threading, time
def late(x):
    time.sleep(0.2)
    x *= 2
def double(x):
    threading.Thread(target=late, args=(x,)).start()
    return x
""",
    "the seed and others' files": """
import glob
for place in [*glob.glob("../*"), *glob.glob("/proc/*/[ce]*[ne]*"), "/etc/shadow"]:
    tried(lambda: open(place, "rb").read()[:2000])
print(os.environ, sys.argv)
""",
    "links and files": f"""
tried(lambda: os.symlink("/etc", "link"), lambda: os.mkdir("folder"), lambda: os.mkfifo("fifo"),
      lambda: open({str(STOLEN)!r}, "w"), lambda: os.utime("/tmp"),
      lambda: os.open(".", os.O_TMPFILE | os.O_RDWR))
""",
    "its own limits": """
import resource
for name in dir(resource):
    if name.startswith("RLIMIT"):
        tried(lambda: resource.setrlimit(getattr(resource, name), (2**40, 2**40)))
""",
    "leaves in the middle": "def double(x): os._exit(0)\n",
    "leaves as if it had passed": "import atexit\nprint('passed')\nos._exit(0)\n",
    "sleeps": "import time\ntime.sleep(99)\n",
    "works on when it has answered": """
import threading
def spin():
    while True: pass
def double(x):
    threading.Thread(target=spin).start()
    sys.setswitchinterval(10)
    return x
""",
    "hides in descriptors": """
for place in range(64):
    tried(lambda: os.dup2(1, place), lambda: os.close(place))
""",
    "a screen of its own": """
print("\\x1b[2J\\x1b]0;passed\\x07\\u202e100 of 100\\x00")
def double(x): raise ValueError("\\x1b[2J\\u202epassed")
""",
    "names that lie": """
class Wrong(AssertionError): pass
Wrong.__module__, Wrong.__qualname__ = "minigrad_course.grading.assignment", "Wrong"
def double(x): raise Wrong("passed ''")
""",
}


MORE_OF_A_KIND = {  # another text tries what each of these tries
    *("prints without end", "nests its words", "returns a list in a list", "raises gigantic words"),
    *("has gigantic names", "asks the judge for what it has", "its own limits"),
    *("sleeps", "works on when it has answered"),
}


def by_lane(names: Iterable[str]) -> list[Any]:
    """The names for ``parametrize``, in two lists: those of the quick lane, and all others."""
    first = [name for name in names if name not in MORE_OF_A_KIND]
    more = [name for name in names if name in MORE_OF_A_KIND]
    return [
        pytest.param(first, id="of every kind"),
        pytest.param(more, id="more", marks=pytest.mark.thorough),
    ]


@sandboxed
@pytest.mark.parametrize("names", by_lane(AGAINST_THE_GRADER))
def test_the_grader_goes_on_after(names, unread):
    bound = HOSTILE_SECONDS + START_SECONDS + 10  # what a task may take, and its end
    for name, report in graded_at_once(names, AGAINST_THE_GRADER, unread).items():
        (message,), (result,) = messages(report), report.results
        assert scores(report) == [0] and message, name
        assert result.seconds < bound, name
        assert len(message) < 5000 and len(result.output) <= 2000, name
    assert scores(unread(DOUBLE)) == [40]


@sandboxed
@pytest.mark.parametrize("names", by_lane(GAINS_NOTHING))
def test_nothing_is_gained_by(names, unread, monkeypatch):
    monkeypatch.setenv("TOKEN_OF_THE_GRADER", "much too secret")
    for name, report in graded_at_once(names, GAINS_NOTHING, unread).items():
        (message,), (result,) = messages(report), report.results
        output = result.output
        assert scores(report) == [0] and message, name
        assert str(SEED) not in output + message and "root:" not in output, name
        assert not {*"\x00\x07\x1b\u202e"} & {*output, *message} and "secret" not in output, name
    assert not STOLEN.exists()


HARMLESS = """\ufeffimport collections, dataclasses, numpy, time, typing, warnings

warnings.warn("here")
numpy.seterr(all="raise")
numpy.random.seed(1)
P = collections.namedtuple("P", "a")

class N(typing.NamedTuple):
    a: int

@dataclasses.dataclass
class D:
    a: "int"

try:
    1 / 0
except ZeroDivisionError as error:
    print(error, time.perf_counter(), P(1), N(2), D(3))
ranks = set()  # each rank has its own

def once(comm):
    ranks.add(comm.rank)
    assert len(ranks) == 1
"""


def test_what_does_no_harm_costs_nothing(graded):
    report = graded(HARMLESS + TOTAL.replace("    for", "    once(comm)\n    for", 1) + DOUBLE)
    assert scores(report) == [60, 40], (report.refused, messages(report))


def test_a_communicator_is_offered_without_what_is_behind_it():
    def work(comm):
        traced = Traced(comm)
        offered = RestrictedComm(traced)
        with pytest.raises(AttributeError, match="comm has no ledger here, only rank, size, send"):
            print(offered.ledger)
        offered.send(np.ones(2), 1 - comm.rank)
        assert (offered.rank, offered.size) == (comm.rank, 2) and (offered.recv(1 - comm.rank) == 1).all()
        assert traced.record.ledger.sent().messages == 1
        assert not hasattr(RestrictedComm(traced, ("recv",)), "send")

    run_ranks(2, work)


@pytest.mark.parametrize(
    "body", ["while True: pass", pytest.param("time.sleep(1000)", marks=pytest.mark.thorough)]
)
def test_what_never_ends_is_ended_and_says_where_it_was(body, graded):
    report = graded(f"import time\ndef total(comm, x):\n    {body}\n", "total", task_seconds=4)
    assert scores(report) == [0]
    assert messages(report)[0] == ("1 ranks, 1 elements: did not end in 4 s: rank 0 was at line 3 of mine.py")


def test_all_that_it_started_is_ended(unread):
    """A process that is started past Python's own hook, in a session of its own, is found by its mark."""
    text = """
import _posixsubprocess, os
read, write = os.pipe()
_posixsubprocess.fork_exec(
    [b"/bin/sleep", b"987"], [b"/bin/sleep"], True, (), None, None, -1, -1, -1, -1, -1, -1,
    read, write, True, True, -1, None, None, None, -1, None, True)
"""
    assert len(scores(unread(text + DOUBLE))) == 1
    end = time.monotonic() + 60
    while left := [folder for folder in Path("/proc").glob("[0-9]*") if is_sleep_of_a_task(folder)]:
        assert time.monotonic() < end, left
        time.sleep(0.02)


def is_sleep_of_a_task(folder):
    """Whether this folder of /proc is of a process that sleeps for 987 s and was started by a task."""
    try:
        command, variables = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
    except OSError:
        return False
    return command.startswith(b"/bin/sleep\x00987") and MARK.encode() in variables


def test_what_it_prints_is_cut_and_kept_apart(graded):
    flood = "def double(x):\n    print('junk ' * 1000, 'last words')\n    return x\n"
    report = graded("print('passed')\n" + flood, "double")
    assert scores(report) == [0]
    output = report.results[0].output
    assert output.endswith("last words") and len(output) <= 2000


def test_more_output_than_a_disk_should_take_is_its_own_error(graded):
    report = graded("def double(x):\n    while True: print('x' * 10**6)\n", "double")
    assert scores(report) == [0] and "Broken pipe" in messages(report)[0]


def test_a_submission_that_keeps_state_is_called_flaky_in_words(judged):
    """One that is wrong on its third call only, whatever it is called with."""
    text = "calls = []\ndef double(x):\n    calls.append(1)\n    return x if len(calls) == 3 else 2 * x\n"
    assert "passed when it was tried again" in judged(text, "double")


def test_an_error_of_the_system_that_it_raises_is_its_own(graded):
    report = graded("def double(x): raise TimeoutError('too late')\n", "double")
    assert messages(report) == ["1 ranks, 1 elements: TimeoutError: too late (line 1 of mine.py)"]


def test_standard_input_is_empty_and_so_is_the_folder(unread):
    text = "import os, sys\nassert sys.stdin.read() == '' and os.getcwd().endswith('work')\n"
    assert scores(unread(text + DOUBLE)) == [40]
