"""Laws of lessons/minigrad_course/machines/transformer_flops.py: operations are those of the project's own
transformer, and the closed form of the paper.
"""

import numpy as np
from minigrad_course.machines.transformer_flops import transformer_flops, utilization

from backends.planner import TransformerSizes
from minigrad.models import NETS


def a_forward_is_that_of_the_planner(layers: int, heads: int, rows: int, symbols: int, length: int) -> None:
    """Exactly, but for the pairs that a causal mask leaves out: S (S - 1) / 2 in each row and block."""
    width = 4 * heads
    flops = transformer_flops(layers, width, rows, symbols, length)
    _, *blocks, _, scores = TransformerSizes(symbols, length, width, heads, layers).work()
    masked = 4 * rows * layers * width * (length * (length - 1) // 2)
    assert flops.scores == rows * scores, f"scores take {flops.scores}, the planner says {rows * scores}"
    forward, expected = flops.products + flops.core - masked, rows * sum(blocks)
    assert forward == expected, f"blocks take {forward} operations, the planner says {expected}"


def products_are_those_of_the_weights(layers: int, heads: int, rows: int, symbols: int, length: int) -> None:
    """Two operations for each token and each weight of a matrix of the built net; places are only added."""
    sizes = {"symbols": symbols, "length": length, "width": 4 * heads, "heads": heads, "blocks": layers}
    model = NETS["transformer"].resized(**sizes).build(np.random.default_rng(0))
    matrices = {name: p.size for name, p in model.named_parameters().items() if p.ndim == 2}
    del matrices["0.position"]
    flops = transformer_flops(layers, 4 * heads, rows, symbols, length)
    counted = 2 * rows * length * sum(matrices.values())
    actual = flops.products + flops.scores
    assert actual == counted, f"{actual} operations, the weights make {counted}"
    needed = 3 * counted + 3 * flops.core
    assert flops.model == needed, f"{flops.model} operations of a step, 6 N D and the core are {needed}"


def a_step_is_that_of_the_paper(layers: int, width: int, rows: int, symbols: int, length: int) -> None:
    """F = 96 B s l h^2 (1 + s / 6 h + V / 16 l h) with recomputation; a blocks' forward less without."""
    flops = transformer_flops(layers, width, rows, symbols, length)
    inner = 1 + length / (6 * width) + symbols / (16 * layers * width)
    expected = 96 * rows * length * layers * width**2 * inner
    assert abs(flops.recomputed / expected - 1) < 1e-12, f"{flops.recomputed} operations, paper {expected}"
    inner = 1 + length / (6 * width) + symbols / (12 * layers * width)
    expected = 72 * rows * length * layers * width**2 * inner
    assert abs(flops.model / expected - 1) < 1e-12, f"{flops.model} operations, by hand {expected}"
    assert 3 * flops.recomputed <= 4 * flops.model, "recomputation takes at most a third more"


def a_machine_at_its_peak_is_used_whole(flops: int, ranks: int, peak: int) -> None:
    """That many ranks at their peak use 1 of it, and half of it in twice the time."""
    seconds = flops / (ranks * peak)
    for times in (1, 2, 4):
        used = utilization(flops, times * seconds, ranks, peak)
        assert abs(used * times - 1) < 1e-12, f"a utilization of {used} in {times} times the least time"
