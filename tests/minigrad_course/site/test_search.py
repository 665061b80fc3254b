"""Laws of lessons/minigrad_course/site/build.py: with the index that it writes, and the order of
assets/search_order.mjs, a search finds first what a reader means. They need Node; ``test_chromium.py``
searches in a browser.
"""

import shutil
from pathlib import PurePosixPath

import pytest
from minigrad_course.site.build import ASSETS

from tests.minigrad_course.explorables.node import needs_node, run
from tests.minigrad_course.site.source_course import gathered

GUIDE, COMMANDS = "README.html", "backends/index.html"
FIRST_HITS = {
    "install": f"{GUIDE}#install",
    "Slurm": f"{COMMANDS}#slurm",
    "MINIGRAD_TIMEOUT": f"{COMMANDS}#environment",
    "exit status": f"{COMMANDS}#interrupts",
    "NCCL": f"{COMMANDS}#several-gpus",
    "own strategy": f"{GUIDE}#add-your-own",
    "ring all-reduce": "lessons/05_messages/",
    "deadlock": "lessons/05_messages/",
    "bubble": "lessons/13_pipeline/",
    "ZeRO": "lessons/06_data_parallel/",
    "batch-norm": "lessons/06_data_parallel/",
    "halo": "lessons/12_spatial/",
    "staleness": "lessons/08_parameter_server/",
    "checkpoint": "lessons/1",  # 15 or 16
    "mixed precision": "lessons/19_sixteen_bits/",
    "momentum": "lessons/01_gradient_descent/",
    "warm-up": "lessons/07_large_batches/",
    "local SGD": "lessons/09_model_averaging/",
    "compression": "lessons/10_gradient_compression/",
    "experts": "lessons/18_experts/",
    "grade yourself": "lessons/assignments/",
    "handout": "lessons/assignments/",
    "Conv2d": "minigrad/nn/conv.html#Conv2d",
    "AdamW": "minigrad/optim.html#AdamW",
    "ring all-reduce zebra": "lessons/05_messages/",  # no section has the last word
}
SEARCH = 'const { searchOrder } = await load("search_order.mjs");'
pytestmark = needs_node


@pytest.fixture(scope="module")
def index():
    """The index of what searches should lead to: lessons, guide, assignments and what users call."""
    site = gathered()
    paths = [PurePosixPath("tests/test_size.py"), *site.public]
    paths += [PurePosixPath(f.relative_to(site.root).as_posix()) for f in site.root.glob("*/*/a*/README.md")]
    for path in paths:
        if (url := site.url_of(path)) and url not in site.pages:
            site.make(path, url)
    return list(site.index())


def leads_to_what_is_meant(folder, index):
    script = f"{SEARCH} return data.queries.map((query) => searchOrder(data.index, query)[0]?.[0]);"
    first_hits = run(script, {"index": index, "queries": list(FIRST_HITS)}, folder)
    wrong = {
        query: first
        for (query, url), first in zip(FIRST_HITS.items(), first_hits, strict=True)
        if not (first or "").startswith(url)
    }
    assert not wrong, wrong


@pytest.mark.thorough
def test_a_search_leads_to_what_is_meant(index):
    leads_to_what_is_meant(ASSETS, index)


def has_all_words_before_some(folder):
    """Small indexes whose order is clear."""
    index = [
        ["a", "Page", "Other", "a plain text with one word: ring", "", 1],
        ["b", "Page", "Ring", "of keys", "", 1],
        ["c", "Page", "Other", "an all-reduce on a ring", "", 1],
        ["d", "Page", "Other", "rings again", "", 1],
        ["e", "Page", "Nothing", "here", "", 1],
        ["f", "Page", "Other", "a plain text with one word: ring", "", 3],
        ["g", "Page", "Other", "", "allow", 1],
    ]
    script = f"{SEARCH} return data.queries.map((q) => searchOrder(data.index, q).map((one) => one[0]));"
    queries = ["ring", "all-reduce ring", "zebra ring", "zebra", "", "ALLOW", "?!"]
    ring, both, fallback, none, empty, cell, signs = run(script, {"index": index, "queries": queries}, folder)
    assert ring[0] == "b" and ring.index("f") < ring.index("a") and set(ring) == set("abcdf")
    assert both[0] == "c" and set(both[1:]) == set("abdfg"), "what has all words is first, then the others"
    assert fallback == ring and none == empty == signs == [] and cell == ["g"]


def test_all_words_come_before_some():
    has_all_words_before_some(ASSETS)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("b.matched - a.matched || ", ""),
        ("6 * match(heading, word)", "0"),
        ("(section[5] * whole", "(whole"),
        ("text.toLowerCase()", "text"),
        ("filter(({ matched }) => matched)", "filter(({ matched }) => matched === words.length)"),
        ("2 * match(terms, word)", "0"),
        ("[^\\p{L}\\p{N}_]+", "\\s+"),
    ],
)
def test_a_wrong_order_is_seen(tmp_path, right, wrong):
    shutil.copy(ASSETS / "search_order.mjs", tmp_path)
    text = (tmp_path / "search_order.mjs").read_text(encoding="utf-8")
    assert text.count(right) == 1, right
    (tmp_path / "search_order.mjs").write_text(text.replace(right, wrong), encoding="utf-8")
    with pytest.raises(AssertionError):
        has_all_words_before_some(tmp_path)


@pytest.mark.thorough
def test_tests_and_lists_are_not_searched(index):
    assert "tests/test_size.html" in gathered().pages
    assert not [url for url, *_ in index if url.startswith("tests/")]
    assert len(index) > 500
