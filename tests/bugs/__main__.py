"""A table of all seeded bugs: what is wrong, where, which law catches it, what that says, and how fast.

    python -m tests.bugs                      all of them, from the project's root
    python -m tests.bugs pipeline stash       those with "pipeline" or "stash" in their part, name or place

The same as tests: ``pytest tests/bugs/test_seeded_bugs.py``. A bug is a piece of the shipped text, and what
stands in its place (``bug``); its law is a function without arguments, above it (``in_pipelines`` and the
like). The two meet in a world of their own, in which all modules of the project that the law uses are loaded
anew (``world``). In the same run every law is green in a world without a bug. The exit status is 1 where a
bug gets away.
"""

import re
import sys
import warnings
from time import perf_counter

from hypothesis import settings
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tests.conftest  # noqa: F401  # registers the profiles of the lanes
from tests.bugs.bug import Bug, Escaped, hunt
from tests.bugs.suite import PARTS


def main(words: list[str]) -> int:
    """Hunt the bugs that one of the ``words`` is in, all where there is none; the exit status."""
    warnings.simplefilter("ignore")  # what is wrong may overflow
    settings.load_profile("quick")  # of the tests' own: a slow machine is no fault of a law
    console, start = Console(width=None if sys.stdout.isatty() else 200), perf_counter()
    table = Table("bug", "where", "law", "says", "s", title="Seeded bugs, and the laws that catch them")
    table.columns[-1].justify = "right"
    escaped = count = 0
    laws = set()
    for part, bugs in PARTS.items():
        for bug in (bug for bug in bugs if is_selected(words, part, bug)):
            count += 1
            laws.add(bug.law)
            try:
                caught, seconds = hunt(bug)
                said = escape(cut(caught))
            except (Escaped, LookupError) as error:
                escaped += 1
                said, seconds = f"[bold red]not caught:[/] {escape(str(error))}", 0.0
            law = bug.law.__name__.replace("_", " ")
            table.add_row(bug.name, bug.where, law, said, f"{seconds:.2f}")
        table.add_section()
    if not count:
        console.print(f"no bug has {' or '.join(words)} in its part, name or place")
        return 1
    console.print(table)
    console.print(f"{count - escaped} of {count} bugs caught in {perf_counter() - start:.0f} s")
    if not escaped:
        console.print(f"Their {len(laws)} laws are green without a bug")
    return int(escaped > 0)


def is_selected(words: list[str], part: str, bug: Bug) -> bool:
    return not words or any(word in f"{part} {bug.name} {bug.where}" for word in words)


def cut(said: str, length: int = 90) -> str:
    """The beginning of what an error said; of numbers four digits behind the point."""
    said = re.sub(r"(\.\d{4})\d+", r"\1", said.removeprefix("AssertionError: "))
    return said if len(said) <= length else f"{said[: length - 3]}..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
