"""All GPU checks of the project in one run of less than nine minutes, for whenever a GPU is at hand.

Each part is a process with a time limit, at the end of which it is killed with all that it started. After
each part OUT/results.json and OUT/report.md are written, so that a run that is cut off loses one part.
Timings run alone and first, laws side by side at the end. A part whose program is not installed is "absent".
The clone need not be installed; wheels in ``.whl/``, as of MPICH, are unpacked for the run.

python benchmarks/gpu_run.py                        # all parts, to $OUT or gpu-run/; status 1: a law failed
python benchmarks/gpu_run.py --only sums,conv
python benchmarks/gpu_run.py --list                 # the parts, their limits and their commands
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a clone that is not installed

from engine_figures import gpu_cells

from backends.process.sweep import MARK, kill

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 530.0  # seconds; the laws may take what the timings leave, and their limits at least
CUDA = "/usr/local/cuda/bin"  # where compute-sanitizer is, if it is not in PATH
CHECK = "import sys; from minigrad.device import cuda_problem; sys.exit(cuda_problem())"
LAST_LINES = 12  # of a part that failed, in the report
Result = dict[str, Any]


class Part(NamedTuple):
    """A command, in which {python} and {out} are replaced; the seconds that it may take; what it decides."""

    command: str
    limit: float
    decides: str


OWN, ENGINE = "{python} benchmarks/gpu_parts.py", "{python} benchmarks/engine.py --device cupy"
CONVOLUTIONS, VALUES = "{python} benchmarks/gpu_conv.py", "{python} benchmarks/gpu_conv.py --small --values"
MINIGRAD = "{python} -m backends"
TRAIN, PROVE = f"{MINIGRAD} train --device cupy --log --epochs 2", f"{MINIGRAD} prove --device cupy"
THREADS, SANITIZER = f"{PROVE} --transport threads", "compute-sanitizer --error-exitcode 1 --tool"
TIMINGS = {
    "environment": Part(
        f"{OWN} environment", 30, "versions, the ceilings, and what the host pays for a call"
    ),
    "sums": Part(f"{OWN} sums", 20, "whether tall sums should take two stages"),
    "conv": Part(CONVOLUTIONS, 100, "which tile each convolution should have, and how far cuDNN is"),
    "engine": Part(f"{ENGINE} --rounds 5 --json {{out}}/engine.json", 70, "the table of the engine on a GPU"),
    "tf32": Part(
        f"{ENGINE} --tf32 --only W2,W3,W4,W6 --rounds 3 --json {{out}}/tf32.json", 35, "the same in TF32"
    ),
    "kernels": Part(f"{OWN} kernels", 35, "where a step's time goes, kernel by kernel"),
    "crossover": Part(f"{OWN} crossover", 35, "from which batch on a GPU beats a core, for lesson 04"),
    "article": Part(f"{OWN} article", 20, "the GPU's figures for the experiments article and slow-link"),
    "train": Part(f"{TRAIN} --json {{out}}/train.json", 25, "samples/s of LeNet, op by op"),
    "train --capture": Part(f"{TRAIN} --capture --json {{out}}/captured.json", 25, "samples/s, captured"),
}
LAWS = {
    "engine's laws": Part(
        "{python} -m pytest tests/minigrad -q -n 8 -p no:cacheprovider --timeout 90 --tb line -rf", 140,
        "whether the engine is right on a GPU",
    ),
    "laws of ranks": Part("{python} -m tests.backends.on_gpus all", 140, "whether ranks on GPUs train right"),
    "law of captured runs": Part(f"{OWN} captured", 140, "whether a captured run is right; where it hangs"),
    "values of convolutions": Part(VALUES, 90, "whether every tile computes the sums"),
    "memcheck": Part(
        f"{SANITIZER} memcheck {VALUES} --tiles 2", 140, "whether a kernel leaves its arrays"
    ),
    "racecheck": Part(
        f"{SANITIZER} racecheck {VALUES} --tiles 2", 140, "whether threads of a block race"
    ),
    "prove data 2": Part(f"{THREADS} --data 2 --net lenet", 90, "whether data parallelism is exact"),
    "prove pipe 2": Part(f"{THREADS} --pipe 2 --net vgg", 120, "whether a pipeline is exact"),
    "prove sharded": Part(
        f"{THREADS} --data 2 --strategy sharded --option stage=3", 90, "whether ZeRO stage 3 is exact"
    ),
    "prove MPI": Part(f"mpiexec -n 2 {PROVE} --data 2 --net lenet", 90, "two MPI processes on one GPU"),
}  # fmt: skip

FILES = {
    "engine": "engine.json",
    "tf32": "tf32.json",
    "train": "train.json",
    "train --capture": "captured.json",
}


def main(
    only: Annotated[str, typer.Option(help="parts by name, comma-separated")] = "",
    out: Annotated[Path, typer.Option(envvar="OUT", help="where results and report go")] = Path("gpu-run"),
    list_parts: Annotated[bool, typer.Option("--list", help="print the parts, and run none")] = False,
) -> None:
    """Run the parts, print the report; status 1: a law failed, 2: there is no GPU."""
    parts = TIMINGS | LAWS
    names = [name.strip() for name in only.split(",")] if only else list(parts)
    if unknown := [name for name in names if name not in parts]:
        print(f"unknown part {unknown[0]!r}; choose from {', '.join(parts)}", file=sys.stderr)
        raise typer.Exit(2)
    if list_parts:
        for name in names:
            print(f"{name}: {parts[name].decides}; {parts[name].limit:g} s\n    {parts[name].command}")
        return
    timings, laws = ({name: kind[name] for name in names if name in kind} for kind in (TIMINGS, LAWS))
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for file in FILES.values():  # of an earlier run
        (out / file).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="minigrad-gpu-") as site:
        variables = variables_with(Path(site))
        check = [sys.executable, "-c", CHECK]
        answer = subprocess.run(check, env=variables, stderr=subprocess.PIPE, encoding="utf-8")
        if answer.returncode:
            print(answer.stderr.strip().splitlines()[-1], file=sys.stderr)
            raise typer.Exit(2)
        results = run(timings, laws, out, variables)
    print((out / "report.md").read_text(encoding="utf-8"))
    if any(results[name]["status"] not in ("done", "absent") for name in laws):
        raise typer.Exit(1)


def variables_with(site: Path) -> dict[str, str]:
    """The variables of the parts, which find in ``site`` the packages of ``.whl/`` and the clone's own."""
    if wheels := sorted((ROOT / ".whl").glob("*.whl")):
        install = "-m pip install -q --no-index --no-deps --no-compile --no-cache-dir --ignore-installed"
        command = [sys.executable, *install.split(), "--no-warn-script-location", "--prefix", site, *wheels]
        subprocess.run(command, check=False)
    declare(site)
    modules = sysconfig.get_path("purelib", "posix_prefix", {"base": str(site)})
    own = {
        **dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"), "1"),
        **{"MINIGRAD_DEVICE": "cupy", "HYPOTHESIS_PROFILE": "short"},
        "PATH": path_of(site / "bin", os.environ.get("PATH"), CUDA),
        "PYTHONPATH": path_of(os.environ.get("PYTHONPATH"), site, modules, ROOT, ROOT / "lessons"),
        "LD_LIBRARY_PATH": path_of(site / "lib", os.environ.get("LD_LIBRARY_PATH")),
    }
    return {**os.environ, **own}


def path_of(*folders: object) -> str:
    return os.pathsep.join(str(folder) for folder in folders if folder)


def declare(site: Path) -> None:
    """Write to ``site`` what an installation says of the project: its version, strategies and commands."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(
    timings: Mapping[str, Part],
    laws: Mapping[str, Part],
    out: Path,
    variables: dict[str, str],
    deadline: float = DEADLINE,
) -> dict[str, Result]:
    """The result of each part, timings one after the other, then the laws; written to ``out`` as they end."""
    results: dict[str, Result] = {}
    begin = time.monotonic()
    for parts in [*({name: part} for name, part in timings.items()), laws]:
        left = deadline - (time.monotonic() - begin) if parts is laws else 0
        running = {name: Process(part, out, variables, max(part.limit, left)) for name, part in parts.items()}
        try:
            while running:
                for name in [name for name, process in running.items() if process.has_ended()]:
                    results[name] = running.pop(name).end()
                    write(results, out)
                    print(f"{name}: {results[name]['status']}, {results[name]['seconds']} s", flush=True)
                time.sleep(0.05)
        finally:  # also at Ctrl-C
            for process in running.values():
                process.end()
    return results


class Process:
    """A part that runs. Its output is in a folder whose name marks all processes that it starts."""

    def __init__(self, part: Part, out: Path, variables: dict[str, str], limit: float):
        self.begin, self.limit = time.monotonic(), limit
        self.folder = Path(tempfile.mkdtemp(prefix="minigrad-part-"))
        self.output = self.folder / "output"
        command = [word.format(python=sys.executable, out=out) for word in part.command.split()]
        self.process: subprocess.Popen[bytes] | None = None
        if (program := shutil.which(command[0], path=variables["PATH"])) is None:
            self.output.write_text(f"{command[0]} is not installed\n", encoding="utf-8")
            return
        with self.output.open("wb") as file:
            self.process = subprocess.Popen(
                [program, *command[1:]],
                cwd=ROOT,
                env={**variables, MARK: str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Whether it has ended, or must end."""
        ended = self.process is None or self.process.poll() is not None
        return ended or time.monotonic() - self.begin > self.limit

    def end(self) -> Result:
        """Kill what still runs; returns the status, the seconds, the tables and the end of the output."""
        seconds, status = round(time.monotonic() - self.begin, 1), "absent"
        if self.process is not None:
            code = self.process.poll()
            status = "out of time" if code is None else f"status {code}" if code else "done"
            self.process.kill()
            self.process.wait()
            kill(str(self.folder))
        lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()
        shutil.rmtree(self.folder, ignore_errors=True)
        tables = [json.loads(line[6:]) for line in lines if line.startswith("TABLE {")]
        text = [line for line in lines if line.strip() and not line.startswith("TABLE {")]
        return {"status": status, "seconds": seconds, "tables": tables, "end": text[-40:]}


def write(results: dict[str, Result], out: Path) -> None:
    """Write all results so far, as JSON and as a report in Markdown."""
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    stamp = f"{datetime.now(UTC):%Y-%m-%d}, {device()}"
    text = [f"# {stamp}", "", *markdown(["part", "status", "s", "last line"], overview(results))]
    for name, result in results.items():
        for table in [*result["tables"], *tables_of_files(name, out)]:
            text += ["", f"{table['title']} ({stamp})", "", *markdown(table["columns"], table["rows"])]
        if result["end"] and result["status"] not in ("done", "absent"):
            text += ["", f"{name} ended so:", "", "```text", *result["end"][-LAST_LINES:], "```"]
    (out / "report.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def overview(results: dict[str, Result]) -> list[list[object]]:
    """A row for each part: its status, its seconds, and its last line."""
    return [
        [name, r["status"], r["seconds"], "".join(r["end"][-1:]).replace("|", "/").strip()[:120]]
        for name, r in results.items()
    ]


def tables_of_files(name: str, out: Path) -> list[dict[str, Any]]:
    """The table of a part that leaves its figures in a file of ``out``."""
    file = out / FILES.get(name, "")
    if not file.is_file():
        return []
    figures = json.loads(file.read_text(encoding="utf-8"))
    if "samples_per_second" in figures:
        rows = [[f"minigrad {name} --net lenet", round(figures["samples_per_second"])]]
        return [{"title": "Training", "columns": ["command", "samples/s"], "rows": rows}]
    columns = ["", "minigrad", "PyTorch", "ratio", "graphs: minigrad", "PyTorch", "ratio"]
    rows = [[r["name"], *gpu_cells(r["times"])] for r in figures["results"]]
    title = f"ms per step, W5 us per op, {'TF32' if figures['about']['tf32'] else 'float32'}"
    return [{"title": title, "columns": columns, "rows": rows}]


def markdown(columns: list[str], rows: list[list[object]]) -> list[str]:
    """The lines of a table; short rows are filled up."""
    cells = [columns, ["---"] * len(columns), *(row + [""] * (len(columns) - len(row)) for row in rows)]
    return ["| " + " | ".join(map(str, row)) + " |" for row in cells]


@cache
def device() -> str:
    """The name of the first GPU, as its driver gives it."""
    if shutil.which("nvidia-smi") is None:
        return "a GPU without nvidia-smi"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, encoding="utf-8").stdout.partition("\n")[0].strip()


if __name__ == "__main__":
    typer.run(main)
