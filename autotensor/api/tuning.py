"""A tuning run on this machine: calibrated rates, the local measurer, the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from autotensor.schedule.algorithm import algorithm_tolerance
from autotensor.search import loop
from autotensor.search.calibrate import calibrated
from autotensor.search.events import Listener
from autotensor.search.loop import TuneOptions, TuneReport
from autotensor.search.measure import LocalMeasurer
from autotensor.search.request import MeasureOptions, Residency
from autotensor.search.task import Task
from tuning_db import TrialStore


def run_tuning(
    tasks: Sequence[Task],
    options: TuneOptions,
    store: TrialStore,
    *,
    listener: Listener | None = None,
    residency: Residency = "graph",
    stopped: Callable[[], bool] = lambda: False,
) -> TuneReport:
    """Tunes tasks (of one target) on this machine."""
    target = tasks[0].target
    rates = calibrated(store, target)
    measuring = MeasureOptions(residency=residency, peak_flops=rates.flops * target.num_cores)
    with closing(LocalMeasurer(target, measuring, numerics=algorithm_tolerance)) as measurer:
        return loop.tune(
            tasks,
            options,
            store,
            measurer,
            rates,
            listener=listener,
            seeds=measuring.seeds,
            residency=residency,
            stopped=stopped,
        )
