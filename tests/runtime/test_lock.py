"""The timing lock: between processes, between threads, re-entrant, released by death."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from autotensor.base.errors import MeasureError
from autotensor.runtime import lock
from autotensor.runtime.lock import MachineLock

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from pathlib import Path
from autotensor.runtime.lock import MachineLock
with MachineLock(Path(sys.argv[1]))():
    print("held", flush=True)
    sys.stdin.read()
"""

COUNT_UP = """
import sys
from pathlib import Path
from autotensor.runtime.lock import MachineLock
lock, counter = MachineLock(Path(sys.argv[1])), Path(sys.argv[2])
for _ in range(100):
    with lock():
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def start(script: str, *args: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_two_processes_take_turns(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    with start(COUNT_UP, tmp_path / "l", counter) as one, start(COUNT_UP, tmp_path / "l", counter) as two:
        assert (one.wait(30), two.wait(30)) == (0, 0)
    assert counter.read_text() == "200"


def test_gives_up_naming_the_holder_and_is_free_after_its_death(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with start(HOLD, path) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        with pytest.raises(MeasureError) as caught:
            MachineLock(path).acquire(timeout_s=0.1)
        assert 0.1 <= time.monotonic() - began < 2
        expected = f"the timing lock {path} is held by process {holder.pid}; gave up after 0.1 s."
        assert caught.value.what == expected
        holder.kill()
        holder.wait()
        with MachineLock(path)(timeout_s=5):
            pass


def test_reentrant_in_a_thread_but_not_between_threads(tmp_path: Path) -> None:
    guard = MachineLock(tmp_path / "l")
    order: list[str] = []

    def other() -> None:
        with guard():
            order.append("other")

    with guard(), guard(timeout_s=0):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join(5)
    assert order == ["first", "other"]


def test_the_machines_lock_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    with lock.timing_lock(), lock.timing_lock():
        assert lock.private_folder().stat().st_mode & 0o777 == 0o700
    folder = lock.private_folder()
    (folder / "timing.lock").unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(MeasureError, match="belongs to somebody else"):
        lock.private_folder()


def test_a_folder_that_vanished(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="cannot be opened: No such file or directory"):
        MachineLock(tmp_path / "no" / "l").acquire()
