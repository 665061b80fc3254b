"""The one setting that concerns the whole process: what glibc does with freed memory."""

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Tell glibc to hand freed arrays to the next step instead of to the kernel; say whether it did.

    Closures free their arrays as backward passes, and the next step would fault every page in again:
    40 % of a small convolutional network's step. Called when minigrad is imported; a no-op on other C
    libraries, and where MINIGRAD_MALLOC=default is set. The peak of resident memory stays the same.
    """
    if os.environ.get("MINIGRAD_MALLOC") == "default":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 1 << 25) and mallopt(M_TRIM_THRESHOLD, 2**31 - 1))
