"""Limits count a child's own time, without the time that it waits for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from card.own_time import OwnTime

SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


class Machine:
    """A made-up /proc and its clock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.clock = OwnTime(folder, lambda: self.now)

    def waited(self, seconds: float, pid: int = 7, thread: int = 7, children: str = "") -> None:
        task = self.folder / str(pid) / "task" / str(thread)
        task.mkdir(parents=True, exist_ok=True)
        (task / "schedstat").write_text(f"1 {int(seconds * 1e9)} 1\n")
        (task / "children").write_text(children)

    def after(self, seconds: float) -> float:
        self.now += seconds
        return self.clock.look(7)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_time_passes_where_nobody_says_anything(machine: Machine) -> None:
    assert machine.after(2.0) == 2.0
    assert machine.after(1.0) == 3.0


def test_waiting_is_left_out(machine: Machine) -> None:
    machine.waited(0.5)
    assert machine.after(2.0) == pytest.approx(1.5)
    assert machine.after(1.0) == pytest.approx(2.5)


def test_a_long_wait_is_told_late_and_left_out_all_the_same(machine: Machine) -> None:
    machine.after(1.0)
    machine.waited(1.5)
    assert machine.after(1.0) == pytest.approx(1.0)
    assert machine.after(1.0) == pytest.approx(1.5)


def test_of_many_threads_the_one_that_waited_longest_counts(machine: Machine) -> None:
    for thread in range(8):
        machine.waited(0.1 * thread, thread=thread)
    assert machine.after(1.0) == pytest.approx(0.3)


def test_children_of_the_child_wait_for_it(machine: Machine) -> None:
    machine.waited(0.0, children="9")
    machine.waited(0.6, pid=9, thread=9)
    assert machine.after(1.0) == pytest.approx(0.4)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not say who waits")
def test_two_on_one_processor_wait_for_each_other() -> None:
    core, began, clock = str(min(os.sched_getaffinity(0))), time.monotonic(), OwnTime()
    children = [
        subprocess.Popen([sys.executable, "-c", SPIN, core], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        started = time.monotonic()
        while time.monotonic() < started + max(1.0, 2 * (started - began)):
            time.sleep(0.05)
            own = clock.look(children[0].pid)
        assert 0.0 < own < 0.8 * (time.monotonic() - began)
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()
