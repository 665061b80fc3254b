"""Laws of minigrad/model_file.py: a model file gives back the arrays that were written, and nothing
else; a damaged one is refused.
"""

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from minigrad import model_file, nn
from tests.bugs.mutant import mutant

DTYPES = ["float16", "float32", ">f4", "float64", "int64", "uint8", "bool"]
LAYOUTS = [np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 0)[::2] if a.ndim else a]


@st.composite
def arrays(draw):
    shape, dtype = (
        draw(arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3)),
        draw(st.sampled_from(DTYPES)),
    )
    return draw(st.sampled_from(LAYOUTS))(draw(arrays_of.arrays(dtype, shape)))


models = st.builds(
    model_file.ModelFile,
    st.dictionaries(st.text(max_size=8), arrays(), max_size=4),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
)


def equal(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Bit for bit, and in the same dtypes, whatever the order of bytes."""
    return one.keys() == other.keys() and all(
        one[name].dtype.newbyteorder("=") == other[name].dtype.newbyteorder("=")
        and one[name].shape == other[name].shape
        and one[name].astype(one[name].dtype.newbyteorder("<")).tobytes()
        == other[name].astype(other[name].dtype.newbyteorder("<")).tobytes()
        for name in one
    )


def gives_back(module: ModuleType, model: model_file.ModelFile, file: Path) -> None:
    """Also to other programs."""
    module.ModelFile(*model).write(file)
    arrays, notes = module.read_model(file)
    assert equal(arrays, model.arrays) and notes == {k: v for k, v in model.notes.items() if k != "crc32"}
    assert equal(safetensors.numpy.load_file(file), model.arrays)


@given(models)
def test_what_was_written_is_read(tmp_path_factory, model):
    gives_back(model_file, model, tmp_path_factory.getbasetemp() / "model.safetensors")


def refuses_damage(module: ModuleType, file: Path) -> None:
    """Every single bit flipped, and every shorter file: the same arrays are read, or none."""
    bits = {"w": np.arange(3, dtype=np.float32)}
    module.ModelFile(bits, {"net": "mlp"}).write(file)
    whole = file.read_bytes()
    flipped = (
        whole[:i] + bytes([whole[i] ^ 1 << bit]) + whole[i + 1 :]
        for i in range(len(whole))
        for bit in range(8)
    )
    for content in (*flipped, *(whole[:length] for length in range(len(whole)))):  # some 1,500
        file.write_bytes(content)
        try:
            arrays, notes = module.read_model(file)
        except ValueError as error:
            assert str(file) in str(error) and "\n" not in str(error)
        else:
            assert equal(arrays, bits) and notes.get("net") == "mlp" and len(content) == len(whole)


def test_damage_is_refused(tmp_path):
    refuses_damage(model_file, tmp_path / "m")


@pytest.mark.parametrize(
    ("law", "bug"),
    [
        (refuses_damage, ("crc32(json.dumps([heads, self.notes], sort_keys=True).encode())", "0")),
        (refuses_damage, (".tobytes(), crc)", ".tobytes()[:0], crc)")),
        (refuses_damage, ("if checksum not in (None, str(model.checksum())):", "if False:")),
        (refuses_damage, ("(SafetensorError, TypeError, AttributeError, OSError)", "TypeError")),
    ],
)
def test_a_file_that_is_not_checked_is_caught(law, bug, tmp_path):
    with pytest.raises((AssertionError, safetensors.SafetensorError)):
        law(mutant("minigrad.model_file", bug), tmp_path / "m")


@pytest.mark.parametrize(
    "bug",
    [
        ('np.asarray(array, order="C") for name, array', "np.ascontiguousarray(array) for name, array"),
        ("{**self.notes, CHECKSUM: str(self.checksum())}", "{CHECKSUM: str(self.checksum())}"),
    ],
)
def test_a_file_that_changes_the_model_is_caught(bug, tmp_path):
    model = model_file.ModelFile({"n": np.array(7.0)}, {"net": "mlp"})
    with pytest.raises((AssertionError, ValueError)):
        gives_back(mutant("minigrad.model_file", bug), model, tmp_path / "m")


def has_the_same_bytes_each_time(module: ModuleType, file: Path) -> None:
    contents = set()
    for _ in range(3):
        module.ModelFile({"w": np.ones(3), "b": np.ones(2, "f")}, dict.fromkeys("netdrm", "é")).write(file)
        contents.add(file.read_bytes())
    assert len(contents) == 1


def test_equal_models_are_equal_files(tmp_path):
    has_the_same_bytes_each_time(model_file, tmp_path / "m")
    with pytest.raises(AssertionError):
        bug = "dict(sorted(header[NOTES].items()))", "header[NOTES]"
        has_the_same_bytes_each_time(mutant("minigrad.model_file", bug), tmp_path / "m")


def build(seed: int, width: int = 4) -> nn.Sequential:
    rng = np.random.default_rng(seed)
    return nn.Sequential(nn.Linear(3, width, rng=rng), nn.BatchNorm(width), nn.Linear(width, 2, rng=rng))


def test_a_model_is_saved_and_loaded(tmp_path):
    model, other = build(0), build(1)
    model.load_state_dict(model.state_dict() | {"1.running_mean": np.full(4, 5.0)})
    model.save(tmp_path / "m.safetensors", net="own")
    assert other.load(str(tmp_path / "m.safetensors")) is other
    assert equal(other.state_dict(), model.state_dict())
    assert model_file.read_model(tmp_path / "m.safetensors").notes == {"net": "own"}
    with pytest.raises(ValueError, match=r"0.weight has shape \(5, 3\), the state \(4, 3\)"):
        build(0, 5).load(tmp_path / "m.safetensors")


def test_what_cannot_be_saved_leaves_the_file(tmp_path):
    file = tmp_path / "m"
    model_file.ModelFile({"x": np.ones(2)}, {}).write(file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="cannot be saved: .*complex128.*; convert it first"):
        model_file.ModelFile({"x": np.ones(2, complex)}, {}).write(file)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]
    with pytest.raises(FileNotFoundError):
        model_file.read_model(tmp_path / "none")


@pytest.mark.parametrize(("dtype", "name", "size"), [("BF16", "bfloat16", 2), ("F8_E4M3", "F8_E4M3", 1)])
def test_a_dtype_that_numpy_lacks_is_named(tmp_path, dtype, name, size):
    entry = {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}
    header = json.dumps({"w": entry}).encode()
    header += b" " * (-len(header) % 8)
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(2 * size))
    message = (
        rf"model.safetensors: w is {name}, which NumPy does not have; save it as float32, by tensor.float\(\)"
    )
    with pytest.raises(ValueError, match=message):
        model_file.read_model(file)
