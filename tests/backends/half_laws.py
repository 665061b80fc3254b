"""Laws of backends/data_parallel/step_summary.py, backends/data_parallel/data_parallel.py and
backends/sequence_parallel/ring.py: with float16 parameters a step of any strategy sends half of the bytes of
float32, gradients are the serial ones, and all ranks leave the same steps out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backends.checkpoint import Checkpoints
from backends.checkpoint.training_state import gather_state, load_model_state, load_state
from backends.comm import Communicator, run_ranks
from backends.comm.communicator import Wrapper
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.synchronous import SynchronousDataParallel
from backends.data_parallel.zero.naive import NaiveSharded
from backends.data_parallel.zero.sharded import Sharded
from backends.expert_parallel import ExpertParallel
from backends.expert_parallel.naive import NaiveExpertParallel
from backends.grid import Grid
from backends.laws import distances
from backends.model_parallel.layers.class_parallel import ClassLinear
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline import Pipeline
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.naive import NaivePipeline
from backends.sequence_parallel import SequenceParallel
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.data import Batch
from minigrad.device import Array
from minigrad.loss_scale import DynamicScale
from minigrad.serial import Serial
from minigrad.strategy import Strategy
from minigrad.tensor import Tensor
from tests.backends.comm.collectives.half_laws import UNIT
from tests.backends.model_parallel.transformer_laws import TOKEN_LOSS, Net
from tests.backends.sequence_parallel.sequence_laws import stack, with_experts

BOUND = 18 * UNIT
NET = Net(heads=4, size=2, hidden=8, tokens=8, symbols=12, p=0.0)


class Layout(NamedTuple):
    """So many ranks, how the strategy of each and its net are built, and what runs a program on them."""

    ranks: int
    strategy: Callable[[Communicator], Strategy]
    build: Callable[[np.random.Generator], Any] = NET.build
    run: Callable[[int, Callable[[Communicator], Any]], list[Any]] = run_ranks


def untied(rng: np.random.Generator) -> Any:
    """The net with a table of its own at the end."""
    model = NET.build(rng)
    model.layers[-1] = nn.Linear(NET.width, NET.symbols, rng=rng)
    return model


def around(comm: Communicator, outer: Callable[[Communicator], Strategy], axis: str) -> Stack:
    """A strategy of two data ranks around a pipeline of two stages, or around rows on two ranks."""
    grid = Grid(comm, data=2, **{axis: 2})
    inner = Pipeline(grid.pipe, micro_batches=2) if axis == "pipe" else SequenceParallel(grid.sequence)
    return Stack(outer(grid.data), inner)


def normalized(rng: np.random.Generator) -> Any:
    """The net with a batch-norm of its tokens, whose running statistics have float32."""
    model = NET.build(rng)
    return nn.Sequential(model.layers[0], nn.BatchNorm(NET.tokens), *model.layers[1:])


def axes(**sizes: Any) -> Layout:
    ranks = int(
        np.prod([size for axis, size in sizes.items() if axis in ("data", "pipe", "sequence", "model")])
    )
    return Layout(ranks, lambda comm: stack(comm, NET, **sizes))


LAYOUTS = {
    "data": Layout(3, DataParallel),
    "data, naive": Layout(3, NaiveDataParallel),
    "data, batch-norm": Layout(2, lambda comm: DataParallel(comm, batch_norm="synchronized"), normalized),
    "buckets": Layout(2, lambda comm: Bucketed(comm, bucket_bytes=300, progress="blocking")),
    **{f"ZeRO {n}": Layout(2, lambda comm, n=n: Sharded(comm, stage=n, bucket_bytes=300)) for n in (1, 2, 3)},
    "ZeRO, naive": Layout(2, NaiveSharded),
    "pipe": Layout(2, lambda comm: Pipeline(comm, micro_batches=2)),
    "pipe, naive": Layout(2, lambda comm: NaivePipeline(comm, micro_batches=2), untied),
    "layer-wise": Layout(2, lambda comm: LayerWise(comm), untied),
    "model": Layout(2, lambda comm: ModelParallel(comm, NET.plan())),
    "model, symbols": Layout(2, lambda comm: ModelParallel(comm, NET.plan(vocabulary=True))),
    "model, tokens": Layout(2, lambda comm: ModelParallel(comm, NET.plan(), split_tokens=True)),
    "ring": Layout(2, SequenceParallel),
    "ring of 3": Layout(3, SequenceParallel),
    "all-to-all": Layout(2, lambda comm: SequenceParallel(comm, form="ulysses")),
    "experts": Layout(2, ExpertParallel, with_experts(NET)),
    "experts, naive": Layout(2, NaiveExpertParallel, with_experts(NET)),
    "data x pipe": axes(data=2, pipe=2),
    "ZeRO x pipe": Layout(4, lambda comm: around(comm, partial(Sharded, stage=2), "pipe")),
    "experts x pipe": Layout(4, lambda comm: around(comm, ExpertParallel, "pipe"), with_experts(NET)),
    "experts x sequence": Layout(4, lambda comm: around(comm, ExpertParallel, "sequence"), with_experts(NET)),
    "data x sequence x model": axes(data=2, sequence=2, model=2),
}
"""Strategies by axis, and stacks of them."""


class Counted(Wrapper):
    """``comm`` with the bytes that this rank sends, by dtype; groups count in the same place."""

    def __init__(self, comm: Communicator, sent: Counter[str]):
        super().__init__(comm)
        self.sent = sent

    def send(self, x: Array, to: int, tag: int = 0) -> None:
        self.sent[x.dtype.name] += x.nbytes
        self.comm.send(x, to, tag)

    def start_send(self, x: Array, to: int, tag: int = 0) -> Callable[[], None]:
        self.sent[x.dtype.name] += x.nbytes
        return self.comm.start_send(x, to, tag)

    def split(self, color: int, key: int | None = None) -> Counted:
        return Counted(self.comm.split(color, key), self.sent)


def figures(backend: Strategy, model: nn.Module, batch: Batch) -> int:
    """The bytes of figures that a rank sends in float32 whatever the parameters have.

    Data, sequence and expert parallelism of p ranks send p - 1 times a loss, the share of the batch, a count
    for each rank, a flag for each trained parameter, and the running statistics; or, where ranks compute them
    together, for C channels a count and 2 C numbers in forward and 2 C in backward. A loss of classes on p
    ranks sends p - 1 times three numbers for each token.
    """
    nbytes = 0
    members = backend.members if isinstance(backend, Stack) else [backend]
    trained = [p for p in model.parameters() if p.requires_grad]
    tokens = batch.y.size
    for member in members:
        if isinstance(member, SynchronousDataParallel):
            own = member.experts.parameters if isinstance(member, ExpertParallel) else ()
            count = len([p for p in trained if p not in own])
            norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm)]
            channels = [len(norm.running_mean) for norm in norms]
            count += sum(2 * n + 2 if member.batch_norm == "ranks" else 4 * n + 1 for n in channels)
            nbytes += 4 * (member.size - 1) * (2 + member.size + count)
        if isinstance(member, ModelParallel):
            split = any(isinstance(module, ClassLinear) for module in model.modules())
            nbytes += 4 * (member.size - 1) * 3 * tokens * split
        if isinstance(member, (DataParallel, SequenceParallel)) and not isinstance(member, ExpertParallel):
            tokens //= member.size  # of this rank
    return nbytes


def sends_half_the_bytes(layout: Layout, *, loss: Any = TOKEN_LOSS) -> None:
    """A step and an update in float16 send half of what they send in float32, but for ``figures``.

    On every rank, in bytes by dtype. Other dtypes are those of the float32 run: losses of pipelines and naive
    forms (float64), counts of tokens of experts (int64).
    """
    (batch,) = NET.batches(4)

    def sent(dtype: Any) -> list[tuple[Counter[str], int]]:
        def work(comm: Communicator) -> tuple[Counter[str], int]:
            counter: Counter[str] = Counter()
            backend = layout.strategy(Counted(comm, counter))
            model = backend.place(layout.build(np.random.default_rng(0)).to(dtype=dtype))
            optimizer = optim.SGD(model.parameters(), 0.1)
            counter.clear()
            backend.step(model, batch, loss)
            backend.update(model, optimizer)
            return Counter(counter), figures(backend, model, batch)

        return layout.run(layout.ranks, work)

    for rank, ((half, expected), (single, _)) in enumerate(
        zip(sent("float16"), sent("float32"), strict=True)
    ):
        assert half["float32"] == expected, (
            f"rank {rank} sent {half['float32']} bytes of figures, not {expected}"
        )
        nbytes = half.pop("float16") * 2 + half.pop("float32", 0)
        assert nbytes == single.pop("float32"), (
            f"rank {rank} sent {half}, twice {nbytes}, in float32 {single}"
        )
        assert half == single, f"rank {rank} sent {half}, in float32 {single}"


def gradients_are_serial(layout: Layout, *, seed: int = 0, scale: float = 2.0**8) -> None:
    """Gradients with a loss scale are the serial float16 run's to ``BOUND``, on every rank, and have float16.

    The loss, which has no scale, is the serial one to the roundings of the last layer's output.

    The bound is in units u = 2^-11 of the largest element of each gradient (or of a tenth of all, see
    ``distances``). Both runs round the value and the gradient of every op once; ranks round the parts of a
    sum, too. On the longest path through two blocks, each way, are fewer than 28 ops, so that the two runs
    are apart by k = 4 x 28 errors. Each is as good as uniform between -u and u, of deviation u / sqrt(3), and
    they are independent: 3 deviations of the sum are 3 sqrt(k / 3) u = 18 u. A rank's part of a gradient is
    hundreds of u.
    """
    (batch,) = NET.batches(5)

    def gradients(backend: Strategy) -> tuple[float, dict[str, Any]]:
        model = backend.place(layout.build(np.random.default_rng(seed)).to(dtype="float16"))
        loss = backend.step(model, batch, TOKEN_LOSS, loss_scale=scale)
        return loss, backend.state.full_gradients(model)

    loss, expected = gradients(Serial())
    expected = {name: g.astype(np.float64) for name, g in expected.items()}
    results = layout.run(layout.ranks, lambda comm: gradients(layout.strategy(comm)))
    for rank, (own, actual) in enumerate(results):
        assert abs(own - loss) <= BOUND * loss, f"rank {rank} has the loss {own}, not {loss}"
        for name, (_, relative) in distances(expected, actual).items():
            assert actual[name].dtype == np.float16, f"{name} on rank {rank} has {actual[name].dtype}"
            assert relative <= BOUND, f"{name} on rank {rank} is {relative / UNIT:.1f} units off"


Optimize = Callable[[Any], optim.Optimizer]


def adam(parameters: Any, **scale: Any) -> optim.Optimizer:
    """Adam with masters, whose scale doubles after two good steps."""
    start = {"value": 2.0**8, "growth_interval": 2} | scale
    return optim.Adam(parameters, 0.01, eps=1e-3).with_master_weights("float16", DynamicScale(**start))


class Training:
    """One rank's training in float16, in whose steps a rank's gradient may overflow before ranks sum it."""

    def __init__(
        self,
        backend: Strategy,
        build: Any,
        optimize: Optimize = adam,
        seed: int = 0,
        arrays: dict[str, np.ndarray] | None = None,
    ):
        self.backend, model = backend, build(np.random.default_rng(seed)).to(dtype="float16")
        load_model_state(model, arrays or {})
        self.model = backend.place(model)
        self.optimizer = optimize(self.model.parameters())

    def step(self, batch: Batch, *, overflows: bool = False) -> None:
        """The parts of ``Backend.step``, and an update.

        With ``overflows`` an element of the first gradient that is final on this rank is infinite.
        """
        backend, model, optimizer, announced = self.backend, self.model, self.optimizer, list[Tensor]()

        def on_grad(parameter: Tensor) -> bool | None:
            if overflows and not announced and parameter.grad is not None:
                parameter.grad.flat[:1] = np.inf
            announced.append(parameter)
            return backend.on_grad(parameter)

        optimizer.zero_grad()
        work = backend.work(model, batch, TOKEN_LOSS, optimizer.loss_scale)
        with np.errstate(over="ignore", invalid="ignore"):
            backend.finish(model, backend.forward_backward(work._replace(on_grad=on_grad)))
            assert announced, "no gradient was announced, so that none overflowed"
            backend.update(model, optimizer)

    def state(self) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """The loss scale, and the serial run's arrays: parameters, and what the optimizer has."""
        masters, state = self.optimizer.master_weights, self.backend.state
        assert masters is not None
        arrays = dict(state.full_parameters(self.model))
        for key in ("master", "m", "s", "t"):
            values = state.full_optimizer_state(self.model, self.optimizer, key)
            arrays |= {f"{key} {name}": value for name, value in values.items() if value is not None}
        return dict(vars(masters.scale)), {name: array.copy() for name, array in arrays.items()}


def ranks_skip_together(layout: Layout, rank: int) -> None:
    """An overflow on one ``rank`` makes all ranks leave the step out, as a serial run with an overflow does.

    Before and after it are good steps. Then all ranks have one scale, and masters of all ranks are the serial
    ones to ``BOUND`` of their largest element: an update moves a weight by 0.01 at most, and an error of one
    percent in its gradient moves it by less.
    """
    batches = NET.batches(4, 5, 3, 4)

    def train(training: Training, overflows: bool) -> list[Any]:
        states = []
        for step, batch in enumerate(batches):
            training.step(batch, overflows=overflows and step == 1)
            states.append(training.state())
        return states

    def work(comm: Communicator) -> list[Any]:
        return train(Training(layout.strategy(comm), layout.build), comm.rank == rank)

    serial = train(Training(Serial(), layout.build), True)
    scales = [scale for scale, _ in serial]
    assert [scale["value"] for scale in scales] == [2.0**8, 2.0**7, 2.0**7, 2.0**8], scales
    assert [scale["skipped"] for scale in scales] == [0, 1, 1, 1], scales
    for other, states in enumerate(layout.run(layout.ranks, work)):
        assert [scale for scale, _ in states] == scales, f"rank {other} has {[scale for scale, _ in states]}"
        (_, before), (_, after), *_, (_, last) = states
        for name, array in before.items():
            assert after[name].tobytes() == array.tobytes(), f"rank {other} updates {name} without a step"
        for name, (_, relative) in distances(serial[-1][1], last).items():
            if not name.startswith(("m ", "s ", "t ")):
                assert relative <= BOUND, f"{name} on rank {other} is {relative:.1e} off"


def resumes_bit_for_bit(layouts: Sequence[Layout], folder: Path) -> None:
    """Each layout reads a checkpoint of the one before with all bits, and trains on.

    These are parameters, masters, the rest of the optimizer's state, its counts, and the loss scale with its
    good and skipped steps. In the first layout a step overflows on the last rank. The masters after all are
    the serial ones to ``BOUND``, as in ``ranks_skip_together``.
    """
    batches = NET.batches(4, 5, 3)

    def work(comm: Communicator, i: int) -> list[Any]:
        layout = layouts[i]
        files = Checkpoints(folder, comm)
        generation, arrays, _ = files.newest()
        training = Training(layout.strategy(comm), layout.build, seed=i + comm.rank, arrays=arrays)
        backend, model, optimizer = training.backend, training.model, training.optimizer
        assert (generation is None) == (i == 0)
        if generation is not None:
            load_state(comm, backend, model, optimizer, arrays, generation.facts, same_layout=False)
        states = [training.state()]
        for step, batch in enumerate(batches):
            training.step(batch, overflows=(i, step, comm.rank) == (0, 1, layout.ranks - 1))
        files.write(i + 1, *gather_state(comm, backend, model, optimizer))
        files.wait()
        return [*states, training.state()]

    serial = Training(Serial(), layouts[0].build)
    for i in range(len(layouts)):
        for step, batch in enumerate(batches):
            serial.step(batch, overflows=(i, step) == (0, 1))
    last: Any = None
    for i, layout in enumerate(layouts):
        results = layout.run(layout.ranks, partial(work, i=i))
        for rank, (loaded, _) in enumerate(results):
            if last is not None:
                assert loaded[0] == last[0], f"rank {rank} goes on with the scale {loaded[0]}, not {last[0]}"
                assert loaded[1].keys() == last[1].keys(), loaded[1].keys() ^ last[1].keys()
                for name, array in last[1].items():
                    other = loaded[1][name]
                    same = (other.dtype, other.tobytes()) == (array.dtype, array.tobytes())
                    assert same, f"rank {rank} goes on with another {name}"
        last = results[-1][1]
    scale, arrays = serial.state()
    assert last[0] == scale, f"the scale is {last[0]}, not {scale}"
    for name, (_, relative) in distances(arrays, last[1]).items():
        if not name.startswith(("m ", "s ")):
            assert relative <= BOUND, f"{name} is {relative:.1e} off"


def dense(rng: np.random.Generator) -> nn.Sequential:
    """280 parameters, 144 and 136 in the layers that have some: 8 ranks share them evenly."""
    return nn.Sequential(nn.Linear(8, 16, rng=rng), nn.ReLU(), nn.Linear(16, 8, rng=rng))


def takes_the_bytes_of_zero(stage: int, ranks: int) -> None:
    """A rank has 16 bytes of Adam's arrays for each parameter, of which ZeRO shares some among N ranks.

    They are 2 of the weight, 2 of its gradient, 4 of the master, and 4 of each mean: 2 + 2 + 12 / N in stage
    1, 2 + (2 + 12) / N in stage 2 and 16 / N in stage 3 (Rajbhandari et al. 2020, section 3.1). Weights count
    between two steps, and gradients at the end of backward or, where they are summed by then, after it.
    """

    def work(comm: Communicator) -> tuple[int, int, int]:
        backend = Sharded(comm, stage=stage)
        training = Training(backend, dense)
        batch = Batch(np.ones((8, 8)), np.arange(8))
        job = backend.work(training.model, batch, ops.cross_entropy, 1.0)
        loss = backend.forward_backward(job)
        whole = sum(p.grad.nbytes for p in training.model.parameters() if p.grad is not None)
        backend.finish(training.model, loss)
        backend.update(training.model, training.optimizer)
        weights = sum(flat.unsharded.nbytes if flat.is_whole else flat.shard.nbytes for flat in backend.flats)
        shards = sum(flat.grad_shard.nbytes for flat in backend.flats if flat.grad_shard is not None)
        values = [x for state in training.optimizer.state for x in state.values()]
        return weights, max(whole, shards), sum(x.nbytes for x in values if isinstance(x, np.ndarray))

    n, shared = 280, 280 // ranks
    expected = (2 * (shared if stage == 3 else n), 2 * (n if stage == 1 else shared), 12 * shared)
    taken = run_ranks(ranks, work)
    assert taken == [expected] * ranks, f"weights, gradients and state of ranks take {taken}, not {expected}"
