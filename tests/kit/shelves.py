"""Tuned schedules for tests, as if they were shipped: for this machine, or for a similar one."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotensor import te
from autotensor.base.machine import HostMachine, host_machine
from autotensor.base.target import Target, parse
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from schedules import shipped
from schedules.generate import generate
from schedules.records import SCHEDULES, TunedClass, TunedRecord, to_text


def product(m: int = 48, n: int = 64, k: int = 32) -> Workload:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis(k, name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return Workload.of(ComputeDAG.of([a, b, c]), "product")


def traces(workload: Workload, target: Target, count: int = 3) -> list[Trace]:
    """The default, then schedules of the first sketch with one changed decision each, and then those of the
    next sketch."""
    found: dict[str, Trace] = {}
    for sketch in generate(workload.dag, target):
        decisions = [sketch.defaults()]
        decisions += [{**sketch.defaults(), h.name: o} for h in sketch.holes for o in h.options]
        for trace in map(sketch.fill, decisions):
            found.setdefault(trace.hash, trace)
    assert len(found) >= count
    return list(found.values())[:count]


def record(workload: Workload, target: Target, trace: Trace, default: Trace, **other: object) -> TunedRecord:
    facts: dict[str, object] = dict(
        name=workload.name, workload=workload.key, text=workload.text, target=target.key(),
        trace=trace.to_json(),
        trace_hash=trace.hash, default=default.hash, seconds=1e-5, default_s=2e-5, ratio=0.5, samples=9,
        residency="graph", max_error=0.0, tolerance=1e-5, seeds=(0, 1), date="2026-11-22",
    )  # fmt: skip
    return TunedRecord(**{**facts, **other})  # type: ignore[arg-type]


def put(place: Path, *records: TunedRecord, machine: HostMachine | None = None, target: Target | None = None,
        name: str = "here") -> Path:  # fmt: skip
    """Writes a class of machines; gives its folder."""
    chosen = target or parse()
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    shelf = TunedClass(machine or host_machine(), {chosen.key(): chosen}, records)
    (folder / SCHEDULES).write_text(to_text(shelf))
    return folder


def use(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Lets this test use the files in `place` as the shipped ones."""
    monkeypatch.delenv("AUTOTENSOR_NO_SHIPPED", raising=False)
    monkeypatch.setattr(shipped, "PLACE", place)
