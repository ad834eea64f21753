"""How long a trial takes, all in: building, checking, timing. Candidates are register tiles of a convolution.

    python benchmarks/measure_throughput.py [--trials 64] [--batch 32] [--threads 1] [--json FILE]

Prints the wall seconds per trial and the share of each phase; the goal is at most 0.15 s.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import time
from pathlib import Path

from autotensor import te
from autotensor.base.target import host
from autotensor.schedule.schedule import Schedule
from autotensor.schedule.trace import Trace
from autotensor.search.measure import LocalMeasurer, MeasureOptions
from autotensor.te.dag import ComputeDAG
from autotensor.te.workload import Workload

GOAL_SECONDS = 0.15


def convolution(size: int, channels: int, filters: int) -> Workload:
    """NHWC 3x3 convolution, stride 1, of an input that is padded already, with constant weights."""
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
    """`pixels` x `filters` accumulators in registers; `order` permutes the reduction loops."""
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=0, help="of a kernel; 0: all cores")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    target = host().with_threads(arguments.threads) if arguments.threads else host()
    workload = convolution(14, 256, 128 * target.num_cores)
    tiles = itertools.product((14, 7), (32, 16, 64), itertools.permutations(range(3)), (16, 8))
    traces = [
        register_tile(workload, *tile) for tile in itertools.islice(itertools.cycle(tiles), arguments.trials)
    ]

    with LocalMeasurer(target, MeasureOptions()) as measurer:
        began = time.perf_counter()
        measurer.measure(workload, [Trace()])
        first = time.perf_counter() - began
        start = measurer.spent
        before = (start.build, start.check, start.sample, start.trials)
        began = time.perf_counter()
        results = []
        for at in range(0, len(traces), arguments.batch):
            results += measurer.measure(workload, traces[at : at + arguments.batch])
        wall = time.perf_counter() - began
        now = measurer.spent
        after = (now.build, now.check, now.sample, now.trials)

    build, check, sample, trials = (b - a for a, b in zip(before, after, strict=True))
    ok = [r for r in results if r.ok]
    report = {
        "workload": workload.name,
        "target": target.key(),
        "trials": trials,
        "ok": len(ok),
        "seconds_per_trial": wall / trials,
        "goal_seconds": GOAL_SECONDS,
        "build_share": build / wall,
        "check_share": check / wall,
        "time_share": sample / wall,
        "other_share": 1 - (build + check + sample) / wall,
        "compile_seconds_each": statistics.median(r.build_seconds or 0.0 for r in results),
        "first_trial_seconds": first,  # starting children, the oracle, the empty trace itself
        "best_gflops": workload.dag.flops() / min(statistics.median(r.seconds) for r in ok) / 1e9
        if ok
        else 0.0,
        "load_average": os.getloadavg()[0],
    }
    for name, value in report.items():
        print(f"{name:22} {value:.4g}" if isinstance(value, float) else f"{name:22} {value}")
    for r in results:
        if not r.ok:
            print(r.status, r.error)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
