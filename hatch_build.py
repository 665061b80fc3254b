"""What a wheel holds besides the packages: the lessons, and the files at the top of a clone."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "minigrad_course"
NO_SOURCES = (PACKAGE, "runs", "__pycache__")
TOP = ("CITATION.cff", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml")


class CourseFiles(BuildHookInterface):
    """Puts all that is in lessons/ into the package, so that a new lesson is in the next wheel.

    An editable install holds nothing of it: there the package reads the files of the clone.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        names = sorted(path.name for path in Path(self.root, "lessons").iterdir() if path.name[0] != ".")
        files = {f"lessons/{name}": f"{PACKAGE}/lessons/{name}" for name in names if name not in NO_SOURCES}
        # Of these minigrad handout and minigrad site build make a whole tree again.
        build_data["force_include"] |= files | {name: f"{PACKAGE}/repository/{name}" for name in TOP}
