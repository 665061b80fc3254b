"""All seeded bugs, one in each line of standard output, as JSON: ``python -m tests.bugs.gallery``.

The site shows them. Each has its number, how many there are, its part, its name, the module and the name of
the definition, the right and the wrong text, the law and its file, and the law's words. The exit status is 1
where a bug is not caught.
"""

import json
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import IO

from hypothesis import settings

import tests.conftest  # noqa: F401  # registers the profiles of the lanes
from tests.bugs.bug import Bug, hunt
from tests.bugs.suite import PARTS


def main(lines: IO[str], parts: Mapping[str, Iterable[Bug]]) -> None:
    warnings.simplefilter("ignore")  # what is wrong may overflow
    settings.load_profile("quick")  # of the tests' own: a slow machine is no fault of a law
    bugs = [(part, bug) for part, of_part in parts.items() for bug in of_part]
    for number, (part, bug) in enumerate(bugs, 1):
        place = bug.definition
        facts = {"name": bug.name, "where": place.module, "definition": place.name}
        facts |= {"right": bug.right, "wrong": bug.wrong}
        law = {"law": bug.law.__name__, "file": bug.law.__module__.replace(".", "/") + ".py"}
        count = {"number": number, "of": len(bugs), "part": part}
        print(json.dumps({**count, **facts, **law, "words": hunt(bug).words}), file=lines, flush=True)


def own_output() -> IO[str]:
    """Standard output for the caller alone: what laws and their processes print goes to standard error."""
    sys.stdout.flush()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return lines


if __name__ == "__main__":
    main(own_output(), PARTS)
