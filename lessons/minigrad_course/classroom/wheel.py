"""The wheel of the project as it is installed here, made from its files: no network, no build tool."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from .. import HERE, LESSONS, ROOT

PROJECT = "minigrad-course"
PLACES = {  # in a wheel, of each folder
    "minigrad": ROOT / "minigrad",
    "backends": ROOT / "backends",
    "minigrad_course": HERE,
    "minigrad_course/lessons": LESSONS,
}
GENERATED = ("__pycache__", "runs")
WHEEL = "Wheel-Version: 1.0\nGenerator: minigrad\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into ``folder``: equal bytes for equal files; raises RuntimeError as ``installed``."""
    metadata = installed()
    name = f"{PROJECT.replace('-', '_')}-{metadata.version}"
    files = {name: file.read_bytes() for name, file in sources().items()}
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


def sources() -> dict[str, Path]:
    """The files by their names in the wheel."""
    files: dict[str, Path] = {}
    for place, folder in PLACES.items():
        other = LESSONS if folder == HERE else HERE  # each may lie in the other
        for file in sorted(folder.rglob("*")):
            inside = file.relative_to(folder)
            nested = other.is_relative_to(folder) and file.is_relative_to(other)
            if file.is_file() and not nested and not set(GENERATED) & set(inside.parts):
                files[f"{place}/{inside.as_posix()}"] = file
    return files


def digest(content: bytes) -> str:
    """The SHA-256 as a wheel's RECORD writes it."""
    return f"sha256={urlsafe_b64encode(sha256(content).digest()).decode().rstrip('=')}"


def write_zip(file: Path, content: dict[str, bytes], programs: tuple[str, ...] = ()) -> None:
    """Write a zip of these files, without their dates; ``programs`` are executable."""
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = ZipInfo(name)
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = (0o755 if name in programs else 0o644) << 16
            archive.writestr(entry, data)
