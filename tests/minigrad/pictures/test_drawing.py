"""Laws of minigrad/pictures/drawing.py, table.py and ends.py: any words are drawn as they are, and all
that is drawn lies in the picture, which stays small.
"""

import unicodedata

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minigrad.pictures import drawing, table
from minigrad.pictures.drawing import Drawing
from tests.bugs.mutant import mutant
from tests.pictures import shown

HOSTILE = [
    "a < b",
    "a & b",
    "&lt;",
    '"quoted"',
    "'",
    "]]>",
    "<script>",
    "<!--",
    "\x00\x1b[31m",
    "\ud800",
    "\uffff",
]
WORDS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30))


def as_xml_holds(text: str) -> str:
    """The text, but for characters that XML 1.0 does not have, by section 2.2 of its specification."""
    return "".join(c if c in "\t\n\r" or is_char(ord(c)) else "\ufffd" for c in text)


def is_char(code: int) -> bool:
    surrogate = unicodedata.category(chr(code)) == "Cs"
    return code >= 0x20 and not surrogate and code not in (0xFFFE, 0xFFFF)


def words_are_drawn_as_they_are(module, words: list[str]) -> None:
    picture = module.Drawing("t" + words[0])
    for i, word in enumerate(words):
        picture.words(0, 20 * i, word, anchor=("start", "end")[i % 2])
    got = shown(picture.svg())
    lines = [line for (line,) in got.rows(0)]
    as_read = [
        as_xml_holds(word).replace("\r\n", "\n").replace("\r", "\n") for word in ["t" + words[0], *words]
    ]
    assert [got.title, *lines] == as_read, f"{words} is drawn as {lines}"


@given(words=st.lists(WORDS, min_size=1, max_size=4))
def test_words_are_drawn_as_they_are(words):
    words_are_drawn_as_they_are(drawing, words)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('.replace("<", "&lt;")', ""),
        ('.replace("&", "&amp;")', ""),
        ('text = NO_XML.sub("\\ufffd", text)', "pass"),
        ("<title>{escaped(self.title)}", "<title>{self.title}"),
        ("\\ud7ff\\ue000", "\\ud7ff\\ud800\\ue000"),
    ],
)
def test_words_that_break_a_picture_are_seen(right, wrong):
    broken = mutant("minigrad.pictures.drawing", (right, wrong))
    with pytest.raises((AssertionError, SyntaxError, UnicodeError)):
        for words in [[word] for word in HOSTILE]:
            words_are_drawn_as_they_are(broken, words)


def a_table_shows_its_rows(module, count: int) -> None:
    """Each row once and in order; of a long table the middle is left out, and it says how many rows are."""
    rows = [[module.Cell(f"row {i}", "#ffffff"), module.Cell(str(i * i))] for i in range(count)]
    got = shown(module.picture_of("title", ("name", "number"), rows, {1}, last="the end"))
    lines = [line for line in got.rows(2)]
    assert lines.pop() == ["the end"]
    left_out = [line for line in lines if "left out" in line[0]]
    numbers = [int(name.removeprefix("row ")) for name, _ in (line for line in lines if line not in left_out)]
    most = min(count, 40)
    first = most - most // 2
    expected = [*range(count)] if count <= 40 else [*range(first), *range(count - most // 2, count)]
    assert numbers == expected, f"rows {numbers} of {count}"
    assert all(int(line[1]) == int(line[0][4:]) ** 2 for line in lines if line not in left_out)
    said = [[f"\u2026 {count - 40:,} of {count:,} are left out"]] if count > 40 else []
    assert left_out == said, f"{left_out} of {count}"
    assert len(got.boxes) == most, f"{len(got.boxes)} boxes for {most} rows"


@pytest.mark.parametrize("count", [0, 1, 39, 40, 41, 42, 1000])
def test_a_table_shows_its_rows(count):
    a_table_shows_its_rows(table, count)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("if number != before + 1:", "if number > before + 2:"),
        ("number - before - 1:,} of", "number - before:,} of"),
        ("ends_of(len(rows), MOST_ROWS)", "range(len(rows))"),
        ("y += LINE\n            places", "places"),
        ("{i: rows[i] for i in", "{i: rows[0] for i in"),
    ],
)
def test_a_wrong_table_is_seen(right, wrong):
    broken = mutant("minigrad.pictures.table", (right, wrong))
    with pytest.raises((AssertionError, ValueError)):
        for count in (1, 41, 1000):
            a_table_shows_its_rows(broken, count)


@given(text=st.text(max_size=200), most=st.integers(2, 100))
def test_a_text_that_is_cut_keeps_its_ends(text, most):
    cut, line = drawing.cut(text, most), " ".join(text.split())
    assert len(cut) == min(len(line), most)
    before, mark, after = cut.partition("\u2026")
    assert cut == line or mark and line.startswith(before) and line.endswith(after)


def test_a_drawing_covers_what_it_holds():
    picture = Drawing("empty")
    picture.box(50, 60, 70, 80, "white")
    picture.arc(30, 10, 40, 20)
    assert shown(picture.svg()).boxes == [(50, 60, 120, 140)]
