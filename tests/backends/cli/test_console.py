"""Laws of backends/cli/console.py, next_command.py, options.py and backends/launch/terminal.py: what
commands print on a terminal, also from rank 0 of an MPI job, and which command they suggest next.
"""

import shlex
from dataclasses import fields
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
import typer
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.console import Console

from backends.cli import console, next_command
from backends.cli.main import app
from backends.cli.options import ParallelOptions
from backends.comm import run_ranks
from backends.data_parallel import Bucketed, DataParallel, LocalSGD
from backends.launch import terminal
from backends.pipeline import Pipeline
from backends.process import launcher
from backends.stack import Stack
from minigrad.serial import Serial
from tests.bugs.mutant import mutant

PROVE = typer.main.get_command(app).commands["prove"].loaded  # pyright: ignore


class Terminal(StringIO):
    def isatty(self):
        return True


# The terminal behind mpiexec's pipe


def rank_0_knows_the_terminal(of_ranks: ModuleType, of_commands: ModuleType, patch) -> None:
    """Ranks write colors and lines as wide as the launcher's terminal; without one, neither."""
    with patch.context() as world:
        world.setattr("sys.stdout", Terminal())
        world.setenv("COLUMNS", "67")
        world.setenv("TERM", "xterm-256color")
        world.delenv("NO_COLOR", raising=False)
        variables = of_ranks.for_ranks()
        world.setattr("sys.stdout", StringIO())
        assert of_ranks.for_ranks() == {}
        assert not of_commands.new_console().is_terminal
        world.delenv("COLUMNS")
        world.delenv("FORCE_COLOR", raising=False)
        with patch.context() as rank:  # Open MPI gives each rank a terminal of its own
            rank.setattr("sys.stdout", Terminal())
            assert of_commands.new_console().is_terminal
            rank.setenv("OMPI_COMM_WORLD_RANK", "0")
            assert not of_commands.new_console().is_terminal
        for name, value in variables.items():
            world.setenv(name, value)
        shown = of_commands.new_console()
        assert shown.is_interactive and shown.width == 67 and shown.color_system == "256"
        world.setenv("TERM", "dumb")
        assert not of_commands.new_console().is_interactive


def test_rank_0_knows_the_terminal(monkeypatch):
    rank_0_knows_the_terminal(terminal, console, monkeypatch)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("terminal", "not sys.stdout.isatty()", "sys.stdout.isatty()"),
        ("console", "force_terminal=True, ", ""),
        ("console", "width=width, ", ""),
        ("console", "if width is None:", "if width is not None:"),
        ("console", "False if no_terminal else None", "None"),
    ],
)
def test_a_rank_that_does_not_know_the_terminal_is_seen(monkeypatch, name, old, new):
    of_ranks = mutant("backends.launch.terminal", (old, new)) if name == "terminal" else terminal
    of_commands = mutant("backends.cli.console", (old, new)) if name == "console" else console
    with pytest.raises((AssertionError, ValueError)):
        rank_0_knows_the_terminal(of_ranks, of_commands, monkeypatch)


def test_a_path_is_one_line_without_colors():
    shown = StringIO()
    path = "runs/20261122-031831-" + 80 * "n" + "/metrics.json"
    console.print_paths(Console(file=shown, force_terminal=True, width=40), figures=Path(path), trace=None)
    assert shown.getvalue() == f"figures: {path}\n"


# The next command


def the_proof_has_the_options_of_the_training(module: ModuleType, options: ParallelOptions, flags) -> None:
    """The suggested command line, parsed again, has the ranks and the strategy of the training."""
    backend = run_ranks(2, DataParallel)[0]
    name, verb, *words = shlex.split(module.after_training(options, flags, backend).command)
    assert (name, verb) == ("minigrad", "prove")
    try:
        values = PROVE.make_context(verb, words).params
    except Exception as error:  # of click, which typer brings along or not
        raise AssertionError(f"{words} cannot be parsed: {error}") from error
    for f in fields(options):
        expected = f.default if f.name in ("transport", "oversubscribe") else getattr(options, f.name)
        value = values[f.name]
        assert list(value) == (expected or []) if f.name == "option" else value == expected, f.name
    assert {name: values[name] for name in flags} == flags


FLAGS = st.fixed_dictionaries({}, optional={"servers": st.integers(1, 3), "allreduce": st.just("ring")})


@st.composite
def parallel_options(draw):
    return ParallelOptions(
        net=draw(st.sampled_from(["lenet", "mlp"])),
        data=draw(st.sampled_from([None, 1, 2, 8])),
        pipe=draw(st.integers(1, 3)),
        model=draw(st.integers(1, 3)),
        plan=None,
        strategy=draw(st.sampled_from([None, "sharded", "bucketed"])),
        option=draw(st.sampled_from([None, ["a=1"], ["bucket_bytes=1 000", "b=2"]])),
        transport=draw(st.sampled_from([None, "threads"])),
        oversubscribe=draw(st.booleans()),
        schedule=draw(st.sampled_from([None, "zb-h1"])),
        micro=draw(st.sampled_from([None, 0, 4])),
        chunks=None,
        bounds=draw(st.sampled_from([None, "0,3,5", "time"])),
        recompute=draw(st.booleans()),
    )


@given(options=parallel_options(), flags=FLAGS)
def test_the_proof_has_the_options_of_the_training(options, flags):
    the_proof_has_the_options_of_the_training(next_command, options, flags)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if value != default", "if value"),
        ("| dict(flags)", ""),
        ("[flag] if one is True else", ""),
        ("shlex.quote(word)", "word"),
        ("if isinstance(value, list) else [value]", "if False else [value]"),
        ("if name not in HOW_RANKS_RUN", "if name"),
    ],
)
def test_a_suggestion_that_is_another_run_is_seen(old, new):
    broken = mutant("backends.cli.next_command", (old, new))

    @settings(max_examples=100, phases=[Phase.generate])
    @given(options=parallel_options(), flags=FLAGS)
    def law(options, flags):
        the_proof_has_the_options_of_the_training(broken, options, flags)

    with pytest.raises(AssertionError):
        law()


@pytest.mark.parametrize(
    ("ranks", "backend", "command"),
    [
        (1, lambda comm: Serial(), "minigrad lesson 01"),
        (1, DataParallel, "minigrad lesson 01"),
        (2, LocalSGD, "minigrad lesson 09"),
        (2, Bucketed, "minigrad prove"),
    ],
)
def test_a_training_leads_to_its_proof_or_its_lesson(ranks, backend, command):
    first = run_ranks(ranks, backend)[0]
    assert next_command.after_training(ParallelOptions(), {}, first).command == command


def test_a_proof_leads_to_the_lesson_of_its_strategy():
    for backend, lesson in ((Bucketed, "06"), (Pipeline, "13")):
        assert next_command.lesson_of(run_ranks(2, backend)[0]).command == f"minigrad lesson {lesson}"
    stack = run_ranks(
        4, lambda comm: Stack(Bucketed(comm.split(comm.rank % 2)), Pipeline(comm.split(comm.rank // 2)))
    )
    assert next_command.lesson_of(stack[0]).command == "minigrad lesson 14"


def test_only_a_terminal_shows_it(monkeypatch):
    for name in (*launcher.RANK_VARIABLES, *launcher.SIZE_VARIABLES, launcher.RANKS):
        monkeypatch.delenv(name, raising=False)
    for is_terminal in (True, False):
        shown = StringIO()
        next_command.NextCommand("minigrad lesson 01", "why").show(
            Console(file=shown, force_terminal=is_terminal, width=20, color_system=None)
        )
        assert shown.getvalue() == "next: minigrad lesson 01  (why)\n" * is_terminal
