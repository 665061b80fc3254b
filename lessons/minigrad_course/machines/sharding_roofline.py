"""The roofline of a sharding: how many tokens a rank needs so that computing takes as long as messages.

Lecture section: data and model parallelism together. Lesson: 14_hybrid. A rank computes C operations a
second, and sends W bytes a second one way. C / W is the number of operations that each byte sent must pay
for, as in the roofline of Williams, Waterman and Patterson 2009. A message of n bytes takes alpha + n / W
seconds. p ranks share a layer, a rank has b tokens, and a number has e bytes. Each function compares what is
computed with what is sent, in the pass of a step in which messages weigh most. Austin et al. 2025, "How to
scale your model", derive such bounds for data, tensor, expert and pipeline parallelism without latency; the
latency and the ring of keys are ours.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from backends.planner.hardware import Hardware


class ShardingRoofline(NamedTuple):
    """The seconds of a pass on a rank that has b tokens.

    It computes for ``compute`` * b seconds, and its messages take ``fixed`` + ``message`` * b.
    """

    compute: float
    fixed: float
    message: float

    def ratio(self, tokens: float) -> float:
        """How many times as long computing takes as messages: 1 or more where computing is the bound."""
        sent = self.fixed + self.message * tokens
        return self.compute * tokens / sent if sent else math.inf

    @property
    def tokens(self) -> float:
        """The least tokens of a rank for which the pass is bound by computing; inf where none are enough."""
        slope = self.compute - self.message
        if slope > 0:
            return self.fixed / slope
        return 0.0 if slope == self.fixed == 0 else math.inf


def data_roofline(
    machine: Hardware, ranks: int, weights: int, *, itemsize: int = 2, experts: int = 1, choices: int = 1
) -> ShardingRoofline:
    """A backward, which the sum of the gradients of a layer of ``weights`` can hide beside.

    It computes 4 operations for each weight and token, and a ring all-reduce takes 2 (p - 1) messages of a
    p-th of the gradients: b >= (e / 2) (C / W) (p - 1) / p without latency, for any layer. If ``experts``
    copies of the layer are on every rank and a token takes ``choices`` of them, E / k times as many tokens.
    Stage 3 of ZeRO has the same bound in both passes: it sends as much in backward, and half in forward.
    """
    part = machine.link.seconds(itemsize * experts * weights / ranks)
    return ShardingRoofline(4 * choices * weights / machine.flops, 2 * (ranks - 1) * part, 0.0)


def model_roofline(
    machine: Hardware, ranks: int, width: int, hidden: int, *, itemsize: int = 2
) -> ShardingRoofline:
    """A forward of two linear layers, ``width`` to ``hidden`` by columns and back by rows (Megatron-LM).

    All p ranks have the same b tokens. A rank computes 4 b h F / p operations, and then sums b h numbers over
    the ranks. Both grow with b, so without latency only the neurons count: F >= (e / 2) (C / W) (p - 1).
    """
    latency, bandwidth = machine.link
    sends = 2 * (ranks - 1)
    return ShardingRoofline(
        4 * width * hidden / ranks / machine.flops,
        sends * latency,
        sends * itemsize * width / ranks / bandwidth,
    )


def sequence_roofline(
    machine: Hardware, ranks: int, width: int, length: int, *, itemsize: int = 2
) -> ShardingRoofline:
    """A forward of causal attention over rows of ``length`` tokens, whose keys and values go round a ring.

    A rank has S / p tokens of each row, in zig-zag order. It computes a p-th of the S (S + 1) / 2 pairs, 4 h
    operations each, and passes on keys and values p - 1 times, 2 h numbers of each of its tokens. Without
    latency only the length counts, S + 1 >= e (C / W) (p - 1), and more rows do not help.
    """
    latency, bandwidth = machine.link
    hops = ranks - 1
    return ShardingRoofline(
        2 * width * (length + 1) / machine.flops, hops * latency, hops * 2 * itemsize * width / bandwidth
    )


def expert_roofline(
    machine: Hardware, ranks: int, width: int, hidden: int, *, itemsize: int = 2, choices: int = 1
) -> ShardingRoofline:
    """A forward of experts of ``hidden`` neurons, which the ranks share; gates choose all alike.

    A rank computes 4 h m operations for each row that a token chose, k b of them. Of its own rows
    (p - 1) / p go to other ranks and come back, in two all-to-alls of p - 1 messages. Both grow with b:
    without latency only an expert's neurons count: m >= (e / 2) (C / W) (p - 1) / p.
    """
    latency, bandwidth = machine.link
    sends = 2 * (ranks - 1)
    return ShardingRoofline(
        4 * choices * width * hidden / machine.flops,
        sends * latency,
        sends * itemsize * choices * width / ranks / bandwidth,
    )


def pipeline_roofline(machine: Hardware, width: int, weights: int, *, itemsize: int = 2) -> ShardingRoofline:
    """A forward of a micro-batch in a stage of ``weights``, which passes on ``width`` numbers of each token.

    It computes 2 b P operations and sends one message of b h numbers, so without latency only the weights of
    the stage count: P >= (e / 2) (C / W) h. The idle time of the pipeline comes on top.
    """
    latency, bandwidth = machine.link
    return ShardingRoofline(2 * weights / machine.flops, latency, itemsize * width / bandwidth)
