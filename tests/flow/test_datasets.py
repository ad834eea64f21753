"""Digits: drawn ones, MNIST's files, damaged files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from autotensor.base import switches
from autotensor.base.errors import InputError
from autotensor.flow import datasets
from autotensor.flow.datasets import get_mnist


def write(path: Path, array: np.ndarray, packed: bool = False) -> None:
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def test_drawn_digits_say_that_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    datasets._say.cache_clear()
    digits = get_mnist(flatten=True, onehot=True)
    assert digits.drawn
    assert "MNIST IS NOT HERE" in capsys.readouterr().err
    images, labels = digits.train.next_batch(100)
    assert (images.shape, labels.shape) == ((100, 784), (100, 10))
    assert (labels.sum(1) == 1).all()
    assert 0 <= images.min() <= images.max() <= 1
    assert get_mnist().train.images.shape == (12_000, 1, 28, 28)


def test_batches_start_again() -> None:
    batches = datasets.Batches(np.arange(10), np.arange(10))
    assert [batches.next_batch(4)[0].tolist()[0] for _ in range(4)] == [0, 4, 0, 4]


def test_files_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for n, name in enumerate(datasets.FILES):
        shape = (5,) if "labels" in name else (5, 28, 28)
        write(tmp_path / name, rng.integers(0, 10, shape).astype(np.uint8), packed=n % 2 == 1)
    with switches.override(mnist=tmp_path):
        digits = get_mnist(flatten=True)
    assert not digits.drawn
    assert digits.train.images.shape == (5, 784)
    assert digits.test.labels.dtype == np.float32


def test_files_that_are_not_there_or_damaged(tmp_path: Path) -> None:
    with switches.override(mnist=tmp_path):
        with pytest.raises(InputError, match="there is no train-images-idx3-ubyte"):
            get_mnist()
        (tmp_path / datasets.FILES[0]).write_bytes(b"GIF89a")
        with pytest.raises(InputError, match="is not an IDX file"):
            get_mnist()
        write(tmp_path / datasets.FILES[0], np.zeros((5, 28, 28), np.uint8))
        whole = (tmp_path / datasets.FILES[0]).read_bytes()
        (tmp_path / datasets.FILES[0]).write_bytes(whole[:-1])
        with pytest.raises(InputError, match="is truncated: 3919 elements, 3920 were announced"):
            get_mnist()
