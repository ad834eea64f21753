"""The output of `autotensor watch`: a table that is updated in place on a terminal, lines elsewhere.

resnet18: 412 trials, 12 failed, 3 rejected
running, 4:12, 2.1 trials/s
all kernels together: 105 ms with the defaults, 81.2 ms with the fastest trials (1.29 times as fast)

task                                     trials  default  fastest  last gain
───────────────────────────────────────  ──────  ───────  ───────  ──────────
▸ conv2d 3x3 56x56x64->64 +add+relu          31  5.7 ms   4.22 ms  12 descent      ▸: measured now
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from autotensor.base.counted import counted
from autotensor.cli.output import layout, say
from autotensor.insight.report.findings import seconds_text
from autotensor.insight.units import clock
from autotensor.insight.watched_run import WatchedRun, WatchedTask
from autotensor.resolve import gain
from tuning_db.records import Status

HEADS = ("task", "trials", "default", "fastest", "last gain")
AROUND = 9  # lines of the picture that are not tasks


def picture(w: WatchedRun, width: int, height: int) -> str:
    """The whole picture in `width` columns and `height` lines, the slowest tasks first."""
    tasks = sorted(w.tasks.values(), key=lambda t: -t.seconds)
    shown = tasks[: max(3, height - AROUND)]
    lines = [counts(w), state(w), _model(w), "", *layout(HEADS, [_row(t) for t in shown], width)]
    left = len(tasks) - len(shown)
    lines += [f"… and {left} more task{'s' * (left != 1)}"] if left else []
    return "\n".join(line[:width] for line in lines)


def counts(w: WatchedRun) -> str:
    """The numbers of trials, failed trials and rejected trials."""
    rejected = w.statuses[Status.REJECTED]
    parts = [
        counted(w.trials, "trial"),
        f"{w.failed} failed",
        *([f"{rejected} rejected"] if rejected else []),
    ]
    return f"{w.run.model or w.run.key[:12]}: {', '.join(parts)}"


def state(w: WatchedRun) -> str:
    """Whether the run goes on, its duration, its trials per second."""
    speed = [f"{w.rate:.1f} trials/s"] if w.rate is not None and w.running else []
    return ", ".join([w.standing, clock(w.elapsed_s), *speed])


def _model(w: WatchedRun) -> str:
    known = w.model_s
    if known is None:
        timed = sum(t.best_s is not None for t in w.tasks.values())
        return f"{timed} of {len(w.tasks)} tasks have a time"
    default_s, now_s = known
    times = f"{seconds_text(default_s)} with the defaults, {seconds_text(now_s)} with the fastest trials"
    return f"all kernels together: {times} ({gain(default_s, now_s)})"


def _row(t: WatchedTask) -> tuple[object, ...]:
    gained = f"{t.gained} {t.made_by}" if t.gained else "-"
    mark = "▸ " if t.measuring else "  "
    return f"{mark}{t.name}", t.trials, seconds_text(t.default_s), seconds_text(t.best_s), gained


def line(w: WatchedRun, at: datetime, first: bool) -> str:
    """A line for a file: time, sums, and the tasks that became faster since the last line."""
    better = [t.workload for t in w.new if t.verified and t.median_s == w.tasks[t.workload].best_s]
    faster = () if first else dict.fromkeys(better)
    news = [f"{w.tasks[k].name} {seconds_text(w.tasks[k].best_s)}" for k in faster]
    return "; ".join([f"{at:%H:%M:%S} {counts(w)}", state(w), *news])


def as_data(w: WatchedRun, at: datetime) -> dict[str, Any]:
    """The picture's figures as JSON data."""
    return {
        "at": at.isoformat(),
        "run": w.run.key,
        "model": w.run.model,
        "standing": w.standing,
        "trials": w.trials,
        "statuses": {s.value: n for s, n in w.statuses.items()},
        "elapsed_s": w.elapsed_s,
        "trials_per_s": w.rate,
        "model_s": w.model_s,
        "tasks": [
            {"name": t.name, "weight": t.weight, "trials": t.trials, "default_s": t.default_s,
             "best_s": t.best_s, "made_by": t.made_by, "gained": t.gained, "measuring": t.measuring}
            for t in w.tasks.values()
        ],
    }  # fmt: skip


def follow_on_terminal(w: WatchedRun, every_s: float) -> None:
    """Updates the picture until no process works on the run."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def drawn() -> Text:
        return Text(picture(w, console.width, console.height), no_wrap=True)

    goes_on = w.look()
    live = Live(drawn(), console=console, auto_refresh=False, vertical_overflow="crop")
    try:  # not `with`: Ctrl-C while it draws first would leave the cursor hidden
        live.start(refresh=True)
        while goes_on:
            time.sleep(every_s)
            goes_on = w.look()
            live.update(drawn(), refresh=True)
    finally:
        live.stop()


def follow_in_lines(w: WatchedRun, every_s: float, as_json: bool, now: Callable[[], datetime]) -> None:
    """Prints a line at the start, after new trials, and at the end."""
    goes_on, first = True, True
    while goes_on:
        goes_on = w.look()
        if w.new or first or not goes_on:
            at = now()
            say(json.dumps(as_data(w, at), ensure_ascii=False) if as_json else line(w, at, first))
        first = False
        if goes_on:
            time.sleep(every_s)
