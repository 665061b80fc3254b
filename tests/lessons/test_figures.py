"""Laws of minigrad/figures.py: all figures have one palette, a color for a word, nothing told by
color alone, no words on words.
"""

from itertools import combinations

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from minigrad_course.experiments import slow_link
from minigrad_course.experiments.article import PROGRAMS
from minigrad_course.experiments.experiment import read_result
from minigrad_course.experiments.experiments import EXPERIMENTS
from minigrad_course.experiments.slow_link import WORLDS
from minigrad_course.experiments.speedup import Speedup
from minigrad_course.experiments.training_run import STRATEGIES
from PIL import Image

from backends.cli.curves import draw_curves
from backends.comm import timeline
from backends.comm.spans import Ledger, Span, Trace
from backends.pipeline import gantt
from backends.pipeline.schedules import SCHEDULES
from backends.pipeline.simulation import Costs, simulate
from backends.pipeline.trace import as_trace
from minigrad import figures
from tests.bugs.mutant import mutant
from tests.lessons.figure_laws import contrast_with_white, faults, lines_alike

COLORS = [*figures.COLORS, figures.INK]
# What a color becomes for the two most frequent kinds of color blindness: Machado et al. 2009, severity 1.
VISIONS = {
    "any": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "deuteranope": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "protanope": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
}
TO_XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def lab(color, vision):
    """CIE L*a*b* of a color, as seen with this matrix of linear RGB."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear_rgb = np.clip(np.array(vision) @ linear, 0, 1)
    x, y, z = (TO_XYZ @ linear_rgb) / (0.95047, 1.0, 1.08883)
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("vision", VISIONS)
def test_the_colors_differ_for_every_eye(vision):
    """Green against red was 14 in the palette before; CIE76 differences of 20 are easy to see."""
    for one, other in combinations([*figures.COLORS, figures.YELLOW], 2):
        far = float(np.linalg.norm(lab(one, VISIONS[vision]) - lab(other, VISIONS[vision])))
        assert far > 17, f"{one} and {other} are only {far:.0f} apart"


@pytest.mark.parametrize("color", [*COLORS, figures.YELLOW, figures.GREY])
def test_words_in_any_color_can_be_read(color):
    assert contrast_with_white(figures.TEXT.get(color, color)) >= 4.5


def in_all_colors(settings):
    """An axes with a line of each color."""
    axes = Figure().subplots()
    for color in [*COLORS, figures.GREY]:
        axes.plot([0, 1], [0, 1], **settings(color))
    return axes


@pytest.mark.parametrize("settings", [figures.line, figures.points, figures.curve, figures.hollow])
def test_two_colors_differ_in_more_than_color(settings):
    assert list(lines_alike(in_all_colors(settings))) == []


@pytest.mark.parametrize(("name", "right"), [("line", '"ls": DASHES[color]'), ("curve", "MARKERS[color]")])
def test_the_law_of_lines_catches_settings_that_are_alike(name, right):
    broken = mutant("minigrad.figures", (right, right.replace("[color]", "[BLUE]")))
    assert list(lines_alike(in_all_colors(getattr(broken, name))))


def test_one_word_has_one_color_in_all_pictures():
    fills = {name: fill.color for name, fill in timeline.FILLS.items()}
    assert fills["forward"] == figures.FORWARD
    assert fills["backward"] == figures.BACKWARD
    assert fills["weight"] == figures.WEIGHTS
    assert {fills[name] for name in ("send", "recv", "allreduce", "post")} == {figures.COMMUNICATION}
    assert fills["wait"] == figures.WAITING
    assert len(set(timeline.FILLS.values())) == len(timeline.FILLS)


def of_all_kinds():
    spans = [
        Span(0, name, None, 0, None, float(i), i + 1.0) for i, name in enumerate([*timeline.FILLS, "other"])
    ]
    return timeline.figure_of_kinds([timeline.panel_of(Trace(tuple(spans), (Ledger(),)))])


def of_schedule(name):
    return gantt.figure_of(
        {name: as_trace(simulate(SCHEDULES[name].of(4, 8), Costs(1, 1, 1)))}, one_clock=True
    )


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1", "dualpipe"])
def test_pictures_of_schedules_keep_the_laws(name):
    assert faults(of_schedule(name)) == []


def test_a_timeline_keeps_the_laws():
    assert faults(of_all_kinds()) == []


@pytest.mark.parametrize("name", ["speedup", "to-target"])
def test_pictures_of_experiments_keep_the_laws(name):
    with rc_context(figures.STYLE):
        assert faults(EXPERIMENTS[name]().draw(read_result(name))) == []


def legends_cover_no_bar(figure):
    """A legend is apart from every bar of every axes."""
    figure.draw_without_rendering()
    bars = [bar.get_window_extent() for axes in figure.axes for bar in axes.patches]
    keys = [legend.get_window_extent() for legend in figure.findobj(Legend)]
    assert bars and keys and not any(key.overlaps(bar) for key in keys for bar in bars), (bars, keys)


def slow_link_picture(module):
    times = {world: {name: 10.0 * i + 40 for i, name in enumerate(PROGRAMS)} for world in WORLDS}
    with rc_context(figures.STYLE):
        return module.SlowLink().draw({"ms": times})


def test_the_picture_of_a_slow_link_keeps_the_laws():
    figure = slow_link_picture(slow_link)
    assert faults(figure) == []
    legends_cover_no_bar(figure)


def test_the_law_of_legends_catches():
    change = 'figure.legend(loc="outside lower center")', "axes.legend()"
    broken = mutant("minigrad_course.experiments.slow_link", change)
    with pytest.raises(AssertionError):
        legends_cover_no_bar(slow_link_picture(broken))


def test_the_picture_of_weak_scaling_keeps_the_laws():
    result = read_result("speedup")
    weak = {name: {"samples_per_second": 1.0, "speedup": 1.5} for name in STRATEGIES}
    figures_of = result["nets"]["lenet"] | {"weak": weak}
    with rc_context(figures.STYLE):
        three = {"nets": {"lenet": figures_of, "sigmoid": figures_of, "wide": figures_of}}
        assert faults(Speedup().draw(three)) == []


RESULTS = {
    "mlp": {"test_accuracies": [0.7, 0.8, 0.9]},
    "transformer": {"test_losses": [2.6, 2.4, 2.3], "references": {"entropy of letters": 3.2, "pairs": 2.5}},
}


@pytest.mark.parametrize("steps", [4, 200])
@pytest.mark.parametrize("net", RESULTS)
def test_the_curves_of_a_training_keep_the_laws(net, steps, tmp_path, monkeypatch):
    metrics = {
        "config": {"net": net, "dataset": "mnist5k"},
        "ranks": 2,
        "losses": list(np.geomspace(2.3, 0.1, steps)),
        **RESULTS[net],
    }
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(faults(figure)))
    monkeypatch.setattr("os.replace", lambda *_: None)
    with pytest.raises(OSError):  # nothing was written
        draw_curves(metrics, tmp_path / "curves.png")
    assert drawn == [[]]


def test_a_figure_is_written_whole_with_readable_words(tmp_path):
    figure = Figure()
    text = figure.text(0.5, 0.5, "word", color=figures.ORANGE)
    figures.save(figure, tmp_path / "new" / "f.png")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["f.png"]
    with Image.open(tmp_path / "new" / "f.png") as image:
        assert image.format == "PNG"
    assert text.get_color() == figures.TEXT[figures.ORANGE]


# The laws see each fault.


def two_lines(**settings):
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=figures.GREEN, **settings)
    axes.plot([0, 1], [1, 0], color=figures.RED)
    return figure, axes


def test_the_laws_see_lines_that_only_color_tells_apart():
    assert "differ by color alone" in faults(two_lines()[0])[0]
    assert not faults(two_lines(ls="--")[0]) and not faults(two_lines(marker="o")[0])


@pytest.mark.parametrize("color", ["tab:blue", "#4f9d69", "red", "#0072B3"])
def test_the_laws_see_a_color_that_is_not_of_the_palette(color):
    figure, axes = two_lines(ls="--")
    axes.axhline(0.3, color=color, ls=":")
    wrong = faults(figure)
    assert bool(wrong) == (color != "#0072B3"), wrong  # one step of 255 is rounding


def test_the_laws_see_areas_that_only_color_tells_apart():
    figure = Figure(layout="constrained")
    axes = figure.subplots()
    axes.bar([0], [1], color=figures.GREEN, label="one")
    axes.bar([1], [1], color=figures.RED, label="other")
    axes.legend()
    assert "differ by color alone" in faults(figure)[0]


def test_the_laws_see_words_in_the_way_and_outside_and_too_pale():
    figure, axes = two_lines(ls="--")
    axes.text(0.5, 0.5, "one word")
    axes.text(0.51, 0.5, "another word")
    assert "lie on one another" in faults(figure)[0]
    figure = Figure(figsize=(3, 2))
    figure.text(0.9, 0.5, "a long line of words")
    assert "leaves the figure" in faults(figure)[0]
    figure = Figure()
    figure.text(0.5, 0.5, "word", color=figures.ORANGE)
    assert "too pale" in faults(figure)[0]
