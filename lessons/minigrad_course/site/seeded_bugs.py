"""The seeded bugs, with what their laws say, for a page of the site."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from minigrad.files import replacement

from .recording import digest_of

GALLERY = "tests.bugs.gallery"
SOURCES = ("minigrad", "backends", "lessons/minigrad_course", "tests")


class SeededBugs(NamedTuple):
    """The seeded bugs of the repository ``root``; what the laws said of them is kept in ``records``."""

    root: Path
    records: Path

    @property
    def record(self) -> Path:
        """The file for what the laws say of these sources."""
        files = (file for top in SOURCES for file in (self.root / top).rglob("*.py"))
        return self.records / "bugs" / f"{digest_of(files)}.json"

    def missing(self) -> str | None:
        """What to hunt them needs and is not here, in words; None where nothing is, or a record is there.

        Raises RuntimeError where their modules cannot be loaded for another reason.
        """
        if not (self.root / f"{GALLERY.replace('.', '/')}.py").is_file():
            return "the tests of a clone"
        if self.record.is_file():
            return None
        command = [sys.executable, "-c", f"import {GALLERY}"]
        done = subprocess.run(command, cwd=self.root, capture_output=True)
        last = last_line(done.stderr)
        if done.returncode and (module := re.match(r"ModuleNotFoundError: No module named '(\w+)", last)):
            return f"{module[1]}: pip install -e '.[test]'"
        if done.returncode:
            raise RuntimeError(f"the seeded bugs cannot be loaded: {last}; run python -m tests.bugs")
        return None

    def load(self, say: Callable[[str], None]) -> list[dict[str, Any]]:
        """The bugs, from the record if there is one; else they are hunted now, which takes minutes.

        Raises RuntimeError, and records nothing, where one is not caught.
        """
        if not self.record.is_file():
            bugs = self.hunt(say)
            with replacement(self.record) as part:
                part.write_text(json.dumps(bugs, indent=1), encoding="utf-8")
        return json.loads(self.record.read_text(encoding="utf-8"))

    def hunt(self, say: Callable[[str], None]) -> list[dict[str, Any]]:
        command, bugs, part = [sys.executable, "-m", GALLERY], [], ""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(command, cwd=self.root, stdout=subprocess.PIPE, stderr=errors)
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    bugs.append(json.loads(line))
                    if bugs[-1]["part"] != part:
                        part = bugs[-1]["part"]
                        say(f"seeded bug {bugs[-1]['number']} of {bugs[-1]['of']}: {part}")
                status = process.wait()
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            if status:
                errors.seek(0)
                last = last_line(errors.read())
                raise RuntimeError(f"a seeded bug is not caught: {last}; run python -m tests.bugs")
        return bugs


def last_line(output: bytes) -> str:
    return output.decode(errors="replace").rstrip().rpartition("\n")[2]
