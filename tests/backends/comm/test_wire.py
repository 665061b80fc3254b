"""Laws of backends/comm/wire.py: arrays arrive as they were, and what is no array is
refused, whatever it is.
"""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from backends.comm import wire

KINDS = (
    arrays.boolean_dtypes()
    | arrays.integer_dtypes(endianness="?")
    | arrays.unsigned_integer_dtypes(endianness="?")
    | arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64))
    | arrays.complex_number_dtypes(endianness="?")
    | arrays.byte_string_dtypes(min_len=1, max_len=5)
    | arrays.unicode_string_dtypes(min_len=1, max_len=5)
    | arrays.datetime64_dtypes()
    | arrays.timedelta64_dtypes()
)


@st.composite
def any_arrays(draw):
    """Arrays of up to 8 axes, in any order, with gaps, reversed, empty; few too large for a first piece."""
    shape = draw(st.lists(st.integers(0, 3), max_size=8).map(tuple))
    dtype = draw(KINDS)
    size = int(np.prod(shape))
    content = np.random.default_rng(size).integers(0, 100, size * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        content %= 2
    if dtype.kind == "U":
        content[:] = 0
    x = np.frombuffer(content.tobytes(), dtype).reshape(shape) if size else np.empty(shape, dtype)
    x = x.transpose(draw(st.permutations(range(len(shape)))))
    steps = draw(st.lists(st.sampled_from([1, 1, 2, -1]), min_size=len(shape), max_size=len(shape)))
    return np.asarray(x[tuple(slice(None, None, step) for step in steps)])


def arrived(x: np.ndarray) -> np.ndarray:
    """``x`` as a receiver has it."""
    first, rest, _ = wire.pack(x)
    header, array = wire.unpack(first)
    if array is not None:
        assert rest is None
        return array
    assert rest is not None
    wire.check_length(header, rest.nbytes, header.nbytes)
    flat = wire.room_for(header)
    flat.view(np.uint8)[:] = rest
    array = wire.finish(flat, header)
    assert isinstance(array, np.ndarray)
    return array


@given(any_arrays())
def test_arrays_arrive_as_they_were(x):
    array = arrived(x)
    assert (array.shape, array.dtype, array.tobytes()) == (x.shape, x.dtype, x.tobytes())
    for order in ("C_CONTIGUOUS", "F_CONTIGUOUS"):
        assert array.flags[order] >= x.flags[order], "the memory order is another"


@given(st.data())
def test_what_is_no_first_piece_is_refused_in_one_way_or_is_an_array(data):
    """Bytes changed, cut off and added: a ValueError, or an array no larger than the message."""
    first, _, _ = wire.pack(data.draw(any_arrays()))
    message = bytearray(first)
    changes = st.dictionaries(st.integers(0, min(len(first), 80) - 1), st.integers(0, 255), max_size=4)
    for place, byte in data.draw(changes).items():
        message[place] = byte
    message = message[: data.draw(st.sampled_from([len(first)] * 3) | st.integers(0, len(first)))]
    message += data.draw(st.sampled_from([b"", b"", b"\0", b"\0" * 100]))
    tracemalloc.start()
    try:
        header, array = wire.unpack(message)
    except ValueError as error:
        assert str(error).startswith(wire.NO_ARRAY) and len(str(error)) < 1000
    else:
        assert (header.nbytes > wire.INLINE) if array is None else (array.nbytes <= len(message))
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 100_000, f"{peak} bytes were taken for a message of {len(message)}"


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (0, 1 << 62, 1 << 62), (-1,), (3, -2)])
def test_absurd_shapes_take_no_memory(shape):
    first = wire.Header(np.dtype("float64"), shape, tuple(range(len(shape))), False).to_bytes()
    try:
        header, array = wire.unpack(first)
    except ValueError:
        return
    assert array is None or array.nbytes == 0
    with pytest.raises(ValueError, match="100 bytes came with"):
        wire.check_length(header, 100, header.nbytes)


class Opens:
    """What runs code where it is unpickled."""

    def __reduce__(self):
        return open, ("opened", "w")


def test_a_pickle_is_no_message(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="what came is no array that minigrad sent"):
        wire.unpack(pickle.dumps(Opens()).ljust(200, b"\0"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [object, [("a", "i4"), ("b", "O")], [("a", "i4"), ("b", "f8")]])
def test_objects_and_fields_are_not_sent(dtype):
    with pytest.raises(TypeError, match="cannot be sent; send"):
        wire.pack(np.zeros(3, dtype))
