"""Programs that try to gain points without computing anything, each in its own way.

They run without the static check, so that only what is around a worker's process stands in their way. Each
defines ``total``, to which the library has an answer, or ``double``. What it gains it returns.
"""

from pathlib import Path

from minigrad_course.grading.assignment import FOLDER

ROOT = Path(__file__).parents[3]
RING = ROOT / "backends" / "comm" / "collectives" / "ring.py"
ANSWERS = FOLDER / "a2_allreduce" / "answers.py"

PRELUDE = f"""
import ctypes, gc, importlib, io, json, os, sys, threading
import numpy as np

ROOT, RING, ANSWERS = {str(ROOT)!r}, {str(RING)!r}, {str(ANSWERS)!r}

def total(comm, x):
    return x

def double(x):
    return x

def attempt(*ways):
    for way in ways:
        try:
            result = way()
        except BaseException:
            continue
        if result is not None:
            return result

def run(text):
    '''The library's answer, from its source or from that of the assignment's answers.'''
    if isinstance(text, bytes):
        text = text.decode()
    if text and "def " in text:
        print("STOLEN")
        exec(text, globals())
        globals()["total"] = globals().get("ring_allreduce", total)
"""

LIBC = """
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), *arguments)
def read_all(descriptor):
    buffer = ctypes.create_string_buffer(10**5)
    n = libc.read(descriptor, buffer, len(buffer))
    return buffer.raw[:n] if n > 0 else None
"""

CHANNEL = """
from worker.messages import pack
worker = next(x for x in gc.get_objects() if type(x).__name__ == "Worker")
def forge(kind, body, changes=([], []), unused=(), content=b"", line=None):
    worker.connection.sendall(pack([kind, changes, unused, line], json.dumps(body), content))
"""

READS_FILES = {
    "a path to import from": """
sys.path[:0] = [ROOT, ROOT + "/lessons", os.path.dirname(RING)]
importlib.invalidate_caches()
from backends.comm.collectives import ring_allreduce as total
""",
    "a loader of its own": """
import importlib.machinery, importlib.util
spec = importlib.util.spec_from_file_location("answers", ANSWERS)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
total = module.ring_allreduce
""",
    "a finder of its own": """
import importlib.machinery
sys.meta_path.insert(0, importlib.machinery.PathFinder)
sys.path_hooks.insert(0, importlib.machinery.FileFinder.path_hook(
    (importlib.machinery.SourceFileLoader, [".py"]), (importlib.machinery.SourcelessFileLoader, [".pyc"])))
sys.path.insert(0, ROOT)
from backends.comm.collectives.ring import ring_allreduce as total
""",
    "a package put together by hand": """
import types
for name in ("backends", "backends.comm", "backends.comm.collectives"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [ROOT + "/" + name.replace(".", "/")]
from backends.comm.collectives.ring import ring_allreduce as total
""",
    "bytecode": """
import marshal, glob
for file in glob.glob(os.path.dirname(RING) + "/__pycache__/ring*.pyc"):
    exec(marshal.loads(open(file, "rb").read()[16:]))
total = ring_allreduce
""",
    "every way of Python's to open a file": """
run(attempt(
    lambda: open(RING).read(), lambda: io.FileIO(RING).read(), lambda: io.open_code(RING).read(),
    lambda: os.read(os.open(RING, os.O_RDONLY), 10**5), lambda: io.open(RING.encode(), "rb").read(),
    lambda: open(os.open(os.path.dirname(RING), os.O_PATH), closefd=False) and None,
    lambda: os.read(os.open("ring.py", 0, dir_fd=os.open(os.path.dirname(RING), 0)), 10**5)))
""",
    "every way of NumPy's to open a file": """
run(attempt(
    lambda: np.fromfile(RING, np.uint8).tobytes(), lambda: np.memmap(RING, mode="r").tobytes(),
    lambda: "\\n".join(np.loadtxt(RING, str, delimiter="\\0", comments=None)),
    lambda: np.load(ANSWERS, allow_pickle=True), lambda: np.genfromtxt(RING, str, delimiter="\\0").tobytes()))
""",
    "modules that read sources": """
import linecache, tokenize
run(attempt(
    lambda: "".join(linecache.getlines(RING)) or None, lambda: tokenize.open(RING).read(),
    lambda: __import__("inspect").getsource(__import__("backends")),
    lambda: __import__("pkgutil").get_data("backends", "comm/collectives/ring.py"),
    lambda: __import__("pathlib").Path(RING).read_text(),
    lambda: __import__("fileinput").input(RING).readline(),
    lambda: __import__("runpy").run_path(ANSWERS),
    lambda: __import__("zipimport").zipimporter(ROOT).get_data(RING)))
""",
    "mapped memory": """
import mmap
run(attempt(lambda: mmap.mmap(os.open(RING, 0), 0, prot=mmap.PROT_READ)[:],
            lambda: mmap.mmap(3, 0)[:], lambda: mmap.mmap(4, 0)[:]))
""",
    "libraries in C that open files": """
run(attempt(
    lambda: __import__("readline").read_history_file(RING), lambda: __import__("sqlite3").connect(RING),
    lambda: __import__("ssl").create_default_context(cafile=RING),
    lambda: __import__("gdbm").open(RING), lambda: ctypes.CDLL(RING),
    lambda: np.ctypeslib.load_library("ring.py", os.path.dirname(RING))))
""",
    "the C library's open": LIBC + """
def by_fopen():
    libc.fopen.restype = ctypes.c_void_p
    stream, buffer = libc.fopen(RING.encode(), b"r"), ctypes.create_string_buffer(10**5)
    return stream and buffer.raw[:libc.fread(buffer, 1, 10**5, ctypes.c_void_p(stream))]
run(attempt(lambda: read_all(libc.open(RING.encode(), 0)), by_fopen,
            lambda: read_all(libc.openat(-100, RING.encode(), 0))))
""",
    "system calls that open files": LIBC + """
how = ctypes.create_string_buffer(24)
run(attempt(
    lambda: read_all(call(2, RING.encode(), 0, 0)), lambda: read_all(call(257, -100, RING.encode(), 0, 0)),
    lambda: read_all(call(437, -100, RING.encode(), how, 24)),
    lambda: read_all(call(428, -100, RING.encode(), 0)), lambda: read_all(call(304, -100, how, 0)),
    lambda: read_all(call(85, RING.encode(), 0))))
""",
    "rings of the kernel": LIBC + """
parameters = ctypes.create_string_buffer(120)
ring = call(425, 4, parameters)
if ring >= 0: print("STOLEN a ring")
""",
    "folders of processes": """
import glob
for place in ("/proc/self/root", "/proc/1/root", "/proc/thread-self/root", "/dev/fd", "/proc/self/cwd"):
    run(attempt(lambda: open(place + RING).read()))
for descriptor in range(64):
    run(attempt(lambda: open(f"/proc/self/fd/{descriptor}/" + RING).read()))
run(attempt(lambda: open(glob.glob("/proc/*/environ")[0]).read()))
""",
    "a process that prints the file": """
import subprocess
run(attempt(
    lambda: subprocess.run(["cat", RING], capture_output=True).stdout, lambda: os.popen("cat " + RING).read(),
    lambda: os.posix_spawn("/bin/cat", ["cat", RING], {}), lambda: os.fork() and None,
    lambda: os.execv("/bin/cat", ["cat", RING])))
""",
    "a process by system calls": LIBC + """
run(attempt(lambda: call(57) == 0 and os.execv("/bin/cat", ["cat", RING]) or None,
            lambda: call(58) == 0 and call(59, b"/bin/cat", None, None) or None,
            lambda: call(56, 0x11, None, None, None, None) == 0 and os._exit(0) or None))
""",
    "another root": LIBC + """
for number in (161, 155, 165, 166, 272, 308, 428, 429, 430, 431, 432, 442):
    if call(number, b"/", b"/", b"bind", 0x1000, None) == 0: print("STOLEN", number)
""",
}  # fmt: skip

LOOKS_AROUND = {
    "functions that are left in memory": """
for x in gc.get_objects():
    if getattr(x, "__name__", None) == "ring_allreduce" and callable(x): total = x
""",
    "modules that are left in memory": """
for name, module in [*sys.modules.items()]:
    if name.startswith(("backends", "minigrad")):
        for value in [*vars(module).values()]:
            if getattr(value, "__name__", "").endswith("allreduce"): total = value
""",
    "what the worker can load": """
worker = next(x for x in gc.get_objects() if type(x).__name__ == "Worker")
worker.load("from backends.comm.collectives import ring_allreduce as total\\n", "mine.py")
total = worker.module.total
""",
    "a pickle of the answer": """
import pickle
total = pickle.loads(b"cbackends.comm.collectives\\nring_allreduce\\n.")
""",
    "closures of the communicator": """
def total(comm, x):
    todo, seen = [comm, type(comm), comm.send], set()
    while todo:
        y = todo.pop()
        if id(y) in seen: continue
        seen.add(id(y))
        if type(y).__name__ == "Worker":
            y.load("from backends.comm.collectives import ring_allreduce as total\\n", "mine.py")
            return y.module.total(comm, x)
        for name in ("__func__", "__self__", "__closure__", "__globals__", "__dict__", "__wrapped__"):
            z = getattr(y, name, None)
            todo += [c.cell_contents for c in z] if name == "__closure__" and z else [z]
    return x
""",
    "attributes with an underscore": """
def total(comm, x):
    comm._channel.load("from backends.comm.collectives import ring_allreduce as total\\n", "mine.py")
    return total(comm, x)
""",
    "frames of its callers": """
def double(x):
    frame = sys._getframe()
    while frame is not None:
        for place in (frame.f_locals, frame.f_globals):
            for name in ("expected", "wanted", "right", "answers", "task", "case"):
                if name in place: return place[name]
        frame = frame.f_back
    return x
""",
    "who refers to its argument": """
def double(x):
    for y in gc.get_referrers(x):
        for z in gc.get_referents(y):
            if type(z) is np.ndarray and z.shape == x.shape and (z == 2 * x).all() and len(x) > 1:
                print("STOLEN")
                return z
    return x
""",
    "a trace of all that runs": """
lines = []
sys.setprofile(lambda frame, event, argument: lines.append(dict(frame.f_locals)))
def double(x):
    for place in lines:
        for name in ("expected", "wanted", "answer"):
            if name in place and type(place[name]) is np.ndarray: return place[name]
    return x
""",
    "the generator of the cases": """
from hypothesis import strategies
from minigrad_course.grading.counterexample import draw_cases
print("STOLEN")
""",
    "its environment and arguments": """
import json
settings = [*os.environ.values(), *sys.argv, *sys.orig_argv]
if any("secret" in text or "answers.py" in text for text in settings): print("STOLEN")
""",
    "memory that NumPy reads by an address": """
import enum
def memory(address, count):
    place = {"shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3}
    return np.asarray(enum.Enum("E", {"__array_interface__": place}))
def double(x):
    found = bytes(memory(id(x), 64)) + bytes(memory(id(double), 64))
    words = np.frombuffer(found, np.uint64)
    if any(np.uint64(id(m)) in words for n, m in sys.modules.items() if n.startswith("backends")):
        print("STOLEN")
    return x
""",
    "memory that NumPy writes by an address": """
import enum
def memory(address, count):
    place = {"shape": (count,), "typestr": "|u1", "data": (address, False), "version": 3}
    return np.asarray(enum.Enum("E", {"__array_interface__": place}))
def double(x):
    memory(id(True) + 24, 1)[0] = 1
    memory(id(False) + 24, 1)[0] = 1
    return x
""",
    "the memory of another process": LIBC + """
class Part(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
here, there = Part(ctypes.addressof(buffer), 8), Part(ctypes.addressof(buffer), 8)
for pid in (1, 2, os.getppid(), os.getppid() - 1, os.getpid() + 1):
    if call(310, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0: print("STOLEN memory of", pid)
    if call(101, 16, pid, None, None) == 0: print("STOLEN", pid)
    descriptor = call(434, pid, 0)
    if descriptor >= 0 and call(438, descriptor, 3, 0) >= 0: print("STOLEN a descriptor")
""",
}  # fmt: skip

BREAKS_THE_PROTOCOL = {
    "numbers of other objects": """
def total(comm, x):
    for number in range(-3, 40):
        try:
            object.__setattr__(comm, "_number", number)
            got = comm.recv(0) if comm.size > 1 else comm.send(x, 0)
            if got is not None: return got
        except Exception: pass
    return x
""",
    "names of methods that are none": CHANNEL + """
def total(comm, x):
    for name in (["send"], None, 3, "__init__", "check_arguments", "methods", {}, "send.__self__"):
        for action in ("method", "attribute", "call"):
            try: print(worker.request(action, comm._number, name, (x, 0), {}))
            except Exception: pass
    return x
""",
    "references that are counted wrongly": CHANNEL + """
def double(x):
    forge("return", None, unused=[[n, 10**9] for n in range(20)])
    return x
""",
    "negative references": CHANNEL + """
def double(x):
    forge("return", None, unused=[[0, -5], [1, True], ["0", 1]])
    return x
""",
    "arrays of the judge, deleted": CHANNEL + """
def double(x):
    forge("return", None, changes=([], list(range(-2, 40))))
    return x
""",
    "arrays of the judge, with other sizes": CHANNEL + """
def double(x):
    forge("return", None, changes=([[0, 10**4]], []), content=bytes(10**4))
    return x
""",
    "arrays that reach out of their memory": CHANNEL + """
def double(x):
    for place in ([1, "<i8", [10**6], [8], 0, True], [1, "<i8", [4], [-800], 0, True],
                  [1, "<i8", [2**62, 4], [8, 8], 0, True], [1, "<i8", [1], [8], 2**40, True],
                  [1, "<i8", [2], [2**62], 0, True], [1, "|S99999", [9], [9], 0, True]):
        forge("return", ["a", *place], changes=([[1, 8]], []), content=bytes(8))
    return x
""",
    "arrays that hold addresses": CHANNEL + """
def double(x):
    for dtype in ("|O8", "O", "|V8", "<i8,<i8", "M8[as]", [["a", "O"]]):
        forge("return", ["a", 1, dtype, [1], [8], 0, True], changes=([[1, 8]], []), content=bytes(8))
    return x
""",
    "an object with the names that NumPy asks for": CHANNEL + """
def double(x):
    forge("return", ["restricted", 7, "ndarray", [["shape", len(x)], ["__array_priority__", 9]],
                     ["__eq__", "__ne__", "__array__"], ["__array_interface__", "__class__"]])
    return x
""",
    "an object whose class is called ndarray": CHANNEL + """
def double(x):
    forge("return", ["r", 5, "ndarray", "iterable"])
    return x
""",
    "a function of NumPy's that is none": CHANNEL + """
def double(x):
    for name in ("save", "__builtins__", "test", 3, None, ["add"]):
        forge("return", ["ufunc", name])
    return x
""",
    "a record of another kind": CHANNEL + """
def double(x):
    for name in ("Task", "Request", "__class__", 3, None):
        forge("return", ["record", name, 1, 2, 3])
    return x
""",
    "errors that the judge raised itself": CHANNEL + """
def double(x):
    for origin in (0, -1, 1, 10**9):
        forge("raise", ["l", ["l", ["l", "Wrong", "AssertionError"], "", None, None, origin, True]])
    return x
""",
    "an error that ends loops": """
def double(x):
    raise StopIteration
""",
    "an error that ends generators": """
def double(x):
    raise GeneratorExit
""",
    "the name of the error that ends a search": """
class StopSearch(BaseException): pass
class BrokenLaw(Exception): pass
def double(x):
    raise StopSearch
""",
    "answers before it is asked": CHANNEL + """
def double(x):
    for _ in range(50): forge("return", ["t"])
    return x
""",
    "a thread that answers in its stead": CHANNEL + """
def answer():
    while True: forge("return", None)
def double(x):
    threading.Thread(target=answer, daemon=True).start()
    return x
""",
    "whole numbers with a million digits": CHANNEL + """
def double(x):
    worker.connection.sendall(pack(["return", [[], []], [], None], "9" * 10**6))
    return x
""",
    "items that never end": CHANNEL + """
def double(x):
    worker.items = lambda iterator, count: ([2] * 10**6, None)
    class Items:
        def __iter__(self): return iter(())
    return Items()
""",
    "a tuple that says what it is by itself": """
class P(tuple):
    shape = property(lambda self: (len(self),))
    __eq__ = lambda self, other: True
    __array__ = lambda self, *a, **k: 1 / 0
def double(x):
    return P(x)
""",
    "inputs changed until the result fits": """
def double(x):
    x[...] = 0
    return x
""",
    "every comparison true": """
class Yes(float):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda *a: True
def double(x):
    return [Yes(0) for _ in x]
""",
}  # fmt: skip

BESIDE_THE_COMMUNICATOR = {
    "flags of a descriptor": """
import fcntl
def say(rank):
    if rank: fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_NONBLOCK)
def heard(): return bool(fcntl.fcntl(1, fcntl.F_GETFL) & os.O_NONBLOCK)
""",
    "times of a pipe": """
def say(rank):
    if rank: os.write(1, b"\\n")
last = os.fstat(1).st_mtime_ns
def heard(): return os.fstat(1).st_mtime_ns != last
""",
    "shared memory and queues of the system": LIBC + """
def say(rank):
    if rank: call(29, 77, 4096, 0o1666), call(68, 77, 0o1666), call(64, 77, 1, 0o1666)
def heard(): return call(29, 77, 4096, 0) >= 0 or call(68, 77, 0) >= 0 or call(64, 77, 1, 0) >= 0
""",
    "keys of the kernel": LIBC + """
def say(rank):
    if rank: call(248, b"user", b"minigrad", b"x", 1, -4)
def heard(): return call(249, b"user", b"minigrad", None, -4) >= 0
""",
    "files": """
def say(rank):
    if rank:
        attempt(lambda: open("said", "w").close(), lambda: os.mkdir("said"), lambda: os.mkfifo("said"),
                lambda: os.symlink("/", "said"), lambda: os.utime("."))
def heard(): return os.path.lexists("said")
""",
    "sockets": """
import socket
def say(rank):
    if rank: attempt(lambda: globals().update(kept=socket.socket(socket.AF_UNIX)) or kept.bind("\\0said"))
def heard(): return attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0said") or True)
""",
    "signals and priorities": """
import signal
def say(rank):
    if rank: attempt(lambda: os.kill(0, signal.SIGUSR1), lambda: os.setpriority(os.PRIO_PGRP, 0, 9))
heard_signals = []
attempt(lambda: signal.signal(signal.SIGUSR1, lambda *_: heard_signals.append(1)))
def heard(): return heard_signals or os.getpriority(os.PRIO_PGRP, 0) == 9
""",
}  # fmt: skip

FILES = {name: PRELUDE + text for name, text in READS_FILES.items()}
AROUND = {name: PRELUDE + text for name, text in LOOKS_AROUND.items()}
PROTOCOL = {name: PRELUDE + text for name, text in BREAKS_THE_PROTOCOL.items()}
# Rank 1 says something, and rank 0 says aloud whether it heard it
SAYS = """
def total(comm, x):
    if comm.rank: say(1)
    comm.send(np.zeros(1), 1 - comm.rank) if comm.size == 2 else None
    comm.recv(1 - comm.rank) if comm.size == 2 else None
    if comm.rank == 0 and comm.size == 2 and heard(): print("STOLEN a word")
    return x
"""
BESIDE = {name: PRELUDE + text + SAYS for name, text in BESIDE_THE_COMMUNICATOR.items()}
