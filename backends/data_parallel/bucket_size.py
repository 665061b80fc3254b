"""The size of buckets for an all-reduce: small ones begin early, large ones pay the latency less often.

Lecture section: synchronous data parallelism. Lesson: 15_scale.
"""

from __future__ import annotations

from collections.abc import Callable

MOST = 64  # buckets


def step_seconds(count: int, nbytes: int, backward: float, seconds: Callable[[float], float]) -> float:
    """Backward and the sums of ``count`` even buckets: C_j = max(R_j, C_(j-1)) + c_j (Li et al. 2020).

    Backward takes ``backward`` seconds and fills one bucket after the other; ``seconds`` are those of an
    all-reduce, by bytes.
    """
    each, end = seconds(nbytes / count), 0.0
    for bucket in range(1, count + 1):
        end = max(bucket / count * backward, end) + each
    return end


def best_bucket_bytes(nbytes: int, seconds: Callable[[float], float]) -> int:
    """The size of the buckets, of at most ``MOST``, with which a step takes least.

    Backward is taken to last as long as one all-reduce of all ``nbytes``: where it is much shorter or longer,
    the size matters little. For c(n) = alpha + n beta the best number of buckets is near
    sqrt(nbytes beta / alpha).
    """
    backward = seconds(nbytes)
    count = min(range(1, MOST + 1), key=lambda count: step_seconds(count, nbytes, backward, seconds))
    return max(1, -(-nbytes // count))
