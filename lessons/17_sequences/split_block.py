"""A block of a transformer for lesson 17, its results on one machine, and which part of it a rank has."""

import numpy as np
from measured import gradients

from minigrad import nn
from minigrad.data import shares

WIDTH, HEADS, D, B, S = 32, 4, 8, 2, 8  # width, heads, numbers of a head, samples, tokens
rng = np.random.default_rng(17)
tokens = rng.normal(size=(B, S, WIDTH))
block = nn.TransformerBlock(WIDTH, HEADS, rng=0, dtype=np.float64)
for parameter in block.parameters():  # a test from biases that are 0 misses mistakes, as lesson 11 shows
    parameter.data += 0.1 * rng.normal(size=parameter.shape)
parameters = block.state_dict()
serial, _ = gradients(lambda leaves: block(leaves["x"]), {"x": tokens})
serial |= {name: parameter.grad for name, parameter in block.named_parameters().items()}


def cut(name, rank, ranks):
    """The places of a parameter that a rank has; () means all of them."""
    heads, neurons = shares(HEADS, ranks)[rank], shares(4 * WIDTH, ranks)[rank]
    parts = {
        "attention.qkv.weight": (slice(3 * D * heads.start, 3 * D * heads.stop),),
        "attention.out.weight": (slice(None), slice(D * heads.start, D * heads.stop)),
        "feed_forward.0.weight": (neurons,),
        "feed_forward.0.bias": (neurons,),
        "feed_forward.2.weight": (slice(None), neurons),
    }
    return parts.get(name, ())


def part_of(comm):
    """This rank's part of each parameter."""
    return {name: array[cut(name, comm.rank, comm.size)] for name, array in parameters.items()}


def owners(name, ranks):
    """The rank that has each element of a parameter."""
    result = np.zeros(parameters[name].shape, int)
    for rank in range(ranks):
        result[cut(name, rank, ranks)] = rank
    return result
