"""Laws of minigrad/mnist.py and files.py: a download arrives whole, verified and kept, or leaves nothing
behind; the mirrors are on this machine.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from minigrad.mnist import FILES, IdxFile, download, full_set, store, where_found

ANSWERS: dict[str, Callable[[bytes], tuple[int, int, bytes]]] = {
    "good": lambda raw: (200, len(raw), raw),
    "absent": lambda raw: (404, 0, b""),
    "failing": lambda raw: (503, 0, b""),
    "cut": lambda raw: (200, len(raw), raw[:-20]),
    "short": lambda raw: (200, len(raw) - 20, raw[:-20]),
    "empty": lambda raw: (200, 0, b""),
    "page": lambda raw: (200, 6, b"<html>"),
    "other": lambda raw: (200, len(OTHER), OTHER),
}
"""What a folder of the mirror says when asked for a file: status, Content-Length and what it sends."""


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def small_set() -> dict[IdxFile, bytes]:
    """Five images to train on and two to test on, under the names of the real files, as IDX bytes."""
    contents = {}
    for real, n in zip(FILES, (5, 5, 2, 2), strict=True):
        shape = (n, *real.shape[1:])
        content = idx((np.arange(np.prod(shape)) % 251).astype(np.uint8).reshape(shape))
        contents[IdxFile(real.name, shape, hashlib.sha256(content).hexdigest())] = content
    return contents


SMALL = small_set()
LABELS = tuple(SMALL)[1]
OTHER = gzip.compress(idx(np.full(LABELS.shape, 9, np.uint8)))


class Mirror(ThreadingHTTPServer):
    """Answers ``/<key of ANSWERS>/<file>.gz`` and remembers what it was asked for."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.paths: list[str] = []
        self.done = threading.Event()

    def folder(self, how: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{how}/"


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Mirror)
        self.server.paths.append(self.path)
        _, how, name = self.path.split("/")
        if how == "silent":
            self.server.done.wait(60)
            return
        if how == "nonsense":
            self.wfile.write(b"220 not a web server\r\n")
            return
        content = next(content for file, content in SMALL.items() if f"{file.name}.gz" == name)
        status, length, body = ANSWERS[how](gzip.compress(content))
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.done.set()
        server.shutdown()
        thread.join(10)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own; no folder of the user's and no proxy."""
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache" / "minigrad" / "mnist"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@contextmanager
def refused(kind: type[Exception], *parts: object):
    """Expect an error of exactly this type whose single line has all ``parts``."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.type is kind and "\n" not in str(caught.value)
    for part in parts:
        assert str(part) in str(caught.value)


# Downloading.


def test_a_download_is_kept_and_not_repeated(mirror, cache):
    assert where_found() is None
    first = full_set(tuple(SMALL), [mirror.folder("good")])
    assert where_found() == str(cache)
    assert names_in(cache) == sorted(f"{file.name}.gz" for file in SMALL)
    assert mirror.paths == [f"/good/{file.name}.gz" for file in SMALL]
    again = full_set(tuple(SMALL), mirrors=())
    for one, two in ((first.train, again.train), (first.test, again.test)):
        np.testing.assert_array_equal(one.x, two.x)
        np.testing.assert_array_equal(one.y, two.y)
    assert again.train.x.shape == (5, 1, 28, 28) and again.test.y.tolist() == [0, 1]


@pytest.mark.parametrize("how", [how for how in ANSWERS if how != "good"])
def test_the_next_mirror_is_asked(mirror, cache, how):
    labels = download(LABELS, cache, [mirror.folder(how), mirror.folder("good")])
    assert labels.tolist() == [0, 1, 2, 3, 4] and names_in(cache) == [f"{LABELS.name}.gz"]
    assert mirror.paths == [f"/{how}/{LABELS.name}.gz", f"/good/{LABELS.name}.gz"]


@pytest.mark.parametrize(
    ("how", "kind", "reason"),
    [
        ("absent", ConnectionError, "HTTP Error 404"),
        ("failing", ConnectionError, "HTTP Error 503"),
        ("short", ValueError, "damaged gzip data"),
        ("empty", ValueError, "found 0"),
        ("page", ValueError, "found 6"),
        ("other", ValueError, f"expected SHA-256 {LABELS.sha256}, found "),
        ("silent", ConnectionError, "timed out"),
        ("nonsense", ConnectionError, "not a web server"),
    ],
)
def test_a_failed_download_leaves_nothing(mirror, cache, how, kind, reason):
    url = f"{mirror.folder(how)}{LABELS.name}.gz"
    with refused(kind, f"{url}: ", reason, "MINIGRAD_DATA", *(file.name for file in FILES)):
        download(LABELS, cache, [mirror.folder(how)], timeout=0.3 if how == "silent" else 30)
    assert names_in(cache) == []


def test_a_connection_cut_short_leaves_nothing(mirror, cache):
    with pytest.raises((ConnectionError, ValueError), match="IncompleteRead|damaged gzip data"):
        download(LABELS, cache, [mirror.folder("cut")])  # which of the two depends on the Python version
    assert names_in(cache) == []


def test_no_network_names_every_mirror_and_the_way_out(cache):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        mirrors = [f"http://127.0.0.1:{unused.getsockname()[1]}/{name}/" for name in ("one", "two")]
        with refused(ConnectionError, *mirrors, "refused", "or offline: set MINIGRAD_DATA to a folder"):
            full_set(tuple(SMALL), mirrors)
    assert names_in(cache) == []


def test_a_cache_that_cannot_be_written_is_named(mirror, cache):
    cache.parent.parent.mkdir()
    cache.parent.write_text("a file where a folder should be", encoding="utf-8")
    with refused(
        OSError, f"cannot write {cache / LABELS.name}.gz", "set XDG_CACHE_HOME to a writable folder"
    ):
        download(LABELS, cache, [mirror.folder("good")])


# Storing.


def is_whole_or_absent(store, path: Path, interrupt, kinds) -> None:
    """Interrupted as it syncs or as it is put in place, a store leaves what was there, and nothing else."""
    path.parent.mkdir(exist_ok=True)
    for before in ([], ["old"]):
        for place in ("fsync", "replace"):
            if before:
                path.write_text("old", encoding="utf-8")
            with interrupt(place), pytest.raises(kinds):
                store(b"new content", path)
            assert [p.read_text(encoding="utf-8") for p in path.parent.iterdir()] == before
    store(b"new content", path)
    assert [p.read_bytes() for p in path.parent.iterdir()] == [b"new content"]


def write_in_place(raw, path):
    with open(path, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path, path)


def leave_the_partial_file(raw, path):
    with open(f"{path}.part", "wb") as file:
        file.write(raw)
        os.fsync(file.fileno())
    os.replace(f"{path}.part", path)


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_store_is_whole_or_absent(tmp_path, monkeypatch, kind):
    @contextmanager
    def interrupt(place):
        def stop(*_):
            raise kind("seeded")

        with monkeypatch.context() as patch:
            patch.setattr(os, place, stop)
            yield

    is_whole_or_absent(store, tmp_path / "real" / "x.gz", interrupt, kind)
    for bug in (write_in_place, leave_the_partial_file):
        with pytest.raises(AssertionError):
            is_whole_or_absent(bug, tmp_path / bug.__name__ / "x.gz", interrupt, kind)
