"""Where arrays live."""

import numpy as np
import pytest

from minigrad import device
from minigrad.testing import DEVICE, on_device


def test_the_data_decides_the_module():
    assert device.array_module(on_device([1.0])).__name__ == DEVICE
    assert device.array_module(np.ones(1)) is np
    assert device.array_module(np.float32(1)) is np
    assert device.array_module(1.0) is np


def test_an_array_that_is_there_is_not_copied():
    x = on_device(np.ones(3))
    assert device.to_device(x, DEVICE) is x


def test_arrays_go_to_the_device_and_come_back():
    x = np.arange(6.0).reshape(2, 3)
    back = device.to_host(on_device(x))
    assert type(back) is np.ndarray
    assert np.array_equal(back, x)


def test_an_unknown_device_is_named():
    with pytest.raises(ValueError, match="unknown device 'tpu'; choose one of numpy, cupy"):
        device.to_device(np.ones(1), "tpu")


def test_a_missing_gpu_is_explained():
    problem = device.cuda_problem()
    if problem is None:
        pytest.skip("there is a GPU")
    assert "--device numpy" in problem
    with pytest.raises(RuntimeError, match="--device cupy"):
        device.to_device(np.ones(1), "cupy")
