"""Measures candidates on this machine: some children build them, another one checks and times them.

    with LocalMeasurer(target) as measurer:
        measurer.measure(workload, traces) ──▶ [MeasureResult, …]

    traces ──building.py──▶ artifacts ──code_gate.py──▶ ══ timing lock ══ racing.py ──▶ results
            N children, N at once      no tile on the stack     one child, one candidate at a time

If work on some cores does not disturb the timed ones, one batch compiles there while the one before it is
timed: cores.py.

Candidates may loop, crash, print too much, take too much memory or answer wrongly. Each of these gets a
status, and the other candidates get their times. Children end with their parent. Start reading in racing.py
(the decisions) and run_child.py (the work of the run child).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotensor.base import log
from autotensor.base.errors import InputError, MeasureError
from autotensor.base.target import Target, host
from autotensor.runtime.device.devices import device_of
from autotensor.runtime.files.artifact import Artifact
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.building import BuildPool, Built
from autotensor.search.measuring.code_gate import refusal
from autotensor.search.measuring.cores import cores_for
from autotensor.search.measuring.measure_request import (
    AtOnce,
    MeasureOptions,
    Measurer,
    MeasureResult,
    source_sha,
    to_plain,
)
from autotensor.search.measuring.oracle import Oracle, oracle_trace, wide_workload
from autotensor.search.measuring.racing import Entrant, Race
from autotensor.search.measuring.timing_turns import Turns
from autotensor.te.workload import Workload
from tuning_db.records import Conditions, Status

Numerics = Callable[[Trace], float | None]


@dataclass(slots=True)
class Spent:
    """Wall seconds of each phase since the measurer was made."""

    build: float = 0.0
    wait: float = 0.0  # waiting for the timing lock
    run: float = 0.0
    check: float = 0.0  # the part of `run` for checking
    sample: float = 0.0  # the part of `run` for sampling
    trials: int = 0


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A batch that is ready to be timed."""

    workload: Workload
    oracle: Oracle
    built: Sequence[Built | MeasureResult]
    tolerances: Sequence[float | None]


def check_measurable(target: Target) -> None:
    """Raises InputError for a target whose code is not timed (an interpreter, a simulation, a plug-in), or
    for a device that is missing."""
    if target.kind != "llvm" and not target.is_gpu:
        raise InputError(
            f"target {target.kind!r} cannot be measured here; 'llvm', 'opencl' and 'cuda' can.",
            fix="build takes its default schedule, or one that you write.",
        )
    if target.is_gpu:
        device_of(target)


class LocalMeasurer(AtOnce):
    """The Measurer for this machine's processor and its devices."""

    def __init__(
        self,
        target: Target,
        options: MeasureOptions = MeasureOptions(),  # noqa: B008  # frozen
        *,
        modules: Sequence[str] = (),
        path: Sequence[str | Path] = (),
        numerics: Numerics | None = None,
        recalibrate: Callable[[], float] | None = None,
        left_s: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        """modules: children import these first (the user's steps, algorithms, operators).
        path: the folders of these modules.

        numerics: returns the error that a trace's algorithm may have, against float64 and relative to the
        output's largest element. None, as argument or result: the error follows from types and reduction
        lengths, and bits must be equal on integers if results are exact there.
        recalibrate: measures the machine's peak again (FLOP/s of all threads) when a candidate is well above
        the peak.
        left_s: seconds until the deadline. A reference that takes longer is given up (OutOfTime).
        """
        check_measurable(target)
        self.target, self.options = target, options
        self._processor = host() if target.is_gpu else target  # the processor that runs the reference
        self.spent = Spent()
        self._numerics = numerics or (lambda trace: None)
        self._turns = Turns(left_s)
        self._cores = cores = cores_for(target)
        self.in_flight = 1 if cores is None else 2
        self._pool = BuildPool(target, options, modules, path, self._turns, cores)
        timed = None if cores is None else cores.timed
        self._race = Race(target, options, modules, path, recalibrate, left_s, timed)
        self._builds = ThreadPoolExecutor(1, thread_name_prefix="autotensor-compile")
        self._runs = ThreadPoolExecutor(1, thread_name_prefix="autotensor-time")
        # compiled references by workload, also those in float64
        self._oracles: dict[str, Mapping[str, Any]] = {}
        self._widened: dict[str, Workload] = {}  # the computations in float64
        self._best: dict[str, float] = {}  # best seconds by workload

    def measure(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:
        """One result per trace, in order. repeat: number of samples of each; None: as in the options.

        gated: indices of the traces that their machine code may rule out before they run.
        Raises MeasureError only when nothing can be measured: children do not start, or the unscheduled
        program itself fails.
        """
        return self._timed(self._compiled(workload, traces, gated), repeat)

    def submit(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> Future[list[MeasureResult]]:
        if self._cores is None:
            return super().submit(workload, traces, repeat, gated)
        compiled = self._builds.submit(self._compiled, workload, traces, gated)
        answer = self._runs.submit(lambda: self._timed(compiled.result(), repeat))
        answer.add_done_callback(lambda a: compiled.cancel() if a.cancelled() else None)
        return answer

    def _compiled(self, workload: Workload, traces: Sequence[Trace], gated: Collection[int]) -> _Compiled:
        tolerances = [self._numerics(t) for t in traces]
        oracle = self._oracle(workload, tolerances)
        began = time.perf_counter()
        built = self._pool.build(workload, traces)
        self.spent.build += time.perf_counter() - began
        let_in = [_gate(b) if n in gated else b for n, b in enumerate(built)]
        return _Compiled(workload, oracle, let_in, tolerances)

    def _timed(self, batch: _Compiled, repeat: int | None) -> list[MeasureResult]:
        return self._run(batch.workload, batch.oracle, batch.built, batch.tolerances, repeat)

    def measure_artifacts(
        self,
        workload: Workload,
        artifacts: Sequence[Artifact],
        tolerance: float | None = None,
        repeat: int | None = None,
    ) -> list[MeasureResult]:
        """Measures code that is already compiled. Its arguments have the workload's canonical names."""
        built = [Built(to_plain(a), source_sha(a)) for a in artifacts]
        oracle = self._oracle(workload, [tolerance])
        return self._run(workload, oracle, built, [tolerance] * len(built), repeat)

    def pids(self) -> tuple[int, ...]:
        """Process ids of the children that live now."""
        return (*self._pool.pids(), *self._race.pids())

    def close(self) -> None:
        """Ends all children, and drops the work that has not begun."""
        self._runs.shutdown(cancel_futures=True)
        self._builds.shutdown(cancel_futures=True)
        self._pool.close()
        self._race.close()

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _oracle(self, workload: Workload, tolerances: Sequence[float | None]) -> Oracle:
        """The references for a batch's candidates: unscheduled programs, compiled once."""
        wanted = [workload]
        if any(t is not None for t in tolerances):
            if workload.key not in self._widened:
                self._widened[workload.key] = wide_workload(workload)
            wanted.append(self._widened[workload.key])
        missing = [w for w in wanted if w.key not in self._oracles]
        jobs = [(w, oracle_trace(w.dag)) for w in missing]
        for w, built in zip(missing, self._pool.build_for(jobs, self._processor), strict=True):
            if isinstance(built, MeasureResult):
                raise MeasureError(f"the reference of workload {w.name!r} cannot be built: {built.error}")
            self._oracles[w.key] = built.artifact
        plain, wide = (*(self._oracles[w.key] for w in wanted), None)[:2]
        assert plain is not None
        return Oracle(plain, wide)

    def _run(
        self,
        workload: Workload,
        oracle: Oracle,
        built: Sequence[Built | MeasureResult],
        tolerances: Sequence[float | None],
        repeat: int | None = None,
    ) -> list[MeasureResult]:
        entrants: dict[tuple[str, float | None], Entrant] = {}
        for n, (b, tolerance) in enumerate(zip(built, tolerances, strict=True)):
            if isinstance(b, Built):
                entrants.setdefault((b.sha, tolerance), Entrant(n, b, tolerance))
        self._race.start()
        began = time.perf_counter()
        with self._pool.aside(), self._turns.timing(beside=self._cores is not None) as alone:
            got = time.perf_counter()
            if entrants:
                incumbent_s = self._best.get(workload.key)
                self._race.run(workload, oracle, tuple(entrants.values()), incumbent_s, repeat)
        self.spent.wait += got - began
        self.spent.run += time.perf_counter() - got
        self.spent.check, self.spent.sample = self._race.check_seconds, self._race.sample_seconds
        self.spent.trials += len(entrants)
        results = []
        for n, (b, tolerance) in enumerate(zip(built, tolerances, strict=True)):
            if isinstance(b, MeasureResult):
                results.append(b)
                continue
            entrant = entrants[b.sha, tolerance]
            result = replace(entrant.result(), build_seconds=b.seconds)
            if entrant.number != n:
                result = replace(
                    result,
                    conditions=Conditions.SAME_CODE,
                    note=f"same object code as candidate {entrant.number} of this batch; not run again",
                )
            if not alone and result.conditions is Conditions.ALONE:
                result = replace(result, conditions=Conditions.BESIDE)
            if entrant.alive:
                self._best[workload.key] = min(entrant.median, self._best.get(workload.key, entrant.median))
            results.append(result)
        log.at(3, lambda: f"measured {workload.name}: {_summary(results)}")
        return results


def _gate(built: Built | MeasureResult) -> Built | MeasureResult:
    """The compiled candidate, or the reason why it is not run."""
    if isinstance(built, MeasureResult) or not (error := refusal(built.asm)):
        return built
    return MeasureResult(
        Status.REJECTED, build_seconds=built.seconds, error=error, source_sha=built.sha, asm=built.asm
    )


def _summary(results: Sequence[MeasureResult]) -> str:
    counts: dict[str, int] = {}
    for r in results:
        counts[r.status] = counts.get(r.status, 0) + 1
    return ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))


__all__ = ["LocalMeasurer", "MeasureOptions", "MeasureResult", "Measurer", "Numerics", "Spent"]
