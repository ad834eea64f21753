"""Calibration: the rates of this machine. They are measured once and kept in the log by fingerprint.

    rates = calibrated(store, target)      measures in a few seconds if the log does not have the rates
    measure(target, (1, 2, 4))             names → (value, unit), for several teams

    clock                    cycles a second, of one core
    flops.core flops.t2      fused multiply-adds on registers: one core, a team of two threads
    bandwidth.L2 …L2.t2      reading data that fits into L2; the same for L1, L3, memory (.core)
    copying.L2 …L2.t2        bytes read plus written per second, equally many; the same for L3
    region.t2                seconds of a fork and join
    kernel.v64.6x4.L2        a step of a register tile (microkernels.py); only on request

`probes.py` explains how other programs on the machine are tolerated. `disturbed` is the share of runs that
they disturbed. If they disturbed the figure of a team (a number of threads) too much, this figure is left out
and measured at a later time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

from autotensor.base import log
from autotensor.base.deadline import NEVER, Deadline
from autotensor.base.machine import host_machine
from autotensor.base.target import Target, usable_cores
from autotensor.codegen.dot_instructions import whole
from autotensor.codegen.peak import dot_yardstick, fma_yardstick
from autotensor.codegen.yardstick import (
    Yardstick,
    clock_yardstick,
    copying_yardstick,
    reading_yardstick,
    region_yardstick,
)
from autotensor.runtime.arrays import Array, aligned_empty
from autotensor.runtime.timing_lock import timing_by
from autotensor.search.machine.machine_entry import know_machine
from autotensor.search.machine.microkernels import measure_microkernels
from autotensor.search.machine.probes import (
    BUDGET_S,
    ROUNDS,
    Measured,
    busy_cores,
    cpu_times,
    measure_rates,
    others_cores,
)
from schedules.prior.rates import LEVELS, REGION_S, MicroKernels, Rates
from tuning_db import TrialStore
from tuning_db.records import Calibration
from tuning_db.values import now

Values = dict[str, tuple[float, str]]  # name → (value, unit)
Said = Callable[[int, int], None]  # called with two counts of micro-kernels: measured so far, and all
Warn = Callable[[str], object]  # called with a sentence

BEYOND = 4  # an array of this many times the last cache's size fits only into memory
MOST_BYTES = 1 << 30
# bytes of that array that one run reads, for all threads together; the next run continues behind them
WINDOW = 8 << 20
BUSY = 0.25  # a warning is printed if others use at least this many cores on average
CROWDED = 0.5  # if others use this share of the cores, a short look measures one core only
RETRY_S = 900.0  # least time before a figure that a busy machine prevented is tried again
# if at least this share of the runs was disturbed, rates are provisional: reported, and measured again later
SPOILT = 0.25
FMA_STEPS = 5_000
BRIEF_ROUNDS = 4  # rounds of a short look; three undisturbed rounds are enough for a rate


@dataclass(frozen=True, slots=True)
class Probe:
    """A yardstick with a name. Its result is a rate, or the seconds of one run."""

    name: str
    unit: str
    stick: Yardstick

    def value(self, measured: Measured) -> float:
        return 1.0 / measured.value if self.unit == "s" else measured.value


DOT = "dot."  # the names of dot instructions' rates begin with this


def team_sizes(cores: int) -> tuple[int, ...]:
    """Numbers of threads: 1, 2, 4, … and all threads."""
    sizes = [1]
    while sizes[-1] * 2 < cores:
        sizes.append(sizes[-1] * 2)
    return tuple(dict.fromkeys((*sizes, cores)))


# In seconds: a cache line moves to another core and back. A shorter time means that the caller computed
# alone, because its workers did not get their cores.
LEAST_REGION_S = 5e-8


def measure(
    target: Target,
    teams: Sequence[int] | None = None,
    brief: bool = False,
    patience: Deadline = NEVER,
    warn: Warn = log.warn,
) -> Values:
    """Clock, peaks, bandwidths and region latencies of this machine, by name, with units.

    teams: numbers of threads. The figures of one core are always measured.
    brief: a short look, for callers without much time. Disturbed samples are not measured again.
    patience: a deadline up to which other processes may time first.
    warn: gets a sentence if other programs used the cores.
    Takes about two seconds for two teams, and up to `probes.BUDGET_S` more if other programs keep the cores
    busy. It does not wait for these programs, but reports them.
    """
    wanted = dict.fromkeys((1, *(teams or (target.num_cores,))))
    with timing_by(patience):
        began = cpu_times()
        probes = [p for threads in wanted for p in rate_probes(target, threads)]
        rounds, budget_s = (BRIEF_ROUNDS, 0.0) if brief else (ROUNDS, BUDGET_S)
        measured = measure_rates([p.stick for p in probes], rounds=rounds, budget_s=budget_s)
        others = others_cores(began, cpu_times())
    found: Values = {}
    for p, m in zip(probes, measured, strict=True):
        # the rate of a team that shares its cores with others says nothing about the machine
        if m.trusted or p.stick.threads == 1:
            found[p.name] = (p.value(m), p.unit)
    runs = sum(len(m.samples) for m in measured)
    found["disturbed"] = (sum(m.disturbed for m in measured) / max(1, runs), "")
    found["others"] = (others, "cores")
    if others > BUSY:
        warn(
            f"this machine is busy: other programs used {others:.1f} cores while it was calibrated; "
            "`autotensor doctor --calibrate` measures it again."
        )
    return _consistent(found)


def rate_probes(target: Target, threads: int) -> list[Probe]:
    """The probes of a team in `measure`: peak, bandwidths, and the clock (one thread) or the region."""
    caches = target.cache_bytes
    end = "" if threads == 1 else f".t{threads}"
    core = ".core" if threads == 1 else end
    arena = _arena(caches[-1])
    out = [Probe(f"flops{core}", "FLOP/s", fma_yardstick(threads, steps=FMA_STEPS))]
    if threads == 1:
        out += [
            Probe(f"{DOT}{dot.name}", "op/s", dot_yardstick(dot, steps=FMA_STEPS)) for dot in whole(target)
        ]
    for level, size in enumerate(caches):
        each = _footprint(level, size, caches, threads)
        part = arena[: threads * each // 4]
        out.append(Probe(f"bandwidth.L{level + 1}{end}", "B/s", reading_yardstick(threads, each, part)))
        if level:  # small kernels begin in L2 and larger ones in L3; nothing that is called begins in L1
            out.append(Probe(f"copying.L{level + 1}{end}", "B/s", copying_yardstick(threads, each, part)))
    far = reading_yardstick(threads, max(1 << 20, WINDOW // threads), arena)
    out.append(Probe(f"bandwidth.memory{core}", "B/s", far))
    if threads == 1:
        out.append(Probe("clock", "Hz", clock_yardstick()))
    else:
        out.append(Probe(f"region{end}", "s", region_yardstick(threads)))
    return out


def _footprint(level: int, size: int, caches: Sequence[int], threads: int) -> int:
    """Bytes per thread of an array that is in this cache and not in the one before. The last cache is shared
    by all threads, and may be shared with other programs."""
    if level == 0 or level < len(caches) - 1:
        return size // 2
    before = caches[level - 1]
    return min(4 * before, max(2 * before, size // (2 * threads)))


def _arena(last_cache: int) -> Array:
    """Memory that has been written: pages that were never written all share one page of zeros."""
    free = psutil.virtual_memory().available // 4
    size = max(min(BEYOND * last_cache, MOST_BYTES, free), 4 * WINDOW)
    arena = aligned_empty((size // 4,), "float32")
    arena.fill(1.0)
    return arena


def _consistent(found: Values) -> Values:
    """The values without errors that come from a busy machine: a team is never slower than one thread, and a
    team's region takes some time."""
    out = {n: v for n, v in found.items() if not n.startswith("region.") or v[0] >= LEAST_REGION_S}
    for name, (value, unit) in out.items():
        base, _, last = name.rpartition(".")
        if last.startswith("t") and last[1:].isdigit() and unit != "s":
            alone = found.get(base) or found.get(f"{base}.core")
            out[name] = (max(value, alone[0]), unit) if alone else (value, unit)
    return out


# -- from and to the log ------------------------------------------------------------------------------------


def calibrated(
    store: TrialStore | None,
    target: Target,
    *,
    again: bool = False,
    teams: Sequence[int] | None = None,
    kernels: bool = False,
    brief: bool = False,
    patience: Deadline = NEVER,
    listener: Said = lambda done, all_: None,
    warn: Warn = log.warn,
) -> Rates:
    """Rates for the target's number of threads, from the log. If they are missing, they are measured first.

    again: measure everything again. Disturbed figures are measured again at a later call. The new ones are
    kept if they are less disturbed.
    teams: further numbers of threads.
    kernels: also measure the micro-kernels, which takes about ten seconds once. Without them, the prior uses
    its formula.
    brief: missing rates come from a short look, and are not kept. If other programs use half of the cores,
    the short look measures one core only: teams would wait long, and their rates would not be trusted.
    patience: a deadline up to which other processes on the machine may time first.
    warn: as in `measure`.
    """
    wanted = tuple(dict.fromkeys((*(teams or ()), target.num_cores)))
    values, missing, open_ = _known(store, target, wanted)
    if not (again or missing or (kernels and open_)):
        return rates_of(values, target)  # nothing must be measured, so no lock is needed
    with timing_by(patience):
        # the last holder of the lock may have measured the same
        values, missing, open_ = _known(store, target, wanted)
        if again or missing:
            crowded = brief and busy_cores() > CROWDED * usable_cores()
            found = measure(target, (1,) if crowded else wanted, brief, patience, warn)
            values |= {n: v for n, (v, _) in found.items()} if brief else _remember(store, found)
        if kernels and (again or open_):
            values |= _remember(store, measure_kernels(target, listener))
    return rates_of(values, target)


def _known(
    store: TrialStore | None, target: Target, teams: Sequence[int]
) -> tuple[dict[str, float], bool, bool]:
    """The log's values by name; whether rates are missing; and whether micro-kernels are missing."""
    known = {} if store is None else dict(store.calibration(host_machine().fingerprint))
    values = {name: c.value for name, c in known.items()}
    return values, _missing(known, teams), not kernels_of(values, target).steps


def _missing(known: Mapping[str, Calibration], teams: Sequence[int]) -> bool:
    """Whether figures must be measured. They must if one core's are missing. A team's figures are not tried
    again and again."""
    if any(n not in known for n in ("clock", "flops.core", "bandwidth.memory.core")):
        return True
    names = [f"{n}.t{t}" for t in teams if t > 1 for n in ("flops", "bandwidth.memory", "region")]
    last = max(known[n].measured for n in ("clock", "tried") if n in known)
    disturbed = known["disturbed"].value if "disturbed" in known else 0.0
    just_tried = disturbed > 0.0 and (now() - last).total_seconds() < RETRY_S
    return (disturbed > SPOILT or any(n not in known for n in names)) and not just_tried


def measure_kernels(target: Target, listener: Said = lambda done, all_: None) -> Values:
    """The times of the micro-kernels' steps, by name."""
    with timing_by(NEVER):
        found = measure_microkernels(target, listener=listener)
    return {
        f"kernel.v{target.vector_bytes}.{rows}x{vectors}.{level}": (step, "FMA")
        for (rows, vectors), steps in found.steps.items()
        for level, step in zip(LEVELS, steps, strict=False)
    }


def kernels_of(values: Mapping[str, float], target: Target) -> MicroKernels:
    """The measured micro-kernels for the target's vector width."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    start = f"kernel.v{target.vector_bytes}."
    for name, value in values.items():
        if name.startswith(start):
            shape, _, level = name.removeprefix(start).partition(".")
            rows, _, vectors = shape.partition("x")
            found.setdefault((int(rows), int(vectors)), {})[level] = value
    steps = {t: tuple(s[n] for n in LEVELS if n in s) for t, s in found.items() if LEVELS[0] in s}
    return MicroKernels(target.lanes(32), steps)


def rates_of(values: Mapping[str, float], target: Target) -> Rates:
    """Rates for the target's threads, from measured values by name."""
    threads = target.num_cores
    core = values["bandwidth.memory.core"]
    levels, team = [core], [max(core, values.get(f"bandwidth.memory.t{threads}", core))]
    for n in range(len(target.cache_bytes), 1, -1):
        if (name := f"bandwidth.L{n}") in values:
            levels.insert(0, max(values[name], levels[0]))
            together = values.get(f"{name}.t{threads}", values[name] * threads)
            team.insert(0, max(together, levels[0], team[0]))
    per_cycle = values["flops.core"] / values["clock"] / (2 * target.lanes(32)) if "clock" in values else None
    rates = Rates(
        values["flops.core"],
        tuple(levels),
        team[-1],
        kernels=kernels_of(values, target),
        multiplies=per_cycle,
        dots={n.removeprefix(DOT): v for n, v in values.items() if n.startswith(DOT)},
    )
    if threads == 1:
        return replace(rates, team_flops=rates.flops, team_bandwidths=tuple(levels), region_s=0.0)
    return replace(
        rates,
        team_flops=values.get(f"flops.t{threads}"),
        team_bandwidths=tuple(team),
        region_s=values.get(f"region.t{threads}", REGION_S),
    )


def _remember(store: TrialStore | None, measured: Values) -> dict[str, float]:
    """Writes the values to the log, if there is one and its values are not better. Returns plain values."""
    values = {name: value for name, (value, _) in measured.items()}
    if store is None:
        return values
    know_machine(store)
    machine = host_machine().fingerprint
    rates = [Calibration(name, value, unit) for name, (value, unit) in measured.items()]
    before = store.calibration(machine)
    disturbed = values.get("disturbed", 0.0)
    if "disturbed" in before and disturbed > SPOILT and before["disturbed"].value < disturbed:
        rates = [Calibration("tried", disturbed)] + [r for r in rates if r.name not in before]
        values = {name: before[name].value if name in before else value for name, value in values.items()}
    store.put_calibration(machine, rates)
    return values


NEEDED_RATES = ("flops.core", "bandwidth.memory.core")


def known_rates(store: TrialStore | None, machine: str, target: Target) -> Rates:
    """Rates of a machine from the log; guessed rates if the log has none."""
    values = {} if store is None else {n: c.value for n, c in store.calibration(machine).items()}
    if all(name in values for name in NEEDED_RATES):
        return rates_of(values, target)
    return Rates.guess(target)
