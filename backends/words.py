"""Numbers in words, for messages and pictures."""

from itertools import groupby


def counted(n: int, noun: str) -> str:
    """``n`` of something in words: "1 rank", "2 ranks"."""
    return f"{n} {noun}{'s' * (n != 1)}"


def numbers(micros: tuple[int, ...]) -> str:
    """Runs of consecutive numbers by their ends: (0, 1, 2, 5) is "0-2,5"."""
    runs = groupby(enumerate(micros), lambda pair: pair[1] - pair[0])  # which is the same for all of a run
    ends = [(run[0][1], run[-1][1]) for run in (list(run) for _, run in runs)]
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
