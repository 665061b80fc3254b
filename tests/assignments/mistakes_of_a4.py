"""The usual mistakes in lessons/assignments/a4_compression, each with what the grader says of it."""

APART = """
    ks = comm.allgather(v[indices])
    places = comm.allgather(indices)
    return sum(np.bincount(i, x, v.size) for i, x in zip(places, ks))
"""
AT_ONCE = """
    parts = [unpack(message, v.dtype) for message in comm.allgather(pack(v[indices], indices))]
    total[np.concatenate([p for _, p in parts])] += np.concatenate([x for x, _ in parts])
    return total
"""
OWN_FIRST = """
    messages = comm.allgather(pack(v[indices], indices))
    for message in [messages.pop(comm.rank), *messages]:
"""
BASIC = """
        self.error = self.error + g
        indices = self.choose(self.error)
        sent = np.zeros_like(g)
        sent[indices] = self.error[indices]
        self.error[indices] = 0
        self.velocity = self.momentum * self.velocity + sent
        return self.velocity.copy()
"""
# What is changed; the tasks that are lost; a piece of what is said.
MISTAKES = {
    "the largest values, not sizes": (
        [("np.argsort(-np.abs(v)", "np.argsort(-v")],
        {"top_k"},
        "top_k took one of size",
    ),
    "a partition that cannot take all": (
        [
            (
                "np.argsort(-np.abs(v), kind='stable')[:k]".replace("'", '"'),
                "np.argpartition(-np.abs(v), k)[:k]",
            )
        ],
        {"top_k"},
        "k = 2: ValueError",
    ),
    "indices of 64 bits": (
        [("[:k].astype(np.int32)", "[:k]")],
        {"top_k"},
        "what top_k returned is int64, it should be int32",
    ),
    "what reaches the threshold": (
        [("np.abs(v) > threshold", "np.abs(v) >= threshold")],
        {"top_k"},
        "above_threshold([",
    ),
    "indices as they come": (
        [("indices.astype(np.int32).tobytes()", "indices.tobytes()")],
        {"pack"},
        "of float64, k = 2: pack made 32 bytes, it should be 24: 2 values of 8 bytes, 2 indices of 4",
    ),
    "indices first": (
        [
            (
                "values.tobytes() + indices.astype(np.int32).tobytes()",
                "indices.astype(np.int32).tobytes() + values.tobytes()",
            ),
            ("message[: k * size].view(dtype)", "message[4 * k :].view(dtype)"),
            ("message[k * size :].view(np.int32)", "message[: 4 * k].view(np.int32)"),
        ],
        {"pack"},
        "the message is not 2 values of 8 bytes, 2 indices of 4, in this order",
    ),
    "values of float32 only": (
        [("message[: k * size].view(dtype)", "message[: k * size].view(np.float32)")],
        {"pack", "exchange"},
        "what unpack returned as values",
    ),
    "nothing is kept": (
        [("    residual = v.copy()", "    residual = 0 * v")],
        {"feedback"},
        "is sent and 0.0 kept",
    ),
    "what was sent is kept too": ([("    residual[indices] = 0\n", "")], {"feedback"}, "step 1, entry"),
    "the gradient's rest only": (
        [("    residual = v.copy()", "    residual = g.copy()")],
        {"feedback"},
        "step 2, entry",
    ),
    "kept in another order of sums": (
        [("    residual = v.copy()\n    residual[indices] = 0\n", "    residual = error + (g - sent)\n")],
        {"feedback"},
        "had accumulated",
    ),
    "the error is written over": (
        [("    v = error + g\n", "    error += g\n    v = error\n")],
        {"feedback"},
        "error was changed: work on a copy",
    ),
    "what several ranks send counts once": (
        [("    total = np.zeros_like(v)\n    for", f"    total = np.zeros_like(v)\n{AT_ONCE}\n    for")],
        {"exchange"},
        "'s sum is",
    ),
    "places are set, not added to": (
        [("total[places] += theirs", "total[places] = theirs")],
        {"exchange"},
        "sum",
    ),
    "the own entries first, in other bits on each rank": (
        [("    for message in comm.allgather(pack(v[indices], indices)):\n", OWN_FIRST)],
        {"exchange"},
        "3 ranks sending",
    ),
    "values and indices apart": (
        [("    total = np.zeros_like(v)\n    for", f"{APART}\n    for")],
        {"exchange"},
        "rank 0 sends 16 bytes for 2 entries, it should be 24",
    ),
    "dense": (
        [
            (
                "pack(v[indices], indices)):",
                "pack(*(lambda i: (v * np.isin(i, indices), i))(np.arange(v.size)))):",
            )
        ],
        {"exchange"},
        "rank 0 sends 48 bytes for 2 entries, it should be 24",
    ),
    "momentum after selection": (
        [("        self.velocity = self.momentum * self.velocity + g\n", f"{BASIC}\n")],
        {"Momentum"},
        "all is sent, so this should be SGD without momentum",
    ),
    "what is left of momentum in place of momentum": (
        [("self.momentum * self.velocity + g", "(1 - self.momentum) * self.velocity + g")],
        {"Momentum"},
        "momentum 0.",
    ),
    "no masking": (
        [("        if self.masking:\n            self.velocity[indices] = 0\n", "")],
        {"Momentum"},
        "masking: all is sent, so this should be SGD without momentum, as masking stops what is sent: after",
    ),
    "always masks": (
        [("if self.masking:", "if True:")],
        {"Momentum"},
        "no masking: all is sent, so this should be momentum SGD: after step 2 w",
    ),
    "masks all of the velocity": (
        [("self.velocity[indices] = 0", "self.velocity[:] = 0")],
        {"Momentum"},
        "what rank 0 sends in step",
    ),
    "the velocity in place of the error": (
        [("sent[indices] = self.error[indices]", "sent[indices] = self.velocity[indices]")],
        {"Momentum"},
        "what rank 0 sends in step",
    ),
}
