"""Laws of lessons/minigrad_course/explorables/pages.py: the finished pages, and what they do in Chromium,
where there are Chromium and Playwright.
"""

import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from minigrad_course.explorables.allreduce_record import allreduce_data
from minigrad_course.explorables.byte_table import byte_data
from minigrad_course.explorables.pages import FOLDER, pages, text_of
from minigrad_course.explorables.ring_table import ring_data
from minigrad_course.explorables.schedule_tables import workshop_data

from backends.comm.chrome import chrome_trace
from backends.pipeline import SCHEDULES, Costs, simulate
from backends.pipeline.trace import as_trace
from tests.minigrad_course.explorables.node import pasted

LIMIT = 100_000  # bytes of a page
DATA = {
    "pipeline.html": workshop_data,
    "allreduce.html": allreduce_data,
    "bytes.html": byte_data,
    "ring.html": ring_data,
}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTHS, SCHEMES = (1200, 360), ("light", "dark")


@pytest.fixture(scope="module")
def texts():
    return pages()


class Frame(HTMLParser):
    """The tags of a page, and the text of its data."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.data, self.inside = [], "", False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("type") == "application/json"

    def handle_data(self, data):
        self.data += data if self.inside else ""


def test_a_page_is_one_small_file_that_asks_for_no_other(texts):
    assert list(texts) == list(DATA)
    for name, text in texts.items():
        assert len(text.encode()) < LIMIT, f"{name} has {len(text.encode()):,} bytes"
        frame = Frame(text)
        assert not [tag for tag, a in frame.tags if {"src", "srcset"} & a.keys() or tag in ("link", "iframe")]
        assert not re.search(r"^\s*(import|export)\b|\bfetch\(|\bimport\(|@import", text, re.MULTILINE)
        assert not re.search(r"url\((?!#)|\{\{", text)
        assert ("html", {"lang": "en"}) in frame.tags and "noscript" in dict(frame.tags)


def test_a_page_has_the_data_that_python_computes(texts):
    for name, data in DATA.items():
        assert json.loads(Frame(texts[name]).data) == json.loads(json.dumps(data()))


def test_pages_are_the_same_each_time(texts):
    assert pages() == texts


def test_no_name_stands_twice_in_a_joined_script():
    for name in DATA:
        text = text_of(name.replace(".html", ".mjs"))
        names = re.findall(r"^(?:const|let|function|async function|class) (\w+)", text, re.MULTILINE)
        twice = {one for one in names if names.count(one) > 1}
        assert names and not twice, f"{name}: {twice}"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colors_can_be_read_on_their_backgrounds(scheme):
    style = (FOLDER / "explorable.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): (?:light-dark\((#\w{6}), )?(#\w{6})", style)
    colors = {name: light if light and scheme == "light" else dark for name, light, dark in pairs}
    readable = [
        (ink, ground) for ink in ("ink", "quiet", "link", "bad", "good") for ground in ("paper", "area")
    ]
    readable += [
        ("on-forward", "forward"),
        ("on-light", "backward"),
        ("on-light", "weight"),
        ("paper", "link"),
    ]
    for ink, ground in readable:
        assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)


def contrast(one, other):
    """WCAG 2's ratio of two colors."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# In Chromium


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with playwright.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, texts, tmp_path):
    """Opens a page from file://; afterwards it must have said nothing and asked for nothing."""
    faults, contexts = [], []

    def open_page(name, width=1200, scheme="light", **settings):
        (tmp_path / name).write_text(texts[name], encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, **settings
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request", lambda r: faults.append(r.url) if not r.url.startswith(("file:", "data:")) else None
        )
        page.goto((tmp_path / name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


@pytest.mark.parametrize("name", DATA)
def test_a_page_opens_at_each_width_and_in_the_dark(opened, name):
    for width in WIDTHS:
        for scheme in SCHEMES:
            page = opened(name, width, scheme)
            assert page.locator("#app").is_visible() and page.locator("svg").first.is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            unnamed = "fields => fields.filter((one) => !one.labels.length && !one.ariaLabel).length"
            assert page.eval_on_selector_all("input, select", unnamed) == 0


@pytest.mark.parametrize("name", DATA)
def test_a_page_says_something_without_javascript(opened, name):
    page = opened(name, java_script_enabled=False)
    assert "needs JavaScript" in page.inner_text("body")
    assert not page.locator("#app").is_visible()


def piece(page, rank, at):
    return page.locator(f'.piece[data-rank="{rank}"][data-at="{at}"]')


def test_the_workshop_from_a_schedule_to_a_proof(opened, tmp_path):
    page = opened("pipeline.html", permissions=["clipboard-read", "clipboard-write"])
    page.select_option("#ranks", "2")
    page.select_option("#micro", "3")
    page.select_option("#schedule", "1f1b")
    verdict = page.locator("#verdict")
    assert "no rank waits for ever" in verdict.inner_text()
    assert "This is 1f1b" in page.inner_text("#about")

    piece(page, 1, 1).click()  # the first backward of rank 1, before its forward
    page.keyboard.press("Shift+ArrowLeft")
    assert verdict.inner_text() == (
        "✗ schedule mine of 2 ranks: rank 1: Backward(micro=0, chunk=0) comes before "
        "Forward(micro=0, chunk=0); take it forward first"
    )
    page.click("#undo")
    assert "no rank waits for ever" in verdict.inner_text()

    before = page.inner_text("#score")
    piece(page, 0, 4).click()  # on rank 0 the weights of B1 apart, and last
    assert piece(page, 0, 4).get_attribute("aria-label").startswith("rank 0, backward of micro-batch 1")
    page.keyboard.press("s")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert "✓" in verdict.inner_text() and page.inner_text("#score") != before

    page.click("#copy")
    page.get_by_text("Copied: paste it into a terminal.").wait_for()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("cat > mine.json <<'END'\n") and '"F0 F1 B0 F2 B1 B2 W1"' in command
    done = pasted(command, tmp_path)
    assert done.returncode == 0 and "PROVED" in done.stdout, done.stderr


def test_an_empty_board_is_filled_from_the_keyboard(opened):
    page = opened("pipeline.html")
    page.select_option("#task", "1")
    assert "Forward(micro=0, chunk=0) is missing" in page.inner_text("#verdict")
    piece(page, 0, 0).focus()
    for rank in range(2):
        for key in ("f", "f", "b", "b") if rank == 0 else ("f", "b", "f", "b"):
            page.keyboard.press(key)
        page.keyboard.press("ArrowDown")
    assert "That is par." in page.inner_text("#verdict")
    page.keyboard.press("Control+z")
    assert "✗" in page.inner_text("#verdict")
    page.keyboard.press("Control+y")
    assert "✓" in page.inner_text("#verdict")


def test_a_bar_is_dragged(opened):
    page = opened("pipeline.html")
    box, target = (piece(page, 0, at).bounding_box() for at in (0, 2))
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(target["x"] + target["width"], target["y"] + 5)
    page.mouse.up()
    assert '"F1 F2 F0 F3' in page.inner_text("#command")


def test_a_memory_cap_and_a_schedule_file(opened, tmp_path):
    page = opened("pipeline.html")
    page.select_option("#schedule", "gpipe")
    page.fill("#cap", "3")
    words = "makes 4 micro-batches in flight; the bound given is 3: finish one first"
    assert words in page.inner_text("#verdict")
    (tmp_path / "own.json").write_text(
        '{"micro": 2, "ranks": ["F0 F1 B0 B1", "F0 B0 F1 B1"]}', encoding="utf-8"
    )
    (tmp_path / "bad.json").write_text('{"micro": 2, "ranks": ["F0 X1", "F0"]}', encoding="utf-8")
    for name, words in (
        ("own", "own.json is on the board."),
        ("bad", "X1 is no instruction such as F0, B3/1"),
    ):
        page.set_input_files("#open", str(tmp_path / f"{name}.json"))
        page.get_by_text(words).wait_for()
        assert page.input_value("#ranks") == "2" and "✓" in page.inner_text("#verdict")
    page.select_option("#ranks", "3")
    page.select_option("#schedule", "chimera")
    assert "it needs an even number of ranks, got 3; take 2 or 4" in page.inner_text("#about")


def test_a_run_is_drawn_below_the_plan_and_lends_it_its_seconds(opened, tmp_path):
    page = opened("pipeline.html")
    page.select_option("#ranks", "2")
    page.select_option("#micro", "2")
    simulated = simulate(SCHEDULES["1f1b"].of(2, 2), Costs([1, 2], [2, 4]))
    notes = {"schedule": "1f1b", "micro_batches": 2, "chunks": 1, "ranks": [[0, 1]]}
    (tmp_path / "run.json").write_text(
        json.dumps(chrome_trace(as_trace(simulated, 1e-3), {"pipeline": notes})), encoding="utf-8"
    )
    page.set_input_files("#trace", str(tmp_path / "run.json"))
    page.get_by_text("a step of median length: 15.00 ms, 40.0 % of the time idle").wait_for()
    assert page.locator("#run rect").count() == 8
    page.click("#seconds")
    values = page.eval_on_selector_all("#costs input", "fields => fields.map((one) => one.value)")
    assert values == ["0.5", "1", "1", "2", "0", "0", "0"]
    assert "Makespan\n7.5" in page.inner_text("#score")  # a run of 15 ms, half a second for each
    (tmp_path / "own.json").write_text("{}", encoding="utf-8")
    page.set_input_files("#trace", str(tmp_path / "own.json"))
    page.get_by_text("own.json cannot be drawn: it is no trace of a pipeline").wait_for()


def test_a_lost_message_stops_the_player_or_spoils_its_sum(opened):
    page = opened("allreduce.html")
    page.click("#next")
    page.locator("#messages button").first.click()
    page.click("#fate-lost")
    assert "They wait in a circle: 0 → 3 → 2 → 1 → 0." in page.inner_text("#verdict")
    assert page.locator(".arrow.wait").count() == 4
    page.click("#fate-zeros")
    assert "has a wrong sum in part" in page.inner_text("#verdict") and page.locator(".cell.lacks").count()
    page.click("h1")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#verdict") == "After 6 rounds every rank has every number in every part."
    assert page.locator(".cell.in, .cell.new").count() == 4 * 16


def test_the_bytes_follow_the_choice(opened):
    page = opened("bytes.html")
    page.select_option("#data", "4")
    page.select_option("#zero", "3")
    whole, shared = (page.locator(f"#table tbody tr:nth-child({i}) td").first.inner_text() for i in (1, 2))
    assert (whole, shared) == ("828 KB", "207 KB")
    assert "--data 4 --strategy sharded --option stage=3" in page.inner_text("#command")
    page.select_option("#pipe", "4")
    page.select_option("#net", "mlp")  # three of its layers have parameters
    assert page.input_value("#pipe") == "3" and page.locator("#table tbody tr").count() == 4
    page.select_option("#data", "64")
    assert page.inner_text("#command").startswith("# 192 ranks are for a cluster")


def test_a_plain_row_becomes_zig_zag_by_keys_and_by_mouse(opened):
    page = opened("ring.html")
    verdict = page.locator("#verdict")
    assert "This is the plain order. The ring lasts 904 pairs; without waiting it would last 520." in (
        verdict.inner_text()
    )
    page.locator('.block[data-block="0"]').focus()
    for rank in "01233210":
        page.keyboard.press(rank)
        page.keyboard.press("ArrowDown")
    assert verdict.inner_text() == "This is the zig-zag order. No rank ever waits: 520 pairs."
    page.keyboard.press("Control+z")
    assert "your own order" in verdict.inner_text()
    row = page.locator('.block[data-block="7"] .row').bounding_box()
    target = page.locator('#ranks-to-give [data-rank="0"]').bounding_box()
    for box, act in ((row, page.mouse.down), (target, page.mouse.up)):
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        act()
    assert "zig-zag" in verdict.inner_text()


def test_messages_stick_out_from_some_bandwidth_on(opened):
    page = opened("ring.html")
    page.click("#order-zig-zag")
    for pairs, late in ((8, 0), (9, 3)):  # a tile has 16 * 16 / 2 pairs, or 8 more; a message is of 16 tokens
        page.fill("#message", str(pairs))
        assert page.locator(".message.out").count() == 4 * late
        words = f"In {late} of 3 steps the messages take longer"
        assert (words in page.inner_text("#verdict")) == bool(late)
    page.click("#order-striped")
    assert page.locator(".block").count() == 64
