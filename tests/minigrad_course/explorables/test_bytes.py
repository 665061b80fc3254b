"""Laws of lessons/minigrad_course/explorables/byte_table.py and bytes.mjs: JavaScript computes where the
bytes go as Python does, from formulas and tapes that real runs have.
"""

import random

import numpy as np
import pytest
from minigrad_course.explorables.byte_table import (
    MICROS,
    OPTIMIZERS,
    Choice,
    byte_data,
    bytes_of,
    forward,
    stages_of,
)

from backends.comm import run_ranks
from backends.pipeline import Pipeline
from backends.pipeline import pipeline as pipeline_module
from minigrad.data import Batch
from minigrad.memory import base_of
from minigrad.models import DIGIT, NETS
from minigrad.module import Sequential
from minigrad.work import Work
from tests.backends.data_parallel.zero.sharded_laws import formula
from tests.minigrad_course.explorables import node

SUMS = """
    const { bytesOf } = await load("bytes_sum.mjs");
    return data.choices.map((choice) => bytesOf(choice, data.data));
"""
BUGS = [
    ("Math.ceil(choice.batch / choice.data)", "choice.batch"),
    ("sharded.includes(what) ? choice.data : 1", "choice.data"),
    ("inputs * stage.input + whole", "whole"),
    ("choice.recompute ? recompute", "!choice.recompute ? recompute"),
    ("Math.max(...held)", "held[0]"),
    ("data.optimizers[choice.optimizer]", "data.float"),
]


@pytest.fixture(scope="module")
def data():
    return byte_data()


def drawn(data, number=1000):
    draw = random.Random(0)
    return [drawn_choice(draw, data, draw.choice(list(data["nets"]))) for _ in range(number)]


def drawn_choice(draw, data, net):
    return Choice(
        net=net,
        pipe=draw.choice(list(data["nets"][net])),
        data=draw.choice([1, 2, 3, 4, 8]),
        zero=draw.randrange(4),
        optimizer=draw.choice(list(OPTIMIZERS)),
        schedule=draw.choice(list(data["tapes"])),
        micro=draw.choice(MICROS),
        batch=draw.randint(1, 500),
        recompute=draw.random() < 0.5,
    )


def javascript_agrees(data, folder=node.FOLDER):
    choices = drawn(data)
    results = node.run(SUMS, {"choices": [c._asdict() for c in choices], "data": data}, folder)
    for choice, theirs in zip(choices, results, strict=True):
        assert theirs == bytes_of(choice, data), choice


@node.needs_node
def test_the_page_computes_what_python_does(data):
    javascript_agrees(data)


@node.needs_node
@pytest.mark.parametrize(("right", "wrong"), BUGS, ids=[right for right, _ in BUGS])
def test_a_seeded_bug_gives_other_bytes(data, tmp_path, right, wrong):
    with pytest.raises(AssertionError):
        javascript_agrees(data, node.broken(tmp_path, "bytes_sum.mjs", right, wrong))


def test_parameters_take_what_the_formulas_of_zero_say(data):
    for choice in drawn(data, 200):
        for row, stage in zip(
            bytes_of(choice, data), data["nets"][choice.net][choice.pipe]["stages"], strict=True
        ):
            actual = row["weights"] + row["gradients"] + row["optimizer"]
            each = formula(choice.zero, choice.data, OPTIMIZERS[choice.optimizer])
            assert actual == pytest.approx(stage["parameters"] * each, rel=1e-12)


@pytest.mark.parametrize("name", ["mlp", "lenet", "vgg"])
def test_a_tape_of_several_samples_takes_as_many_times_the_bytes(name, data):
    net, (one,) = NETS[name], stages_of(NETS[name], 1)["stages"]
    for samples in (4, 20):
        batch = net.prepare(Batch(np.ones((samples, *DIGIT)), np.zeros(samples, int)), "float32")
        model = net.build(np.random.default_rng(0)).to(dtype="float32")
        assert isinstance(model, Sequential)
        assert forward(model, batch.x, net, batch.y)[1] == samples * one["tape"]


class Weighed(pipeline_module.Engine):
    """Keeps in ``most`` the largest numbers of bytes of tapes and inputs, and of saved inputs."""

    most: dict[int, tuple[int, int]] = {}

    def forward(self, i):
        super().forward(i)
        saved, stage = self.saved_forwards, self.table.stage(i.micro, self.comm.rank, i.chunk)
        nbytes = sum(self.beside_the_batch(micro, *one, stage) for (micro, _), one in saved.items())
        before = self.most.get(self.comm.rank, (0, 0))
        self.most[self.comm.rank] = (max(before[0], nbytes), max(before[1], len(self.saved_inputs)))

    def beside_the_batch(self, micro, tape, x, _, stage):
        """A micro-batch's samples and targets are views, and hold the whole batch, which does not count."""
        nbytes = tape.nbytes + (x.data.nbytes if stage else -base_of(x.data).nbytes)
        last = stage == self.table.stages - 1
        return nbytes - (base_of(self.micros[micro].batch.y).nbytes if last else 0)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b"])
def test_a_pipeline_holds_as_many_bytes(monkeypatch, data, schedule, recompute):
    monkeypatch.setattr(pipeline_module, "Engine", Weighed)
    monkeypatch.setattr(Weighed, "most", {})
    net, samples, choice = NETS["lenet"], 24, Choice("lenet", 3, schedule=schedule, micro=4, batch=24)

    def step(comm):
        model = net.build(np.random.default_rng(0)).to(dtype="float32")
        backend = Pipeline(comm, schedule, micro_batches=4, recompute=recompute)
        placed = backend.place(model)
        batch = net.prepare(Batch(np.ones((samples, *DIGIT)), np.zeros(samples, int)), "float32")
        backend.forward_backward(Work(placed, batch, net.loss))

    run_ranks(3, step)
    for rank, row in enumerate(bytes_of(choice, data)):
        nbytes, inputs = Weighed.most[rank]
        tapes = data["tapes"][schedule]["3,4"][rank]
        if recompute:
            assert inputs == tapes["most"] == max(n for n, _ in tapes["recompute"])
        else:
            assert nbytes == row["activations"]
