"""One command started twice on one log, and killed at any moment: every trial once, none lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import Server

from tuning_db import SessionKind, connect

ROOT = Path(__file__).parents[2]
TRIALS = 48
MOMENTS = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 50))]
TUNER = """if True:
    import sys, time
    from fakes import FakeMeasurer
    from runs import PRODUCT, SMALL_PRODUCT, run
    from autotensor.search.events import Waiting
    from tuning_db import connect

    class Slow(FakeMeasurer):
        def measure(self, *asked, **how):
            time.sleep(0.05)
            return super().measure(*asked, **how)

    def hear(event):
        if isinstance(event, Waiting):
            print("waits for", event.other, flush=True)

    measurer = Slow()
    measurer.in_flight = int(sys.argv[3])
    print("starts", flush=True)
    with connect(sys.argv[1]) as store:
        report = run([PRODUCT, SMALL_PRODUCT], int(sys.argv[2]), store, measurer, hear, patience=False)
    print("trials", report.trials, flush=True)
"""


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.postgres)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "log.db")
    found: Server = request.getfixturevalue("server")
    found.empty()
    return found.url


@pytest.fixture(params=[1, 2], ids=["one", "two"])
def in_flight(request: pytest.FixtureRequest) -> int:
    """Batches that the measurer takes at once."""
    return int(request.param)


@pytest.fixture
def start(address: str, in_flight: int) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    folders = [ROOT, ROOT / "tests" / "search", ROOT / "tests" / "kit"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    started: list[subprocess.Popen[str]] = []

    def one() -> subprocess.Popen[str]:
        words = [sys.executable, "-c", TUNER, address, str(TRIALS), str(in_flight)]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.communicate()


def check(address: str) -> None:
    with connect(address) as store:
        assert store.check().ok
        (session,) = store.sessions(SessionKind.SEARCH)
        rows = store.trials(session=session.id)
        assert len(rows) == len({(t.workload, t.trace_hash) for t in rows}) == TRIALS
        assert session.stop_reason
        assert (session.owner, session.lease_until) == ("", None)
        assert store.open_intents() == ()


@pytest.mark.sample(1)
def test_two_at_once_share_one_run(address: str, start: Callable[[], subprocess.Popen[str]]) -> None:
    said = [p.communicate(timeout=120)[0].splitlines() for p in (start(), start())]
    assert [lines[-1] for lines in said] == [f"trials {TRIALS}"] * 2
    waited = [line for lines in said for line in lines if line.startswith("waits for process ")]
    assert len(waited) <= 1  # none if one had ended before the other began
    check(address)
    with connect(address) as store:
        assert len(store.openings()) == 2


@pytest.mark.parametrize("seed", MOMENTS)
@pytest.mark.sample(60)
def test_killed_at_any_moment(address: str, start: Callable[[], subprocess.Popen[str]], seed: int) -> None:
    rng = random.Random(seed)
    alive = [start(), start()]
    for process in alive:
        assert process.stdout is not None
        assert process.stdout.readline() == "starts\n"
    for _ in range(2):
        time.sleep(rng.uniform(0.0, 0.6))
        alive.pop(rng.randrange(2)).kill()
        alive.append(start())
    for process in alive:
        assert process.communicate(timeout=120)[0].splitlines()[-1] == f"trials {TRIALS}"
    check(address)
