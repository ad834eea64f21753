"""Handwritten digits for the examples, without a network.

    mnist = get_mnist(flatten=True, onehot=True)
    images, labels = mnist.train.next_batch(100)

MNIST itself is read if AUTOTENSOR_MNIST names the directory of its four files, gzipped or not. Otherwise
digits are drawn: glyphs of a small bitmap font, moved, thickened and with noise, all by a fixed seed. A
message on standard error says so, once. Accuracies on drawn digits say nothing about MNIST.
"""

from __future__ import annotations

import gzip
import struct
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autotensor.base import switches
from autotensor.base.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]
FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
DRAWN = (12_000, 2_000)  # images for training and test
GLYPHS = (
    "01110 10001 10011 10101 11001 10001 01110", "00100 01100 00100 00100 00100 00100 01110",
    "01110 10001 00001 00110 01000 10000 11111", "01110 10001 00001 00110 00001 10001 01110",
    "00010 00110 01010 10010 11111 00010 00010", "11111 10000 11110 00001 00001 10001 01110",
    "00110 01000 10000 11110 10001 10001 01110", "11111 00001 00010 00100 01000 01000 01000",
    "01110 10001 10001 01110 10001 10001 01110", "01110 10001 10001 01111 00001 00010 01100",
)  # fmt: skip  # 7 rows of 5


class Batches:
    """Images and labels. `next_batch` gives them in order, and then from the start again."""

    def __init__(self, images: Array, labels: Array) -> None:
        self.images = images
        self.labels = labels
        self._at = 0

    def next_batch(self, batch_size: int) -> tuple[Array, Array]:
        if self._at + batch_size >= len(self.labels):
            self._at = 0
        span = slice(self._at, self._at + batch_size)
        self._at += batch_size
        return self.images[span], self.labels[span]


@dataclass(frozen=True, slots=True)
class Digits:
    """Digits for training and for test. `drawn` is True if they are not MNIST's."""

    train: Batches
    test: Batches
    drawn: bool


def get_mnist(flatten: bool = False, onehot: bool = False) -> Digits:
    """Images in [0, 1], float32 [n, 784] or [n, 1, 28, 28]; labels float32 [n], or [n, 10] one-hot."""
    folder = switches.mnist()
    arrays = _drawn() if folder is None else _read(folder)
    if folder is None:
        _say()
    images = [
        (a.astype(np.float32) / 255).reshape((-1, 784) if flatten else (-1, 1, 28, 28)) for a in arrays[::2]
    ]
    labels = [np.eye(10, dtype=np.float32)[y] if onehot else y.astype(np.float32) for y in arrays[1::2]]
    return Digits(Batches(images[0], labels[0]), Batches(images[1], labels[1]), folder is None)


@cache
def _say() -> None:
    print(
        "get_mnist: MNIST IS NOT HERE; these are drawn digits, and easier ones. "
        "Set AUTOTENSOR_MNIST to the directory of its four files to use it.",
        file=sys.stderr,
    )


# -- drawn -----------------------------------------------------------------------------------------------


@cache
def _drawn() -> tuple[Array, Array, Array, Array]:
    """uint8 images [n, 28, 28] and labels for training, then for test."""
    rng = np.random.default_rng(1234)
    return (*_draw(DRAWN[0], rng), *_draw(DRAWN[1], rng))


def _draw(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    labels = rng.integers(0, 10, count)
    glyphs = np.array([[list(map(int, row)) for row in g.split()] for g in GLYPHS], np.float32)  # [10, 7, 5]
    large = np.kron(glyphs, np.ones((1, 3, 3), np.float32))  # [10, 21, 15]
    images = np.zeros((count, 28, 28), np.float32)
    for n, label in enumerate(labels):
        top, left = rng.integers(1, 7), rng.integers(2, 12)
        images[n, top : top + 21, left : left + 15] = large[label]
    thick = rng.random(count) < 0.5
    images[thick, :, 1:] = np.maximum(images[thick, :, 1:], 0.7 * images[thick, :, :-1])
    images *= rng.uniform(0.6, 1.0, (count, 1, 1)).astype(np.float32)
    images += rng.normal(0, 0.1, images.shape).astype(np.float32)
    return np.asarray(np.clip(images, 0, 1) * 255, np.uint8), labels


# -- from disk -------------------------------------------------------------------------------------------


def _read(folder: Path) -> tuple[Array, Array, Array, Array]:
    made = [_idx(folder / name) for name in FILES]
    return made[0], made[1], made[2], made[3]


def _idx(path: Path) -> Array:
    """Reads an IDX file: two zero bytes, type (8: unsigned bytes), rank, extents, elements."""
    packed = path.with_name(f"{path.name}.gz")
    if not path.exists() and not packed.exists():
        raise InputError(
            f"there is no {path.name} (or .gz) in {path.parent}.", fix="Correct AUTOTENSOR_MNIST."
        )
    content = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InputError(f"{path} is not an IDX file of bytes.")
    rank = content[3]
    extents = struct.unpack_from(f">{rank}I", content, 4)
    elements = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    if elements.size != int(np.prod(extents)):
        raise InputError(
            f"{path} is truncated: {elements.size} elements, {int(np.prod(extents))} were announced."
        )
    return elements.reshape(extents)
