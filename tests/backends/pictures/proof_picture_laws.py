"""Laws of backends/pictures/proof_picture.py: a picture of a proof has each difference once, and says proved
where all are within the bound, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from backends.laws import Differences
from tests.pictures import shown


def a_proof_is_drawn_whole(picture: Callable[[Differences], str], differences: Differences) -> None:
    got = shown(picture(differences))
    *lines, (last,) = got.rows(2)
    assert len(lines) == len(differences), f"{len(lines)} lines for {len(differences)} differences"
    for words, one in zip(lines, differences, strict=True):
        shape = " x ".join(map(str, one.shape)) or "1"
        verdict = "equal" if one.relative <= differences.bound else "not equal"
        numbers = [f"{one.absolute:.1e}", f"{one.relative:.1e}", str(one.worst_rank)]
        assert words == [one.name, shape, *numbers, verdict], f"{one} is drawn as {words}"
    off = [one for one in differences if one.relative > differences.bound]
    proved = bool(differences) and not off
    assert differences.proved == proved, f"of {len(off)} over the bound proved is {differences.proved}"
    assert last.startswith("PROVED: ") == proved, f"of {len(off)} over the bound it says {last}"
    assert last.startswith("NOT EQUAL: ") == bool(off), last
    if off:
        worst = max(one.relative for one in off)
        named = {f"{one.name} on rank {one.worst_rank}" for one in off if one.relative == worst}
        assert any(f": {name} differs by" in last for name in named), f"{last}; the worst are {named}"
    elif proved:
        bitwise = all(one.absolute == 0 for one in differences)
        assert ("bit for bit" in last) == bitwise, last
    assert got.title == f"Comparison with the serial run. {last}"
