"""The usual mistakes in lessons/assignments/a2_allreduce, each with what the grader says of it."""

RINGS = {"ring_reduce_scatter", "ring_allreduce"}
MISTAKES = {
    "takes matrices only": (
        [
            (
                "    total = x.copy()\n    for source",
                "    rows, columns = x.shape\n    total = x.copy()\n    for source",
            )
        ],
        {"gather_broadcast_allreduce"},
        "values to unpack",
    ),
    "adds into its input": (
        [("total = x.copy()\n    for source", "total = x\n    for source")],
        {"gather_broadcast_allreduce"},
        "1 rank, shape (2, 2) of float64, C order: rank 0's result is the input's memory",
    ),
    "forgets the last rank": (
        [("for source in range(1, comm.size)", "for source in range(1, comm.size - 1)")],
        {"gather_broadcast_allreduce"},
        "2 ranks, shape (2, 2) of float64, C order: deadlock: no rank can go on",
    ),
    "leaves a rank's numbers out": (
        [("        total += comm.recv(source)", "        total = x + comm.recv(source)")],
        {"gather_broadcast_allreduce"},
        "rank 1 is not in it, rank 2 is in it once",
    ),
    "goes round once too often": (
        [("for t in range(p - 1):\n        finish", "for t in range(p):\n        finish")],
        RINGS,
        "1 rank, shape (2, 2) of float64, C order: rank 0 sends itself a message",
    ),
    "one step short, which two ranks forgive": (
        [("for t in range(p - 1):\n        done", "for t in range(min(p - 1, 1)):\n        done")],
        {"ring_allgather", "ring_allreduce"},
        "3 ranks",
    ),
    "sends before it receives": (
        [
            ("finish = comm.start_send(chunks", "comm.send(chunks"),
            ("recv((k - 1) % p)\n        finish()\n", "recv((k - 1) % p)\n"),
        ],
        RINGS,
        "deadlock",
    ),
    "cuts what divides only": (
        [("chunks = np.array_split(x.copy(), p)", "chunks = list(x.copy().reshape(p, -1))")],
        RINGS,
        "2 ranks, 7 elements of float64: ValueError",
    ),
    "returns a view of its working array in another shape": (
        [(".reshape(x.shape)", "")],
        {"ring_allreduce"},
        "it should be float64 of shape (2, 2)",
    ),
    "always computes in float64": (
        [("whole = np.empty(length, chunk.dtype)", "whole = np.empty(length)")],
        {"ring_allgather", "ring_allreduce"},
        "returned float64 of shape",
    ),
    "sends the whole array in every step": (
        [
            ("comm.start_send(chunks[(k + 1 - t) % p]", "comm.start_send(whole"),
            ("[(k - t) % p][:] = comm.recv((k - 1) % p)", "[(k - t) % p][:] = taken(comm, p, k, t)"),
            (
                "def ring_allreduce",
                "def taken(comm, p, k, t):\n"
                "    return np.array_split(comm.recv((k - 1) % p), p)[(k - t) % p]\n\n\ndef ring_allreduce",
            ),
        ],
        {"ring_allgather", "ring_allreduce"},
        "the result is right, but rank 1 sent 32 bytes, not 16",
    ),
    "empty chunks are not sent": (
        [
            (
                "        done = comm.start_send(",
                "        if right := chunks[(k + 1 - t) % p].size:\n            done = comm.start_send(",
            ),
            (
                "        chunks[(k - t) % p][:] =",
                "        if chunks[(k - t) % p].size:\n            chunks[(k - t) % p][:] =",
            ),
            ("        done()\n", "        if right:\n            done()\n"),
        ],
        {"ring_allgather", "ring_allreduce"},
        "3 ranks, 2 elements of float64: the result is right, but rank",
    ),
    "sends to everyone instead of around": (
        [
            (
                "comm.start_send(chunks[(k + 1 - t) % p], (k + 1) % p)",
                "comm.start_send(chunk, (k + 1 + t) % p)",
            ),
            (
                "chunks[(k - t) % p][:] = comm.recv((k - 1) % p)",
                "chunks[(k - t) % p][:] = comm.recv((k - 1 - t) % p)",
            ),
        ],
        {"ring_allgather", "ring_allreduce"},
        "its right neighbour",
    ),
    "only powers of two": (
        [("number = k // 2 if k < 2 * r else k - r", "number = k")],
        {"doubling_allreduce"},
        "3 ranks",
    ),
    "the speaker does not answer": (
        [("    if k < 2 * r:\n        comm.send(total, k - 1)\n", "")],
        {"doubling_allreduce"},
        "rank 1 sent 1 message, not 2",
    ),
    "gathers everything instead": (
        [("    q = 1\n    while", "    return gather_broadcast_allreduce(comm, x)\n    q = 1\n    while")],
        {"doubling_allreduce"},
        "the result is right, but rank",
    ),
}
