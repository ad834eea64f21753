"""The parent's side of running: it checks every candidate, then times the right ones side by side.

    check 0  check 1 … │ round 0: reference 0 1 2 … │ round 1: reference 1 2 … 0 │ … │ verify 0  verify 1 …
                                     race_rule.py: which continue in the next round?

The child does one thing per request, so earlier results are kept if it dies. A mark says which candidate was
running then. That candidate gets the failure, the child is replaced, and the other candidates continue.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from autotensor.base.errors import MeasureError
from autotensor.base.target import Target, host
from autotensor.runtime.workers import children
from autotensor.runtime.workers.children import Child
from autotensor.schedule.algorithm import FEWEST_OPERATIONS
from autotensor.search.measuring.building import WORKER, Built, failure
from autotensor.search.measuring.candidate_time_limit import SIGNAL
from autotensor.search.measuring.checks import exact_on_integers, output_bounds
from autotensor.search.measuring.measure_request import (
    LEAST_SAMPLES,
    MeasureOptions,
    MeasureResult,
    OutOfTime,
    default_memory_bytes,
)
from autotensor.search.measuring.oracle import Oracle
from autotensor.search.measuring.race_rule import racing
from autotensor.search.measuring.running_mark import NOBODY, Mark
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from tuning_db.records import Status

Question = tuple[str, int, bool]  # kind of the inputs, seed, whether answers are exact

# multiple of the best time in runs with cold caches; a slower candidate is not timed further
SURELY_SLOW = 4.0
HOPELESS = 100.0  # a run that takes this multiple of the best time, and more than a second, is ended
_LEAST_LIMIT_S = 1.0
ABOVE_PEAK = 1.10
_ANOTHER: Question = ("normal", 104_729, False)  # inputs that are not whole numbers
_FRESH: Question = ("normal", 7919, False)  # a seed that the checks before timing do not use
_GRACE_S = 1.0  # seconds for the child's work around a run: filling and comparing arrays
# most retakes of a round, if the reference kernel shows before it that other programs use the cores
RETAKES = 3
DISTURBED = 1.5  # multiple of the reference kernel's best time; clocks alone vary less
_REST_S = 0.05
# bytes that a child may address, because a driver maps all cards and all memory at once
CUDA_ADDRESSES = 1 << 46
_LOAD_TIMEOUT_S = 60.0
_DEATHS_WITHOUT_BLAME = 2
# a sample takes this many times as long as its calls: work before each call, warm-up, counting calls, retakes
_SAMPLE_TAKES = 8


def questions_of(dag: ComputeDAG, seeds: Sequence[int]) -> list[Question]:
    """The inputs that every candidate is checked with. On whole numbers, values of an arg-max are often
    equal. If these values are rounded, candidates choose different ones of them, so other inputs are used
    then."""
    exact = exact_on_integers(dag)
    decided_by_rounding = not exact and inf in output_bounds(dag).values()
    last = _ANOTHER if decided_by_rounding else ("integer", seeds[0], exact)
    return [*(("normal", seed, False) for seed in seeds), last]


@dataclass(slots=True, eq=False)
class Entrant:
    """A candidate, and the facts about it so far."""

    number: int
    built: Built
    tolerance: float | None = None
    status: Status | None = None  # None: it is still in the race
    error: str | None = None
    checks: list[float] = field(default_factory=list)  # seconds of the runs that checked the candidate
    samples: list[float] = field(default_factory=list)
    references: list[float] = field(default_factory=list)
    calls: int = 0  # calls in one sample; 0: not known yet
    max_error: float | None = None
    allowed: float | None = None
    prepared_bytes: int = 0
    note: str = ""

    @property
    def alive(self) -> bool:
        return self.status is None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def prepared_by(self) -> str:
        """A key that is equal for all candidates that share prepared arrays."""
        found = self.built.artifact["meta"].get("prepared_by")
        return "" if found is None else str(found["code"])

    def fail(self, status: Status, error: str) -> None:
        self.status, self.error = status, error

    def result(self) -> MeasureResult:
        ok = self.alive
        return MeasureResult(
            status=Status.OK if self.status is None else self.status,
            seconds=tuple(self.samples) if ok else (),
            build_seconds=self.built.seconds,
            error=self.error,
            source_sha=self.built.sha,
            max_error=self.max_error,
            tolerance=self.allowed,
            asm=self.built.asm,
            reference_seconds=tuple(self.references) if ok else (),
            prepared_bytes=self.prepared_bytes,
            note=self.note,
        )


class _Dead(Exception):
    """The child did not survive a request."""

    def __init__(self, status: Status, error: str, number: int, phase: str) -> None:
        super().__init__(error)
        self.status, self.error, self.number, self.phase = status, error, number, phase


class Race:
    """The run child, and the races in it, one at a time."""

    def __init__(
        self,
        target: Target,
        options: MeasureOptions,
        modules: Sequence[str] = (),
        path: Sequence[str | Path] = (),
        recalibrate: Callable[[], float] | None = None,
        left_s: Callable[[], float] = lambda: float("inf"),
        cores: Collection[int] | None = None,
    ) -> None:
        """recalibrate: measures the peak again, in FLOP/s of all threads. It is called at most once, for the
        first candidate above the peak.

        left_s: seconds until the deadline; a reference that takes longer is ended. cores: the cores to time
        on; None: any cores.
        """
        self.target, self.options = target, options
        self._left_s = left_s
        self._peak, self._recalibrate = options.peak_flops, recalibrate
        memory = options.memory_bytes or default_memory_bytes()
        if target.kind == "cuda":
            memory = CUDA_ADDRESSES
        self._child = Child(WORKER, ["run", *modules], path=path, memory_bytes=memory)
        if cores is not None:
            self._child.stay_on(cores)
        self._mark: Mark | None = None
        # sets of inputs of this task for which this child's oracle has answers
        self._questions: list[Question] = []
        self._loaded: set[int] = set()  # candidates that are loaded in this child
        self.check_seconds = 0.0  # total seconds of checks, including failures
        self.sample_seconds = 0.0
        self._calm = float("inf")  # the reference kernel's best time, which is that of the idle machine
        self._retakes = RETAKES  # 0 while waiting for a calm machine has been useless

    def pids(self) -> tuple[int, ...]:
        return (self._child.pid,) if self._child.pid is not None else ()

    def close(self) -> None:
        self._child.close()

    def start(self) -> None:
        """Has a child ready. Its start takes half a second, which should not pass under the timing lock."""
        if self._child.pid is None:
            self._child.start()
            self._mark, path = Mark.create()
            try:
                answer = self._ask(
                    {"do": "start", "mark": str(path), "kind": self.target.kind}, _LOAD_TIMEOUT_S
                )
            finally:
                path.unlink(missing_ok=True)
            if "error" in answer:
                raise MeasureError(f"the process that runs candidates does not start: {answer['error']}")

    def run(
        self,
        workload: Workload,
        oracle: Oracle,
        entrants: Sequence[Entrant],
        incumbent_s: float | None,
        repeat: int | None = None,
    ) -> None:
        """Checks and times all entrants. Each then has its result. The caller holds the timing lock.

        Raises OutOfTime when the deadline comes before a batch is completely checked and timed.
        """
        self._workload, self._oracle = workload, oracle
        self._repeat = max(LEAST_SAMPLES, repeat or self.options.repeat)
        questions = questions_of(workload.dag, self.options.seeds)
        # entrants of a final race were measured before, however slow they are
        self._best = incumbent_s = None if repeat else incumbent_s
        self._limited = repeat is None
        self._run_task(questions)
        began = time.perf_counter()
        # prepared arrays are not kept for ever, so candidates that share them come together
        together = sorted(entrants, key=lambda e: e.prepared_by)
        for e in together:
            self._on_time()
            self._guard(e, partial(self._check_all, e, questions))
        checked = time.perf_counter()
        self._time(entrants, incumbent_s)
        timed = time.perf_counter()
        for e in reversed(together):
            if e.alive and len(e.checks) == len(questions) and e.calls:
                self._guard(e, partial(self._verify, e, questions[0]))
        self.check_seconds += checked - began + time.perf_counter() - timed
        self.sample_seconds += timed - checked
        with suppress(_Dead):
            if self._child.pid is not None:
                self._ask({"do": "forget"}, _LOAD_TIMEOUT_S)
        self._loaded.clear()

    def _on_time(self) -> None:
        """Raises OutOfTime for a batch when the deadline has come. A final race has its own time."""
        if self._limited and self._left_s() <= 0.0:
            raise OutOfTime(
                f"the deadline came while candidates of workload {self._workload.name!r} were measured"
            )

    # -- checking -----------------------------------------------------------------------------------------

    def _guard(self, e: Entrant, work: Callable[[], object]) -> None:
        """Does work that runs only one candidate. If the child dies, that candidate gets the failure."""
        try:
            work()
        except _Dead as death:
            where = (
                f" while it {'prepared' if death.phase == 'prepare' else 'ran'}"
                if death.number != NOBODY
                else ""
            )
            e.fail(death.status, f"the candidate ended its process{where}: {death.error}")

    def _check_all(self, e: Entrant, questions: Sequence[Question]) -> None:
        for question in questions:
            if not e.alive:
                return
            self._check(e, question)

    def _check(self, e: Entrant, question: Question, when: str = "") -> None:
        """One run of a candidate on one set of inputs."""
        if not self._load(e):
            return
        kind, seed, _ = question
        inexact = e.tolerance is not None
        # a driver compiles a kernel at its first launch
        compiling = self.options.build_timeout_s if self.target.is_gpu else 0.0
        request = {
            "do": "check",
            "number": e.number,
            "kind": kind,
            "seed": seed,
            "inexact": inexact,
            "limit": self._limit() + compiling,
        }
        answer = self._ask(request, self.options.run_timeout_s + compiling + _GRACE_S)
        if "error" in answer and "seconds" not in answer:
            e.fail(Status(answer["status"] or Status.RUN_ERROR), answer["error"])
            return
        e.checks.append(answer["seconds"])
        self._best = min(answer["seconds"], self._best or answer["seconds"])
        if answer["complaint"]:
            e.max_error, e.allowed = answer["error"], answer["allowed"]
            e.fail(Status.WRONG_RESULT, f"on {kind} inputs of seed {seed}{when}, {answer['complaint']}.")
        elif (
            e.max_error is None
            or e.allowed is None
            or answer["error"] * e.allowed >= e.max_error * answer["allowed"]
        ):
            e.max_error, e.allowed = answer["error"], answer["allowed"]

    def _verify(self, e: Entrant, question: Question) -> None:
        """Checks again after timing, because every answer must be right. Too fast ones are checked twice."""
        self._check(e, question, ", after it had been timed")
        if not e.alive or self._peak is None:
            return
        # Algorithms with a tolerance of their own execute fewer operations than the workload counts.
        share = 1.0 if e.tolerance is None else FEWEST_OPERATIONS
        rate = self._workload.dag.flops() * share / e.median
        if rate > ABOVE_PEAK * self._peak and e.tolerance is None and self._recalibrate is not None:
            self._peak = max(self._peak, self._recalibrate())
            self._recalibrate = None
        peak = self._peak
        if rate > ABOVE_PEAK * peak:
            try:
                self._ask_oracle(_FRESH)
            except OutOfTime as error:
                e.fail(Status.RUN_TIMEOUT, f"{rate / 1e9:.0f} GFLOP/s is above the peak; {error.what}.")
                return
            self._check(e, _FRESH, f", asked because {rate / 1e9:.0f} GFLOP/s is above the peak")
            e.note = f"{rate / peak:.2f} of the measured peak; verified again on fresh inputs"

    # -- timing -------------------------------------------------------------------------------------------

    def _time(self, entrants: Sequence[Entrant], incumbent_s: float | None) -> None:
        for e in self._surely_slow(entrants, incumbent_s):
            e.samples = list(e.checks)
            e.note = "clearly slow: its samples are the runs that checked it"
        entered = [e for e in entrants if e.alive and not e.samples]
        deaths = 0
        turn = 0
        while unfinished := self._unfinished(entered, incumbent_s):
            self._on_time()
            at = turn % len(unfinished)
            try:
                self._round([*unfinished[at:], *unfinished[:at]])
                turn += 1
            except _Dead as death:
                blamed = next((e for e in unfinished if e.number == death.number), None)
                if blamed is not None:
                    blamed.fail(
                        death.status, f"the candidate ended its process while it was timed: {death.error}"
                    )
                    continue
                deaths += 1
                if deaths >= _DEATHS_WITHOUT_BLAME:
                    for e in unfinished:
                        e.fail(Status.RUN_ERROR, f"the process died while nobody was running: {death.error}")
        reference = next((e.references[-1] for e in entrants if e.references), None)
        for e in entrants:
            if e.samples and not e.references and reference is not None:
                e.references = [reference] * len(e.samples)

    def _surely_slow(self, entrants: Sequence[Entrant], incumbent_s: float | None) -> list[Entrant]:
        """The candidates that are slow by their checks alone: three runs each with cold caches, and none near
        the best time."""
        alive = [e for e in entrants if e.alive]
        best = min([*(min(e.checks) for e in alive), *([incumbent_s] if incumbent_s else [])], default=0.0)
        limit = max(SURELY_SLOW * best, self.options.min_seconds)
        if not self.options.racing:
            return []
        return [e for e in alive if len(e.checks) >= LEAST_SAMPLES and min(e.checks) > limit]

    def _unfinished(self, entered: Sequence[Entrant], incumbent_s: float | None) -> list[Entrant]:
        """The candidates that need another sample."""
        alive = [e for e in entered if e.alive]
        if not self.options.racing:
            return [e for e in alive if len(e.samples) < self._repeat]
        samples = {e.number: e.samples for e in alive}
        going_on = racing(samples, self._repeat, incumbent_s, sure=not self._limited)
        return [e for e in alive if e.number in going_on]

    def _round(self, entrants: Sequence[Entrant]) -> None:
        while missing := [e for e in entrants if e.alive and e.number not in self._loaded]:
            self._guard(missing[0], partial(self._load, missing[0]))
        least = self.options.min_seconds
        running = [e for e in entrants if e.alive]
        wanted = [(e.number, e.calls, e.samples[-1] if e.samples else min(e.checks)) for e in running]
        expected = sum(max(least, seconds) * _SAMPLE_TAKES for _, _, seconds in wanted)
        request: dict[str, Any] = {
            "do": "sample",
            "wanted": wanted,
            "min_seconds": least,
            "limit": self._limit(),
        }
        for retake in range(self._retakes + 1):
            is_last = retake == self._retakes
            request["calm"] = None if is_last or self._calm == float("inf") else DISTURBED * self._calm
            answer = self._ask(request, expected + self.options.run_timeout_s + _GRACE_S)
            if "samples" not in answer:
                raise MeasureError(f"timing failed: {answer['error']}")
            self._calm = min(self._calm, answer["reference"])
            if answer["samples"]:
                # others that kept the cores busy during all rests will do so in the next round, too
                self._retakes = RETAKES if answer["reference"] <= DISTURBED * self._calm else 0
                break
            # others use the cores; a sample would include their time slices
            time.sleep(_REST_S * (retake + 1))
        for e in running:
            seconds, e.calls = answer["samples"][str(e.number)]
            e.samples.append(seconds)
            e.references.append(answer["reference"])

    # -- the child ----------------------------------------------------------------------------------------

    def _limit(self) -> float:
        """The seconds that one run may take."""
        most = self.options.run_timeout_s
        if not self._limited or self._best is None:
            return most
        return min(most, max(_LEAST_LIMIT_S, HOPELESS * self._best))

    def _load(self, e: Entrant) -> bool:
        """Whether the child has the candidate's code now."""
        self._revive()
        if e.number in self._loaded:
            return True
        request = {"do": "load", "number": e.number, "artifact": e.built.artifact, "tolerance": e.tolerance}
        answer = self._ask(request, _LOAD_TIMEOUT_S)
        if "prepared_bytes" not in answer:
            e.fail(Status(answer["status"] or Status.RUN_ERROR), answer["error"])
            return False
        e.prepared_bytes = answer["prepared_bytes"]
        self._loaded.add(e.number)
        return True

    def _revive(self) -> None:
        """Starts a new child after a death, and gives it the task and the questions."""
        if self._child.pid is None:
            self._run_task(tuple(self._questions))

    def _run_task(self, questions: Sequence[Question]) -> None:
        """Sends the workload to the child and lets the oracle answer. Raises MeasureError if that fails."""
        self.start()
        request = {
            "do": "task",
            "workload": self._workload.text,
            "oracle": self._oracle.plain,
            "wide": self._oracle.wide,
            "threads": (host() if self.target.is_gpu else self.target).num_cores,
            "residency": self.options.residency,
        }
        self._loaded.clear()
        self._questions = []
        self._checked(request, _LOAD_TIMEOUT_S)
        for question in questions:
            self._ask_oracle(question)

    def _ask_oracle(self, question: Question) -> None:
        """Lets the oracle answer, if it has not yet. Raises OutOfTime when the deadline comes first."""
        kind, seed, exact = question
        wide = self._oracle.wide is not None
        request = {"do": "oracle", "kind": kind, "seed": seed, "exact": exact, "wide": wide}
        patience_s = max(_GRACE_S, self._left_s())  # the child repeats known answers at once
        try:
            self._checked(request, min(self.options.oracle_timeout_s, patience_s))
        except MeasureError as error:
            if self._left_s() > 0.0:
                raise
            raise OutOfTime(
                f"the deadline came before the reference of workload {self._workload.name!r} had answered"
            ) from error
        if question not in self._questions:
            self._questions.append(question)

    def _checked(self, request: dict[str, Any], timeout_s: float) -> None:
        """Sends a request that must succeed."""
        try:
            answer = self._ask(request, timeout_s)
        except _Dead as death:
            raise MeasureError(
                f"the reference of workload {self._workload.name!r} cannot be run: {death.error}"
            ) from death
        if "error" in answer:
            raise MeasureError(
                f"the reference of workload {self._workload.name!r} cannot be run: {answer['error']}"
            )

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Sends a request and returns the child's answer. Raises _Dead if the child did not survive."""
        assert self._mark is not None
        try:
            reply = self._child.request(json.dumps(request), timeout_s)
        except BaseException:  # after an interruption, the next request would get this answer
            self._child.kill()
            raise
        if reply.status is children.Status.OK:
            answer: dict[str, Any] = json.loads(reply.text)
            return answer
        status, error = failure(reply)
        if SIGNAL in reply.detail:
            error = f"one run took more than {request['limit']:.3g} s."
        self._loaded.clear()
        raise _Dead(status, error, *self._mark.read())
