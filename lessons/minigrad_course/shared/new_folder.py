"""A folder that is written as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """The block fills ``folder``, which is new or empty, and is so again where it fails.

    Raises ValueError for another folder, and OSError that names ``folder``: the error of a full disk names
    what was copied, and that of ``shutil.copytree`` is a list of errors.
    """
    was_there = folder.exists()
    if was_there and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not an empty folder; name a new one")
    try:
        yield
    except BaseException as error:
        for path in [*folder.iterdir()] if was_there else [folder]:  # it may be the current folder
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            several = isinstance(error, shutil.Error)  # of copytree: from, to, "[Errno 28] ..."
            reason = error.args[0][0][2].partition("] ")[2] if several else error.strerror or error
            raise OSError(f"cannot write {folder}: {reason}; name another folder") from error
        raise
