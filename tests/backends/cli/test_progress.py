"""Laws of backends/cli/training.py: the progress of a training is a bar on a terminal; elsewhere, and
under MPI, a line an epoch from rank 0.
"""

import re
from functools import partial
from io import StringIO
from types import ModuleType

import pytest
from rich.console import Console

from backends.cli import training
from backends.cli.parallel import ParallelConfig
from backends.comm import run_ranks
from minigrad.train import History
from tests.bugs.mutant import mutant

LINE = re.compile(
    r"epoch (\d+) of (\d+): step (\d+), loss (\S+), (?:(\S+) % right, )?(\d+) s, ([\d,]+) samples/s"
)


def one_line_an_epoch(
    module: ModuleType, capsys, *, ranks: int, epochs: int, batch: int | None, log: bool = False
) -> None:
    """Rank 0 prints at most 20 lines, evenly, up to the last epoch, with loss and accuracy as measured.

    With ``log`` it prints a line for every epoch, also on a terminal, and shows no bar.
    """
    parallel = ParallelConfig("replicated", data=ranks)
    config = module.Training(parallel, net="sigmoid", epochs=epochs, batch=batch, dtype="float64")
    capsys.readouterr()

    shown = StringIO()
    console = Console(file=shown, force_terminal=log)

    def work(comm):
        return config.run(comm, config.backend(comm), console, lambda metrics: None, log=log)

    metrics, _ = run_ranks(ranks, work)[0]
    assert "training" not in shown.getvalue(), "there is a bar"
    actual = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    lines = [line.groups() for line in actual if line is not None]
    assert len(lines) == len(actual)
    every = 1 if epochs <= 20 or log else -(-epochs // 20)
    assert [int(line[0]) for line in lines] == [n for n in range(1, epochs + 1) if (epochs - n) % every == 0]
    assert {int(line[1]) for line in lines} == {epochs}
    losses, steps = metrics["losses"], len(metrics["losses"]) // epochs
    for number, _, step, loss, right, _, _ in lines:
        assert int(step) == int(number) * steps
        mean = sum(losses[(int(number) - 1) * steps : int(number) * steps]) / steps
        assert float(loss) == pytest.approx(mean, rel=0.06)
        if batch is not None:
            assert float(right) == pytest.approx(100 * metrics["test_accuracies"][int(number) - 1], abs=0.06)
        else:
            assert (right is not None) == (int(number) == epochs)


SETTINGS = [
    dict(ranks=2, epochs=3, batch=500),
    dict(ranks=1, epochs=45, batch=None),
    dict(ranks=1, epochs=21, batch=None, log=True),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_rank_0_prints_one_line_an_epoch(capsys, settings):
    one_line_an_epoch(training, capsys, **settings)


@pytest.mark.parametrize(
    ("old", "new", "settings"),
    [
        ("due and comm.rank == 0 and (log", "due and (log", SETTINGS[0]),
        ("not (console.is_interactive or", "(console.is_interactive or", SETTINGS[0]),
        ("(log or not", "(not", SETTINGS[2]),
        ("1 if log else ", "", SETTINGS[2]),
        ("comm.rank == 0 and not log", "comm.rank == 0", SETTINGS[2]),
        ("-(-self.epochs // LINES)", "1", SETTINGS[1]),
        ("== (self.epochs - 1) % every", "== 0", SETTINGS[1]),
        ("{epoch + 1} of", "{epoch} of", SETTINGS[0]),
        ("[-(steps // (epoch + 1)) :]", "", SETTINGS[0]),
        ("results[-1]", "results[0]", SETTINGS[0]),
    ],
)
def test_a_broken_line_is_seen(capsys, old, new, settings):
    with pytest.raises(AssertionError):
        one_line_an_epoch(mutant("backends.cli.training", (old, new)), capsys, **settings)


def outlives_a_closed_pipe(module: ModuleType, monkeypatch) -> None:
    """A training whose output nobody reads goes on."""

    class Closed(StringIO):
        def flush(self):
            raise BrokenPipeError

    config = module.Training(net="sigmoid", epochs=2, batch=1000)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Closed())
        work = partial(config.run, console=Console(file=StringIO()), save=lambda metrics: None)
        ((metrics, _),) = run_ranks(1, lambda comm: work(comm, config.backend(comm)), rank_0_here=True)
    assert metrics["finished"]


def test_a_closed_pipe_does_not_end_a_training(monkeypatch):
    outlives_a_closed_pipe(training, monkeypatch)
    with pytest.raises(BrokenPipeError):
        outlives_a_closed_pipe(
            mutant("backends.cli.training", ("suppress(OSError)", "suppress(KeyError)")), monkeypatch
        )


def bar_names_no_loss_before_the_first_step(module: ModuleType) -> None:
    shown = StringIO()
    with module.progress_bar(Console(file=shown, force_terminal=True, width=100), 3, shown=True) as on_step:
        assert "loss -" in shown.getvalue() and "nan" not in shown.getvalue()
        on_step(0, 0.12345)
    assert "loss 0.1235" in shown.getvalue() or "loss 0.1234" in shown.getvalue()


def test_the_bar_names_no_loss_before_the_first_step():
    bar_names_no_loss_before_the_first_step(training)
    wrong = mutant("backends.cli.training", ('loss="-"', 'loss=float("nan")'))
    with pytest.raises(AssertionError):
        bar_names_no_loss_before_the_first_step(wrong)


def test_a_line_of_an_epoch():
    history = History(losses=[3.0, 2.0, 0.1, 0.08], seconds=12.3, samples=14_760)
    line = training.epoch_line(1, 8, history, [0.5, 0.961])
    assert line == "epoch 2 of 8: step 4, loss 0.09, 96.1 % right, 12 s, 1,200 samples/s"
