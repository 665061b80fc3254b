"""Laws of minigrad/op.py: an editor sees typed packages, and an op that has the parameters
of the function that it lifts.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """
import numpy as np

from backends.data_parallel import NaiveDataParallel
from minigrad import Parameter, Tape, Tensor, nn, ops, optim

rng = np.random.default_rng(0)
model = nn.Sequential(nn.Linear(3, 2, rng=rng), nn.ReLU()).train()
optimizer: optim.Optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
with Tape() as tape:
    y: Tensor = ops.sum(model(Tensor(np.ones((4, 3)))), axis=0, keepdims=True)
    loss = ops.cross_entropy(ops.matmul(y.T, [[1.0, 2.0]]), [0, 1]) + ops.dropout(y, p=0.5, rng=rng).mean()
tape.backward(loss)
strategy = NaiveDataParallel
"""

WRONG = """
import numpy as np

from backends.data_parallel import NaiveDataParallel
from minigrad import Tensor, nn, ops

x = Tensor(np.ones((4, 3)))
ops.matmul(x)
ops.sum(x, axes=0)
ops.softmax(x, axis="last")
ops.dropout(x, p=0.5)
ops.exp(x, x)
text: str = ops.relu(x)
nn.Linear(3, 2, rng="0")
NaiveDataParallel()
"""


@pytest.mark.skipif(shutil.which("pyright", path=Path(sys.executable).parent) is None, reason="needs pyright")
def test_a_user_of_the_packages_in_any_folder_sees_their_types(tmp_path):
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "pyright"), "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=250)
    diagnostics = json.loads(run.stdout)["generalDiagnostics"]
    lines = [
        (Path(d["file"]).name, d["range"]["start"]["line"] + 1)
        for d in diagnostics
        if d["severity"] == "error"
    ]
    calls = WRONG.splitlines().index("ops.matmul(x)") + 1
    assert sorted(set(lines)) == [("wrong.py", calls + i) for i in range(8)], diagnostics
