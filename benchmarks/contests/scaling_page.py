"""The results of scaling.py: a table for each cost, with its growth from the first rung of the ladder.

    | | GFLOP | default | torch |
    | resnet18@b1 | 3.6 | 35.1 | 52.0 |
    | resnet18@b8 | 29.0 | 270 (x0.96) | 430 (x1.03) |         8 times the work in 7.7 times the time

Time is compared per operation, so x1 means that it grows like the work. Other costs are compared directly, so
x1 means no growth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from contests.markdown import grid, paragraphs
from contests.published_table import Table, seconds, typical
from contests.report import figure, notes
from contests.results import Results, times

Row = Mapping[str, Any]
Ladders = Sequence[Sequence[str]]
MB = 1 << 20


@dataclass(frozen=True)
class Cost:
    """A quantity of the tables: `of(results, row's name, contestant)`."""

    title: str
    about: str
    of: Callable[[Results, str, str], float | None]
    per_work: bool = False  # whether growth is that of the cost of one operation


def latency_ms(results: Results, name: str, contestant: str, which: str = "median") -> float | None:
    found = typical(results.rows[name], contestant, which)
    return None if found is None else 1e3 * found


def of_cells(key: str, unit: float) -> Callable[[Results, str, str], float | None]:
    """The median over processes of a value in the cells. Only cells with a time count."""

    def value(results: Results, name: str, contestant: str) -> float | None:
        row = results.rows[name]
        found = [v for v in times(row, contestant, key) if v is not None]
        return median(found) / unit if found and seconds(row, contestant) else None

    return value


def tuning_s(results: Results, name: str, contestant: str) -> float | None:
    """The seconds of tuning, if all trials were measured and none came from the log."""
    done = results.data["tuning"].get(f"{name} {contestant}", {})
    return done["elapsed_s"] if done.get("trials") and not done["reused"] else None


def trial_s(results: Results, name: str, contestant: str) -> float | None:
    whole = tuning_s(results, name, contestant)
    return None if whole is None else whole / results.data["tuning"][f"{name} {contestant}"]["trials"]


COSTS = (
    Cost("Latency, ms", "of one inference; in brackets the time of one operation against the first row",
         latency_ms, per_work=True),
    Cost("Least latency, ms", "the fastest sample, for machines that are not idle",
         partial(latency_ms, which="min"), per_work=True),
    Cost("Set-up, s", "from importing the library to the first answer; nothing cached",
         of_cells("setup_s", 1.0)),
    Cost("Peak memory while setting up, MB", "resident, libraries included", of_cells("setup_bytes", MB)),
    Cost("Peak memory while running, MB", "resident, libraries included", of_cells("run_bytes", MB)),
    Cost("Tuning, s", "all trials of the model", tuning_s),
    Cost("Tuning, s a trial", "compiling, checking and timing one candidate", trial_s),
)  # fmt: skip
DRAWN = (COSTS[0], *COSTS[2:5])


def growth(cost: Cost, results: Results, name: str, first: str, contestant: str) -> float | None:
    """The cost of a row divided by that of the first row; per operation if `per_work`. None if one of them is
    unknown."""
    if not {name, first} <= set(results.rows):
        return None
    now, before = (cost.of(results, n, contestant) for n in (name, first))
    if now is None or not before:
        return None
    work = results.rows[name]["flops"] / results.rows[first]["flops"] if cost.per_work else 1.0
    return now / before / work


# -- text --------------------------------------------------------------------------------------------------


def write(found: Sequence[Results], ladders: Ladders, path: Path) -> None:
    """Writes the Markdown file, and the picture if matplotlib is installed."""
    drawn = draw(found, ladders, path.with_suffix(".png"))
    path.write_text("\n".join(page(found, ladders, drawn)) + "\n")
    print(f"Wrote {path}" + (f", {path.with_suffix('.png')}" if drawn else ""))


def page(found: Sequence[Results], ladders: Ladders, drawn: bool) -> Iterable[str]:
    yield from paragraphs(
        "# Does the cost grow as the work grows? float32",
        "`@b8`: batch 8. `w10`: hidden layers ten times as wide. (xN): against the ladder's first row.",
    )
    if drawn:
        yield from paragraphs("![growth](scaling.png)")
    for results in found:
        m = results.data["machine"]
        versions = ", ".join(f"{k} {v}" for k, v in m["versions"].items())
        sets = max((len(row["units"]) for row in results.rows.values()), default=0)
        yield from paragraphs(
            f"## {team(results)}",
            f"{m['cpu']}, {m['cores']} cores; at most {sets} sets of processes a row. {versions}.",
        )
        for cost in COSTS:
            yield from table(cost, results, ladders)
        yield from notes(Table.of(results))


def team(results: Results) -> str:
    n = results.data["threads"]
    return f"{n} thread{'s' if n > 1 else ''}"


def table(cost: Cost, results: Results, ladders: Ladders) -> Iterable[str]:
    """The table of one cost, for all contestants that have it; nothing if none has."""
    shown = Table.of(results)
    rows = [(n, ladder[0]) for ladder in ladders for n in ladder if n in shown.rows]
    columns = [
        c for c in (*shown.mine, *shown.peers) if any(cost.of(results, n, c) is not None for n, _ in rows)
    ]
    if not columns:
        return
    yield from paragraphs(f"### {cost.title}", f"{cost.about[0].upper()}{cost.about[1:]}.")
    lines = []
    for name, first in rows:
        cells = [_cell(cost, results, name, first, c) for c in columns]
        lines.append((name, figure(results.rows[name]["flops"] / 1e9), *cells))
    yield from grid(("", "GFLOP", *columns), lines)


def _cell(cost: Cost, results: Results, name: str, first: str, contestant: str) -> str:
    value = cost.of(results, name, contestant)
    if value is None:
        return "–"
    grown = None if name == first else growth(cost, results, name, first, contestant)
    return figure(value) if grown is None else f"{figure(value)} (x{grown:.2f})"


# -- picture -----------------------------------------------------------------------------------------------


def draw(found: Sequence[Results], ladders: Ladders, path: Path) -> bool:
    """Draws a row of panels for each cost and a column for each ladder: growth over work, with one line for
    each contestant, dashed for the first file's number of threads. Returns whether there is a picture."""
    try:
        import matplotlib
    except ImportError:
        print("No picture: matplotlib is not installed.")
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = list(dict.fromkeys(c for r in found for t in [Table.of(r)] for c in (*t.mine, *t.peers)))
    ladders = [
        ladder
        for ladder in ladders
        if any(_points(COSTS[0], r, ladder, c)[0] for r in found for c in columns)
    ]
    if not ladders:
        return False
    colours = dict(zip(columns, plt.colormaps["tab10"].colors, strict=False))
    size = (3.6 * len(ladders), 2.3 * len(DRAWN))
    sheet, axes = plt.subplots(len(DRAWN), len(ladders), figsize=size, squeeze=False, sharex="col")
    for line, cost in zip(axes, DRAWN, strict=True):
        for axis, ladder in zip(line, ladders, strict=True):
            for n, results in enumerate(found):
                style = "-" if n == len(found) - 1 else "--"
                for c in columns:
                    points = _points(cost, results, ladder, c)
                    axis.plot(*points, style, marker=".", color=colours.get(c), linewidth=1)
            axis.axhline(1, color="black", linewidth=0.6)
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
            axis.tick_params(labelsize=7)
        line[0].set_ylabel(
            f"{cost.title.split(',')[0]}\n{'per operation' if cost.per_work else ''}", fontsize=8
        )
    for axis, ladder in zip(axes[0], ladders, strict=True):
        axis.set_title(ladder[0].split("@")[0], fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("GFLOP", fontsize=8)
    handles = [plt.Line2D([], [], color=colours.get(c), label=c) for c in columns]
    sheet.legend(handles=handles, loc="lower center", ncols=len(columns), fontsize=8)
    teams = ", dashed: ".join(dict.fromkeys(team(r) for r in (found[-1], found[0])))
    sheet.suptitle(f"Growth from the first rung ({teams})", fontsize=10)
    sheet.tight_layout(rect=(0, 0.03, 1, 1))
    sheet.savefig(path, dpi=130)
    plt.close(sheet)
    return True


def _points(
    cost: Cost, results: Results, ladder: Sequence[str], contestant: str
) -> tuple[list[float], list[float]]:
    found = [
        (results.rows[n]["flops"] / 1e9, g)
        for n in ladder
        if (g := growth(cost, results, n, ladder[0], contestant)) is not None
    ]
    return [x for x, _ in found], [y for _, y in found]
