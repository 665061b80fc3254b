"""The pages of the whole course that can be made without running it: lessons whose cells print nothing."""

from functools import cache
from pathlib import Path

from minigrad_course import ROOT
from minigrad_course.lesson.lessons import lessons
from minigrad_course.site.build import Site
from minigrad_course.site.cells import read_cells
from minigrad_course.site.recording import Output, Recording


def silent(lesson):
    """A recording of a lesson that prints and draws nothing."""
    cells = read_cells(lesson.file.read_text(encoding="utf-8"))
    return Recording(Path(), [Output("", []) for cell in cells if not cell.prose], [], "a machine")


@cache
def gathered():
    """A site with the pages that lead to all others, and not yet the others."""
    known = lessons()
    site = Site(ROOT, known, {one.file.parent.name: silent(one) for one in known}, {})
    site.gather([])
    return site
