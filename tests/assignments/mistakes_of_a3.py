"""The usual mistakes in lessons/assignments/a3_data_parallel, each with what the grader says of it."""

ONE_BY_ONE = """
        for to in range(1, comm.size):
            for p in parameters:
                comm.send(p, to)
        return
    for p in parameters:
        p[...] = comm.recv(0)
    return
    if comm:
"""
AS_THEY_COME = """
        for bucket in self.buckets:
            if number in bucket and all(i in self.grads for i in bucket):
                self.launch(bucket)
        return
"""
BACKWARD = "    if len(x) > 0:\n        loss, grads = backward(x, y)"
REST = "    for bucket in self.buckets[len(self.waits) :]:\n"
# What is changed; the task that is lost; a piece of what is said.
MISTAKES = {
    "the last rank takes the rest": (
        [
            (
                "return start, start + whole + (rank < rest)",
                "return start, n if rank == ranks - 1 else start + whole",
            )
        ]
        + [(" + min(rank, rest)", "")],
        "share",
        "2 samples among 3 ranks: the ranks have 0, 0 and 2 samples: their numbers should differ by at most",
    ),
    "the rest is dropped": (
        [(" + min(rank, rest)", ""), (" + (rank < rest)", "")],
        "share",
        "1 sample among 2 ranks: the shares end at 0, it should be 1",
    ),
    "one message for each parameter": (
        [("        message = pack(parameters)\n", ONE_BY_ONE)],
        "broadcast_parameters",
        "the parameters are right, but rank 0 sent 2 messages, not 1",
    ),
    "new arrays instead of those that are there": (
        [("        p[...] = new", "        p = new")],
        "broadcast_parameters",
        "rank 1's parameter 0 is as it was: write into the array itself",
    ),
    "a copy of what has gaps is written to": (
        [("        p[...] = new", "        p.reshape(-1)[...] = new.reshape(-1)")],
        "broadcast_parameters",
        "2 ranks, parameters of shape (2, 2), Fortran order: rank 1's parameter 0",
    ),
    "the mean of the means": (
        [("weight = len(x) / n", "weight = 1 / comm.size")],
        "gradients",
        "'s gradient of hidden.weight is",
    ),
    "the sum of the means": (
        [("weight * pack([*grads", "pack([*grads")],
        "gradients",
        "2 ranks with 2 and 2 samples: rank 0's gradient of hidden.weight is 2 times what it should be",
    ),
    "a mean over no samples": (
        [(BACKWARD, "    loss, grads = backward(x, y)")],
        "gradients",
        "rank 1 calls backward for no samples, which have no mean",
    ),
    "who has no samples goes home": (
        [(BACKWARD, f"    if len(x) == 0:\n        return 0.0, grads\n{BACKWARD}")],
        "gradients",
        "rank 1 with 0 samples called all-reduce 0 times, it should be 1",
    ),
    "the loss apart": (
        [
            ("allreduce(weight * pack([*grads, np.array([loss])]))", "allreduce(weight * pack(grads))"),
            ("    *grads, loss = unpack(total,", "    *grads, loss = unpack(np.append(total, loss),"),
        ],
        "gradients",
        "gives 26 numbers to allreduce, it should be 27: all gradients and the loss",
    ),
    "trains as it goes": (
        [
            (
                "    return float(loss), grads",
                "    parameters[0] -= 0.1 * grads[0]\n    return float(loss), grads",
            )
        ],
        "gradients",
        "rank 0's parameter hidden.weight was changed",
    ),
    "in the order of forward": (
        [("for i in reversed(range(len(sizes)))", "for i in range(len(sizes))")],
        "buckets",
        "parameters of 8 and 8 bytes, buckets of at most 40: bucket 0 is [0, 1], it should be [1, 0]",
    ),
    "full is too full": ([("sizes[i] > room", "sizes[i] >= room")], "buckets", "bucket 0 is"),
    "a large one leaves an empty bucket": (
        [
            ("results, room = [], 0\n", "results, room = [[]], most\n"),
            ("if not results or sizes", "if sizes"),
        ],
        "buckets",
        "bucket 0 is [], it should be",
    ),
    "starts everything in finish": (
        [("while len(self.waits) < len(self.buckets):", "while False:")],
        "Reducer",
        "has started 0 all-reduces when the gradients [3] are final, it should be 1",
    ),
    "starts buckets as they are complete, out of order": (
        [("        while len(self.waits) < len(self.buckets):\n", f"{AS_THEY_COME}        while True:\n")],
        "Reducer",
        "to start_allreduce, it should be 2: bucket 0, [3], is next",
    ),
    "waits at once": (
        [("self.start(pack(grads)))", "[self.start(pack(grads))()].pop)")],
        "Reducer",
        "waits for bucket 0 in on_grad: backward could go on; wait in finish",
    ),
    "keeps what was lent": ([("= gradient.copy()", "= gradient")], "Reducer", "is nan at 0, 0"),
    "forgets the last step when the next gradient comes": (
        [
            (
                "        self.reset()\n        return",
                "        self.waits, self.old = [], True\n        return",
            ),
            ("self.grads, self.waits = {}, []", "self.grads, self.waits, self.old = {}, [], False"),
            (
                "        self.grads[number] =",
                "        if self.old:\n            self.reset()\n        self.grads[number] =",
            ),
        ],
        "Reducer",
        "in step 2 is",
    ),
    "who has no gradients starts nothing": (
        [(REST, f"{REST}            if not self.grads:\n                continue\n")],
        "Reducer",
        "rank 1 started 0 all-reduces for 4 buckets",
    ),
}
