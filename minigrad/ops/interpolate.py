"""Images made larger by whole factors.

Lecture section: back-propagation. Lesson: 02_backpropagation, by ``ops/__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..device import Array, array_module
from ..lookup import check_choice
from ..op import OpResult, op, shape_of
from .geometry import Pair, nchw, nhwc, pair

Stretched = tuple[Array, Callable[[Array], Array]]


@op
def interpolate(x: Array, *, scale_factor: Pair, mode: str = "nearest") -> OpResult:
    """(N, C, H, W) to (N, C, H s, W s): each pixel s x s times, or, with mode "bilinear", blended.

    The centre of the output's pixel i lies at (i + 1/2) / s of the image, as in PyTorch with
    ``align_corners=False``. Raises ValueError for images without pixels and factors that are not whole.
    """
    check_choice("mode", mode, list(MODES))
    if len(shape_of(x)) != 4 or min(x.shape[2:]) < 1:
        raise ValueError(f"interpolate takes images (N, C, H, W) with pixels, got shape {shape_of(x)}")
    stretch, (down, across) = MODES[mode], pair(scale_factor, "scale_factor", 1)
    wide, to_columns = stretch(nhwc(x), across, 2)  # first, as rows of an image are long, its columns short
    y, to_rows = stretch(wide, down, 1)
    return nchw(y), (lambda g: nchw(to_columns(to_rows(nhwc(g)))),)


def repeated(x: Array, factor: int, axis: int) -> Stretched:
    """Each slice of ``x`` along ``axis`` ``factor`` times."""
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    shape = (*before, factor, *after)
    y = array_module(x).empty(shape, x.dtype)
    y[...] = array_module(x).expand_dims(x, axis + 1)

    def to_x(g: Array) -> Array:
        copies = g.reshape(shape)
        first, *others = (copies[(slice(None),) * (axis + 1) + (k,)] for k in range(factor))
        return sum(others[1:], first + others[0]) if others else first

    return y.reshape(*before[:-1], before[-1] * factor, *after), to_x


def blended(x: Array, factor: int, axis: int) -> Stretched:
    """Between neighbouring slices along ``axis``, ``factor`` for each; outside of the first is the first."""
    xp, n = array_module(x), x.shape[axis]

    def at(start: int, stop: int | None, step: int = 1) -> tuple[slice, ...]:
        return (slice(None),) * axis + (slice(start, stop, step),)

    framed = xp.concatenate([x[at(0, 1)], x, x[at(n - 1, n)]], axis)
    centres = [(i + 0.5) / factor + 0.5 for i in range(factor)]  # in ``framed``, of the first pixel's slices
    taps = [(i, int(centre), centre % 1) for i, centre in enumerate(centres)]
    shape = (*x.shape[:axis], n * factor, *x.shape[axis + 1 :])
    y = xp.empty(shape, x.dtype if x.dtype.kind == "f" else float)
    parts = {share: framed * share for _, _, c in taps for share in (c, 1 - c)}  # most shares occur twice
    for i, k, c in taps:
        out = y[at(i, None, factor)]
        xp.add(parts[1 - c][at(k, k + n)], parts[c][at(k + 1, k + 1 + n)], out=out)

    def to_x(g: Array) -> Array:
        d = xp.zeros(framed.shape, g.dtype)
        for i, k, c in taps:
            part = g[at(i, None, factor)]
            d[at(k, k + n)] += part * (1 - c)
            d[at(k + 1, k + 1 + n)] += part * c
        d[at(1, 2)] += d[at(0, 1)]
        d[at(n, n + 1)] += d[at(n + 1, n + 2)]
        return d[at(1, n + 1)]

    return y, to_x


MODES = {"nearest": repeated, "bilinear": blended}
