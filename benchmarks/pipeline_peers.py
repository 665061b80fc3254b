"""What ``pipeline.py`` times: steps of one network by every schedule, and by PyTorch's own pipelining."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from data_parallel_peers import Peer, model_and_batch, stepper, torch_stepper
from engine_workloads import LR, MOMENTUM, WORKLOADS, Network, Step, torch, torch_layer

from backends.pipeline.pipeline import Pipeline
from minigrad.serial import Serial

MLP = Network(
    "8 x Linear(1024) with ReLU",
    1.0,
    (512, 1024),
    [layer for _ in range(8) for layer in (("linear", 1024, 1024), ("relu",))][:-1],
)
NETWORKS: dict[str, Any] = {"MLP": MLP, "W4": WORKLOADS["W4"]}
PLAIN = ("naive", "gpipe", "1f1b")
BATCHED = ("gpipe-batched", "1f1b-pairs", "1f1b-batched", "zb-batched")
ZERO_BUBBLE = ("zb-h1",)
SCHEDULES = (*PLAIN, *BATCHED, *ZERO_BUBBLE)


def network(name: str, batch: int) -> Network:
    """One of the networks, with so many samples in a batch."""
    work = NETWORKS[name]
    return replace(work, input=(batch, *work.input[1:]))


def pipeline(comm: Any, schedule: str, work: Network, micro_batches: int) -> Pipeline:
    """The network cut where both stages take as long as can be had."""
    sample, batch = work.input[1:], work.input[0]
    bounds = "bytes" if len(sample) == 1 else "time"
    return Pipeline(
        comm, schedule, micro_batches=micro_batches, bounds=bounds, sample=sample, batch_size=batch
    )


def peers(comm: Any, work: Network, micro_batches: int) -> dict[str, Peer]:
    """All that take turns in one run: serial on rank 0, every schedule, PyTorch serially and pipelined."""
    by_name = {
        "serial": Peer(stepper(work, Serial())[0], alone=True),
        "serial, micro-batches": Peer(stepper(work, Serial(micro_batches))[0], alone=True),
    }
    for schedule in SCHEDULES:
        step, backend = stepper(work, pipeline(comm, schedule, work, micro_batches))
        by_name[schedule] = Peer(step)
    if torch is not None:
        bounds = backend.bounds  # pyright: ignore
        by_name["torch"] = Peer(torch_stepper(work, slice(None)), alone=True)
        for name in ("gpipe", "1f1b"):
            by_name[f"torch {name}"] = Peer(torch_pipeline_stepper(comm, work, name, micro_batches, bounds))
    return by_name


def torch_pipeline_stepper(
    comm: Any, work: Network, schedule: str, micro_batches: int, bounds: tuple[int, ...]
) -> Step:
    """A step of ``work`` by torch.distributed.pipelining, with the layers of ``bounds`` on each rank."""
    from torch.distributed import pipelining  # pyright: ignore[reportMissingImports]

    start, batch = model_and_batch(work)
    model = torch.nn.Sequential(*map(torch_layer, work.layers))
    model.load_state_dict({name: torch.from_numpy(w) for name, w in start.state_dict().items()})
    part = model[bounds[comm.rank] : bounds[comm.rank + 1]]
    stage = pipelining.PipelineStage(part, comm.rank, comm.size, torch.device("cpu"))
    kind = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[schedule]
    run = kind(stage, n_microbatches=micro_batches, loss_fn=torch.nn.functional.cross_entropy)
    x, y = torch.from_numpy(batch.x), torch.from_numpy(batch.y)
    optimizer = torch.optim.SGD(part.parameters(), LR, momentum=MOMENTUM)

    def step() -> float:
        optimizer.zero_grad()
        losses: list[Any] = []
        inputs = (x,) if comm.rank == 0 else ()
        keywords = {"target": y, "losses": losses} if comm.rank == comm.size - 1 else {}
        run.step(*inputs, **keywords)
        optimizer.step()
        loss = torch.tensor([sum(one.item() for one in losses) / micro_batches])
        torch.distributed.broadcast(loss, comm.size - 1)
        return loss.item()

    return step
