"""A picture as a browser reads it: what it says, where, and whether a notebook may show it."""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

NAMESPACE = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "title", "rect", "text", "path"}
ATTRIBUTES = {
    *("width", "height", "viewBox", "role", "font-family", "font-size", "font-weight"),
    *("x", "y", "rx", "fill", "stroke", "text-anchor", "d"),
}
MOST_LETTERS = 90_000  # of the whole text


class Box(NamedTuple):
    """A rectangle, by its corners."""

    left: float
    top: float
    right: float
    bottom: float


class Shown(NamedTuple):
    """The title of a picture, the words of each line in order, its boxes, and where its curves end."""

    title: str
    lines: dict[float, list[str]]
    boxes: list[Box]
    curves: list[tuple[float, float]]

    def rows(self, first: int) -> list[list[str]]:
        """The lines from number ``first`` on, each as its words."""
        return [self.lines[y] for y in sorted(self.lines)][first:]

    def words(self) -> list[str]:
        return [word for line in self.lines.values() for word in line]


def shown(svg: str) -> Shown:
    """What an SVG shows; AssertionError unless it is whole, bounded, and has only words and plain shapes."""
    assert len(svg) <= MOST_LETTERS, f"the picture has {len(svg)} letters"
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    title, *others = root.findall(f"{NAMESPACE}title")
    assert not others and title.text, "a picture has one title"
    lines: dict[float, list[tuple[float, str]]] = {}
    boxes, curves = [], []
    for element in root.iter():
        tag = element.tag.removeprefix(NAMESPACE)
        assert tag in TAGS, f"a notebook gets a <{tag}>"
        foreign = element.attrib.keys() - ATTRIBUTES
        assert not foreign, f"a <{tag}> has {foreign}"
        assert not any("url(" in value or "//" in value for value in element.attrib.values())
        x, y = (float(element.get(name, "0")) for name in "xy")
        assert 0 <= x <= width and 0 <= y <= height, f"a <{tag}> lies outside of the picture"
        if tag == "text":
            lines.setdefault(y, []).append((x, element.text or ""))
        elif tag == "rect":
            box = Box(x, y, x + float(element.attrib["width"]), y + float(element.attrib["height"]))
            assert box.right <= width and box.bottom <= height, "a box ends outside of the picture"
            boxes.append(box)
        elif tag == "path":
            start, *_, end = element.attrib["d"].replace("C", " ").removeprefix("M").split(" ")[1::2]
            curves.append((float(start), float(end)))
    paper = boxes.pop(0)
    assert paper == (0, 0, width, height), "a picture brings its paper, for pages that are dark"
    return Shown(title.text, {y: [word for _, word in words] for y, words in lines.items()}, boxes, curves)
