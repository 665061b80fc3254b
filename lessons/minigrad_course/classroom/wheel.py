"""A wheel of the project, made from the files of a tree: no network, no build tool."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from minigrad.files import replacement

from ..handout.handout import TOP

PROJECT, COURSE = "minigrad-course", "minigrad_course"
PLACES = {  # in a wheel, of each folder of the tree
    "minigrad": "minigrad",
    "backends": "backends",
    f"lessons/{COURSE}": COURSE,
    "lessons": f"{COURSE}/lessons",
}
GENERATED = ("__pycache__", "runs")
WHEEL = "Wheel-Version: 1.0\nGenerator: minigrad\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path, root: Path) -> Path:
    """Write the wheel of the tree ``root``, a clone or a handout, into ``folder``; returns its path.

    Equal files make equal bytes. Raises RuntimeError as ``installed``, whose metadata the wheel has.
    """
    metadata = installed()
    name = f"{PROJECT.replace('-', '_')}-{metadata.version}"
    files = {name: file.read_bytes() for name, file in sources(root).items()}
    information = {text: metadata.read_text(text) or "" for text in ("METADATA", "entry_points.txt")}
    information |= {"WHEEL": WHEEL}
    files |= {f"{name}.dist-info/{text}": content.encode() for text, content in information.items()}
    record = "".join(f"{path},{digest(content)},{len(content)}\n" for path, content in files.items())
    own = f"{name}.dist-info/RECORD"
    wheel = folder / f"{name}-py3-none-any.whl"
    write_zip(wheel, files | {own: f"{record}{own},,\n".encode()})
    return wheel


def installed() -> Distribution:
    """The metadata of the project; raises RuntimeError where it is not installed, and has none."""
    try:
        return distribution(PROJECT)
    except PackageNotFoundError:
        raise RuntimeError(f"{PROJECT} is not installed, only its files are here; pip install it") from None


def sources(root: Path) -> dict[str, Path]:
    """The files of the tree by their names in the wheel, as hatch_build.py has them."""
    files = {f"{COURSE}/repository/{name}": root / name for name in TOP}
    for part, place in PLACES.items():
        for file in sorted((root / part).rglob("*")):
            inside = file.relative_to(root / part).parts
            left_out = (*GENERATED, COURSE) if part == "lessons" else GENERATED
            if file.is_file() and not {*left_out} & {*inside}:
                files[f"{place}/{'/'.join(inside)}"] = file
    return files


def digest(content: bytes) -> str:
    """The SHA-256 as a wheel's RECORD writes it."""
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).decode().rstrip('=')}"


def write_zip(file: Path, content: dict[str, bytes], programs: tuple[str, ...] = ()) -> None:
    """Write a zip of these files, without their dates; ``programs`` are executable."""
    with replacement(file) as part, ZipFile(part, "w", ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = ZipInfo(name)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = (0o755 if name in programs else 0o644) << 16
            archive.writestr(entry, data)
