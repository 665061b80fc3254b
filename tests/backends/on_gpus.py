"""The laws of ranks on GPUs, in this process; what is wrong is printed, a line each, and the status is 1.

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
    "a_long_row_and_its_bias_are_rounded_once",  # on a GPU cuBLAS rounds before the bias is added
)


def main(what: str) -> int:
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
    status = 0
    for name, check in checks:
        try:
            check()
        except Exception as error:
            status = 1
            print(f"{name}: {words_of(error)}", flush=True)
    print(f"{len(checks)} {what}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
