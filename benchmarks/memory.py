"""The peak memory of a training, in MB of the whole process, against PyTorch where it is installed.

python benchmarks/memory.py [--only W4] [--batches 64,512,1024]

Each figure is of a fresh process (VmHWM), after it has built the network and its batch, and after 4 steps.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from minigrad import nn

STEPS = 4


def peak() -> float:
    """The most memory that this process has had so far, in MB."""
    lines = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    )
    return int(lines["VmHWM"].split()[0]) / 1024


def measure(library: str, name: str, batch: int) -> None:
    """Train in this process, and print the two figures as JSON."""
    if library == "minigrad":
        sys.modules["torch"] = None  # pyright: ignore  # so that its import, 190 MB, is not counted
    from engine_workloads import WORKLOADS, minigrad_layer, minigrad_step, torch_step

    network = replace(WORKLOADS[name], input=(batch, *WORKLOADS[name].input[1:]))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(network.input, np.float32), rng.integers(0, 10, batch)
    model = nn.Sequential(*(minigrad_layer(layer, rng) for layer in network.layers))
    if library == "minigrad":
        step = minigrad_step(model, x, y, "numpy")
    else:
        step = torch_step(network.layers, model.state_dict(), x, y, "numpy")
    before = peak()
    for _ in range(STEPS):
        step()
    print(json.dumps([before, peak()]))


def main() -> None:
    parser = argparse.ArgumentParser(description="The peak memory of a training, against PyTorch.")
    parser.add_argument("--only", default="W4", help="the workload (default: W4)")
    parser.add_argument("--batches", default="64,512,1024", help="sizes (default: 64,512,1024)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.batches.split(",")]
    if arguments.measure:
        measure(arguments.measure, arguments.only, sizes[0])
        return
    libraries = ["minigrad", *(["torch"] if importlib.util.find_spec("torch") else [])]
    for size in sizes:
        for library in libraries:
            line = [sys.executable, __file__, "--only", arguments.only, "--batches", str(size)]
            run = subprocess.run(
                [*line, "--measure", library], stdout=subprocess.PIPE, check=True, encoding="utf-8"
            )
            before, after = json.loads(run.stdout)
            print(
                f"{arguments.only} batch {size:5}, {library:8}: {after:6.0f} MB, {before:.0f} before",
                flush=True,
            )


if __name__ == "__main__":
    main()
