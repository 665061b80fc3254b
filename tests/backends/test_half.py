"""Laws of backends/data_parallel/step_summary.py, backends/checkpoint/training_state.py and
backends/data_parallel/state_transfer.py: float16 in the strategies of all axes.
"""

from functools import partial

import numpy as np
import pytest

from backends.checkpoint.training_state import gather_state, load_state
from backends.comm import run_ranks
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.backup_workers import BackupWorkers
from backends.data_parallel.compression.compressed import Compressed
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.parameter_server.parameter_server import ParameterServer
from backends.data_parallel.shared_memory import SharedMemoryDataParallel
from backends.data_parallel.state_transfer import recv_state, send_state
from backends.data_parallel.zero.sharded import Sharded
from backends.pipeline.asynchronous import AsynchronousPipeline
from minigrad.optim import Adam
from minigrad.serial import Serial
from minigrad.train import History
from tests.backends import half_laws as laws
from tests.backends.checkpoint import resume_laws
from tests.backends.half_laws import LAYOUTS, Layout
from tests.backends.lanes import thorough
from tests.nets import batches_of, mlp

SHARED = Layout(2, SharedMemoryDataParallel)
EVERY = {**LAYOUTS, "shared memory": SHARED}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_step_sends_half_the_bytes(name):
    laws.sends_half_the_bytes(LAYOUTS[name])


def test_running_statistics_do_not_widen_the_gradients():
    """They are means of the ranks' own statistics, and so not those of the serial batch-norm."""
    laws.sends_half_the_bytes(Layout(2, DataParallel, laws.normalized))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", [0, thorough(1), thorough(2)])
def test_scaled_gradients_are_the_serial_ones(name, seed):
    laws.gradients_are_serial(EVERY[name], seed=seed)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "ZeRO, naive"])
@pytest.mark.parametrize("rank", [-1, thorough(0)])
def test_an_overflow_on_one_rank_is_skipped_by_all(name, rank):
    """The naive form of ZeRO has masters of parts, and does not gather them."""
    ranks = EVERY[name].ranks
    laws.ranks_skip_together(EVERY[name], (rank if ranks < 8 else 5) % ranks)


RESUMED = {
    "the plain ones": ("data", "serial", "model"),
    "ZeRO": ("ZeRO 1", "serial", "ZeRO 3", "ZeRO 2"),
    "stacks": ("data x sequence x model", "pipe", "shared memory", "ring"),
    "experts": ("experts", "serial", "experts x pipe"),
}


@pytest.mark.parametrize("names", RESUMED)
def test_a_checkpoint_has_the_masters_and_the_scale(names, tmp_path):
    build = laws.with_experts(laws.NET) if names == "experts" else laws.NET.build
    layouts = {**EVERY, "serial": Layout(1, lambda comm: Serial(), build)}
    laws.resumes_bit_for_bit([layouts[name] for name in RESUMED[names]], tmp_path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("strategy", [DataParallel, partial(Sharded, stage=2)], ids=["data", "ZeRO"])
def test_a_resumed_training_has_the_same_bits(strategy):
    """The first steps overflow."""
    batches = batches_of((6, 7, 5, 4, 6, 3))
    masters = partial(laws.adam, value=2.0**19)
    layout = resume_laws.Layout(2, strategy)
    resume_laws.goes_on_with_the_same_bits(layout, mlp, masters, batches, 3, np.float16)


def test_a_rank_that_joins_gets_masters_and_scale():
    def work(comm):
        training, history = laws.Training(Serial(), laws.NET.build, seed=comm.rank), History()
        if comm.rank == 0:
            for step, batch in enumerate(laws.NET.batches(4, 5, 3)):
                training.step(batch, overflows=step == 1)
            send_state(comm, 1, training.model, training.optimizer, history)
        else:
            recv_state(comm, 0, training.model, training.optimizer, history)
        return training.state()

    (scale, arrays), (other_scale, others) = run_ranks(2, work)
    assert scale == other_scale and scale["skipped"] == 1, (scale, other_scale)
    assert {name: x.tobytes() for name, x in arrays.items()} == {n: x.tobytes() for n, x in others.items()}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_adam_takes_sixteen_bytes_a_parameter(stage, ranks):
    laws.takes_the_bytes_of_zero(stage, ranks)


@pytest.mark.parametrize(
    "strategy",
    [
        LocalSGD,
        BackupWorkers,
        partial(Compressed, compress="identity"),
        ParameterServer,
        AsynchronousPipeline,
    ],
)
def test_strategies_with_updates_of_their_own_refuse_float16(strategy):
    def work(comm):
        strategy(comm).place(laws.NET.build(np.random.default_rng(0)).to(dtype=np.float16))

    with pytest.raises(ValueError, match="trains no float16 parameters, and 0.weight has them; take model"):
        run_ranks(2, work)


def test_a_checkpoint_with_and_without_masters_are_told_apart():
    training, plain = (laws.Training(Serial(), mlp, optimize) for optimize in (laws.adam, Adam))

    def load(comm, source, target):
        arrays, facts, _ = gather_state(comm, source.backend, source.model, source.optimizer)
        load_state(comm, target.backend, target.model, target.optimizer, arrays, facts)

    with pytest.raises(ValueError, match="holds a loss scale's state, and the training goes on without one"):
        run_ranks(1, lambda comm: load(comm, training, plain))
    with pytest.raises(ValueError, match="holds no loss scale's .* with or without master weights"):
        run_ranks(1, lambda comm: load(comm, plain, training))
