"""Laws of backends/laws.py: gradients that are zero by mathematics, of a bias in front of a
normalization and of attention's keys.

Their elements are the rounding of larger terms. Every exact strategy is proved with them, and with optimizers
that divide by a gradient's size; and what is wrong there by a millionth of the model's gradients is seen.
"""

import math
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.data_parallel import DataParallel
from backends.data_parallel.bucketed import Bucketed
from backends.data_parallel.elastic import Elastic
from backends.data_parallel.naive import NaiveDataParallel
from backends.data_parallel.proportional import ProportionalDataParallel
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.laws import distances, trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.pipeline.layer_wise import LayerWise
from backends.pipeline.pipeline import Pipeline
from backends.pipeline.schedules import SCHEDULES
from minigrad import Tape, Tensor, nn, ops, optim
from minigrad.data import Batch
from minigrad.serial import Serial
from tests.backends.lanes import by_turns
from tests.backends.pipeline.pipeline_laws import NUMBERS, TWO_WAY

SAMPLE = (2, 4, 4)


class Attention(nn.Module):
    """One head over the 4 x 4 pixels; the keys' bias adds the same number to all logits of a row."""

    def __init__(self, rng):
        self.queries, self.keys, self.values = (nn.Linear(2, 3, rng=rng) for _ in range(3))

    def forward(self, x):
        tokens = x.reshape(x.shape[0], 2, 16).transpose(0, 2, 1)
        q, k, v = self.queries(tokens), self.keys(tokens), self.values(tokens)
        return ops.softmax(q @ k.transpose(0, 2, 1) * (1 / math.sqrt(3)), axis=-1) @ v


def normalized(norm):
    def build(rng):
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1, rng=rng), norm(), nn.Tanh(),
            nn.Conv2d(4, 4, 3, padding=1, rng=rng), norm(), nn.Tanh(),
            nn.Flatten(), nn.Linear(64, 3, rng=rng),
        )  # fmt: skip

    return build


def attention(rng):
    return nn.Sequential(
        Attention(rng),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(48, 6, rng=rng),
        nn.Tanh(),
        nn.Linear(6, 4, rng=rng),
        nn.Tanh(),
        nn.Linear(4, 3, rng=rng),
    )


NETS = {
    "batch-norm": normalized(lambda: nn.BatchNorm(4)),
    "group norm": normalized(lambda: nn.GroupNorm(4, 4)),
    "instance norm": normalized(lambda: nn.InstanceNorm(4, affine=True)),
    "attention": attention,
}
VANISHING = {**dict.fromkeys(NETS, ["0.bias", "3.bias"]), "attention": ["0.keys.bias"]}
OPTIMIZERS = {
    "momentum": lambda ps: optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.01),
    "adam": lambda ps: optim.Adam(ps, 0.01).clipped(0.1),
    "adagrad": lambda ps: optim.Adagrad(ps, 0.05),
    "rmsprop": lambda ps: optim.RMSprop(ps, 0.01, momentum=0.9, centered=True),
    "lars": lambda ps: optim.LARS(ps, 0.1, weight_decay=0.01).clipped(0.5),
}
WITH_BATCH_NORM = {
    "replicated": DataParallel,
    "bucketed": Bucketed,
    "one-node": SharedMemoryDataParallel,
    "proportional": ProportionalDataParallel,
    "elastic": Elastic,
    **{f"sharded {stage}": partial(Sharded, stage=stage) for stage in (1, 2, 3)},
}
STRATEGIES = {
    "naive": NaiveDataParallel,
    "layer-wise": LayerWise,
    "split": partial(ModelParallel, sample=SAMPLE),
    **{name: partial(strategy, batch_norm="synchronized") for name, strategy in WITH_BATCH_NORM.items()},
}
CASES = [
    (name, net)
    for name in STRATEGIES
    for net in NETS
    if net != "batch-norm" or name != "naive"  # each rank normalizes by itself
]


def proves(strategy, ranks, net, optimizer="momentum", micro_batches=1, dtype=np.float64):
    """Assert that training equals the serial run, with two batches, of which the second is small."""
    rng = np.random.default_rng(0)
    batches = [Batch(rng.normal(2, 1, size=(n, *SAMPLE)), rng.integers(0, 3, n)) for n in (8, 8, 5)]
    settings = {"serial": Serial(micro_batches), "optimizer": OPTIMIZERS[optimizer], "dtype": dtype}

    def work(comm):
        trains_like_serial(strategy, comm, NETS[net], ops.cross_entropy, batches, **settings)

    run_ranks(ranks, work)


@pytest.mark.parametrize(("case", "how"), by_turns(CASES, product(OPTIMIZERS, [2, 3])))
def test_every_exact_strategy_is_proved(case, how):
    (name, net), (optimizer, ranks) = case, how
    proves(STRATEGIES[name], ranks, net, optimizer)


@pytest.mark.parametrize(("name", "net"), by_turns(SCHEDULES, NETS))
def test_every_schedule_is_proved(name, net):
    if net == "batch-norm" and name in TWO_WAY:
        pytest.skip("a layer that two ranks hold has no batch-norm")
    numbers = max((n for n in NUMBERS[name] if n.ranks in (2, 3)), key=lambda n: (n.ranks, n.micros))
    layers = len(NETS[net](np.random.default_rng(0)))
    bounds = np.linspace(0, layers, numbers.stages(name) + 1).round().astype(int)

    def strategy(comm):
        return Pipeline(comm, name, micro_batches=numbers.micros, chunks=numbers.chunks, bounds=tuple(bounds))

    proves(strategy, numbers.ranks, net, "adam", micro_batches=numbers.micros)


def off(net, share):
    """Data parallelism that adds to the gradients that vanish ``share`` of the model's largest one."""

    class Off(DataParallel):
        def finish(self, model, loss):
            loss = super().finish(model, loss)
            gradients = {name: np.asarray(p.grad) for name, p in model.named_parameters().items()}
            for name in VANISHING[net]:
                gradients[name][0] += share * max(np.abs(g).max() for g in gradients.values())
            return loss

    return partial(Off, batch_norm="synchronized")


@pytest.mark.parametrize("net", NETS)
def test_they_vanish(net):
    """Else the tests of this file would try nothing."""
    with Tape() as tape:
        model = NETS[net](np.random.default_rng(0)).to(dtype=np.float64)
        x = np.random.default_rng(0).normal(2, 1, size=(8, *SAMPLE))
        loss = ops.cross_entropy(model(Tensor(x)), np.arange(8) % 3)
    tape.backward(loss)
    sizes = {name: np.abs(np.asarray(p.grad)).max() for name, p in model.named_parameters().items()}
    for name in VANISHING[net]:
        assert sizes[name] < 1e-15 * max(sizes.values())


@given(net=st.sampled_from(sorted(NETS)), share=st.floats(-12, 0).map(lambda x: 10**x), rank=st.booleans())
def test_the_law_catches_what_is_wrong_there(net, share, rank):
    """From 1e-12 of the largest gradient on; 1e-12 of a tenth of it is allowed."""
    with pytest.raises(AssertionError, match="of its scale on rank"):
        proves(lambda comm: off(net, share if comm.rank == rank else 0.0)(comm), 2, net)


@given(
    arrays=st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4), min_size=1, max_size=4),
    off=st.floats(-1, 1),
)
def test_a_scale_is_an_arrays_largest_element_or_a_tenth_of_the_models(arrays, off):
    expected = {str(i): np.array(a) for i, a in enumerate(arrays)}
    actual = {name: np.concatenate([a[:1] + off, a[1:]]) for name, a in expected.items()}
    largest = max(abs(x) for a in arrays for x in a)
    for (absolute, relative), a in zip(distances(expected, actual).values(), arrays, strict=True):
        scale = max(*map(abs, a), largest / 10)
        assert absolute == abs(a[0] + off - a[0])
        assert relative == pytest.approx(absolute / scale if scale else np.inf if absolute else 0, rel=1e-12)
