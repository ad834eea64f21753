"""An `.atm` file is read back unchanged, mapped and aligned, and is refused if a single byte differs."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from runtime_kernels import add_artifact, renamed, vector

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files import container
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.container import read_container, write_container
from autotensor.runtime.linking.linker import host_machine
from autotensor.runtime.saved_model import load

ARGS = (
    ArgSpec("W", "constant", (5, 7), "float32"),
    ArgSpec("s", "constant", (), "int64"),
    ArgSpec("e", "constant", (0, 3), "bool"),
    ArgSpec("h", "constant", (3,), "bfloat16"),
    vector("A", "input"),
    ArgSpec("T", "workspace", (3,), "int8", per_thread=True),
)


def sample_artifact() -> Artifact:
    values = {
        "W": np.arange(35, dtype=np.float32).reshape(5, 7),
        "s": np.array(-3),
        "e": np.zeros((0, 3), bool),
        "h": np.ones(3, dtype_of("bfloat16").numpy),
    }
    texts = {"te": "C = A × 2", "asm": ""}
    return renamed(add_artifact(), args=ARGS, values=values, texts=texts, meta={"flops": 12}, needs=("avx2",))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "sample.atm"
    artifacts.save(path, sample_artifact())
    return path


def test_comes_back_as_it_was(saved: Path) -> None:
    before, after = sample_artifact(), artifacts.load(saved)
    for field in ("name", "target", "entry", "prepare", "args", "objects", "needs", "texts", "meta"):
        assert getattr(after, field) == getattr(before, field)
    for name, value in before.values.items():
        np.testing.assert_array_equal(after.values[name], value)
        assert after.values[name].dtype == value.dtype
        assert not after.values[name].flags.writeable
        assert after.values[name].ctypes.data % 64 == 0 or not value.size


def test_equal_artifacts_give_equal_files_and_zip_tools_read_them(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.atm"
    artifacts.save(again, sample_artifact())
    assert again.read_bytes() == saved.read_bytes()
    assert list(tmp_path.iterdir()) in ([again, saved], [saved, again])  # no temporary file is left
    with zipfile.ZipFile(saved) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("manifest.json"))["format"] == 4


def test_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    """All bytes: data, manifest, headers, padding, directory and seal."""
    path = tmp_path / "small.atm"
    artifacts.save(path, renamed(sample_artifact(), objects=(b"code",)))
    good = path.read_bytes()
    damaged = tmp_path / "damaged.atm"
    for at in range(len(good)):
        damaged.write_bytes(good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :])
        with pytest.raises(ArtifactError) as caught:
            artifacts.load(damaged)
        assert str(damaged) in caught.value.what


def test_every_part_is_covered(saved: Path) -> None:
    """A flipped byte in the middle of each member of a file with real code."""
    good = saved.read_bytes()
    with zipfile.ZipFile(saved) as archive:
        entries = [e for e in archive.infolist() if e.file_size]
    assert {e.filename.split("/")[0] for e in entries} == {"manifest.json", "objects", "texts", "values"}
    for entry in entries:
        names, extra = struct.unpack_from("<HH", good, entry.header_offset + 26)
        start = entry.header_offset + 30 + names + extra
        assert start % 64 == 0
        at = start + entry.file_size // 2
        saved.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        with pytest.raises(ArtifactError):
            artifacts.load(saved)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.99])
def test_truncated(saved: Path, keep: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * keep)])
    message = r"is not an \.atm file, or is truncated|is empty|is damaged: its seal"
    with pytest.raises(ArtifactError, match=message):
        artifacts.load(saved)


def test_appended_bytes_are_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"x")
    with pytest.raises(ArtifactError):
        artifacts.load(saved)


def test_things_that_are_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "text.atm").write_text("hello")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../../etc/passwd", "a")
        archive.writestr("manifest.json", "{}")
    with zipfile.ZipFile(tmp_path / "weights.pt", "w") as archive:
        archive.writestr("weights/.format_version", "1")
    for name, message in [
        ("text.atm", r"text\.atm is not an \.atm file, or is truncated\.$"),
        (
            "other.zip",
            r"other\.zip is not an autotensor file: it has no manifest\.json\. ONNX files are ",
        ),
        ("weights.pt", r"weights\.pt is not an autotensor file: .* PyTorch modules by at\.from_torch"),
        ("evil.zip", r"it has an unexpected part '\.\./\.\./etc/passwd'"),
        ("missing.atm", r"cannot read .*missing\.atm: No such file or directory"),
        ("", r"cannot read .*: Is a directory"),
    ]:
        with pytest.raises(ArtifactError, match=message):
            artifacts.load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_unreadable(saved: Path) -> None:
    saved.chmod(0)
    with pytest.raises(ArtifactError, match="Permission denied"):
        artifacts.load(saved)


def test_newer_format(tmp_path: Path) -> None:
    path = tmp_path / "new.atm"
    write_container(path, {"format": 99}, {})
    with pytest.raises(ArtifactError) as caught:
        artifacts.load(path)
    assert caught.value.what == f"{path} has format 99, made by a newer autotensor; this one reads up to 4."


def test_files_of_the_first_format_are_still_read(saved: Path, tmp_path: Path) -> None:
    """Their code divides every region evenly, which needs nothing new from the runtime."""
    head, members = read_container(saved, artifacts.FORMAT)
    old = tmp_path / "old.atm"
    write_container(old, {**{k: v for k, v in head.items() if k != "members"}, "format": 1}, members)
    assert artifacts.load(old).objects == artifacts.load(saved).objects


@pytest.mark.skipif(host_machine() != "x86_64" or sys.platform != "linux", reason="their code is for it")
@pytest.mark.parametrize(("name", "batches"), [("format_2", (1,)), ("format_3", (1, 2))])
def test_models_of_older_formats_still_answer(name: str, batches: tuple[int, ...]) -> None:
    """A file of a convolution with these weights, from the last version that stored only prepared weights."""
    w = (np.arange(8 * 4 * 9).reshape(8, 4, 3, 3) % 7 - 3).astype(np.float32)
    f = load(Path(__file__).parent / "old" / f"{name}.atm")
    for batch in batches:
        x = (np.arange(batch * 256).reshape(batch, 4, 8, 8) % 5).astype(np.float32)
        around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
        want = np.maximum(np.einsum("nchwyx,kcyx->nkhw", windows, w), 0)
        assert (f(x) == want).all()  # sums of small whole numbers


def test_well_sealed_nonsense(tmp_path: Path) -> None:
    path = tmp_path / "odd.atm"
    write_container(path, {"format": 1, "args": [{"name": "A"}]}, {})
    with pytest.raises(ArtifactError, match="does not describe a compiled function"):
        artifacts.load(path)


def test_saving_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"cannot write .*: No such file or directory"):
        artifacts.save(tmp_path / "no" / "x.atm", sample_artifact())
    path = tmp_path / "x.atm"
    with pytest.raises(ArtifactError, match="is not plain JSON"):
        artifacts.save(path, renamed(sample_artifact(), meta={"f": object()}))
    assert not path.exists()


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def full_disk(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(container, "_seal", full_disk)
    with pytest.raises(ArtifactError, match=r"cannot write .*: No space left on device"):
        artifacts.save(saved, sample_artifact())
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArgSpec("A", "inout", (1,), "float32"), "argument 'A' has unknown role 'inout'"),
        (lambda: ArgSpec("A", "input", (-1,), "float32"), r"argument 'A' has impossible shape \(-1,\)"),
        (lambda: ArgSpec("A", "input", (1,), "float32", True), "per thread but not a workspace"),
        (lambda: renamed(add_artifact(), args=(ARGS[0], ARGS[0])), "two arguments of one name: W, W"),
        (
            lambda: renamed(add_artifact(), values={"A": np.zeros(1)}),
            "value for 'A', which is not a constant",
        ),
        (
            lambda: renamed(sample_artifact(), values={"W": np.zeros((7, 5), np.float32)}),
            r"value of W: float32\[5, 7\] is float32\[7, 5\]",
        ),
    ],
)
def test_impossible_artifacts(make: object, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        make()  # type: ignore[operator]


def test_sizes() -> None:
    spec = ARGS[5]
    assert (spec.bytes, spec.stride, str(ARGS[0])) == (3, 64, "W: float32[5, 7]")


def test_hundred_megabytes_load(tmp_path: Path) -> None:
    n = 25 << 20
    weights = renamed(
        add_artifact(),
        args=(ArgSpec("W", "constant", (n,), "float32"),),
        values={"W": np.ones(n, np.float32)},
    )
    path = tmp_path / "large.atm"
    artifacts.save(path, weights)
    loaded = artifacts.load(path)
    assert loaded.values["W"][-1] == 1


@pytest.mark.parametrize(
    ("name", "fix"), [("x.o", "at.write_c"), ("x.so", "at.write_c"), ("x.ll", "f.source")]
)
def test_files_of_other_kinds_are_refused(tmp_path, name, fix):
    with pytest.raises(ArtifactError, match=re.escape(fix)):
        artifacts.save(tmp_path / name, add_artifact())
    assert not (tmp_path / name).exists()
