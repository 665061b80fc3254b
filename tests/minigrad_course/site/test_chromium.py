"""Laws of lessons/minigrad_course/site/build.py and template.py: Chromium visits every page of a small
site, and of a whole one where MINIGRAD_SITE names its folder.

    minigrad site build runs/site
    MINIGRAD_SITE=runs/site pytest -n 0 -q tests/minigrad_course/site/test_chromium.py

Each fault that a reader would meet is planted once, and must be seen.
"""

import os
import shutil
from pathlib import Path

import pytest
from minigrad_course.site.build import build

from tests.minigrad_course.site.links import FIRST_SCREEN, faults, first_screen
from tests.minigrad_course.site.small_course import explorables, write_course
from tests.minigrad_course.site.visits import CHROMIUM, browser, visit

pytest.importorskip("playwright.sync_api", reason="no Playwright; pip install -e '.[site]'")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}")

LESSON = "lessons/01_first/lesson.html"
PLANTED = {
    "dead link": ("</h1>", '</h1><a href="nowhere.html">there</a>'),
    "dead anchor": ("</h1>", '</h1><a href="#nowhere">there</a>'),
    "missing picture": ('src="figures/line.png', 'src="figures/lost.png'),
    "has no alt": (' alt="', ' title="'),
    "console": ("</h1>", "</h1><script>console.error('oh')</script>"),
    "error: ": ("</h1>", "</h1><script>nothing.at.all()</script>"),
    "foreign request": ("</h1>", '</h1><img alt="" src="http://127.0.0.1:9/a.png">'),
    "pale in light": ("</h1>", '</h1><p style="color: #999">pale</p>'),
    "pale in dark": ("</h1>", '</h1><p style="color: #000">pale</p>'),
    "wider than 1280": ("</h1>", '</h1><p style="width: 1900px">wide</p>'),
    "wider than 360": ("</h1>", '</h1><p style="width: 500px">wide</p>'),
    "larger than": ("</h1>", f"</h1>{'<!-- -->' * (FIRST_SCREEN // 8)}"),
    "the keyboard does not reach": ('href="#main-text"', 'href="#top"'),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, if there is one, else a small one."""
    if folder := os.environ.get("MINIGRAD_SITE"):
        return Path(folder).resolve()
    course = write_course(tmp_path_factory.mktemp("course").resolve())
    build(course / "site", course / "records", lambda step: None, course, explorables)
    return course / "site"


@pytest.fixture(scope="module")
def chromium():
    with browser() as program:
        yield program


def faults_on(chromium, file, site):
    """What is wrong with a page, read and shown."""
    size = first_screen(file)
    large = [f"larger than {FIRST_SCREEN:,} bytes: {size:,}"] if size > FIRST_SCREEN else []
    return large + faults(file, site) + visit(chromium, file)


@pytest.mark.timeout(3600)  # a whole site has some 1,100 pages
def test_a_reader_meets_no_fault_on_any_page(site, chromium):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 10
    faulty = {}
    for file in pages:
        words = faults_on(chromium, file, site)
        print(f"{file.relative_to(site)}: {'; '.join(words) or 'ok'}", flush=True)
        faulty |= {file.relative_to(site).as_posix(): words} if words else {}
    assert not faulty


@pytest.mark.skipif("MINIGRAD_SITE" in os.environ, reason="on the small site")
@pytest.mark.parametrize("words", PLANTED)
def test_a_planted_fault_is_seen(site, chromium, tmp_path, words):
    copy = tmp_path.resolve() / "site"
    shutil.copytree(site, copy)
    file, (old, new) = copy / LESSON, PLANTED[words]
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert any(words in fault for fault in faults_on(chromium, file, copy))


@pytest.fixture
def page(site, chromium):
    if "MINIGRAD_SITE" in os.environ:
        pytest.skip("on the small site")
    page = chromium.new_context().new_page()
    page.goto((site / LESSON).as_uri())
    yield page
    page.context.close()


def test_the_search_finds_a_page_by_keys_alone(page):
    page.keyboard.press("/")
    page.keyboard.type("square")
    page.wait_for_selector(".results a")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/minigrad/one.html#square")


def test_an_answer_opens_after_a_prediction(page):
    question = page.locator(".question")
    question.locator("summary").click()
    assert not question.locator("details").get_attribute("open")
    assert "Predict first" in question.inner_text()
    question.locator("input[value=a]").check()
    question.locator("summary").click()
    question.locator("label.right").wait_for()
    assert "twice 2 is 4" in question.inner_text()
    assert question.locator("label.wrong").count() == question.locator("label.right").count() == 1


def keeps_what_a_reader_did(page, site):
    """The prediction is written into the program and kept; so are the parts that were read."""
    page.goto((site / LESSON).as_uri())
    page.locator(".question input[value=a]").check()
    assert 'PREDICTION_1 = "a"' in page.locator(".question pre").first.inner_text()
    page.reload()
    assert 'PREDICTION_1 = "a"' in page.locator(".question pre").first.inner_text()
    page.locator("#questions").evaluate("(heading) => heading.scrollIntoView({ block: 'center' })")
    page.locator(".beside a.seen").first.wait_for()
    page.evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
    page.locator(".beside a.seen", has_text="Questions").wait_for()
    page.goto((site / "lessons" / "index.html").as_uri())
    progress = page.locator(".progress").all_inner_texts()
    assert progress == ["2 of 2 parts read, 1 of 1 questions answered"]


def test_what_a_reader_did_is_kept(page, site):
    keeps_what_a_reader_did(page, site)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('place.textContent = `"${choice().value}"`', "place"),
        ("    keep();\n    write();", "    write();"),
        ("own.answers[input.name] === input.value", "false"),
        ("ends[i] > 0 && ends[i] < innerHeight", "false"),
        ("card.append(line);", ""),
    ],
)
def test_a_broken_script_is_seen(page, site, tmp_path, right, wrong):
    copy = tmp_path.resolve() / "site"
    shutil.copytree(site, copy)
    script = copy / "assets" / "site.js"
    text = script.read_text(encoding="utf-8")
    assert text.count(right) == 1
    script.write_text(text.replace(right, wrong), encoding="utf-8")
    page.set_default_timeout(2_000)
    with pytest.raises(Exception, match=r"assert|Timeout"):
        keeps_what_a_reader_did(page, copy)


def test_the_contents_mark_where_the_reader_is(page):
    assert page.locator(".beside a[aria-current]").count() == 0
    page.locator("#questions").evaluate("(heading) => heading.scrollIntoView()")
    page.locator(".beside a[aria-current]", has_text="Questions").wait_for()
    assert page.locator("header").bounding_box()["y"] == 0, "the header stays"


def test_a_page_works_without_storage(site, chromium):
    if "MINIGRAD_SITE" in os.environ:
        pytest.skip("on the small site")
    page = chromium.new_context().new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })"
    page.add_init_script(refuse)
    page.goto((site / LESSON).as_uri())
    page.locator(".question input[value=b]").check()
    page.locator("button.theme").click()
    assert 'PREDICTION_1 = "b"' in page.locator(".question pre").first.inner_text() and not errors
    page.context.close()


def test_the_schedule_turns_green_or_is_green_at_once(site, chromium):
    """What fills a forward: at first blue, in the end green; without motion green from the start."""
    if "MINIGRAD_SITE" in os.environ:
        pytest.skip("on the small site")
    color = "() => getComputedStyle(document.querySelector('.schedule .F rect')).fill"
    colors = []
    for motion in ("no-preference", "reduce"):
        page = chromium.new_context(reduced_motion=motion).new_page()
        page.goto((site / "index.html").as_uri())
        colors.append(page.evaluate(color))
        page.evaluate("() => document.getAnimations().forEach((moving) => moving.finish())")
        colors.append(page.evaluate(color))
        page.context.close()
    blue, green, *still = colors
    assert blue != green and still == [green, green]


def test_dark_is_remembered_by_the_next_page(page, site):
    def background():
        return page.evaluate("() => getComputedStyle(document.body).backgroundColor")

    light = background()
    page.locator("button.theme").click()
    dark = background()
    page.goto((site / "index.html").as_uri())
    assert light != dark == background()
