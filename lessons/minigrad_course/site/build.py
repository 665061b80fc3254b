"""``minigrad site build``: the site mirrors the tree, with a page for each file that another page names."""

from __future__ import annotations

import ast
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from html import escape, unescape
from pathlib import Path, PurePosixPath
from time import perf_counter

from .. import ROOT
from ..grading.assignment import graded_folders, order_of
from ..lesson.lessons import Lesson
from ..lesson.lessons import lessons as all_lessons
from . import lesson_page, module_page, pages
from .markdown import Markdown, anchor, code
from .notebook import notebook
from .public_names import API, parsed, public_names
from .recording import RESULT, Recording, record_of
from .schedule_picture import schedule_picture
from .seeded_bugs import SeededBugs
from .template import Link, Page, relative, render

ASSETS = Path(__file__).with_name("assets")
PACKAGES = ("minigrad", "backends", "lessons")
CLONE = ("tests", "benchmarks", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CITATION.cff")
PRIVATE = re.compile(r"answers\.py|instructor\.md|solved_\w+\.py|.*\.pyc|__pycache__|runs")
PICTURES, TEXTS = (".png", ".svg"), (".py", ".md", ".toml", ".json", ".cff")
INDEX = "assets/search.js"
GUIDE = {"README.md": "First steps", "backends/README.md": "Commands, clusters and settings"}
LESSON = 3.0
WEIGHTS = {
    "README.md": 3,
    "backends/README.md": 3,
    "lessons/minigrad_course": 0.5,
    "lessons/": 1.2,
    "tests/": 0,
    "CHANGELOG.md": 0.5,
    "": 1,
}
"""How much a text counts in the search, by the beginning of its path: lessons, guide and assignments most."""
Explorables = Callable[[], dict[str, str]]
HEADING = re.compile(r'<h(?P<level>[123])(?: id="(?P<name>[^"]+)")?>(?P<words>.*?)</h[123]>', re.DOTALL)
FIRST_CELL = re.compile(r"<tr>\s*<td>(.*?)</td>", re.DOTALL)
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
        self.public = public_names(root)
        files = (file for top in PACKAGES[:2] for file in sorted((root / top).rglob("*.py")))
        nodes = (node for file in files for node in parsed(file).body)
        self.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
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
            self.add(Page(url, f"{path}/", pages.listing(f"{path}/", links), weight=0))
        elif path.suffix in PICTURES:
            self.files[url] = without_fonts(file)
        elif path.suffix == ".md":
            body = markdown.render(file.read_text(encoding="utf-8"))
            title = GUIDE.get(str(path)) or words_of(body.partition("</h1>")[0]) or path.name
            sections = [Link(f"{url}#{name}", words) for name, words in headings(body)]
            weight = next(weight for start, weight in WEIGHTS.items() if str(path).startswith(start))
            self.add(Page(url, title, body, self.area(path), sections[3:] and sections, weight=weight))
        elif path.suffix == ".py":
            text = file.read_text(encoding="utf-8")
            own, public = path.parts[0] in PACKAGES[:2], self.public.get(path, ())
            body = module_page.body(path, text, markdown, public, self.classes)
            beside = module_page.contents(text, url, public)
            area, weight = ("library.html", 1.3 if public else 0.7) if own else ("", 0)
            self.add(Page(url, module_page.dotted(path), body, area, beside, weight=weight))
        else:
            text = code(file.read_text(encoding="utf-8"), path.suffix[1:])
            self.add(Page(url, path.name, f"<h1>{path}</h1>\n{text}", weight=0))

    def sentence(self, path: PurePosixPath) -> str:
        file = self.root / path
        return module_page.summary(file.read_text(encoding="utf-8")) if path.suffix == ".py" else ""

    def area(self, path: PurePosixPath) -> str:
        """The page of the navigation that a text belongs to."""
        areas = {
            **dict.fromkeys(GUIDE, "guide.html"),
            "assignments": "lessons/assignments/index.html",
            "teaching": "teach.html",
            "benchmarks": "benchmarks/index.html",
        }
        return next((areas[part] for part in (str(path), *path.parts) if part in areas), "")

    # The pages that gather

    def gather(self, bugs: list[dict]) -> None:
        """Make the pages that lead to all others."""
        self.add_lessons()
        self.add_guide()
        self.add_library()
        self.add_bugs(bugs)
        self.add_teaching()
        self.add_explorables()
        self.add_assignments()
        self.resolver("index.html", PurePosixPath())("benchmarks/README.md")
        self.add_start()

    def add_lessons(self) -> None:
        names = [f"{lesson.number}. {lesson.title.partition(':')[0]}" for lesson in self.known]
        urls = [f"lessons/{lesson.file.parent.name}/lesson.html" for lesson in self.known]
        turns = [None, *map(Link, urls, names), None]
        for i, lesson in enumerate(self.known):
            folder, url = PurePosixPath("lessons") / lesson.file.parent.name, urls[i]
            recording = self.recordings[lesson.file.parent.name]
            played = [
                Link(relative(explorable.url, url), explorable.text)
                for explorable in self.explorables()
                if lesson.number in lessons_of(explorable.url)
            ]
            body = lesson_page.body(lesson, recording, self.markdown(url), played)
            sections = [Link(f"{url}#{name}", words) for name, words in headings(body)]
            self.add(
                Page(url, names[i], body, "lessons/index.html", sections, turns[i], turns[i + 2], LESSON)
            )
            self.files[f"{folder}/lesson.py"] = lesson.file.read_bytes()
            self.files[f"{folder}/lesson_{lesson.number}.ipynb"] = notebook(lesson.file).encode()
            for output in recording.outputs:
                for path in output.pictures:
                    self.files[f"{folder}/figures/{Path(path).name}"] = (recording.folder / path).read_bytes()
        url = "lessons/index.html"
        body = pages.lessons(self.known, self.recordings, self.readme(url))
        self.add(Page(url, "Lessons", body, url))
        self.add(
            Page(
                "pictures.html", "All pictures", pages.pictures(self.known, self.recordings), "pictures.html"
            )
        )

    def readme(self, url: str) -> str:
        """The text of the README beside a page, below the page's own heading; "" where there is none."""
        file = self.root / PurePosixPath(url).with_name("README.md")
        return self.markdown(url).render(file.read_text(encoding="utf-8"), lowest=2) if file.is_file() else ""

    def add_guide(self) -> None:
        """The user's guide: texts of the tree, each a page with its sections, and a page that lists these."""
        known = [PurePosixPath(name) for name in GUIDE if (self.root / name).is_file()]
        for path in known:
            self.make(path, str(self.url_of(path)))
        guide = [self.pages[str(self.url_of(path))] for path in known]
        if guide:
            self.add(Page("guide.html", "Guide", pages.guide(guide), "guide.html"))

    def add_library(self) -> None:
        """What users call, family by family, and then all modules, those that a package exports first."""
        resolve = self.resolver("modules.html", PurePosixPath())
        names: dict[str, list[tuple[Link, str]]] = {}
        for path, public in self.public.items():
            url, tree = resolve(f"/{path}"), parsed(self.root / path)
            family = next(place for place in API if path.is_relative_to(place))
            known = {name: node for _, name, node in module_page.definitions(tree)}
            names.setdefault(module_page.dotted(PurePosixPath(family)), []).extend(
                (Link(f"{url}#{name}", name), module_page.first_sentence(known[name]))
                for name in public
                if name in known
            )
        modules: dict[str, list[tuple[Link, str]]] = {}
        for top in PACKAGES[:2]:
            files = [
                PurePosixPath(file.relative_to(self.root).as_posix())
                for file in (self.root / top).rglob("*.py")
            ]
            for path in sorted(files, key=lambda path: (path not in self.public, path.stem[0] == "_", path)):
                package = module_page.dotted(path.parent / "__init__.py")
                link = Link(str(resolve(f"/{path}")), module_page.dotted(path))
                modules.setdefault(package, []).append((link, self.sentence(path)))
        body = pages.library(names)
        self.add(Page("library.html", "Library", body, "library.html", weight=0.6))
        body = pages.modules(dict(sorted(modules.items(), reverse=True)))
        self.add(Page("modules.html", "All modules", body, "library.html", weight=0.5))

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
        self.add(Page(url, "Assignments", pages.assignments(cards, self.readme(url)), url, weight=1.2))

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
        """A page for the bugs of each part of the library, and a page that lists these."""
        parts: dict[str, list[dict]] = {}
        for bug in bugs:
            parts.setdefault(bug["part"], []).append(bug)
        urls = {part: f"bugs/{anchor(part)}.html" for part in parts}
        for part, known in parts.items():
            body = pages.bugs(part, known, self.markdown(urls[part]))
            self.add(Page(urls[part], f"Seeded bugs: {part}", body, "bugs.html", weight=0.5))
        if bugs:
            entries = [(Link(url, part.capitalize()), f"({len(parts[part])})") for part, url in urls.items()]
            opening = (
                "<p>A law that no bug can break proves nothing. So each of these "
                f"{len(bugs)} bugs is put into the library, one at a time, and the law named with it must "
                "fail. Predict what the law says, then open it.</p>"
            )
            self.add(
                Page("bugs.html", "Seeded bugs", pages.listing("Seeded bugs", entries, opening), "bugs.html")
            )

    def add_start(self) -> None:
        graded = len(graded_folders(self.root / "lessons" / "assignments"))
        count = len(self.known)
        doors = [
            (Link("look.html", "Look"), "What it is, a proof, what you need: before you install anything."),
            (
                Link("lessons/index.html", "Learn"),
                f"{count} lessons that compute, draw and assert, with questions to predict.",
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
        look = pages.look(self.known, graded, self.explorables(), proof)
        self.add(Page("look.html", "Before you install", look, "look.html", weight=2))
        body = pages.start(doors, self.explorables(), schedule_picture())
        self.add(Page("index.html", "Parallel training, proved", body, "index.html"))

    def navigation(self) -> list[Link]:
        urls = {
            "guide.html": "Guide",
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
        assets = {f"assets/{file.name}": file.read_bytes() for file in ASSETS.iterdir() if file.is_file()}
        order = assets.pop("assets/search_order.mjs").replace(b"export function", b"function")
        assets["assets/site.js"] = assets["assets/site.js"].replace(b"// The search's order\n", order)
        contents |= self.files | assets
        index = json.dumps(list(self.index()), ensure_ascii=False, separators=(",", ":"))
        contents[INDEX] = f"window.searchIndex = {index};\n".encode()
        for url, content in sorted(contents.items()):
            (folder / url).parent.mkdir(parents=True, exist_ok=True)
            (folder / url).write_bytes(content)

    def index(self) -> Iterator[tuple[str, str, str, str, str, float]]:
        """Each section that is searched: URL, page's title, heading, text, first cells of rows, weight."""
        for url, page in sorted(self.pages.items()):
            heads = list(HEADING.finditer(page.body)) if page.weight else []
            for head, following in zip(heads, [*heads[1:], None], strict=False):
                text = page.body[head.end() : following.start() if following else len(page.body)]
                place = f"{url}#{head['name']}" if head["name"] else url
                terms = words_of(" ".join(FIRST_CELL.findall(text)))
                weight = page.weight * (0.6 if head["level"] == "3" else 1)
                yield place, page.title, words_of(head["words"]), words_of(text)[:2500], terms, weight


def words_of(html: str) -> str:
    """The words that a reader sees, without code, in one line."""
    return " ".join(unescape(INVISIBLE.sub(" ", html)).split())


def headings(body: str) -> list[tuple[str, str]]:
    """The ids and words of the headings of level 2."""
    known = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body, re.DOTALL)
    return [(name, words_of(words)) for name, words in known]


def lessons_of(explorable: str) -> list[str]:
    """The numbers of the lessons to which an explorable belongs."""
    return [number for name, number in lesson_page.PLACES if name == PurePosixPath(explorable).stem]


def with_way_back(page: str, url: str, lessons: Iterable[Lesson]) -> str:
    """An explorable's page with links above its title to the parts of lessons to which it belongs."""
    links = []
    for one in lessons:
        part = lesson_page.part_of(url, one)
        target = f"lessons/{one.file.parent.name}/lesson.html" + (f"#{anchor(part)}" if part else "")
        words = f"lesson {one.number}{part and ': '}{part.partition('. ')[2]}"
        links.append(f'<a href="{relative(target, url)}">{escape(words)}</a>')
    back = f'<p class="quiet">Back to {", ".join(links)}</p>\n<h1>'
    return page.replace("<h1>", back, 1) if links else page


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
    site.gather(bugs.load(say) if missing is None else [])
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
