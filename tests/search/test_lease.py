"""One process works on a run. The others wait, name this process, and continue from its results."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from autotensor.search.machine import lease
from autotensor.search.machine.lease import WorkedOn, leased, new_owner, shown, surely_gone
from tuning_db import Claim, Machine, TrialStore, connect
from tuning_db.values import now


@pytest.fixture
def store(tmp_path: Path) -> TrialStore:
    return connect(tmp_path / "log.db")


def claim(store: TrialStore, owner: str, fresh: bool = False) -> Claim:
    machine = store.ensure_machine(Machine("m"))
    environment = store.ensure_environment({"python": "3"})
    return store.claim(
        run_key="run", seed=0, machine=machine, environment=environment, owner=owner, lease_s=60.0,
        fresh=fresh, gone=surely_gone,
    )  # fmt: skip


def test_an_owner_is_gone_when_its_process_is() -> None:
    code = "from autotensor.search.machine.lease import new_owner\nprint(new_owner())\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        owner = child.stdout.readline().strip()
        assert shown(owner) == f"process {child.pid} on {os.uname().nodename}"
        assert not surely_gone(owner)
        child.kill()
    assert surely_gone(owner)
    parts = owner.split(" ")
    reused = " ".join([*parts[:3], str(os.getppid()), "1", parts[5]])  # the number, and another process
    assert surely_gone(reused)


@pytest.mark.parametrize("owner", ["", "ada", "host boot space 1", "host other-boot space 1 2 x"])
def test_of_an_owner_that_is_nowhere_to_be_seen_nothing_is_known(owner: str) -> None:
    assert not surely_gone(owner)


def ours(store: TrialStore, wait_s: float = 0.0, **how: Any) -> AbstractContextManager[Claim]:
    return leased(store, lambda owner: claim(store, owner), lambda: wait_s, **how)


def test_a_session_has_one_owner(store: TrialStore) -> None:
    with ours(store) as first:
        assert first.mine
        with pytest.raises(WorkedOn, match=f"process {os.getpid()} on "), ours(store):
            pytest.fail("it has two")
        assert claim(store, new_owner(), fresh=True).session.id != first.session.id


def test_the_next_waits_until_it_is_given_up(store: TrialStore) -> None:
    said: list[str] = []
    with ours(store) as first:
        threading.Timer(0.3, store.end_session, (first.session.id, "done")).start()
        with ours(store, wait_s=10.0, say=said.append) as second:
            assert (second.session.id, second.ended_before) == (first.session.id, "done")
    assert said == [shown(first.session.owner)]


def test_what_was_given_up_or_ran_out_is_continued(store: TrialStore) -> None:
    with pytest.raises(RuntimeError), ours(store) as first:
        raise RuntimeError  # the lease ends with the block, even after an error
    assert not store.sessions()[0].held(now())
    elsewhere = "far boot space 1 2 x"
    assert claim(store, elsewhere).session.id == first.session.id
    with pytest.raises(WorkedOn), ours(store):
        pytest.fail("nobody knows whether the other lives")
    assert store.renew(first.session.id, elsewhere, lease_s=0.0)
    time.sleep(0.01)
    with ours(store) as again:
        assert again.session.id == first.session.id


def test_a_lease_is_prolonged_while_the_run_goes_on(
    store: TrialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.01)
    with ours(store) as mine:
        until = time.monotonic() + 5.0
        while store.sessions()[0].lease_until == mine.session.lease_until:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not store.renew(mine.session.id, "somebody else")


def test_of_many_who_ask_at_once_one_gets_it(store: TrialStore) -> None:
    owners = [f"far boot space 1 2 {n}" for n in range(8)]
    found: list[Claim] = []
    threads = [threading.Thread(target=lambda o=o: found.append(claim(store, o))) for o in owners]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8
    assert sum(c.mine for c in found) == 1
    assert len(store.sessions()) == 1
