"""How tensors are spread over ranks, and their gradients: types, from which a missing sum can be seen.

A value that all ranks hold has a gradient that all ranks hold, if they go on alike. If each goes on in its
own way, every rank computes one term of the gradient, and the terms must be summed. So the type of a tensor,
over an axis of ranks, is that of its value and that of its gradient:

      REPLICATED   replicated, replicated   all ranks compute alike, for one loss
      FAN_OUT      replicated, partial      each rank uses it in its own way
      SPLIT        split, split             each rank has a part, and the part's gradient
      PARTIAL      partial, replicated      each rank has one term of a sum

The four are called Invariant, Replicate, Varying and Partial in spmd_types (meta-pytorch/spmd_types,
docs/local_spmd_types.md). Lecture section: model parallelism. Lesson: 11_model_parallel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class GradientType(NamedTuple):
    """How the values of a tensor are spread over an axis of ranks, and how its gradients are.

    ``gives_terms`` says that a product with it is a term of a sum, as with a weight split along its inputs.
    """

    value: str
    gradient: str
    gives_terms: bool = False

    def __str__(self) -> str:
        return f"{self.value} with a {self.gradient} gradient"


REPLICATED = GradientType("replicated", "replicated")
FAN_OUT = GradientType("replicated", "partial")
SPLIT = GradientType("split", "split")
SPLIT_INPUTS = GradientType("split", "split", gives_terms=True)
PARTIAL = GradientType("partial", "replicated")

RULES: Mapping[str, tuple[GradientType, GradientType]] = {
    "fan_out": (REPLICATED, FAN_OUT),
    "fan_in": (PARTIAL, REPLICATED),
    "all_reduce": (PARTIAL, FAN_OUT),
    "share_out": (REPLICATED, SPLIT),
    "join_in": (SPLIT, REPLICATED),
    "all_gather": (SPLIT, FAN_OUT),
    "reduce_scatter": (PARTIAL, SPLIT),
    "all_to_all": (SPLIT, SPLIT),
    "broadcast": (SPLIT, FAN_OUT),
    "sum_to": (PARTIAL, SPLIT),
    "scatter": (SPLIT, SPLIT),
    "gather": (SPLIT, SPLIT),
    "send": (SPLIT, SPLIT),
    "receive": (SPLIT, SPLIT),
    "embedding_of_part": (SPLIT, PARTIAL),
    "sharded_cross_entropy": (SPLIT, REPLICATED),
}
"""The type that an op takes, and the type that it gives, over the axis of its ranks."""

SERVES_AS = {SPLIT: (SPLIT_INPUTS, FAN_OUT), PARTIAL: (SPLIT,)}
"""What may stand for these: each rank's copy for a part, a part for a term."""

ADDITIONS = {"add", "subtract"}
PRODUCTS = {"linear", "conv2d", "matmul"}
LINEAR = {"multiply", "divide", "matmul", "negative", "reshape", "transpose", "getitem", "mean", "spreader"}
"""Ops that make one term of a sum of another one; ``spreader`` is of ``ops.sum``."""


def refusal(op: str, kind: GradientType, ranks: int) -> str | None:
    """Why ``op`` of ``RULES`` cannot take a tensor of this kind; None if it can."""
    needed = RULES[op][0]
    return None if kind in (needed, *SERVES_AS.get(needed, ())) else mismatch(kind, needed, ranks)


def mismatch(kind: GradientType, needed: GradientType, ranks: int) -> str:
    """A predicate that says what would make one type of another."""
    ways = [op for op, rule in RULES.items() if rule == (kind, needed)]
    way = f"put {ways[0]} before" if ways else "a sum over ranks before is one too many: leave it out"
    return f"is {kind} over {ranks} ranks, and must be {needed}; {way}"


def result_of(op: str, inputs: Sequence[tuple[str, GradientType]], ranks: int) -> GradientType | str:
    """The type of what an op without messages makes of ``inputs``, named in words; or why it is wrong.

    An input that needs no gradient is left out.
    """
    kinds = [kind for _, kind in inputs]
    weights = [i for i, kind in enumerate(kinds) if kind.gives_terms and op in PRODUCTS]
    if weights or PARTIAL in kinds and op in ADDITIONS:
        later = inputs[weights[0] + 1 :] if weights else inputs  # a bias comes after its weight
        added = [name for name, kind in later if kind.value == "replicated"]
        added += [] if weights or len(inputs) > 1 else ["a constant"]
        if added:
            return (
                f"{added[0]} is added to a term of a sum on each of {ranks} ranks, so it counts {ranks} "
                "times; add it after fan_in"
            )
    elif PARTIAL in kinds and op != "part_along" and (op not in LINEAR or kinds.count(PARTIAL) > 1):
        return f"each of {ranks} ranks has one term of a sum, and {op} is not linear; put fan_in before"
    if REPLICATED in kinds and {*kinds} != {REPLICATED}:
        name = inputs[kinds.index(REPLICATED)][0]
        other = ", or take the other input before its fan_out" if FAN_OUT in kinds else ""
        return (
            f"the gradient of {name} is partial over {ranks} ranks, which compute differently here, and "
            f"nothing sums it; put fan_out before it{other}; a parameter may be summed after backward"
        )
    if weights or PARTIAL in kinds:
        return PARTIAL
    return next((kind for kind in (SPLIT_INPUTS, SPLIT, FAN_OUT) if kind in kinds), REPLICATED)
