"""Times minigrad against PyTorch eager: seven workloads, one run, one BLAS thread, ratios round by round.

Time is the process's own on the CPU, so that what else the machine does counts less; on a GPU the clock's.

python benchmarks/engine.py                         # the table
python benchmarks/engine.py --only W3,W4 --rounds 30 --json engine.json
python benchmarks/engine.py --only W1 --compiled    # torch.compile and jax.jit, too, where installed
python benchmarks/engine.py --only W4 --profile     # where minigrad's step goes, op by op
python benchmarks/engine.py --only W3 --half        # what each op takes for half the batch
python benchmarks/engine.py --device cupy           # both on the GPU, in plain float32
python benchmarks/engine.py --device cupy --tf32    # products and convolutions of both in TF32
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from minigrad import ops, optim
from minigrad.device import cuda_problem
from minigrad.tape import current_tape

try:
    import torch  # pyright: ignore[reportMissingImports]
    from engine_figures import gpu_cells
    from engine_products import compare_products, described_products, median_ratio, product_peers
    from engine_workloads import WORKLOADS, Chain, Network, Step
except ImportError as error:
    if error.name != "torch":
        raise
    print("PyTorch is what minigrad is compared with; install it: pip install torch")
    sys.exit(2)

LEAST_SECONDS, STEPS_COMPARED = 0.1, 4
TF32_TOLERANCE = 5e-3  # of the loss, for numbers of 10 bits
console = Console()


def main(
    only: Annotated[str, typer.Option(help="workloads by name, comma-separated")] = "",
    rounds: Annotated[int, typer.Option(min=1)] = 15,
    device: Annotated[str, typer.Option(help="numpy or cupy")] = "numpy",
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures there")] = None,
    tf32: Annotated[bool, typer.Option(help="on a GPU multiply in TF32, 10 bits of 23")] = False,
    compiled: Annotated[bool, typer.Option(help="on the CPU time torch.compile and jax.jit, too")] = False,
    profile: Annotated[bool, typer.Option(help="where minigrad's step goes, instead of ratios")] = False,
    half: Annotated[
        bool, typer.Option(help="what each op takes for half the batch, instead of ratios")
    ] = False,
) -> None:
    """Print time per step of minigrad and PyTorch, and their ratio."""
    names = [name.strip().upper() for name in only.split(",")] if only else list(WORKLOADS)
    if unknown := [name for name in names if name not in WORKLOADS]:
        raise typer.BadParameter(f"unknown workload {unknown[0]}; choose from {', '.join(WORKLOADS)}")
    if half and (other := [name for name in names if not isinstance(WORKLOADS[name], Network)]):
        raise typer.BadParameter(f"--half needs a workload with a batch, and {other[0]} has none; use --only")
    if device == "cupy" and (problem := cuda_problem()):
        raise typer.BadParameter(problem)
    torch.set_num_threads(1)
    set_tf32(tf32)
    with threadpool_limits(1):
        if profile or half:
            for name in names:
                console.print(half_table(name, device, rounds) if half else profile_table(name, device))
            return
        results = []
        for name in names:
            results.append(measure(name, rounds, device, TF32_TOLERANCE if tf32 else 0, compiled))
            if json_file is not None:  # also if the next one fails
                write_json(json_file, results, tf32)
    console.print(results_table(results, device) if device == "numpy" else gpu_table(results, tf32))
    for result in results:
        for peer in [peer for peer in ("torch.compile", "jax.jit") if peer in result["times"]]:
            ratio = result["ratios"][peer]
            console.print(f"{result['name']}, {peer}: {result['times'][peer]:.2f} ms, {ratio:.2f} of eager")
        if "sgemm" in result:
            console.print(described_products(result["name"], result["sgemm"]))


def write_json(file: Path, results: list[dict[str, Any]], tf32: bool) -> None:
    about = {
        "numpy": np.__version__,
        "torch": torch.__version__,
        "machine": platform.processor(),
        "tf32": tf32,
    }
    file.write_text(json.dumps({"about": about, "results": results}, indent=1), encoding="utf-8")


def set_tf32(on: bool) -> None:
    """TF32 in both libraries or in neither: PyTorch's convolutions use it by default, CuPy's products do not.

    CuPy reads its variable at the first product.
    """
    os.environ["CUPY_TF32"] = str(int(on))
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on


def measure(
    name: str, rounds: int, device: str, tolerance: float = 0, compiled: bool = False
) -> dict[str, Any]:
    """Median time per step of every peer, and median ratio to PyTorch; first their losses are compared."""
    work = WORKLOADS[name]
    peers = work.peers(device, compiled) if isinstance(work, Network) else work.peers(device)
    check_losses(name, peers, max(work.tolerance, tolerance))
    products = product_peers(name) if device == "numpy" else {}
    times = interleaved(peers | products, rounds, device)
    per = work.ops / 1000 if isinstance(work, Chain) else 1  # ms per step, us per op
    result = {"name": name, "title": work.title, "target": work.target, "times": {}, "ratios": {}}
    for peer in peers:
        result["times"][peer] = statistics.median(times[peer]) * 1000 / per
        result["ratios"][peer] = median_ratio(times[peer], times["torch"])
    if products:
        result["sgemm"] = compare_products(times)
    figure = result["times" if isinstance(work, Chain) else "ratios"]["minigrad"]
    return result | {"figure": figure, "met": figure <= work.target}


def check_losses(name: str, peers: dict[str, Step], tolerance: float) -> None:
    """Raises RuntimeError where a few steps from the same weights lead a peer elsewhere than PyTorch."""
    last = {peer: [step() for _ in range(STEPS_COMPARED)][-1] for peer, step in peers.items()}
    for peer, value in last.items():
        if not abs(value - last["torch"]) <= tolerance * abs(last["torch"]):
            raise RuntimeError(
                f"{name}: after {STEPS_COMPARED} steps {peer} has {value}, torch {last['torch']}; "
                f"they may differ by {tolerance:g} of it"
            )


def interleaved(peers: dict[str, Step], rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds per call of each peer in each round, the peers in shuffled order."""
    repeats = {peer: max(1, round(LEAST_SECONDS / seconds(step, 3, device))) for peer, step in peers.items()}
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for peer in random.sample(list(peers), len(peers)):
            times[peer].append(seconds(peers[peer], repeats[peer], device))
    return times


def seconds(step: Callable[[], object], repeats: int, device: str) -> float:
    """Time per call, on the CPU the process's own."""
    clock, synchronize = process_time if device == "numpy" else perf_counter, synchronizer(device)
    synchronize()
    start = clock()
    for _ in range(repeats):
        step()
    synchronize()
    return (clock() - start) / repeats


def synchronizer(device: str) -> Callable[[], object]:
    """Waits until everything launched on the GPU has run; on the CPU there is nothing to wait for."""
    if device == "numpy":
        return lambda: None
    import cupy  # pyright: ignore[reportMissingImports]

    return lambda: (cupy.cuda.Device().synchronize(), torch.cuda.synchronize())


def results_table(results: list[dict[str, Any]], device: str) -> Table:
    table = Table(
        title=f"a step against PyTorch eager, float32 on {device}, one BLAS thread",
        caption="\n".join(f"{r['name']} {r['title']}" for r in results),
        caption_justify="left",
    )
    for column in ("", "minigrad ms", "torch ms", "ratio", "target", "met", "channels_last ms", "ratio"):
        table.add_column(column, justify="right", no_wrap=len(column) < 12)
    for r in results:
        times, target = r["times"], f"<= {r['target']}" + (" us" if r["name"] == "W5" else "")
        last = times.get("channels_last")
        beside = (f"{last:.2f}", f"{times['minigrad'] / last:.2f}") if last else ("", "")
        figures = f"{times['minigrad']:.2f}", f"{times['torch']:.2f}", f"{r['ratios']['minigrad']:.2f}"
        table.add_row(r["name"], *figures, target, "yes" if r["met"] else "no", *beside)
    return table


def gpu_table(results: list[dict[str, Any]], tf32: bool) -> Table:
    """Ratios to the better of PyTorch's layouts: op by op, and as CUDA graphs."""
    table = Table(
        title=f"a step against PyTorch on a GPU, {'TF32' if tf32 else 'float32'}; ms, W5 us per op",
        caption="\n".join(f"{r['name']} {r['title']}" for r in results),
        caption_justify="left",
    )
    for column in ("", "minigrad", "PyTorch", "ratio", "graphs: minigrad", "PyTorch", "ratio"):
        table.add_column(column, justify="right")
    for r in results:
        table.add_row(r["name"], *gpu_cells(r["times"]))
    return table


def profile_table(name: str, device: str) -> Table:
    """Milliseconds per step in each op, forward and backward."""
    spent = milliseconds_by_op(WORKLOADS[name], device)
    whole = sum(map(sum, spent.values()))
    table = Table(title=f"{name}, minigrad: {whole:.3f} ms per step with the clocks on")
    for column in ("op", "forward ms", "backward ms", "share"):
        table.add_column(column, justify="left" if column == "op" else "right")
    for label, (forward, backward) in sorted(spent.items(), key=lambda item: -sum(item[1])):
        table.add_row(label, f"{forward:.3f}", f"{backward:.3f}", f"{(forward + backward) / whole:.0%}")
    return table


def half_table(name: str, device: str, rounds: int) -> Table:
    """What each op takes for the batch and for half of it; what is more than half, two ranks cannot gain."""
    work = WORKLOADS[name]
    samples, *sizes = work.input
    half = replace(work, input=(samples // 2, *sizes))
    pairs = [[milliseconds_by_op(w, device) for w in (work, half)] for _ in range(rounds)]
    rows = []
    for labels in zip(*pairs[0], strict=True):  # the same ops in the same order
        times = [statistics.median(sum(pair[n][labels[n]]) for pair in pairs) for n in (0, 1)]
        rows.append((labels[0], *times))
    rows.sort(key=lambda row: row[1] / 2 - row[2])
    table = Table(title=f"{name}, minigrad: a step with the clocks on, median of {rounds} rounds")
    for column in ("op", f"ms of {samples}", f"of {samples // 2}", "part", "ms above half"):
        table.add_column(column, justify="left" if column == "op" else "right")
    for label, whole, part in [("all", *map(sum, zip(*(row[1:] for row in rows), strict=True))), *rows]:
        table.add_row(label, f"{whole:.3f}", f"{part:.3f}", f"{part / whole:.2f}", f"{part - whole / 2:.3f}")
    return table


def milliseconds_by_op(work: Any, device: str, steps: int = 20) -> dict[str, list[float]]:
    """Per step, in each op's forward and backward, with a clock around each call; and in the rest."""
    clock, synchronize = process_time if device == "numpy" else perf_counter, synchronizer(device)
    step = work.peers(device)["minigrad"]
    step()
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    with every_op_timed(spent, clock, synchronize):
        start = clock()
        for _ in range(steps):
            step()
        synchronize()
        whole = clock() - start
    spent["the rest: tape, layers, Python"][0] = whole - sum(map(sum, spent.values()))
    return {label: [1000 * s / steps for s in both] for label, both in spent.items()}


@contextmanager
def every_op_timed(
    spent: dict[str, list[float]], clock: Callable[[], float], synchronize: Callable[[], object]
) -> Iterator[None]:
    """Inside, every ``ops.name`` and its pullbacks add their seconds to ``spent[name and shape]``."""

    def clocked(function: Callable, label: str, column: int) -> Callable:
        def call(*inputs: Any, **settings: Any) -> Any:
            synchronize()
            start = clock()
            value = function(*inputs, **settings)
            synchronize()
            spent[label or described(function, value)][column] += clock() - start
            return value

        return call

    def described(function: Callable, value: Any) -> str:
        label, tape = f"{function.__name__} {'x'.join(map(str, value.shape))}", current_tape.get()
        if tape is not None and value.tape is tape:
            entry = tape.entries[value.index]
            timed = [
                (index, shape, clocked(pullback, f"{label} to {'x'.join(map(str, shape))}", 1))
                for index, shape, pullback in entry
            ]
            tape.entries[value.index] = timed
        return label

    plain = {name: getattr(ops, name) for name in ops.__all__}
    step = optim.SGD.step
    for name, function in plain.items():
        setattr(ops, name, clocked(function, "", 0))
    optim.SGD.step = clocked(step, "SGD.step", 0)
    try:
        yield
    finally:
        optim.SGD.step = step
        for name, function in plain.items():
            setattr(ops, name, function)


if __name__ == "__main__":
    typer.run(main)
