"""Assignment a6: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.submissions import JUNK, costs, faults, submission

A6 = find_assignment("a6")
ALL = {task.name for task in A6.tasks}
SPACE = {"halo", "convolution"}
FUNCTIONS = {"halo", "halo_backward"} | {
    f"{layer}_{way}" for layer in ("column", "row", "block", "conv") for way in ("forward", "backward")
}


@pytest.mark.parametrize("junk", [*JUNK, ("x", "y"), (None,) * 5], ids=repr)
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_junk_is_refused_in_words(junk, way):
    right = submission("solved_a6.py")
    functions = {name: lambda *_: junk for name in FUNCTIONS if (way == "backward") == name.endswith(way)}
    actual = faults(A6, SimpleNamespace(**{**vars(right), **functions}), few=ALL)
    words = ("returned", "it should be")
    assert set(actual) == ALL and all(any(w in said for w in words) for said in actual.values()), actual


ADDS_BACK = "            dx[:, :, low - mine : high - mine] += comm.recv(r)\n"
MISTAKES = {
    "keeps its own part of x's gradient": (
        [("return ring_allreduce(comm, g @ w), g.T", "return g @ w, g.T")],
        {"column", "block"},
        "gradient of x is its own part of the sum",
    ),
    "sums the weights' gradients as in data parallelism": (
        [("g @ w), g.T @ x, g.sum(0)", "g @ w), ring_allreduce(comm, g.T @ x), g.sum(0)")],
        {"column", "block"},
        "2 ranks",
    ),
    "adds the bias on every rank": (
        [("ring_allreduce(comm, x @ w.T) + b", "ring_allreduce(comm, x @ w.T + b)")],
        {"row", "block"},
        "result of row_forward is right but for the bias, which is in it 2 times",
    ),
    "sums a gradient that is whole already": (
        [
            (
                "    return g @ w, g.T @ x, g.sum(axis=0)",
                "    return g @ w, g.T @ x, ring_allreduce(comm, g.sum(0))",
            )
        ],
        {"row", "block"},
        "gradient of b is 2 times what it should be",
    ),
    "all-reduces where nothing is to be sent": (
        [
            (
                "    return x @ w.T + b, (x, w)\n\n\ndef column_b",
                "    ring_allreduce(comm, x)\n    return x @ w.T + b, (x, w)\n\n\ndef column_b",
            )
        ],
        {"column", "block"},
        "the results are right, but in column_forward the ranks sent 128 bytes in all, not 0",
    ),
    "leaves out the ReLU on the way back": ([("da * positive", "da")], {"block"}, "1 rank"),
    "works in its input": (
        [("radius : radius + heights[me]].copy()", "radius : radius + heights[me]]")],
        {"halo"},
        "halo_backward returned its input's memory on rank 0",
    ),
    "asks the direct neighbours only": (
        [("    if heights[asker] == 0:", "    if heights[asker] == 0 or abs(owner - asker) > 1:")],
        SPACE,
        "3 ranks with",
    ),
    "sends before it receives": (
        [
            (
                "finishes.append(comm.start_send(x[:, :, low - mine : high - mine], r))",
                "comm.send(x[:, :, low - mine : high - mine], r)",
            )
        ],
        SPACE,
        "deadlock",
    ),
    "overwrites instead of adding": (
        [(ADDS_BACK, ADDS_BACK.replace("+=", "="))],
        SPACE,
        "2 ranks with 2 and 2 rows, radius 1",
    ),
    "sends no gradients back": (
        [(ADDS_BACK, ADDS_BACK.replace("+= comm", "*= 1; comm"))],
        SPACE,
        "gradient of x is only what came of its own rows",
    ),
    "forgets that a rank may have no rows": (
        [("    if heights[asker] == 0:\n        return 0, 0\n", "")],
        SPACE,
        "0",
    ),
    "sends empty messages": (
        [
            (
                "        low, high = overlap(heights, radius, me, r)\n        if low < high and r != me:\n"
                "            finishes.append(comm.start_send(x",
                "        low, high = overlap(heights, radius, me, r)\n        if r != me:\n"
                "            finishes.append(comm.start_send(x",
            ),
            ("        if low < high:\n            top", "        if low < high or r != me:\n            top"),
        ],
        {"halo"},
        "the result is right, but rank",
    ),
    "convolves its own rows as if they were the image": (
        [
            (
                "np.pad(halo(comm, x, heights, radius), ((0, 0), (0, 0), (0, 0), (radius, radius)))",
                "np.pad(x, ((0, 0), (0, 0), (radius if len(x[0, 0]) else 0,) * 2, (radius, radius)))",
            )
        ],
        {"convolution"},
        "result of conv_forward is that of its own rows alone",
    ),
    "keeps its own part of the weights' gradient": (
        [("return dx, ring_allreduce(comm, dw)", "return dx, dw")],
        {"convolution"},
        "gradient of w is",
    ),
    "a rank without rows takes no part in the all-reduce": (
        [
            (
                "return dx, ring_allreduce(comm, dw)",
                "return dx, ring_allreduce(comm, dw) if heights[comm.rank] else dw",
            )
        ],
        {"convolution"},
        "gradient of w is 0 at",
    ),
    "exchanges the halo once more on the way back": (
        [
            (
                "    dtall, dw = np",
                "    halo(comm, tall[:, :, : heights[comm.rank]], heights, radius)\n    dtall, dw = np",
            )
        ],
        {"convolution"},
        "the results are right, but in conv_backward the ranks sent",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A6, *MISTAKES[mistake])
