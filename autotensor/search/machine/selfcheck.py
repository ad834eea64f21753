"""Can this machine measure differences now? A quarter of a minute of A/A races answers that.

    kernels × rounds ──aa_pair──▶ pairs ──judged──▶ SelfCheck(told_from=0.012, spread=0.008, …)

Every round races each kernel against itself, with code that is loaded again. So the two copies are at
different addresses, as two candidates are. Each kernel comes again in each round, so its times vary as those
of two batches do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from autotensor.base.target import Target
from autotensor.resolve import safe_default
from autotensor.search.machine.equal_kernels import AAPair, aa_pair, sample_kernels, told_from, variation
from autotensor.search.machine.probes import cpu_times, others_cores
from autotensor.search.measuring.measurer import LocalMeasurer

BUDGET_S = 12.0  # seconds for the races; starting children and compiling take another second or two
LEAST_ROUNDS = 2  # least number of rounds of all kernels


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The measurer's results for equal kernels. Figures are shares, unless the name has a unit."""

    pairs: int
    claimed: int  # number of pairs for which a difference was claimed
    apart: float  # median difference of two copies
    told_from: float  # the smallest difference that 95 % of the pairs would have shown
    spread: float  # standard deviation of a kernel's times, round to round
    normalised: float  # the same for the kernel's time divided by the reference kernel's
    drift: float  # from the fastest round of the reference kernel to its slowest
    others_cores: float  # average number of cores that other programs used during the check
    wall_s: float

    def can_tell(self, difference: float) -> bool:
        return self.told_from <= difference


def self_check(
    target: Target, budget_s: float = BUDGET_S, clock: Callable[[], float] = time.monotonic
) -> SelfCheck:
    """Races kernels against themselves for `budget_s`. Raises MeasureError if nothing can be measured."""
    before, began = cpu_times(), clock()
    kernels = sample_kernels()
    rounds: list[list[AAPair]] = []
    with LocalMeasurer(target) as measurer:
        while len(rounds) < LEAST_ROUNDS or clock() - began < budget_s:
            rounds.append([aa_pair(measurer, w, safe_default(w, target)) for w in kernels])
    # the children have ended, so their CPU time counts as ours
    return judged(rounds, others_cores(before, cpu_times()), clock() - began)


def judged(rounds: Sequence[Sequence[AAPair]], others: float, wall_s: float) -> SelfCheck:
    """The result of the check, from rounds of the same kernels."""
    pairs = [p for r in rounds for p in r]
    by_kernel = [[r[n] for r in rounds] for n in range(len(rounds[0]))]
    references = [median(x for p in r for x in p.references) for r in rounds]
    return SelfCheck(
        pairs=len(pairs),
        claimed=sum(p.claimed for p in pairs),
        apart=median(abs(p.ratio.middle - 1) for p in pairs),
        told_from=told_from(pairs),
        spread=fmean(variation([p.seconds for p in mine]) for mine in by_kernel),
        normalised=fmean(variation([p.beside_reference for p in mine]) for mine in by_kernel),
        drift=max(references) / min(references) - 1,
        others_cores=others,
        wall_s=wall_s,
    )


__all__ = ["SelfCheck", "judged", "self_check"]
