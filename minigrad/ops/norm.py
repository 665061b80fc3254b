"""Normalisation over the batch or over the features of a sample."""

from __future__ import annotations

from collections.abc import Callable

from ..device import Array, array_module
from ..op import Pulled, op
from ..tape import once

Observe = Callable[[Array, Array, int], None]


@op
def batch_norm(
    x: Array,
    weight: Array,
    bias: Array,
    *,
    statistics: tuple[Array, Array] | None = None,
    eps: float = 1e-5,
    observe: Observe | None = None,
) -> Pulled:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel, for x (N, C) or (N, C, H, W).

    Mean and variance are the batch's own (Ioffe and Szegedy 2015) and told to ``observe(mean, var,
    count)``, or the constants ``statistics = (mean, var)``. Raises ValueError where C differs.
    """
    if x.ndim not in (2, 4) or weight.shape != x.shape[1:2]:
        raise ValueError(
            f"batch_norm takes x (N, C) or (N, C, H, W) and C weights, got {x.shape} and {weight.shape}"
        )
    xp = array_module(x)
    n = x.size // max(x.shape[1], 1)

    def per_channel(a: Array) -> Array:
        return a if x_ndim == 2 else a.reshape(-1, 1, 1)

    x_ndim = x.ndim
    if statistics is None:
        mean = channel_sums(x) / max(n, 1)
        centred = x - per_channel(mean)
        var = channel_sums(centred * centred) / max(n, 1)
        if observe is not None:
            observe(mean, var, n)
    else:
        mean, var = statistics
        centred = x - per_channel(mean)
    scale = 1 / xp.sqrt(var + eps)
    normal = centred * per_channel(scale)
    sums = once(lambda g: (channel_sums(g), channel_sums(g * normal)))
    fixed = statistics is not None

    def to_x(g: Array) -> Array:
        factor = per_channel(weight * scale)
        if fixed:
            return g * factor
        total, along = sums(g)
        return factor * (g - per_channel(total / max(n, 1)) - normal * per_channel(along / max(n, 1)))

    return (
        normal * per_channel(weight) + per_channel(bias),
        (to_x, lambda g: sums(g)[1].copy(), lambda g: sums(g)[0].copy()),
    )


@op
def layer_norm(x: Array, weight: Array, bias: Array, *, eps: float = 1e-5) -> Pulled:
    """Each sample's last axis with mean 0 and variance 1, times weight, plus bias (Ba et al. 2016)."""
    if weight.shape != x.shape[-1:]:
        raise ValueError(
            f"layer_norm of x {x.shape} needs weights of shape {x.shape[-1:]}, got {weight.shape}"
        )
    xp = array_module(x)
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / xp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
    normal = centred * scale

    def to_x(g: Array) -> Array:
        gw = g * weight
        along = (gw * normal).mean(axis=-1, keepdims=True)
        return scale * (gw - gw.mean(axis=-1, keepdims=True) - normal * along)

    return normal * weight + bias, (to_x, lambda g: g * normal, lambda g: g)


def channel_sums(x: Array) -> Array:
    """Sums over all axes but the channels; images in channels-last memory go through one product."""
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
    xp = array_module(x)
    return xp.ones(x.shape[0], x.dtype) @ x
