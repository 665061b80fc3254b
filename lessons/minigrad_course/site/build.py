"""``minigrad site build``: the site mirrors the tree, with a page for each file that another page names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from html import unescape
from pathlib import Path, PurePosixPath
from time import perf_counter

from .. import ROOT
from ..grading.assignment import graded_folders, order_of
from ..lesson.lessons import Lesson
from ..lesson.lessons import lessons as all_lessons
from . import lesson_page, module_page, pages
from .markdown import Markdown, code
from .notebook import notebook
from .recording import RESULT, Recording, record_of
from .seeded_bugs import SeededBugs
from .template import Link, Page, relative, render

ASSETS = Path(__file__).with_name("assets")
PACKAGES = ("minigrad", "backends", "lessons")
CLONE = ("tests", "benchmarks", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CITATION.cff")
PRIVATE = re.compile(r"answers\.py|instructor\.md|solved_\w+\.py|.*\.pyc|__pycache__|runs")
PICTURES, TEXTS = (".png", ".svg"), (".py", ".md", ".toml", ".json", ".cff")
INDEX = "assets/search.js"
EXPLORABLES = {
    "reduce": ("05",),
    "pipeline": ("13",),
    "bytes": ("03", "15"),
    "memory": ("03", "15"),
    "ring": ("17",),
}
Explorables = Callable[[], dict[str, str]]
HEADING = re.compile(r'<h[123](?: id="([^"]+)")?>(.*?)</h[123]>', re.DOTALL)
INVISIBLE = re.compile(r'<(script|style|pre|nav|details class="source")\b.*?</\1>|<[^>]+>', re.DOTALL)


class Site:
    """The pages and files of a site, by URL.

    ``root`` is the tree, or the folder of the packages; ``explorable_texts`` are by file name.
    """

    def __init__(
        self,
        root: Path,
        known: list[Lesson],
        recordings: dict[str, Recording],
        explorable_texts: dict[str, str],
    ) -> None:
        self.root, self.known, self.recordings, self.explorable_texts = (
            root,
            known,
            recordings,
            explorable_texts,
        )
        self.tops = PACKAGES + (CLONE if (root / "pyproject.toml").is_file() else ())
        self.pages: dict[str, Page] = {}
        self.files: dict[str, bytes] = {}
        self.queue: list[PurePosixPath] = []

    def url_of(self, path: PurePosixPath) -> str | None:
        """The URL of a file or folder of the tree; None for what the site does not show."""
        file = self.root / path
        if not file.exists() or path.parts[:1] and path.parts[0] not in self.tops:
            return None
        if not path.parts or any(PRIVATE.fullmatch(part) for part in path.parts):
            return None
        if file.is_dir():
            own = "lesson.html" if (file / "lesson.py").is_file() else "index.html"
            return (path / own).as_posix()
        if path.suffix in PICTURES:
            return path.as_posix()
        if path.name == "README.md" and len(path.parts) > 1:
            return path.with_name("index.html").as_posix()
        return path.with_suffix(".html").as_posix() if path.suffix in TEXTS else None

    def resolver(self, page: str, folder: PurePosixPath) -> Callable[[str], str | None]:
        """What finds the pages for paths in a text of ``folder``; a path from the root begins with "/"."""

        def resolve(path: str) -> str | None:
            file = (self.root / folder / path).resolve() if not path.startswith("/") else self.root / path[1:]
            if not file.is_relative_to(self.root):
                return None
            target = PurePosixPath(file.relative_to(self.root).as_posix())
            url = self.url_of(target)
            if url is not None:
                self.queue.append(target)
            return None if url is None else relative(url, page)

        return resolve

    def markdown(self, page: str, folder: PurePosixPath | None = None) -> Markdown:
        return Markdown(self.resolver(page, folder or PurePosixPath(page).parent))

    def add(self, page: Page) -> None:
        self.pages[page.url] = page

    def follow(self) -> None:
        """Make the pages that other pages name, until there is none left."""
        while self.queue:
            path = self.queue.pop()
            url = self.url_of(path)
            if url is not None and url not in self.pages and url not in self.files:
                self.make(path, url)

    def make(self, path: PurePosixPath, url: str) -> None:
        """The page for one file or folder."""
        file = self.root / path
        markdown = self.markdown(url, path if file.is_dir() else path.parent)
        if file.is_dir() and (file / "README.md").is_file():
            self.make(path / "README.md", url)
        elif file.is_dir():
            entries = sorted(
                PurePosixPath(entry.relative_to(self.root).as_posix()) for entry in file.iterdir()
            )
            entries = [(entry, markdown.resolve("/" + entry.as_posix())) for entry in entries]
            links = [(Link(link, entry.name), self.sentence(entry)) for entry, link in entries if link]
            self.add(Page(url, f"{path}/", pages.listing(f"{path}/", links), searched=False))
        elif path.suffix in PICTURES:
            self.files[url] = without_fonts(file)
        elif path.suffix == ".md":
            body = markdown.render(file.read_text(encoding="utf-8"))
            title = words_of(body.partition("</h1>")[0]) or path.name
            self.add(Page(url, title, body, self.area(path)))
        elif path.suffix == ".py":
            text = file.read_text(encoding="utf-8")
            title, body = module_page.dotted(path), module_page.body(path, text, markdown)
            own = path.parts[0] in ("minigrad", "backends")
            beside = module_page.contents(text, url)
            self.add(Page(url, title, body, "library.html" if own else "", beside, searched=own))
        else:
            text = code(file.read_text(encoding="utf-8"), path.suffix[1:])
            self.add(Page(url, path.name, f"<h1>{path}</h1>\n{text}", searched=False))

    def sentence(self, path: PurePosixPath) -> str:
        file = self.root / path
        return module_page.summary(file.read_text(encoding="utf-8")) if path.suffix == ".py" else ""

    def area(self, path: PurePosixPath) -> str:
        """The page of the navigation that a text belongs to."""
        areas = {
            "assignments": "lessons/assignments/index.html",
            "teaching": "teach.html",
            "benchmarks": "benchmarks/index.html",
        }
        return next((areas[part] for part in path.parts if part in areas), "")

    # The pages that gather

    def add_lessons(self) -> None:
        names = [f"{lesson.number}. {lesson.title.partition(':')[0]}" for lesson in self.known]
        urls = [f"lessons/{lesson.file.parent.name}/lesson.html" for lesson in self.known]
        turns = [None, *map(Link, urls, names), None]
        for i, lesson in enumerate(self.known):
            folder, url = PurePosixPath("lessons") / lesson.file.parent.name, urls[i]
            recording = self.recordings[lesson.file.parent.name]
            body = lesson_page.body(lesson.file, recording, self.markdown(url))
            for explorable in self.explorables():
                if lesson.number in lessons_of(explorable.url):
                    link = f'<a href="{relative(explorable.url, url)}">{explorable.text}</a>'
                    body = body.replace(
                        '<p class="note">', f'<p class="play">Play with it: {link}</p><p class="note">', 1
                    )
            sections = [Link(f"{url}#{name}", words) for name, words in headings(body)]
            self.add(Page(url, names[i], body, "lessons/index.html", sections, turns[i], turns[i + 2]))
            self.files[f"{folder}/lesson.py"] = lesson.file.read_bytes()
            self.files[f"{folder}/lesson_{lesson.number}.ipynb"] = notebook(lesson.file).encode()
            for output in recording.outputs:
                for path in output.pictures:
                    self.files[f"{folder}/figures/{Path(path).name}"] = (recording.folder / path).read_bytes()
        url = "lessons/index.html"
        self.add(Page(url, "Lessons", pages.lessons(self.known, self.recordings, self.readme(url)), url))
        self.add(
            Page(
                "pictures.html", "All pictures", pages.pictures(self.known, self.recordings), "pictures.html"
            )
        )

    def readme(self, url: str) -> str:
        """The text of the README beside a page, below the page's own heading; "" where there is none."""
        file = self.root / PurePosixPath(url).with_name("README.md")
        return self.markdown(url).render(file.read_text(encoding="utf-8"), lowest=2) if file.is_file() else ""

    def add_library(self) -> None:
        modules: dict[str, list[tuple[Link, str]]] = {}
        resolve = self.resolver("library.html", PurePosixPath())
        for top in ("minigrad", "backends"):
            for file in sorted((self.root / top).rglob("*.py")):
                path = PurePosixPath(file.relative_to(self.root).as_posix())
                if url := resolve("/" + path.as_posix()):
                    package = module_page.dotted(path.parent / "__init__.py")
                    modules.setdefault(package, []).append(
                        (Link(url, module_page.dotted(path)), self.sentence(path))
                    )
        self.add(Page("library.html", "Library", pages.library(modules), "library.html"))

    def explorables(self) -> list[Link]:
        """The explorables' pages, by their titles."""
        return [Link(f"explorables/{name}", title_of(text)) for name, text in self.explorable_texts.items()]

    def add_explorables(self) -> None:
        for name, text in self.explorable_texts.items():
            url = f"explorables/{name}"
            lessons = [lesson for lesson in self.known if lesson.number in lessons_of(url)]
            self.files[url] = with_way_back(text, url, lessons).encode()
        if self.explorable_texts:
            entries = [(link, f"(lesson {', '.join(lessons_of(link.url))})") for link in self.explorables()]
            opening = (
                "<p>Each is one page without a server; the numbers are those that minigrad computes.</p>"
            )
            body = pages.listing("Play with it", entries, opening)
            self.add(Page("explore.html", "Play with it", body, "explore.html"))

    def add_assignments(self) -> None:
        url = "lessons/assignments/index.html"
        folder = PurePosixPath(url).parent
        files = sorted((self.root / folder).glob("a[0-9]*/README.md"), key=lambda file: order_of(file.parent))
        resolve = self.resolver(url, folder)
        links = [(resolve(file.parent.name), first_heading(file).partition(": ")) for file in files]
        cards = [
            (Link(link, what[:1].upper() + what[1:]), number) for link, (number, _, what) in links if link
        ]
        self.add(Page(url, "Assignments", pages.assignments(cards, self.readme(url)), url))

    def add_teaching(self) -> None:
        folder = PurePosixPath("lessons/teaching")
        files = sorted((self.root / folder).glob("*.md"))
        texts = [folder / file.name for file in files] + [
            PurePosixPath(name)
            for name in ("lessons/assignments/README.md", "CONTRIBUTING.md", "SECURITY.md")
        ]
        resolve = self.resolver("teach.html", PurePosixPath())
        known = [(path, resolve("/" + path.as_posix())) for path in texts]
        entries = [(Link(url, first_heading(self.root / path)), "") for path, url in known if url]
        if "bugs.html" in self.pages:
            entries.append(
                (Link("bugs.html", "Seeded bugs"), "and the laws that catch them: good for a lecture.")
            )
        self.add(Page("teach.html", "Teach", pages.listing("Teach with it", entries), "teach.html"))

    def add_bugs(self, bugs: list[dict]) -> None:
        if bugs:
            body = pages.bugs(bugs, self.markdown("bugs.html"))
            self.add(Page("bugs.html", "Seeded bugs", body, "bugs.html"))

    def add_start(self) -> None:
        graded = len(graded_folders(self.root / "lessons" / "assignments"))
        doors = [
            (
                Link("lessons/index.html", "Learn"),
                "Nineteen lessons that compute, draw and assert, with questions to predict.",
            ),
            (Link("teach.html", "Teach"), f"{graded} graded assignments; a class is graded in one command."),
            (
                Link("library.html", "Build"),
                "Each strategy is one file; add yours, and let the law judge it.",
            ),
        ]
        proof = self.files["assets/proof.svg"] = without_fonts(
            self.root / "lessons" / "pictures" / "proof.svg"
        )
        body = pages.start(doors, self.explorables(), proof)
        self.add(Page("index.html", "Parallel training, proved", body, "index.html"))

    def navigation(self) -> list[Link]:
        urls = {
            "lessons/index.html": "Lessons",
            "lessons/assignments/index.html": "Assignments",
            "explore.html": "Play",
            "pictures.html": "Pictures",
            "bugs.html": "Bugs",
            "benchmarks/index.html": "Speed",
            "library.html": "Library",
            "teach.html": "Teach",
        }
        return [Link(url, text) for url, text in urls.items() if url in self.pages]

    def write(self, folder: Path) -> None:
        """Write all pages and files; ``folder`` is new or empty."""
        navigation = self.navigation()
        contents = {url: render(page, navigation).encode() for url, page in self.pages.items()}
        contents |= self.files | {
            f"assets/{file.name}": file.read_bytes() for file in ASSETS.iterdir() if file.is_file()
        }
        index = json.dumps(list(self.index()), ensure_ascii=False, separators=(",", ":"))
        contents[INDEX] = f"window.searchIndex = {index};\n".encode()
        for url, content in sorted(contents.items()):
            (folder / url).parent.mkdir(parents=True, exist_ok=True)
            (folder / url).write_bytes(content)

    def index(self) -> Iterator[tuple[str, str, str, str]]:
        """For each section that is searched: its URL, the page's title, the heading, and the text."""
        for url, page in sorted(self.pages.items()):
            if not page.searched:
                continue
            heads = list(HEADING.finditer(page.body))
            for head, following in zip(heads, [*heads[1:], None], strict=True):
                text = page.body[head.end() : following.start() if following else len(page.body)]
                place = f"{url}#{head[1]}" if head[1] else url
                yield place, page.title, words_of(head[2]), words_of(text)[:1500]


def words_of(html: str) -> str:
    """The words that a reader sees, without code, in one line."""
    return " ".join(unescape(INVISIBLE.sub(" ", html)).split())


def headings(body: str) -> list[tuple[str, str]]:
    """The ids and words of the headings of level 2."""
    known = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body, re.DOTALL)
    return [(name, words_of(words)) for name, words in known]


def lessons_of(explorable: str) -> tuple[str, ...]:
    return next((numbers for word, numbers in EXPLORABLES.items() if word in explorable), ())


def with_way_back(page: str, url: str, lessons: Iterable[Lesson]) -> str:
    """An explorable's page with links to its lessons above its title."""
    targets = {one.number: relative(f"lessons/{one.file.parent.name}/lesson.html", url) for one in lessons}
    links = ", ".join(f'<a href="{target}">lesson {number}</a>' for number, target in targets.items())
    return page.replace("<h1>", f'<p class="quiet">Back to {links}</p>\n<h1>', 1) if links else page


def title_of(page: str) -> str:
    match = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    return unescape(" ".join(match[1].split())) if match else ""


def first_heading(file: Path) -> str:
    return next(
        (line[2:] for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("# ")),
        file.stem,
    )


def without_fonts(file: Path) -> bytes:
    """A picture; without the fonts from a foreign host that rich names in its SVG files."""
    content = file.read_bytes()
    return (
        re.sub(rb"@font-face \{.*?\}\s*", b"", content, flags=re.DOTALL) if file.suffix == ".svg" else content
    )


def explorable_pages() -> dict[str, str]:
    """The explorables, by the names of their files; loaded here, since they compute their numbers."""
    from ..explorables.pages import pages as explorables

    return explorables()


def check_folder(folder: Path) -> None:
    """Raise ValueError unless ``folder`` is new, empty, or an earlier site."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not (folder / INDEX).is_file():
        raise ValueError(f"{folder} is not empty and holds no site; name a new folder")


def build(
    folder: Path,
    records: Path,
    say: Callable[[str], None],
    root: Path = ROOT,
    explorables: Explorables | None = None,
) -> list[str]:
    """Run what has not been recorded, and write the site into ``folder``, whole or not at all.

    ``say`` gets a line for each step, and first what there will be no page of, and why. Returns the URLs of
    the pages. Raises ValueError for a folder that holds something else, and RuntimeError for a lesson that
    fails.
    """
    check_folder(folder)
    bugs = SeededBugs(root, records)
    if (missing := bugs.missing()) is not None:
        say(f"note: no page of seeded bugs, which needs {missing}")
    known = all_lessons(root / "lessons")
    new = [lesson for lesson in known if not (record_of(lesson.file, records) / RESULT).is_file()]
    if new:
        say(f"{len(new)} of {len(known)} lessons have no record yet: each runs once, for up to two minutes")
    recordings = {}
    for number, lesson in enumerate(known, 1):
        start = perf_counter()
        if lesson in new:
            say(f"lesson {number} of {len(known)}: {lesson.title.partition(':')[0]}")
        recordings[lesson.file.parent.name] = Recording.load(lesson.file, records)
        if lesson in new:
            say(f"  ran in {perf_counter() - start:.0f} s")
    say("explorables")
    site = Site(root, known, recordings, (explorables or explorable_pages)())
    site.add_lessons()
    site.add_library()
    if missing is None:
        site.add_bugs(bugs.load(say))
    site.add_teaching()
    site.add_explorables()
    site.add_assignments()
    site.resolver("index.html", PurePosixPath())("benchmarks/README.md")
    site.add_start()
    say("pages")
    site.follow()
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        site.write(part)
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sorted(site.pages)
