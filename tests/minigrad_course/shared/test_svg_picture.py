"""Laws of lessons/minigrad_course/shared/svg_picture.py: what draws itself becomes a figure of a lesson,
which a notebook shows, and a page with its size and words.
"""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from minigrad_course.shared import svg_picture
from minigrad_course.site import lesson_page, recording

from minigrad import nn
from tests.bugs.mutant import mutant
from tests.pictures import shown

MODEL = nn.Linear(2, 3, rng=np.random.default_rng(0))


class Hostile:
    def _repr_svg_(self) -> str:
        start = '<svg xmlns="http://www.w3.org/2000/svg" width="70" height="30">'
        return f'{start}<title>a &lt; "b" &amp; c</title></svg>'


def a_figure_is_what_an_object_draws(module: ModuleType, folder: Path) -> None:
    """The file has the whole picture, and a notebook shows the object once; a script shows nothing."""
    displayed = []
    display = SimpleNamespace(display=displayed.append)
    shells = [
        SimpleNamespace(get_ipython=lambda: "a shell", display=display),
        SimpleNamespace(get_ipython=lambda: None),
    ]
    for ipython in [*shells, None]:
        with patch.dict(sys.modules, IPython=ipython):
            module.save_svg(MODEL, folder / "model.svg")
    assert displayed == [MODEL], f"shown are {displayed}"
    assert (folder / "model.svg").read_text(encoding="utf-8") == MODEL._repr_svg_()
    picture = module.SvgPicture.read(folder / "model.svg")
    assert picture.title == shown(MODEL._repr_svg_()).title
    assert f'width="{picture.width}" height="{picture.height}"' in MODEL._repr_svg_()
    assert [path.name for path in folder.iterdir()] == ["model.svg"]


def test_a_figure_is_what_an_object_draws(tmp_path):
    a_figure_is_what_an_object_draws(svg_picture, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ipython.get_ipython() is not None", "True"),
        ("ipython.display.display(drawn)", "pass"),
        ("drawn._repr_svg_(), encoding", "repr(drawn), encoding"),
        ('int(root.attrib["width"]), int(root.attrib["height"])', "100, 100"),
    ],
)
def test_a_wrong_figure_is_seen(right, wrong, tmp_path):
    broken = mutant("minigrad_course.shared.svg_picture", (right, wrong))
    with pytest.raises((AssertionError, AttributeError, SyntaxError)):
        a_figure_is_what_an_object_draws(broken, tmp_path)


def test_a_page_shows_it_with_its_size_and_words(tmp_path):
    file = tmp_path / "hostile.svg"
    svg_picture.save_svg(Hostile(), file)
    page = lesson_page.picture(file)
    assert 'src="figures/hostile.svg" width="70" height="30"' in page
    assert 'alt="a &lt; &quot;b&quot; &amp; c"' in page


def test_a_recording_has_pictures_of_both_formats(tmp_path):
    for name in ("one.png", "two.svg", "three.txt", "within/four.svg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    names = sorted(path.name for path in recording.pictures_in(tmp_path))
    assert names == ["four.svg", "one.png", "two.svg"]
