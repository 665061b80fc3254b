"""Laws of minigrad/settings_repr.py and backends/comm/communicator.py: what a student prints has a text that
says what it is, and no address.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import backends
import minigrad
from backends.checkpoint import Checkpoints, PartnerCopies, XorParity
from backends.comm import WithAllreduce, run_ranks
from backends.comm.collectives import ring_allreduce
from backends.comm.trace import Traced
from backends.data_parallel import DataParallel, NaiveDataParallel
from backends.data_parallel.compression import QSGD, TopK
from backends.grid import Grid
from backends.pipeline import SCHEDULES, Pipeline
from minigrad import nn, optim
from minigrad.serial import Serial
from minigrad.settings_repr import settings_repr


def public_classes():
    """The classes that the packages of minigrad and backends export, by name."""
    for package in (minigrad, backends):
        walk = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        for name in [package.__name__, *(results.name for results in walk if results.ispkg)]:
            module = importlib.import_module(name)
            for word in getattr(module, "__all__", ()):
                thing = getattr(module, word)
                if inspect.isclass(thing) and thing.__module__.startswith(("minigrad", "backends")):
                    yield f"{name}.{word}", thing


def test_every_public_class_has_a_text():
    wrong = sorted(name for name, kind in public_classes() if kind.__repr__ is object.__repr__)
    assert not wrong, f"print({wrong[0]}(...)) shows an address; give it a __repr__"
    assert len(list(public_classes())) > 100


def test_what_a_student_prints_has_no_address(tmp_path):
    def work(comm):
        things = [comm, comm.split(0), Traced(comm), WithAllreduce(comm, ring_allreduce), Grid(comm, data=2)]
        things += [DataParallel(comm), NaiveDataParallel(comm), Serial(), Pipeline(comm, sample=(2,))]
        checkpoints = Checkpoints(tmp_path, comm)
        things.append(checkpoints)
        checkpoints.close()
        return [repr(thing) for thing in things]

    texts = [text for rank in run_ranks(2, work) for text in rank]
    rng = np.random.default_rng(0)
    layer = nn.Linear(2, 3, rng=rng)
    texts += map(repr, [layer, optim.SGD(layer.parameters(), 0.1), nn.CrossEntropyLoss(ignore_index=2)])
    texts += map(repr, [TopK(), QSGD(), PartnerCopies(), XorParity(), SCHEDULES, minigrad.Tape()])
    assert not [text for text in texts if " at 0x" in text]
    assert texts[0].endswith("(rank 0 of 2)") and "CrossEntropyLoss(ignore_index=2" in str(texts)


def says_its_settings(function):
    class Thing:
        __repr__ = function

        def __init__(self):
            self.ratio, self.folder, self.array, self.rest = 0.5, Path("a/b"), np.ones(3), None

    return repr(Thing())


def test_a_text_has_numbers_and_paths():
    assert says_its_settings(settings_repr) == "Thing(ratio=0.5, folder='a/b')"


@pytest.mark.parametrize("name", ["1f1b", "dualpipe"])
def test_a_schedule_says_its_name(name):
    assert repr(SCHEDULES[name]).startswith(f"Schedule('{name}', chunks=")
