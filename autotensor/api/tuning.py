"""A tuning run on this machine: calibrated rates, the local measurer, the loop; and what is seen of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from autotensor.base.target import host
from autotensor.schedule.algorithm import algorithm_tolerance
from autotensor.search import loop
from autotensor.search.calibrate import calibrated
from autotensor.search.events import Event, Listener
from autotensor.search.loop import TuneOptions, TuneReport
from autotensor.search.measure import LocalMeasurer
from autotensor.search.rates import Rates
from autotensor.search.request import MeasureOptions, Residency
from autotensor.search.task import Task
from tuning_db import TrialStore

KERNELS_WORTH = 256  # trials: a run of minutes; seconds that micro-kernels take once do not matter


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
    if target.kind == "cuda":
        rates = Rates.guess(target)
    else:  # OpenCL's threads run on this processor
        processor = host().with_threads(target.num_cores) if target.is_gpu else target
        rates = calibrated(store, processor, kernels=options.trials >= KERNELS_WORTH)
    peak = None if target.is_gpu else rates.peak(target.num_cores)
    measuring = MeasureOptions(residency=residency, peak_flops=peak, asm=not target.is_gpu)

    def peak_again() -> float:
        return calibrated(store, target, again=True).peak(target.num_cores)

    deadline_s = float("inf") if options.deadline_s is None else options.deadline_s
    until = time.monotonic() + (1.0 - loop.RACES_SHARE) * deadline_s  # what comes later would not be raced

    def left_s() -> float:
        return until - time.monotonic()

    with closing(
        LocalMeasurer(target, measuring, numerics=algorithm_tolerance, recalibrate=peak_again, left_s=left_s)
    ) as measurer:
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


@contextmanager
def shown(options: TuneOptions, listener: Listener | None, progress: bool) -> Iterator[Listener | None]:
    """The listener of a run inside the block: `listener`, and lines on standard error if `progress`."""
    if not progress:
        yield listener
        return
    from autotensor.insight.progress import Progress

    with Progress(options.trials, options.deadline_s) as lines:

        def hear(event: Event) -> None:
            lines.hear(event)
            if listener is not None:
                listener(event)

        yield hear
