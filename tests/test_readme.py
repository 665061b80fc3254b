"""The README is true: its Python runs as written, and its links, and those of the lessons, lead to files."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
LINKS = [
    (file, target)
    for file in ("README.md", "lessons/README.md", "lessons/assignments/README.md")
    for target in sorted(set(re.findall(r"\]\(([^)#:]+)\)", (ROOT / file).read_text())))
]


def test_the_python_of_the_readme_runs_as_written(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(block, names)
    nbytes, loss = capsys.readouterr().out.split()
    assert int(nbytes) > 0 and 1 < float(loss) < 4
    assert all(p.grad is not None for p in names["model"].parameters())


@pytest.mark.parametrize(("file", "target"), LINKS)
def test_every_link_leads_somewhere(file, target):
    assert ((ROOT / file).parent / target).exists()


def test_the_readme_leads_to_the_index_and_the_index_to_every_lesson():
    assert "(lessons/README.md)" in TEXT
    index = (ROOT / "lessons" / "README.md").read_text()
    for lesson in (ROOT / "lessons").glob("*/lesson.py"):
        assert f"({lesson.parent.name}/lesson.py)" in index


def test_the_set_up_is_two_lines():
    lines = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert "minigrad train --data 2" in lines[0] and "minigrad prove" in lines[0]
    assert lines[1].endswith("pytest")
