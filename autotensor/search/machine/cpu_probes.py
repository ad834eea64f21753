"""Probes whose passes give a record of this processor (`characterise.py`).

    measured_passes(target) ──▶ three times {"clock": 3.7e9, "fma": 1.9, "chains.4": 0.96, …}

    fma half chains.4         FMAs per cycle: whole registers, halves of registers, 4 accumulators
    handing handing.t2        seconds of a region whose threads read their neighbour's data; with one thread
    parts.t2 joining.t2       seconds of a region that writes sums; the same, with adding the sums up
    kernel.6x4.L2             a step of a register tile, in FMAs
    ways                      lines of a set of L1
    others                    cores that other programs used during the pass

A pass also has the figures of the calibration: clock, bandwidths, copying. It leaves out disturbed probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from autotensor.base.deadline import NEVER
from autotensor.base.errors import MeasureError
from autotensor.base.target import Target
from autotensor.codegen.peak import fma_yardstick
from autotensor.codegen.yardstick import handing_yardstick, joining_yardstick
from autotensor.runtime.timing_lock import timing_by
from autotensor.search.machine.calibration import FMA_STEPS, Probe, rate_probes
from autotensor.search.machine.microkernels import MicroTile, measure_microkernels, tiles
from autotensor.search.machine.probes import cpu_times, measure_rates, others_cores
from schedules.cpu import PAGE
from schedules.prior.rates import LEVELS

Pass = Mapping[str, float]  # a figure for the name of each probe

PASSES = 3
PASS_S = 5.0  # a pass may take this many seconds for more rounds, if other programs disturb it
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12)  # numbers of accumulators side by side
TEAM = 2  # number of threads in the teams that the known records were measured with
HANDED = 16  # cache lines that a thread of a small kernel gets from another thread: 1 KiB
SUMMED = 24  # cache lines of sums that are added up: 6 rows of 64 columns
INDEX = Path("/sys/devices/system/cpu/cpu0/cache/index0")  # the data cache L1


def measured_passes(target: Target, said: Callable[[int], None] = lambda done: None) -> list[Pass]:
    """The passes, in about half a minute. said: called with the number of finished passes.

    Raises MeasureError if LLVM has no name for this processor, because schedules find a record by this name.
    """
    if target.arch in ("", "generic"):
        raise MeasureError(
            "LLVM has no name for this processor, by which a record could be found.",
            fix="A newer llvmlite may know it; until then the nearest record by features is taken.",
        )
    probes = _probes(target)
    passes: list[Pass] = []
    for n in range(PASSES):
        said(n)
        with timing_by(NEVER):
            began = cpu_times()
            measured = measure_rates([p.stick for p in probes], budget_s=PASS_S)
            kernels = measure_microkernels(target, product_tiles(target)).steps
            others = others_cores(began, cpu_times())
        rates = {p.name: p.value(m) for p, m in zip(probes, measured, strict=True) if m.trusted}
        steps = {
            f"kernel.{rows}x{vectors}.{level}": step
            for (rows, vectors), times in kernels.items()
            for level, step in zip(LEVELS, times, strict=False)
        }
        passes.append(_per_cycle(rates, target) | steps | {"ways": l1_ways(target), "others": others})
    return passes


def product_tiles(target: Target) -> tuple[MicroTile, ...]:
    """Register tiles as products use them: the tallest ones of two, three and four vectors, and one row."""
    fitting = tiles(target)
    tallest = (max((t for t in fitting if t.vectors == v), key=lambda t: t.rows) for v in (2, 3, 4))
    return (MicroTile(1, 4), *tallest)


def l1_ways(target: Target) -> int:
    """Lines of a set of L1, from the system. If the system does not say, the number of pages in L1."""
    try:
        return int((INDEX / "ways_of_associativity").read_text())
    except (OSError, ValueError):
        return target.cache_bytes[0] // PAGE


def _probes(target: Target) -> list[Probe]:
    """All yardsticks of a pass, compiled once."""
    half = replace(target, vector_bytes=target.vector_bytes // 2)
    out = [
        *rate_probes(target, 1),
        Probe("half", "FLOP/s", fma_yardstick(target=half, steps=FMA_STEPS)),
        *(Probe(f"chains.{n}", "FLOP/s", fma_yardstick(steps=FMA_STEPS, chains=n)) for n in LADDER),
        Probe("handing", "s", handing_yardstick(1, HANDED)),
    ]
    if target.num_cores >= TEAM:
        out += [
            *rate_probes(target, target.num_cores),
            Probe(f"handing.t{TEAM}", "s", handing_yardstick(TEAM, HANDED)),
            Probe(f"parts.t{TEAM}", "s", joining_yardstick(TEAM, SUMMED, joined=False)),
            Probe(f"joining.t{TEAM}", "s", joining_yardstick(TEAM, SUMMED)),
        ]
    return out


def _per_cycle(rates: Mapping[str, float], target: Target) -> dict[str, float]:
    """Peaks in FMAs of registers per cycle; other rates unchanged. Empty if the clock was disturbed."""
    if "clock" not in rates:
        return {}
    one = 2 * target.lanes(32) * rates["clock"]
    out = {n: v / one if n.startswith("chains.") else v for n, v in rates.items()}
    if "flops.core" in out:
        out["fma"] = out.pop("flops.core") / one
    if "half" in out:
        out["half"] *= 2 / one
    return out
