"""A measurer with made-up times, and landscapes with a known optimum. No processes, no clocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from math import log2

from autotensor import te
from autotensor.base.errors import MeasureError
from autotensor.base.target import Target, parse
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import AtOnce, MeasureResult
from autotensor.search.propose.tuner import Tuner
from autotensor.search.task import Candidate, Task
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload
from tuning_db.records import Status

# the same on all machines: the prior, and so the proposed candidates, depend on caches
TARGET: Target = parse("llvm -mcpu=x86-64-v4 -threads=2")
Cost = Callable[[Trace], float]


def chance(text: str) -> float:
    """A number in 0 … 1 that only depends on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def bowl(candidate: Candidate) -> float:
    """Seconds: least for 6 x 3 register tiles in blocks of four, twice as much a few steps away."""
    total = 0.0
    for hole, option in sorted(candidate.decisions.items()):
        if hole.endswith("/tile"):
            total += log2(option[0] * option[1] / 6.0) ** 2 + log2(option[2] / 3.0) ** 2
        elif hole.endswith(("/rows", "/columns")):
            total += 0.15 * log2(option[0] / 4.0) ** 2
        else:
            total += 0.1 * option[0]
    return 1e-4 * (1.0 + 0.3 * total)


class FakeMeasurer(AtOnce):
    """Answers from a function of the trace, at once.

    noise: relative, and different in every call. failing, spilling: the shares of candidates that fail, and
    that are rejected before they run.
    """

    def __init__(
        self, cost: Cost | None = None, *, noise: float = 0.0, failing: float = 0.0, spilling: float = 0.0
    ) -> None:
        self.cost = cost or (lambda trace: 1e-4 * (1.0 + chance(trace.hash)))
        self.in_flight = 1
        self.noise, self.failing, self.spilling = noise, failing, spilling
        self.calls: list[tuple[str, tuple[str, ...], int | None]] = []
        self.impossible: set[str] = set()  # keys of workloads whose reference cannot be built

    def measure(
        self,
        workload: Workload,
        traces: Sequence[Trace],
        repeat: int | None = None,
        gated: Collection[int] = (),
    ) -> list[MeasureResult]:
        self.calls.append((workload.key, tuple(t.hash for t in traces), repeat))
        if workload.key in self.impossible:
            raise MeasureError(f"the reference of workload {workload.name!r} cannot be built: too odd")
        return [
            MeasureResult(Status.REJECTED, error="too large a tile", asm={"carried": 9})
            if n in gated and chance(t.hash + "spills") < self.spilling
            else self._one(t, repeat or 3)
            for n, t in enumerate(traces)
        ]

    def _one(self, trace: Trace, repeat: int) -> MeasureResult:
        if chance(trace.hash + "fails") < self.failing:
            return MeasureResult(Status.RUN_TIMEOUT, error="ran 10 s")
        seconds = self.cost(trace)
        call = len(self.calls)
        noisy = [1.0 + self.noise * (chance(f"{trace.hash}{call}{n}") - 0.5) for n in range(repeat)]
        return MeasureResult(
            Status.OK,
            tuple(seconds * f for f in noisy),
            build_seconds=0.01,
            max_error=0.0,
            tolerance=1e-5,
            reference_seconds=(1e-3,) * repeat,
        )

    @property
    def measured(self) -> list[str]:
        """Trace hashes of all trials in order, without races."""
        return [h for _, hashes, repeat in self.calls for h in hashes if repeat is None]

    @property
    def races(self) -> list[tuple[str, ...]]:
        return [hashes for _, hashes, repeat in self.calls if repeat is not None]

    def close(self) -> None: ...


def task(workload: Workload, weight: float = 1.0) -> Task:
    return Task(workload, TARGET, weight)


def drive(tuner: Tuner, cost: Callable[[Candidate], float | None], trials: int, batch: int = 8) -> list[str]:
    """Calls `ask` and `tell`; returns the keys of the proposed candidates, in order."""
    keys: list[str] = []
    while len(keys) < trials:
        asked = tuner.ask(min(batch, trials - len(keys)))
        if not asked:
            break
        tuner.tell(asked, [cost(c) for c in asked])
        keys += [c.key for c in asked]
    return keys


def unknown_reduction() -> Workload:
    """Maxima along a diagonal of half steps: only the general rules know what to do with them."""
    x = te.placeholder((48, 96, 128), name="x")
    k, r = te.reduce_axis(19, "k"), te.reduce_axis(12, "r")
    y = te.compute(
        (32, 64, 64),
        lambda j, m, n: te.max(x[j + r, m + k, (n + k) // 2], axis=[k, r]),
        name="y",
    )
    return Workload.of(ComputeDAG.of([x, y]), "maxima")
