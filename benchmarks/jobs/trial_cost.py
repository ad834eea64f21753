"""How long a trial takes in all: building, checking, timing. Candidates are register tiles of a convolution.

throughput(target) ──▶ seconds per trial, and of each phase; measurement.py prints them
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from dataclasses import replace
from typing import Any

from autotensor import te
from autotensor.base.target import Target
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measure_request import MeasureResult
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

GOAL_SECONDS = 0.15


def convolution(size: int, channels: int, filters: int) -> Workload:
    """An NHWC 3x3 convolution with stride 1 and constant weights. Its input is already padded."""
    x = te.placeholder((size + 2, size + 2, channels), name="x")
    w = te.placeholder((3, 3, channels, filters), name="w", constant=True)
    kh, kw = te.reduce_axis((0, 3), name="kh"), te.reduce_axis((0, 3), name="kw")
    c = te.reduce_axis((0, channels), name="c")
    y = te.compute(
        (size, size, filters),
        lambda i, j, o: te.sum(x[i + kh, j + kw, c] * w[kh, kw, c, o], axis=[kh, kw, c]),
        name="y",
    )
    return Workload.of(ComputeDAG.of([x, w, y]), f"conv3x3 {size}²x{channels}→{filters}")


def register_tile(
    workload: Workload, pixels: int, filters: int, order: tuple[int, ...], lanes: int = 16
) -> Trace:
    """A schedule with `pixels` x `filters` accumulators in registers. `order` permutes the reduction
    loops."""
    s = Schedule(workload.dag)
    s.layout("a1", [(3, filters)], "3.0 0 1 2 3.1")
    s.cache_write("t0", "local")
    y, x, o = s["t0"].op.axis
    xo, xi = s["t0"].split(x, factor=pixels)
    oo, oi = s["t0"].split(o, factor=filters)
    ov, ol = s["t0"].split(oi, factor=lanes)
    s["t0"].reorder(oo, y, xo, xi, ov, ol)
    s["t0"].parallel(s["t0"].fuse(oo, y))
    s["t0"].unroll(xi)
    s["t0"].unroll(ov)
    s["t0"].vectorize(ol)
    near = s["t0.local"]
    near.compute_at("t0", xo)
    ly, lx, lo = near.op.axis
    lv, ll = near.split(lo, factor=lanes)
    near.reorder(*(near.op.reduce_axis[n] for n in order), ly, lx, lv, ll)
    near.unroll(lx)
    near.unroll(lv)
    near.vectorize(ll)
    return s.trace


def throughput(target: Target, trials: int = 64, batch: int = 32) -> dict[str, Any]:
    """Measures `trials` candidates. Returns the seconds per trial, and of each phase."""
    workload = convolution(14, 256, 128 * target.num_cores)
    tiles = itertools.product((14, 7), (32, 16, 64), itertools.permutations(range(3)), (16, 8))
    traces = [register_tile(workload, *tile) for tile in itertools.islice(itertools.cycle(tiles), trials)]
    with LocalMeasurer(target, MeasureOptions()) as measurer:
        began = time.perf_counter()
        measurer.measure(workload, [Trace()])
        first = time.perf_counter() - began
        before = replace(measurer.spent)
        began = time.perf_counter()
        results: list[MeasureResult] = []
        for at in range(0, len(traces), batch):
            results += measurer.measure(workload, traces[at : at + batch])
        wall = time.perf_counter() - began
        spent = measurer.spent
    count = spent.trials - before.trials
    phases = {n: (getattr(spent, n) - getattr(before, n)) / count for n in ("build", "check", "sample")}
    best = min((statistics.median(r.seconds) for r in results if r.ok), default=float("inf"))
    return {
        "workload": workload.name,
        "target": target.key(),
        "trials": count,
        "ok": sum(r.ok for r in results),
        "failed": [f"{r.status}: {r.error}" for r in results if not r.ok],
        "seconds_per_trial": wall / count,
        "goal_seconds": GOAL_SECONDS,
        **phases,  # seconds per trial, like the others
        "other": wall / count - sum(phases.values()),
        "compile_seconds_each": statistics.median(r.build_seconds or 0.0 for r in results),
        "samples_each": statistics.fmean(len(r.seconds) for r in results if r.ok),
        # the start of child processes, the reference result, the empty trace itself
        "first_trial_seconds": first,
        "best_gflops": workload.dag.flops() / best / 1e9,
        "load_average": os.getloadavg()[0],
    }
