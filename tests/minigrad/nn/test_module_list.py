"""Laws of minigrad/module.py: a ModuleList is a list, and a module whose parameters have PyTorch's names."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minigrad import Tensor, nn, ops
from minigrad.module import Module

anything: Any = nn.ModuleList  # takes what it must refuse
MODULES = [nn.Linear(2, 2, rng=np.random.default_rng(i)) for i in range(4)]
items = st.lists(st.sampled_from(MODULES), max_size=5)


class Blocks(nn.Module):
    """As PyTorch's users write it."""

    def __init__(self, n, rng):
        self.blocks = nn.ModuleList(nn.Linear(3, 3, rng=rng) for _ in range(n))
        self.heads = nn.ModuleList(
            [nn.ModuleList([nn.LayerNorm(3)]), nn.Sequential(nn.Tanh(), nn.Identity())]
        )


@given(first=items, more=items, last=st.sampled_from(MODULES), i=st.integers(-9, 8), cut=st.slices(9))
def test_it_is_a_list(first, more, last, i, cut):
    expected, modules = [*first, *more, last], nn.ModuleList(iter(first))
    assert modules.extend(iter(more)) is modules and modules.append(last) is modules
    assert [*modules] == expected and len(modules) == len(expected)
    assert (last in modules) and list(reversed(modules)) == expected[::-1]
    if -len(expected) <= i < len(expected):
        assert modules[i] is expected[i]
    else:
        with pytest.raises(IndexError):
            modules[i]
    assert type(modules[cut]) is nn.ModuleList and [*modules[cut]] == expected[cut]
    sequence = nn.Sequential(*expected)
    assert type(sequence[cut]) is nn.Sequential and [*sequence[cut]] == expected[cut]
    assert [*modules.modules()] == [modules, *expected]


@given(n=st.integers(0, 12), seed=st.integers(0, 99))
def test_names_are_those_of_pytorch(n, seed):
    model = Blocks(n, np.random.default_rng(seed))
    names = [f"blocks.{i}.{name}" for i in range(n) for name in ("weight", "bias")]
    assert [*model.state_dict()] == [*names, "heads.0.0.weight", "heads.0.0.bias"]
    other = Blocks(n, np.random.default_rng(seed + 1))
    other.load_state_dict(model.state_dict())
    for name, value in other.state_dict().items():
        np.testing.assert_array_equal(value, model.state_dict()[name], err_msg=name)


def test_it_is_a_module():
    model = Blocks(2, np.random.default_rng(0))
    model.eval().to(dtype=np.float64)
    assert not any(module.training for module in model.blocks.modules())
    assert {p.dtype for p in model.blocks.parameters()} == {np.dtype("float64")}
    assert len(model.blocks.parameters()) == 4
    model.blocks.replace("1", last := nn.Tanh())
    assert model.blocks[1] is last and dict(model.named_modules())["blocks.1"] is last
    assert "(blocks): ModuleList(" in repr(model)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: anything([nn.Tanh(), ops.tanh]), "a list of modules has an item that is none, got"),
        (lambda: anything([nn.Tanh]), "got the class Tanh; make a layer of it, Tanh(...)"),
        (lambda: anything().append([nn.Tanh()]), "got a list; write Sequential(*layers)"),
    ],
)
def test_what_is_no_module_is_refused(make, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        make()


def test_what_was_refused_leaves_the_list_as_it_was():
    modules = anything([nn.Tanh()])
    with pytest.raises(TypeError):
        modules.extend([nn.Tanh(), None])
    assert len(modules) == 1


def test_a_list_computes_nothing():
    with pytest.raises(NotImplementedError, match="a ModuleList computes nothing; call its modules"):
        nn.ModuleList([nn.Tanh()])(np.ones(2))


@given(x=st.lists(st.floats(-1, 1), min_size=1, max_size=4))
def test_the_identity_gives_what_it_gets(x):
    array, tensor = np.array(x), Tensor(np.array(x))
    assert nn.Identity()(tensor) is tensor
    assert nn.Identity()(array).data is array


class Both(Module):
    def forward(self, x, y, *, minus=False):
        return x - y if minus else x + y


def test_a_layer_of_several_inputs_signs_its_errors():
    x, y = Tensor(np.ones(2)), Tensor(np.ones(3))
    assert Both()(x, x, minus=True).data.tolist() == [0, 0] and Both()(x, y=x).data.tolist() == [2, 2]
    with pytest.raises(ValueError, match=re.escape("in Both(): ")):
        Both()(x, y, minus=True)
    with pytest.raises(TypeError, match=re.escape("in Both(): ") + ".*unexpected keyword argument 'plus'"):
        Both()(x, x, plus=True)
    with pytest.raises(
        TypeError, match=re.escape("in Linear(2, 2): ") + ".*takes 2 positional arguments but 3"
    ):
        MODULES[0](x, y)
