"""The measurements of ``gpu_run.py`` that no other program of the project makes; each prints its tables.

python benchmarks/gpu_parts.py sums                # or environment, kernels, crossover, article, captured
python benchmarks/gpu_parts.py crossover --tiny    # sizes that are done in seconds on a CPU
"""

from __future__ import annotations

import faulthandler
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import numpy as np
import typer
from engine_workloads import GRAPHS, WORKLOADS

from minigrad.capture import Captured
from minigrad.data import Batch
from minigrad.device import cuda_module, cuda_problem
from minigrad.mnist import load
from minigrad.models import Net, find_net
from minigrad.optim import SGD
from minigrad.serial import Serial
from minigrad.sums import sums_on_gpu

try:
    import cupy  # pyright: ignore[reportMissingImports]
except ImportError:  # main says how to install it
    cupy: Any = None
try:
    import torch  # pyright: ignore[reportMissingImports]
except ImportError:
    torch: Any = None

ABSENT = "absent"  # instead of a figure that needs PyTorch
COPIES = 20  # of a call in a graph that is timed
HANG = 120.0  # seconds after which the stacks of a captured run are printed
Work = Callable[[], Any]


def main(part: str, tiny: Annotated[bool, typer.Option(help="small sizes, for a rehearsal")] = False) -> None:
    """Print the tables of one part, each on a line of JSON behind the word TABLE."""
    if part not in PARTS:
        raise typer.BadParameter(f"unknown part {part!r}; choose from {', '.join(PARTS)}")
    if problem := cuda_problem():
        print(problem)
        raise typer.Exit(2)
    PARTS[part](tiny)


def print_table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    print("TABLE " + json.dumps({"title": title, "columns": columns, "rows": rows}), flush=True)


def microseconds(work: Work) -> float:
    """The GPU's time for one call, in a CUDA graph of 20 calls: the least of five launches."""
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        alive = [work() for _ in range(COPIES)]
        graph = stream.end_capture()
        times = []
        for _ in range(6):  # the first one uploads the graph
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            times.append(1000 * cupy.cuda.get_elapsed_time(start, stop) / COPIES)
    del alive
    return min(times[1:])


def microseconds_of_torch(work: Work) -> float:
    """``microseconds`` of a function that calls PyTorch; it must have run on ``capture_stream``."""
    stream, graph = capture_stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        alive = [work() for _ in range(COPIES)]
    times = []
    for _ in range(6):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(1000 * start.elapsed_time(stop) / COPIES)
    del alive
    return min(times[1:])


@cache
def capture_stream() -> Any:
    """The one stream on which PyTorch is captured: backward runs on the stream where forward ran."""
    return torch.cuda.Stream()


def on_host(work: Work, calls: int) -> float:
    """Microseconds that the host takes to ask for it, the median of five rounds."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        times.append(1e6 * (time.perf_counter() - start) / calls)
        cupy.cuda.Device().synchronize()
    return statistics.median(times[1:])


def environment(tiny: bool) -> None:
    """Versions; the rates that no program exceeds; what the host pays for each kind of call."""
    cuda = cupy.cuda.runtime.runtimeGetVersion()
    versions = {
        "CuPy": cupy.__version__,
        "CUDA": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "NumPy": np.__version__,
    }
    versions |= {"Python": platform.python_version()}
    versions |= {"PyTorch": torch.__version__, "cuDNN": torch.backends.cudnn.version()} if torch else {}
    print_table("Versions", list(versions), [list(versions.values())])
    source, target = (cupy.empty(1 << (10 if tiny else 28), np.float32) for _ in range(2))
    copy = 2 * source.nbytes / microseconds(lambda: cupy.copyto(target, source)) / 1e6
    rates = [rate_of_products(tf32) for tf32 in (False, True)]
    print_table("Ceilings", ["copy, TB/s", "fp32, TFLOP/s", "TF32, TFLOP/s"], [[f"{copy:.2f}", *rates]])
    kernel = cuda_module('extern "C" __global__ void nothing(float *x) {}').get_function("nothing")
    x, m, out = cupy.ones(4, np.float32), cupy.ones((64, 64), np.float32), cupy.empty((64, 64), np.float32)
    calls: dict[str, Work] = {
        "RawKernel": lambda: kernel((1,), (32,), (x,)),
        "x + x": lambda: x + x,
        "sum(axis=0)": lambda: m.sum(axis=0),
        "matmul(out=)": lambda: cupy.matmul(m, m, out=out),
        "item": lambda: x[0].item(),
    }
    if has_torch():
        t = torch.ones(4, device="cuda")
        calls["PyTorch's t + t"] = lambda: t + t
    figures = [f"{on_host(work, 10 if tiny else 2000):.1f}" for work in calls.values()]
    print_table("Host microseconds of a call", list(calls), [figures])


def has_torch() -> bool:
    return torch is not None and torch.cuda.is_available()


def rate_of_products(tf32: bool) -> str:
    """TFLOP/s of a large product in PyTorch."""
    if not has_torch():
        return ABSENT
    torch.backends.cuda.matmul.allow_tf32 = tf32
    n = 8192
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))

    def product() -> Any:
        return a @ b

    with torch.cuda.stream(capture_stream()):
        product()
    return f"{2 * n**3 / microseconds_of_torch(product) / 1e6:.1f}"


def sums(tiny: bool) -> None:
    """The gradient of a bias: a tall matrix is added up by CuPy in few blocks, by minigrad in two stages."""
    shapes = ((65536, 32), (50176, 16), (16384, 64), (12544, 32), (128, 128))
    rows = []
    for shape in ((2048, 4), (128, 4)) if tiny else shapes:
        g = cupy.asarray(np.random.default_rng(0).standard_normal(shape, np.float32))
        by_cupy, by_stages = (lambda g=g: g.sum(axis=0)), (lambda g=g: sums_on_gpu(g, (0,)))
        difference = float(abs(by_cupy() - by_stages()).max())
        assert difference < 1e-5 * g.size, f"the sums of {shape} differ by {difference:.1e}"
        rows.append(["x".join(map(str, shape)), *(f"{microseconds(f):.1f}" for f in (by_cupy, by_stages))])
    print_table("Sums of the rows of a matrix, us", ["", "CuPy's sum(axis=0)", "two stages"], rows)


def kernels(tiny: bool) -> None:
    """Where the GPU's time goes: each kernel of a step, op by op and captured, by PyTorch's profiler."""
    if not has_torch():
        print("PyTorch is not installed for this GPU, and its profiler names the kernels: pip install torch")
        raise typer.Exit(2)
    from torch.profiler import ProfilerActivity, profile  # pyright: ignore[reportMissingImports]

    steps = 2 if tiny else 10
    for name in ("W1", "W3", "W4", "W6"):
        peers = WORKLOADS[name].peers("cupy")
        for peer in ("minigrad", "minigrad" + GRAPHS):
            if (step := peers.get(peer)) is None:
                continue
            wall = 1e6 / steps_per_second(step, 0.05)
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(steps):
                    step()
                torch.cuda.synchronize()
            events = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
            rows = [
                [
                    event.key[:70].replace("|", "/"),
                    f"{event.self_device_time_total / steps:.1f}",
                    event.count / steps,
                ]
                for event in events
            ]
            total = sum(event.self_device_time_total for event in events) / steps
            title = f"{name} {peer}: {total:.0f} us on the GPU in a step of {wall:.0f} us"
            print_table(title, ["kernel", "us a step", "times a step"], rows[:16])


def steps_per_second(step: Work, seconds: float) -> float:
    """By the clock, after four steps; each step must wait for the GPU, as those that return a loss do."""
    for _ in range(4):
        step()
    start, steps = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        step()
        steps += 1
    return steps / spent


WAYS = {
    "one CPU core": ("numpy", Serial),
    "GPU, op by op": ("cupy", Serial),
    "GPU, captured": ("cupy", Captured),
}


def training_step(net: Net, batch: Batch, way: str, dtype: Any, lr: float) -> Callable[[], float]:
    """A step of ``net`` from the weights of seed 0 on one of ``WAYS``; it returns the loss."""
    device, kind = WAYS[way]
    backend, batch = kind(), batch.to(device)
    model = backend.place(net.build(np.random.default_rng(0)).to(dtype=dtype, device=device))
    optimizer = SGD(model.parameters(), lr, momentum=net.momentum)

    def step() -> float:
        optimizer.zero_grad()
        loss = backend.step(model, batch, net.loss)
        backend.update(model, optimizer)
        return loss

    return step


def crossover(tiny: bool) -> None:
    """From which batch on a GPU beats a core; from which on launches no longer count."""
    digits, seconds = load("mnist5k").train, 0.01 if tiny else 0.4
    for name, batches in {"mlp": (1, 8, 64, 512, 4096), "lenet": (1, 8, 64, 512, 4096)}.items():
        rows, net = [], find_net(name)
        for batch in batches[:2] if tiny else batches:
            samples = net.prepare(digits[:batch], np.float32)
            steps = [training_step(net, samples, way, np.float32, net.lr) for way in WAYS]
            rows.append([batch, *(f"{batch * steps_per_second(step, seconds):.0f}" for step in steps)])
        print_table(f"Training {name}, samples/s by batch", ["batch", *WAYS], rows)


def article(tiny: bool) -> None:
    """An iteration of the experiments article and slow-link, which train on all digits in float64."""
    net, seconds = find_net("sigmoid"), 0.01 if tiny else 1.0
    digits = net.prepare(load("mnist5k").train[: 50 if tiny else None], np.float64)
    steps = {way: training_step(net, digits, way, np.float64, lr=0.1) for way in WAYS}
    losses = {way: [step() for _ in range(5)] for way, step in steps.items()}
    expected = losses["one CPU core"]
    for way, values in losses.items():
        np.testing.assert_allclose(
            values, expected, rtol=1e-9, err_msg=f"the costs of {way} are not the core's"
        )
    figures = [f"{1000 / steps_per_second(step, seconds):.2f}" for step in steps.values()]
    print_table(f"The article's training on {len(digits)} digits, ms per iteration", list(WAYS), [figures])


def captured(tiny: bool) -> None:
    """The law of captured runs; where one hangs, the stacks of all threads are printed."""
    from tests.backends.gpu_laws import a_captured_run_trains_as_on_the_host

    faulthandler.dump_traceback_later(HANG, exit=True)
    a_captured_run_trains_as_on_the_host(("mlp",) if tiny else ("mlp", "lenet"))
    print("captured runs train as on the host")


PARTS = {f.__name__: f for f in (environment, sums, kernels, crossover, article, captured)}

if __name__ == "__main__":
    typer.run(main)
