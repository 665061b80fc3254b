"""The wheel of the project as it is installed here, made from its files: no network, no build tool."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).parents[2]
PROJECT = "minigrad-course"
PACKAGES = ("minigrad", "backends", "lessons")
GENERATED = ("__pycache__", "runs")
WHEEL = "Wheel-Version: 1.0\nGenerator: minigrad\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into ``folder``: equal bytes for equal files.

    Raises RuntimeError where the project is not installed, so that its metadata are missing.
    """
    try:
        installed = distribution(PROJECT)
    except PackageNotFoundError:
        raise RuntimeError(f"{PROJECT} is not installed, only its files are here; pip install it") from None
    name = f"{PROJECT.replace('-', '_')}-{installed.version}"
    files = {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in sources()}
    information = {text: installed.read_text(text) or "" for text in ("METADATA", "entry_points.txt")}
    information |= {"WHEEL": WHEEL}
    files |= {f"{name}.dist-info/{text}": content.encode() for text, content in information.items()}
    record = "".join(f"{path},{digest(content)},{len(content)}\n" for path, content in files.items())
    own = f"{name}.dist-info/RECORD"
    wheel = folder / f"{name}-py3-none-any.whl"
    write_zip(wheel, files | {own: f"{record}{own},,\n".encode()})
    return wheel


def sources() -> list[Path]:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*")))
    return [file for file in files if file.is_file() and not set(GENERATED) & set(file.parts)]


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
