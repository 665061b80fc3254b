"""Laws of lessons/minigrad_course/machines/scaling_laws.py: each speed-up is a quotient of two times."""

from fractions import Fraction

from minigrad_course.machines.scaling_laws import amdahl, gustafson, karp_flatt


def fixed_work_is_a_quotient_of_times(serial: int, shared: int, ranks: int) -> None:
    """One rank takes serial + shared seconds, p ranks serial + shared / p; the share is found again."""
    one, several = serial + shared, serial + Fraction(shared, ranks)
    speedup = amdahl(Fraction(serial, one), ranks)
    assert speedup == one / several, f"{speedup} times, the times say {one / several}"
    assert speedup <= ranks and speedup * serial <= one, f"{speedup} times with {serial} of {one} serial"
    if ranks > 1:
        share = karp_flatt(speedup, ranks)
        assert share == Fraction(serial, one), f"a serial share of {share}, it was {serial} of {one}"


def growing_work_is_a_quotient_of_times(serial: int, each: int, ranks: int) -> None:
    """One rank takes serial + p each seconds, p ranks serial + each; Amdahl's law says so, too."""
    one, several = serial + ranks * each, Fraction(serial + each)
    speedup = gustafson(serial / several, ranks)
    assert speedup == one / several, f"{speedup} times, the times say {one / several}"
    other = amdahl(Fraction(serial, one), ranks)
    assert speedup == other, f"{speedup} times, by Amdahl's law {other}"
