"""The sandbox of the process that runs a submission: limits, Landlock, seccomp, an audit hook.

No file can be opened in it, so all modules are imported before.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # on Windows
    resource = None

# Python imports these by itself
IMPLICIT_MODULES = (
    "encodings.unicode_escape",
    "linecache",
    "tokenize",
    "traceback",
    "tracemalloc",
    "unicodedata",
)
EVERYTHING = (Path("/"),)


def preload(modules: Iterable[str]) -> None:
    """Import ``modules``, and what Python imports by itself: the sandbox allows no file to be opened."""
    for name in (*IMPLICIT_MODULES, *modules):
        with suppress(ImportError):
            importlib.import_module(name)
    with suppress(ImportError, RuntimeError, OSError, AttributeError):
        importlib.import_module("pyseccomp")  # it starts a process to find libseccomp


def enter(
    mebibytes: int, seconds: float, descriptors: Iterable[int] = (), *, reading: bool = False
) -> list[str]:
    """Enter the sandbox, for good, before a submission is loaded; returns the protections that work.

    ``descriptors`` stay open beside 0, 1 and 2. Files can be read, and modules imported, only if ``reading``.
    Call it after `preload`, from the only thread. A protection that the system does not have is left out.
    """
    open_ones = sorted({0, 1, 2, *descriptors})
    for low, high in zip(open_ones, [*open_ones[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    names = set_limits(mebibytes, seconds)
    if sys.platform == "linux":
        names += enter_linux(reading)
    if not reading:
        sys.path.clear()
        sys.path_importer_cache.clear()
    add_audit_hook(reading)
    return [*names, "audit hook"]


def enter_linux(reading: bool) -> list[str]:
    """The protections of Linux."""
    PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
    prctl = ctypes.CDLL(None).prctl
    names = []
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no process reads its memory, and it does not by /proc
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        names.append("no new privileges")
        if version := restrict_files(EVERYTHING if reading else ()):
            names.append(f"Landlock {version}")
        if filter_system_calls(reading):
            names.append("seccomp")
    return names


# Limits

MEBIBYTE = 2**20
MAX_DESCRIPTORS = 64


def set_limits(mebibytes: int, seconds: float, file_mebibytes: int = 0) -> list[str]:
    """Limit this process's memory, time on a core, files and their size; the protections that work.

    Memory is its own and shared memory. No file may grow beyond ``file_mebibytes``; with 0 nothing can be
    written to one.
    """
    if resource is None:
        return []
    limits = {
        "RLIMIT_DATA": mebibytes * MEBIBYTE,
        "RLIMIT_AS": address_space() + 2 * mebibytes * MEBIBYTE,  # threads reserve more than they use
        "RLIMIT_CPU": int(seconds) + 5,
        "RLIMIT_FSIZE": file_mebibytes * MEBIBYTE,
        "RLIMIT_NOFILE": MAX_DESCRIPTORS,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_CORE": 0,
    }
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="utf-8") as file:
        file.write("1000")  # when memory runs out, the system should end this process, not the grader
    limited = set()
    for name, limit in limits.items():
        with suppress(AttributeError, ValueError, OSError):  # not on every system
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(kind, (limit, limit))
            limited.add(name)
    needed = {"RLIMIT_DATA", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_FSIZE"}
    return ["memory, time and files"] if needed <= limited else []


def address_space() -> int:
    """The bytes of address space that this process uses."""
    with suppress(OSError, ValueError):
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf(
            "SC_PAGESIZE"
        )
    return 2**30


# Landlock: Linux's access rules for one process (man 7 landlock); no maintained library wraps them

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, on every architecture but Alpha
VERSION, PATH_BENEATH = 1, 1
READ = 0b1101  # execute (as of a shared library), read a file, read a folder
READ_FILE = 0b0101
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}  # how many rights over files each version knows
TCP, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


class RulesetAttributes(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def restrict_files(paths: Iterable[Path]) -> int:
    """From now on this thread, and those it starts, read only below ``paths`` and write nowhere.

    From version 4 on they use no TCP, from 6 on they signal no process outside of the sandbox. Returns the
    version of Landlock; 0 where the system has none. Needs no_new_privs.
    """
    call = ctypes.CDLL(None, use_errno=True).syscall
    size = ctypes.c_size_t
    version = call(CREATE_RULESET, None, size(0), VERSION)
    if version < 1:
        return 0
    rights = max(n for since, n in FILE_RIGHTS.items() if since <= version)
    attributes = RulesetAttributes((1 << rights) - 1, TCP, SCOPES)
    nbytes = 8 if version < 4 else 16 if version < 6 else 24  # of the structure, in this version
    ruleset = call(CREATE_RULESET, ctypes.byref(attributes), size(nbytes), 0)
    if ruleset < 0:
        return 0
    try:
        for path in paths:
            if not path.exists():
                continue
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = PathRule(READ if path.is_dir() else READ_FILE, parent)
            failed = call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(parent)
            if failed:
                return 0
        return 0 if call(RESTRICT_SELF, ruleset, 0) else version
    finally:
        os.close(ruleset)


# seccomp: the system calls that are allowed; all others fail

SYSTEM_CALLS = """
    access arch_prctl brk clock_getres clock_gettime clock_nanosleep close dup dup2 dup3 exit
    exit_group faccessat faccessat2 fstat fstatfs futex futex_time64 getcpu getcwd getdents64
    getegid geteuid getgid getgroups getpgrp getpid getppid getpriority getrandom getresgid
    getresuid getrlimit getrusage get_robust_list gettid gettimeofday getuid lseek lstat madvise
    membarrier mprotect mremap munmap nanosleep newfstatat poll ppoll pread64 pselect6 read readlink
    readlinkat readv recvfrom restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigreturn sched_getaffinity sched_getparam sched_getscheduler sched_yield select sendto
    set_robust_list set_tid_address sigaltstack stat statx sysinfo time times uname write writev
"""
MAP_TYPE, MAP_PRIVATE = 0x0F, 0x02  # no shared memory: a limit of this process would not bound it
CLONE_THREAD = 0x10000
FCNTL = (0, 1, 2, 3, 4, 1030)  # copy a descriptor, read and set its flags; not who gets its signal
IOCTL = (0x5401, 0x5413, 0x5421, 0x5450, 0x5451)  # is it a terminal, how wide; does it block, outlive exec
PRCTL = (15, 16, 0x53564D41)  # names of threads and of memory


def filter_system_calls(reading: bool) -> bool:
    """From now on every thread can make only these calls, and open files, if ``reading``, to read them.

    False where there is no libseccomp, or the system refuses its filter.
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError, OSError, AttributeError):  # not Linux, or no libseccomp.so.2
        return False
    masked, equal = seccomp.MASKED_EQ, seccomp.EQ
    beyond_reading = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
    rules: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
        *((name, ()) for name in SYSTEM_CALLS.split()),
        *(("fcntl", ((1, equal, command),)) for command in FCNTL),
        *(("ioctl", ((1, equal, request),)) for request in IOCTL),
        *(("prctl", ((0, equal, option),)) for option in PRCTL),
        *((name, ((3, masked, MAP_TYPE, MAP_PRIVATE),)) for name in ("mmap", "mmap2")),
        ("clone", ((0, masked, CLONE_THREAD, CLONE_THREAD),)),
        ("tgkill", ((0, equal, os.getpid()),)),
        ("prlimit64", ((0, equal, 0), (2, equal, 0))),  # to read its own limits
    ]
    if reading:
        rules += [("openat", ((2, masked, beyond_reading, 0),)), ("open", ((1, masked, beyond_reading, 0),))]
    filter = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    absent = seccomp.ERRNO(errno.ENOSYS)  # then the C library makes the older call, whose flags are seen here
    try:
        for name in ("clone3", "openat2"):
            filter.add_rule(absent, name)
        for name, conditions in rules:
            if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0:  # not on every architecture
                filter.add_rule(seccomp.ALLOW, name, *(seccomp.Arg(*condition) for condition in conditions))
        filter.set_attr(seccomp.Attr.CTL_TSYNC, 1)
        filter.load()
    except OSError:
        return False
    return True


# The audit hook: Python's own functions refuse, where the system has few protections

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Prefixes of the events that start processes, send signals, change files, use the network or memory
EVENTS = (
    *("ctypes.", "fcntl.", "ftplib.", "http.", "mmap.", "os.", "pty.", "resource.", "shutil.", "signal."),
    *("smtplib.", "socket.", "sqlite3.", "subprocess.", "syslog.", "tempfile.", "urllib.", "webbrowser."),
)
LISTING = ("os.fwalk", "os.listdir", "os.scandir", "os.walk")


def add_audit_hook(reading: bool) -> None:
    """From now on Python starts no process, sends no signal, writes no file and uses no network.

    Unless ``reading``, it opens no file and imports no further module either. It stops plain programs, not
    one that reaches memory or compiled code.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "import" and not reading:
            raise ModuleNotFoundError(f"a submission may not import {arguments[0]}", name=arguments[0])
        if event == "open" and not (reading and is_reading(arguments[2])):
            raise PermissionError("a submission may not open files")
        if event.startswith(EVENTS) and not (reading and event in LISTING):
            raise PermissionError(f"a submission may not use {event}")

    sys.addaudithook(hook)


def is_reading(flags: Any) -> bool:
    return not (isinstance(flags, int) and flags & WRITING)
