"""Schedules that come with the package, from tuning on machines that we could measure.

    schedules/tuned/<class of machines>/schedules.jsonl      a header, then one record on each line
                                        cost_model.json.gz   a cost model that learned on these machines

    offers(workload key, target)  ─fingerprint rule─▶  exact: `untuned` may use it at once
                                                       compatible: a tuning run measures it (`seeds`)
                                                       refused: only reported

A record holds the hash of the default schedule that it beat. If today's rules make another default, the race
says nothing about the new default, and the record is only a seed. If they make the record's own trace, the
record adds nothing. Files are read at the first use, and only the files of machines that fit.
AUTOTENSOR_NO_SHIPPED=1 turns all this off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotensor.base import switches
from autotensor.base.errors import ScheduleError
from autotensor.base.machine import HostMachine, host_machine
from autotensor.base.target import Target
from autotensor.schedule.trace import Trace
from autotensor.te.workload import Workload
from schedules.machines import Fit, Verdict, fit
from schedules.records import SCHEDULES, TunedClass, TunedRecord, read_class, read_header

PLACE = Path(__file__).parent / "tuned"
COST_MODEL = "cost_model.json.gz"
MOST_SEEDS = 2  # most seeds of one task, because each takes a trial from the search


@dataclass(frozen=True, slots=True)
class Offer:
    """A record, its class of machines, and how well it fits this machine."""

    record: TunedRecord
    source: TunedClass
    verdict: Verdict

    @property
    def origin(self) -> str:
        """The place of the measurement, as a text for people."""
        return f"{self.source.machine.cpu_model}, {self.record.date}"


def offers(
    workload_key: str,
    target: Target,
    *,
    refused: bool = False,
    place: Path | None = None,
    here: HostMachine | None = None,
) -> tuple[Offer, ...]:
    """The shipped records of a workload, best first; with `refused`, also those that cannot be used on this
    machine.

    The result is empty if AUTOTENSOR_NO_SHIPPED is set.
    """
    if switches.no_shipped():
        return ()
    found = []
    for folder, verdicts in _verdicts(target, place, here):
        if not refused and all(v.fit is Fit.REFUSED for v in verdicts.values()):
            continue
        shelf = _class(folder)
        mine = (r for r in shelf.records if r.workload == workload_key)
        found += [Offer(r, shelf, verdicts[r.target]) for r in mine]
    order = list(Fit)
    kept = (o for o in found if refused or o.verdict.fit is not Fit.REFUSED)
    return tuple(sorted(kept, key=lambda o: (order.index(o.verdict.fit), o.record.ratio)))


def untuned(
    workload: Workload, target: Target, default_hash: str, *, place: Path | None = None
) -> tuple[Offer, Trace] | None:
    """The record that may be used on this machine without measuring, with its trace; None if there is none.

    This is a record of this class of machines that beat today's default, `default_hash`, and whose trace
    still applies. It was verified on the machine of the record; a tuning run verifies it again.
    """
    for offer in offers(workload.key, target, place=place):
        record = offer.record
        if offer.verdict.fit is Fit.EXACT and record.default == default_hash != record.trace_hash:
            trace = applicable(record, workload)
            if trace is not None:
                return offer, trace
    return None


def seeds(workload: Workload, target: Target, default_hash: str, *, place: Path | None = None) -> list[Trace]:
    """Traces that a tuning run should measure right after the default, best first."""
    found: dict[str, Trace] = {}
    for offer in offers(workload.key, target, place=place):
        trace = applicable(offer.record, workload)
        if trace is not None and trace.hash != default_hash:
            found.setdefault(trace.hash, trace)
    return list(found.values())[:MOST_SEEDS]


def applicable(record: TunedRecord, workload: Workload) -> Trace | None:
    """The record's trace, if this version still has its steps and they apply to the workload."""
    try:
        trace = Trace.from_json(record.trace)
        trace.replay(workload.dag)
    except ScheduleError:
        return None
    return trace


def fits(target: Target, *, place: Path | None = None) -> bool:
    """Whether any shipped record may be used or measured on this machine."""
    found = () if switches.no_shipped() else _verdicts(target, place, None)
    return any(v.fit is not Fit.REFUSED for _, verdicts in found for v in verdicts.values())


def cost_model(target: Target, *, place: Path | None = None, here: HostMachine | None = None) -> Path | None:
    """The file of a cost model that learned on this class of machines, or otherwise on a compatible class; or
    None."""
    if switches.no_shipped():
        return None
    order = list(Fit)
    fits: list[tuple[int, Path]] = []
    for folder, verdicts in _verdicts(target, place, here):
        best = min((order.index(v.fit) for v in verdicts.values()), default=len(order))
        if best <= order.index(Fit.COMPATIBLE) and (folder / COST_MODEL).is_file():
            fits.append((best, folder / COST_MODEL))
    return min(fits)[1] if fits else None


@dataclass(frozen=True, slots=True)
class Inventory:
    """The records of one class of machines for one target."""

    name: str  # the folder's name
    machine: HostMachine
    target: str  # key
    count: int
    verdict: Verdict


def inventory(target: Target, *, place: Path | None = None) -> tuple[Inventory, ...]:
    """All shipped records by class, and how well they fit `target` on this machine, whether they are used or
    not."""
    return tuple(
        Inventory(folder.name, shelf.machine, key, sum(r.target == key for r in shelf.records), verdict)
        for folder, verdicts in _verdicts(target, place, None)
        for shelf in [_class(folder)]
        for key, verdict in verdicts.items()
    )


def classes(place: Path | None = None) -> tuple[Path, ...]:
    """The folders of all classes of machines, in order of their names."""
    return tuple(sorted(f.parent for f in (place or PLACE).glob(f"*/{SCHEDULES}")))


def _verdicts(
    target: Target, place: Path | None, here: HostMachine | None
) -> Iterator[tuple[Path, dict[str, Verdict]]]:
    """For every class, how well its targets fit this machine. Reads only the first lines of the files."""
    ours = here or host_machine()
    for folder in classes(place):
        machine, targets = _header(folder)
        yield folder, {key: fit(machine, theirs, ours, target) for key, theirs in targets.items()}


@lru_cache(maxsize=64)
def _header(folder: Path) -> tuple[HostMachine, dict[str, Target]]:
    return read_header(folder / SCHEDULES)


@lru_cache(maxsize=64)
def _class(folder: Path) -> TunedClass:
    return read_class(folder / SCHEDULES)
