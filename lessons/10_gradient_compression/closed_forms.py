"""What a rank sends in a step of data parallelism with compressed gradients, in closed form."""

import math


def messages(method, shapes, p, entries=0.0):
    """What a rank sends in a step, as pairs (number of messages, bytes of each); means over the ranks.

    ``shapes`` has the shape of each float32 parameter, ``entries`` the number of entries that are sent, for
    methods that select some. A few numbers travel with every gradient: the loss, the share of the samples,
    which ranks ran backward, which parameters it reached, and with compression a flag for each rank.
    """
    n = sum(math.prod(shape) for shape in shapes)
    matrices = [(shape[0], math.prod(shape[1:])) for shape in shapes if len(shape) > 1]
    vectors = sum(shape[0] for shape in shapes if len(shape) == 1)
    report, flags = 2 + p + len(shapes), p
    if method == "dense":
        return [(2 * (p - 1), 4 * (n + report) / p)]
    if method == "PowerSGD":  # of rank 2: the P's with all that is no matrix, then the Q's
        first = report + flags + vectors + 2 * sum(min(shape) for shape in matrices)
        return [(2 * (p - 1), 4 * x / p) for x in (first, 2 * sum(max(shape) for shape in matrices))]
    scales = 4 * len(shapes)
    columns = sum(rows for rows, _ in matrices) + len(shapes) - len(matrices)
    payload = {
        "threshold": 8 * entries,  # value and index
        "top-k": 8 * entries,
        "random-k": 4 * entries,
        "DGC": 8 * entries,
        "1-bit": math.ceil(n / 8) + 2 * 4 * columns,
        "scaled sign": math.ceil(n / 8) + scales,
        "QSGD": math.ceil(4 * n / 8) + scales,  # 15 levels, -7 to 7: 4 bits
        "TernGrad": math.ceil(2 * n / 8) + scales,  # -1, 0, 1
    }[method]
    return [(p - 1, payload + 4 * (report + flags))]
