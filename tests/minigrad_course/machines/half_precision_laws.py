"""Laws of lessons/minigrad_course/machines/half_precision.py: each formula is what float16 arrays do."""

import itertools

import numpy as np
from minigrad_course.machines.half_precision import (
    bytes_of_a_parameter,
    hole,
    lost_shares,
    scale_path,
    sum_error_bound,
)

from minigrad import nn, optim
from minigrad.loss_scale import DynamicScale

NUMBERS = np.arange(2**15 - 2**10, dtype=np.uint16).view(np.float16)  # all from 0 to 65504, in order


def a_hole_is_the_distance_of_neighbors(place: int) -> None:
    """``place`` is that of a positive number among all; the last one is below infinity, at 2^16."""
    x = float(NUMBERS[place])
    after = float(NUMBERS[place + 1]) if place + 1 < len(NUMBERS) else 2.0**16
    assert hole(x) == after - x, f"{x} has a hole of {hole(x)} above it, expected {after - x}"


def shares_are_those_of_rounded_arrays(sizes: np.ndarray, power: int) -> None:
    """Arrays are rounded to float16, and what is 0 and what is below the normal numbers is counted."""
    nonzero = sizes[sizes != 0]
    with np.errstate(over="ignore"):
        rounded = (nonzero.astype(np.float64) * 2.0**power).astype(np.float16)
    exact = np.abs(nonzero.astype(np.float64)) * 2.0**power
    expected = np.mean(exact < np.finfo(np.float16).tiny), np.mean(rounded == 0)
    assert lost_shares([sizes], 2.0**power) == expected, (lost_shares([sizes], 2.0**power), expected)


def a_bound_holds_in_any_order(xs: np.ndarray) -> None:
    """``xs`` (ranks, n) of float16, added up in each order, one after the other."""
    exact, sizes = xs.astype(np.float64).sum(axis=0), np.abs(xs.astype(np.float64)).sum(axis=0)
    bound = sum_error_bound(len(xs), sizes)
    for order in itertools.permutations(range(len(xs))):
        total = xs[order[0]]
        for rank in order[1:]:
            total = total + xs[rank]
        off = np.abs(total.astype(np.float64) - exact)
        assert (off <= bound).all(), f"an error of {(off - bound).max():.1e} above the bound"


def a_bound_is_no_larger_than_needed() -> None:
    """The sum of 1 and 2^-11 is in the middle of a hole: half of it is lost, nearly all of the bound."""
    x = np.float16(1), np.float16(2.0**-11)
    off, bound = float(x[1] - (x[0] + x[1] - x[0])), float(sum_error_bound(2, np.array(1 + 2.0**-11)))
    assert off <= bound < 1.01 * off, f"an error of {off:.2e}, and a bound of {bound:.2e}"


def a_path_is_that_of_the_dynamic_scale(exponents: list[int], start: int, interval: int) -> None:
    """A float16 number is multiplied by the scale, and the library's scale learns whether it is infinite."""
    scale, path, taken = DynamicScale(2.0**start, growth_interval=interval), [], []
    for a in exponents:
        with np.errstate(over="ignore"):
            taken.append(bool(np.isfinite(np.float64(2.0**a * scale.value).astype(np.float16))))
        if taken[-1]:
            scale.take_step()
        else:
            scale.skip_step()
        path.append(int(np.log2(scale.value)))
    expected = path, taken
    assert scale_path(exponents, start, interval) == expected, (
        f"{scale_path(exponents, start, interval)}, expected {expected}"
    )


def bytes_are_those_of_arrays(itemsize: int, momentum: float) -> None:
    """The arrays of a layer after a step of Adam, or of SGD with a velocity or without."""
    net = nn.Linear(6, 4, rng=0).to(dtype=f"f{itemsize}")
    if momentum:
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    else:
        optimizer = optim.AdamW(net.parameters(), lr=0.1)
    if itemsize == 2:
        optimizer.with_master_weights()
    for p in net.parameters():
        p.grad = np.ones_like(p.data)
    optimizer.step()
    arrays = [a for p in net.parameters() for a in (p.data, p.grad) if a is not None]
    arrays += [a for state in optimizer.state for a in state.values() if isinstance(a, np.ndarray)]
    counted = sum(a.nbytes for a in arrays) / sum(p.size for p in net.parameters())
    formula = bytes_of_a_parameter(itemsize, moments=1 if momentum else 2)
    assert formula == counted, f"{formula} bytes by the formula, {counted} in arrays"


def shares_of_ranks_add_up(itemsize: int, moments: int, ranks: int, stage: int) -> None:
    """All ranks together hold what is shared once, and everything else as often as there are ranks."""
    together, whole = ranks * bytes_of_a_parameter(itemsize, moments, ranks, stage), 0.0
    for kind, nbytes in (("optimizer", 4 * moments), ("gradient", itemsize), ("parameter", itemsize)):
        copies = 1 if stage > ("optimizer", "gradient", "parameter").index(kind) else ranks
        whole += copies * (nbytes + (4 if kind == "optimizer" and itemsize == 2 else 0))
    assert abs(together - whole) < 1e-9, f"{together} bytes on all ranks, expected {whole}"
