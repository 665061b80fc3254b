"""Runs the pages' modules under Node; the tests that need it are skipped where there is none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from minigrad_course.explorables.pages import FOLDER

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here")


def run(script: str, data: Any, folder: Path = FOLDER) -> Any:
    """What the JavaScript ``script`` makes of ``data``; it imports modules of ``folder`` by ``load(name)``.

    The script is the body of a function that takes ``data`` and returns the result, both as JSON. Raises
    RuntimeError with Node's words where it fails.
    """
    text = f"""
        import {{ readFileSync }} from "node:fs";
        const load = (name) => import({json.dumps(folder.as_uri())} + "/" + name);
        const answer = async (data) => {{ {script} }};
        process.stdout.write(JSON.stringify(await answer(JSON.parse(readFileSync(0)))));
    """
    done = subprocess.run(
        [str(NODE), "--input-type=module", "--eval", text],
        input=json.dumps(data),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def broken(folder: Path, name: str, right: str, wrong: str) -> Path:
    """``folder`` with copies of the modules, in one of which ``wrong`` stands instead of ``right``."""
    for module in FOLDER.glob("*.mjs"):
        shutil.copy(module, folder)
    text = (folder / name).read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{right!r} must stand once in {name}"
    (folder / name).write_text(text.replace(right, wrong), encoding="utf-8")
    return folder


def pasted(command, folder):
    """The command in bash, in ``folder``, where minigrad is this one, with threads as ranks."""
    minigrad = f'minigrad() {{ "{sys.executable}" -m backends "$@" --transport threads; }}\n'
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "COLUMNS": "100"}
    return subprocess.run(
        ["bash", "-c", minigrad + command],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
