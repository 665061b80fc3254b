"""The README is true: its Python runs as written, and its index names files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def test_the_python_of_the_readme_runs_as_written(capsys):
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    names: dict = {}
    for block in blocks:
        exec(block, names)
    nbytes, loss = capsys.readouterr().out.split()
    assert int(nbytes) > 0 and 1 < float(loss) < 4
    assert all(p.grad is not None for p in names["model"].parameters())


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", TEXT))))
def test_every_link_of_the_readme_leads_somewhere(target):
    assert (ROOT / target).exists()


def test_the_set_up_is_two_lines():
    lines = [line for line in TEXT.splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert "minigrad train --data 2" in lines[0] and "minigrad prove" in lines[0]
    assert lines[1].endswith("pytest")
