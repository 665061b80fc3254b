"""``python -m minigrad_course.explorables [FOLDER]`` writes them, by default to runs/explorables."""

import sys
from pathlib import Path

from .pages import pages


def main(folder: Path) -> None:
    """Write each page, and print where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    if len(sys.argv) > 2 or any(word.startswith("-") for word in sys.argv[1:]):
        sys.exit("usage: python -m minigrad_course.explorables [FOLDER]")
    try:
        main(Path(*sys.argv[1:]) if sys.argv[1:] else Path("runs/explorables"))
    except OSError as error:
        sys.exit(f"the pages cannot be written: {error}; name another folder")
