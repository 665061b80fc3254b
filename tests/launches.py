"""What one training step asks of a GPU: kernel launches, products, copies, synchronizations, by network.

``python -m tests.launches`` counts them on the double of CuPy and prints a table; ``--write`` stores the
counts where lesson 04 reads them. A launch from Python costs 5 to 20 microseconds, so small networks are
bound by their launches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from minigrad.models import NETS, Net
from minigrad.nn import BatchNorm, Conv2d, Flatten, LayerNorm, Linear, MaxPool2d, Module, ReLU, Sequential
from tests.double import DOUBLE

ROOT = Path(__file__).parents[1]
COUNTS = ROOT / "lessons" / "04_gpu" / "launches.json"
BATCH = 64
KINDS = {  # of the double's events, by the column of the table
    "kernels": ("launch", "memset"),
    "products": ("gemm",),
    "copies to the GPU": ("copy to device",),
    "synchronizations": ("synchronize",),
}


def with_batch_norm(rng: np.random.Generator) -> Module:
    """LeNet's convolutions, each with a batch-norm, and one linear layer."""
    return Sequential(
        *(Conv2d(1, 16, 3, padding=1, rng=rng), BatchNorm(16), ReLU(), MaxPool2d(2)),
        *(Conv2d(16, 32, 3, padding=1, rng=rng), BatchNorm(32), ReLU(), MaxPool2d(2)),
        *(Flatten(), Linear(1568, 10, rng=rng)),
    )


def with_layer_norm(rng: np.random.Generator) -> Module:
    """A hidden layer with a layer norm."""
    return Sequential(Flatten(), Linear(784, 128, rng=rng), LayerNorm(128), ReLU(), Linear(128, 10, rng=rng))


NORMED: dict[str, Net] = {
    "with batch-norm": NETS["lenet"]._replace(build=with_batch_norm),
    "with layer norm": NETS["mlp"]._replace(build=with_layer_norm),
}
ALL = NETS | NORMED

STEP = """
import json, sys
import numpy as np
from cupy._counts import counted
from minigrad import optim
from minigrad.serial import Serial
from tests.launches import ALL

counts = {}
for name in sys.argv[1:] or ALL:
    net = ALL[name]
    model, backend = net.build(np.random.default_rng(0)).to(device="cupy"), Serial()
    batch = net.prepare(net.data().train[:64], np.float32).to(device="cupy")
    optimizer = optim.SGD(model.parameters(), net.lr, momentum=net.momentum)
    for _ in range(3):  # the first ones allocate
        with counted() as (events, _):
            optimizer.zero_grad()
            backend.step(model, batch, net.loss)
            backend.update(model, optimizer)
    counts[name] = dict(events)
json.dump(counts, sys.stdout)
"""


def launches(*nets: str) -> dict[str, dict[str, int]]:
    """The counts of one step with SGD and momentum, by network and kind; of all networks if none is named."""
    environment = {**os.environ, "PYTHONPATH": f"{DOUBLE}{os.pathsep}{ROOT}", "MINIGRAD_DEVICE": "cupy"}
    run = subprocess.run(
        [sys.executable, "-c", STEP, *nets],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    if run.returncode:
        raise RuntimeError(run.stderr)
    events = json.loads(run.stdout)
    return {
        net: {kind: sum(counts.get(event, 0) for event in of) for kind, of in KINDS.items()}
        for net, counts in events.items()
    }


def main() -> None:
    counts = launches()
    print(f"| one step, batch {BATCH} | {' | '.join(KINDS)} |")
    print("|---|" + "---|" * len(KINDS))
    for net, of in counts.items():
        print(f"| {net} | {' | '.join(str(of[kind]) for kind in KINDS)} |")
    if "--write" in sys.argv:
        counts = {net: counts[net] for net in NETS}
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
