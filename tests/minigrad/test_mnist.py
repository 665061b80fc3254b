"""Laws of minigrad/mnist.py: MNIST arrives whole or not at all, and says in one line what
is wrong with it.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays
from hypothesis.strategies import integers

from minigrad import mnist
from minigrad.mnist import FILES, IdxFile, full_set, load, parse_idx, where_found

REAL = os.environ.get("MINIGRAD_DATA")


def idx(array: np.ndarray) -> bytes:
    """The IDX file of an array of bytes: the inverse of parse_idx."""
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def small_set() -> dict[IdxFile, bytes]:
    """Seven images to train on and three to test on, under the names of the real files, as IDX bytes."""
    rng, contents = np.random.default_rng(0), {}
    for real, n in zip(FILES, (7, 7, 3, 3), strict=True):
        content = idx(rng.integers(0, 10, (n, *real.shape[1:]), dtype=np.uint8))
        contents[IdxFile(real.name, (n, *real.shape[1:]), hashlib.sha256(content).hexdigest())] = content
    return contents


SMALL = small_set()
IMAGES, IMAGES_IDX = next(iter(SMALL.items()))
IMAGES_GZ = gzip.compress(IMAGES_IDX)


def is_the_small_set(data) -> None:
    """Every pixel and label of the small set, scaled and shaped."""
    for batch, (images, labels) in ((data.train, FILES[:2]), (data.test, FILES[2:])):
        contents = {file.name: content for file, content in SMALL.items()}
        pixels = np.frombuffer(contents[images.name][16:], np.uint8).reshape(-1, 1, 28, 28)
        np.testing.assert_array_equal(batch.x, pixels.astype(np.float32) / np.float32(255))
        np.testing.assert_array_equal(batch.y, np.frombuffer(contents[labels.name][8:], np.uint8))
        assert batch.x.dtype == np.float32 and batch.y.dtype == np.int64


def fill(folder: Path, ending: str, *, but: str = "") -> Path:
    """The files of the small set in ``folder``, compressed if ``ending`` is .gz, all but the one named."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in SMALL.items():
        if file.name != but:
            (folder / (file.name + ending)).write_bytes(gzip.compress(content) if ending else content)
    return folder


@contextmanager
def refused(kind: type[Exception], *parts: object):
    """Expect an error of exactly this built-in type whose single line has all ``parts``."""
    with pytest.raises(kind) as caught:
        yield
    assert caught.type is kind and "\n" not in str(caught.value)
    for part in parts:
        assert str(part) in str(caught.value)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own, and no folder of the user's."""
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "minigrad" / "mnist"


# The format.


def reads_what_was_written(parse, array) -> None:
    np.testing.assert_array_equal(parse(idx(array), array.ndim), array, strict=True)


def refuses_every_other_length(parse, content: bytes, ndim: int) -> None:
    for other in (*(content[:n] for n in range(len(content))), content + b"\0"):
        try:
            parse(other, ndim)
        except ValueError:
            continue
        raise AssertionError(f"read {len(other)} bytes of {len(content)}")


@given(arrays(np.uint8, array_shapes(max_dims=3, min_side=0, max_side=5)))
def test_reads_what_was_written(array):
    reads_what_was_written(parse_idx, array)


def test_reads_bytes_made_by_hand():
    by_hand = bytes.fromhex("00000803 00000001 00000002 00000003 010203 0405ff")
    assert parse_idx(by_hand, 3).tolist() == [[[1, 2, 3], [4, 5, 255]]]
    refuses_every_other_length(parse_idx, by_hand, 3)


def little_endian(content, ndim):
    shape = np.frombuffer(content, "<u4", ndim, offset=4)
    return np.frombuffer(content, np.uint8)[4 + 4 * ndim :].reshape(shape)


def as_much_as_there_is(content, ndim):
    """Reads whole rows until the bytes end, whatever the header says."""
    rows = np.frombuffer(content, np.uint8)[4 + 4 * ndim :]
    inner = np.frombuffer(content, ">u4", ndim, offset=4)[1:].astype(int)
    return rows[: len(rows) // inner.prod() * inner.prod()].reshape(-1, *inner)


def test_bugs_in_a_parser_are_caught():
    array = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    with pytest.raises((AssertionError, ValueError)):
        reads_what_was_written(little_endian, array)
    reads_what_was_written(as_much_as_there_is, array)  # the round trip alone would not notice
    with pytest.raises(AssertionError):
        refuses_every_other_length(as_much_as_there_is, idx(array), 3)


@pytest.mark.parametrize("raw", [IMAGES_IDX, IMAGES_GZ], ids=["plain", "gz"])
def test_a_file_cut_anywhere_is_refused(raw):
    np.testing.assert_array_equal(IMAGES.decode(raw), parse_idx(IMAGES_IDX, 3))
    for n in range(len(raw)):
        with refused(ValueError):
            IMAGES.decode(raw[:n])


@given(at=integers(0, len(IMAGES_IDX) - 1), bit=integers(0, 7))
def test_a_flipped_bit_never_changes_the_data(at, bit):
    flipped = bytearray(IMAGES_IDX)
    flipped[at] ^= 1 << bit
    with refused(ValueError, "expected"):
        IMAGES.decode(bytes(flipped))
    flipped = bytearray(IMAGES_GZ)
    flipped[at % len(IMAGES_GZ)] ^= 1 << bit
    try:  # some bits of gzip mean nothing to the data, such as its time stamp
        np.testing.assert_array_equal(IMAGES.decode(bytes(flipped)), parse_idx(IMAGES_IDX, 3))
    except ValueError as error:
        assert "\n" not in str(error)


def test_what_is_wrong_is_said():
    n, flipped = len(IMAGES_IDX), IMAGES_IDX[:-1] + bytes([IMAGES_IDX[-1] ^ 1])
    for raw, parts in {
        IMAGES_IDX[:9]: ["expected at least 16 bytes of IDX header, found 9"],
        IMAGES_IDX[:-1]: [f"expected {n} bytes for (7, 28, 28), found {n - 1}"],
        IMAGES_IDX + b"\0": [f"expected {n} bytes for (7, 28, 28), found {n + 1}"],
        IMAGES_GZ[:-9]: [f"damaged gzip data of {len(IMAGES_GZ) - 9} bytes"],
        gzip.compress(bytes(10 * n)): [f"expected {n} bytes in the gzip data, found more"],
        b"<!DOCTYPE html><html>": ["expected the IDX magic number 0x00000803, found 0x3c21444f"],
        idx(np.zeros((3, 28, 28), np.uint8)): ["expected an array of shape (7, 28, 28), found (3, 28, 28)"],
        flipped: [f"expected SHA-256 {IMAGES.sha256}, found {hashlib.sha256(flipped).hexdigest()}"],
    }.items():
        with refused(ValueError, *parts):
            IMAGES.decode(raw)


# On disk.


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("inner", ["", "mnist"])
def test_the_folder_given_is_read(tmp_path, monkeypatch, inner, ending):
    folder = fill(tmp_path / "given" / inner, ending)
    monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path / "given"))
    assert where_found() == str(folder)
    is_the_small_set(full_set(tuple(SMALL), mirrors=()))


def test_the_folder_given_is_the_only_one(tmp_path, monkeypatch, cache):
    fill(cache, ".gz")
    assert where_found() == str(cache)
    is_the_small_set(full_set(tuple(SMALL), mirrors=()))
    monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path / "nowhere"))
    assert where_found() is None
    with refused(
        FileNotFoundError, f"{tmp_path / 'nowhere'} is not a folder", "unset it", *(f.name for f in FILES)
    ):
        load("mnist")
    fill(tmp_path / "nowhere", ".gz", but="t10k-labels-idx1-ubyte")
    assert where_found() is None
    with refused(FileNotFoundError, "has no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz", "unset it"):
        full_set(tuple(SMALL))


def test_damage_on_disk_is_named_with_its_remedy(tmp_path, monkeypatch, cache):
    damaged = fill(cache, ".gz") / "train-images-idx3-ubyte.gz"
    damaged.write_bytes(IMAGES_GZ[:-100])
    with refused(ValueError, damaged, "damaged gzip data", "delete it and run again"):
        full_set(tuple(SMALL), mirrors=())
    monkeypatch.setenv("MINIGRAD_DATA", str(cache))
    with refused(ValueError, damaged, "damaged gzip data", "put the original in its place"):
        full_set(tuple(SMALL), mirrors=())
    with refused(ValueError, fill(cache, "") / IMAGES.name, "expected an array of shape (60000, 28, 28)"):
        load("mnist")


# The real digits.


def test_the_subset_is_what_its_description_says():
    data = load("mnist5k")
    for batch, n in ((data.train, 500), (data.test, 100)):
        assert batch.x.shape == (10 * n, 1, 28, 28) and batch.x.dtype == np.float32
        assert batch.x.min() == 0 and batch.x.max() == 1
        assert batch.y.dtype == np.int64 and np.bincount(batch.y).tolist() == [n] * 10
    assert mnist.SUBSET_SHA256 in mnist.SUBSET.with_name("ATTRIBUTION.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("damage", [lambda raw: raw[:-1], lambda raw: b"P" + raw[:-1], lambda raw: b""])
def test_a_damaged_subset_is_refused(tmp_path, damage):
    raw = damage(mnist.SUBSET.read_bytes())
    (tmp_path / "s.npz").write_bytes(raw)
    digest = hashlib.sha256(raw).hexdigest()
    with refused(ValueError, tmp_path / "s.npz", mnist.SUBSET_SHA256, f"found {digest}", "reinstall"):
        mnist.subset(tmp_path / "s.npz")


def test_a_missing_subset_and_an_unknown_name_are_refused(tmp_path):
    with refused(FileNotFoundError, tmp_path / "s.npz", "reinstall minigrad-course"):
        mnist.subset(tmp_path / "s.npz")
    with refused(ValueError, "unknown data set 'cifar'; choose one of mnist5k, mnist"):
        load("cifar")


@pytest.mark.skipif(not REAL, reason="MINIGRAD_DATA is not set to a folder with the full MNIST")
def test_the_full_set_is_mnist_and_holds_the_subset(monkeypatch):
    monkeypatch.setenv("MINIGRAD_DATA", str(REAL))
    full, subset = load("mnist"), load("mnist5k")
    assert full.train.x.shape == (60_000, 1, 28, 28) and full.test.x.shape == (10_000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(full.train.y).tolist() == counts
    assert np.bincount(full.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    for whole, part, n in ((full.train, subset.train, 500), (full.test, subset.test, 100)):
        first = np.sort(np.concatenate([np.flatnonzero(whole.y == digit)[:n] for digit in range(10)]))
        np.testing.assert_array_equal(whole.x[first], part.x)
        np.testing.assert_array_equal(whole.y[first], part.y)
