"""Kernels are the same in whichever process they are compiled, and none is missing if children fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from autotensor import te
from autotensor.base.errors import ScheduleError
from autotensor.base.target import host
from autotensor.compiling import compile_jobs as module
from autotensor.compiling.compile_jobs import JOBS_EACH, Job, compile_jobs
from autotensor.runtime.files.object_cache import ObjectCache
from autotensor.runtime.files.packed_artifact import pack
from autotensor.runtime.workers.children import Child
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules.generate import default_trace

PATIENCE_S = 60.0


def job(columns: int) -> Job:
    a, w = te.placeholder((9, 8), name="a"), te.placeholder((8, columns), name="w", constant=True)
    k = te.reduce_axis(8, name="k")
    dense = te.compute((9, columns), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k))
    workload = Workload.of(ComputeDAG.of(dense))
    return Job(workload, default_trace(workload.dag, host()), host(), f"dense{columns}")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Just enough for one child."""
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    return [job(16 + n) for n in range(2 * JOBS_EACH)]


class Kept(ObjectCache):
    """A cache that keeps nothing, and counts the entries that other threads bring."""

    def __init__(self) -> None:
        super().__init__(None, 0)
        self.brought: list[str] = []
        self.here = threading.get_ident()

    def put(self, key: str, data: bytes) -> bytes:
        if threading.get_ident() != self.here:
            self.brought.append(key)
        return data


def helpers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "autotensor-compile"]


def until(test: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not test():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], object]]]:
    """This process compiles nothing before the test in the list is true."""
    tests: list[Callable[[], object]] = []
    real = Job.compile

    def compile_later(self: Job, cache: ObjectCache) -> object:
        until(tests[0])
        return real(self, cache)

    monkeypatch.setattr(Job, "compile", compile_later)
    yield tests
    assert not helpers()


def texts(jobs: list[Job], cache: ObjectCache) -> list[bytes]:
    return [pack(a) for a in compile_jobs(jobs, cache)]


def alone(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setattr(module, "usable_cores", lambda: 1)
    return texts(jobs, ObjectCache(None, 0))


def test_a_child_makes_the_same(jobs, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Kept()
    slow.append(lambda: len(cache.brought) >= 2)
    made = texts(jobs, cache)
    assert jobs[-1].key() in cache.brought  # from the end
    assert jobs[0].key() not in cache.brought
    assert made == alone(jobs, monkeypatch)


def test_aside_children_alone_compile(jobs, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.append(lambda: pytest.fail("this process compiles"))
    cache = Kept()
    made = [pack(a) for a in compile_jobs(jobs[:2], cache, aside=True)]  # one child, even for few jobs
    assert len(cache.brought) == 2
    slow[0] = lambda: True
    assert made == alone(jobs[:2], monkeypatch)


@pytest.mark.parametrize("aside", [False, True])
@pytest.mark.parametrize("ends", ["import os; os._exit(3)", "serve(lambda line: os._exit(3))"])
@pytest.mark.sample(1)
def test_a_child_that_dies_is_missed_by_nobody(
    ends: str, aside: bool, jobs, slow, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    says = "import os\nfrom autotensor.runtime.workers.child_serving import serve\n"
    (tmp_path / "dying.py").write_text(says + ends)
    monkeypatch.setattr(module, "WORKER", "dying")
    monkeypatch.setattr(module, "Child", partial(Child, path=[tmp_path]))
    slow.append(lambda: not helpers())
    cache = Kept()
    made = [pack(a) for a in compile_jobs(jobs, cache, aside)]
    assert not cache.brought
    assert made == alone(jobs, monkeypatch)


def test_what_is_wrong_is_said_as_ever(jobs, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Trace.from_json(default_trace(job(40).workload.dag, host()).to_json().replace("i1", "i7"))
    jobs[-1] = Job(jobs[-1].workload, other, host(), "wrong")
    slow.append(lambda: not helpers())  # no helper is left
    with pytest.raises(ScheduleError, match="has no axis 'i7'"):
        compile_jobs(jobs, Kept())


def test_who_interrupts_leaves_no_child(jobs, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Child] = []
    monkeypatch.setattr(module, "Child", lambda name: children.append(Child(name)) or children[-1])
    pids: list[int] = []

    def started() -> bool:
        pids.extend(c.pid for c in children if c.pid is not None)
        if pids:
            raise KeyboardInterrupt
        return False

    slow.append(started)
    with pytest.raises(KeyboardInterrupt):
        compile_jobs(jobs, Kept())
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_few_jobs_and_known_ones_need_no_child(jobs, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def none(name: str) -> Child:
        raise AssertionError("a child was started")

    monkeypatch.setattr(module, "Child", none)
    cache = ObjectCache(tmp_path, 1 << 24)
    first = [*texts(jobs[:JOBS_EACH], cache), *texts(jobs[JOBS_EACH:], cache)]
    assert texts(jobs, cache) == first
    assert cache.counts.hits == len(jobs)
