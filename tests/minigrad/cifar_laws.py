"""Laws of minigrad/cifar.py and mnist.py: files that were written byte by byte are read as they were."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.data import Batch


def has(batch: Batch, images: np.ndarray, labels: np.ndarray) -> None:
    np.testing.assert_array_equal(batch.x, images.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(batch.y, labels)
    assert (batch.x.dtype, batch.y.dtype) == (np.float32, np.int64)


def record(labels: tuple[int, ...], image: np.ndarray) -> bytes:
    """Labels, then all red pixels, all green and all blue ones, row by row."""
    pixels = [image[color, row, column] for color in range(3) for row in range(32) for column in range(32)]
    return bytes([*labels, *map(int, pixels)])


def cifar_is_read(
    load: Callable[..., Any], folder: Path, classes: int, n: int, seed: int, labels: str
) -> None:
    """``n`` images in each file; for CIFAR-10 five files to train on."""
    rng = np.random.default_rng(seed)
    names = [f"data_batch_{i}.bin" for i in (1, 2, 3, 4, 5)] if classes == 10 else ["train.bin"]
    contents = []
    for name in [*names, "test_batch.bin" if classes == 10 else "test.bin"]:
        images = rng.integers(0, 256, (n, 3, 32, 32))
        coarse, fine = rng.integers(0, 20, n), rng.integers(0, classes, n)
        pairs = [(f,) if classes == 10 else (c, f) for c, f in zip(coarse, fine, strict=True)]
        (folder / name).write_bytes(b"".join(map(record, pairs, images)))
        contents.append((images, coarse if labels == "coarse" and classes == 100 else fine))
    data = load(classes, folder, labels=labels)
    train = [np.concatenate(arrays) for arrays in zip(*contents[:-1], strict=True)]
    has(data.train, train[0], train[1])
    has(data.test, *contents[-1])


def idx_files_are_read(load: Callable[..., Any], folder: Path, n: int, seed: int, zipped: bool) -> None:
    rng, arrays = np.random.default_rng(seed), []
    for name, shape in (
        ("train-images-idx3-ubyte", (n, 5, 4)),
        ("train-labels-idx1-ubyte", (n,)),
        ("t10k-images-idx3-ubyte", (2, 5, 4)),
        ("t10k-labels-idx1-ubyte", (2,)),
    ):
        array = rng.integers(0, 10, shape).astype(np.uint8)
        raw = struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + array.tobytes()
        (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(raw) if zipped else raw)
        arrays.append(array)
    data = load(folder, "fashion")
    assert data.name == "fashion"
    has(data.train, arrays[0][:, None], arrays[1])
    has(data.test, arrays[2][:, None], arrays[3])
