"""Pages in Chromium, opened as files: what a reader would miss or not be able to read there."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
CONTRAST = 4.5  # WCAG 2.2, level AA
LARGE = 3.0  # of text of 24 pixels, or 18.66 in bold
WIDTHS = (1280, 360)

PREPARE = """() => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  for (const image of document.images) image.loading = "eager";
  for (const moving of document.getAnimations()) moving.finish();
}"""
LOADED = "() => [...document.images].every((image) => image.complete)"
MISSING = "() => [...document.images].filter((i) => !i.naturalWidth).map((i) => i.getAttribute('src'))"
PALE = """([contrast, large]) => {
  const numbers = (color) => (color.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const luminance = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = numbers(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pale = new Set();
  for (let node = words.nextNode(); node; node = words.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || !element.checkVisibility() || element.closest("svg, script, style")) continue;
    const style = getComputedStyle(element), size = parseFloat(style.fontSize);
    const pair = [luminance(numbers(style.color)), luminance(behind(element))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? large : contrast;
    if (ratio < least) pale.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return [...pale];
}"""
WIDE = """(width) => document.documentElement.scrollWidth <= width ? [] :
  [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > width)
  .slice(0, 3).map((e) => `${e.tagName}.${e.className}`)"""


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium of the system, without a network."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


def visit(chromium: Any, file: Path) -> list[str]:
    """What is wrong with the page: at each width in light and in dark."""
    context = chromium.new_context(viewport={"width": WIDTHS[0], "height": 800}, color_scheme="light")
    faults: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: said.type == "error" and faults.append(f"console: {said.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("request", lambda one: foreign(one.url) and faults.append(f"foreign request: {one.url}"))
    page.goto(file.as_uri())
    page.evaluate(PREPARE)
    with suppress(Exception):
        page.wait_for_function(LOADED, timeout=5_000)
    faults += [f"missing picture: {source}" for source in page.evaluate(MISSING)]
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 740})
        faults += [f"wider than {width}: {words}" for words in page.evaluate(WIDE, width)]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            faults += [f"pale in {scheme}: {words}" for words in page.evaluate(PALE, [CONTRAST, LARGE])]
    if page.query_selector("#main-text"):
        faults += keys(page)
    context.close()
    return list(dict.fromkeys(faults))


def keys(page: Any) -> Iterator[str]:
    """The first key leads to a link to the main text, and the second one follows it."""
    page.evaluate("() => { document.activeElement.blur(); window.scrollTo(0, 0); }")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    with suppress(Exception):
        page.wait_for_function("() => document.activeElement.id === 'main-text'", timeout=1_000)
    if page.evaluate("() => document.activeElement.id") != "main-text":
        yield "the keyboard does not reach the main text"


def foreign(url: str) -> bool:
    return not re.match(r"file:|data:|blob:|about:", url)
