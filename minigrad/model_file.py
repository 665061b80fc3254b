"""A model's arrays in one file, in the safetensors format: names, dtypes, shapes and bytes, and no code.

safetensors is imported where a file is read or written: a training without one does not pay its 1 MB.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from .files import replacement

NOTES = "__metadata__"  # what the format calls them
CHECKSUM = "crc32"  # among the notes in the file; files of other programs have none


class ModelFile(NamedTuple):
    """Arrays by name, and notes: what the arrays belong to, such as the name of a net."""

    arrays: dict[str, np.ndarray]
    notes: dict[str, str]

    def write(self, file: Path) -> None:
        """Write ``file`` as a whole or not at all; equal models are equal bytes.

        Raises OSError where it cannot be written, ValueError for a dtype that the format does not have.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import save

        arrays = {name: np.asarray(array, order="C") for name, array in self.arrays.items()}
        try:
            content = in_order(save(arrays, {**self.notes, CHECKSUM: str(self.checksum())}))
        except SafetensorError as error:
            raise ValueError(f"the model cannot be saved: {error}; convert it first") from None
        with replacement(file) as part:
            part.write_bytes(content)

    def checksum(self) -> int:
        """The CRC-32 of notes, names, dtypes, shapes and elements."""
        names = sorted(self.arrays)
        heads = [(name, self.arrays[name].dtype.name, self.arrays[name].shape) for name in names]
        crc = crc32(json.dumps([heads, self.notes], sort_keys=True).encode())
        for name in names:
            array = self.arrays[name]
            crc = crc32(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes(), crc)
        return crc


def in_order(content: bytes) -> bytes:
    """A file with its notes in the order of their names: the library writes them in another at each call."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header[NOTES] = dict(sorted(header[NOTES].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def read_model(file: Path) -> ModelFile:
    """What ``write`` wrote, or another program in this format.

    Raises OSError where the file cannot be read, ValueError where it is damaged, no model file, or has arrays
    of a dtype that NumPy does not have.
    """
    from safetensors import SafetensorError, safe_open

    with file.open("rb"):  # safe_open's own error does not name the file
        pass
    try:
        with safe_open(file, framework="numpy") as opened:
            names = list(opened.keys())
            check_dtypes(file, {name: opened.get_slice(name).get_dtype() for name in names})
            arrays = {name: opened.get_tensor(name) for name in names}
            notes = opened.metadata() or {}
    except (SafetensorError, TypeError, AttributeError, OSError) as error:
        raise ValueError(f"{file} is no whole model file ({error}); save the model again") from None
    checksum = notes.pop(CHECKSUM, None)
    model = ModelFile(arrays, notes)
    if checksum not in (None, str(model.checksum())):
        raise ValueError(f"{file} is damaged: its checksum is not that of its arrays; save the model again")
    return model


def check_dtypes(file: Path, dtypes: dict[str, str]) -> None:
    """Raise ValueError where an array has a dtype of this format that NumPy lacks, such as bfloat16."""
    for name, dtype in dtypes.items():
        if dtype.startswith(("BF", "F8", "F4")):
            kind = "bfloat16" if dtype == "BF16" else dtype
            raise ValueError(
                f"{file}: {name} is {kind}, which NumPy does not have; save it as float32, by tensor.float() "
                "in PyTorch"
            )
