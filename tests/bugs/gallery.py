"""All seeded bugs as JSON on standard output: ``python -m tests.bugs.gallery``. The site shows them.

Each has its part, its name, the module, the right and the wrong text, the law and its file, and the law's
words. The exit status is 1 where a bug is not caught.
"""

import json
import sys
import warnings

from tests.bugs.bug import hunt
from tests.bugs.suite import PARTS


def main() -> None:
    warnings.simplefilter("ignore")  # what is wrong may overflow
    bugs = []
    for part, of_part in PARTS.items():
        for bug in of_part:
            facts = {"name": bug.name, "where": bug.where, "right": bug.right, "wrong": bug.wrong}
            law = {"law": bug.law.__name__, "file": bug.law.__module__.replace(".", "/") + ".py"}
            bugs.append({"part": part, **facts, **law, "words": hunt(bug).words})
    json.dump(bugs, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
