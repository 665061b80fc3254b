"""Workers send gradients to servers, which hold the parameters: a slow worker makes no other worker wait.

Lecture section: asynchronous parameter server; sharded server. Lesson: 08_parameter_server. The price is
staleness: a gradient is applied to parameters that others have changed since it was computed.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from minigrad.data import Batch, shares
from minigrad.declaration import Declaration, Flag
from minigrad.device import Array, array_module, to_host
from minigrad.lookup import at_least_one
from minigrad.module import Module
from minigrad.optim import Optimizer
from minigrad.placed_state import Values
from minigrad.strategy import Strategy
from minigrad.traits import Traits
from minigrad.work import ForwardBackward, Loss, Work, forward_backward_pass

from ...comm.collectives import allgather, allreduce, broadcast
from ...comm.communicator import Communicator, RankEnded
from ...consistency import (
    bits_of_checksum,
    broadcast_model,
    check_same_on_all_ranks,
    checksum_of,
    load_mean,
    refuse_half,
    running_statistics,
    trained_parameters,
    weighted,
)
from ...grid import colocate_servers
from ...stale_rates import find_stale_rate
from ..flat import FlatLayout, Segment
from ..sharded_optimizer import Elements, ShardedOptimizer
from .consistency import consistency_model
from .server import (
    PULL,
    PUSH,
    LostWorker,
    Push,
    Server,
    Silence,
    gather_results,
    lost_server_error,
    send_results,
)


class ServersDeclaration(Declaration):
    """Checks the numbers of servers, and reports stale gradients and workers that left."""

    def check_options(self, ranks: int, options: Mapping[str, Any]) -> None:
        servers = options.get("servers", 1)
        check_servers(servers, ranks)
        if ranks < 2:
            raise ValueError(
                "--strategy server needs a server and a worker, got 1 rank; pass --data 2 or more"
            )
        consistency_model(ranks - servers, options.get("staleness"), options.get("softsync"))
        find_stale_rate(options.get("stale_rate", "naive"))

    def survives(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get("survive"))

    def writes_report(self, backend: ParameterServer) -> bool:
        """Whether this rank is the first of those that remain after ``finalize``."""
        return backend.rank == min(set(range(backend.workers)) - backend.lost.keys(), default=backend.workers)

    def figures(self, backend: ParameterServer) -> dict[str, Any]:
        """The gradients by staleness, and the workers that left."""
        staleness = {str(updates): n for updates, n in sorted(backend.staleness_counts.items())}
        lost = {str(rank): one._asdict() for rank, one in backend.lost.items()}
        return {"staleness": staleness, "lost": lost}

    def rows(self, backend: ParameterServer) -> dict[str, str]:
        rows = {}
        if counts := sorted(backend.staleness_counts.items()):
            mean = sum(updates * n for updates, n in counts) / sum(n for _, n in counts)
            text = ", ".join(f"{updates}: {n}" for updates, n in counts)
            rows["gradients by staleness"] = f"{text} (mean {mean:.2f})"
        for rank, one in backend.lost.items():
            rows[f"worker {rank} left"] = f"after {one.steps} steps: {one.reason}"
        return rows


class ServersState(ShardedOptimizer):
    """The state of a model whose parameters are cut among the servers."""

    backend: ParameterServer

    def owned_by(self, rank: int) -> Iterator[Elements]:
        """The elements of a server, in the order in which it passes them to its optimizer."""
        layout, number = self.backend.layout, rank - self.backend.workers
        for n, within, _ in layout.segments(number) if number >= 0 else ():
            yield layout.parameters[n], within

    def parameter_values(self, model: Module) -> Values:
        """The servers' parameters, by name. Collective."""
        parts = [answer[1:] for answer in self.newest_answers()]
        views = self.backend.layout.views(to_host(array_module(parts[0]).concatenate(parts)))
        current = dict(zip(self.backend.layout.parameters, views, strict=True))
        return {name: to_host(current.get(p, p.data)) for name, p in model.named_parameters().items()}

    def newest_answers(self) -> list[Array]:
        """What each server holds: its version, and its part of the parameters. Collective."""
        server, first = self.backend.server, self.backend.layout.parameters[0].data
        own = first.reshape(-1)[:0] if server is None else server.answer
        return allgather(self.backend.comm, own)[self.backend.workers :]

    def drain(self, model: Module) -> None:
        """Apply the remaining gradients; then all ranks have the servers' newest parameters.

        Running statistics become the mean of the workers', weighted by their samples.
        """
        self.backend.conclude()
        self.backend.use(self.newest_answers())
        if statistics := running_statistics(model):
            like, samples = self.backend.layout.parameters[0].data, self.backend.samples
            load_mean(statistics, allreduce(self.backend.comm, weighted(like, statistics, float(samples))))

    def own_values(self) -> dict[str, Any]:
        server = self.backend.server
        return super().own_values() | ({} if server is None else server.own_values())

    def set_own_values(self, values: dict[str, Any]) -> None:
        super().set_own_values(values)
        backend = self.backend
        if backend.server is not None:
            backend.server.resume(backend.steps, backend.versions[backend.rank - backend.workers])
            backend.server.set_own_values(values)


class ParameterServer(Strategy):
    """The last ``servers`` ranks hold the parameters, the others are workers with a share of each batch.

    In a step a worker computes the gradient of the mean loss over its share, pushes to each server its part
    of it, and pulls the parameters for its next step: one message each way per worker, server and step, of
    1/servers of the parameters and a few figures. A worker with an empty share sends figures only. Only the
    servers update, with the optimizer, at the learning rate of the slowest worker's step.

    - By default each gradient is applied when it arrives, and its worker proceeds at once.
    - ``softsync`` n: an update is the mean of floor(workers / n) gradients; 1 to workers.
    - ``staleness`` s: an update is the mean of all workers' gradients of a step, and no worker is more than s
      steps ahead of the slowest. 0 is synchronous training, with the parameters of the serial run.

    A gradient's staleness tau is the number of updates between the version it was computed with and its own.
    ``stale_rate`` chooses the learning rate: "damped", the default, lr / (W + tau) for each of W workers'
    gradients (``stale_rates`` has the reason, and the general form); "divided", lr / tau where tau is above 0
    (Zhang et al. 2016); "naive", lr, which with momentum need not converge. ``colocated`` numbers the ranks
    as ``colocate_servers`` does.

    With ``survive`` a worker whose step raises an error reports it to the servers and leaves. The servers
    also notice a thread that ended, and a process on their machine where the job tolerates that (``run
    --survive``); they kill such a process if it sends nothing for MINIGRAD_TIMEOUT seconds. The other workers
    continue; if a server ends, all ranks do. After ``finalize`` all ranks have the servers' parameters, the
    workers' mean statistics, ``staleness_counts`` (of the first server) and ``lost``. Before a checkpoint
    all ranks get parameters and statistics too, of which none may be lost; so with ``survive`` there is no
    checkpoint. The loss and gradients of a step are over the worker's own share; the loss is 0 on servers.

    In a Stack a worker is a replica of several ranks, which share a model or are a pipeline, and so is a
    server: each of its ranks holds the parameters of the workers' ranks in the same place. All of them apply
    the pushes in the order in which they reach the first, so no model has parts of different versions.
    """

    state_class, own_state = ServersState, ("steps", "samples", "versions")
    traits = Traits(equals_serial=False, outermost_only=True)
    declaration = ServersDeclaration(
        {
            "servers": Flag(int, "ranks that hold the parameters (default: 1)", "S"),
            "staleness": Flag(
                int,
                "steps that a worker may be ahead of the slowest; 0 is synchronous (default: no limit, each "
                "gradient is applied when it arrives)",
                "STEPS",
            ),
        }
    )

    def __init__(
        self,
        comm: Communicator,
        *,
        servers: int = 1,
        staleness: int | None = None,
        softsync: int | None = None,
        stale_rate: str = "damped",
        survive: bool = False,
        colocated: bool = False,
        micro_batches: int = 1,
    ):
        check_servers(servers, comm.size)
        self.comm = comm = colocate_servers(comm, servers) if colocated else comm
        self.rank, self.size = comm.rank, comm.size
        self.servers, self.workers = servers, comm.size - servers
        self.staleness, self.softsync = staleness, softsync
        self.stale_rate, self.survive, self.colocated = stale_rate, survive, colocated
        self.traits = replace(self.traits, resumable=not survive, may_lag=staleness != 0)
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.consistency = consistency_model(self.workers, staleness, softsync)
        find_stale_rate(stale_rate)
        self.steps = self.samples = self.batch = 0
        self.server: Server | None = None
        self.silence = Silence()
        self.optimizer: Optimizer | None = None
        self.reason = ""  # why this worker has left
        self.pending_pulls: list[Callable[[], Array]] = []
        self.pending_pushes: list[Callable[[], None]] = []
        self.versions = [0] * servers  # of this rank's parameters
        self.staleness_counts: Counter[int] = Counter()
        self.lost: dict[int, LostWorker] = {}

    def place(self, model: Module) -> Module:
        """The whole model, with the parameters of rank 0; a server copies its part of them.

        Raises ValueError where ranks differ in model or settings, where no rank is a worker, for more servers
        than parameters, and for float16, in which a message has no room for its figures.
        """
        refuse_half(model, self)
        if self.workers < 1:
            raise ValueError("a parameter server needs at least 2 ranks, a server and a worker; got 1")
        check_same_on_all_ranks(self.comm, model, self.declaration.settings(self))
        broadcast_model(self.comm, model)
        self.watch(range(self.workers, self.size))
        self.steps, self.versions = 0, [0] * self.servers
        parameters = trained_parameters(model)
        self.layout = FlatLayout(parameters, self.servers)
        if self.servers > self.layout.size:
            raise ValueError(
                f"{self.layout.size} parameters cannot be cut among {self.servers} servers; "
                "take fewer servers"
            )
        if (number := self.rank - self.workers) >= 0:
            weights = self.layout.weights()
            xp, own = array_module(weights), weights[self.layout.parts[number]]
            answer = xp.concatenate([xp.zeros(1, own.dtype), own])  # version 0
            clocks = dict.fromkeys(range(self.workers), 0)
            segments = self.layout.segments(number)
            self.server = Server(answer, segments, clocks, self.consistency, find_stale_rate(self.stale_rate))
        return self.hold(model)

    @property
    def replica(self) -> list[Communicator]:
        """The ranks of each strategy inside this one, in a Stack, that has several."""
        return [member.comm for member in self.inner if member.size > 1]

    def begin_step(self, model: Module) -> bool:
        """On a worker, pull the parameters first; servers, and workers that have left, do not compute.

        Raises ValueError for a gradient of an earlier step, as the weight of a push is that of one step.
        """
        if self.server is not None or self.reason:
            return False
        for name, parameter in model.named_parameters().items():
            if parameter.requires_grad and parameter.grad is not None:
                raise ValueError(
                    f"{name} still has the gradient of an earlier step, and a push carries one step's; call "
                    "optimizer.zero_grad() before each step (freeze what the optimizer does not update), or "
                    "accumulate gradients with micro_batches="
                )
        self.pull()
        return True

    def check_batch(self, batch: Batch) -> None:
        """Let the servers check: the checksum travels in the push of the step."""
        self.batch = checksum_of(batch) % (1 << bits_of_checksum(self.layout.parameters[0].dtype))

    def shard(self, batch: Batch) -> Batch:
        """This worker's share, of sizes that differ by at most one."""
        return batch[shares(len(batch), self.workers)[self.rank]]

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """1: the loss is the mean over this worker's share."""
        return 1.0

    def step(
        self,
        model: Module,
        batch: Batch,
        loss_fn: Loss,
        inner: ForwardBackward = forward_backward_pass,
        *,
        loss_scale: float = 1.0,
    ) -> float:
        """On a worker pull the parameters and compute; returns the loss of its own share, 0 without samples.

        Raises ValueError if a parameter still has the gradient of an earlier step.
        """
        self.check_model(model)
        if not self.begin_step(model):
            self.step_number += 1
            return 0.0
        try:
            return super().step(model, batch, loss_fn, inner, loss_scale=loss_scale)
        except Exception as error:
            if not self.survive:
                raise
            self.reason = f"{type(error).__name__}: {error}"
            for server in range(self.workers, self.size):
                self.comm.send(np.frombuffer(self.reason.encode(), np.uint8), server, PUSH)
            return 0.0

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        self.step_samples = len(work.batch)
        return super().forward_backward(work, inner)

    def finish(self, model: Module, loss: float) -> float:
        """Raise FloatingPointError, naming the parameter, for a gradient that is not finite."""
        grads = {name: p.grad for name, p in model.named_parameters().items() if p.grad is not None}
        finite = [array_module(g).isfinite(g).all() for g in grads.values()]
        answers = to_host(array_module(finite[0]).stack(finite)) if finite else []  # one copy from a GPU
        for name, is_finite in zip(grads, answers, strict=True):
            if not is_finite:
                raise FloatingPointError(
                    f"rank {self.rank}'s gradient of {name} at step {self.steps} is not finite; "
                    "nothing was sent, try a smaller --lr"
                )
        return loss

    def update(self, model: Module, optimizer: Optimizer) -> None:
        """Push the gradient to the servers; on a server, serve until every worker has made this step.

        Raises ValueError for optimizers that need the norms of whole parameters, on more than one server.
        """
        self.check_update(model, optimizer)
        parts = self.servers * math.prod(comm.size for comm in self.replica)
        if parts > 1 and (optimizer.needs_norms or optimizer.limit is not None):
            raise ValueError(
                f"each of {parts} servers knows the norm of its own part only; train without clipping "
                "and LARS, or with servers=1 and whole models"
            )
        self.optimizer = optimizer
        if self.server is not None:
            self.steps += 1
            self.server.segments = self.numbered_by(optimizer)
            servers = range(self.workers, self.size)
            watch = lambda ranks, owing: self.watch({*ranks, *servers}, owing)  # noqa: E731
            self.server.serve(self.comm, self.steps, optimizer, watch, self.next_push)
        elif not self.reason:
            self.push()
            self.steps += 1

    def numbered_by(self, optimizer: Optimizer) -> list[Segment]:
        """This server's segments, with the optimizer's numbers of their parameters."""
        numbers = {parameter: n for n, parameter in enumerate(optimizer.parameters)}
        segments = self.layout.segments(self.rank - self.workers)
        return [s._replace(n=numbers.get(self.layout.parameters[s.n], -1)) for s in segments]

    def next_push(self) -> tuple[int, Array]:
        """The next push and its worker: the ranks of a server take them in the order of their first rank."""
        first = all(comm.rank == 0 for comm in self.replica)
        worker, message = self.comm.recv_any(PUSH) if first else (0, np.zeros(0))
        for comm in self.replica:
            worker = int(broadcast(comm, np.array(worker)))
        return worker, message if first else self.comm.recv(worker, PUSH)

    def push(self) -> None:
        """Send every server its part of the gradient, and start to receive its answer."""
        parameters, layout = self.layout.parameters, self.layout
        gradient = layout.pack([p.grad for p in parameters])
        for number, version in enumerate(self.versions):
            server = self.workers + number
            self.pending_pulls.append(self.comm.start_recv(server, PULL))
            reached = [parameters[segment.n].grad is not None for segment in layout.segments(number)]
            part = layout.parts[number] if self.step_samples else slice(0)
            message = Push.pack((self.steps, version, self.step_samples, self.batch), reached, gradient[part])
            self.pending_pushes.append(self.comm.start_send(message, server, PUSH))
        self.samples += self.step_samples
        self.batch = 0

    def pull(self) -> None:
        """Wait for the servers' answers, if any are due."""
        if not self.pending_pulls:
            return
        try:
            answers = [finish() for finish in self.pending_pulls]
        except RankEnded as ended:
            raise lost_server_error(ended.rank) from ended
        for finish in self.pending_pushes:
            finish()
        self.pending_pulls, self.pending_pushes = [], []
        self.use(answers)

    def use(self, answers: list[Array]) -> None:
        """Go on with the parameters that the servers have sent, and their versions."""
        self.versions = [int(answer[0]) for answer in answers]
        self.layout.load(array_module(answers[0]).concatenate([answer[1:] for answer in answers]))

    def conclude(self) -> None:
        """Receive the answers that are due; on a server, apply the remaining gradients."""
        self.pull()
        if self.server is not None and self.server.pushes and self.optimizer is not None:
            self.server.apply(self.server.pushes, self.optimizer)

    def finalize(self, model: Module) -> None:
        """Apply the remaining gradients; then all ranks get the servers' parameters and counts."""
        self.conclude()
        statistics = running_statistics(model)
        if self.server is not None and self.rank == self.workers:
            results = gather_results(self.comm, self.server, self.workers, self.watch)
        else:
            self.watch([self.workers])
            weight = 0.0 if self.reason else float(self.samples)
            own = weighted(self.layout.parameters[0].data, statistics, weight)
            part = own if self.server is None else self.server.weights
            results = send_results(self.comm, part, self.workers)
        values, total, text = results
        self.layout.load(values)
        load_mean(statistics, total)
        counts = json.loads(bytes(text))
        self.staleness_counts = Counter(dict(counts["staleness"]))
        self.lost = {rank: LostWorker(*fields) for rank, fields in counts["lost"]}
        self.watch(range(self.workers))
        for rank, (steps, reason, applied) in self.lost.items() if self.rank == self.workers else ():
            left = f"worker {rank} left after {steps} steps ({reason})"
            warnings.warn(f"{left}; {applied} of its gradients were applied", stacklevel=2)

    def refusal(self, inner: Strategy) -> str | None:
        if self.survive and inner.size > 1:
            return (
                f"survive lets single workers end, and a worker with {type(inner).__name__} is "
                f"{inner.size} ranks; leave survive out"
            )
        return None

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] | None = None) -> None:
        """With ``survive``, let waits raise RankEnded for ``ranks`` that ended, if the transport detects it.

        Ranks that are ``owing`` this rank a message, and stay silent for ``wait_limit()`` seconds, are killed
        with ``survive``; else this raises TimeoutError.
        """
        if self.survive:
            self.comm.watch(set(ranks) - {self.rank}, owing or {})
        else:
            self.silence.check(owing or {})


def check_servers(servers: int, ranks: int) -> None:
    """Raise ValueError unless that many ranks can be servers; a single rank may be its own server."""
    if not 1 <= servers < max(ranks, 2):
        raise ValueError(
            f"of {ranks} ranks 1 to {max(ranks - 1, 1)} can be servers, got {servers}; "
            "take fewer servers or start more ranks"
        )
