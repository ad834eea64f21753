"""Two real workers, as `autotensor fleet worker` starts them, behind a scheduler on the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import autotensor as at
from autotensor import te
from autotensor.api.fleet import Fleet
from autotensor.base.errors import InputError, MeasureError
from autotensor.models import MODELS
from autotensor.search.options import TuneOptions
from tuning_db import SessionKind, connect

pytest.importorskip("distributed")
pytestmark = pytest.mark.cluster
STARTED_S = 120.0


def free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[psutil.Process]]]:
    """The scheduler's address, and the workers' processes; all are ended after the test."""
    port, folder = free_port(), tmp_path_factory.mktemp("dask")
    place = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    started = [subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *place], cwd=folder)]
    command = [sys.executable, "-m", "autotensor", "fleet", "worker", f"localhost:{port}", "--threads", "1"]
    started += [
        subprocess.Popen([*command, "--name", name, "--no-check"], cwd=folder) for name in ("one", "two")
    ]
    try:
        with Fleet(when_up(f"localhost:{port}")) as fleet:
            end = time.monotonic() + STARTED_S
            while len(fleet.engine.workers()) < 2 and time.monotonic() < end:
                time.sleep(0.2)
            assert len(fleet.engine.workers()) == 2
        yield f"localhost:{port}", [psutil.Process(p.pid) for p in started[1:]]
    finally:
        for p in reversed(started):
            p.terminate()
        for p in reversed(started):
            p.wait(30)


def when_up(address: str) -> str:
    end = time.monotonic() + STARTED_S
    while True:
        try:
            Fleet(address).close()
            return address
        except MeasureError:
            assert time.monotonic() < end
            time.sleep(0.5)


def test_a_computation_is_raced_on_both_workers(
    scheduler: tuple[str, list[psutil.Process]], tmp_path: Path
) -> None:
    a, b = te.placeholder((64, 96), name="A"), te.placeholder((96, 48), name="B")
    k = te.reduce_axis(96, name="k")
    c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    address = str(tmp_path / "log.db")
    report = at.tune([a, b, c], trials=8, fleet=scheduler[0], db=address, progress=False)
    assert report.trials == 8
    with connect(address) as store:
        assert len(store.trials(session=store.sessions(SessionKind.SEARCH)[0].id)) == 8
        assert len(store.sessions(SessionKind.RACE)) == 2
        assert store.calibration(store.sessions()[0].machine)  # by a worker
        assert not store.open_intents()


def test_a_small_model_with_a_killed_worker(
    scheduler: tuple[str, list[psutil.Process]], tmp_path: Path
) -> None:
    address, killed = str(tmp_path / "log.db"), []

    def kill_once(event: object) -> None:
        """The process that measures, not the one that starts it again."""
        if not killed:
            killed.append(max(scheduler[1][0].children(), key=lambda p: p.memory_info().rss).pid)
            os.kill(killed[0], signal.SIGKILL)

    graph = MODELS.get("mlp").build()
    plan = at.plan_model(graph, "llvm -threads=1")
    report = at.tune_model(
        plan, TuneOptions(trials=48), db=address, fleet=scheduler[0], listener=kill_once, progress=False
    )
    assert killed
    assert report.tuning.trials == 48
    with connect(address) as store:
        (search,) = store.sessions(SessionKind.SEARCH)
        rows = [(t.workload, t.trace_hash) for t in store.trials(session=search.id)]
        assert len(rows) == len(set(rows)) == 48
        assert not store.open_intents()


def test_without_certificates_it_is_one_sentence() -> None:
    with pytest.raises(
        InputError, match=r"tls://localhost:9 needs certificates, and dask's configuration names"
    ):
        Fleet("tls://localhost:9")
