"""What a person reaches with the same primitives: schedules written by hand against the default and the tuned
schedule.

    python benchmarks/by_hand.py [--only blur gemm] [--trials 128] [--threads 1] [--json FILE]

Each program has schedules that a person would write after reading Halide's papers or a text on matrix
products. Their sizes for registers and caches come from a small grid, and the fastest counts. All run in one
process, in turns, and the best of `ROUNDS` counts. Every result is compared with NumPy's in float64. A ratio
above 1 means that the search is faster than the person.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from contests.results import machine
from suite.programs import PROGRAMS, Program
from suite.programs.program import is_input

import autotensor as at
from autotensor import te
from autotensor.base.target import Target, host
from autotensor.schedule.schedule import Schedule

By = Callable[[Schedule, Target], None]
ROUNDS = 41
NEAR = 2e-4  # largest difference from float64, as a share of the largest element


def vectors(s: Schedule, stage: str, target: Target, written_out: int = 1) -> None:
    """Vectorizes the last axis and unrolls `written_out` vectors."""
    *_, axis = s[stage].op.axis
    _, many, lane = s[stage].split(axis, factors=[written_out, target.lanes(32)])
    s[stage].unroll(many)
    s[stage].vectorize(lane)


def sliding(
    s: Schedule, target: Target, out: str, slid: str, strip: int, written_out: int = 1, inlined: str = ""
) -> None:
    """Computes the result row by row. The stages that it reads keep their last rows in ring buffers."""
    for stage in inlined.split():
        s[stage].compute_inline()
    io, ii = s[out].split(s[out].op.axis[0], factor=strip)
    for stage in reversed(slid.split()):
        s[stage].compute_at(s[out], ii)
        s[stage].store_at(s[out], io)
        vectors(s, stage, target, written_out)
    vectors(s, out, target, written_out)
    s[out].parallel(io)


def register_tile(s: Schedule, target: Target, out: str, rows: int, wide: int) -> tuple[Any, Any, Any]:
    """Unrolls a tile of rows and vectors of the last two axes. Returns the two loops over tiles, and the loop
    over a tile's rows."""
    *_, y, x = s[out].op.axis
    yo, yi = s[out].split(y, factor=rows)
    xo, xv, lane = s[out].split(x, factors=[wide, target.lanes(32)])
    s[out].reorder(yo, xo, yi, xv, lane)
    s[out].unroll(yi)
    s[out].unroll(xv)
    s[out].vectorize(lane)
    return yo, xo, yi


def rows_at_once(
    s: Schedule, target: Target, out: str, rows: int, written_out: int, inlined: str = ""
) -> None:
    """Holds several rows of a stencil in registers, so that neighbours share their loads."""
    for stage in inlined.split():
        s[stage].compute_inline()
    far = s[out].op.axis[:-2]
    yo, _, _ = register_tile(s, target, out, rows, written_out)
    s[out].parallel(s[out].fuse(*far, yo) if far else yo)


def accumulate(s: Schedule, target: Target, stage: str, depth: int = 1) -> None:
    """Keeps sums in registers over all terms."""
    y, x = s[stage].op.axis
    xv, lane = s[stage].split(x, factor=target.lanes(32))
    *far, k = s[stage].op.reduce_axis
    ko, ki = s[stage].split(k, factor=depth)
    s[stage].reorder(*far, ko, ki, y, xv, lane)
    for axis in (ki, y, xv):
        s[stage].unroll(axis)
    s[stage].vectorize(lane)


def sums(s: Schedule, target: Target, out: str, of: str, rows: int, wide: int) -> None:
    """Sums over each point's neighbours, for a tile of points."""
    yo, xo, _ = register_tile(s, target, out, rows, wide)
    for stage in of.split():
        s[stage].compute_at(s[out], xo)
        accumulate(s, target, stage)
    s[out].parallel(yo)


def panels(
    s: Schedule, target: Target, out: str, of: str, right: str, rows: int, wide: int, depth: int
) -> None:
    """A register tile of a product. A panel of the right operand, as wide as the tile, is copied once for all
    rows."""
    tile = s.cache_write(of, "local").name if of == out else of
    panel = s.cache_read(right, "local", [tile]).name
    yo, xo, _ = register_tile(s, target, out, rows, wide)
    s[out].reorder(xo, yo)
    s[tile].compute_at(s[out], yo)
    accumulate(s, target, tile, depth)
    s[panel].compute_at(s[out], xo)
    vectors(s, panel, target)
    s[out].parallel(xo)


def grid(by: Callable[..., None], *given: str, **choices: Sequence[Any]) -> list[By]:
    """The same schedule with every combination of the listed sizes."""
    combined = product(*choices.values())
    return [_with(by, given, dict(zip(choices, values, strict=True))) for values in combined]


def _with(by: Callable[..., None], given: Sequence[str], sizes: dict[str, Any]) -> By:
    return lambda s, target: by(s, target, *given, **sizes)


strips = partial(grid, sliding, strip=(32, 128))
tiles = partial(grid, rows_at_once, rows=(1, 2, 4), written_out=(1, 2, 4))
BY_HAND: dict[str, list[By]] = {
    "blur": strips("by", "bx", written_out=(1, 2, 4)),
    "Gaussian of 15 taps": strips("bh", "bv", written_out=(1, 4)),
    "Harris corners": [
        *strips("out", "gx gy", inlined=("xx yy xy sxx syy sxy det trace",)),
        *strips("out", "gx gy xx yy xy", inlined=("sxx syy sxy det trace",)),
    ],
    "Canny's front": [
        *strips("out", "sh gx gy m", inlined=("sv",)),
        *strips("out", "sh m", inlined=("sv gx gy",)),
    ],
    "max filter": strips("out", "mv", written_out=(1, 2)),
    "bilateral filter": grid(sums, "out", "values weights", rows=(1, 2), wide=(1, 2, 3)),
    "Perona-Malik": tiles("out", inlined=("north south west east",)),
    "hotspot": tiles("out"),
    "star of radius 4": tiles("s0"),
    "27 points": tiles("s0"),
    "jacobi-2d": tiles("s0"),
    "jacobi-2d, 3 steps": grid(sliding, "s2", "s0 s1", strip=(64, 256, 1300), written_out=(1, 4)),
    "heat-3d, 3 steps": grid(sliding, "s2", "s0 s1", strip=(20, 60, 120)),
    "gemm": grid(panels, "out", "P", "B", rows=(4, 6), wide=(2, 3), depth=(1, 4)),
    "min-plus product": grid(panels, "C", "C", "B", rows=(4, 6), wide=(1, 2), depth=(1, 4)),
    "masked product": grid(panels, "C", "C", "B", rows=(4, 6), wide=(1, 2), depth=(1, 4)),
}


def ours(p: Program, target: Target, trials: int, log: str) -> dict[str, at.Function]:
    """The default function, and the function that a search of `trials` trials finds."""
    tensors = list(p.te())
    found = {"default": at.build(tensors, target=target, db=":memory:")}
    if trials:
        at.tune(tensors, trials, target, db=log, name=p.name, progress=False)
        found["tuned"] = at.build(tensors, target=target, db=log)
    return found


def by_hand(p: Program, by: By, target: Target) -> at.Function:
    """A program, built with one of the schedules written by hand."""
    tensors = list(p.te())
    s = te.create_schedule([t for t in tensors if not is_input(t)])
    by(s, target)
    return at.build(s, tensors, target)


def timed(p: Program, contestants: Sequence[at.Function]) -> list[float]:
    """The seconds of each contestant, the least of many turns. Raises SystemExit if a result is wrong."""
    inputs = p.inputs()
    for f in contestants:
        answer = f(*inputs)
        for mine, right in zip(
            answer if isinstance(answer, tuple) else (answer,), p.reference(), strict=True
        ):
            far = float(np.abs(mine.astype(np.float64) - right).max() / np.abs(right).max())
            if not far <= NEAR:
                raise SystemExit(f"{p.name} is {far:.1e} of its largest element away from float64.")
    best = [float("inf")] * len(contestants)
    for turn in np.random.default_rng(0).permuted([range(len(contestants))] * ROUNDS, axis=1):
        for n in turn:
            best[n] = min(best[n], *contestants[n].time(inputs, repeat=1, min_seconds=1e-4))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[*BY_HAND], metavar="PROGRAM")
    parser.add_argument("--trials", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log", default="by-hand.db", help="tuning log of the trials")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "by-hand.json")
    asked = parser.parse_args()
    target = host().with_threads(asked.threads)
    rows: dict[str, dict[str, float]] = {}
    for p in (p for p in PROGRAMS if p.name in asked.only):
        mine = ours(p, target, asked.trials, asked.log)
        times = timed(p, [*mine.values(), *(by_hand(p, by, target) for by in BY_HAND[p.name])])
        row = dict(zip(mine, times, strict=False))
        rows[p.name] = {**row, "by hand": min(times[len(mine) :])}
        against = ", ".join(f"{m} {rows[p.name]['by hand'] / t:.2f}" for m, t in row.items())
        print(
            f"{p.name:22} by hand {1e3 * rows[p.name]['by hand']:.3f} ms; times as fast: {against}",
            flush=True,
        )
        report = {"machine": machine(), "threads": asked.threads, "trials": asked.trials, "seconds": rows}
        asked.json.write_text(json.dumps(report, indent=1) + "\n")
    for m in next(iter(rows.values()), {}).keys() - {"by hand"}:
        print(f"{m}: {median(r['by hand'] / r[m] for r in rows.values()):.2f} times as fast, in the median")


if __name__ == "__main__":
    main()
