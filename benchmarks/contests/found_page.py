"""The results of found.json as Markdown: shares of the best known speed after n trials, and trials to get
near it.

A winner's cell may say `skip: as 8`: it is the same as the winner of eight trials, and has the same time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from replays.replay import Run, low, percentile, summarise

from contests import report
from contests.markdown import grid, paragraphs
from contests.published_table import FILE, Table, typical
from contests.report import figure
from contests.results import Results

TVM = "tvm-"  # names of contestants: this, and the seed
# trials → goals for the share of the best known speed: median, 10th percentile
GOALS = {0: (0.88, 0.70), 8: (0.96, 0.88)}
NEAR = 0.05
NEAR_GOAL = (16, 40)  # goals for the number of trials: median, 90th percentile
EQUAL = 0.02  # relative difference that counts as equally fast: processes of one program differ by more
REPLAYED = "search_ablations.json"


@dataclass(frozen=True)
class Line:
    """The results of one task."""

    name: str
    family: str
    ours: dict[int, float]  # number of trials → seconds of the winner
    others: dict[str, float]
    elapsed_s: dict[int, float]  # number of trials → seconds of the search until then

    @property
    def best_s(self) -> float:
        return min([*self.ours.values(), *self.others.values()])

    @property
    def best(self) -> str:
        """The name of the fastest; "ours" on a tie."""
        everybody = {"ours": min(self.ours.values()), **self.others}
        return min(everybody, key=lambda k: everybody[k])

    def share(self, trials: int) -> float:
        """The winner's speed after so many trials, as a share of the best known speed."""
        return self.best_s / self.ours[trials]

    def reached(self, goal_s: float) -> tuple[int, float] | None:
        """The number of trials and the seconds of searching until a winner takes at most `goal_s`. (0, 0):
        the first guess does; None: no winner does."""
        trials = min((n for n, s in self.ours.items() if s <= goal_s), default=None)
        return None if trials is None else (trials, self.elapsed_s[trials])

    @property
    def near(self) -> float:
        """Trials until a winner is within 5 % of the best known; infinite if none is."""
        found = self.reached(self.best_s * (1.0 + NEAR))
        return math.inf if found is None else float(found[0])


def lines(results: Results) -> list[Line]:
    """The tasks whose first guess and last winner have a time."""
    table = Table.of(results)
    return [line for name, row in table.rows.items() if (line := _line(name, row)) is not None]


def _line(name: str, row: Mapping[str, Any]) -> Line | None:
    names = dict.fromkeys(c for u in row["units"] for c in u["cells"])
    ours: dict[int, float] = {}
    for column in names:
        if column.startswith(FILE):
            trials = int(column.removeprefix(FILE))
            as_trials = _as(row, column)
            seconds = ours.get(as_trials) if as_trials is not None else typical(row, column)
            if seconds is not None:
                ours[trials] = seconds
    others = {c: s for c in names if not c.startswith(FILE) and (s := typical(row, c)) is not None}
    if row.get("cpu", "native") != "native":  # the others' code is for this processor
        others = {}
    curve = row["search"]["curve"]
    if 0 not in ours or not curve:
        return None
    elapsed = {n: next((at for trial, at, _ in curve if trial >= n), curve[-1][1]) for n in ours}
    return Line(name, row["family"], ours, others, {**elapsed, 0: 0.0})


def _as(row: Mapping[str, Any], column: str) -> int | None:
    """The smaller number of trials that has the same winner; None if this winner is new."""
    skips = [u["cells"].get(column, {}).get("skip", "") for u in row["units"]]
    return next((int(s.removeprefix("as ")) for s in skips if s.startswith("as ")), None)


# -- the page ------------------------------------------------------------------------------------------------


def page(results: Results) -> Iterable[str]:
    found, m = lines(results), results.data["machine"]
    yield from paragraphs(f"# Found in minutes: {len(found)} tasks, {results.data['threads']} threads")
    searches = [row["search"] for row in results.rows.values()]
    trials = sum(s["trials"] for s in searches)
    wall_s = sum(s["wall_s"] for s in searches)
    per_trial = f"{wall_s / trials:.3f} s a trial" if trials else "no trials"
    yield from paragraphs(
        f"{m['cpu']}, {m['cores']} cores. {trials} trials, {per_trial}, everything included. Each task from "
        "an empty log, without shipped schedules. The best known is the fastest of our own winners and, if "
        "code is for this processor, of torch, onnxruntime, OpenVINO and MetaSchedule, where it searched."
    )
    if found:
        yield from _totals(found)
        yield from _families(found)
        yield from _tasks(found)
        yield from _tvm(found, results)
    yield from _replayed(results.path.with_name(REPLAYED))
    yield from report.notes(Table.of(results))


def _totals(found: Sequence[Line]) -> Iterable[str]:
    lines = []
    for trials in _steps(found):
        shares = [x.share(trials) for x in found if trials in x.ours]
        asked = [f"{100 * g:.0f} %" for g in GOALS[trials]] if trials in GOALS else ["", ""]
        what = f"best of {trials} trials" if trials else "first guess"
        middle, tenth = f"{100 * median(shares):.1f} %", f"{100 * low(shares):.1f} %"
        lines.append((what, middle, asked[0], tenth, asked[1]))
    yield from grid(("", "median", "asked", "10th percentile", "asked"), lines)
    near = [x.near for x in found]
    middle, late = _count(percentile(near, 0.5)), _count(percentile(near, 0.9))
    yield from paragraphs(
        f"Trials to within {100 * NEAR:.0f} % of the best known: median {middle} (asked: at most "
        f"{NEAR_GOAL[0]}), 90th percentile {late} (asked: at most {NEAR_GOAL[1]}); "
        f"{sum(map(math.isinf, near))} of {len(near)} did not get there."
    )


def _families(found: Sequence[Line]) -> Iterable[str]:
    lines = []
    for name in dict.fromkeys(x.family for x in found):
        mine = [x for x in found if x.family == name]
        shares = [
            f"{100 * median(x.share(n if n in x.ours else max(x.ours)) for x in mine):.1f} %"
            for n in (0, 8, max(_steps(mine)))
        ]
        near = _count(percentile([x.near for x in mine], 0.5))
        first = sum(x.best == "ours" for x in mine)
        lines.append((name, len(mine), *shares, near, first))
    heads = ("family", "tasks", "first guess", "best of 8", "last", "trials to 5 %", "we are fastest")
    yield from grid(heads, lines)


def _tasks(found: Sequence[Line]) -> Iterable[str]:
    steps = _steps(found)
    peers = list(dict.fromkeys(p for x in found for p in x.others))
    yield from paragraphs(
        "## Tasks", "Microseconds after so many trials, and of the others; bold: the fastest."
    )
    rows = []
    for x in sorted(found, key=lambda x: x.share(0)):
        cells = [_cell(x.ours.get(n), x.best_s) for n in steps] + [
            _cell(x.others.get(p), x.best_s) for p in peers
        ]
        eight = f"{100 * x.share(8):.0f} %" if 8 in x.ours else "–"
        rows.append((x.name, *cells, f"{100 * x.share(0):.0f} %", eight, _count(x.near)))
    yield from grid(("task", *steps, *peers, "first", "of 8", "trials to 5 %"), rows)


def _tvm(found: Sequence[Line], results: Results) -> Iterable[str]:
    """How many trials and seconds autotensor takes to be as fast as MetaSchedule's final winner."""
    against = [(x, results.rows[x.name].get("metaschedule", {})) for x in found]
    against = [(x, runs) for x, runs in against if any(p.startswith(TVM) for p in x.others)]
    if not against:
        return
    yield from paragraphs(
        "## TVM MetaSchedule",
        "Median of its seeds against our search until it is as fast (within "
        f"{100 * EQUAL:.0f} %). Both search the same definition; constants are given to TVM with their "
        "reduced axes outside, as its templates like them. Times are of the contest; its own are in "
        "brackets.",
    )
    rows: list[tuple[object, ...]] = []
    fewer, quicker, never = [], [], 0
    for x, runs in against:
        theirs = median(s for p, s in x.others.items() if p.startswith(TVM))
        their_trials = median(r["trials"] for r in runs.values())
        their_s = median(r["wall_s"] for r in runs.values())
        own = median(r["best_s"] for r in runs.values())
        times = f"{figure(1e6 * theirs)} ({figure(1e6 * own)})", figure(1e6 * min(x.ours.values()))
        line = (x.name, *times, f"{their_trials:.0f}")
        found_at = x.reached(theirs * (1.0 + EQUAL))
        if found_at is None:
            never += 1
            rows.append((*line, "never", f"{their_s:.0f}", "–", "–", "–"))
            continue
        trials, seconds = found_at
        fewer.append(their_trials / max(trials, 1))
        quicker.append(their_s / max(seconds, 1.0))
        rates = f"{fewer[-1]:.0f}", f"{quicker[-1]:.0f}"
        rows.append((*line, trials, f"{their_s:.0f}", f"{seconds:.1f}", *rates))
    heads = ("task", "theirs, us", "ours, us", "their trials", "ours", "their s", "ours")
    yield from grid((*heads, "fewer trials", "less time"), rows)
    if fewer:
        yield from paragraphs(
            f"As fast in {len(fewer)} of {len(against)} tasks, there with {median(fewer):.0f} times fewer "
            f"trials (median; asked: 20) in {median(quicker):.0f} times less time (asked: 10)."
        )


def _replayed(path: Path) -> Iterable[str]:
    """The same figures for many seeds, on the spaces in which every candidate was measured."""
    if not path.exists():
        return
    runs = [Run(**r) for r in json.loads(path.read_text())["runs"].values() if r["policy"] == "full"]
    if not runs:
        return
    s = summarise(runs, (0, 8))
    spaces, seeds = len({r.space for r in runs}), len({r.seed for r in runs})
    yield from paragraphs(
        "## Replayed",
        f"On {spaces} spaces that were measured whole, with {seeds} seeds (search_ablations.py): first guess "
        f"{100 * s.shares[0][0]:.1f} %, best of 8 trials {100 * s.shares[8][0]:.1f} % of the best (medians); "
        f"within 5 % after {_count(s.to_five[0])} trials (median), {_count(s.to_five[1])} (90th percentile).",
    )


def _steps(found: Sequence[Line]) -> list[int]:
    return sorted({n for x in found for n in x.ours})


def _cell(seconds: float | None, best_s: float) -> str:
    if seconds is None:
        return "–"
    text = figure(1e6 * seconds)
    return f"**{text}**" if seconds <= best_s else text


def _count(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.0f}"
