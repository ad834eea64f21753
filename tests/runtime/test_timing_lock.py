"""The timing lock: between processes, between threads, re-entrant, released by death."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autotensor.base.deadline import NEVER, Deadline
from autotensor.base.errors import MeasureError
from autotensor.runtime import timing_lock
from autotensor.runtime.timing_lock import BusyError, MachineLock, compiling, timing_by

ROOT = Path(__file__).parents[2]

HOLD = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from autotensor.runtime.timing_lock import MachineLock
with MachineLock(Path(sys.argv[1]))():
    print("held", flush=True)
    sys.stdin.read()
"""

COUNT_UP = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from autotensor.runtime.timing_lock import MachineLock
lock, counter = MachineLock(Path(sys.argv[1])), Path(sys.argv[2])
for _ in range(100):
    with lock():
        counter.write_text(str(int(counter.read_text()) + 1))
"""


SHARE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from autotensor.runtime.timing_lock import MachineLock
with MachineLock(Path(sys.argv[1])).shared():
    print("held", flush=True)
    sys.stdin.read()
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


def test_many_share_it_and_nobody_has_it_meanwhile(tmp_path: Path) -> None:
    """Compiling in one process keeps timing in another waiting, and the other way round."""
    path = tmp_path / "l"
    with start(SHARE, path) as one, start(SHARE, path) as other:
        for holder in (one, other):
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
        with pytest.raises(MeasureError) as caught:
            MachineLock(path).acquire(timeout_s=0.1)
        assert caught.value.what == f"the timing lock {path} is held; gave up after 0.1 s."
        one.communicate("")
        with pytest.raises(MeasureError):
            MachineLock(path).acquire(timeout_s=0.1)
        other.communicate("")
        with MachineLock(path)(timeout_s=5):
            late = start(SHARE, path)
            assert late.stdout is not None
            time.sleep(0.3)
            assert late.poll() is None
            began = time.monotonic_ns()
        assert late.stdout.readline() == "held\n"
        assert time.monotonic_ns() > began
        late.communicate("")


def test_who_waits_for_the_lock_comes_before_those_who_would_share_it_next(tmp_path: Path) -> None:
    path = tmp_path / "l"
    guard = MachineLock(path)
    order: list[str] = []

    def timing() -> None:
        with MachineLock(path)():
            order.append("timing")

    def compiling() -> None:
        with MachineLock(path).shared():
            order.append("compiling")

    with guard.shared():
        threads = []
        for work in (timing, compiling):
            threads.append(threading.Thread(target=work))
            threads[-1].start()
            time.sleep(0.2)
        assert order == []
    for thread in threads:
        thread.join(5)
    assert order == ["timing", "compiling"]


def test_who_has_it_may_share_it_with_itself(tmp_path: Path) -> None:
    guard = MachineLock(tmp_path / "l")
    with guard():
        with guard.shared():
            pass
        with pytest.raises(MeasureError):
            MachineLock(tmp_path / "l").acquire(timeout_s=0.05)
    with MachineLock(tmp_path / "l")(timeout_s=0):
        pass


def test_the_machines_lock_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    with timing_lock.timing_lock(), timing_lock.timing_lock():
        assert timing_lock.private_folder().stat().st_mode & 0o777 == 0o700
    folder = timing_lock.private_folder()
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(MeasureError, match="belongs to somebody else"):
        timing_lock.private_folder()


def test_a_folder_that_vanished(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="cannot be opened: No such file or directory"):
        MachineLock(tmp_path / "no" / "l").acquire()


def test_who_must_be_done_goes_on_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process (here: another open file) holds the lock until the deadline has passed. This process
    does not hold it afterwards."""
    monkeypatch.setattr(timing_lock, "private_folder", lambda: tmp_path)
    other = MachineLock(tmp_path / "timing.lock")
    with other():
        with timing_by(Deadline.after(0.05)) as alone:
            assert not alone
        with pytest.raises(BusyError, match=r"gave up after 0\.01 s"), compiling(0.01):
            pass
    with timing_by(Deadline.after(0.0)) as alone:
        assert alone
    with timing_by(NEVER) as alone, compiling(0.0):
        assert alone


def test_spare_cores_may_compile_beside_who_times_on_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_lock.tempfile, "gettempdir", lambda: str(tmp_path))
    with compiling(0.0, spare=True), ThreadPoolExecutor(1) as other:

        def taken(beside: bool) -> bool:
            try:
                with timing_lock.timing_lock(0.1, beside=beside):
                    return True
            except BusyError:
                return False

        assert other.submit(taken, True).result()
        assert not other.submit(taken, False).result()  # on all cores: those are taken
    with timing_lock.timing_lock(0.0), ThreadPoolExecutor(1) as other, pytest.raises(BusyError):
        other.submit(compiling(0.1, spare=True).__enter__).result()
