"""Makes a table: tunes the rows if requested, then measures every row in several sets of processes, and
writes the results.

set 0: row, row, row …    set 1: row, row, row …    so a run that is stopped early has every row once
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from peers import PACKAGES, RUNTIMES, Spec, cache_folder
from peers.environments import python_of

from contests.contest import Contestant, Field, Timing, ask, child_of, why_not
from contests.published_table import Table
from contests.results import Results

# Rough seconds of setting up, used before anything was measured: (operators, models)
SETUP_S = {
    "ours": (1.5, 15.0), "backend": (5.0, 20.0), "torch": (0.3, 3.0),
    "inductor": (12.0, 60.0), "onnxruntime": (0.3, 2.0),
    "openvino": (0.3, 2.0), "numpy": (0.2, 0.0), "tvm": (0.1, 1.0), "zentorch": (10.0, 40.0),
    "xla": (3.0, 15.0), "iree": (5.0, 30.0), "tinygrad": (3.0, 40.0), "ncnn": (1.0, 8.0),
    "reference": (1.0, 0.0), "jax": (1.0, 0.0), "numba": (1.0, 0.0),
    "opt_einsum": (0.3, 0.0), "halide-mullapudi2016": (2.0, 0.0), "halide-adams2019": (8.0, 0.0),
    "halide-li2018": (2.0, 0.0),
    "mnn": (1.0, 8.0), "litert": (5.0, 15.0), "executorch": (5.0, 25.0),
}  # fmt: skip
TRIAL_S = 0.25  # seconds of one trial of tuning
TUNING_SETUP_S = 15.0  # for a row with a time limit: seconds for its graph, before the limit starts
START_S = 2.5  # seconds to start a process
# contestant → the module that it imports, if that has another name
MODULES = {"inductor": "torch", "backend": "torch", "ours": "autotensor"}


@dataclass(frozen=True)
class Row:
    """A job of the table. `prepare` is called once before the measurement and returns the reason why the row
    cannot be measured now, or "". `facts` is called after the measurement."""

    name: str
    facts: Callable[[], Mapping[str, Any]]
    prepare: Callable[[], str] = lambda: ""


@dataclass(frozen=True)
class Tuning:
    """The tuning of every row before it is measured: a number of trials, or of seconds."""

    trials: int = 0
    limit_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self.trials) or self.limit_s is not None

    @property
    def asked(self) -> dict[str, Any]:
        """The request to the process that tunes."""
        return {"trials": self.trials} if self.limit_s is None else {"trials": 0, "limit_s": self.limit_s}

    @property
    def seconds(self) -> float:
        """About the most seconds that it takes."""
        return self.trials * TRIAL_S if self.limit_s is None else self.limit_s + TUNING_SETUP_S

    @property
    def timeout_s(self) -> float:
        return 300.0 + (5.0 * self.trials if self.limit_s is None else 1.5 * self.limit_s)

    def is_done(self, known: Mapping[str, Any]) -> bool:
        """Whether a row with these recorded facts already had this much tuning."""
        if self.limit_s is None:
            return "skip" in known or known.get("asked", 0) >= self.trials
        return "skip" in known or known.get("asked_s", 0.0) >= self.limit_s


@dataclass(frozen=True)
class Plan:
    """The table to make."""

    suite: str  # "operators", "models", "scaling" or "search"
    rows: Sequence[Row]
    contestants: Sequence[Contestant]
    timing: Timing
    processes: int
    retry: bool = False  # measure units again in which a contestant failed
    # whether every row has its own processes, so that their memory and caches belong to this row
    apart: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.contestants)

    def unit_seconds(self) -> float:
        """A guess of the seconds for one row in one set of processes."""
        column = self.suite not in ("operators", "search")
        setup = sum(SETUP_S[c.spec.kind][column] for c in self.contestants)
        return setup + self.timing.seconds(len(self.contestants))


FILES = ("onnxruntime", "openvino")  # libraries in the same environment as torch


def peers(threads: int, cache: str, *, numpy: bool = False, runtimes: bool = False) -> list[Contestant]:
    """All contestants except autotensor's; `runtimes`: also the libraries that have their own environments.
    torch must be installed, because all outputs are compared with its output."""
    compiled = {"TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor")}
    found = [Contestant("torch", Spec("torch", threads))]
    found.append(Contestant("torch-cl", Spec("torch", threads, channels_last=True)))
    found.append(Contestant("inductor", Spec("inductor", threads, environment=compiled)))
    found.append(
        Contestant("inductor-cl", Spec("inductor", threads, channels_last=True, environment=compiled))
    )
    rest = [kind for kind in RUNTIMES if kind not in ("torch", "inductor")] if runtimes else FILES
    found += [Contestant(kind, Spec(kind, threads, environment=compiled)) for kind in rest]
    return [*found, Contestant("numpy", Spec("numpy", threads))] if numpy else found


def backend(threads: int, log: str, tuned: bool) -> list[Contestant]:
    """autotensor as the backend of torch.compile, with default numerics: untuned, and with the log."""
    found = [Contestant("backend", Spec("backend", threads, numerics="fast"), mine=True)]
    if tuned:
        spec = Spec("backend", threads, numerics="fast", log=log)
        found.append(Contestant("backend-tuned", spec, mine=True))
    return found


def ours(threads: int, log: str, tuned: bool) -> list[Contestant]:
    """autotensor with default schedules and tuned, each strict and with fast numerics (Winograd)."""
    found = [
        Contestant("default", Spec("ours", threads), mine=True),
        Contestant("default-fast", Spec("ours", threads, numerics="fast"), mine=True),
    ]
    if tuned:
        found += [
            Contestant("tuned", Spec("ours", threads, log=log), mine=True),
            Contestant("tuned-fast", Spec("ours", threads, numerics="fast", log=log), mine=True),
        ]
    return found


def installed(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The contestants whose package is installed. Prints the missing ones. Raises SystemExit without
    torch."""
    kept, asked = [], dict[str, str]()
    for c in contestants:
        kind = c.spec.kind
        if kind not in asked:
            asked[kind] = why_missing(kind)
        if asked[kind]:
            print(f"{c.name} does not take part: {asked[kind]}")
        else:
            kept.append(c)
    if not any(c.name == "torch" for c in kept):
        raise SystemExit("torch is needed: every output is compared with its. pip install torch")
    return kept


def why_missing(kind: str) -> str:
    """The reason why a library cannot take part; "" if it can."""
    package, python = PACKAGES.get(kind, kind), python_of(kind)
    if not Path(python).exists():
        return f"python benchmarks/peers/environments.py installs {package}."
    found = python != sys.executable or importlib.util.find_spec(MODULES.get(kind, kind))
    return "" if found else f"{package} is not installed."


# -- tuning ----------------------------------------------------------------------------------------------


def tune_all(plan: Plan, results: Results, tuning: Tuning, seed: int, deadline: float | None) -> None:
    """Tunes every row for every tuned contestant, each in its own process, and records the outcome."""
    for c in (c for c in plan.contestants if c.spec.log):
        for row in plan.rows:
            key = f"{row.name} {c.name}"
            done = results.data["tuning"].get(key, {})
            if tuning.is_done(done):
                continue
            if deadline is not None and time.monotonic() > deadline:
                print(f"The budget is spent; {key} and what follows is not tuned.")
                return
            with child_of(c.spec) as child:
                asked = {"do": "tune", "suite": plan.suite, "job": row.name, "seed": seed, **tuning.asked}
                answer = ask(child, asked, tuning.timeout_s)
            kept = {"asked": tuning.trials} if tuning.limit_s is None else {"asked_s": tuning.limit_s}
            results.data["tuning"][key] = {**answer, **kept}
            results.write()
            print(f"tuned {key:28} {_tuned(answer)}", flush=True)


def _tuned(answer: Mapping[str, Any]) -> str:
    if reason := why_not(dict(answer)):
        return reason
    before, after = (1e6 * (answer[k] or float("nan")) for k in ("default_s", "best_s"))
    return f"{answer['trials']} trials in {answer['elapsed_s']:.0f} s: {before:.1f} us, then {after:.1f} us"


# -- measuring -------------------------------------------------------------------------------------------


def measure_all(plan: Plan, results: Results, deadline: float | None) -> bool:
    """Measures every unit that the file lacks. Returns whether the file has all units in the end."""
    todo = units_left(plan, results)
    guess, left, prepared = plan.unit_seconds(), len(todo), dict[str, str]()
    for n, rows in sets(plan, todo):
        timing = replace(plan.timing, seed=plan.timing.seed + n)
        with (
            tempfile.TemporaryDirectory() as folder,
            Field(plan.contestants, Path(folder), timing) as field,
        ):
            for row in rows:
                if deadline is not None and time.monotonic() + guess > deadline:
                    print(f"The budget is spent; {left} of the units are left. The same command continues.")
                    return False
                began = time.monotonic()
                if row.name not in prepared:
                    prepared[row.name] = row.prepare()
                if reason := prepared[row.name]:
                    print(f"{row.name} is left out: {reason}", flush=True)
                    continue
                cells = field.unit(plan.suite, row.name)
                results.put(row.name, n, row.facts(), cells)
                left -= 1
                guess = 0.8 * guess + 0.2 * (time.monotonic() - began)
                print(_line(row.name, n, plan.processes, cells), flush=True)
                if left:
                    print(f"    {left} left, about {duration(left * guess)}", flush=True)
    return not left


def sets(plan: Plan, units: Sequence[tuple[int, Row]]) -> list[tuple[int, list[Row]]]:
    """The units by set of processes: the index of the set, and its rows."""
    if plan.apart:
        return [(n, [row]) for n, row in units]
    return [(n, [row for _, row in mine]) for n, mine in groupby(units, key=lambda unit: unit[0])]


def units_left(plan: Plan, results: Results) -> list[tuple[int, Row]]:
    """The units that the file lacks, in the order in which they are measured."""
    return [
        (n, row)
        for n in range(plan.processes)
        for row in plan.rows
        if not results.has(row.name, n, plan.names, whole=plan.retry)
    ]


def _line(row: str, unit: int, units: int, cells: Mapping[str, Mapping[str, Any]]) -> str:
    parts, notes = [], []
    for name, cell in cells.items():
        if "median" in cell:
            parts.append(f"{name} {1e6 * cell['median']:.4g}")
        elif "skip" not in cell:
            notes.append(f"\n    {name}: {why_not(dict(cell))}")
    return f"{row} ({unit + 1}/{units}), us: {', '.join(parts)}{''.join(notes)}"


def duration(seconds: float) -> str:
    """
    >>> duration(5400)
    '1 h 30 min'
    """
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(1, minutes)} min"


# -- the command line ------------------------------------------------------------------------------------


def arguments(parser: argparse.ArgumentParser, json: str, log: str, rounds: int, block_s: float) -> None:
    """The options that all tables share."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = Path(__file__).parents[1] / "results"
    add = parser.add_argument
    add("--only", default="", metavar="NAME,NAME", help="rows of these names or groups only")
    add("--contestants", default="", metavar="NAME,NAME", help="these columns only (torch always runs)")
    add("--processes", type=int, default=1, help="sets of processes; 5 give useful bounds")
    add("--rounds", type=int, default=rounds, help="blocks of each contestant in one set of processes")
    add("--block", type=float, default=block_s, metavar="SECONDS", help="length of a block")
    add("--tries", type=int, default=3, help="times a disturbed block is taken; 1 on a busy machine")
    add("--threads", type=int, default=cores)
    add("--trials", type=int, default=0, help="tune every task first, with so many trials; 0 does not tune")
    add("--log", default=os.path.join(cache_folder(), log), help="tuning log (default: %(default)s)")
    add("--seed", type=int, default=0)
    add("--budget", type=float, metavar="SECONDS", help="stop before a row that would end later")
    add("--json", type=Path, default=here / json, help="results; what they hold is not measured again")
    add("--retry", action="store_true", help="measure units again in which a contestant failed")
    add("--fresh", action="store_true", help="forget what the file holds")
    add("--report", action="store_true", help="only write table and picture of what the file holds")


def chosen(contestants: Sequence[Contestant], text: str) -> list[Contestant]:
    """The contestants that --contestants names, and torch. Raises SystemExit for a name that does not
    exist."""
    names = [n for n in text.split(",") if n]
    if wrong := [n for n in names if n not in {c.name for c in contestants}]:
        known = ", ".join(c.name for c in contestants)
        raise SystemExit(f"no contestant is called {wrong[0]!r} (tuned ones need --trials). Known: {known}.")
    return [c for c in contestants if not names or c.name in names or c.name == "torch"]


def make(
    plan: Plan,
    options: argparse.Namespace,
    title: str,
    write: Callable[[Results], None],
    limit_s: float | None = None,
) -> int:
    """Tunes, measures and writes the reports. Exit status: 1 if a row is withheld, 3 if units are left.

    limit_s: every row is tuned for so many seconds, and measured before the next row is tuned. So a run that
    is stopped early has complete rows.
    """
    tuning = Tuning(options.trials, limit_s)
    try:
        results = Results.open(options.json, options.threads, title, fresh=options.fresh)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    complete = True
    if not options.report:
        deadline = None if options.budget is None else time.monotonic() + options.budget
        _announce(plan, results, options, tuning)
        rows = [plan] if limit_s is None else [replace(plan, rows=[row]) for row in plan.rows]
        complete = False
        with suppress(KeyboardInterrupt):
            done = [_made(part, results, tuning, options.seed, deadline) for part in rows]
            complete = all(done)
    if results.rows:
        write(results)
    if Table.of(results).withheld:
        return 1
    return 0 if complete else 3


def _made(plan: Plan, results: Results, tuning: Tuning, seed: int, deadline: float | None) -> bool:
    """Tunes and measures these rows. Returns whether the file then has all their units."""
    if tuning.limit_s is not None and deadline is not None:
        left = _untuned(plan, results, tuning) * tuning.seconds
        left += len(units_left(plan, results)) * plan.unit_seconds()
        if left and time.monotonic() + left > deadline:
            names = ", ".join(row.name for row in plan.rows)
            print(f"The budget has no room for {names}. The same command continues.")
            return False
    if tuning:
        tune_all(plan, results, tuning, seed, deadline)
    return measure_all(plan, results, deadline)


def _untuned(plan: Plan, results: Results, tuning: Tuning) -> int:
    """The number of rows and contestants that are still to be tuned."""
    keys = (f"{r.name} {c.name}" for c in plan.contestants if c.spec.log for r in plan.rows)
    return sum(not tuning.is_done(results.data["tuning"].get(key, {})) for key in keys)


def _announce(plan: Plan, results: Results, options: argparse.Namespace, tuning: Tuning) -> None:
    left = len(units_left(plan, results))
    seconds = left * plan.unit_seconds() + START_S * len(plan.contestants) * plan.processes * bool(left)
    untuned = _untuned(plan, results, tuning)
    print(
        f"{len(plan.rows)} rows x {plan.processes} sets of {len(plan.contestants)} processes, "
        f"{options.threads} threads: {left} units to measure, about {duration(seconds)}; {untuned} tasks to "
        f"tune, at most about {duration(untuned * tuning.seconds)}. Results: {options.json}",
        flush=True,
    )
