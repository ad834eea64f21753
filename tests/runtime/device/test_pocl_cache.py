"""PoCL's kernels: their folder, and the order in which they are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotensor.runtime.device.pocl_cache import sweep, use_own_folder
from autotensor.runtime.files.object_cache import ObjectCache

KERNEL = """
import numpy as np
from autotensor.runtime.device.contract import DeviceCall
from autotensor.runtime.device.devices import open_device

source = b"__kernel void twice(__global float* y) { y[get_group_id(0)] *= 2.0f; }"
device = open_device("opencl")
memory = device.allocate(16)
device.write(memory, np.ones(4, np.float32))
device.plan((source,), [DeviceCall("twice", (memory,), (4, 1, 1), (1, 1, 1))])()
out = np.empty(4, np.float32)
device.read(memory, out)
assert out.tolist() == [2, 2, 2, 2]
"""


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POCL_CACHE_DIR", "POCL_KERNEL_CACHE"):
        monkeypatch.setenv(name, "")  # so that it is taken back afterwards
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unset")
def test_kernels_lie_beside_objects(tmp_path: Path) -> None:
    folder = use_own_folder(ObjectCache(tmp_path / "objects", 1 << 20))
    assert folder == tmp_path / "pocl"
    assert os.environ["POCL_CACHE_DIR"] == str(folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert use_own_folder(ObjectCache(tmp_path / "other", 1 << 20)) is None  # said once a process


@pytest.mark.usefixtures("unset")
def test_no_cache_keeps_no_kernels(tmp_path: Path) -> None:
    assert use_own_folder(ObjectCache(tmp_path / "objects", 0)) is None
    assert os.environ["POCL_KERNEL_CACHE"] == "0"


def test_a_users_own_words_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POCL_CACHE_DIR", "/elsewhere")
    assert use_own_folder(ObjectCache(tmp_path / "objects", 1 << 20)) is None
    assert os.environ["POCL_CACHE_DIR"] == "/elsewhere"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    for n, name in enumerate(("old", "middle", "new")):
        program = tmp_path / "AA" / name
        (program / "kernel" / "1-1-1").mkdir(parents=True)
        (program / "kernel" / "1-1-1" / "kernel.so").write_bytes(bytes(1000))
        (program / "last_accessed").touch()
        os.utime(program / "last_accessed", (1000.0 + n, 1000.0 + n))
    assert sweep(tmp_path, 1 << 20) == 0
    whole = sum(p.stat().st_size for p in tmp_path.glob("*/*/**/*"))
    assert sweep(tmp_path, whole - 1) == 1
    assert sorted(p.name for p in tmp_path.glob("*/*")) == ["middle", "new"]


@pytest.mark.opencl
def test_a_kernel_is_compiled_once_and_for_one_size_of_block(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("POCL_")}
    for _ in range(2):
        environment = {**kept, "AUTOTENSOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", KERNEL], env=environment, check=True, timeout=300)
        assert len(list((tmp_path / "pocl").rglob("twice.so"))) == 1
