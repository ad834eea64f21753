"""Calibrated rates as text: peak, bandwidth by level and team, parallel regions, best micro-kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autotensor.base.counted import counted
from autotensor.base.target import Target

BEST = 6  # micro-kernels that are shown


def measured_peak(db: str | None, target: Target) -> float | None:
    """FLOP/s of the target's cores, as calibrated; None for a card, which is never calibrated."""
    from autotensor.api.log import open_existing
    from autotensor.base.machine import host_machine

    if target.on_card:
        return None
    with open_existing(db) as store:
        known = {} if store is None else store.calibration(host_machine().fingerprint)
    return known["flops.core"].value * target.num_cores if "flops.core" in known else None


def rate_lines(
    rates: Mapping[str, Mapping[str, Any]], target: Target, width: int | None = None
) -> Iterator[str]:
    """Lines of text about the rates. rates: name → value, unit, time of measurement. width: the greatest
    width of a line; tables that are wider become sentences."""
    values = {name: float(r["value"]) for name, r in rates.items()}
    teams = sorted({int(n.rpartition(".t")[2]) for n in values if n.rpartition(".t")[2].isdigit()})
    if "flops.core" in values:
        yield from _peak(values, teams, target)
    yield from _bandwidths(values, teams, "bandwidth", "GB/s read", width)
    yield from _bandwidths(values, teams, "copying", "  copied", width)
    for t in teams:
        if f"region.t{t}" in values:
            yield f"parallel region of {t} threads: {values[f'region.t{t}'] * 1e6:.1f} us"
    yield from _kernels(values, target)
    if "clock" in rates and rates["clock"]["measured"] is not None:
        yield f"measured {rates['clock']['measured']:%Y-%m-%d %H:%M} UTC"


def spoilt(rates: Mapping[str, Mapping[str, Any]]) -> str:
    """A warning if other programs disturbed the rates, else ""."""
    from autotensor.search.machine.calibration import SPOILT

    values = {name: float(r["value"]) for name, r in rates.items()}
    if values.get("disturbed", 0.0) <= SPOILT:
        return ""
    return (
        f"the rates are provisional: other programs used {values.get('others', 0.0):.1f} cores meanwhile and "
        f"disturbed {values['disturbed']:.0%} of the samples; a later run measures them again, or "
        "--calibrate does when nothing else runs."
    )


def _peak(values: Mapping[str, float], teams: list[int], target: Target) -> Iterator[str]:
    core = values["flops.core"]
    line = f"peak {core / 1e9:.1f} GFLOP/s a core"
    if "clock" in values:
        each = core / (2 * target.lanes(32) * values["clock"])  # vector FMAs a cycle
        nominal = max(1, round(each)) * 2 * target.lanes(32) * values["clock"]
        line += (
            f", {core / nominal:.0%} of nominal ({max(1, round(each))} x {target.lanes(32)} "
            f"multiply-adds a cycle at {values['clock'] / 1e9:.2f} GHz)"
        )
    yield line
    for t in teams:
        if f"flops.t{t}" in values:
            team = values[f"flops.t{t}"]
            yield f"peak {team / 1e9:.1f} GFLOP/s of {t} threads, {team / (t * core):.0%} of {t} cores"


def _bandwidths(
    values: Mapping[str, float], teams: list[int], kind: str, title: str, width: int | None
) -> Iterator[str]:
    """A table of bandwidths by team and memory level. kind: "bandwidth" (only reading), or "copying"."""
    levels = sorted(
        {n.removeprefix(f"{kind}.").partition(".")[0] for n in values if n.startswith(f"{kind}.")}
    )
    if not levels:
        return
    narrow = width is not None and width < 11 + 8 * len(levels)
    if not narrow:
        yield f"{title:11}" + "".join(f"{level:>8}" for level in levels)
    for t in (1, *teams):
        ends = [f".t{t}"] if t > 1 else ["", ".core"]
        found = [[values[n] for e in ends if (n := f"{kind}.{level}{e}") in values] for level in levels]
        if any(found) and narrow:
            each = ", ".join(f"{level} {f[0] / 1e9:.1f}" for level, f in zip(levels, found, strict=True) if f)
            yield f"GB/s {title.split()[-1]} by {counted(t, 'thread')}: {each}"
        elif any(found):
            cells = [f"{f[0] / 1e9:8.1f}" if f else f"{'':>8}" for f in found]
            yield f"{t} thread{'s' if t > 1 else ' '} {'' if t > 9 else ' '}" + "".join(cells).rstrip()


def _kernels(values: Mapping[str, float], target: Target) -> Iterator[str]:
    from autotensor.search.machine.calibration import kernels_of
    from schedules.prior.rates import LEVELS

    steps = kernels_of(values, target).steps
    if not steps:
        yield "micro-kernels: not measured (doctor --calibrate does it, in about ten seconds)"
        return

    def worst(shape: tuple[int, int]) -> float:
        return shape[0] * shape[1] / steps[shape][-1]

    best = sorted(steps, key=lambda t: (-round(min(1.0, worst(t)), 2), -t[0] * t[1]))[:BEST]
    yield f"micro-kernels: {len(steps)} measured; share of peak with vectors from {', '.join(LEVELS)}:"
    for rows, vectors in best:
        shares = " ".join(f"{min(1.0, rows * vectors / s):5.0%}" for s in steps[rows, vectors])
        yield f"  {rows:2} rows x {vectors * target.lanes(32):3} columns {shares}"
