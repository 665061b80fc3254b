"""Laws of backends/comm/gpu.py: ranks on GPUs, and their bugs. They run where a double of CuPy
stands in its place (``on_gpus``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import typer
from rich.console import Console

from backends.cli import net_settings
from backends.cli.proof import Proof, prove
from backends.cli.train import train as train_command
from backends.cli.training import Training
from backends.comm import allreduce, broadcast, gather, run_ranks
from backends.comm.communicator import Wrapper
from backends.comm.gpu import PER_THREAD, synchronize
from backends.comm.trace import Recorder, Traced
from backends.data_parallel import DataParallel, compression
from backends.data_parallel.averaging import DiLoCo, ElasticAveraging, LocalSGD, ParallelSGD
from backends.data_parallel.backup_workers import BackupWorkers
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.parameter_server import ParameterServer
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.partition import costs_by_time
from minigrad import nn, ops, optim
from minigrad.data import Batch, Dataset
from minigrad.device import array_module, to_device, to_host, use_gpu_of
from minigrad.mnist import load
from minigrad.models import NETS, find_net
from minigrad.train import fit
from tests.backends.data_parallel.bucketed_laws import Processes
from tests.bugs.bug import Bug
from tests.double import DOUBLE
from tests.minigrad.gpu_laws import counted

ONE = {"PYTHONPATH": str(DOUBLE), "MINIGRAD_DEVICE": "cupy"}
TWO = {**ONE, "STRICT_CUPY_DEVICES": "2", "STRICT_CUPY_PEER_ACCESS": "0"}  # neither reads the other's memory
LATE = {"STRICT_CUPY_LATE": "1"}  # a kernel's result is in memory only when somebody waits for it

# Arrays and threads


def on_gpu(work: Callable[[Any], Any], ranks: int = 3) -> list[Any]:
    """``work`` on thread ranks, each on its own GPU where there are several."""

    def with_gpu(comm):
        use_gpu_of(comm.rank)
        return work(comm)

    return run_ranks(ranks, with_gpu)


def gpu_array(x: Any) -> Any:
    return to_device(np.asarray(x, dtype=np.float64), "cupy")


def is_here(x: Any) -> None:
    """Assert that ``x`` is on this thread's GPU."""
    here = array_module(x).cuda.Device()
    assert x.device == here, f"an array is on GPU {x.device.id}, its thread computes on GPU {here.id}"


def arrays_arrive_on_their_receivers_gpu() -> None:
    def work(comm):
        x, after, before = gpu_array([comm.rank, 7]), (comm.rank + 1) % 3, (comm.rank - 1) % 3
        for receive in (
            lambda: comm.recv(before),
            lambda: comm.start_recv(before, expect=x)(),
            lambda: comm.recv_any()[1],
        ):
            done = comm.start_send(x, after)
            y = receive()
            done()
            comm.barrier_with("to have received")
            is_here(y)
            assert to_host(y).tolist() == [before, 7], f"{y} came from rank {before}"
        for y in (broadcast(comm, x), allreduce(comm, x), *gather(comm, x)):
            is_here(y)

    on_gpu(work)


def jobs_run_on_the_gpu_of_their_rank() -> None:
    def work(comm):
        background, x = comm.background(), gpu_array([1.0, comm.rank])
        total = background.start(lambda own: allreduce(own, x * 2))()
        is_here(total)
        assert to_host(total).tolist() == [6, 6], f"the sum in the background is {total}"
        background.close()

    on_gpu(work)


def threads_with_streams_of_their_own_are_refused() -> None:
    def send(comm):
        comm.start_send(gpu_array([1.0]), comm.rank)()
        comm.recv(comm.rank)

    def start(comm):
        background, x = comm.background(), gpu_array([1.0])
        background.start(lambda own: allreduce(own, x))()

    os.environ[PER_THREAD] = "1"
    try:
        for work in (send, start):
            try:
                run_ranks(1, work)
            except RuntimeError as error:
                assert "a stream of its own" in str(error) and "unset it" in str(error), error
            else:
                raise AssertionError(f"{work.__name__} passed an array on between streams")
    finally:
        del os.environ[PER_THREAD]


# Training


@contextmanager
def launches() -> Iterator[None]:
    """Assert that the GPU computes inside the block."""
    with counted() as events:
        yield
    assert events is None or events["launch"] > 0, "nothing was computed on the GPU"


def minigrad(*arguments: str) -> dict[str, Any]:
    """What the command writes with ``--json``, in an empty folder; raises where its status is not 0."""
    with TemporaryDirectory() as folder:
        here, (name, *words) = os.getcwd(), arguments
        app = typer.Typer(add_completion=False)
        app.command()({"train": train_command, "prove": prove}[name])
        os.chdir(folder)
        try:
            with open(os.devnull, "w", encoding="utf-8") as output, redirected(output):
                app([*words, "--json", "results.json"], standalone_mode=False)
        except SystemExit as end:
            assert not end.code, f"minigrad {' '.join(arguments)} has status {end.code}"
        finally:
            os.chdir(here)
        return json.loads(Path(folder, "results.json").read_text(encoding="utf-8"))


@contextmanager
def redirected(output: Any) -> Iterator[None]:
    shown, sys.stdout = sys.stdout, output
    try:
        yield
    finally:
        sys.stdout = shown


PROOFS = (
    *(f"--data 2 --net {net}" for net in ("mlp", "lenet", "sigmoid")),
    "--data 2 --net vgg --batch 3",
    "--data 2 --net transformer --width 32 --length 16",
    *(f"--data 3 --net mlp --strategy {name}" for name in ("naive", "proportional", "backup-workers")),
    "--data 3 --strategy replicated",
    *(
        f"--data 2 --net mlp --strategy bucketed --option progress={how}"
        for how in ("thread", "test", "none", "blocking")
    ),
    *(f"--data 2 --net mlp --strategy sharded --option stage={n} --option overlap=True" for n in (1, 2)),
    "--data 2 --strategy sharded --option stage=3 --option overlap=True",
    "--data 2 --net mlp --option micro_batches=3 --option batch_norm=synchronized",
    *(f"--pipe 2 --net mlp --schedule {name}" for name in ("gpipe", "zb-h1", "chimera", "layer-wise")),
    "--pipe 2 --schedule 1f1b",
    "--pipe 3 --net mlp --recompute",
    *(f"--model 2 --net {net}" for net in ("mlp", "lenet")),
    "--model 2 --net vgg --batch 3",
    "--data 2 --pipe 2 --model 2 --net mlp",
    "--data 2 --net mlp --strategy sharded --option stage=3 --dtype float32",
)


def the_command_proves() -> None:
    for proof in PROOFS:
        with launches():
            verdict = minigrad("prove", "--device", "cupy", "--transport", "threads", *proof.split())
        assert verdict["passed"] and verdict["config"]["device"] == "cupy", f"prove {proof}: {verdict}"


class ReplicatedProof(Proof):
    def backend(self, comm):
        return DataParallel(comm)


def a_proof_computes_on_the_gpu() -> None:
    with launches():
        verdict, _ = run_ranks(2, ReplicatedProof(net="sigmoid", device="cupy").run)
    assert verdict is not None and verdict["passed"], verdict


def a_run_trains_as_on_the_host() -> None:
    def work(comm, device):
        training = Training(net="sigmoid", device=device, batch=1024, epochs=1)
        return training.run(comm, DataParallel(comm), Console(quiet=True), lambda metrics: None)[0]

    host = run_ranks(2, partial(work, device="numpy"))
    with launches():
        gpu = run_ranks(2, partial(work, device="cupy"))
    for one, other in zip(gpu, host, strict=True):
        np.testing.assert_allclose(one["losses"], other["losses"], rtol=1e-5)
        assert one["test_accuracies"] == other["test_accuracies"]


def nets_train_as_on_the_host() -> None:
    """In float64: what one step rounds differently, the next two of the VGG multiply by some thousands."""
    for name in NETS:
        net, losses = find_net(name), {}
        for device in ("numpy", "cupy"):
            batch = net.prepare(net.data().train[:9], "float64").to(device)
            model = net.build(np.random.default_rng(0)).to(dtype=np.float64, device=device)
            optimizer = optim.SGD(model.parameters(), net.lr, momentum=net.momentum)
            losses[device] = fit(model, optimizer, net.loss, batch, batch_size=3).losses
        np.testing.assert_allclose(losses["cupy"], losses["numpy"], rtol=1e-9, err_msg=name)


def a_captured_run_trains_as_on_the_host(nets: Iterable[str] = ("mlp", "lenet")) -> None:
    """The command, with a last batch that is smaller than the others."""
    whole = load("mnist5k")
    digits = Dataset("30 digits", whole.train[:21], whole.test[:9])
    common = ["--epochs", "3", "--batch", "9", "--dtype", "float64", "--warm-up", "2"]
    for name in nets:
        with patch.object(net_settings, "load", lambda name: digits):
            host = minigrad("train", "--device", "numpy", "--net", name, *common)
            with counted() as events:
                gpu = minigrad("train", "--device", "cupy", "--capture", "--net", name, *common)
        if events is not None:
            assert events["graph launch"] >= 10, f"{events['graph launch']} graphs were launched"
        np.testing.assert_allclose(gpu["losses"], host["losses"], rtol=1e-9, err_msg=name)
        assert gpu["test_accuracies"] == host["test_accuracies"], name


def captured_runs_of_all_nets_train_as_on_the_host() -> None:
    a_captured_run_trains_as_on_the_host(name for name, net in NETS.items() if not net.sizes)
    try:  # products of stacks of matrices are CuPy's, which no graph can hold
        minigrad("train", "--device", "cupy", "--capture", "--net", "transformer", "--width", "16")
    except RuntimeError as error:
        assert "cannot be captured" in str(error), error
    else:
        raise AssertionError("a transformer was captured")


def deep(layers: int, rng: np.random.Generator) -> nn.Sequential:
    hidden = [part for _ in range(layers) for part in (nn.Linear(6, 6, rng=rng), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(6, 3, rng=rng))


def train(strategy: Callable[..., Any], device: str, steps: int = 3, layers: int = 1, ranks: int = 2) -> Any:
    """The weights of all ranks, by name, after ``steps`` steps."""
    rng = np.random.default_rng(1)
    batches = [Batch(rng.normal(size=(8, 6)), rng.integers(0, 3, 8)) for _ in range(steps)]

    def work(comm):
        if device == "cupy":
            use_gpu_of(comm.local_rank)
        backend = strategy(comm)
        model = deep(layers, np.random.default_rng(0)).to(dtype=np.float64, device=device)
        model = backend.place(model)
        optimizer = optim.SGD(model.parameters(), 0.1)
        for batch in batches:
            optimizer.zero_grad()
            backend.step(model, batch.to(device), ops.cross_entropy)
            backend.update(model, optimizer)
        backend.finalize(model)
        weights = backend.state.full_parameters(model)
        backend.close()
        return weights

    return run_ranks(ranks, work)


COMPRESSORS = (
    *(compression.Identity, compression.Threshold, compression.TopK, compression.RandomK),
    *(compression.DeepGradientCompression, compression.OneBit, compression.ScaledSign, compression.PowerSGD),
)  # without those that draw numbers on the GPU
AVERAGING = (LocalSGD, ParallelSGD, DiLoCo, ElasticAveraging)
SYNCHRONOUS = (NaiveDataParallel, DataParallel, Bucketed, Sharded, ProportionalDataParallel, BackupWorkers)


def strategies_train_as_on_the_host() -> None:
    """Strategies that do not train like one serial machine, so that nothing else compares them."""

    def compressed(comm, kind):
        return compression.Compressed(comm, compress=kind())

    for strategy in (
        *(partial(compressed, kind=kind) for kind in COMPRESSORS),
        *AVERAGING,
        partial(ParameterServer, staleness=0),
    ):
        for host, gpu in zip(train(strategy, "numpy"), train(strategy, "cupy"), strict=True):
            for name, weights in host.items():
                np.testing.assert_allclose(gpu[name], weights, rtol=1e-10, atol=1e-12, err_msg=name)


def a_step_waits_as_often_for_any_number_of_parameters() -> None:
    """The host waits for the GPU a few times in a step, and not for each parameter."""
    gpu_array(0.0)  # the first use of a GPU may wait once more
    for strategy in (*SYNCHRONOUS, *AVERAGING, ParameterServer):
        waits = []
        for layers in (1, 4):
            one_step, three_steps = (
                synchronizations(partial(train, strategy, "cupy", steps, layers)) for steps in (1, 3)
            )
            waits.append((three_steps - one_step) / 2)
        assert waits[0] == waits[1], (
            f"{strategy.__name__}: a step of 2 ranks waits {waits[0]} times with 4 parameters, "
            f"{waits[1]} times with 10"
        )


def buckets_of_gpus_overlap_on_one_machine_too() -> None:
    """Their backward leaves the machine's cores free for the sums."""

    def work(comm):
        backend = Bucketed(Processes(comm, [0] * comm.size))
        backend.place(deep(2, np.random.default_rng(0)).to(dtype=np.float64, device="cupy"))
        assert backend.overlaps, "the buckets of GPUs wait for the end of backward"

    run_ranks(2, work)


def synchronizations(work: Callable[[], object]) -> int:
    """How often the host waits for the GPU; 0 where nobody counts."""
    with counted() as events:
        work()
    return 0 if events is None else events["synchronize"]


# Time


class IdleClock:
    """Counts its readings, as seconds; asserts that the GPU has nothing left to do at each of them."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self) -> float:
        assert import_module("cupy").cuda.get_current_stream().done, "a time was read while the GPU computed"
        self.seconds += 1
        return self.seconds


class Timed(Wrapper):
    """``comm`` on a clock of its own."""

    def __init__(self, comm, clock):
        super().__init__(comm)
        self.clock = clock

    def time(self) -> float:
        return self.clock()


def times_are_those_of_the_computation() -> None:
    """Spans, speeds and costs begin and end where the GPU is idle; kernels are late here."""
    x = gpu_array(np.ones((4, 6)))

    def spans(comm):
        traced, y = Traced(comm, record=Recorder(0, IdleClock())), x * 2
        for _ in range(2):
            with traced.computing("forward"):
                y = y + x
            y = y * 2

    run_ranks(1, spans)
    model = deep(2, np.random.default_rng(0))
    model.to(dtype=np.float64, device="cupy")
    batch = Batch(x, to_device(np.zeros(4, dtype=int), "cupy"))
    synchronize()
    costs_by_time(model, batch, repeats=1, clock=IdleClock())

    def speeds(comm):
        backend = ProportionalDataParallel(Timed(comm, IdleClock()))
        placed = backend.place(deep(2, np.random.default_rng(0)).to(dtype=np.float64, device="cupy"))
        placed.parameters()[0].data *= 2
        backend.step(placed, batch, ops.cross_entropy)

    run_ranks(1, speeds)


# Bugs

BUGS = [
    Bug("an array that is received stays on its sender's GPU", "ThreadComm.finish_recv",
        "self.accept(slot.filled())", "slot.filled().x",
        arrays_arrive_on_their_receivers_gpu, "is on GPU|different from the current device"),
    Bug("an array of any rank stays on its sender's GPU", "ThreadComm.recv_any",
        "return message.source, self.accept(message)", "return message.source, message.x",
        arrays_arrive_on_their_receivers_gpu, "is on GPU"),
    Bug("a job runs on the first GPU", "Worker.work", "with job.gpu:", "if job.gpu:",
        jobs_run_on_the_gpu_of_their_rank, "different from the current device|is on GPU"),
    Bug("a background's GPU is that of its own thread", "Worker.work", "with job.gpu:", "with current_gpu():",
        jobs_run_on_the_gpu_of_their_rank, "different from the current device|is on GPU"),
    Bug("messages pass between streams", "ThreadComm.deliver", "        check_one_stream()\n",
        "        pass\n", threads_with_streams_of_their_own_are_refused, "send passed an array on"),
    Bug("jobs pass between streams", "current_gpu", "    check_one_stream()\n    return", "    return",
        threads_with_streams_of_their_own_are_refused, "start passed an array on"),
    Bug("the proof stays on the host", "Proof.run", '"device": self.device', '"device": "numpy"',
        a_proof_computes_on_the_gpu, "nothing was computed on the GPU"),
    Bug("the training data stay on the host", "Training.run", "numbers.prepared(net, part).to(self.device)",
        "numbers.prepared(net, part)", a_run_trains_as_on_the_host, "status 1|TypeError|ndarray"),
    Bug("--capture launches no graphs", "Training.backend", "    if self.capture:\n        return",
        "    if False:\n        return", a_captured_run_trains_as_on_the_host, "graphs were launched"),
    Bug("the summary is copied number by number", "StepSummary.unpack",
        "to_host(total[:rest]).tolist()", "[float(x) for x in total[:rest]]",
        a_step_waits_as_often_for_any_number_of_parameters, "a step of 2 ranks waits"),
    Bug("a server's worker asks for each gradient", "ParameterServer.finish",
        "array_module(g).isfinite(g).all() for g", "array_module(g).asarray(bool(g.all())) for g",
        a_step_waits_as_often_for_any_number_of_parameters, "ParameterServer: a step of 2 ranks waits"),
    Bug("buckets of GPUs wait for the end of backward", "cores_are_shared",
        " and not any(on_gpu(p.data) for p in model.parameters())", "",
        buckets_of_gpus_overlap_on_one_machine_too, "wait for the end of backward"),
    Bug("a span begins while the GPU computes", "Traced.computing",
        "        synchronize()  # the span is the computation's", "        pass  #",
        times_are_those_of_the_computation, "while the GPU computed"),
    Bug("a span ends while the GPU computes", "Traced.computing",
        "            yield\n            synchronize()\n", "            yield\n",
        times_are_those_of_the_computation, "while the GPU computed"),
    Bug("a layer's cost is that of its launches", "forward_backward_layer", "    synchronize()\n", "",
        times_are_those_of_the_computation, "while the GPU computed"),
    Bug("a rank's speed is also that of the update before", "ProportionalDataParallel.forward_backward",
        "    synchronize()  # what a GPU", "    pass  # what a GPU", times_are_those_of_the_computation,
        "while the GPU computed"),
    Bug("the weight of an average is on the host", "consistency.weighted", "[xp.ones(1, dtype)",
        "[np.ones(1, dtype)", strategies_train_as_on_the_host, "cupy arrays|[Ii]ncorrect type|ndarray"),
]  # fmt: skip

LAWS = (
    arrays_arrive_on_their_receivers_gpu,
    jobs_run_on_the_gpu_of_their_rank,
    threads_with_streams_of_their_own_are_refused,
    the_command_proves,
    a_proof_computes_on_the_gpu,
    a_run_trains_as_on_the_host,
    a_captured_run_trains_as_on_the_host,
    nets_train_as_on_the_host,
    strategies_train_as_on_the_host,
    a_step_waits_as_often_for_any_number_of_parameters,
    buckets_of_gpus_overlap_on_one_machine_too,
    times_are_those_of_the_computation,
)
