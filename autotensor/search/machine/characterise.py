"""A record of this processor, made from measurements: `autotensor doctor --characterise` prints it.

    found = characterise(target, measured_passes(target))    per field of `Cpu`: value, noise, nearest
    print(found.python("Zen 9, 2027-01"))                    NEW = replace(XEON, name=…, l2_rate=41.0, …)

A field is written if it differs from the nearest record's field by more than the field's `tolerance`. This is
the smallest share that changes decisions. If the passes disagree by more than that, the field is not written,
and the nearest record's value stays. Fields that need whole kernels instead of probes of milliseconds also
keep that value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import inf, isfinite, sqrt
from statistics import median, median_low
from textwrap import wrap
from typing import Any

from autotensor.base.target import Target
from autotensor.codegen.dot_instructions import whole
from autotensor.search.machine.calibration import BUSY, DOT
from autotensor.search.machine.cpu_probes import LADDER, TEAM, Pass, product_tiles
from schedules import cpu as records
from schedules.cpu import RECORDS, ZEN4, Cpu, cpu_of

REACHED = 0.9  # a core is busy with this many accumulators if they reach this share of the largest rate
HALVED = 1.5  # a whole register is run as two halves if halves are this many times as fast per cycle
LEAST_PASSES = 2  # with a single pass, the error is not known


class Certainty(StrEnum):
    """The outcome for a field."""

    DIFFERS = "differs from"
    SAME = "measured, as"
    NOISY = "measured, but too noisy to write; as"
    MISSING = "not measured, as"


@dataclass(frozen=True, slots=True)
class Finding:
    """One field: the measured value, and the value of the nearest record."""

    field: str
    standing: Certainty
    nearest: Any
    value: Any = None
    noise: float = 0.0  # the largest difference between two passes, as a share
    figure: str = ""  # the value in words


@dataclass(frozen=True, slots=True)
class Characterised:
    """A processor, compared with the record that is nearest to it."""

    nearest: Cpu
    name: str
    arch: str
    findings: tuple[Finding, ...]
    others: float = 0.0  # average number of cores that other programs used during the measurement

    def of(self, standing: Certainty) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.standing is standing)

    @property
    def record(self) -> Cpu:
        """The nearest record, with the fields that differ replaced."""
        changed = {f.field: f.value for f in self.of(Certainty.DIFFERS)}
        return replace(self.nearest, name=self.name, archs=(self.arch,), **changed)

    def python(self, where: str) -> str:
        """A module that defines the record as `NEW`. where: the processor and the month of measurement."""
        base = next((n for n, value in vars(records).items() if value is self.nearest), "NEAREST")
        theirs = [
            "from schedules.cpu import RECORDS",
            "",
            f'NEAREST = next(c for c in RECORDS if c.name == "{self.nearest.name}")',
        ]
        source = theirs if base == "NEAREST" else [f"from schedules.cpu import {base}"]
        changed = [(f, _spelled(f.value)) for f in self.of(Certainty.DIFFERS)]
        infinite = ["from math import inf"] if any(value == "inf" for _, value in changed) else []
        named = [f"    {base},", f'    name="{self.name}",', f'    archs=("{self.arch}",),']
        written = [f"    {f.field}={value},  # ({f.figure}; {where})" for f, value in changed]
        others = [
            f"# {line}"
            for standing in (Certainty.SAME, Certainty.NOISY, Certainty.MISSING)
            for line in _listed(standing, base, self.of(standing))
        ]
        if self.others > BUSY:
            said = f"# Other programs used {self.others:.1f} cores meanwhile: measure again without them."
            others.insert(0, said)
        head = ["from dataclasses import replace", *infinite, "", *source, ""]
        return "\n".join([*head, "NEW = replace(", *named, *written, ")", *others, ""])


def _spelled(value: Any) -> str:
    """The value in Python's spelling.

    >>> _spelled((1.69e11, 5e9)), _spelled(65536), _spelled(48.0)
    ('(1.69e11, 5e9)', '65536', '48.0')
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(_spelled, value))})"
    return _short(value) if isinstance(value, float) and 1e6 <= value < inf else repr(value)


def _short(x: Any) -> str:
    """A value in three digits; counts with all digits, names unchanged.

    >>> _short(43.38), _short(6012.5), _short(3.67e9), _short(65536)
    ('43.4', '6012', '3.67e9', '65536')
    """
    if isinstance(x, tuple):
        return " ".join(map(_short, x))
    if isinstance(x, str):
        return x
    if isinstance(x, int) or 1e3 <= x < 1e5:
        return f"{x:.0f}"
    return f"{x:.3g}".replace("e+0", "e").replace("e+", "e")


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _listed(standing: Certainty, base: str, findings: Sequence[Finding]) -> list[str]:
    """The fields with one outcome, in lines of 108 columns. No lines if there are no such fields."""
    if not findings:
        return []

    def said(f: Finding) -> str:
        noise = f", passes {f.noise:.0%} apart" if standing is Certainty.NOISY else ""
        return f"{f.field} ({f.figure}{noise})" if f.figure else f.field

    return wrap(f"{standing} {base} has them: {', '.join(map(said, findings))}", 106)


def characterise(target: Target, passes: Sequence[Pass]) -> Characterised:
    """The conclusions about the target's processor, from passes of `measured_passes`."""
    measurable = {f.name: f for f in _fields(target)}
    whole = measurable["multiplies"].values(passes)
    nearest = cpu_of(target, median(whole) if whole else None)
    findings = [
        measurable[f.name].found(passes, getattr(nearest, f.name))
        if f.name in measurable
        else Finding(f.name, Certainty.MISSING, getattr(nearest, f.name))
        for f in fields(Cpu)
        if f.name not in ("name", "archs")
    ]
    taken = any(c.name == target.arch for c in RECORDS)
    name = f"{target.arch}-measured" if taken else target.arch
    others = median(p.get("others", 0.0) for p in passes)
    return Characterised(nearest, name, target.arch, tuple(findings), others)


# -- what can be measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of `Cpu` that probes can measure."""

    name: str
    of: Callable[[Pass], Any]  # raises KeyError if other programs disturbed one of its probes
    tolerance: float  # smallest share by which it must differ to change decisions
    unit: str
    digits: int = 2  # number of significant digits that are written
    least: float = 0.0  # smaller values are compared as if they had this size

    def values(self, passes: Sequence[Pass]) -> list[Any]:
        """The field's values, from each pass that has all of its probes."""
        out = []
        for p in passes:
            try:
                out.append(self.of(p))
            except KeyError:
                continue
        return out

    def found(self, passes: Sequence[Pass], nearest: Any) -> Finding:
        """The finding for this field."""
        values = self.values(passes)
        if len(values) < LEAST_PASSES:
            return Finding(self.name, Certainty.MISSING, nearest, figure="no undisturbed probe")
        noise = max(self.apart(a, b) for a in values for b in values)
        value = (
            tuple(map(median_low, zip(*values, strict=True)))
            if isinstance(nearest, tuple)
            else median(values)
        )
        parts = value if isinstance(value, tuple) else (value,)
        figure = f"{', '.join(map(_short, parts))} {self.unit}"
        standing = (
            Certainty.NOISY
            if noise > self.tolerance
            else Certainty.DIFFERS
            if self.apart(value, nearest) > self.tolerance
            else Certainty.SAME
        )
        return Finding(self.name, standing, nearest, self.rounded(value, nearest), noise, figure)

    def apart(self, a: Any, b: Any) -> float:
        """The difference of two values as a share of the second. For tuples, the common parts count."""
        if isinstance(a, tuple):
            return max(self.apart(x, y) for x, y in zip(a, b, strict=False))
        if a == b:
            return 0.0
        return abs(a - b) / max(abs(b), self.least) if isfinite(a) and isfinite(b) else inf

    def rounded(self, value: Any, like: Any) -> Any:
        """The value with its significant digits, in the type of another value."""
        if isinstance(value, tuple):
            kinds = like if len(like) == len(value) else like[:1] * len(value)
            return tuple(self.rounded(x, kind) for x, kind in zip(value, kinds, strict=True))
        if isinstance(value, str):
            return value
        kept = float(f"{value:.{self.digits}g}")
        return round(kept) if isinstance(like, int) else kept


def _fields(target: Target) -> tuple[_Field, ...]:
    """All measurable fields. The system's figures are not measurements, and may not differ at all."""
    cores = target.num_cores
    most = f"bandwidth.memory.t{cores}" if cores > 1 else "bandwidth.memory.core"
    handed, joined = (f"{name}.t{TEAM}" for name in ("handing", "joining"))
    return (
        _Field("vector_bytes", lambda p: target.vector_bytes, 0.0, "as LLVM says", 9),
        _Field("vector_registers", lambda p: target.vector_registers, 0.0, "as LLVM says", 9),
        _Field("cache_bytes", lambda p: target.cache_bytes, 0.0, "as the system says", 12),
        _Field("ways", lambda p: p["ways"], 0.0, "as the system says", 9),
        # processors have whole or half units; this value decides which record is the nearest
        _Field("multiplies", lambda p: round(2 * p["fma"]) / 2, 0.1, "FMAs of whole registers a cycle"),
        # these guesses are used if nothing is calibrated
        _Field("clock", lambda p: p["clock"], 0.15, "cycles a second"),
        _Field("bandwidths", _levels, 0.3, "B/s of a core from L2, L3, memory"),
        _Field("memory", lambda p: p[most], 0.3, f"B/s of {cores} threads from memory"),
        _Field("latency", lambda p: 1 / p["chains.1"], 0.15, "cycles from one FMA to the next", 1),
        _Field("accumulators", _busy, 0.2, f"vectors that reach {REACHED:.0%} of peak"),
        _Field("l2_rate", lambda p: p["bandwidth.L2"] / p["clock"], 0.2, "bytes a cycle from L2"),
        # weights come from L3 or from memory, so this is the geometric mean
        _Field("l3_rate", _beyond_l2, 0.25, "bytes a cycle, between L3's and memory's"),
        # a kernel is divided among threads from twice as many cycles on, so an error of a factor of 2 decides
        # wrongly
        _Field("region", _cycles(handed, "handing"), 0.3, "cycles of a region that hands 1 KiB on"),
        _Field("join", _cycles(joined, f"parts.t{TEAM}"), 0.3, "cycles to add up 24 lines of sums"),
        # measured on steps of 12 to 28 FMAs: in these, no other tile is faster
        _Field("panel_wait", _beside("L2", target), 0.15, "FMAs more for a vector from L2", least=1.0),
        _Field("stream_cost", _beside("L3", target), 0.25, "FMAs more for a vector from L3", least=1.0),
        _Field("tile_stream", lambda p: p["kernel.1x4.L3"] / 4, 0.25, "FMAs' time a vector from L3 alone"),
        _Field("dots", _dots(target), 0.15, "times the operations of FMAs in float32"),
        _Field("halves", _halves, 0.0, "times the columns, from which on halves of registers are faster", 3),
    )


def _dots(target: Target) -> Callable[[Pass], tuple[tuple[str, float], ...]]:
    """The rate of dot instructions as a multiple of the rate of FMAs. For instructions that this processor
    lacks, the nearest record's value is used."""

    def measured(p: Pass) -> tuple[tuple[str, float], ...]:
        if not any(f"{DOT}{d.name}" in p for d in whole(target)):
            raise KeyError(DOT)
        one = p["fma"] * 2 * target.lanes(32) * p["clock"]
        found = {}
        for begin, recorded in cpu_of(target, p["fma"]).dots:
            mine = [d for d in whole(target) if d.name.partition(".")[2].startswith(begin)]
            found[begin] = max((p[f"{DOT}{d.name}"] / one for d in mine), default=recorded)
        return tuple(found.items())

    return measured


def _levels(p: Pass) -> tuple[float, float, float]:
    """Bytes per second of a core from L2, from L3 (or memory if there is no L3), and from memory."""
    memory = p["bandwidth.memory.core"]
    return p["bandwidth.L2"], p.get("bandwidth.L3", memory), memory


def _beyond_l2(p: Pass) -> float:
    _, l3, memory = _levels(p)
    return sqrt(l3 * memory) / p["clock"]


def _busy(p: Pass) -> int:
    """The smallest number of accumulators that keeps a core busy."""
    rates = {n: p[f"chains.{n}"] for n in LADDER}
    return min(n for n, rate in rates.items() if rate >= REACHED * max(rates.values()))


def _halves(p: Pass) -> float:
    """How empty a register may be until two halves are as fast; inf if halves are never faster."""
    return ZEN4.halves if p["half"] >= HALVED * p["fma"] else inf


def _beside(level: str, target: Target) -> Callable[[Pass], float]:
    """Extra FMAs' time of a vector that comes from a level instead of L1: the median over tiles."""
    shapes = [(f"kernel.{t.rows}x{t.vectors}.", t.vectors) for t in product_tiles(target)[1:]]

    def cost(p: Pass) -> float:
        return max(0.0, median((p[f"{name}{level}"] - p[f"{name}L1"]) / n for name, n in shapes))

    return cost


def _cycles(longer: str, shorter: str) -> Callable[[Pass], float]:
    """The number of cycles by which one probe takes longer than another."""
    return lambda p: max(0.0, p[longer] - p[shorter]) * p["clock"]
