"""Laws of lessons/minigrad_course/grading/sandbox.py and
lessons/minigrad_course/grading/worker/sandbox.py: what holds around the process of a
submission, each protection by itself.
"""

import json
import subprocess
import sys

import pytest
from minigrad_course.grading import sandbox
from minigrad_course.grading.sandbox import ISOLATED, prefix, protections, worker_paths

from backends.cli.doctor import examine

LINUX = sys.platform == "linux"
HELD = protections() if LINUX else ()
needs = {
    name: pytest.mark.skipif(
        not any(one.startswith(name) for one in HELD), reason=f"no {name} on this machine"
    )
    for name in ("Landlock", "seccomp", "namespaces")
}

# Runs in the sandbox, with Python's own hook left out: what is refused is refused by the system
PROGRAM = """
import ctypes, json, mmap, os, resource, signal, socket, sys, threading, time
victim, without, mine = int(sys.argv[2]), sys.argv[3], sys.argv[4]
sys.path += json.loads(sys.argv[1])
import _posixsubprocess, numpy.linalg
from worker import sandbox
sandbox.add_audit_hook = lambda reading: None
if without == "Landlock":
    sandbox.restrict_files = lambda paths: 0
if without == "seccomp":
    sandbox.filter_system_calls = lambda reading: False
sandbox.preload([])
held = sandbox.enter(448, 30)
read, write = 0, 1

def fork_exec():
    return _posixsubprocess.fork_exec(
        [b"/bin/true"], [b"/bin/true"], True, (), None, None, -1, -1, -1, -1, -1, -1, 0, 1, True, True,
        -1, None, None, None, -1, None, True)

def thread():
    done = []
    started = threading.Thread(target=done.append, args=(1,))
    started.start()
    started.join()
    return done[0]

ATTEMPTS = {
    "kill": lambda: os.kill(victim, 0),
    "stop": lambda: os.kill(victim, signal.SIGSTOP),
    "kill all": lambda: os.killpg(os.getpgid(victim), 0),
    "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGSTOP),
    "limit of another": lambda: resource.prlimit(victim, resource.RLIMIT_CPU, (1, 1)),
    "own limit": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    "priority of another": lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    "cores of another": lambda: os.sched_setaffinity(victim, {0}),
    "tcp": lambda: socket.create_connection(("127.0.0.1", 9), 1),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("127.0.0.1", 9)),
    "socket pair": lambda: socket.socketpair()[0].fileno(),
    "fork": lambda: os.fork() or os._exit(0),
    "fork and exec": fork_exec,
    "shell": lambda: 1 / (os.system("true") == 0),
    "write here": lambda: os.open("file", os.O_CREAT | os.O_WRONLY),
    "write outside": lambda: os.open(mine, os.O_WRONLY),
    "append": lambda: os.open(mine, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda: os.truncate(mine, 0),
    "folder": lambda: os.mkdir("folder"),
    "pipe file": lambda: os.mkfifo("fifo"),
    "symbolic link": lambda: os.symlink("/", "link"),
    "hard link": lambda: os.link(mine, "hard"),
    "rename": lambda: os.rename(mine, mine + "x"),
    "remove": lambda: os.remove(mine),
    "times": lambda: os.utime(mine, (1, 1)),
    "mode": lambda: os.chmod(mine, 0o777),
    "another's file": lambda: open(mine).read(),
    "a file of Python's own": lambda: open(json.__file__).read(),
    "a module that is not imported yet": lambda: __import__("wave"),
    "passwords": lambda: open("/etc/shadow").read(),
    "home": lambda: os.listdir(os.path.expanduser("~")),
    "processes": lambda: os.listdir("/proc"),
    "another's environment": lambda: open(f"/proc/{victim}/environ").read(),
    "another's memory": lambda: open(f"/proc/{victim}/mem", "rb").read(1),
    "its own memory": lambda: open("/proc/self/mem", "rb").read(1),
    "shared memory": lambda: mmap.mmap(-1, 1 << 20).close(),
    "memory in a file": lambda: os.ftruncate(os.memfd_create("m"), 1 << 30),
    "much shared memory": lambda: mmap.mmap(-1, 3 << 30),
    "much memory": lambda: bytearray(3 << 30),
    "new session": lambda: os.setsid(),
    "many files": lambda: [os.dup(0) for _ in range(100)],
    "thread": thread,
    "number": lambda: os.urandom(1),
    "sleep": lambda: time.sleep(0.001),
    "array": lambda: __import__("numpy").linalg.norm([3.0, 4.0]),
}
done = []
for name, attempt in ATTEMPTS.items():
    try:
        attempt()
        done.append(name)
    except BaseException as error:
        pass
print(json.dumps([held, done]))
os._exit(0)
"""
HARMLESS = {"thread", "number", "sleep", "array"}
FILES = """write here,write outside,append,truncate,folder,pipe file,symbolic link,hard link,rename,remove,
another's file,a file of Python's own,a module that is not imported yet,passwords,home,processes,
another's environment,another's memory,its own memory"""


@pytest.fixture
def attempts(tmp_path):
    """Runs PROGRAM against a process that waits and a file; what held, and what could be done."""
    (tmp_path / "work").mkdir()
    mine = tmp_path / "mine"
    mine.write_text("kept", encoding="utf-8")
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)

    def attempts(without="", before=()):
        command = [*before, *ISOLATED, PROGRAM, worker_paths(), str(victim.pid), without, str(mine)]
        process = subprocess.run(
            command, cwd=tmp_path / "work", capture_output=True, encoding="utf-8", timeout=60
        )
        assert process.returncode == 0, process.stderr
        active, done = json.loads(process.stdout)
        return active, {*done}

    yield attempts
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(victim.pid)], capture_output=True, encoding="utf-8"
    )
    victim.kill()
    victim.wait()
    assert mine.read_text(encoding="utf-8") == "kept" and state.stdout.strip()[:1] in ("S", "R")
    assert not list((tmp_path / "work").iterdir())


@needs["Landlock"]
@needs["seccomp"]
def test_behind_all_protections_only_what_is_harmless_is_done(attempts):
    active, done = attempts()
    assert done == HARMLESS, done ^ HARMLESS
    assert {"memory, time and files", "no new privileges", "seccomp"} <= {*active}


@needs["seccomp"]
def test_behind_seccomp_alone_only_what_is_harmless_is_done(attempts):
    active, done = attempts(without="Landlock")
    assert done == HARMLESS, done ^ HARMLESS
    assert not any(one.startswith("Landlock") for one in active)


@needs["Landlock"]
def test_behind_landlock_alone_files_and_other_processes_are_safe(attempts):
    active, done = attempts(without="seccomp")
    version = int(next(one for one in active if one.startswith("Landlock")).split()[1])
    forbidden = {name.strip() for name in FILES.split(",")} | {
        "much memory",
        "much shared memory",
        "memory in a file",
    }
    forbidden |= {"kill", "stop", "kill all", "pidfd"} if version >= 6 else set()
    forbidden |= {"tcp"} if version >= 4 else set()
    assert not done & forbidden, done & forbidden
    assert done >= HARMLESS


@needs["namespaces"]
def test_in_namespaces_of_its_own_it_sees_no_other_process_and_no_network(attempts):
    """The number of an outer process is nobody's there, or another process's."""
    _, done = attempts(without="seccomp", before=prefix())
    assert not done & {
        "kill",
        "stop",
        "kill all",
        "pidfd",
        "limit of another",
        "priority of another",
        "tcp",
        "udp",
    }


def test_what_holds_is_said_by_the_doctor_and_found_once():
    row = next(finding for finding in examine() if finding.what == "grading")
    assert all(one in row.state for one in protections()) and "audit hook" in row.state
    assert protections() is protections() and prefix() is prefix()
    missing = not any(one.startswith("seccomp") for one in protections())
    assert bool(row.remedy) == (LINUX and (missing or not prefix()))


def test_where_there_is_no_unshare_there_is_no_prefix(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    assert sandbox.prefix.__wrapped__() == ()
    monkeypatch.setattr(sandbox.shutil, "which", lambda name: "/usr/bin/unshare")
    monkeypatch.setattr(sandbox, "WAYS", (("false",), ("env",)))
    assert sandbox.prefix.__wrapped__() == ("env", "--")


@pytest.mark.parametrize(
    ("names", "weak"),
    [(("audit hook",), True), (("seccomp", "audit hook"), False), (("Landlock 5", "audit hook"), False)],
)
def test_where_the_system_hides_no_files_the_reports_say_so(names, weak, monkeypatch):
    monkeypatch.setattr(sandbox, "protections", lambda: names)
    assert bool(sandbox.weakness()) == weak and "\n" not in sandbox.weakness()
