"""The window of a convolution, from shapes and settings; ValueError where they do not fit together.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``conv.py``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..device import Array
from ..lookup import check_choice
from ..pullback import shape_of
from .geometry import Geometry, Pair, are_integers, check_windows_fit, pair


def checked_geometry(
    x: Array, weight: Array, stride: Pair, padding: Pair | str, dilation: Pair, groups: int
) -> Geometry:
    """The window of ``conv2d``; raises its ValueErrors."""
    groups = integer(groups, "groups", 1)
    padding = padding if isinstance(padding, str) else pair(padding, "padding", 0)
    settings = pair(stride, "stride", 1), padding, pair(dilation, "dilation", 1), groups
    return geometry_of_shapes(shape_of(x), shape_of(weight), *settings)


@lru_cache  # a network repeats a few shapes
def geometry_of_shapes(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    stride: tuple[int, int],
    padding: tuple[int, int] | str,
    dilation: tuple[int, int],
    groups: int,
) -> Geometry:
    """``checked_geometry`` of the shapes of x and weight."""
    if len(x) != 4 or len(weight) != 4:
        raise ValueError(
            f"conv2d takes x (N, C, H, W) and weight (F, C, kh, kw), got {x} and {weight}; x[:, None] adds "
            "the axis of one channel, x[None] that of one image"
        )
    filters, channels = weight[0], weight[1] * groups
    if x[1] != channels or filters % groups:
        raise ValueError(
            f"conv2d of x {x} with weight {weight} and groups={groups}: x has {x[1]} channels, the weight "
            f"takes {channels} and has {filters} filters; make them agree and both divisible by groups"
        )
    by_name = isinstance(padding, str)
    geometry = Geometry(
        pair(weight[2:], "kernel", 1), stride, (0, 0) if by_name else padding, dilation, groups
    )
    if by_name:
        geometry = padded_by_name(geometry, padding)
    check_windows_fit(x[2:], geometry)
    return geometry


def padded_by_name(geometry: Geometry, name: str) -> Geometry:
    """``geometry``, which has no padding yet, with the padding "valid" (none) or "same"."""
    check_choice("padding", name, ["same", "valid"])
    if name == "valid":
        return geometry
    if geometry.stride != (1, 1):
        raise ValueError(
            f'padding="same" goes with stride 1, got stride {geometry.stride}; pass the padding as a number'
        )
    rows, columns = (extent - 1 for extent in geometry.extent)
    return geometry._replace(padding=(rows // 2, columns // 2), extra=(rows % 2, columns % 2))


def integer(value: int, name: str, least: int) -> int:
    """A setting that is one number."""
    if not are_integers((value,), 1, least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value}")
    return int(value)


def one(value: Any, name: str, least: int) -> int:
    """A setting for the one axis of a signal, given as a number or as a sequence of one."""
    return integer(value[0] if are_integers(value, 1, least) else value, name, least)
