"""Laws of minigrad/capture.py and cublas.py: captured steps on the double of CuPy; without it
one test runs this file there.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from minigrad import Parameter, cublas, nn, ops, optim, recomputed
from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.device import cuda_problem, to_device
from minigrad.product import product
from tests.bugs import in_capture
from tests.bugs.bug import hunt
from tests.double import ON_DOUBLE, check_on_double, needs_double
from tests.minigrad import capture_laws, captured_change_laws
from tests.minigrad.capture_laws import CHANGES, LOSSES, NETS, OPTIMIZERS, SCHEDULES, Case

on_double = pytest.mark.skipif(not ON_DOUBLE, reason="cupy is not the double")
on_gpu = pytest.mark.skipif(cuda_problem() is not None, reason="there is no GPU")


@pytest.mark.double
@pytest.mark.skipif(ON_DOUBLE, reason="this is the double")
@needs_double
def test_this_file_on_the_double(pytestconfig):
    check_on_double(__file__, pytestconfig)


cases = st.builds(
    Case,
    net=st.sampled_from(sorted(NETS)),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    schedule=st.sampled_from(sorted(SCHEDULES)),
    samples=st.integers(4, 9),
    batch=st.integers(3, 5),
    micro_batches=st.integers(1, 2),
    change=st.sampled_from(sorted(CHANGES)),
    loss=st.sampled_from(sorted(LOSSES)),
    dtype=st.sampled_from(["float32", "float64"]),
    late=st.booleans(),
    seed=st.integers(0, 99),
)


@on_double
@given(cases)
@example(Case(net="branches", optimizer="adam", schedule="constant", samples=10, batch=4))
@example(Case(net="convolutional", optimizer="sgd", change="momentum", late=True))
@example(Case(net="normalized", optimizer="momentum", change="frozen layers"))
def test_a_captured_run_is_the_eager_one(case):
    capture_laws.captured_equals_eager(Captured, case)


@on_double
@pytest.mark.parametrize("net", NETS)
def test_a_step_is_two_graphs(net):
    draws = sum(isinstance(m, nn.Dropout) for m in NETS[net][0](np.random.default_rng(0)).modules())
    for read in (True, False):
        for optimizer, uploads in (("momentum", draws), ("adam", 1 + draws)):
            take = capture_laws.training_step(Captured(), Case(net=net, optimizer=optimizer), read)
            capture_laws.a_step_is_two_graphs(take, uploads, int(read))


@on_double
@pytest.mark.parametrize("change", [*captured_change_laws.CHANGES, *captured_change_laws.GRADIENTS])
def test_a_change_between_steps_is_seen(change):
    of_group = "groups" if change.endswith("a group") else None
    apart = of_group or ("adam" if change == "a momentum in a list" else "sgd")
    captured_change_laws.a_change_is_seen(change, apart)
    if change in captured_change_laws.CHANGES:
        captured_change_laws.a_change_is_seen(change, of_group or "adam", together=True)


@on_double
@pytest.mark.parametrize("together", [False, True])
def test_a_step_walks_through_nothing(together):
    captured_change_laws.a_step_makes_few_calls(together)
    captured_change_laws.calls_do_not_depend_on_the_number_of_modules(together)


@on_double
def test_a_step_with_its_update_is_one_graph():
    captured_change_laws.a_step_is_one_graph("sgd", uploads=0)
    captured_change_laws.a_step_is_one_graph("adam", uploads=1)


@on_double
def test_steps_of_a_number_that_changes_are_not_kept():
    captured_change_laws.steps_of_a_number_that_changes_are_not_kept()


@st.composite
def matrices(draw):
    """Two matrices, or a vector and a matrix, in any memory order, and perhaps an array for their product."""
    import cupy  # pyright: ignore[reportMissingImports]

    n, k, m = (draw(st.integers(0, 4)) for _ in "nkm")
    rng, dtype = np.random.default_rng(draw(st.integers(0, 99))), draw(st.sampled_from(["f", "d"]))

    def matrix(*shape):
        order, gap = draw(st.sampled_from(["C", "F"])), draw(st.integers(1, 2))
        x = cupy.asarray(rng.normal(size=[gap * length for length in shape]).astype(dtype), order=order)
        return x[::gap] if len(shape) == 1 else x[::gap, ::gap]

    a, b = matrix(k) if draw(st.booleans()) else matrix(n, k), matrix(k, m)
    return a, b, matrix(n, m) if a.ndim == 2 and draw(st.booleans()) else None


@on_gpu
@given(matrices())
def test_products_by_cublas_itself(arrays):
    capture_laws.products_are_those_of_cupy(product, *arrays)


class Watched(nn.Module):
    """A layer that looks at its values on the host."""

    def __init__(self, rng):
        self.layer = nn.Linear(6, 3, rng=rng)

    def forward(self, x):
        y = self.layer(x)
        assert np.isfinite(y.data.sum().item())
        return y


@on_gpu
def test_what_cannot_be_captured_is_refused():
    rng = np.random.default_rng(0)
    linear = nn.Linear(6, 3, rng=rng)
    stacks = lambda y, labels: ops.matmul(y[None], y[None].transpose(0, 2, 1)).mean()  # noqa: E731
    refused = capture_laws.what_cannot_be_captured_is_refused
    refused(Captured(), Watched(rng), ops.cross_entropy, "D2H transfers are disallowed")
    refused(Captured(), linear, lambda y, labels: ops.cross_entropy(y, np.zeros(4, int)), "H2D transfers")
    refused(Captured(), linear, stacks, "cuBLAS")


@on_double
def test_without_cublas_one_line_says_so(monkeypatch):
    import cupy  # pyright: ignore[reportMissingImports]

    def absent(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cupy.cuda, "get_cublas_handle", lambda: 0)
    monkeypatch.setattr(cublas.ctypes, "CDLL", absent)
    with pytest.raises(RuntimeError, match=r"cuBLAS cannot be loaded as libcublas.so.12 .*\[cuda12\]"):
        cublas.library.__wrapped__(cupy)


@on_gpu
def test_steps_that_a_graph_would_not_repeat_are_refused():
    model = nn.Sequential(nn.Linear(6, 5, rng=np.random.default_rng(0)), nn.ReLU())
    batch = Batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64))
    with pytest.raises(ValueError, match="cannot recompute"):
        Captured().place(recomputed(model))
    with pytest.raises(ValueError, match=r'needs a GPU|on a GPU; move them with .to\(device="cupy"\)'):
        Captured().step(model, batch, ops.cross_entropy)
    backend, model = Captured(), model.to(device="cupy")
    backend.step(model, batch.to("cupy"), ops.cross_entropy)
    with pytest.raises(ValueError, match=r"call model.zero_grad\(\) before it, or freeze"):
        backend.step(model, batch.to("cupy"), ops.cross_entropy)
    model.zero_grad()
    scale = Parameter(to_device(np.ones(1, np.float32), "cupy"))
    backend.step(model, batch.to("cupy"), lambda y, labels: ops.cross_entropy(y * scale, labels))
    with pytest.raises(ValueError, match="gradients of the model alone"):
        backend.update(model, optim.SGD([*model.parameters(), scale], 0.1))
    with pytest.raises(ValueError, match="a loss scale may change"):
        backend.step(model, batch.to("cupy"), ops.cross_entropy, loss_scale=2.0)
    backend, model = Captured(), model.to(dtype=np.float16)
    model.zero_grad()
    backend.step(model, batch.to("cupy"), ops.cross_entropy)
    with pytest.raises(ValueError, match="leave out a step whose gradients overflow"):
        backend.update(model, optim.SGD(model.parameters(), 0.1).with_master_weights())


@on_gpu
def test_a_step_with_its_update_is_not_updated_again():
    model = nn.Linear(6, 3, rng=np.random.default_rng(0)).to(device="cupy")
    batch = Batch(np.ones((4, 6), np.float32), np.zeros(4, np.int64)).to("cupy")
    backend, optimizer = Captured(), optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        backend.launch(model, batch, ops.cross_entropy, optimizer)
        with pytest.raises(ValueError, match="take a step before each update"):
            backend.update(model, optimizer)


@on_double
@pytest.mark.parametrize("bug", in_capture.BUGS, ids=lambda bug: bug.name)
def test_its_law_catches_the_bug(bug):
    hunt(bug)
