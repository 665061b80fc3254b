"""Workers send gradients to servers, which hold the parameters: who is slow makes nobody wait.

Lecture section: asynchronous parameter server; sharded server. Lesson: 08_parameter_server. The price is
staleness: a gradient is applied to parameters that others have changed since it was computed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from minigrad.backend import (
    Backend,
    ForwardBackward,
    Loss,
    SquareNorms,
    Unshard,
    Work,
    at_least_one,
    forward_backward_pass,
)
from minigrad.data import Batch, shares
from minigrad.declaration import Flag
from minigrad.device import Array, array_module, to_host
from minigrad.module import Module
from minigrad.optim import Optimizer

from ..comm.collectives import allgather
from ..comm.communicator import Communicator, RankEnded
from ..consistency import broadcast_model, check_same_on_all_ranks
from ..stale_rates import find_stale_rate
from .averaging import statistics
from .server import ANSWER, PUSH, Lost, Push, Server, server_lost
from .server_end import at_first, at_others, lay_back, warn_of, weighed
from .server_rules import check_servers, rule_for
from .shards import Shards, beside_workers
from .step_summary import trained


class ParameterServer(Backend):
    """The last ``servers`` ranks hold the parameters, the others are workers with a share of each batch.

    In a step a worker computes the gradient of the mean loss over its share, sends each server its part of
    it, and is answered with the parameters for its next step: per worker, server and step one message each
    way, of 1/servers of the parameters and a few figures. A worker with an empty share sends figures only.
    The updates are the optimizer's, on the server alone, at the learning rate of the slowest worker's step.

    - By default each gradient is applied as it comes, and its worker goes on at once.
    - ``softsync`` n: an update is the mean of floor(workers / n) gradients; 1 to workers.
    - ``staleness`` s: an update is the mean of all workers' gradients of a step, and nobody is more than s
      steps ahead of the slowest. 0 is synchronous training, the serial run's parameters.

    A gradient's staleness tau is the number of updates between the version it was computed with and its own.
    ``stale_rate`` says what becomes of the optimizer's lr: "damped", by default lr / (W + tau) for each of W
    workers' gradients (``stale_rates`` has the reason, and the general form); "divided", lr / tau where tau
    is above 0 (Zhang et al. 2016); "naive", lr, which with momentum need not converge. A server's part is
    always of one version; parts of different servers may be of different ones. ``colocated`` counts ranks as
    ``beside_workers`` does.

    With ``survive`` a worker whose step raises tells the servers and takes no more part. Who ended without a
    word they learn of threads, and of processes on their machine where the job was started to go on (``run
    --survive``); of these they end one from which nothing came in MINIGRAD_TIMEOUT seconds. The others go
    on; where a server ends, all do. After ``finalize`` all have the servers' parameters, the workers' mean
    statistics, ``staleness_counts`` (of the first server) and ``lost``.
    A step's loss, and its gradients, are those of the worker's own share; 0 on servers.
    """

    equals_serial = False
    depends_on_timing = outermost_only = True
    flags = {
        "servers": Flag(int, "ranks that hold the parameters (default: 1)", "S"),
        "staleness": Flag(
            int,
            "steps that a worker may be ahead of the slowest; 0 is synchronous (default: no limit, each "
            "gradient is applied when it arrives)",
            "STEPS",
        ),
    }

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
        self.comm = comm = beside_workers(comm, servers) if colocated else comm
        self.rank, self.size = comm.rank, comm.size
        self.servers, self.workers = servers, comm.size - servers
        self.staleness, self.softsync = staleness, softsync
        self.stale_rate, self.survive, self.colocated = stale_rate, survive, colocated
        self.micro_batches = at_least_one("micro_batches", micro_batches)
        self.rule = rule_for(self.workers, staleness, softsync)
        find_stale_rate(stale_rate)
        self.steps = self.seen = 0
        self.server: Server | None = None
        self.optimizer: Optimizer | None = None
        self.reason = ""  # why this worker has left
        self.coming: list[Callable[[], Array]] = []  # the servers' answers
        self.leaving: list[Callable[[], None]] = []  # the pushes that they answer
        self.versions = [0] * servers  # of the parameters here
        self.staleness_counts: Counter[int] = Counter()
        self.lost: dict[int, Lost] = {}

    @classmethod
    def check_options(cls, ranks: int, options: Mapping[str, Any]) -> None:
        servers = options.get("servers", 1)
        check_servers(servers, ranks)
        if ranks < 2:
            raise ValueError(
                "--strategy server needs a server and a worker, got 1 rank; pass --data 2 or more"
            )
        rule_for(ranks - servers, options.get("staleness"), options.get("softsync"))
        find_stale_rate(options.get("stale_rate", "naive"))

    @classmethod
    def survives(cls, options: Mapping[str, Any]) -> bool:
        return bool(options.get("survive"))

    def settings(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        names = ("servers", "staleness", "softsync", "stale_rate", "survive", "colocated", "micro_batches")
        return {name: getattr(self, name) for name in names}

    def place(self, model: Module) -> Module:
        """The whole model, with rank 0's parameters; a server takes its part of them.

        Raises ValueError where ranks differ in model or settings, where there is no rank for a worker, and
        for more servers than parameters.
        """
        if self.workers < 1:
            raise ValueError("a parameter server needs at least 2 ranks, a server and a worker; got 1")
        check_same_on_all_ranks(self.comm, model, self.settings())
        broadcast_model(self.comm, model)
        self.watch(range(self.workers, self.size))
        self.steps, self.versions = 0, [0] * self.servers
        self.layout = Shards(trained(model), self.servers)
        if (number := self.rank - self.workers) >= 0:
            weights = self.layout.packed([p.data for p in self.layout.parameters])
            order = {id(p): n for n, p in enumerate(model.parameters())}
            numbers = [order[id(p)] for p in self.layout.parameters]  # as the optimizer counts
            pieces = [piece._replace(n=numbers[piece.n]) for piece in self.layout.segments(number)]
            # Its first element is the version, which the server sets.
            answer = array_module(weights).concatenate([weights[:1], weights[self.layout.part(number)]])
            clocks = dict.fromkeys(range(self.workers), 0)
            self.server = Server(answer, pieces, clocks, self.rule, find_stale_rate(self.stale_rate))
        return model

    def shard(self, batch: Batch) -> Batch:
        """This worker's share, of sizes that differ by at most one."""
        return batch[shares(len(batch), self.workers)[self.rank]]

    def loss_weight(self, mine: Batch, batch: Batch) -> float:
        """1: the loss is the mean over this worker's share."""
        return 1.0

    def step(
        self, model: Module, batch: Batch, loss_fn: Loss, inner: ForwardBackward = forward_backward_pass
    ) -> float:
        """On a worker take the servers' answers and compute; its own share's loss, 0 where it has none.

        Raises ValueError where there are gradients of an earlier step.
        """
        if self.server is not None or self.reason:
            return 0.0
        self.refuse_earlier(model)
        self.pull()
        try:
            return super().step(model, batch, loss_fn, inner)
        except Exception as error:
            if not self.survive:
                raise
            self.leave(error)
            return 0.0

    def refuse_earlier(self, model: Module) -> None:
        """Raise ValueError where a gradient is there: workers weigh a step by its samples, not two."""
        for name, parameter in model.named_parameters().items():
            if parameter.requires_grad and parameter.grad is not None:
                raise ValueError(
                    f"{name} still has the gradient of an earlier step, and a push carries one step's; call "
                    "optimizer.zero_grad() before each step (freeze what the optimizer does not update), or "
                    "accumulate gradients with micro_batches="
                )

    def forward_backward(self, work: Work, inner: ForwardBackward = forward_backward_pass) -> float:
        self.samples = len(work.batch)
        return super().forward_backward(work, inner)

    def finish(self, model: Module, loss: float) -> float:
        """Refuse, before it is sent, a gradient that is not finite; FloatingPointError names it."""
        for name, parameter in model.named_parameters().items():
            g = parameter.grad
            if g is not None and not array_module(g).isfinite(g).all():
                raise FloatingPointError(
                    f"rank {self.rank}'s gradient of {name} at step {self.steps} is not finite; "
                    "nothing was sent, try a smaller --lr"
                )
        return loss

    def update(self, model: Module, optimizer: Optimizer, square_norms: SquareNorms | None = None) -> None:
        """Push the gradient to the servers; on a server serve until every worker has made this step.

        Raises ValueError for optimizers that need the norms of whole parameters, on more than one server.
        """
        if self.servers > 1 and (optimizer.needs_norms or optimizer.limit is not None):
            raise ValueError(
                f"each of {self.servers} servers knows the norm of its own part only; train without clipping "
                "and LARS, or with servers=1"
            )
        self.optimizer = optimizer
        if self.server is not None:
            self.steps += 1
            servers = range(self.workers, self.size)
            self.server.serve(
                self.comm, self.steps, optimizer, lambda w, owing: self.watch({*w, *servers}, owing)
            )
        elif not self.reason:
            self.push()
            self.steps += 1

    def push(self) -> None:
        """Send every server its part of the gradient, and expect its answer."""
        for number, version in enumerate(self.versions):
            server = self.workers + number
            self.coming.append(self.comm.start_recv(server, ANSWER))
            reached, gradient = self.layout.gradient(number)
            if not self.samples:
                gradient = [piece[:0] for piece in gradient]
            message = Push.packed((self.steps, version, self.samples), reached, gradient)
            self.leaving.append(self.comm.start_send(message, server, PUSH))
        self.seen += self.samples

    def pull(self) -> None:
        """Take the servers' answers, where any are on their way."""
        if not self.coming:
            return
        try:
            answers = [finish() for finish in self.coming]
        except RankEnded as ended:
            raise server_lost(ended.rank) from ended
        for finish in self.leaving:
            finish()
        self.coming, self.leaving = [], []
        self.versions = [int(answer[0]) for answer in answers]
        self.load(array_module(answers[0]).concatenate([answer[1:] for answer in answers]))

    def load(self, values: Array) -> None:
        for parameter, view in zip(self.layout.parameters, self.layout.views(values), strict=True):
            parameter.data[...] = view

    def leave(self, error: Exception) -> None:
        """Tell the servers that this worker takes no more part, and why."""
        self.reason = f"{type(error).__name__}: {error}"
        for number in range(self.servers):
            self.comm.send(np.frombuffer(self.reason.encode(), np.uint8), self.workers + number, PUSH)

    def finalize(self, model: Module) -> None:
        """Apply what is left; then all ranks take the servers' parameters, and learn what was counted."""
        self.pull()
        if self.server is not None and self.server.pushes and self.optimizer is not None:
            self.server.apply(self.server.pushes, self.optimizer)
        values, mean, text = self.results(statistics(model))
        self.load(values)
        lay_back(mean, statistics(model) if mean.size else [])
        told = json.loads(bytes(text))
        self.staleness_counts = Counter(dict(told["staleness"]))
        self.lost = {rank: Lost(*what) for rank, what in told["lost"]}
        self.watch(range(self.workers))
        if self.rank == self.workers:
            warn_of(self.lost)

    def results(self, found: list[Array]) -> list[Array]:
        """The trained parameters, the mean of ``found`` over the workers, and what was counted, as JSON."""
        if self.server is not None and self.rank == self.workers:
            return at_first(self.comm, self.server, self.workers, self.watch)
        self.watch([self.workers])
        weight = 0.0 if self.reason else float(self.seen)
        own = weighed(found, weight, self.layout.parameters[0].data)
        return at_others(self.comm, own if self.server is None else self.server.weights, self.workers)

    @property
    def writes_report(self) -> bool:
        """Whether this rank, of those that are left after ``finalize``, is the one to write the results."""
        return self.rank == min(set(range(self.workers)) - self.lost.keys(), default=self.workers)

    def figures(self) -> dict[str, Any]:
        """The gradients by staleness, and the workers that left."""
        staleness = {str(updates): n for updates, n in sorted(self.staleness_counts.items())}
        return {"staleness": staleness, "lost": {str(rank): one._asdict() for rank, one in self.lost.items()}}

    def rows(self) -> dict[str, str]:
        rows = {
            f"worker {rank} left": f"after {lost.steps} steps: {lost.reason}"
            for rank, lost in self.lost.items()
        }
        if not self.staleness_counts:
            return rows
        counts = sorted(self.staleness_counts.items())
        mean = sum(updates * n for updates, n in counts) / sum(n for _, n in counts)
        text = ", ".join(f"{updates}: {n}" for updates, n in counts)
        return {"gradients by staleness": f"{text} (mean {mean:.2f})", **rows}

    def watch(self, ranks: Iterable[int], owing: Mapping[int, int] = MappingProxyType({})) -> None:
        """With ``survive``, let waits end where one of ``ranks`` has ended, if the transport can tell.

        Those ``owing`` this rank something are ended where they stay silent.
        """
        if self.survive:
            self.comm.watch(set(ranks) - {self.rank}, owing)

    def full_parameters(self, model: Module, unshard: Unshard | None = None) -> dict[str, np.ndarray]:
        """What the servers hold, by name; all ranks call."""
        none = self.layout.parameters[0].data.reshape(-1)[:0]
        found = allgather(self.comm, none if self.server is None else self.server.weights)
        views = self.layout.views(array_module(none).concatenate(found[self.workers :]))
        served = {id(p): view for p, view in zip(self.layout.parameters, views, strict=True)}
        values = {name: to_host(served.get(id(p), p.data)) for name, p in model.named_parameters().items()}
        return (unshard or self.unshard_values)(model, values)
