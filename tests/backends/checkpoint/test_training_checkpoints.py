"""Laws of backends/checkpoint/training_checkpoints.py: a training of a script, killed and started again,
is the undisturbed one; a folder has one writer.
"""

import re
from functools import cache, partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.checkpoint import TrainingCheckpoints, gather_state, load_state
from backends.comm import run_ranks
from backends.data_parallel.averaging import LocalSGD
from backends.data_parallel.data_parallel import DataParallel
from backends.data_parallel.zero.sharded import Sharded
from backends.pipeline.pipeline import Pipeline
from minigrad import nn, optim
from minigrad.data import Batch
from minigrad.lr_schedules import ReduceLROnPlateau
from minigrad.ops import cross_entropy
from minigrad.train import History, fit
from tests.backends.checkpoint.power_laws import a_folder_has_one_writer
from tests.nets import dropping

RNG = np.random.default_rng(0)
DATA = Batch(RNG.normal(size=(11, 4)), RNG.integers(0, 3, 11))
STRATEGIES = [DataParallel, Sharded, Pipeline, LocalSGD]


class Killed(Exception):
    """Stands for the end of all processes."""


def program(folder, strategy, epochs, seed, *, every=2, kill=None):
    """The losses, the epochs that were seen to end, the rate and the parameters of rank 0, at the end."""

    def work(comm):
        ended = []
        model = dropping(np.random.default_rng(seed)).to(dtype=np.float64)
        with TrainingCheckpoints(folder, comm, every=every, steps=3 * epochs, say=str) as checkpoints:
            backend = strategy(comm)
            model = backend.place(checkpoints.load_model(model))
            optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
            plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
            history = checkpoints.load_rest(backend, model, optimizer, schedule=plateau)

            def on_step(step, loss):
                checkpoints.on_step(step, loss)
                if step == kill:
                    raise Killed

            def on_epoch(epoch, history):
                plateau.step(1.0)
                ended.append(epoch)

            options = {"backend": backend, "epochs": epochs, "batch_size": 4, "start": history}
            fit(model, optimizer, cross_entropy, DATA, **options, on_step=on_step, on_epoch=on_epoch)
        whole = backend.state.full_parameters(model) | backend.state.full_state(model)
        state = {name: a.tobytes() for name, a in whole.items()}
        backend.close()
        return history.losses, ended, optimizer.lr, state

    return run_ranks(2, work)[0]


@cache
def undisturbed(strategy):
    return program(None, strategy, 3, 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=settings().max_examples // 5)
@given(kill=st.integers(2, 8), every=st.integers(1, 4))
def test_the_same_program_goes_on_after_a_kill(tmp_path_factory, strategy, kill, every):
    """Also when its net is built from other random numbers."""
    folder = tmp_path_factory.mktemp("kept")
    whole = undisturbed(strategy)
    with pytest.raises(Killed):
        program(folder, strategy, 3, 0, every=every, kill=kill)
    seed = int(any(folder.glob("step-*")))  # 0 where the kill came before the first one was whole
    losses, ended, lr, state = program(folder, strategy, 3, seed, every=every)
    assert losses == whole[0] and lr == whole[2] and state == whole[3]
    assert ended == [0, 1, 2][-len(ended) :]


def test_a_training_of_more_epochs_goes_on_after_its_end(tmp_path):
    whole = undisturbed(DataParallel)
    first = program(tmp_path, DataParallel, 2, 0, every=100)
    rest = program(tmp_path, DataParallel, 3, 1, every=100)
    assert rest[0] == whole[0] and rest[3] == whole[3] and rest[2] == whole[2]
    assert first[1] == [0, 1] and rest[1] == [1, 2]  # the last step was saved before the end of its epoch


def test_a_checkpoint_of_an_earlier_version_is_read():
    """Without seeds of dropout and ended epochs: both are as they were taken to be then."""

    def work(comm):
        backend, model = DataParallel(comm), dropping(np.random.default_rng(0))
        model = backend.place(model)
        optimizer, history = optim.SGD(model.parameters(), 0.1), History([1.0, 0.5], epochs=1)
        arrays, facts, _ = gather_state(comm, backend, model, optimizer, history=history)
        del facts["own"]["seeds"], facts["own"]["strategy"], facts["history"]["epochs"]
        facts["of each rank"] = [facts.pop("own")]
        seeds, start = [layer.seed for layer in model.modules() if isinstance(layer, nn.Dropout)], History()
        load_state(comm, backend, model, optimizer, arrays, facts, history=start)
        assert [layer.seed for layer in model.modules() if isinstance(layer, nn.Dropout)] == seeds
        assert start.losses == [1.0, 0.5] and start.epochs_ended(2) == 0 and start.epochs_ended(1) == 1

    run_ranks(1, work)


def test_a_history_of_other_batches_is_refused():
    with pytest.raises(
        ValueError, match="its 2 epochs of 3 steps have 6; go on with the data and the batch_size"
    ):
        History([1.0] * 4, epochs=2).epochs_ended(3)


README = Path(__file__).parents[3] / "backends" / "README.md"


def test_the_script_of_the_readme_runs_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
               if "TrainingCheckpoints" in c)  # fmt: skip

    def work(comm, epochs):
        model, backend = dropping(np.random.default_rng(0)).to(dtype=np.float64), DataParallel(comm)
        names = {"TrainingCheckpoints": TrainingCheckpoints, "SGD": optim.SGD, "fit": fit, "data": DATA}
        names |= {"comm": comm, "model": model, "backend": backend, "epochs": epochs}
        exec(dedent(code), names | {"cross_entropy": cross_entropy}, local := dict[str, Any]())
        return len(local["history"].losses)

    assert all(run_ranks(2, partial(work, epochs=n)) == [n, n] for n in (2, 3))


def test_a_folder_has_one_writer():
    a_folder_has_one_writer()
