"""How long a step takes that waits for the first of its workers: order statistics of drawn times.

Lecture section: synchronous data parallelism (stragglers). Lesson: 06_data_parallel.
"""

import numpy as np


def step_seconds(draws: np.ndarray, needed: int) -> np.ndarray:
    """The time of each step that waits for ``needed`` workers: (steps,), from draws (steps, workers).

    For exponential times of mean 1 the mean is H(N + b) - H(b), where H(n) = 1 + 1/2 + ... + 1/n: with 96 + 4
    workers 3.10 instead of 5.15. For times uniform in 0 to 1 it is N / (N + b + 1).
    """
    if not 1 <= needed <= draws.shape[1]:
        raise ValueError(
            f"of {draws.shape[1]} workers a step can wait for 1 to {draws.shape[1]}, got {needed}"
        )
    return np.partition(draws, needed - 1, axis=1)[:, needed - 1]
