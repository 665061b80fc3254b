"""Laws of backends/data_parallel/compression/compressed.py and compressor.py: where nothing is lost, the
textbook's loop, conservation, bytes, errors.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.trace import Traced
from backends.data_parallel import Compressed
from backends.data_parallel.compression import QSGD, DeepGradientCompression, TopK
from backends.laws import bound_for, trains_like_serial
from backends.model_parallel.model_parallel import ModelParallel
from backends.registry import find_strategy
from backends.stack import Stack
from minigrad import nn, ops, optim
from minigrad.work import Work
from tests.backends.data_parallel.compression.compression_laws import (
    COMPRESSORS,
    InOrder,
    Textbook,
    momentum,
    nothing_is_lost,
    plain,
    trains_like,
)
from tests.backends.strict import Strict
from tests.nets import Forked, odd
from tests.nets import normalised_mlp as normalised
from tests.nets import small_images_of as batches_of

pytestmark = pytest.mark.filterwarnings("ignore:compress=power-sgd sends")  # the vectors as they are
SIZES = st.lists(st.integers(1, 11), min_size=1, max_size=4)
RANKS = st.integers(1, 5)
DTYPES = st.sampled_from([np.float32, np.float64])
BUILDS = st.sampled_from([odd, Forked, normalised])


def nesterov(parameters):
    return optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True)


def adam(parameters):
    return optim.Adam(parameters, 0.01, eps=1e-3, weight_decay=0.01).clipped(0.3)


def compressed(compress, **settings):
    return lambda comm: Compressed(comm, compress=compress, **settings)


def law(strategy, reference, ranks, build, sizes, **settings):
    run_ranks(ranks, lambda comm: trains_like(strategy, reference, Strict(comm), build, sizes, **settings))


# Nothing left out


DENSE = {
    "identity": compressed("identity"),
    "threshold": compressed("threshold", threshold=0),
    "top-k": compressed("top-k", density=1),
    "random-k": compressed("random-k", density=1.0),
    "no feedback": compressed("top-k", density=1, feedback=False),
}


@pytest.mark.parametrize("name", DENSE)
@settings(max_examples=settings().max_examples // 2)
@given(ranks=RANKS, build=BUILDS, sizes=SIZES, dtype=DTYPES, make=st.sampled_from([momentum, adam]))
def test_all_entries_are_dense_training_to_the_last_bit(name, ranks, build, sizes, dtype, make):
    """The dense reference adds in the order of the ranks, too."""
    law(DENSE[name], InOrder, ranks, build, sizes, make=make, dtype=dtype)


@given(ranks=RANKS, sizes=SIZES, k=st.integers(1, 4))
def test_accumulated_backwards_are_compressed_once(ranks, sizes, k):
    dense = lambda comm: InOrder(comm, micro_batches=k)  # noqa: E731
    law(compressed("identity", micro_batches=k), dense, ranks, odd, sizes, make=momentum)


@given(ranks=RANKS, sizes=SIZES, masking=st.booleans(), make=st.sampled_from([momentum, nesterov]))
def test_dgc_of_density_one_is_momentum_sgd_without_masking_and_plain_sgd_with_it(
    ranks, sizes, masking, make
):
    """With masking every velocity stops where its entry is sent: everywhere. Without, the sum over ranks of
    the velocities is the velocity of the sum, but for rounding.
    """
    strategy = compressed("dgc", density=1, masking=masking, nesterov=make is nesterov)
    if masking and make is momentum:
        law(strategy, InOrder, ranks, odd, sizes, make=plain)
    elif not masking:
        bound = 0.0 if ranks == 1 else bound_for(np.float64)
        law(strategy, InOrder, ranks, odd, sizes, make=plain, make_reference=make, bound=bound)


@given(ranks=RANKS, sizes=SIZES)
def test_power_sgd_of_full_rank_is_dense_training(ranks, sizes):
    """Each of the products that cancel is rounded, in every step anew: ten times the bound."""
    bound = 10 * bound_for(np.float64)
    law(compressed("power-sgd", matrix_rank=64), InOrder, ranks, odd, sizes, make=momentum, bound=bound)


def normalised_first(rng):
    return nn.Sequential(nn.Flatten(), nn.BatchNorm(6), nn.Linear(6, 3, rng=rng))


@given(ranks=RANKS, sizes=st.lists(st.integers(3, 11), min_size=1, max_size=4), together=st.booleans())
def test_identity_trains_like_serial(ranks, sizes, together):
    build = normalised_first if together else Forked
    batches = batches_of(sizes)
    strategy = compressed("identity", batch_norm="synchronized" if together else "ranks")
    run_ranks(ranks, lambda comm: trains_like_serial(strategy, comm, build, ops.cross_entropy, batches))


# Something left out: the textbook's loop


@given(
    ranks=RANKS,
    build=BUILDS,
    sizes=SIZES,
    dtype=DTYPES,
    density=st.floats(0.01, 1),
    make=st.sampled_from([momentum, adam]),
)
def test_top_k_is_the_loop_of_the_textbook_to_the_last_bit(ranks, build, sizes, dtype, density, make):
    textbook = lambda comm: Textbook(comm, density)  # noqa: E731
    law(compressed("top-k", density=density), textbook, ranks, build, sizes, make=make, dtype=dtype)


@given(
    ranks=RANKS,
    sizes=SIZES,
    density=st.floats(0.01, 1),
    masking=st.booleans(),
    nesterov=st.booleans(),
    apart=st.booleans(),
)
def test_dgc_is_the_loop_of_the_textbook_to_the_last_bit(ranks, sizes, density, masking, nesterov, apart):
    settings = {"momentum": 0.9, "masking": masking, "nesterov": nesterov, "apart": apart}
    textbook = lambda comm: Textbook(comm, density, **settings)  # noqa: E731
    law(compressed("dgc", density=density, **settings), textbook, ranks, odd, sizes, make=plain)


LOSSY = {
    "identity": {},
    "threshold": {"threshold": 0.02},
    "top-k": {"density": 0.1},
    "random-k": {"density": 0.1},
    "one-bit": {},
    "scaled-sign": {},
    "qsgd": {"feedback": True},
    "terngrad": {"feedback": True},
    "power-sgd": {"matrix_rank": 1},
}


@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n != "dgc"])  # it sends its momentum
@settings(max_examples=settings().max_examples // 2)
@given(ranks=RANKS, build=BUILDS, sizes=SIZES, dtype=DTYPES)
def test_what_is_not_sent_is_kept(name, ranks, build, sizes, dtype):
    strategy = compressed(name, **LOSSY[name])
    run_ranks(ranks, lambda comm: nothing_is_lost(strategy, Strict(comm), build, sizes, dtype=dtype))


@pytest.mark.parametrize("name", COMPRESSORS)
@settings(max_examples=settings().max_examples // 2)
@given(ranks=RANKS, build=BUILDS, sizes=SIZES, dtype=DTYPES)
def test_all_ranks_have_the_same_bits_of_everything(name, ranks, build, sizes, dtype):
    def work(comm):
        backend = Compressed(comm, compress=name)
        model = backend.place(build(np.random.default_rng(comm.rank)).to(dtype=dtype))
        optimizer = plain(model.parameters())
        losses = []
        for batch in batches_of(sizes):
            optimizer.zero_grad()
            losses.append(backend.step(model, batch, ops.cross_entropy))
            backend.update(model, optimizer)
            assert all(p.grad is None or p.grad.dtype == dtype for p in model.parameters())
            assert all(p.data.dtype == dtype for p in model.parameters())
            if name == "identity":
                assert not backend.error.any()
        return losses, {k: v.tobytes() for k, v in model.state_dict().items()}

    first, *others = run_ranks(ranks, work, rendezvous=True)
    assert all(other == first for other in others)


def test_what_was_left_of_a_parameter_still_comes_when_no_loss_reaches_it():
    """A parameter that is reached in the first step only: its largest entries go first, the others later."""

    class Sometimes(nn.Module):
        def __init__(self, rng):
            self.one, self.two = nn.Linear(6, 3, rng=rng), nn.Linear(6, 3, rng=rng)
            self.first = True

        def forward(self, x):
            x, first, self.first = x.reshape(-1, 6), self.first, False
            return self.one(x) + self.two(x) if first else self.one(x)

    def work(comm):
        backend = Compressed(comm, compress="random-k", density=0.5)
        model = Sometimes(np.random.default_rng(0))
        backend.place(model.to(dtype=np.float64))
        result = np.zeros((3, 6))
        for batch in batches_of([4] * 20):
            for p in model.parameters():
                p.grad = None
            backend.step(model, batch, ops.cross_entropy)
            result += 0 if model.two.weight.grad is None else model.two.weight.grad
        assert model.two.weight.grad is None  # all of it came
        assert (result != 0).all()

    run_ranks(2, work)


# Bytes


def figures_of(backend):
    """The report and one flag for each rank, bytes."""
    return (len(backend.summary) + backend.size) * backend.layout.parameters[0].dtype.itemsize


def payload_of(name, backend):
    """Bytes of what a rank compresses, in float32: the closed forms; 0.1 and 7 levels are the settings."""
    n, tensors = backend.layout.size, len(backend.layout.parameters)
    outputs = sum(p.shape[0] if p.ndim > 1 else 1 for p in backend.layout.parameters)
    k = max(1, round(0.1 * n))
    return {
        "identity": 4 * n,
        "top-k": 8 * k,
        "random-k": 4 * k,
        "dgc": 8 * k,
        "one-bit": -(-n // 8) + 2 * 4 * outputs,
        "scaled-sign": -(-n // 8) + 4 * tensors,
        "qsgd": -(-4 * n // 8) + 4 * tensors,
        "terngrad": -(-2 * n // 8) + 4 * tensors,
    }[name]


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("name", [n for n in COMPRESSORS if n not in ("threshold", "power-sgd")])
def test_a_step_sends_one_message_around_the_ring(name, ranks):
    settings: dict[str, Any] = {"density": 0.1} if name in ("top-k", "random-k", "dgc") else {}

    def work(comm):
        traced = Traced(comm)
        backend = Compressed(traced, compress=name, **settings)
        model = backend.place(odd(np.random.default_rng(0)).to(dtype=np.float32))
        before = traced.record.ledger.sent()
        backend.step(model, batches_of([7])[0], ops.cross_entropy)
        after = traced.record.ledger.sent()
        nbytes = figures_of(backend) + payload_of(name, backend)
        assert after.messages - before.messages == ranks - 1
        assert after.bytes - before.bytes == (ranks - 1) * nbytes

    run_ranks(ranks, work)


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("r", [1, 2])
def test_power_sgd_sends_two_all_reduces_of_narrow_matrices(ranks, r):
    def work(comm):
        sizes = []
        sums = lambda comm, x: (sizes.append(x.size), x * 1.0)[1]  # noqa: E731
        backend = Compressed(comm, sums, compress="power-sgd", matrix_rank=r)
        model = backend.place(odd(np.random.default_rng(0)))
        try:
            backend.step(model, batches_of([7])[0], ops.cross_entropy)
        except RuntimeError as error:  # these all-reduces sum nothing, so only this rank ran backward
            assert ranks > 1 and "ran backward" in str(error)
        shapes = [p.shape for p in backend.layout.parameters]
        flat = [(s[0], int(np.prod(s[1:]))) for s in shapes if len(s) > 1]
        rows, columns = zip(*(sorted(s) for s in flat), strict=True)
        vectors = sum(s[0] for s in shapes if len(s) == 1)
        figures = len(backend.summary) + ranks
        assert sizes == [figures + vectors + r * sum(rows), r * sum(columns)]

    run_ranks(ranks, work)


# Errors


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named_on_every_rank_and_gets_into_nothing_kept(name, bad):
    def work(comm):
        backend = Compressed(comm, compress=name)
        model = backend.place(odd(np.random.default_rng(0)).to(dtype=np.float64))
        good = batches_of([9])[0]
        backend.step(model, good, ops.cross_entropy)
        names = list(model.named_parameters().keys())
        error = backend.error
        residual = None if error is None else error.tobytes()
        shard = backend.shard(good)
        loss = backend.forward_backward(Work(model, shard, ops.cross_entropy, 1 / 3, backend.on_grad))
        if comm.rank == 1 and (g := backend.summary.parameters[2].grad) is not None:
            g[0, 1] = bad
        with pytest.raises(
            FloatingPointError, match=f"rank 1 has a gradient of {names[2]} that is not finite"
        ):
            backend.finish(model, loss)
        assert backend.error is error and (error is None or error.tobytes() == residual)
        for p in model.parameters():
            p.grad = None
        assert np.isfinite(backend.step(model, good, ops.cross_entropy))
        assert all(p.grad is None or np.isfinite(p.grad).all() for p in model.parameters())

    run_ranks(3, work)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compress": "zip"}, r"unknown compressor 'zip'; choose one of dgc, identity, one-bit"),
        ({"density": 0}, r"density is the share .* above 0 and at most 1, got 0"),
        ({"density": 1.5}, r"got 1.5"),
        ({"density": float("nan")}, r"got nan"),
        ({"compress": "dgc", "density": -1.0}, r"density"),
        ({"compress": "dgc", "momentum": 1}, r"momentum must lie between 0 and 1, got 1"),
        ({"compress": "dgc", "clip": 0}, r"above 0, got 0"),
        ({"compress": "dgc", "warm_up": -1}, r"warm_up is a number of steps"),
        ({"compress": "dgc", "sample": 0}, r"sample is a share"),
        ({"compress": "threshold", "threshold": -0.1}, r"threshold is a finite size .* got -0.1"),
        ({"compress": "power-sgd", "matrix_rank": 0}, r"matrix_rank must be at least 1, got 0"),
        ({"compress": "qsgd", "levels": 0}, r"levels must be at least 1, got 0"),
        (
            {"compress": "identity", "density": 0.1},
            r"'compressed, compress=identity' has no option 'density'",
        ),
        ({"density": "much"}, r"'density' .* must be a number, got 'much'"),
        ({"compress": TopK(), "density": 0.1}, r"density: give the settings to TopK itself"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        run_ranks(1, lambda comm: find_strategy("compressed", settings)(comm))


@pytest.mark.parametrize(
    "settings", [[{"density": 0.1}, {"density": 0.2}], [{"compress": "top-k"}, {"compress": "dgc"}]]
)
def test_ranks_must_choose_the_same_settings(settings):
    def work(comm):
        Compressed(comm, **settings[comm.rank]).place(odd(np.random.default_rng(0)))

    with pytest.raises(ValueError, match="give all ranks the same settings"):
        run_ranks(2, work)


def momentum_in_a_group(parameters):
    return optim.SGD([{"params": parameters[:1]}, {"params": parameters[1:], "momentum": 0.5}], 0.1)


@pytest.mark.parametrize("make", [momentum, adam, lambda p: optim.HeavyBall(p, 0.1), momentum_in_a_group])
def test_momentum_in_the_optimizer_and_in_dgc_is_refused_before_any_parameter_moves(make):
    def work(comm):
        backend = Compressed(comm, compress=DeepGradientCompression())
        model = backend.place(odd(np.random.default_rng(0)))
        before = {k: v.copy() for k, v in model.state_dict().items()}
        optimizer = make(model.parameters())
        backend.step(model, batches_of([5])[0], ops.cross_entropy)
        with pytest.raises(
            ValueError, match="applies momentum 0.9 before the exchange.*use SGD with momentum 0"
        ):
            backend.update(model, optimizer)
        assert all(np.array_equal(before[k], v) for k, v in model.state_dict().items())

    run_ranks(2, work)


def test_ranks_that_share_layers_cannot_leave_out_different_entries():
    def work(comm):
        data, model = comm.split(comm.rank // 2), comm.split(comm.rank % 2)
        with pytest.raises(ValueError, match="Compressed drops other entries on each"):
            Stack(Compressed(data), ModelParallel(model))
        Stack(Compressed(data, compress="identity"), ModelParallel(model))

    run_ranks(4, work)


def test_ranks_draw_their_own_random_numbers():
    def work(comm):
        compressor = QSGD(levels=1)
        Compressed(comm, compress=compressor).place(odd(np.random.default_rng(0)))
        return compressor.compress(np.ones(compressor.layout.size)).tobytes()

    assert len(set(run_ranks(4, work))) == 4


def test_dgc_on_the_command_line_takes_the_momentum_from_the_optimizer(minigrad, tmp_path):
    options = ["--strategy", "compressed", "--option", "compress=dgc", "--option", "density=0.01"]
    options += ["--net", "mlp", "--data", "2", "--transport", "threads", "--epochs", "1"]
    status, out, errors = minigrad("train", *options, "--json", "figures.json")
    assert status == 0, errors
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["config"]["momentum"] == 0.0
    assert figures["losses"][-1] < figures["losses"][0] / 2
