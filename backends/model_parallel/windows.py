"""What a convolution's windows look at where each rank has a tile of the images, and its gradient's windows.

Lecture section: model parallelism in space. Lesson: 12_spatial.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from minigrad import ops
from minigrad.device import Array
from minigrad.op import OpResult, op
from minigrad.ops.geometry import Geometry
from minigrad.tensor import Tensor

from ..comm.differentiable import zeros_of
from .activation import Cut
from .geometry import Window
from .halo import fetch, take

ROWS, COLUMNS = 2, 3  # axes of (N, C, H, W)


def seen_by(
    x: Tensor,
    cuts: Sequence[Cut],
    outs: Sequence[Cut],
    geometry: Geometry,
    *,
    value: float = 0.0,
    whole: Sequence[Cut] = (),
) -> Tensor:
    """What the windows of this rank's outputs look at, border and all, in one piece of memory.

    The images ``x`` are cut by ``cuts``, the outputs by ``outs``, along the same axes; where a cut is in
    ``whole``, all ranks hold the images whole.
    """
    width = {axis: (p, p) for axis, p in enumerate(geometry.padding, ROWS)}
    for cut, out in zip(cuts, outs, strict=True):
        window, last = window_along(cut.axis, geometry), cut is cuts[-1]
        wanted = [window.needs(*limits, cut.whole) for limits in pairwise(out.bounds)]
        if not last:  # a border would only travel with the columns
            width[cut.axis] = wanted[cut.comm.rank].before, wanted[cut.comm.rank].after
            wanted = [needed.inside for needed in wanted]
        bring = take if cut in whole else fetch
        x = bring(x, cut=cut, wanted=wanted, value=value, width=width if last else None)
    return x


def window_along(axis: int, geometry: Geometry) -> Window:
    return Window(*(pair[axis - ROWS] for pair in geometry[:4]))


@op
def fetching_gradients(
    y: Array, x: Array, weight: Array, *, cuts: Sequence[Cut], outs: Sequence[Cut], geometry: Geometry
) -> OpResult:
    """The outputs ``y`` of a convolution of ``x``, unchanged; going back, ``x`` gets its gradient from here.

    At stride 1 that is a convolution of y's gradient with the kernel turned round. So each rank fetches a
    halo of gradients and computes those of its own rows, as it did forward: no row is computed twice, and
    none is sent home to be added.
    """
    back, channels, zeros = geometry.backward(), x.shape[1], None if x.size else zeros_of(x)

    def to_x(g: Array) -> Array:
        seen = seen_by(Tensor(g), outs, cuts, back)
        if zeros is not None:
            return zeros(g)
        by_group = weight.reshape(back.groups, -1, *weight.shape[1:])[..., ::-1, ::-1]
        turned = by_group.swapaxes(1, 2).reshape(channels, -1, *back.kernel)
        return ops.conv2d(seen, turned, dilation=back.dilation, groups=back.groups).data

    return y, (lambda g: g, to_x, None)
