"""The files of the course as the repository has them, also where only a wheel is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .. import HERE, INSTALLED, LESSONS, ROOT

TOP = HERE / "repository"  # in a wheel: the files at the top of a clone
GENERATED = ("__pycache__", "runs")


@contextmanager
def repository() -> Iterator[Path]:
    """The folder with minigrad, backends, lessons and pyproject.toml.

    It is the clone, or a copy of a wheel's files, without tests and benchmarks, which is gone after the
    ``with``.
    """
    if not INSTALLED:
        yield ROOT
        return
    ignored = shutil.ignore_patterns(*GENERATED)
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for package in ("minigrad", "backends"):
            shutil.copytree(ROOT / package, root / package, ignore=ignored)
        elsewhere = shutil.ignore_patterns(*GENERATED, LESSONS.name, TOP.name)
        shutil.copytree(HERE, root / "lessons" / HERE.name, ignore=elsewhere)
        shutil.copytree(LESSONS, root / "lessons", ignore=ignored, dirs_exist_ok=True)
        shutil.copytree(TOP, root, dirs_exist_ok=True)
        yield root
