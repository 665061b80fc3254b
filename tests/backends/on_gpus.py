"""The laws of ranks on GPUs, in this process; what is wrong is printed, a line each. ``test_gpus`` starts it.

python -m tests.backends.on_gpus laws    those of ``gpu_laws``, and of the bugs of all parallel parts
python -m tests.backends.on_gpus bugs    each law of ``gpu_laws`` catches its bugs
"""

import sys
import warnings
from functools import partial

from tests.backends.gpu_laws import BUGS, LAWS
from tests.bugs.bug import hunt, words_of
from tests.bugs.suite import PARTS

PARTS_ON_THE_HOST = (
    "engine",
    "ops",
    "losses",
    "windows and samples",
    "checkpoints",
    "checkpoints in memory",
    "storms",
    "stopping",
    "logs",
    "cluster",
)
ON_THE_HOST = (
    "gradients_of_steps_add_up",  # also in memory that the ranks of a machine share
    "tiles_refuse_windows_that_they_would_get_wrong",  # before anything is computed
)


def main(what: str) -> None:
    warnings.simplefilter("ignore")
    if what == "bugs":
        checks = [(bug.name, partial(hunt, bug)) for bug in BUGS]
    else:
        parallel = [bugs for part, bugs in PARTS.items() if part not in PARTS_ON_THE_HOST]
        laws = dict.fromkeys(bug.law for bugs in parallel for bug in bugs)
        checks = [(law.__name__, law) for law in (*LAWS, *laws) if law.__name__ not in ON_THE_HOST]
    for name, check in checks:
        try:
            check()
        except Exception as error:
            print(f"{name}: {words_of(error)}", flush=True)
    print(f"{len(checks)} {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
