"""The answers to the questions on lesson 14, and the laws that show them."""

import math

import numpy as np
from minigrad_course.lesson.questions import Question
from minigrad_course.machines.integrated_costs import (
    ALEXNET,
    LayerSize,
    Network,
    best_rows,
    integrated_seconds,
)
from minigrad_course.machines.virtual_cluster import VirtualCluster

from backends.comm import run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.collectives.link import Link
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel
from backends.grid import Grid
from backends.model_parallel import ModelParallel
from backends.model_parallel.grid_products.summa_25d import LayeredGrid, summa_25d
from backends.stack import Stack
from minigrad import nn, ops
from minigrad.data import Batch

NUMBERS = Network(alpha=0.0, beta=1.0)  # counts numbers instead of seconds
GRIDS = (4, 1), (2, 2), (1, 4)


def level(width, ranks=16):
    """The largest batch for which splitting a layer sends no more than splitting the batch."""
    layers = [
        LayerSize(0, width),
        LayerSize(width * width, width),
    ]  # the first one is where numbers come from
    batch = ranks
    while integrated_seconds(NUMBERS, layers, [1, ranks], ranks, batch + 1) <= integrated_seconds(
        NUMBERS, layers, 1, ranks, batch + 1
    ):
        batch += 1
    return batch


def smaller_layer(student):
    width = student.WIDTH
    batch = level(width)
    assert width == 1024, (
        f"with {width} inputs and outputs both ways send equally much at {batch:,} samples; take 1024"
    )
    return (
        f"both ways send equally much at {batch:,} samples, with a width of 4,096 at {level(4096):,}: 2 d^2 "
        "numbers for the weights equal 3 d B for B samples at B = 2 d / 3, so a quarter of the width makes "
        "it a quarter of the samples"
    )


def sent(width, data, model, batch=64):
    """The numbers that a rank sends in a step, the mean over four ranks."""

    def work(comm):
        traced, rng = Traced(comm), np.random.default_rng(0)
        grid = Grid(traced, data=data, model=model)
        backend = Stack(
            DataParallel(grid.data, ring_allreduce),
            ModelParallel(grid.model, {"0": "gathered", "2": "gathered"}, allreduce=ring_allreduce),
        )
        layers = nn.Linear(width, width, rng=rng), nn.Tanh(), nn.Linear(width, width, rng=rng)
        placed = backend.place(nn.Sequential(*layers))
        samples = Batch(rng.random((batch, width), np.float32), np.zeros(batch, int))
        before = traced.record.ledger.sent().bytes
        backend.step(placed, samples, ops.cross_entropy)
        return (traced.record.ledger.sent().bytes - before) / 4

    return float(np.mean(run_ranks(4, work)))


def wide_network(student):
    width = student.WIDTH_OF_THE_NETWORK
    numbers = {f"{data} x {model}": sent(width, data, model) for data, model in GRIDS}
    shown = ", ".join(f"{grid} {count:,.0f}" for grid, count in numbers.items())
    assert width == 64, f"at the width {width} a rank sends, in numbers: {shown}; take the width 64"
    assert min(numbers, key=numbers.get) == "2 x 2"
    return (
        f"a rank sends, in numbers: {shown}. Gradients of weights grow as the square of the width, "
        "activations as the width; 64 samples are between a half of it and twice it, where a mixed grid is "
        "best"
    )


def slow_network(student):
    batch, ranks = 2048, 512
    rows, seconds = best_rows(Network(2e-6, 4 / student.BYTES_A_SECOND), ALEXNET, ranks, batch)
    shown = f"at {student.BYTES_A_SECOND / 1e9:g} GB/s Pr = {rows} is cheapest, {1e3 * seconds:.1f} ms"
    assert student.BYTES_A_SECOND == 6e8, f"{shown}; take 6e8 bytes a second"
    _, before = best_rows(Network(2e-6, 4 / 6e9), ALEXNET, ranks, batch)
    return (
        f"{shown} instead of {1e3 * before:.1f}: nearly all of the time is bytes, and every message takes "
        "ten times as long; it is the batch and the layers that set Pr, not the bandwidth"
    )


def own_formula(student):
    rng = np.random.default_rng(14)
    for case in range(20):
        data, model = (int(2**n) for n in rng.integers(0, 5, 2))
        batch = data * int(rng.integers(1, 100))
        layers = [(int(w), int(d)) for w, d in rng.integers(1, 5000, (rng.integers(1, 6), 2))]
        sizes = [LayerSize(*layer) for layer in layers]
        library = integrated_seconds(NUMBERS, sizes, model, data * model, batch)
        own = student.numbers_sent(layers, data, model, batch)
        assert own is not None and np.isclose(own, library, rtol=1e-9), (
            f"case {case}, {len(layers)} layers on {data} x {model}: your function says {own}, the library "
            f"{library:,.1f} numbers; write numbers_sent"
        )
    layers, measured = [(65 * 64, 64)] * 2, sent(64, 2, 2)
    own = student.numbers_sent(layers, 2, 2, 64)
    assert abs(own / measured - 1) < 0.01, (
        f"your function says {own:,.0f}, a rank sends {measured:,.0f} numbers"
    )
    outputs, inputs, weights = by_collective(100, 10, 10_000)
    return (
        f"20 cases are the library's, and on 2 x 2 a rank really sends {measured:,.0f} numbers where you say "
        f"{own:,.0f}, since the loss goes with them. Of the ten layers the outputs are {outputs:,.0f} "
        f"numbers, the inputs' gradients {inputs:,.0f} (an all-reduce sends twice as many), the weights' "
        f"{weights:,.0f}"
    )


def by_collective(width, depth, batch):
    """The numbers for the outputs, for the inputs' gradients and for the weights', on 2 x 2."""
    outputs = depth * integrated_seconds(NUMBERS, [LayerSize(0, width)], 2, 4, batch)
    activations = integrated_seconds(NUMBERS, [LayerSize(0, width)] * depth, 2, 4, batch)
    everything = integrated_seconds(NUMBERS, [LayerSize(width * width, width)] * depth, 2, 4, batch)
    return outputs, activations - outputs, everything - activations


def numbers_in_layers(layers, ranks=256, n=16):
    """The numbers that a rank sends for one product of n x n matrices, the mean over all ranks."""
    q = math.isqrt(ranks // layers)

    def work(comm):
        traced = Traced(comm)
        layered, block = LayeredGrid(traced, layers, q, q), np.ones((n // q, n // q))
        before = traced.record.ledger.sent().bytes
        summa_25d(layered, block, block, n)
        return (traced.record.ledger.sent().bytes - before) / 8

    return float(np.mean(run_ranks(ranks, work)))


def copies(student):
    layers = student.LAYERS
    assert layers == 4, (
        f"{layers} layers send {numbers_in_layers(1):.0f} numbers if they are 1; take 4 layers"
    )
    one, four, sixteen = (numbers_in_layers(c) for c in (1, 4, 16))
    assert four < one < sixteen
    return (
        f"a rank sends {four:.0f} numbers instead of {one:.0f}: 2 (8 - 1) for the products, as many as its "
        f"layer has rows, and 3 (4 - 1) for copies and sums. With 16 layers of 4 x 4 it would send "
        f"{sixteen:.0f}: the best number of layers is near (p / 9)^(1/3), here 3"
    )


def sum_seconds(link, ranks, nbytes):
    """Seconds of a ring all-reduce of so many bytes on a virtual clock."""
    cluster = VirtualCluster(ranks, link)
    cluster.run(lambda comm: ring_allreduce(comm, np.zeros(nbytes, np.int8)))
    return cluster.seconds


SMALL_FLOPS, SMALL_LINK = 312e6, Link(0.0, 300e3)
"""An A100 and its link, both a million times slower."""


def wider_layer(student):
    width = student.WIDTH_OF_THE_LAYER
    weights = (width // 16) ** 2  # a layer a sixteenth as wide, which a virtual rank can hold
    least = round(sum_seconds(SMALL_LINK, 8, 2 * weights) * SMALL_FLOPS / (4 * weights))
    words = f"{width:,} x {width:,} weights: computing takes longer from {least:,} tokens on"
    assert width == 4096, f"{words}; take 4,096"
    return (
        f"{words}. Both grow with the weights, 4 operations for each and token, and nearly 4 bytes for each: "
        "only the tokens are left, and the machine"
    )


def more_tokens(student):
    tokens, width, hidden, ranks = student.TOKENS_OF_MODEL_RANKS, 16, 4096, 8
    computing = 4 * tokens * width * hidden / ranks / SMALL_FLOPS
    summing = sum_seconds(SMALL_LINK, ranks, 2 * tokens * width)
    words = f"with {tokens:,} tokens the sum takes {summing / computing:.2f} times as long as computing"
    assert tokens == 16_384, f"{words}; take 16,384 tokens"
    return (
        f"{words}, and so it is for any number of tokens: both times grow with them. Only more neurons or "
        "fewer ranks help: with twice as many neurons it takes half as many times as long"
    )


def own_bound(student):
    rng = np.random.default_rng(8)
    for case in range(12):
        ranks, itemsize = int(rng.integers(2, 7)), int(rng.integers(1, 5))
        weights, flops = ranks * int(rng.integers(1, 50)), float(rng.integers(50, 500))
        link = Link(float(rng.integers(0, 3)), float(rng.integers(1, 9)))
        own = student.least_tokens(flops, *link, ranks, weights, itemsize)
        seconds = sum_seconds(link, ranks, itemsize * weights)
        true = seconds * flops / (4 * weights)
        assert own is not None and np.isclose(own, true, rtol=1e-9), (
            f"case {case}, {ranks} ranks, {weights} weights: your function says {own} tokens, virtual "
            f"ranks need {true:.2f}; write least_tokens"
        )
    eight, many = (student.least_tokens(312e12, 0.0, 300e9, p, 4096**2, 2) for p in (8, 64))
    return (
        f"12 sums on virtual ranks take as long as you say. 8 ranks need {eight:,.0f} tokens each, 64 ranks "
        f"{many:,.0f}: a rank sends 2 (p - 1) / p of the gradients, which is hardly more"
    )


WRITTEN = """    total = 0.0
    for i, (weights, outputs) in enumerate(layers):
        gathered = batch / data * outputs
        reduced = 2 * batch / data * layers[i - 1][1] if i else 0
        total += (gathered + reduced) * (model - 1) / model
        total += 2 * weights / model * (data - 1) / data
    return total
"""
QUESTIONS = [
    Question("b", smaller_layer, (("WIDTH = 4096", "WIDTH = 1024"),)),
    Question("c", wide_network, (("WIDTH_OF_THE_NETWORK = 16", "WIDTH_OF_THE_NETWORK = 64"),)),
    Question("b", slow_network, (("BYTES_A_SECOND = 6e9", "BYTES_A_SECOND = 6e8"),)),
    Question("b", own_formula, (("    return 0.0\n", WRITTEN),)),
    Question("b", copies, (("LAYERS = 1", "LAYERS = 4"),)),
    Question("c", wider_layer, (("WIDTH_OF_THE_LAYER = 1024", "WIDTH_OF_THE_LAYER = 4096"),)),
    Question("a", more_tokens, (("TOKENS_OF_MODEL_RANKS = 1024", "TOKENS_OF_MODEL_RANKS = 16_384"),)),
    Question(
        "b",
        own_bound,
        (
            (
                "    return 0.0 * weights\n",
                """    part = latency + itemsize * weights / ranks / bandwidth
    return 2 * (ranks - 1) * part * flops / (4 * weights)
""",
            ),
        ),
    ),
]
