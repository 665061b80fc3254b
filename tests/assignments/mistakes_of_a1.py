"""The usual mistakes in lessons/assignments/a1_backpropagation, each with what the grader says of it."""

RECURSIVE = """
    def backward(self, output, seed):
        gradients = [None] * len(self.entries)

        def walk(place, g):
            gradients[place] = g.copy() if gradients[place] is None else gradients[place] + g
            for source, pull in self.entries[place]:
                walk(source, pull(g))

        if output.place is not None:
            walk(output.place, seed)
        return [gradients[place] for place in self.leaves]

    def unused(self, output, seed):
"""
# What is changed; the task that is lost; a piece of what is said.
MISTAKES = {
    "the weight's gradient transposed": (
        "return g.T @ x",
        "return x.T @ g",
        "linear",
        "has shape (3, 4), it should be (4, 3)",
    ),
    "the bias per sample": (
        "return g.sum(axis=0)",
        "return g",
        "linear",
        "the gradient of bias has shape (2, 4), it should be (4,)",
    ),
    "a mean where the loss has divided": (
        "return g.sum(axis=0)",
        "return g.mean(axis=0)",
        "linear",
        "the gradient of bias is 0.5 times what it should be",
    ),
    "the bias added in place": (
        "    return x @ weight.T + bias,",
        "    x += 0 * x + 1\n    return (x - 1) @ weight.T + bias,",
        "linear",
        "float64, C order: x was changed: work on a copy",
    ),
    "the gradient of 0 is 1": ("passes = x > 0", "passes = x >= 0", "relu", "it should be 0"),
    "the gradient in place": (
        "(lambda g: g * passes,)",
        "(lambda g: np.multiply(g, passes, out=g),)",
        "relu",
        "changed g, which others still need",
    ),
    "the input as the value": (
        "return x * passes,",
        "return (x if passes.all() else x * passes),",
        "relu",
        "the value is memory of x: return a new array",
    ),
    "not divided by the samples": (
        "return (d * (g / n))",
        "return (d * g)",
        "cross_entropy",
        "the gradient of logits is 2 times what it should be",
    ),
    "g forgotten": ("return (d * (g / n))", "return (d / n)", "cross_entropy", "times what it should be"),
    "float64 always": (
        "(d * (g / n)).astype(logits.dtype)",
        "(d * (g / n)).astype(float)",
        "cross_entropy",
        "is float64, it should be float32",
    ),
    "no shift before exp": (
        "z = logits - logits.max(axis=1, keepdims=True)",
        "z = logits",
        "cross_entropy",
        "scale 1000",
    ),
    "one-hot taken off again at each call": (
        "    def to_logits(g):\n        d = np.exp(log_p)\n",
        "    d = np.exp(log_p)\n\n    def to_logits(g):\n",
        "cross_entropy",
        "gradient of logits",
    ),
    "padding not cut off": (
        "return d[:, :, padding : padding + h, padding : padding + w]",
        "return d",
        "conv2d",
        "padding 1",
    ),
    "a kernel turned round": (
        "g, weight[:, :, i, j])\n        return d[",
        "g, weight[:, :, kh - 1 - i, kw - 1 - j])\n        return d[",
        "conv2d",
        "the gradient of x",
    ),
    "stride in one direction": (
        "slice(j, j + (columns - 1) * stride + 1, stride)",
        "slice(j, j + columns)",
        "conv2d",
        "stride 2",
    ),
    "square kernels only": (
        "for i, j in np.ndindex(kh, kw):\n            d[:, :, i, j]",
        "for i, j in np.ndindex(kh, kh):\n            d[:, :, i, j]",
        "conv2d",
        "weight (1, 1, 2, 3), bias (1,), stride 1, padding 0, float64, C order: the gradient of weight is 0",
    ),
    "windows written over": ("d[window(i, j)] += np", "d[window(i, j)] = np", "conv2d", "the gradient of x"),
    "the last use counts": (
        "d.copy() if gradients[source] is None else gradients[source] + d",
        "d.copy()",
        "Tape",
        "leaf v0; v1 = v0 + v0: the gradient of v0",
    ),
    "added up in place, in what others hold": (
        "gradients[source] = d.copy() if gradients[source] is None else gradients[source] + d\n",
        "gradients[source] = d if gradients[source] is None else gradients[source].__iadd__(d)\n",
        "Tape",
        "the gradient of v",
    ),
    "in the order of recording": (
        "for place in reversed(range(len(self.entries))):",
        "for place in range(len(self.entries)):",
        "Tape",
        "was called 0 times, it should be once",
    ),
    "constants are leaves": (
        "        return Node(x, None)\n",
        "        self.entries.append([])\n        return Node(x, len(self.entries) - 1)\n",
        "Tape",
        "was called 1 times, it should be never: no leaf needs it",
    ),
    "zeros instead of None": (
        "return [gradients[place] for place in self.leaves]",
        "return [np.zeros(3) if gradients[p] is None else gradients[p] for p in self.leaves]",
        "Tape",
        "it should be None: nothing depends on it",
    ),
    "the seed handed out": (
        "= seed.copy()",
        "= seed",
        "Tape",
        "leaf v0: the gradient of v0 and the seed are the same memory: copy",
    ),
    "recursion, once for each use": (
        "    def backward(self, output, seed):\n",
        RECURSIVE,
        "Tape",
        "the pullback from v1 to v0 was called 2 times, it should be once",
    ),
}
