"""The one setting that concerns the whole process: what glibc does with freed memory."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Tell glibc to hand freed arrays to the next step instead of to the kernel; say whether it did.

    Closures free their arrays as backward passes, and the next step would fault every page in again:
    40 % of a small convolutional network's step. Threads, which ranks may be, share one arena: in arenas of
    their own glibc unmaps what is free whatever it is told, and large arrays take up to twice the time.
    Called when minigrad is imported; a no-op on other C libraries, and where MINIGRAD_MALLOC=default is set.
    The peak of resident memory stays the same.
    """
    if os.environ.get("MINIGRAD_MALLOC") == "default":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    settings = {M_MMAP_THRESHOLD: 1 << 25, M_TRIM_THRESHOLD: 2**31 - 1, M_ARENA_MAX: 1}
    return all([mallopt(name, value) for name, value in settings.items()])
