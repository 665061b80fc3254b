"""The house stays small: what a reader must read, and each package, has a budget of lines.

A commit may raise a budget only for a reason that it gives.
"""

import ast
from pathlib import Path

import pytest

from tests.reading import CHAINS, ROOT, SUBJECTS, chain, lines, reading

PACKAGES = {
    "minigrad": 18_855,  # text, experts, 16 bits; init, losses, CIFAR; a tape draws itself; examples
    "backends": 28_295,  # float16, the first difference; hooks, constants; plans and proofs are drawn
    "lessons/minigrad_course": 12_150,  # pages that fold, search, guide; a classroom's wheel, times
    "benchmarks": 5_000,  # a transformer's step, torch.compile and jax.jit
    "tests": 92_930,  # laws and bugs of axes, sixteen bits, own nets, constants, pages; the form of lessons
}
"""The most lines of Python in each package."""

READINGS = {
    "conv2d": 327,  # sixteen bits are computed in float32; an example
    "max_pool2d": 238,
    "batch_norm": 196,
    "softmax": 118,
    "layer_norm": 90,
    "naive data parallelism": 65,
    "naive ZeRO": 100,
    "naive parameter server": 65,
    "naive compression": 100,
    "naive spatial convolution": 65,
    "naive pipeline": 65,
    "naive checkpoint": 210,
    "data parallelism": 405,  # float16 travels apart from the figures; buffers that no pass wrote stay
    "bucketed": 720,  # a bucket has a file; buffers
    "sharded (ZeRO)": 997,  # buffers
    "parameter server": 993,  # a step has a loss scale
    "compression": 875,  # float16 is refused; an object has a text; buffers
    "split linear layer": 313,  # it gathers tokens and blocks, and features have an axis by the array
    "pipeline engine": 373,  # every stage may have penalties; a schedule has a text
    "whole pipeline": 1_605,
}
"""The most lines of the files that a reader of each subject opens (``python -m tests.reading``)."""

CHAIN_BUDGETS = {"DataParallel": 450, "Bucketed": 700, "Sharded": 700, "ParameterServer": 800}
"""The most lines of the files that define a strategy's class and the classes it derives from."""


def python_lines(package):
    return lines(sorted((ROOT / package).rglob("*.py")))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_within_its_budget(package):
    count = python_lines(package)
    assert count <= PACKAGES[package], f"{package} has {count} lines; what can go?"
    assert count > 0.9 * PACKAGES[package], f"{package} has {count} lines: lower its budget"


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_reading_is_within_its_budget(subject):
    file = next(ROOT / name for name in SUBJECTS[subject] if (ROOT / name).exists())
    count = lines(reading(file))
    assert count <= READINGS[subject], f"{subject} takes {count} lines; what need not be read?"


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_classes_is_within_its_budget(name):
    count, budget = lines(chain(name)), CHAIN_BUDGETS[name.partition(":")[2]]
    assert count <= budget, f"{name} and its bases take {count} lines; what is a class of its own?"


def test_every_family_begins_with_a_naive_form():
    families = (
        "data_parallel",
        "data_parallel/zero",
        "data_parallel/parameter_server",
        "pipeline",
        "checkpoint",
    )
    families += ("data_parallel/compression", "model_parallel", "model_parallel/spatial", "sequence_parallel")
    families += ("expert_parallel",)
    for family in families:
        file = Path("backends", family, "naive.py")
        assert (ROOT / file).exists(), file
        assert lines([ROOT / file]) <= 65, file


def test_a_backend_is_the_hooks_of_the_slide():
    """Place, shard, work, forward_backward, on_grad, finish, step and update; nothing is inherited."""
    (backend,) = (
        node
        for node in ast.parse((ROOT / "minigrad/backend.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    methods = [node for node in backend.body if isinstance(node, ast.FunctionDef)]
    attributes = [
        t for node in backend.body if isinstance(node, ast.Assign) for t in ast.walk(node.targets[0])
    ]
    assert backend.name == "Backend" and not backend.bases
    assert len(methods) <= 8, f"Backend has {len(methods)} methods"
    assert len([t for t in attributes if isinstance(t, ast.Name)]) <= 4
    assert lines([ROOT / "minigrad/backend.py"]) <= 150
