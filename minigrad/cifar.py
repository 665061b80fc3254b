"""CIFAR-10 and CIFAR-100, colour images of 32 x 32 pixels, from the files of their binary version.

Krizhevsky 2009, "Learning multiple layers of features from tiny images". A record of CIFAR-10 is a byte for
the label, one of CIFAR-100 two, for the coarse and the fine one; then come 3,072 bytes for the pixels: red,
green and blue, each row by row.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .data import Dataset
from .files import data_folder
from .lookup import check_choice
from .mnist import as_batch

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
FILES = {
    10: [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"],
    100: ["train.bin", "test.bin"],
}
FOLDERS = {10: "cifar-10-batches-bin", 100: "cifar-100-binary"}
PIXELS = 3 * 32 * 32


def load(classes: int = 10, folder: str | Path | None = None, *, labels: str = "fine") -> Dataset:
    """The data set of 10 or 100 classes: x float32 (N, 3, 32, 32) in [0, 1], y int64 (N,).

    ``folder`` holds the files, or a folder with the name that the archive gives them; by default it is
    MINIGRAD_DATA. Of 100 classes ``labels`` may be the 20 "coarse" ones. Raises ValueError for other settings
    and for damaged files, FileNotFoundError, with the way out, where they are missing.
    """
    check_choice("classes", str(classes), ("10", "100"))
    check_choice("labels", labels, ("fine", "coarse"))
    where = data_folder(folder)
    if (where / FOLDERS[classes]).is_dir():
        where = where / FOLDERS[classes]
    *train, test = (records(where / name, classes) for name in FILES[classes])
    column = 0 if classes == 10 or labels == "coarse" else 1
    batches = [
        as_batch(rows[:, -PIXELS:].reshape(-1, 3, 32, 32), rows[:, column])
        for rows in (np.concatenate(train), test)
    ]
    return Dataset(f"cifar{classes}", batches[0], batches[1])


def records(path: Path, classes: int) -> np.ndarray:
    """The bytes of a file, a row for each image: its labels, and its pixels."""
    if not path.is_file():
        pickled = path.with_suffix("").is_file()
        content = "the Python version, whose pickles may run any code" if pickled else f"no {path.name}"
        archive = f"cifar-{classes}-binary.tar.gz of {SOURCE}"
        raise FileNotFoundError(f"{path.parent} has {content}; unpack the binary version, {archive}")
    row = PIXELS + (1 if classes == 10 else 2)
    content, largest = np.frombuffer(path.read_bytes(), np.uint8), (classes,) if classes == 10 else (20, 100)
    if len(content) % row or not len(content):
        raise ValueError(f"{path} has {len(content)} bytes, no whole records of {row}; get it from {SOURCE}")
    if (content.reshape(-1, row)[:, :-PIXELS] >= largest).any():
        raise ValueError(f"{path} has labels of more classes than {largest[-1]}; get it from {SOURCE}")
    return content.reshape(-1, row)
