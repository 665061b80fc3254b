"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj
from tempfile import gettempdir


def data_folder(folder: str | Path | None = None) -> Path:
    """``folder``, or by default MINIGRAD_DATA; raises FileNotFoundError where there is none."""
    name = str(folder or os.environ.get("MINIGRAD_DATA", ""))
    if not name or not (path := Path(os.path.expanduser(name))).is_dir():
        wrong = f"{name} is no folder" if name else "no folder is given"
        raise FileNotFoundError(f"{wrong}; pass the one with the files, or set MINIGRAD_DATA to it")
    return path


@contextmanager
def replacement(file: Path) -> Iterator[Path]:
    """Yield a path to write to, with the suffix of ``file``; at the end of the block it becomes ``file``.

    Of a symbolic link the file that it leads to is replaced; a device is written to, and a pipe, once it has
    a reader. If anything fails, ``file`` stays as it was. Raises OSError that names ``file``, which the error
    of a full disk does not. The folder is created if necessary. Several processes and threads may write the
    same file at once; the last one wins.
    """
    is_stream = file.exists() and not (file.is_file() or file.is_dir())
    target = Path(os.path.realpath(file)) if file.is_symlink() else file
    folder = Path(gettempdir()) if is_stream else target.parent
    part = folder / f".{secrets.token_hex(8)}.part.{target.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb+") as whole:
            if is_stream:
                with file.open("wb") as stream:
                    copyfileobj(whole, stream)
            else:
                os.fsync(whole.fileno())
                os.replace(part, target)
    except OSError as error:
        raise OSError(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()
