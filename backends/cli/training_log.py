"""The records that a training appends to ``metrics.jsonl``: the settings, then every step and every test.

- first: ``config``, the number of ``ranks`` and the folder of the ``checkpoints``, or null
- of a step: ``step`` (from 1), ``epoch`` (from 1), ``loss``, ``lr``, ``seconds`` of training so far
- of a test: ``step`` and ``epoch`` after which it was made, ``test_accuracy``, or of texts ``test_loss`` in
  nats a symbol, ``seconds``

A resumed training begins with the records of the steps that its checkpoint holds. When these were taken is
not known, so their ``seconds`` are null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from minigrad.metrics_log import Record
from minigrad.train import History

Append = Callable[[list[Record]], object]


class TrainingLog:
    """Passes each record once to ``append``; ``header`` is the first one.

    ``test`` is the name of its results.
    ``rate(step)`` is the learning rate of a step, counted from 0. An epoch has ``epoch_steps`` steps, and the
    model is tested after every ``test_steps`` steps. Where a record cannot be written, as on a full disk,
    ``say`` gets one line, and the training goes on without a log.
    """

    def __init__(
        self,
        append: Append,
        header: Record,
        *,
        rate: Callable[[int], float],
        epoch_steps: int,
        test_steps: int,
        say: Callable[[str], object],
        test: str = "test_accuracy",
    ):
        self.append, self.header, self.rate, self.say, self.test = append, header, rate, say, test
        self.epoch_steps, self.test_steps = epoch_steps, test_steps
        self.steps = self.tests = 0  # that have a record
        self.failed = False

    def update(self, history: History, results: Sequence[float]) -> None:
        """Write the records that are new; it is called after every step and every test."""
        if self.failed:
            return
        begin = [] if self.steps or not history.losses else [self.header]
        try:
            self.append([*begin, *self.records(history, results)])
        except OSError as error:
            self.failed = True
            self.say(f"{error}; the training goes on without a log")

    def records(self, history: History, results: Sequence[float]) -> Iterator[Record]:
        """The new records, in the order in which they were measured."""
        while True:
            if self.tests < len(results) and self.steps == (self.tests + 1) * self.test_steps:
                self.tests += 1
                measured = {self.test: results[self.tests - 1]}
            elif self.steps < len(history.losses):
                self.steps += 1
                measured = {"loss": history.losses[self.steps - 1], "lr": self.rate(self.steps - 1)}
            else:
                return
            epoch = -(-self.steps // self.epoch_steps)
            seconds = history.seconds if self.steps == len(history.losses) else None
            yield {"step": self.steps, "epoch": epoch, **measured, "seconds": seconds}
