"""The only setting for the whole process: what glibc does with freed memory."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> bool:
    """Make glibc reuse freed arrays in the next step, not return them to the kernel; True on success.

    Backward frees the arrays of closures, and the next step would fault every page in again, which takes
    40 % of a small convolutional network's step. All threads share one arena, because in other arenas glibc
    always unmaps free memory, and large arrays then take up to twice the time. Importing minigrad calls it;
    it does nothing with other C libraries and with MINIGRAD_MALLOC=default. Peak memory stays the same.
    """
    if os.environ.get("MINIGRAD_MALLOC") == "default":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    settings = {M_MMAP_THRESHOLD: 1 << 25, M_TRIM_THRESHOLD: 2**31 - 1, M_ARENA_MAX: 1}
    return all([mallopt(name, value) for name, value in settings.items()])
