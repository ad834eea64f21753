"""Artifacts as bytes are read back unchanged. Any other bytes give None, never an error."""

from __future__ import annotations

import zlib

import numpy as np

from autotensor.base.target import parse
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.packed_artifact import pack, unpack


def made() -> Artifact:
    args = (ArgSpec("x", "input", (2, 3), "float32"), ArgSpec("w", "constant", (3,), "float32"))
    return Artifact(
        name="f",
        target=parse("llvm -mcpu=x86-64-v3 -threads=2"),
        entry="f_run",
        prepare=None,
        args=args,
        objects=(b"\x7fELF one", b""),
        needs=("avx2",),
        texts={"te": "größer = x", "llvm": ""},
        values={"w": np.arange(3, dtype=np.float32)},
        meta={"entry_constants": ["w"], "alone": True},
    )


def test_it_comes_back() -> None:
    one, other = made(), unpack(pack(made()))
    assert other is not None
    assert (other.target, other.args, other.objects) == (one.target, one.args, one.objects)
    assert (other.entry, other.prepare, other.needs) == (one.entry, one.prepare, one.needs)
    assert dict(other.texts) == dict(one.texts)
    assert dict(other.meta) == dict(one.meta)
    assert other.values["w"].tolist() == [0.0, 1.0, 2.0]


def test_what_is_none_is_not_taken_for_one() -> None:
    whole = pack(made())
    inside = zlib.decompress(whole)
    for data in (b"", b"nothing", whole[:-9], zlib.compress(inside[:-1]), zlib.compress(inside + b"0")):
        assert unpack(data) is None
    assert unpack(zlib.compress(inside.replace(b'"entry"', b'"exit!"'))) is None
