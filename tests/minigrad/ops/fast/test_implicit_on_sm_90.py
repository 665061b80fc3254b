"""Laws of minigrad/ops/fast/implicit.py: NVIDIA's compiler takes ``implicit.cu`` for an H100 (sm_90), and no
thread of the networks' layers keeps numbers in memory because it has too few registers.
"""

import re
import shutil
import subprocess
from unittest.mock import patch

import pytest

from minigrad.ops.fast import implicit
from minigrad.ops.geometry import Geometry

pytestmark = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc of CUDA")

SAME = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
LAYERS = {  # images (N, H, W, C), filters, ReLU, pool
    "W3 conv 1": ((64, 28, 28, 1), 16, True, 2),
    "W3 conv 2": ((64, 14, 14, 16), 32, True, 2),
    "W4 conv 1": ((64, 32, 32, 3), 32, True, 1),
    "W4 conv 2": ((64, 32, 32, 32), 32, True, 2),
    "W4 conv 3": ((64, 16, 16, 32), 64, True, 1),
    "W4 conv 4": ((64, 16, 16, 64), 64, True, 2),
    "W6": ((32, 32, 32, 64), 64, False, 1),
}
NVCC = "nvcc -std=c++17 -cubin -gencode=arch=compute_90,code=sm_90 -Xptxas -v -o kernels.cubin"
SPILLS = re.compile(r"entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads", re.DOTALL)


def sources(layer):
    """The CUDA C++ of a layer in the tiles that are chosen for it: of outputs, and of the image gradient."""
    images, filters, relu, pool = LAYERS[layer]
    texts = []

    def module(source, **macros):
        texts.append("".join(f"#define {name} {value}\n" for name, value in macros.items()) + source)

    with patch.object(implicit, "cuda_module", module):
        implicit.kernels_for.__wrapped__(images, (filters, images[3], 3, 3), SAME, "f", relu, pool, None)
    return texts


def spills(text, folder):
    """The bytes that each kernel of the text stores because it has too few registers."""
    source = folder / "kernels.cu"
    source.write_text(text, encoding="utf-8")
    run = subprocess.run([*NVCC.split(), source], cwd=folder, capture_output=True, encoding="utf-8")
    assert run.returncode == 0, run.stderr[:3000]
    return {name: int(stores) + int(loads) for name, stores, loads in SPILLS.findall(run.stderr)}


def nothing_is_spilled(texts, folder):
    for text in texts:
        bytes_spilled = spills(text, folder)
        assert bytes_spilled.keys() == {"correlate", "correlate_with_gradient", "sum_parts", "arrange"}
        assert not any(bytes_spilled.values()), f"bytes spilled by kernel: {bytes_spilled}"


@pytest.mark.parametrize(
    "layer", [name if name == "W6" else pytest.param(name, marks=pytest.mark.thorough) for name in LAYERS]
)
def test_no_layer_spills_registers(layer, tmp_path):
    nothing_is_spilled(sources(layer), tmp_path)


def test_a_spill_is_seen(tmp_path):
    crowded = sources("W6")[0].replace("__launch_bounds__(THREADS)", "__launch_bounds__(THREADS, 12)")
    with pytest.raises(AssertionError, match="bytes spilled by kernel"):
        nothing_is_spilled([crowded], tmp_path)
