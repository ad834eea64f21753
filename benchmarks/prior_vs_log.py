"""How well the analytic prior ranks and sizes what a tuning log measured on this machine.

python benchmarks/prior_vs_log.py tuning.db [--kernels | --guess] [--json FILE]

Every trial's trace is replayed without its holes, so that rules of other versions matter not. Per task: rank
correlation (Spearman) of predicted and measured times; how much slower than the best the prior's first choice
is, and the best of its first eight; measured over predicted time, by algorithm. Trials of a log were chosen
by a search: all are promising, so correlations are lower than over the whole space.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autotensor.base.machine import host_machine
from autotensor.base.target import Target, parse
from autotensor.schedule.picture import LoopPicture, picture
from autotensor.schedule.primitives.algorithm import UseAlgorithm
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.trace import Trace
from autotensor.search.calibrate import calibrated, measure_kernels, rates_of
from autotensor.search.prior import predict
from autotensor.search.rates import Rates
from autotensor.te.workload import Workload
from schedules import algorithms as _algorithms  # noqa: F401  # traces name them
from tuning_db import TrialStore, connect
from tuning_db.records import TrialRecord

FEWEST = 8  # distinct trials of a task: fewer have no order worth the name
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """The prior on one task."""

    task: str
    target: str
    trials: int
    correlation: float
    first: float  # time of the prior's first choice over the best
    first_eight: float
    level: float  # measured over predicted, median, of direct schedules; NaN without any
    level_other: float  # of other algorithms


def targets_of(rows: list[TrialRecord]) -> dict[str, Target]:
    """Targets from their keys: llvm/znver4/v64/t2/strict."""
    found = {}
    for key in {r.target for r in rows}:
        words = key.split("/")
        numerics = " -numerics=strict" if words[-1] == "strict" else ""
        threads = next(w[1:] for w in words if w[0] == "t" and w[1:].isdigit())
        found[key] = parse(f"llvm -threads={threads}{numerics}")
    return found


def picture_of(workload: Workload, text: str) -> LoopPicture:
    steps = Trace.from_json(text).steps
    return picture(Trace(tuple(s for s in steps if not isinstance(s, Layout))).replay(workload.dag), {})


def ranks(x: Floats) -> Floats:
    """Ranks; equal values share their mean."""
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[where], dtype=np.float64)


def spearman(a: Floats, b: Floats) -> float:
    x, y = ranks(a), ranks(b)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else float("nan")


def score(
    name: str, target: Target, workload: Workload, rows: list[TrialRecord], rates: Rates
) -> Score | None:
    """The fastest sample of every distinct trace counts: of a race, or of the search."""
    best: dict[str, tuple[float, str]] = {}
    for r in rows:
        seconds = min((s.seconds for s in r.samples), default=r.median_s or float("inf"))
        best[r.trace_hash] = min(best.get(r.trace_hash, (float("inf"), r.trace)), (seconds, r.trace))
    if len(best) < FEWEST:
        return None
    measured = np.asarray([s for s, _ in best.values()])
    predicted = np.asarray(
        [float(predict(picture_of(workload, t), target, rates)[0][0]) for _, t in best.values()]
    )
    other = np.asarray(
        [any(isinstance(s, UseAlgorithm) for s in Trace.from_json(t).steps) for _, t in best.values()]
    )
    order, ratio = np.argsort(predicted, kind="stable"), measured / predicted
    levels = [float(np.median(ratio[m])) if m.any() else float("nan") for m in (~other, other)]
    return Score(
        name,
        target.key(),
        len(best),
        spearman(predicted, measured),
        float(measured[order[0]] / measured.min()),
        float(measured[order[:8]].min() / measured.min()),
        *levels,
    )


def scores(store: TrialStore, with_kernels: bool, guess: bool) -> list[Score]:
    machine = host_machine().fingerprint
    rows = [r for r in store.trials(machine=machine) if r.median_s is not None]
    known = {w.key: w for w in store.workloads()}
    values = {n: c.value for n, c in store.calibration(machine).items()}
    measured = {n: v for n, (v, _) in measure_kernels(parse()).items()} if with_kernels else {}
    out = []
    for key, target in sorted(targets_of(rows).items()):
        usable = "flops.core" in values and not guess
        rates = rates_of(values | measured, target) if usable else calibrated(None, target)
        for workload in sorted({r.workload for r in rows if r.target == key}):
            mine = [r for r in rows if r.target == key and r.workload == workload]
            w = Workload.from_text(known[workload].text, known[workload].name)
            found = score(w.name, target, w, mine, Rates.guess(target) if guess else rates)
            out += [found] if found is not None else []
    return out


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("log", type=Path)
    options.add_argument("--kernels", action="store_true", help="measure micro-kernels and use them")
    options.add_argument("--guess", action="store_true", help="with no calibration at all")
    options.add_argument("--json", type=Path)
    asked = options.parse_args()
    with connect(str(asked.log), readonly=True) as store:
        found = scores(store, asked.kernels, asked.guess)
    print(f"{'task':44} trials  correlation  first  first 8  measured/predicted: direct, other")
    for s in found:
        fast = " fast" if s.target.endswith("fast") else ""
        print(
            f"{s.task[:38] + fast:44} {s.trials:6} {s.correlation:12.2f} {s.first:6.2f} {s.first_eight:8.2f} "
            f"{s.level:27.2f} {s.level_other:6.2f}"
        )
    means = {
        "correlation": float(np.nanmean([s.correlation for s in found])),
        "first": float(np.exp(np.mean(np.log([s.first for s in found])))),
        "first_eight": float(np.exp(np.mean(np.log([s.first_eight for s in found])))),
    }
    print(f"{len(found)} tasks; " + ", ".join(f"{name} {value:.3f}" for name, value in means.items()))
    if asked.json:
        report = {"means": means, "tasks": [asdict(s) for s in found]}
        asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
