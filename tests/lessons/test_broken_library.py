"""A lesson that is run with a broken library does not end well: what it asserts is about the library.

The lesson is the one that is shipped, in a process of its own; in the library, or in the
course's models of it, one piece of a file is changed.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 240  # on a busy machine; alone each takes 1 to 6
SHORT = ("01_gradient_descent", "11_model_parallel", "16_failures")  # of which each takes a second

BUGS = {
    "01_gradient_descent": (  # a learning rate that falls to a half only
        "minigrad/lr_schedules.py",
        "(1 + math.cos(math.pi * share(t)))",
        "(1 + math.cos(math.pi * share(t) / 2))",
    ),
    "02_backpropagation": (  # the image's gradient by the kernel that is not turned
        "minigrad/ops/fast/groups.py",
        "channels, kh, kw)[..., ::-1, ::-1]",
        "channels, kh, kw)",
    ),
    "03_memory": (  # plain SGD keeps a velocity
        "minigrad/optim.py",
        'if self.momentum and "v" not in state:',
        'if "v" not in state:',
    ),
    "05_messages": (  # a network card for each GPU, where those of one machine share it
        "lessons/minigrad_course/machines/virtual_cluster.py",
        'return ("rank", rank) if node == self.node(peer) else ("card", node)',
        'return ("rank", rank)',
    ),
    "06_data_parallel": (  # a mean of means, where the shares differ
        "minigrad/strategy.py",
        "return len(mine) / len(batch)",
        "return bool(len(mine)) / getattr(self, 'size', 1)",
    ),
    "07_large_batches": (  # the momentum correction upside down
        "minigrad/optim.py",
        'momentum *= self.lr / state["lr"]',
        'momentum *= state["lr"] / self.lr',
    ),
    "08_parameter_server": (  # a worker may be one step further ahead than the bound
        "backends/data_parallel/parameter_server/consistency.py",
        "return clock - server.version <= self.staleness",
        "return clock - server.version <= self.staleness + 1",
    ),
    "09_model_averaging": (  # every rank counts alike, whatever it saw
        "backends/data_parallel/averaging.py",
        "weighted(arrays[0], arrays, float(self.samples))",
        "weighted(arrays[0], arrays, 1.0)",
    ),
    "10_gradient_compression": (  # an entry that was sent keeps its velocity
        "lessons/minigrad_course/shared/momentum_correction.py",
        "velocity * ~sent if masking else velocity,",
        "velocity,",
    ),
    "11_model_parallel": (  # of a value that all ranks use each has only its own gradient
        "backends/comm/differentiable.py",
        "return x, (lambda g: collectives.allreduce(comm, g),)",
        "return x, (lambda g: g,)",
    ),
    "12_spatial": (  # the halo behind, as at stride 1
        "backends/model_parallel/spatial/receptive_field.py",
        "max(0, self.extent - self.stride - self.padding)",
        "max(0, self.extent - 1 - self.padding)",
    ),
    "13_pipeline": (  # the first stage as short as can be, whatever is left for the others
        "backends/partition.py",
        "if max(ends[j] - ends[i], rest[j]) <= largest[-1][0]",
        "if ends[j] - ends[i] <= largest[-1][0]",
    ),
    "14_hybrid": (  # of the shares of a stack's strategies only the innermost counts
        "backends/stack.py",
        "weight *= member.loss_weight",
        "weight = member.loss_weight",
    ),
    "15_scale": (  # the weights' gradients are reduced, and not gathered again
        "lessons/minigrad_course/machines/integrated_costs.py",
        "total += 2 * net.collective(pc, layer.weights / pr)",
        "total += net.collective(pc, layer.weights / pr)",
    ),
    "16_failures": (  # the old generation goes before the new name is safe
        "backends/checkpoint/checkpoints.py",
        "        disk.sync_folder(self.folder)\n        return name\n",
        "        return name\n",
    ),
    "17_sequences": (  # a tile is merged with the others without the rescaling of its mean
        "minigrad/ops/fast/attention.py",
        "return o * weight[..., None] + other * other_weight[..., None], both",
        "return o + other * other_weight[..., None], both",
    ),
    "18_experts": (  # an expert has one place more than its capacity
        "minigrad/routing.py",
        "(queue_positions(of_rows, n_experts + 1) < places[:, None, None])",
        "(queue_positions(of_rows, n_experts + 1) <= places[:, None, None])",
    ),
    "19_sixteen_bits": (  # a step is left out where gradients overflow, and the scale stays as it is
        "minigrad/loss_scale.py",
        "        self.value /= 2\n",
        "        self.value /= 1\n",
    ),
    "17_sequences: the ring": (  # a rank passes on its own term of a key's gradient, and drops the others
        "backends/sequence_parallel/ring.py",
        "self.pass_on(d if passed is None else d + passed(), Tag.KEYS_GRADIENT)",
        "self.pass_on(d if passed is None else d + 0 * passed(), Tag.KEYS_GRADIENT)",
    ),
}
"""Where a piece of a file is changed, by lesson, and what it is where a lesson has two."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.thorough) for name in BUGS]
)
def test_a_lesson_fails_with_a_broken_library(name, tmp_path):
    """By an assertion in the lesson itself, whose message has both numbers."""
    where, right, wrong = BUGS[name]
    for package in ("minigrad", "backends", "lessons/minigrad_course"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    file, lesson = tmp_path / where, ROOT / "lessons" / name.partition(":")[0] / "lesson.py"
    text = file.read_text(encoding="utf-8")
    assert text.count(right) == 1, f"{where} holds {text.count(right)} times {right!r}: move the bug along"
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(tmp_path / "lessons")])
    actual = subprocess.run(
        [sys.executable, str(lesson)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert actual.returncode == 1, actual.stdout + actual.stderr
    last, error = actual.stderr.rstrip().rpartition("File ")[2].split("\n", 1)
    assert last.startswith(f'"{lesson}"') and "AssertionError" in error, actual.stderr
    message = error.partition("AssertionError: ")[2]
    assert len(re.findall(r"\d+(?:\.\d+)?", message)) >= 2, f"the message has no two numbers: {message!r}"
