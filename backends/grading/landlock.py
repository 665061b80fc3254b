"""Landlock, Linux's own fence for one process: which files it reads, that it writes none, whom it signals.

There is no library for it that is kept, and it is three system calls (man 7 landlock).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # of every architecture but Alpha
VERSION, PATH_BENEATH = 1, 1
READ = 0b1101  # execute (as of a shared library), read a file, read a folder
READ_FILE = 0b0101
ALL_FILES = {1: 13, 2: 14, 3: 15, 5: 16}  # how many rights over files there are since each version
TCP, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals


class Rules(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def read_only(paths: Iterable[Path]) -> int:
    """From now on this thread, and those it starts, read below ``paths`` alone and write nowhere.

    Since version 4 they use no TCP, since 6 they signal no process that is not fenced with them. The
    version of Landlock; 0 where the system has none. Needs no_new_privs.
    """
    call = ctypes.CDLL(None, use_errno=True).syscall
    size = ctypes.c_size_t
    version = call(CREATE_RULESET, None, size(0), VERSION)
    if version < 1:
        return 0
    rights = max(n for since, n in ALL_FILES.items() if since <= version)
    rules = Rules((1 << rights) - 1, TCP, SCOPES)
    known = 8 if version < 4 else 16 if version < 6 else 24  # bytes of the structure
    ruleset = call(CREATE_RULESET, ctypes.byref(rules), size(known), 0)
    if ruleset < 0:
        return 0
    try:
        for path in paths:
            if not path.exists():
                continue
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = Beneath(READ if path.is_dir() else READ_FILE, place)
            failed = call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(place)
            if failed:
                return 0
        return 0 if call(RESTRICT_SELF, ruleset, 0) else version
    finally:
        os.close(ruleset)
