"""What ranks that train one model have in common: its arrays, the order of them, and the settings.

Lecture section: synchronous data parallelism. Lesson: 06_data_parallel, by ``naive.py``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from minigrad.data import Batch
from minigrad.device import Array, array_module, to_host, unflatten
from minigrad.module import Module
from minigrad.nn import BatchNorm, Dropout
from minigrad.tensor import Parameter

from .comm.collectives import allgather, broadcast
from .comm.communicator import Communicator


def trained_parameters(model: Module) -> list[Parameter]:
    """The parameters whose gradients the ranks exchange, in the same order on all ranks."""
    return [p for p in model.parameters() if p.requires_grad]


def running_statistics(model: Module) -> list[Array]:
    """The floating-point arrays that are no parameters, such as the means of a batch-norm."""
    return [getattr(owner, attribute) for owner, attribute in statistic_attributes(model)]


def statistic_attributes(model: Module) -> list[tuple[Module, str]]:
    """The modules that hold running statistics, and the attributes that are them."""
    arrays = [(owner, attribute, getattr(owner, attribute)) for _, owner, attribute in model.named_arrays()]
    return [(o, a) for o, a, x in arrays if not isinstance(x, Parameter) and np.dtype(x.dtype).kind == "f"]


def broadcast_model(comm: Communicator, model: Module) -> None:
    """Give every rank the parameters, state arrays and seeds of dropout of rank 0."""
    for _, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        array = value.data if isinstance(value, Parameter) else value
        array[...] = broadcast(comm, array)
    if dropouts := [layer for layer in model.modules() if isinstance(layer, Dropout)]:
        seeds = broadcast(comm, np.array([layer.seed for layer in dropouts]))
        for layer, seed in zip(dropouts, seeds.tolist(), strict=True):
            layer.seed = seed


def check_same_on_all_ranks(comm: Communicator, model: Module, settings: dict[str, Any]) -> None:
    """Raise ValueError, on every rank, unless all ranks built the same model and chose the same settings.

    The error names the first parameter (or state array) that differs from rank 0's and both shapes, or
    the first setting and both values. Collective: one small all-gather.
    """
    mine = json.dumps({"settings": settings, "arrays": describe_arrays(model)}, default=str).encode()
    texts = allgather(comm, np.frombuffer(mine, np.uint8))
    first, *others = (json.loads(bytes(text)) for text in texts)
    for rank, other in enumerate(others, 1):
        for name, one, two in differences(first["settings"], other["settings"], "nothing"):
            raise ValueError(
                f"rank 0 has {name} = {one}, rank {rank} has {two}; give all ranks the same settings"
            )
        for name, one, two in differences(first["arrays"], other["arrays"], "nothing of that name"):
            raise ValueError(
                f"the ranks built different models: {name} is {one} on rank 0, {two} on rank {rank}; "
                "build the same model on every rank"
            )
        if list(first["arrays"]) != list(other["arrays"]):
            raise ValueError(
                f"rank 0 and rank {rank} built the same parameters in another order; "
                "build the same model on every rank"
            )


def refuse_half(model: Module, strategy: object) -> None:
    """Raise ValueError for float16 parameters, which this ``strategy`` changes or sums in its own way."""
    names = [name for name, p in model.named_parameters().items() if p.requires_grad and p.dtype.char == "e"]
    if names:
        raise ValueError(
            f"{type(strategy).__name__} trains no float16 parameters, and {names[0]} has them; take "
            "model.to(dtype=np.float32), or a strategy that keeps to the serial steps, as DataParallel"
        )


def checksum_of(batch: Batch) -> int:
    """A number of 32 bits that tells batches apart, by their bytes."""
    checksum = 0
    tokens = () if batch.tokens is None else batch.tokens.arrays()
    for array in (batch.x, batch.y, *(array for array in tokens if array is not None)):
        checksum = zlib.crc32(to_host(array).tobytes(), checksum)
    return checksum


def check_same_batch(comm: Communicator, batch: Batch, or_else: str = "") -> None:
    """Raise ValueError, on every rank, unless all were given the same batch; an all-gather of a number.

    ``or_else`` ends the error with another way out.
    """
    first, *others = (int(checksum) for checksum in allgather(comm, np.array(checksum_of(batch))))
    for rank, checksum in enumerate(others, 1):
        if checksum != first:
            raise other_batch_error(rank, or_else=or_else)


def bits_of_checksum(dtype: np.dtype) -> int:
    """How many bits of a checksum an array of floats of this dtype represents exactly."""
    return min(np.finfo(dtype).nmant + 1, 32)


def other_batch_error(rank: int, than: int = 0, or_else: str = "") -> ValueError:
    """The error of all ranks where ``rank`` was given another batch than the rank ``than``."""
    return ValueError(
        f"rank {rank} was given another batch than rank {than}; pass the whole batch, the same on every "
        f"rank, of which the backend takes each rank's share{or_else}"
    )


def differences(first: dict[str, Any], other: dict[str, Any], absent: str) -> list[tuple[str, Any, Any]]:
    """The names whose values differ, and both values; ``absent`` stands for a value that is missing."""
    names = dict.fromkeys([*first, *other])
    pairs = ((name, first.get(name, absent), other.get(name, absent)) for name in names)
    return [(name, one, two) for name, one, two in pairs if one != two]


def describe_arrays(model: Module) -> dict[str, str]:
    """Dtype, shape and whether it is frozen, of every array by name, and the settings of every layer.

    A tied array has its first name instead.
    """
    names: dict[int, str] = {}
    texts = {}
    for name, owner, attribute in model.named_arrays():
        value = getattr(owner, attribute)
        first = names.setdefault(id(value), name)
        frozen = isinstance(value, Parameter) and not value.requires_grad
        text = f"{value.dtype}{value.shape}" + (" (frozen)" if frozen else "")
        texts[name] = f"tied to {first}" if first != name else text
    for name, layer in model.named_modules():
        if not layer.children():
            texts[f"the layer {name}"] = layer.in_one_line()
    return texts


def weighted(like: Array, arrays: Sequence[Array], weight: float) -> Array:
    """``weight``, then ``arrays`` times it, end to end; all zeros for weight 0, also where they are NaN.

    ``like`` has the device and, where there are no arrays, the dtype.
    """
    xp, dtype = array_module(like), (arrays[0] if arrays else like).dtype
    if not weight:
        return xp.zeros(1 + sum(a.size for a in arrays), dtype)
    return xp.concatenate([xp.ones(1, dtype), *(a.reshape(-1) for a in arrays)]) * weight


def load_mean(arrays: Sequence[Array], total: Array) -> None:
    """Replace ``arrays`` by their mean, for the ``total`` of ``weighted``; not where all weights were 0."""
    if float(total[0]):
        for array, mean in zip(arrays, unflatten(total[1:] / total[0], arrays), strict=True):
            array[...] = mean


def synchronize_batch_norms(model: Module, comm: Communicator) -> None:
    """Let every batch-norm of ``model`` use the statistics of all ranks.

    Each adds an all-gather to a forward pass, of a count, the means and the squared deviations from them, and
    one to a backward pass. So all ranks must take part in every pass, also those without samples.
    """
    for _, owner, _ in model.named_arrays():
        if isinstance(owner, BatchNorm):
            owner.synchronize("data", partial(allgather, comm))
