"""Files of figures, in JSON: whole or untouched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FIGURES = "metrics.json"  # of a training, in its folder


def check_writable(file: Path, flag: str = "--json") -> None:
    """Raise OSError, before any work is done, unless ``file`` can be written."""
    if file.is_dir() or not os.access(file.parent, os.W_OK):
        raise OSError(f"cannot write {file}: its folder must exist and be writable; name another with {flag}")


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write ``content`` so that ``file`` is whole or untouched, whatever happens."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(content, indent=1))
        os.replace(part, file)
    except OSError as error:  # a full disk does not say which file
        part.unlink(missing_ok=True)
        raise OSError(f"cannot write {file}: {error.strerror}") from error
