"""What can go wrong in a cluster, and how a seed draws it.

Lecture section: parallelism at scale, what fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KINDS = {
    "kill": 5,
    "kill in recovery": 3,
    "pause": 2,
    "partition": 2,
    "slow link": 1,
    "disk full": 2,
    "power failure": 2,
    "bit flip": 3,
}
"""The kinds of faults, with how often each is drawn relative to the others."""

LASTING = ("pause", "partition", "slow link", "disk full")
LONGEST = 2000.0  # seconds that a fault may last: more than the 600 s after which a wait gives up
GAP = 6.0  # mean number of seconds between two faults
MOST = 6  # faults of a storm


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at ``at`` on the simulated clock, for ``seconds`` where it lasts.

    - kill: ``rank``'s process ends, wherever its program and its writer of checkpoints are.
    - kill in recovery: the same in the first attempt that begins after ``at``, ``seconds`` after its begin.
    - pause: nothing runs on ``rank``'s host.
    - partition: no message passes between two groups of hosts; those that were sent arrive afterwards.
    - slow link: messages from and to ``rank`` take 10 to 10,000 times as long.
    - disk full: no file or folder can be written.
    - power failure: all hosts and the shared disk lose power, and what was not synced may be lost.
    - bit flip: one bit of one file of a generation changes.

    ``draw`` is a random number for all else: the groups, the factor, the file and its bit, what is lost.
    """

    kind: str
    at: float
    seconds: float
    rank: int
    draw: int

    def text(self, ranks: int) -> str:
        """The fault in words, in a cluster of ``ranks``."""
        for_long = f" for {self.seconds:.1f} s" if self.kind in LASTING else ""
        if self.kind == "kill in recovery":
            return f"kill of rank {self.rank}, {self.seconds:.1f} s after a restart"
        if self.kind == "partition":
            group = self.group(ranks)
            names = f"rank{'s' * (len(group) > 1)} {', '.join(map(str, group))}"
            return f"partition of {names} from the others{for_long}"
        whom = f" of rank {self.rank}" if self.kind in ("kill", "pause", "slow link") else ""
        factor = f" ({self.factor:,.0f} times slower)" if self.kind == "slow link" else ""
        return f"{self.kind}{whom}{factor}{for_long}"

    @property
    def end(self) -> float:
        """When it is over; a kill in recovery begins with a start, and ends with it."""
        return self.at + (self.seconds if self.kind in LASTING else 0.0)

    @property
    def factor(self) -> float:
        """How many times as long a message takes over a slow link."""
        return 10.0 ** (1 + self.draw % 4)

    def group(self, ranks: int) -> list[int]:
        """The ranks on one side of a partition, at least one and not all."""
        chosen = 1 + self.draw % (2**ranks - 2) if ranks > 1 else 0
        return [rank for rank in range(ranks) if chosen >> rank & 1]


def draw_faults(random: Random, ranks: int) -> list[Fault]:
    """Up to ``MOST`` faults in the order of time; a cluster of one rank has no links that could fail."""
    kinds = {kind: n for kind, n in KINDS.items() if ranks > 1 or kind not in ("partition", "slow link")}
    faults, at = [], 0.0
    for _ in range(random.randint(1, MOST)):
        at += random.expovariate(1 / GAP)
        (kind,) = random.choices([*kinds], [*kinds.values()])
        if kind == "kill in recovery":
            seconds = random.uniform(0.0, 1.5)
        else:
            seconds = LONGEST ** random.random() if kind in LASTING else 0.0
        faults.append(
            Fault(kind, round(at, 3), round(seconds, 3), random.randrange(ranks), random.getrandbits(32))
        )
    return faults
