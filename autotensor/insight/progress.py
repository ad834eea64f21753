"""The progress of a tuning run: a bar on a terminal, plain lines elsewhere. It listens to the search's
events.

    with Progress(trials, deadline_s) as p:
        tune(…, listener=p.hear)

Everything goes to standard error, because standard output is for results. Warnings of the library get lines
of their own above the bar.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from autotensor.base import log
from autotensor.base.counted import counted
from autotensor.insight.text_width import columns, fold
from autotensor.insight.units import clock, gflops
from autotensor.search.events import Event, ModelSaved, Resumed, RoundDone, TaskDone, Waiting

BAR = "{n_fmt}/{total_fmt} trials |{bar:12}| {desc}"


class Progress:
    """The progress of one run so far; `statuses` counts its trials."""

    def __init__(self, budget: int, deadline_s: float | None) -> None:
        self.budget = budget
        self.deadline_s = deadline_s
        self.statuses: Counter[str] = Counter()
        self._reused = 0
        self._bar: Any = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self.budget, bar_format=BAR, dynamic_ncols=True, leave=False)
            self._open.callback(self._bar.close)
            self._bar.set_description_str("preparing: default schedules, calibration")
        self._open.enter_context(log.shown_by(self._line))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def hear(self, event: Event) -> None:
        match event:
            case RoundDone():
                self.statuses.update(event.statuses)
                self._show(event)
            case Resumed(trials):
                self._reused = trials
                self._line(f"Continuing: {counted(trials, 'trial')} of this run are in the log.")
                self._advance(trials)
            case Waiting(other):
                self._line(f"Waiting: {other} works on this run; what it measures will be continued.")
            case TaskDone(task, reason):
                self._line(f"done: {task.label}: {reason}")
            case ModelSaved(path, first, written) if first:
                self._line(f"{path} {'can be run' if written else 'holds this model already'}.")
            case _:
                pass

    def _show(self, e: RoundDone) -> None:
        best = e.best_s if e.best_s < float("inf") else None
        rate = gflops(e.task.workload.dag.flops(), best)
        speed = f"{rate} GFLOP/s" if rate != "-" else f"{best * 1e6:.1f} us" if best else ""
        fastest = f"fastest trial {speed}" if speed else "no time yet"
        failed = f"{e.failures} failed"
        left = f"{clock(self._left_s(e))} left"
        if self._bar is not None:
            # the name comes last, so that a narrow terminal cuts it and not the time left
            self._bar.set_description_str(
                f"{left}  {failed}  {speed or fastest}  {e.task.label}", refresh=False
            )
            self._advance(e.trials)
            self._bar.refresh()
        else:
            self._line(f"{e.trials}/{e.budget} trials  {e.task.label}  {fastest}  {failed}  {left}")

    def _left_s(self, e: RoundDone) -> float:
        """Seconds until the budget is spent at the speed so far, at most until the deadline."""
        measured = max(1, e.trials - self._reused)
        left = e.elapsed_s / measured * max(0, e.budget - e.trials)
        return left if self.deadline_s is None else max(0.0, min(left, self.deadline_s - e.elapsed_s))

    def _advance(self, trials: int) -> None:
        if self._bar is not None:
            self._bar.update(trials - self._bar.n)

    def _line(self, text: str) -> None:
        lines = fold(text, columns(sys.stderr))
        if self._bar is not None:
            self._bar.write(lines, file=sys.stderr)
        else:
            print(lines, file=sys.stderr, flush=True)
