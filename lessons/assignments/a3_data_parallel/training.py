"""Backends that train with a submission, watch what it does, and compare every step with one machine's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from minigrad_course.grading import Wrong
from minigrad_course.grading.array_checks import (
    check_equal,
    check_like,
    check_private,
    check_unchanged,
    enumeration,
)
from minigrad_course.grading.restricted_comm import RestrictedObject

from backends.comm import Communicator, allreduce
from backends.comm.collectives import broadcast
from backends.data_parallel.flat import buckets
from backends.words import counted
from minigrad import nn, ops
from minigrad.data import Batch
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tape import Tape
from minigrad.tensor import Tensor
from minigrad.work import Work

SLACK = 1e-11  # of the largest gradient: another order of sums, after some steps


class Net(nn.Module):
    """Two small layers; their parameters have 12, 4, 8 and 2 numbers."""

    def __init__(self, rng: np.random.Generator):
        self.hidden = nn.Linear(3, 4, rng=rng)
        self.out = nn.Linear(4, 2, rng=rng)

    def forward(self, x: Any) -> Tensor:
        return self.out(ops.tanh(self.hidden(x)))


@dataclass(frozen=True)
class Shares:
    """How many samples each rank has in the first batch; in the next batches each has its neighbour's."""

    sizes: tuple[int, ...]
    seed: int
    most: int | None = None  # bytes of a bucket

    @property
    def ranks(self) -> int:
        return len(self.sizes)

    def __str__(self) -> str:
        last = counted(self.sizes[-1], "sample").partition(" ")[2]
        most = "" if self.most is None else f", buckets of at most {self.most} bytes"
        return f"{counted(self.ranks, 'rank')} with {enumeration(self.sizes)} {last}{most}"

    def batches(self, count: int) -> list[Batch]:
        rng, n = np.random.default_rng(self.seed), sum(self.sizes)
        return [Batch(rng.normal(size=(n, 3)), rng.integers(0, 2, n)) for _ in range(count)]


class Watched(Strategy):
    """Data parallelism over the shares of a case; the submission's part is in ``whole``."""

    def __init__(self, comm: Communicator, submission: Any, case: Shares):
        self.comm, self.submission, self.case = comm, submission, case
        self.rank, self.size, self.me = comm.rank, comm.size, f"rank {comm.rank}"
        self.steps = 0

    def place(self, model: nn.Module) -> nn.Module:
        self.parameters = model.named_parameters()
        for parameter in self.parameters.values():
            parameter.data[...] = broadcast(self.comm, parameter.data)
        return model

    def shard(self, batch: Batch) -> Batch:
        sizes = np.roll(self.case.sizes, self.steps)
        stop = int(sizes[: self.rank + 1].sum())
        return batch[stop - int(sizes[self.rank]) : stop]

    def step(self, model: Any, batch: Batch, loss_fn: Any) -> float:
        """One step of the submission; raises Wrong, in words, where it is not that of one machine."""
        wanted_loss = Serial().step(model, batch, loss_fn)
        expected = {name: np.array(p.grad) for name, p in self.parameters.items()}
        for parameter in self.parameters.values():
            parameter.grad = None
        data = {f"{self.me}'s parameter {name}": p.data for name, p in self.parameters.items()}
        before = [x.copy() for x in data.values()]
        self.when = f" in step {self.steps + 1}" if self.steps else ""
        loss, actual = self.whole(model, batch, loss_fn)
        check_unchanged(data, before)
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            raise Wrong(
                f"{self.me} should return a list of {len(expected)} gradients, one for each parameter"
            )
        scale = max(abs(g).max() for g in expected.values())
        for g, (name, right), parameter in zip(
            actual, expected.items(), self.parameters.values(), strict=True
        ):
            what = f"{self.me}'s gradient of {name}{self.when}"
            check_like(what, g, right.shape, right.dtype)
            check_private(what, g, data)
            check_equal(what, g, right, SLACK * scale)
            parameter.grad = g
        check_equal(
            f"{self.me}'s loss{self.when}", np.array(loss), np.array(wanted_loss), SLACK * max(1, wanted_loss)
        )
        self.steps += 1
        return loss

    def whole(self, model: Any, batch: Batch, loss_fn: Any) -> tuple[float, Any]:
        """The loss and the gradients of the whole batch."""
        raise NotImplementedError

    def vector(self, what: str, v: Any, size: int, holds: str) -> np.ndarray:
        """``v``; raises Wrong unless it is a vector of that size."""
        check_like(f"what {self.me} gives to {what}", v, (np.size(v),), np.float64)
        if v.size != size:
            raise Wrong(
                f"{self.me} gives {counted(v.size, 'number')} to {what}, it should be {size}: {holds}"
            )
        return v


class Weighted(Watched):
    """A step by the submission's ``gradients``, in one all-reduce."""

    def whole(self, model: Any, batch: Batch, loss_fn: Any) -> tuple[float, Any]:
        mine, parameters = self.shard(batch), self.parameters.values()
        calls = {"all-reduce": 0, "backward": 0}
        size = 1 + sum(p.size for p in parameters)

        def backward(x: Any, y: Any) -> tuple[float, list[Any]]:
            if not len(x):
                raise Wrong(f"{self.me} calls backward for no samples, which have no mean")
            if not (np.array_equal(x, mine.x) and np.array_equal(y, mine.y)):
                raise Wrong(f"{self.me} calls backward with other samples than the {len(mine)} of its own")
            calls["backward"] += 1
            with Tape() as tape:
                loss = loss_fn(model(Tensor(x)), y)
            tape.backward(loss)
            actual = [p.grad for p in parameters]
            for parameter in parameters:
                parameter.grad = None
            return loss.item(), actual

        def one_allreduce(v: Any) -> np.ndarray:
            calls["all-reduce"] += 1
            if calls["all-reduce"] > 1:
                raise Wrong(f"{self.me} calls allreduce twice in a step: one is enough for everything")
            self.vector("allreduce", v, size, "all gradients and the loss")
            return allreduce(self.comm, v)

        data = [p.data for p in parameters]
        offered = RestrictedObject(
            "comm", {"rank": self.rank, "size": self.size}, {"allreduce": one_allreduce}
        )
        actual = self.submission.gradients(offered, data, backward, mine.x.copy(), mine.y.copy(), len(batch))
        for what, expected in (("backward", int(len(mine) > 0)), ("all-reduce", 1)):
            if calls[what] != expected:
                times = f"{counted(calls[what], 'time')}, it should be {expected}"
                raise Wrong(f"{self.me} with {counted(len(mine), 'sample')} called {what} {times}")
        if (
            not isinstance(actual, tuple)
            or len(actual) != 2
            or not isinstance(actual[0], float | np.floating)
        ):
            raise Wrong(f"{self.me} should return the loss, a float, and a list of gradients")
        return float(actual[0]), actual[1]


class Overlapped(Watched):
    """A step by the submission's ``Reducer``, told of the gradients in an order that differs by rank."""

    def place(self, model: nn.Module) -> nn.Module:
        super().place(model)
        parameters = list(self.parameters.values())
        numbers = {p: i for i, p in enumerate(parameters)}
        self.groups = [[numbers[p] for p in group] for group in buckets(parameters, self.case.most or 0)]
        self.sizes = [sum(parameters[i].size for i in group) for group in self.groups]
        shapes, groups = [p.shape for p in parameters], [list(group) for group in self.groups]
        calls = {"start_allreduce": self.start}
        offered = RestrictedObject("comm", {"rank": self.rank, "size": self.size}, calls)
        self.reducer = self.submission.Reducer(offered, shapes, groups)
        return model

    def whole(self, model: Any, batch: Batch, loss_fn: Any) -> tuple[float, Any]:
        self.started: list[np.ndarray] = []
        self.inputs: list[np.ndarray] = []
        self.sums: list[np.ndarray] = []
        self.lent: list[np.ndarray] = []  # they live until the step ends: what was kept of them must turn bad
        self.in_finish, self.waited = False, set[int]()
        mine = self.shard(batch)
        work = Work(model, mine, loss_fn, self.loss_weight(mine, batch))
        loss = self.forward_backward(work) if len(mine) else 0.0
        final = [p.grad for p in self.parameters.values()] if len(mine) else []
        rng = np.random.default_rng([self.case.seed, self.rank])
        order = rng.permutation(len(final)).tolist() if self.case.seed % 2 else range(len(final))[::-1]
        numbers: list[int] = []
        for number in order:
            self.announce(number, final[number], numbers)
        self.in_finish = True
        gradients = self.reducer.finish()
        if len(self.started) != len(self.groups):
            times = f"{counted(len(self.started), 'all-reduce')} for {counted(len(self.groups), 'bucket')}"
            raise Wrong(f"{self.me} started {times}{self.when}")
        if late := set(range(len(self.groups))) - self.waited:
            raise Wrong(f"{self.me} did not wait for the sum of bucket {min(late)}{self.when}")
        return float(allreduce(self.comm, np.array([loss]))[0]), gradients

    def announce(self, number: int, gradient: Any, numbers: list[int]) -> None:
        """Tell the reducer of a gradient, and see that it starts what is complete, and nothing else."""
        lent = gradient.copy()
        self.lent.append(lent)
        self.reducer.on_grad(number, lent)
        check_unchanged({f"the gradient that {self.me} was told of": lent}, [gradient])
        lent[...] = np.nan
        numbers.append(number)
        complete = [set(group) <= set(numbers) for group in self.groups]
        expected = (complete + [False]).index(False)
        if len(self.started) != expected:
            has = f"{self.me} has started {counted(len(self.started), 'all-reduce')}{self.when}"
            raise Wrong(
                f"{has} when the gradients {numbers} are final, it should be {expected}: "
                f"the buckets are {self.groups}"
            )

    def start(self, v: Any) -> Callable[[], np.ndarray]:
        """What the submission is given as ``start_allreduce``: sums when it is waited for, in order."""
        i = len(self.started)
        if i == len(self.groups):
            raise Wrong(f"{self.me} starts more all-reduces{self.when} than the {i} of its buckets")
        self.vector("start_allreduce", v, self.sizes[i], f"bucket {i}, {self.groups[i]}, is next")
        self.started.append(v)
        self.inputs.append(v.copy())

        def wait() -> np.ndarray:
            if not self.in_finish:
                raise Wrong(
                    f"{self.me} waits for bucket {i} in on_grad: backward could go on; wait in finish"
                )
            while len(self.sums) <= i:
                next_one = len(self.sums)
                if not np.array_equal(self.started[next_one], self.inputs[next_one], equal_nan=True):
                    raise Wrong(
                        f"{self.me} changed bucket {next_one}{self.when} after its all-reduce was started"
                    )
                self.sums.append(allreduce(self.comm, self.inputs[next_one]))
            self.waited.add(i)
            return self.sums[i]

        return wait
