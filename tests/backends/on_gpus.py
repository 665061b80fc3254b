"""The laws of ranks on GPUs, in this process; what is wrong is printed, a line each. ``test_gpus`` starts it.

python -m tests.backends.on_gpus own    the laws of ``gpu_laws`` hold and catch their bugs; so that each part
                                        is there, one law of each parallel part holds
python -m tests.backends.on_gpus all    the laws of ``gpu_laws``, and of the bugs of all parallel parts, hold
"""

import sys
import warnings
from functools import partial

from tests.backends.gpu_laws import BUGS, LAWS, captured_runs_of_all_nets_train_as_on_the_host
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
    parallel = [bugs for part, bugs in PARTS.items() if part not in PARTS_ON_THE_HOST]
    if what == "own":  # a hunt begins with the law itself
        hunted = {bug.law for bug in BUGS}
        laws = [law for law in LAWS if law not in hunted] + [bugs[0].law for bugs in parallel]
        checks = [(bug.name, partial(hunt, bug)) for bug in BUGS]
    else:
        laws = [*LAWS, captured_runs_of_all_nets_train_as_on_the_host]
        laws += dict.fromkeys(bug.law for bugs in parallel for bug in bugs)
        checks = []
    checks += [(law.__name__, law) for law in laws if law.__name__ not in ON_THE_HOST]
    for name, check in checks:
        try:
            check()
        except Exception as error:
            print(f"{name}: {words_of(error)}", flush=True)
    print(f"{len(checks)} {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
