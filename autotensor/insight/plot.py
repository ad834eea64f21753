"""Pictures of a search as PNG files: how the best time fell, and measured times against predicted ones.

    draw_task(history, path)        every trial of a task, coloured by its maker, and the best time so far
    draw_model(histories, path)     the total time of a model's kernels, and the predictions of all trials

matplotlib is optional (`pip install "autotensor[plot]"`) and imported only here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from autotensor.base.errors import InputError
from autotensor.insight.search_history import Fall, History, best_so_far, rank_correlation
from autotensor.runtime.files.atomic_write import replacing

SIZE = (11.0, 5.0)  # inches
DPI = 120
NARROW = 4.0  # an axis is linear if its largest value is less than this many times the smallest
NEAR = 2.5  # a logarithmic axis that spans a smaller factor needs more ticks
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7f7f7f",
)  # distinct with any kind of colour blindness (Okabe and Ito)  # fmt: skip
MILLISECONDS = 0.01  # times of at least this many seconds are shown in ms


def draw_task(t: History, path: Path, where: str = "") -> None:
    """Draws one task. where: machine, target and date, below the title.

    Raises InputError without matplotlib, OSError when the file cannot be written.
    """
    figure, (left, right) = _figure(t.name, where)
    unit, scale = _unit([p.seconds for p in t.measured if p.seconds is not None])
    colours = _colours([p.made_by for p in t.points])
    for maker, colour in colours.items():
        mine = [(n, p.seconds * scale) for n, p in enumerate(t.points, start=1)
                if p.made_by == maker and p.seconds is not None]  # fmt: skip
        left.scatter([n for n, _ in mine], [s for _, s in mine], s=16, color=colour, label=maker, zorder=3)
    failed = [n for n, p in enumerate(t.points, start=1) if p.seconds is None]
    if failed:
        left.scatter(
            failed, [0.02] * len(failed), marker="x", s=18, color="#999999", label=f"failed ({len(failed)})",
            transform=left.get_xaxis_transform(), zorder=3,
        )  # fmt: skip
    best = [(n, b * scale) for n, b in enumerate(best_so_far([p.seconds for p in t.points]), start=1) if b]
    left.step([n for n, _ in best], [b for _, b in best], where="post", color="black", label="best so far")
    _lines(left, t.default_s, t.bound_s, unit, scale)
    _time_axis(left, unit, [s * scale for s in _all_times(t)])
    left.set_xlabel("trials")
    _calibration(right, [t], [colours[p.made_by] for p in t.measured if p.predicted_s is not None])
    _save(figure, path)


def draw_model(name: str, tasks: Sequence[History], found: Fall, path: Path, where: str = "") -> None:
    """Draws one model. where: machine, target and date, below the title.

    Raises InputError without matplotlib, OSError when the file cannot be written.
    """
    figure, (left, right) = _figure(name, where)
    unit, scale = _unit([found.start_s])
    numbers = [0, *found.trials, found.count]
    seconds = [found.start_s, *found.seconds, (found.seconds or (found.start_s,))[-1]]
    left.step(numbers, [s * scale for s in seconds], where="post", color="black", label="best so far")
    for maker, colour in _colours(found.made_by).items():
        mine = [(n, s * scale) for n, s, m in zip(found.trials, found.seconds, found.made_by, strict=True)
                if m == maker]  # fmt: skip
        left.scatter([n for n, _ in mine], [s for _, s in mine], s=18, color=colour, label=maker, zorder=3)
    _lines(left, found.start_s, found.bound_s, unit, scale)
    _time_axis(left, unit, [s * scale for s in (*seconds, found.bound_s) if s])
    left.set_ylabel(f"all kernels together, {unit}")
    left.set_xlabel("trials, of all tasks in the order of measuring")
    _calibration(right, tasks, COLOURS[0])
    _save(figure, path)


def _figure(title: str, where: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as e:
        raise InputError(
            "pictures need matplotlib, which is not installed.", fix='pip install "autotensor[plot]"'
        ) from e
    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    figure.suptitle(f"{title}\n{where}".rstrip(), fontsize=11)
    return figure, figure.subplots(1, 2, width_ratios=(1.3, 1.0))


def _save(figure: Any, path: Path) -> None:
    with replacing(Path(path)) as file:
        figure.savefig(file, format="png")


def _colours(makers: Sequence[str]) -> dict[str, str]:
    """A colour for each maker of candidates, in order of appearance."""
    return {m: COLOURS[n % len(COLOURS)] for n, m in enumerate(dict.fromkeys(makers))}


def _unit(seconds: Sequence[float]) -> tuple[str, float]:
    """Name of the unit that fits, and the number of these units in a second."""
    return ("ms", 1e3) if seconds and min(seconds) >= MILLISECONDS else ("µs", 1e6)


def _all_times(t: History) -> list[float]:
    return [p.seconds for p in t.measured if p.seconds is not None] + [
        s for s in (t.default_s, t.bound_s) if s
    ]


def _lines(axes: Any, default_s: float | None, bound_s: float | None, unit: str, scale: float) -> None:
    for name, seconds, style in (("default", default_s, "--"), ("bound", bound_s, ":")):
        if seconds:
            at = seconds * scale
            axes.axhline(
                at, color="#555555", linestyle=style, linewidth=1.1, label=f"{name}, {at:,.4g} {unit}"
            )


def _time_axis(axes: Any, unit: str, values: Sequence[float]) -> None:
    """The axis of times, logarithmic if the times differ much. Puts the legend below."""
    axes.set_ylabel(f"time, {unit}")
    if values and max(values) > NARROW * min(values):
        axes.set_yscale("log")
        _ticks(axes.yaxis, max(values) / min(values))
    axes.grid(alpha=0.25)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=4, fontsize=8, frameon=False)


def _ticks(axis: Any, span: float) -> None:
    """Ticks with plain numbers, few enough that they do not overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    many = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    subs = many if span < NEAR else (1, 2, 5) if span < 200 else (1,)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    axis.set_minor_formatter(NullFormatter())


def _calibration(axes: Any, tasks: Sequence[History], colour: Any) -> None:
    """Predicted against measured times of all trials that have a prediction."""
    trials = [p for t in tasks for p in t.measured]
    pairs = [(p.seconds, p.predicted_s) for p in trials if p.seconds and p.predicted_s is not None]
    axes.set_xlabel("measured, µs")
    axes.set_ylabel("predicted before measuring, µs")
    axes.set_title(_quality(tasks, len(pairs)), fontsize=10)
    if not pairs:
        axes.text(0.5, 0.5, "no predictions in the log", ha="center", transform=axes.transAxes)
        return
    values = [v * 1e6 for pair in pairs for v in pair if v > 0.0]
    low, high = min(values) / 1.1, max(values) * 1.1
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.plot([low, high], [low, high], color="#555555", linewidth=1.0, label="as predicted")
    axes.scatter(
        [m * 1e6 for m, _ in pairs], [p * 1e6 for _, p in pairs], s=14, color=colour, alpha=0.7, zorder=3
    )
    for axis in (axes.xaxis, axes.yaxis):
        _ticks(axis, high / low)
    axes.grid(alpha=0.25)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), fontsize=8, frameon=False)


def _quality(tasks: Sequence[History], count: int) -> str:
    found = [r for t in tasks if (r := rank_correlation(t)) is not None]
    if not found:
        return f"{count} predictions, too few for a rank correlation"
    if len(tasks) == 1:
        return f"rank correlation {found[0]:.2f} ({count} predictions)"
    middle = f"rank correlation within a task {median(found):.2f}"
    return f"{middle}\n(median of {len(found)} tasks, {count} predictions)"
