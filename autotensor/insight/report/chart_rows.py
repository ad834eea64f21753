"""The data of a report's charts, as rows: plain figures, in seconds, that a test can compare with the log.

    Figures ──▶ {"times": [{"task": …, "before_s": …}], "convergence": […], …} ──charts.py──▶ pictures

Ten thousand trials are not drawn one by one. For each task, the chart keeps every trial that was faster than
all before it. It keeps as many others as `MOST_POINTS` allows, evenly spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from autotensor.insight.report.figures import Figures
from autotensor.insight.report.findings import now_s
from autotensor.insight.report.tally import SPREADS, Cell, Failure
from autotensor.insight.report.task_figures import TaskFigures
from autotensor.insight.search_history import best_so_far

Rows = list[dict[str, Any]]

MOST_POINTS = 4000  # for all tasks together: a canvas draws this many points in a tenth of a second
MOST_SHARES = 12  # the largest tasks are named; the others share one row
OTHERS = "all others"
LABEL = 60  # longest text of a failure, in characters


def chart_rows(f: Figures) -> Mapping[str, Rows]:
    """The rows of every chart by the chart's name. A chart with nothing to draw has no rows."""
    return {
        "times": _times(f),
        "shares": _shares(f),
        "roofs": _roofs(f),
        "kernels": _kernels(f),
        "fall": _fall(f),
        "convergence": _convergence(f),
        "makers": _cells(f.makers),
        "rules": _cells(f.rules),
        "failures": _failures(f),
        "drift": [
            {"first": d.first, "last": d.last, "low": d.low, "middle": d.middle, "high": d.high}
            for d in f.noise.drift
        ],
        "spreads": [
            {"spread": name, "trials": count}
            for name, count in zip(spread_names(), f.noise.spreads, strict=True)
        ],
    }


def spread_names() -> list[str]:
    """
    >>> spread_names()[:2], spread_names()[-1]
    (['below 1 %', '1 to 2 %'], 'above 50 %')
    """
    ends = [f"{s * 100:g}" for s in SPREADS]
    between = [f"{low} to {high} %" for low, high in pairwise(ends)]
    return [f"below {ends[0]} %", *between, f"above {ends[-1]} %"]


def _times(f: Figures) -> Rows:
    """Seconds of an inference. The bounds of the winner's time come from its ratio to the default."""
    rows = []
    for t in f.tasks:
        r = t.result
        if r is None:
            continue
        known = t.before_s is not None and r.lower is not None and r.upper is not None
        rows.append(
            {
                "task": t.name,
                "before_s": t.before_s,
                "after_s": t.after_s,
                "low_s": (t.before_s or 0.0) * (r.lower or 0.0) if known else t.after_s,
                "high_s": (t.before_s or 0.0) * (r.upper or 0.0) if known else t.after_s,
                "bound_s": t.bound_s,
                "raced": r.raced or "not raced",
                "trial": r.winner,
            }
        )
    return rows


def _shares(f: Figures) -> Rows:
    """The largest tasks, and one row for all others."""
    known = [(t.name, s, now_s(f, t)) for t in f.tasks if (s := f.share(t)) is not None]
    known.sort(key=lambda row: -row[1])
    rows = [{"task": name, "share": share, "seconds": s} for name, share, s in known[:MOST_SHARES]]
    rest = known[MOST_SHARES:]
    if rest:
        whole = {"share": sum(s for _, s, _ in rest), "seconds": sum(s or 0.0 for _, _, s in rest)}
        rows.append({"task": f"{OTHERS} ({len(rest)})", **whole})
    return rows


def intensity(t: TaskFigures) -> float | None:
    """Operations for each byte of inputs and outputs; None if the task has nothing that counts as an
    operation.
    """
    if t.limits is None or not t.limits.operations or not t.limits.bytes:
        return None
    return t.limits.operations / t.limits.bytes


def _kernels(f: Figures) -> Rows:
    """The tasks on the roofline."""
    rows = []
    for t in f.tasks:
        at, r = intensity(t), t.result
        if at is not None and r is not None and t.limits is not None:
            before = None if not r.default_s else t.limits.operations / r.default_s
            after = t.limits.operations / r.winner_s
            share = f.share(t)
            rows.append(
                {"task": t.name, "intensity": at, "before": before or after, "after": after, "share": share}
            )
    return rows


def _roofs(f: Figures) -> Rows:
    """Lines of the roofline: one for each memory, up to the point where it meets the peak, and the peak."""
    xs = [x for t in f.tasks if (x := intensity(t)) is not None]
    if not xs or not f.roofs:
        return []
    roof = f.roofs[0]
    names = [f"L{n + 2}" for n in range(len(roof.bandwidths) - 1)] + ["memory"]
    ridges = [roof.peak / b for b in roof.bandwidths]
    low, high = min([*xs, *ridges]) / 2, max([*xs, *ridges]) * 2
    rows = []
    for name, bandwidth, ridge in zip(names, roof.bandwidths, ridges, strict=True):
        label = f"{name}, {bandwidth / 1e9:,.0f} GB/s"
        rows += [{"roof": label, "intensity": x, "rate": x * bandwidth} for x in (low, ridge)]
    label = f"peak, {roof.peak / 1e9:,.0f} GFLOP/s"
    return rows + [{"roof": label, "intensity": x, "rate": roof.peak} for x in (min(ridges), high)]


def _fall(f: Figures) -> Rows:
    """Seconds of all kernels together, after each number of trials."""
    found = f.fall
    if found is None:
        return []
    steps = zip(found.trials, found.seconds, found.made_by, strict=True)
    last = found.seconds[-1] if found.seconds else found.start_s
    return [
        {"trials": 0, "seconds": found.start_s, "made_by": "default"},
        *({"trials": n, "seconds": s, "made_by": m} for n, s, m in steps),
        {"trials": found.count, "seconds": last, "made_by": ""},
    ]


def _convergence(f: Figures) -> Rows:
    """For each task, its trials, the best time wherever it changes, and two levels."""
    tasks = [t for t in f.tasks if t.history.measured]
    most = max(1, MOST_POINTS // max(1, len(tasks)))
    rows: Rows = []
    for t in tasks:
        points = t.history.points
        best = best_so_far([p.seconds for p in points])
        better = [n for n, (b, before) in enumerate(zip(best, [None, *best], strict=False)) if b != before]
        for n in thinned([n for n, p in enumerate(points) if p.seconds is not None], better, most):
            p = points[n]
            rows.append(
                {"task": t.name, "what": "trial", "number": n + 1, "seconds": p.seconds, "made_by": p.made_by,
                 "trial": p.trial}
            )  # fmt: skip
        rows += [
            {"task": t.name, "what": "best", "number": n + 1, "seconds": best[n]}
            for n in [*better, len(points) - 1]
        ]
        levels = (("default", t.history.default_s), ("bound", t.history.bound_s))
        rows += [{"task": t.name, "what": what, "number": 1, "seconds": s} for what, s in levels if s]
    return rows


def thinned(places: Sequence[int], keep: Sequence[int], most: int) -> list[int]:
    """About `most` of the places at most, evenly spread, and all places in `keep`.

    >>> thinned(range(10), [1], 5)
    [0, 1, 2, 4, 6, 8]
    """
    step = -(-len(places) // most)
    return sorted({*places[::step], *keep})


def _cells(cells: Sequence[Cell]) -> Rows:
    """Each cell with its share of the trials of its kind."""
    of_kind = Counter[str]()
    for c in cells:
        of_kind[c.kind] += c.count
    return [
        {"kind": c.kind, "outcome": c.outcome, "trials": c.count, "share": c.count / of_kind[c.kind]}
        for c in cells
    ]


def _failures(f: Figures) -> Rows:
    return [
        {"failure": _label(x), "status": x.status, "signature": x.signature, "trials": x.count,
         "example": x.example}
        for x in f.failures
    ]  # fmt: skip


def _label(x: Failure) -> str:
    text = f"{x.status}: {x.signature}" if x.signature else x.status
    return text if len(text) <= LABEL else f"{text[: LABEL - 1]}…"


__all__ = ["chart_rows", "thinned"]
