"""Notebooks, run from an empty folder: by a kernel of Jupyter, or cell after cell in one namespace."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CELLS = """
import json, sys
names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1], encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
"""


def runs_cell_by_cell(text: str, folder: Path, variables: dict[str, str] | None = None) -> str:
    """Run like a kernel: the folder is empty, first on the path, no ``__file__`` says where the lesson is.

    Returns what it printed.
    """
    file = folder.parent / f"{folder.name}.ipynb"
    file.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(file)],
        cwd=folder,
        env={**os.environ, **(variables or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def runs_in_a_kernel(text: str, folder: Path) -> None:
    """Every cell runs, nothing is said on standard error, and each picture is shown below its cell."""
    nbclient, nbformat = (
        pytest.importorskip(name, reason="no Jupyter; pip install -e '.[jupyter]'")
        for name in ("nbclient", "nbformat")
    )
    whole = nbformat.reads(text, 4)
    nbformat.validate(whole)
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(whole, timeout=240, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in whole.cells if cell.cell_type == "code" for output in cell.outputs]
    said = ["".join(output.text) for output in outputs if output.get("name") == "stderr"]
    assert not said, said
    formats = {"image/png", "image/svg+xml"}
    pictures = [json.dumps(output.data) for output in outputs if formats & {*output.get("data", {})}]
    drawn = [file for file in folder.glob("runs/lessons/*/*") if file.suffix in (".png", ".svg")]
    assert drawn and len(pictures) == len(drawn), f"{len(pictures)} pictures are shown of {len(drawn)}"
