"""Laws of minigrad/device.py: where arrays live."""

from types import SimpleNamespace

import numpy as np
import pytest

from minigrad import device
from minigrad.testing import DEVICE, on_device
from tests.minigrad import gpu_laws


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


def cupy_module(available=True, compiles=True):
    """A module with as much of CuPy as says whether there is a usable GPU."""

    def ones(n):
        if not compiles:
            raise RuntimeError("Failed to find CUDA headers.\nSee the installation guide.")
        return np.ones(n)

    return SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: available), ones=ones)


BROKEN = ImportError("libcuda.so.1: cannot open shared object file\nlong advice")
PROBLEMS = {
    "no package": (ModuleNotFoundError("No module named 'cupy'", name="cupy"), "CuPy is not installed; pip"),
    "no part of it": (ModuleNotFoundError("No module named 'fastrlock'", name="fastrlock"), "fastrlock"),
    "a broken package": (BROKEN, r"cannot be imported \(libcuda.so.1.*file\); uninstall"),
    "no GPU": (cupy_module(available=False), "no CUDA device"),
    "no compiler": (cupy_module(compiles=False), r"cannot run a kernel \(.*headers\.\)"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_keeps_from_the_gpu_is_told_apart(name):
    cause, words = PROBLEMS[name]
    gpu_laws.a_problem_is_explained(device, cause, words)


def test_a_gpu_that_runs_a_kernel_is_no_problem():
    with gpu_laws.cupy_replaced(device, cupy_module()):
        assert device.cuda_problem() is None


def test_a_missing_gpu_is_an_error():
    refusal = pytest.raises(RuntimeError, match="--device cupy: .*--device numpy")
    with gpu_laws.cupy_replaced(device, cupy_module(available=False)), refusal:
        device.to_device(np.ones(1), "cupy")
