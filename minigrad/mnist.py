"""MNIST, handwritten digits in ten classes: a small set inside the package, the full one found or downloaded.

LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document recognition".
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .data import Batch, Dataset
from .files import data_folder, replacement
from .lookup import lookup

SUBSET = Path(__file__).with_name("datasets") / "mnist_5k.npz"
SUBSET_SHA256 = "610e51efea83cdf383ead999a528baeb9153c57198045c1a9bc5eaadacfd93b6"


@dataclass(frozen=True)
class IdxFile:
    """One file of the full set: its name, the shape of its array, the SHA-256 of its uncompressed bytes."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    def decode(self, raw: bytes) -> np.ndarray:
        """The array in ``raw``, gzipped or not; raises ValueError for damaged or other data."""
        content = unpack(raw, at_most=4 + 4 * len(self.shape) + math.prod(self.shape))
        array = parse_idx(content, ndim=len(self.shape))
        if array.shape != self.shape:
            raise ValueError(f"expected an array of shape {self.shape}, found {array.shape}")
        require_sha256(content, self.sha256)
        return array


_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
FILES = (
    IdxFile("train-images-idx3-ubyte", (60_000, 28, 28), _SHA256[0]),
    IdxFile("train-labels-idx1-ubyte", (60_000,), _SHA256[1]),
    IdxFile("t10k-images-idx3-ubyte", (10_000, 28, 28), _SHA256[2]),
    IdxFile("t10k-labels-idx1-ubyte", (10_000,), _SHA256[3]),
)
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
ONE_AT_A_TIME = threading.Lock()  # np.load parses headers, which fails in threads (CPython's issue 106905)
OFFLINE = f"set MINIGRAD_DATA to a folder with the four files {', '.join(f.name for f in FILES)} (or .gz)"


def load(name: str) -> Dataset:
    """The data set called ``name``: x float32 (N, 1, 28, 28) in [0, 1], y int64 (N,) in 0..9.

    "mnist5k" has 5,000 training and 1,000 test images and needs no network. "mnist" has 60,000 and 10,000,
    from the folder MINIGRAD_DATA where that is set, else from the user's cache, else downloaded to it.
    Raises ValueError for an unknown name or damaged data, OSError where the data cannot be had.
    """
    read_all = lookup("data set", name, {"mnist5k": subset, "mnist": full_set})
    with ONE_AT_A_TIME:
        return read_all()


def where_found() -> str | None:
    """The folder of the four files of the full set, which are not verified; None where one is missing."""
    paths = [find(file, search_folders()) for file in FILES]
    if None in paths:
        return None
    return ", ".join(dict.fromkeys(str(path.parent) for path in paths if path))


def subset(path: Path = SUBSET) -> Dataset:
    """The first 500 training and 100 test images of each digit, from the package."""
    content = from_package(path, SUBSET_SHA256)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        train = as_batch(arrays["train_images"], arrays["train_labels"])
        test = as_batch(arrays["test_images"], arrays["test_labels"])
    return Dataset("mnist5k", train, test)


def from_package(path: Path, sha256: str, at_most: int = 0) -> bytes:
    """The content of a file of the package, with this SHA-256, of ``at_most`` so many bytes if compressed."""
    try:
        content = unpack(path.read_bytes(), at_most)
        require_sha256(content, sha256)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} is missing; reinstall minigrad-course") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}; reinstall minigrad-course") from error
    return content


def full_set(files: Sequence[IdxFile] = FILES, mirrors: Sequence[str] = MIRRORS) -> Dataset:
    """The data set in four ``files``: images and labels to train on, images and labels to test on."""
    x, y, x_test, y_test = [read(file, mirrors) for file in files]
    return Dataset("mnist", as_batch(x, y), as_batch(x_test, y_test))


def from_folder(folder: str | Path | None = None, name: str = "mnist") -> Dataset:
    """The data set in four IDX files that are called as MNIST's, gzipped or not, such as Fashion-MNIST.

    x is float32 (N, 1, height, width) in [0, 1], y int64 (N,). ``folder`` is by default MINIGRAD_DATA. Raises
    FileNotFoundError for a missing file, ValueError for a damaged one; their contents are not verified.
    """
    where, arrays = data_folder(folder), []
    for file in FILES:
        if (path := find(file, [where])) is None:
            raise FileNotFoundError(f"{where} has no {file.name} or {file.name}.gz; put all four files there")
        try:
            arrays.append(parse_idx(unpack(path.read_bytes(), at_most=1 << 31), ndim=len(file.shape)))
        except ValueError as error:
            raise ValueError(f"{path}: {error}; put the original in its place") from error
    x, y, x_test, y_test = arrays
    return Dataset(name, as_batch(x, y), as_batch(x_test, y_test))


def as_batch(images: np.ndarray, labels: np.ndarray) -> Batch:
    """Bytes (N, H, W) or (N, C, H, W) and (N,) as x float32 (N, C, H, W) in [0, 1] and y int64 (N,)."""
    x = (images[:, np.newaxis] if images.ndim == 3 else images).astype(np.float32)
    x /= 255
    return Batch(x, labels.astype(np.int64))


def read(file: IdxFile, mirrors: Sequence[str]) -> np.ndarray:
    """The array of ``file``, found on disk or downloaded, and verified."""
    folders = search_folders()
    path = find(file, folders)
    variable = os.environ.get("MINIGRAD_DATA")
    if path is None and variable:
        missing = f"has no {file.name} or {file.name}.gz" if folders[0].is_dir() else "is not a folder"
        raise FileNotFoundError(
            f"MINIGRAD_DATA={variable} {missing}; {OFFLINE}, or unset it to download them"
        )
    if path is None:
        return download(file, folders[0], mirrors)
    try:
        return file.decode(path.read_bytes())
    except ValueError as error:
        remedy = "put the original in its place" if variable else "delete it and run again"
        raise ValueError(f"{path}: {error}; {remedy}") from error


def search_folders() -> list[Path]:
    """The folders that may hold the full set: MINIGRAD_DATA if that is set, else the user's cache."""
    variable = os.environ.get("MINIGRAD_DATA")
    if variable:
        folder = Path(os.path.expanduser(variable))
        return [folder, folder / "mnist"]
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return [Path(os.path.expanduser(cache)) / "minigrad" / "mnist"]


def find(file: IdxFile, folders: Sequence[Path]) -> Path | None:
    """The path of ``file``, compressed or not, in the first of ``folders`` that has it; else None."""
    names = (file.name, f"{file.name}.gz")
    paths = (folder / name for folder in folders for name in names)
    return next((path for path in paths if os.path.isfile(path)), None)


def download(file: IdxFile, folder: Path, mirrors: Sequence[str], timeout: float = 30.0) -> np.ndarray:
    """The array of ``file`` from the first mirror that has it intact; its .gz is stored in ``folder``.

    Raises ConnectionError where no mirror sends the file, ValueError where one sends something else.
    ``timeout`` is how many seconds a mirror may stay silent.
    """
    from http.client import HTTPException  # with what these load: a tenth of what a command loads
    from urllib.request import urlopen

    failures: list[str] = []
    kind: type[Exception] = ConnectionError
    for mirror in mirrors:
        url = f"{mirror}{file.name}.gz"
        try:
            with urlopen(url, timeout=timeout) as answer:
                raw = answer.read(2 * math.prod(file.shape) + 1024)  # more than any intact .gz
            array = file.decode(raw)
        except (OSError, HTTPException, ValueError) as error:
            reason = " ".join(str(error).split())  # a server's text may have line ends
            failures.append(f"{url}: {reason or type(error).__name__}")
            if isinstance(error, ValueError):
                kind = ValueError
        else:
            store(raw, folder / f"{file.name}.gz")
            return array
    raise kind(f"cannot download {file.name}.gz ({'; '.join(failures)}); try again, or offline: {OFFLINE}")


def store(raw: bytes, path: Path) -> None:
    """Write ``raw`` to ``path`` as a whole or not at all, even if several processes write at once."""
    try:
        with replacement(path) as part:
            part.write_bytes(raw)
    except OSError as error:
        raise OSError(f"{error}; set XDG_CACHE_HOME to a writable folder, or offline: {OFFLINE}") from error


def unpack(raw: bytes, at_most: int) -> bytes:
    """``raw`` without gzip compression, if any; ValueError if damaged or longer than ``at_most`` bytes."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        with gzip.open(io.BytesIO(raw)) as file:
            content = file.read(at_most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"damaged gzip data of {len(raw)} bytes ({error})") from error
    if len(content) > at_most:
        raise ValueError(f"expected {at_most} bytes in the gzip data, found more")
    return content


def parse_idx(content: bytes, ndim: int) -> np.ndarray:
    """The unsigned bytes in an IDX file: 0, 0, 8, ``ndim``, then the sizes (big-endian), then the bytes.

    Raises ValueError for another magic number, and for a length that does not fit the sizes.
    """
    start = 4 + 4 * ndim
    if len(content) < start:
        raise ValueError(f"expected at least {start} bytes of IDX header, found {len(content)}")
    magic, needed = int.from_bytes(content[:4], "big"), 0x0800 + ndim
    if magic != needed:
        raise ValueError(f"expected the IDX magic number {needed:#010x}, found {magic:#010x}")
    shape = tuple(np.frombuffer(content, ">u4", ndim, offset=4).tolist())
    if len(content) != start + math.prod(shape):
        raise ValueError(f"expected {start + math.prod(shape)} bytes for {shape}, found {len(content)}")
    return np.frombuffer(content, np.uint8)[start:].reshape(shape)


def require_sha256(content: bytes, expected: str) -> None:
    """Raise ValueError unless ``content`` has this SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != expected:
        raise ValueError(f"expected SHA-256 {expected}, found {digest}")
