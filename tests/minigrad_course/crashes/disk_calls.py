"""Calls of a disk, drawn at random, and what comes of each."""

from pathlib import Path

from hypothesis import strategies as st

PATHS = st.sampled_from(["a", "b", "a/a", "a/b", "a/a/a"]).map(Path)
CALLS = st.one_of(
    *(st.tuples(st.just(name), PATHS) for name in ("make_folder", "sync_folder", "remove_folder")),
    *(st.tuples(st.just(name), PATHS) for name in ("remove", "names", "read")),
    st.tuples(st.just("write"), PATHS, st.binary(max_size=2)),
    st.tuples(st.just("rename"), PATHS, PATHS),
)


def outcome(disk, folder, name, path, *more):
    """What a call returns, or the kind of its OSError."""
    more = [folder / argument if isinstance(argument, Path) else argument for argument in more]
    try:
        return getattr(disk, name)(folder / path, *more)
    except FileNotFoundError:
        return FileNotFoundError
    except OSError:
        return OSError
