"""JSON files that a write replaces as a whole or leaves unchanged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FIGURES = "metrics.json"  # of a training, in its folder


def check_writable(file: Path, flag: str = "--json") -> None:
    """Raise OSError unless ``file`` can be written."""
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise OSError(f"cannot write {file}: its folder must exist and be writable; name another with {flag}")


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write ``content``; if that fails, ``file`` stays as it was."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(content, indent=1))
        os.replace(part, file)
    except OSError as error:  # a full disk does not say which file
        part.unlink(missing_ok=True)
        raise OSError(f"cannot write {file}: {error.strerror}") from error
