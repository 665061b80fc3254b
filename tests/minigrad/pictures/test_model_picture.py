"""Laws of minigrad/pictures/model_picture.py: nested, tied, frozen and large models, and hostile names."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from minigrad import nn
from tests.minigrad.pictures.model_picture_laws import a_model_is_drawn_whole, nested
from tests.pictures import shown


def picture(model):
    return model._repr_svg_()


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    depth=st.integers(0, 3),
    tied=st.booleans(),
    frozen=st.integers(0, 3),
)
def test_a_model_is_drawn_whole(sizes, depth, tied, frozen):
    rng = np.random.default_rng(0)
    model = nested(sizes, depth, rng)
    if tied:
        model.append(nn.Linear(2, 2, rng=rng))
        model.append(nn.Linear(2, 2, rng=rng))
        model[-1].weight = model[-2].weight
    for parameter in model.parameters()[:frozen]:
        parameter.requires_grad = False
    a_model_is_drawn_whole(picture, model)


def test_a_layer_is_drawn():
    a_model_is_drawn_whole(picture, nn.Linear(2, 3, rng=np.random.default_rng(0)))


def test_a_model_of_a_thousand_layers_stays_small():
    model = nn.Sequential(*(nn.ReLU() for _ in range(1000)))
    got = shown(picture(model))
    assert ["\u2026 961 of 1,001 are left out"] in got.rows(0)
    assert len(picture(model)) < 12_000


def test_layers_of_any_name_are_drawn():
    class Hostile(nn.Module):
        def __init__(self):
            self.layers = {"<b>&\"'": nn.ReLU()}

    assert "layers.<b>&\"'" in shown(picture(Hostile())).words()
