"""Laws of minigrad/module.py: a registered buffer is state, as running statistics are."""

import numpy as np
import pytest

from minigrad import Parameter, nn
from minigrad.device import to_host
from minigrad.testing import on_device


class Counting(nn.Module):
    def __init__(self):
        self.weight = Parameter(np.ones(2))
        self.register_buffer("mean", on_device(np.arange(2.0)))
        self.register_buffer("count", on_device(np.array(3)))

    def forward(self, x):
        return x


def test_a_buffer_is_saved_loaded_and_converted_and_is_no_parameter(tmp_path):
    model = nn.Sequential(Counting(), nn.BatchNorm(2))
    assert {"0.mean", "0.count", "1.running_mean"} <= model.state_dict().keys()
    assert [name for name, _ in model.named_parameters()] == ["0.weight", "1.weight", "1.bias"]
    vars(model[0])["mean"][...] += 5
    model.save(tmp_path / "model")
    other = nn.Sequential(Counting(), nn.BatchNorm(2)).load(tmp_path / "model")
    other.to(dtype=np.float32)
    mean, count = (vars(other[0])[name] for name in ("mean", "count"))
    assert (to_host(mean).tolist(), mean.dtype, count.dtype) == ([5.0, 6.0], np.float32, np.int64)


def test_what_is_no_buffer_is_refused():
    model = Counting()
    for name in ("mean", "forward", "a.b"):
        with pytest.raises(ValueError, match=f"cannot be called '{name}', which is no name or taken"):
            model.register_buffer(name, np.zeros(2))
    with pytest.raises(TypeError, match=r"the buffer low is float; make it an array: np.array"):
        model.register_buffer("low", 0.5)
