"""Laws of minigrad/cifar.py, mnist.py and files.py: files of image data sets, wherever a user has them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minigrad import cifar, mnist
from minigrad.files import data_folder
from tests.minigrad.cifar_laws import cifar_is_read, idx_files_are_read


@settings(max_examples=settings().max_examples // 3)
@given(
    classes=st.sampled_from([10, 100]),
    n=st.integers(1, 2),
    seed=st.integers(0, 99),
    labels=st.sampled_from(["fine", "coarse"]),
)
def test_records_are_read_as_they_were_written(tmp_path_factory, classes, n, seed, labels):
    cifar_is_read(cifar.load, tmp_path_factory.mktemp("cifar"), classes, n, seed, labels)


@settings(max_examples=settings().max_examples // 2)
@given(n=st.integers(1, 4), seed=st.integers(0, 99), zipped=st.booleans())
def test_four_idx_files_are_read_as_they_were_written(tmp_path_factory, n, seed, zipped):
    idx_files_are_read(mnist.from_folder, tmp_path_factory.mktemp("idx"), n, seed, zipped)


def test_the_folder_may_be_the_archives_and_that_of_the_environment(tmp_path, monkeypatch):
    (tmp_path / "cifar-100-binary").mkdir()
    cifar_is_read(cifar.load, tmp_path / "cifar-100-binary", 100, 1, 0, "fine")
    monkeypatch.setenv("MINIGRAD_DATA", str(tmp_path))
    assert cifar.load(100).train.x.shape == cifar.load(100, tmp_path).train.x.shape == (1, 3, 32, 32)


def test_pickles_are_refused_with_the_way_out(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(FileNotFoundError, match=r"has the Python version.*cifar-10-binary.tar.gz of https"):
        cifar.load(10, tmp_path)


def test_what_is_missing_or_damaged_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("MINIGRAD_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="no folder is given; pass the one"):
        data_folder()
    with pytest.raises(FileNotFoundError, match="has no train.bin; unpack the binary version, cifar-100"):
        cifar.load(100, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no train-images-idx3-ubyte or .*\.gz; put all four"):
        mnist.from_folder(tmp_path)
    (tmp_path / "train.bin").write_bytes(bytes(3000))
    with pytest.raises(ValueError, match="has 3000 bytes, no whole records of 3074"):
        cifar.load(100, tmp_path)
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(bytes([0, 100, *[0] * 3072]))
    with pytest.raises(ValueError, match="train.bin has labels of more classes than 100; get it from"):
        cifar.load(100, tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"\0\0\x08\x01")
    with pytest.raises(ValueError, match="put the original in its place"):
        mnist.from_folder(tmp_path)
    with pytest.raises(ValueError, match="unknown classes '20'; choose one of 10, 100"):
        cifar.load(20, tmp_path)
