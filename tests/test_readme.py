"""The documents are true: their Python runs as written, and the paths that they name exist."""

import re
from html import unescape
from io import StringIO
from pathlib import Path

import pytest
import typer

from backends.cli.main import app
from backends.cli.proof import conclusion
from backends.cli.training import epoch_line
from backends.entry import main
from minigrad.train import History

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SKIPPED = {".git", ".pytest_cache", "node_modules", "runs", "build", "dist"}
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.md")
    if not any(part in SKIPPED or part.startswith(".venv") for part in path.relative_to(ROOT).parts)
)


# Code


def python_of(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_python_of_the_readme_runs_as_written(capsys):
    step, own, strategy = python_of(TEXT)
    names: dict = {}
    exec(step, names)
    printed = capsys.readouterr().out.strip()
    assert re.search(rf"print\(.*loss.*\) +# {re.escape(printed)}\n", step), printed
    assert all(p.grad is not None for p in names["model"].parameters())
    exec(own, {})
    losses = re.findall(r"step (\d) on 2 ranks: loss ([\d.]+)\n", capsys.readouterr().out)
    assert [number for number, _ in losses] == ["0", "1", "2"] and losses[2][1] < losses[0][1]
    exec(strategy, names)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("parameter.grad = allreduce(self.comm, parameter.grad)", "pass"),
        ("allreduce(self.comm, np.array(loss))", "np.array(loss)"),
    ],
)
def test_the_law_of_the_readme_catches_a_mistake_in_its_strategy(right, wrong):
    step, _, strategy = python_of(TEXT)
    assert right in strategy
    names: dict = {}
    exec(step, names)
    with pytest.raises(Exception, match="differs by"):
        exec(strategy.replace(right, wrong), names)


def test_the_python_of_the_contributors_guide_runs_as_written():
    blocks = python_of((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(block, names)


# Other places for the losses, in the page for those who know PyTorch


class Lines(list):
    """A TensorBoard writer and a run of W&B, for what they are called with."""

    def add_scalar(self, *arguments):
        self.append(arguments)

    log = list.append


def test_the_python_of_the_page_for_those_who_know_pytorch_runs_as_written(capsys):
    text = (ROOT / "backends" / "from_pytorch.md").read_text(encoding="utf-8")
    names: dict = {}
    for block in python_of(text):
        exec(block, names)
    for section in text.split("\n## ")[1:-1]:
        assert "```py\n" in section and "```python\n" in section, section.partition("\n")[0]
    model, scalars, records, file = names["model"], Lines(), Lines(), StringIO()
    optimizer = names["optim"].SGD(model.parameters(), 0.1)
    losses = names["with_tensorboard"](scalars, None, model, optimizer).losses
    assert scalars == [row for i, loss in enumerate(losses) for row in (("loss", loss, i), ("lr", 0.1, i))]
    losses = names["with_wandb"](records, model, optimizer).losses
    assert records == [{"loss": loss, "epoch": epoch} for epoch, loss in enumerate(losses)]
    losses = names["with_csv"](file, model, optimizer).losses
    assert file.getvalue() == "".join(f"{step},{loss}\n" for step, loss in enumerate(losses))


# Paths

WORDS = {"aN", "NN_topic", "NEW", "FAMILY"}  # placeholders, which no path has
PLACES = ("minigrad/", "backends/", "lessons/", "tests/", "benchmarks/", ".ci/")


def links(file):
    """The files and folders that a document links to, from its own folder."""
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / file).read_text(encoding="utf-8")):
        yield (ROOT / file).parent / target


def paths(text):
    """The paths of this repository that stand in backticks, or on an indented or fenced line of commands."""
    code = re.findall(r"`([^`\n]+)`", text) + re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
    code += re.findall(r"^    (.*)$", text, re.MULTILINE)
    for word in " ".join(code).split():
        path = word.strip("\"'(),;").partition("::")[0]
        if path.startswith(PLACES) and not any(name in path for name in WORDS) and "*" not in path:
            yield path


@pytest.mark.parametrize("file", DOCUMENTS, ids=str)
def test_every_link_leads_somewhere(file):
    assert not [target for target in links(file) if not target.exists()]


@pytest.mark.parametrize("file", DOCUMENTS, ids=str)
def test_every_path_in_backticks_exists(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not [path for path in paths(text) if not (ROOT / path).exists()]
    beside = [name for name in re.findall(r"`(\w+\.py)`", text) if not NOT_OURS.fullmatch(name)]
    assert not [name for name in beside if not any(ROOT.glob(f"*/**/{name}"))]


NOT_OURS = re.compile(r"(my_a\d+|own|script)\.py")  # the reader's files


def test_the_check_of_paths_sees_one_that_is_gone():
    text = "`backends/gone.py` and `backends/laws.py`\n\n    pytest -q tests/gone.py::test_x\n"
    assert [p for p in paths(text) if not (ROOT / p).exists()] == ["backends/gone.py", "tests/gone.py"]


def test_the_readme_leads_to_the_index_and_the_index_to_every_lesson():
    assert "(lessons/README.md)" in TEXT
    index = (ROOT / "lessons" / "README.md").read_text(encoding="utf-8")
    for lesson in (ROOT / "lessons").glob("*/lesson.py"):
        assert f"({lesson.parent.name}/lesson.py)" in index
    for assignment in (ROOT / "lessons" / "assignments").glob("a*/README.md"):
        assert f"(assignments/{assignment.parent.name}/README.md)" in index


# Commands


def test_the_set_up_is_two_lines():
    lines = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert "minigrad train --data 2" in lines[0] and "minigrad prove" in lines[0]
    assert lines[1].endswith("pytest")


def test_the_output_of_the_readme_is_that_of_the_commands():
    (sample,) = re.findall(r"```\n\.\.\.\n(epoch .*?)```", TEXT, re.DOTALL)
    last, *_, verdict = sample.splitlines()
    rows = r"│ (?:test accuracy|training time|samples per second) +│ ([\d.,]+)"
    accuracy, seconds, speed = (float(text.replace(",", "")) for text in re.findall(rows, sample))
    (loss,) = re.findall(r"loss ([\d.]+),", last)
    history = History(632 * [float(loss)], seconds=seconds, samples=round(speed * seconds))
    assert last == epoch_line(7, 8, history, [accuracy / 100])
    (error,) = re.findall(r"to (\S+) ", verdict)
    row = {"name": "0.weight", "shape": [], "max_abs_error": float(error)}
    row |= {"max_rel_error": float(error), "worst_rank": 0}
    assert verdict == conclusion({"passed": True, "bound": 1e-12, "parameters": [row], "loss": row}).plain


PICTURE = ROOT / "lessons" / "pictures" / "proof.svg"


def words_of_svg(text):
    """The words in a picture of a terminal, however its lines are broken; numbers with an exponent are N."""
    words = " ".join(unescape(part) for part in re.findall(r"<text[^>]*>([^<]*)</text>", text))
    return re.sub(r"\d\.\de[+-]\d\d", "N", " ".join(re.sub("[\u2500-\u257f]", " ", words).split()))


def shows_what_the_command_prints(picture, printed):
    """The picture, drawn with MPI, has the words of a run on threads."""
    assert words_of_svg(picture) == words_of_svg(printed.replace("(threads)", "(mpi)"))


def proof_of_the_readme(file, monkeypatch):
    (line,) = re.findall(r"`minigrad (prove [^`]*)`", TEXT.partition("## ")[0])
    arguments = ["minigrad", *line.split(), "--transport", "threads", "--svg", str(file)]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    return file.read_text(encoding="utf-8")


def test_the_picture_of_the_readme_is_that_of_the_command(tmp_path, monkeypatch):
    """It is drawn by the command that stands below it, with ``--svg lessons/pictures/proof.svg``."""
    printed = proof_of_the_readme(tmp_path / "proof.svg", monkeypatch)
    picture = PICTURE.read_text(encoding="utf-8")
    shows_what_the_command_prints(picture, printed)
    for word in ("ranks,", "allowed", "1.bias"):
        assert picture.count(word) == 1
        with pytest.raises(AssertionError):
            shows_what_the_command_prints(picture.replace(word, "another"), printed)


def commands(text):
    """The command lines of minigrad in a document: the command, and the options that follow it."""
    names = "train|prove|plan|trace|run|doctor|grade|lesson"
    for line in re.findall(rf"minigrad ((?:{names})\b[^`#&|;\n]*)", text):
        name, *words = line.split()
        yield name, [word.partition("=")[0] for word in words if word.startswith("--")]


@pytest.mark.parametrize("file", DOCUMENTS, ids=str)
def test_every_option_of_a_command_exists(file):
    options = {
        name: {o for parameter in sub.loaded.params for o in parameter.opts} | {"--help"}
        for name, sub in typer.main.get_command(app).commands.items()  # pyright: ignore
        if not sub.hidden
    }
    for name, said in commands((ROOT / file).read_text(encoding="utf-8")):
        assert set(said) <= options[name], f"minigrad {name}"


def test_the_check_of_options_sees_an_unknown_one():
    assert list(commands("`minigrad train --data 2 --nosuch=3`")) == [("train", ["--data", "--nosuch"])]
