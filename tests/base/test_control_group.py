"""Control groups: the files of a made-up root, and a real group where this process may make one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotensor.base import target
from autotensor.base.granted.control_group import memory_below, quota_below

ROOT = Path(__file__).parents[2]
V2 = "25 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "30 1 0:27 {top} /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
V1_MEMORY = "31 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def of(root: Path, groups: str, mounts: str) -> None:
    put(root, "proc/self/cgroup", groups)
    put(root, "proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda rw\n" + mounts)


def test_no_groups_no_limits(tmp_path: Path) -> None:
    assert (quota_below(tmp_path), memory_below(tmp_path)) == (None, None)
    of(tmp_path, "0::/", V2)
    assert (quota_below(tmp_path), memory_below(tmp_path)) == (None, None)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("150000 100000", 1.5), ("max 100000", None), ("5000 10000", 0.5), ("100000", None), ("", None)],
)
def test_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    of(tmp_path, "0::/shop/web", V2)
    put(tmp_path, "sys/fs/cgroup/shop/web/cpu.max", text)
    assert quota_below(tmp_path) == quota


def test_the_least_on_the_way_up_counts(tmp_path: Path) -> None:
    of(tmp_path, "0::/a/b/c", V2)
    put(tmp_path, "sys/fs/cgroup/a/b/c/cpu.max", "max 100000")
    put(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "200000 100000")
    put(tmp_path, "sys/fs/cgroup/a/cpu.max", "300000 100000")
    put(tmp_path, "sys/fs/cgroup/other/cpu.max", "10000 100000")
    put(tmp_path, "sys/fs/cgroup/a/b/memory.max", "max")
    put(tmp_path, "sys/fs/cgroup/a/memory.max", "4096")
    assert (quota_below(tmp_path), memory_below(tmp_path)) == (2.0, 4096)


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    of(tmp_path, "0::/", V2)
    put(tmp_path, "sys/fs/cgroup/cpu.max", "100000 100000")
    assert quota_below(tmp_path) == 1.0


def test_a_group_above_what_is_mounted(tmp_path: Path) -> None:
    """Only the container's part of the host's hierarchy is visible, or the group lies outside of the
    namespace."""
    of(tmp_path, "0::/../../elsewhere", V2)
    put(tmp_path, "sys/fs/cgroup/cpu.max", "100000 100000")
    assert quota_below(tmp_path) == 1.0


@pytest.mark.parametrize("top", ["/", "/docker/17", "/docker/other"])
def test_version_1(tmp_path: Path, top: str) -> None:
    of(tmp_path, "4:cpu,cpuacct:/docker/17\n3:memory:/docker/17", V1.format(top=top) + V1_MEMORY)
    at = "sys/fs/cgroup/cpu,cpuacct" + ("/docker/17" if top == "/" else "")
    put(tmp_path, f"{at}/cpu.cfs_quota_us", "75000")
    put(tmp_path, f"{at}/cpu.cfs_period_us", "50000")
    put(tmp_path, "sys/fs/cgroup/memory/docker/17/memory.limit_in_bytes", str(1 << 30))
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert (quota_below(tmp_path), memory_below(tmp_path)) == (1.5, 1 << 30)
    put(tmp_path, f"{at}/cpu.cfs_quota_us", "-1")
    assert quota_below(tmp_path) is None


def test_both_versions_at_once(tmp_path: Path) -> None:
    unified = V2.replace("/cgroup rw", "/cgroup/unified rw")
    of(tmp_path, "4:cpu,cpuacct:/a\n0::/b", unified + V1.format(top="/"))
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000")
    put(tmp_path, "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000")
    assert quota_below(tmp_path) == 3.0
    put(tmp_path, "sys/fs/cgroup/unified/b/cpu.max", "250000 100000")
    assert quota_below(tmp_path) == 2.5


@pytest.mark.parametrize("text", ["garbage", "1 2 3", "0::", ":::\x00", "x" * 5000])
def test_what_nobody_can_read_is_no_limit(tmp_path: Path, text: str) -> None:
    put(tmp_path, "proc/self/cgroup", text)
    put(tmp_path, "proc/self/mountinfo", text)
    assert (quota_below(tmp_path), memory_below(tmp_path)) == (None, None)


def test_quota_and_affinity_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, quota, threads in ((8, None, 8), (8, 3.0, 3), (2, 16.0, 2), (4, 0.3, 1), (4, 2.9, 3)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=cores: set(range(n)), raising=False)
        monkeypatch.setattr(target, "cpu_quota", lambda q=quota: q)
        assert target.usable_cores() == target.default_threads() == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # the variable's number of threads wins
    assert target.default_threads() == 5


@contextlib.contextmanager
def group(quota: float) -> Iterator[Path]:
    """A real group of version 1 with a quota. Skips where this process may not make one."""
    path = Path(f"/sys/fs/cgroup/cpu/autotensor-test-{os.getpid()}")
    try:
        path.mkdir()
        (path / "cpu.cfs_quota_us").write_text(str(int(quota * 100_000)))
    except OSError as error:
        pytest.skip(f"no control group of version 1 can be made here: {error}")
    try:
        yield path
    finally:
        for _ in range(100):  # its last process may not be gone yet
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)


@pytest.mark.parametrize(("quota", "most"), [(0.5, 1), (1.0, 1), (2.0, 2), (64.0, 64)])
def test_a_process_in_a_real_group(quota: float, most: int) -> None:
    script = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from autotensor.base.granted.control_group import cpu_quota
from autotensor.base.target import default_threads, host
print(cpu_quota(), default_threads(), host().num_cores)
"""
    with group(quota) as path:
        environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        command = [sys.executable, "-c", script, str(path)]
        environment["PYTHONPATH"] = str(ROOT)
        said = subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout
    threads = min(most, len(os.sched_getaffinity(0)))
    assert said == f"{quota} {threads} {threads}\n"
