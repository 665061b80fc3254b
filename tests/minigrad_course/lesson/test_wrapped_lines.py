"""Laws of lessons/minigrad_course/lesson/wrapped_lines.py: what a lesson prints fits the terminal."""

from types import ModuleType

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from minigrad_course.lesson import wrapped_lines

from tests.bugs.mutant import mutant

TEXTS = st.lists(st.text("ab é,;", max_size=60), max_size=5).map("\n".join)


def lines_fit(module: ModuleType, text: str, cuts: list[int], width: int) -> None:
    """However the text arrives, no word is lost, no line is wider than its one word, and short ones stay."""
    content = text.encode()
    ends = sorted(min(cut, len(content)) for cut in cuts)
    chunks = [content[a:b] for a, b in zip([0, *ends], [*ends, len(content)], strict=True)]
    written = b"".join(module.wrapped(chunks, width)).decode()
    assert written.split() == text.split()
    assert all(len(line) <= width or len(line.split()) <= 1 for line in written.split("\n"))
    for line in text.split("\n"):
        assert len(line) > width or line in written.split("\n")
    if max(map(len, text.split("\n"))) <= width:
        assert written == text


WRAPPED = dict(
    text=TEXTS, cuts=st.lists(st.integers(0, 200), max_size=4), width=st.sampled_from([12, 30, 80])
)


@given(**WRAPPED)
def test_lines_fit_the_terminal(text, cuts, width):
    lines_fit(wrapped_lines, text, cuts, width)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if len(text) <= width", "if text"),
        ("(line + chunk)", "chunk"),
        ("yield wrapped_line(line, width)", "yield b''"),
        ("break_long_words=False", "break_long_words=True"),
        ("subsequent_indent=indent", "subsequent_indent='  ' + text[:9]"),
    ],
)
def test_lines_that_do_not_fit_are_seen(old, new):
    broken = mutant("minigrad_course.lesson.wrapped_lines", (old, new))

    @settings(max_examples=300, phases=[Phase.generate])
    @given(**WRAPPED)
    def law(text, cuts, width):
        lines_fit(broken, text, cuts, width)

    with pytest.raises(AssertionError):
        law()
