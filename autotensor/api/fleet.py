"""A tuning run on one class of a fleet's machines, with that class's calibration and session in the log.

    with Fleet("tls://scheduler:8786") as fleet:
        at.tune([A, B, C], trials=256, fleet=fleet, db="postgresql+psycopg://…")

Workers of several classes may share a scheduler; a run uses one class, because times of two classes are not
comparable. Other classes can have runs at the same time. Only this process writes the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property

from autotensor.base.errors import InputError
from autotensor.base.target import Target, parse
from autotensor.search.fleet.engine import Engine
from autotensor.search.fleet.machine_class import MachineClass, class_here
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.report import TuneReport
from autotensor.search.run import TuningRun
from schedules.prior.rates import Rates
from schedules.registry import BROUGHT
from tuning_db import TrialStore
from tuning_db.records import Calibration


class Fleet:
    """The workers of one class behind a scheduler."""

    def __init__(self, address: str | Engine, tag: str | None = None) -> None:
        """address: "tls://HOST:PORT", or a plain scheduler on the loopback. tag: the class, as `autotensor
        fleet status` lists it; None: the only class, or this machine's.

        Raises InputError for a plain scheduler on another machine, or if dask is not installed; MeasureError
        if no scheduler answers.
        """
        if isinstance(address, str):
            from autotensor.search.fleet.dask_engine import DaskEngine

            address = DaskEngine(address)
        self.engine: Engine = address
        self._tag = tag

    @cached_property
    def machine_class(self) -> MachineClass:
        """Raises InputError if the class is ambiguous, or no worker belongs to it."""
        offered = self.engine.workers()
        classes = {c.tag: c for w, (c, _) in self.engine.described().items() if c.tag in offered.get(w, ())}
        tag = self._tag or (next(iter(classes)) if len(classes) == 1 else class_here().tag)
        if tag in classes:
            return classes[tag]
        known = "; ".join(sorted(map(str, classes.values()))) or "none"
        if self._tag is None and classes:
            raise InputError(
                f"the fleet has several classes: {known}.",
                fix="Fleet(address, tag) names one. Without a tag, a run takes workers like this machine: "
                f"start them with --threads {class_here().target.num_cores}.",
            )
        raise InputError(f"no worker of the fleet is of class {tag}; its classes: {known}.")

    @property
    def code(self) -> str:
        return self.machine_class.code

    def target(self, asked: str | Target | None) -> Target:
        """The target of the code: the class's own processor unless another one is requested."""
        return self.machine_class.target if asked is None else self._checked(parse(asked))

    def check_alike(self, target: Target) -> None:
        """Raises InputError unless this machine belongs to the class: it links the model and races it."""
        self._checked(target)
        mine = class_here()
        if mine.machine != self.machine_class.machine:
            raise InputError(
                f"a model is raced on the machine that tunes it, and this one is not of class "
                f"{self.machine_class}.",
                fix="Run the command on a machine of that class.",
            )

    def run(self, asked: TuningRun) -> TuneReport:
        """Tunes tasks of one target on the machines of the class."""
        from autotensor.search import loop
        from autotensor.search.fleet.fleet_measurer import FleetMeasurer

        target, place = self._checked(asked.tasks[0].target), self.machine_class.place
        rates = self.rates(asked.store, target)
        measuring = MeasureOptions(
            seeds=asked.seeds, residency=asked.residency, peak_flops=rates.peak(target.num_cores)
        )
        here = replace(asked, place=replace(place, target=target), code=self.code)
        measurer = FleetMeasurer(
            self.engine,
            self.machine_class,
            target,
            measuring,
            modules=BROUGHT.modules(),
            batch=asked.options.batch,
        )
        with closing(measurer):
            return loop.tune(here, measurer, rates)

    def rates(self, store: TrialStore, target: Target) -> Rates:
        """The class's rates from the log; if the log lacks them, one of the workers measures them first."""
        from autotensor.search.fleet.on_worker import calibrate
        from autotensor.search.machine.calibration import known_rates
        from autotensor.search.machine.machine_entry import know_machine

        machine = know_machine(store, replace(self.machine_class.place, target=target))
        rates = known_rates(store, machine, target)
        if not rates.guessed:
            return rates
        _, found = self.engine.submit(calibrate, target.to_json(), tag=self.machine_class.tag).result()
        store.put_calibration(machine, [Calibration(name, v, unit) for name, (v, unit) in found.items()])
        return known_rates(store, machine, target)

    def close(self) -> None:
        """Ends the connection; the scheduler and its workers keep running."""
        self.engine.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, target: Target) -> Target:
        own = self.machine_class.target
        if target.kind != own.kind or target.num_cores > own.num_cores:
            fix = (
                f"Give the run --threads {own.num_cores} (a target with -threads={own.num_cores}), or start "
                f"the workers with --threads {target.num_cores}."
                if target.kind == own.kind
                else "A fleet measures code for processors."
            )
            raise InputError(f"target {target.key()} does not run on class {self.machine_class}.", fix=fix)
        return target


@contextmanager
def joined(fleet: str | Fleet | None) -> Iterator[Fleet | None]:
    """The fleet inside the block. If it was given as an address, the connection ends with the block."""
    if isinstance(fleet, str):
        with Fleet(fleet) as found:
            yield found
    else:
        yield fleet


__all__ = ["Fleet", "joined"]
