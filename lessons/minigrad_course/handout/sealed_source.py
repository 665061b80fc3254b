"""Programs of a handout that check answers: packed, so that nobody reads an answer in passing.

A sealed program runs like any other. It is no secret from someone who unpacks it on purpose: who can check
an answer can also try all of them. But no reader, no search and no assistant that reads the folder meets an
answer in it. Of a question it holds a hash of the right letter, and not the edit.
"""

from __future__ import annotations

import ast
import zlib
from base64 import b85decode, b85encode
from hashlib import blake2b
from pathlib import Path

SUFFIX = ".sealed"
HEADER = "# A part of the checks, packed; the commands of minigrad unpack it.\n"
HASHED = "hash:"


def sealed_file(file: Path) -> Path:
    """Where the sealed form of a program lies: beside it."""
    return file.with_name(file.name + SUFFIX)


def exists(file: Path) -> bool:
    """Whether the program is there, open or sealed."""
    return file.is_file() or sealed_file(file).is_file()


def read_source(file: Path) -> str:
    """The text of a program, from its sealed form where that alone is there."""
    if file.is_file() or not sealed_file(file).is_file():
        return file.read_text(encoding="utf-8")
    packed = sealed_file(file).read_text(encoding="utf-8").removeprefix(HEADER)
    return zlib.decompress(b85decode(packed.strip())).decode()


def seal(source: str, place: str) -> str:
    """The sealed form of a program; ``place`` makes its hashes differ from those of other programs."""
    tree = ast.parse(source)
    questions = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_question(node)]
    for number, call in enumerate(questions):
        prediction, _, edits = call.args
        assert isinstance(prediction, ast.Constant) and isinstance(prediction.value, str)
        prediction.value = hash_of(prediction.value, f"{place}.{number}")
        call.args[2] = ast.copy_location(ast.Tuple([], ast.Load()), edits)
    if questions:
        remove_unused(tree)
    packed = b85encode(zlib.compress(ast.unparse(tree).encode(), 9)).decode()
    return f"{HEADER}{packed}\n"


def remove_unused(tree: ast.Module) -> None:
    """Leave out the texts that only the edits used: each is bound to a name at the top of the program."""
    used = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    tree.body = [node for node in tree.body if not is_text(node) or used & set(targets(node))]


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def targets(node: ast.stmt) -> list[str]:
    return [target.id for target in ast.walk(node) if isinstance(target, ast.Name)]


def is_question(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Question"


def hash_of(prediction: str, salt: str) -> str:
    """A hash of a prediction: no letter to be read, though a few tries find it."""
    return f"{HASHED}{salt}:{blake2b(f'{salt}:{prediction}'.encode(), digest_size=16).hexdigest()}"


def is_right(prediction: str, right: str) -> bool:
    """Whether it is the right prediction, which is given by itself or as `hash_of` it."""
    if not right.startswith(HASHED):
        return prediction == right
    return hash_of(prediction, right.split(":")[1]) == right
