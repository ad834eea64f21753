"""How much each ingredient of the search contributes: searches are replayed on spaces in which every
candidate was measured.

    python benchmarks/search_ablations.py --exhaust [--tasks odd,layer2] [--limit 400] [--budget 600]
    python benchmarks/search_ablations.py [--seeds 10] [--trials 64] [--only full,no-model]

The first command measures candidates, about 0.1 s each, and needs an idle machine. It measures a few hundred
candidates of every task twice: with weights from memory as in a model ("graph"), and with everything in the
caches ("hot"). The second command replays policies on the measured spaces, with several seeds. It runs on any
machine and measures nothing. After a stop it continues. Both commands write after every step. The comparison
of round-robin with the task scheduler is in scheduler.py, which replays whole models.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from contests.markdown import grid, paragraphs
from contests.results import machine, source_hash
from replays import measured_space
from replays.measured_space import FOLDER, Space, spaces
from replays.replay import POLICIES, Run, replay, summarise
from replays.search_tasks import chosen

from autotensor.base.target import host
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.machine.calibration import calibrated
from autotensor.search.measuring.measure_request import MeasureOptions
from autotensor.search.measuring.measurer import LocalMeasurer

SIX = ("odd", "ffn", "expand", "layer2", "dw_56", "softmax")
STEPS = (0, 8, 16, 32)
SHARES = ("prior-only", "no-model", "full", "warm")  # each has one ingredient more than the one before
RESIDENCIES = ("graph", "hot")
HERE = Path(__file__).parent / "results"


def exhaust(names: Sequence[str], folder: Path, limit: int, seed: int, budget_s: float) -> int:
    """Measures the spaces of these tasks until the budget is spent. The exit status is 3 if some are left."""
    target, deadline = host(), time.monotonic() + budget_s
    rates, complete = None, True
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            space = measured_space.load(path)
        else:
            rates = rates or calibrated(None, target, kernels=True)
            space = measured_space.cut(name, target, rates, limit, seed)
        for residency in RESIDENCIES:
            if space.whole(residency):
                continue
            began, before = time.monotonic(), len(space.found.get(residency, {}))
            if began > deadline:
                print(f"The budget is spent; {name} and what follows is left. The same command continues.")
                return 3
            options = MeasureOptions(residency=residency)  # type: ignore[arg-type]
            with LocalMeasurer(target, options, numerics=algorithm_tolerance) as measurer:
                done = measured_space.measure(
                    space,
                    measurer,
                    residency,
                    deadline=deadline,
                    keep=partial(measured_space.save, space, path),
                )
            complete = complete and done
            print(_measured(space, residency, before, time.monotonic() - began), flush=True)
    return 0 if complete else 3


def _measured(space: Space, residency: str, before: int, seconds: float) -> str:
    found = space.found[residency]
    words = [v for v in found.values() if isinstance(v, str)]
    fast, default = space.best(residency), found[space.default.trace.hash]
    assert isinstance(default, float)
    return (
        f"{space.name} ({residency}): {len(found)} of {len(space.candidates)} candidates, "
        f"{len(found) - before} now in {seconds:.0f} s; {words.count('rejected')} rejected, "
        f"{words.count('failed')} failed; default {1e6 * default:.1f} us, best {1e6 * fast:.1f} us"
    )


# -- replaying -----------------------------------------------------------------------------------------------


def run_all(
    found: Sequence[Space], names: Sequence[str], seeds: int, trials: int, path: Path, budget_s: float
) -> bool:
    """Replays the runs that the file lacks. Returns whether the file has all runs in the end."""
    data = _kept(path, trials, found)
    deadline = time.monotonic() + budget_s
    for seed in range(seeds):
        for space in found:
            for name in names:
                key = f"{space.name}/{name}/{seed}"
                if key in data["runs"] or (name == "hot-only" and not space.whole("hot")):
                    continue
                if time.monotonic() > deadline:
                    print("The budget is spent. The same command continues.")
                    return False
                began = time.monotonic()
                run = replay(space, name, seed, trials, [s for s in found if s is not space])
                data["runs"][key] = asdict(run)
                _write(path, data)
                print(
                    f"{key}: {run.share(0):.1%} at once, {run.share(8):.1%} after 8 trials, within 5 % after "
                    f"{run.trials_to(0.05)} trials; {time.monotonic() - began:.1f} s",
                    flush=True,
                )
    return True


def _kept(path: Path, trials: int, found: Sequence[Space]) -> dict[str, Any]:
    """The file's runs if they have this source, these spaces and this length; else no runs."""
    stamp = {"source": source_hash(), "trials": trials, "spaces": {s.name: len(s.candidates) for s in found}}
    data = json.loads(path.read_text()) if path.exists() else {}
    same = all(data.get(k) == v for k, v in stamp.items())
    return {"machine": machine(), **stamp, "runs": data["runs"] if same else {}}


def _write(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(scratch, path)


def runs_of(data: Mapping[str, Any]) -> list[Run]:
    return [Run(**{**r, "curve": tuple(r["curve"])}) for r in data["runs"].values()]


# -- the page ------------------------------------------------------------------------------------------------


def page(data: Mapping[str, Any]) -> Iterable[str]:
    """The tables as Markdown."""
    runs, m = runs_of(data), data["machine"]
    names = [n for n in POLICIES if any(r.policy == n for r in runs)]
    tasks = list(dict.fromkeys(r.space for r in runs))
    seeds = len({r.seed for r in runs})
    yield from paragraphs(
        "# What each ingredient of the search is worth",
        f"Replayed on {len(tasks)} spaces that were measured whole ({_sizes(data)} candidates), {seeds} "
        f"seeds, {data['trials']} trials each; {m['cpu']}, {m['cores']} cores. Shares are of the speed "
        "of the space's best, median and 10th percentile over spaces and seeds; trials are median and 90th "
        "percentile. The spaces are cut from the tasks' own by chance, so chance does better in them than "
        "outside.",
    )
    rows = []
    for name in names:
        s = summarise([r for r in runs if r.policy == name], STEPS)
        shares = [f"{100 * a:.1f} / {100 * b:.1f} %" for a, b in s.shares.values()]
        rows.append((name, POLICIES[name].about, *shares, _pair(s.to_five), _pair(s.to_one)))
    yield from grid(("policy", "", *map(_after, STEPS), "trials to 5 %", "to 1 %"), rows)
    yield from paragraphs("## Trials to within 5 %, median over seeds")
    lines = []
    for task in tasks:
        mine = [r for r in runs if r.space == task]
        cells = [_count(summarise(p, ()).to_five[0]) if (p := _of(mine, n)) else "–" for n in names]
        lines.append((task, f"{100 * mine[0].share(0):.1f} %", *cells))
    yield from grid(("space", "first guess", *names), lines)
    yield from model_share(runs)


def model_share(runs: Sequence[Run]) -> Iterable[str]:
    """The contribution of learning: for each stage, the geometric mean of how much slower than the best it
    is."""
    names = [n for n in SHARES if any(r.policy == n for r in runs)]
    yield from paragraphs(
        "## XGBoost's own share",
        "How much slower than the space's best (geometric mean over spaces and seeds).",
    )
    rows = [
        (POLICIES[name].about, *(f"{100 * slower(_of(runs, name), n):.2f} %" for n in STEPS[1:]))
        for name in names
    ]
    yield from grid(("", *map(_after, STEPS[1:])), rows)


def slower(runs: Sequence[Run], trials: int) -> float:
    """The geometric mean of the time divided by the best time, minus 1. Infinite if a run found nothing."""
    shares = [r.share(trials) for r in runs]
    return exp(-fmean(log(s) for s in shares)) - 1.0 if shares and min(shares) > 0 else math.inf


def _of(runs: Sequence[Run], policy: str) -> list[Run]:
    return [r for r in runs if r.policy == policy]


def _sizes(data: Mapping[str, Any]) -> str:
    sizes = sorted(data["spaces"].values())
    return f"{sizes[0]} to {sizes[-1]}" if sizes else "no"


def _after(trials: int) -> str:
    return f"after {trials}" if trials else "first guess"


def _pair(values: tuple[float, float]) -> str:
    return f"{_count(values[0])} / {_count(values[1])}"


def _count(value: float) -> str:
    return "more" if math.isinf(value) else f"{value:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--exhaust", action="store_true", help="measure spaces instead of replaying")
    add(
        "--tasks",
        default="",
        metavar="NAME,NAME",
        help=f"default: {','.join(SIX)}; replay: all measured ones",
    )
    add("--limit", type=int, default=400, help="candidates of a space")
    add("--only", default="", metavar="POLICY,POLICY", help=f"of {', '.join(POLICIES)}")
    add("--seeds", type=int, default=5)
    add("--trials", type=int, default=64, help="of one replayed search")
    add("--seed", type=int, default=0, help="of the cutting")
    add("--budget", type=float, default=math.inf, metavar="SECONDS")
    add("--spaces", type=Path, default=FOLDER, help="folder of the measured spaces")
    add("--json", type=Path, default=HERE / "search_ablations.json")
    add("--report", action="store_true", help="only write the page again")
    options = parser.parse_args()
    wanted = chosen(options.tasks, None) if options.tasks else ()
    if options.exhaust:
        return exhaust(wanted or SIX, options.spaces, options.limit, options.seed, options.budget)
    names = [n for n in options.only.split(",") if n] or list(POLICIES)
    if wrong := [n for n in names if n not in POLICIES]:
        raise SystemExit(f"no policy is called {wrong[0]!r}. Known: {', '.join(POLICIES)}.")
    complete = True
    if not options.report:
        found = spaces(options.spaces, wanted)
        if not found:
            raise SystemExit(f"no space is measured in {options.spaces}; --exhaust measures some.")
        complete = run_all(found, names, options.seeds, options.trials, options.json, options.budget)
    if not options.json.exists():
        if not complete:
            return 3
        raise SystemExit(f"{options.json} does not exist; run without --report first.")
    text = "\n".join(page(json.loads(options.json.read_text())))
    options.json.with_suffix(".md").write_text(text)
    print(text)
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
