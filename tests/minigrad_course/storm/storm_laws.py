"""Laws of backends/storm/storm.py: what holds of every storm, whatever its seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from minigrad_course.storm.storm import Report, Storm


@dataclass(frozen=True)
class Planted(Storm):
    """It fails if all faults of one of these lists are in it, each fault named by its time."""

    causes: tuple[frozenset[int], ...] = ()

    def run(self) -> Report:
        times = {int(fault.at) for fault in self.faults}
        problem = "not safe" if any(cause <= times for cause in self.causes) else None
        return Report(self, [], [], problem, 0.0, 0, Counter())


StormOf = Callable[[int], Storm]


def storms_are_safe_and_live(seeds: Iterable[int], storm_of: StormOf = Storm.of) -> list[Report]:
    """Assert that each of them is; the reports."""
    reports = []
    for seed in seeds:
        report = storm_of(seed).run()
        assert report.problem is None, f"storm {seed}: {report.problem}"
        reports.append(report)
    return reports


def same_seed_same_trace(seed: int, storm_of: StormOf = Storm.of) -> str:
    """Assert that two runs of a storm have the same trace, byte for byte; the trace."""
    one, two = storm_of(seed).run().trace, storm_of(seed).run().trace
    assert one == two, f"storm {seed} has two traces:\n{one}\n{two}"
    return one


def no_smaller_part_fails(storm: Storm) -> list[int]:
    """Assert that the fewest faults of a storm that fails do fail, and that none of them can be left out."""
    places = storm.fewest_faults()
    assert storm.only(places).run().problem is not None, f"the faults {places} do not fail"
    for place in places:
        fewer = [other for other in places if other != place]
        assert storm.only(fewer).run().problem is None, f"of the faults {places}, {place} is not needed"
    return places
