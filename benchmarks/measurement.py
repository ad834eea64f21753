"""Is the measurer right? Tests with equal kernels, the same kernel again and the whole model, and the cost of
a trial.

    python benchmarks/measurement.py --log LOG [--only aa,repeat,graph,trial] [--models NAME,NAME] [--quick]

aa       every task of the models against itself: how often is a difference found between two copies?
repeat   five kernels, thirty times each in one process: how much do the times vary?
graph    candidates of a tuning log: does the tuner order them in the same way as the linked model? Once with
         weights rotated and activations written (as in tuning), once with everything in the caches. On the
         same samples, racing is replayed and compared with ten samples of each candidate.
trial    seconds per trial in all, and by phase

The sections take about 60, 15, 60 (for each model) and 15 s. With --quick they take a few seconds each, to
see whether they work: six tasks, three repeats, three candidates, sixteen trials, and nothing is kept. Every
section is written to the file when it is done. Sections that are not requested stay unchanged. The machine
should be idle.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from contests.markdown import grid, paragraphs
from contests.report import figure
from contests.results import machine, source_hash
from jobs.in_graph import (
    MOST,
    Agreement,
    Samples,
    agreement,
    by_bounds,
    by_middle,
    candidates,
    in_model,
    measured,
)
from jobs.trial_cost import GOAL_SECONDS, throughput
from replays.race_replay import FIXED, SEEN, fixed, raced, replay

from autotensor.api.models import ModelPlan, plan_model
from autotensor.base.errors import AutotensorError, MeasureError
from autotensor.base.paired_times import Paired
from autotensor.base.target import Target, host
from autotensor.models import MODELS
from autotensor.resolve import LEAST_GAIN, safe_default
from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.search.machine.equal_kernels import AAPair, aa_pair, sample_kernels, told_from, variation
from autotensor.search.machine.probes import cpu_times, others_cores
from autotensor.search.measuring.measure_request import Residency
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.measuring.race_rule import FINAL_SAMPLES
from tuning_db import StoreError, connect

RESULTS = Path(__file__).parent / "results" / "measurement.json"
SECTIONS = ("aa", "repeat", "graph", "trial")
NETWORKS = ("resnet18", "mobilenet_v2", "bert_base")
SHORTEST_S, LONGEST_S = 10e-6, 3000e-6  # limits for the times of kernels in the A/A section
# rounds of the graph section: "graph" for the ways of sampling and for the truth, "hot" for comparison
ROUNDS: Mapping[Residency, int] = MappingProxyType({"graph": 25, "hot": 12})
ORDERS: Mapping[str, Callable[[Paired], int]] = MappingProxyType({"medians": by_middle, "bounds": by_bounds})
ASKED = {
    "claimed": 0.05,
    "variation": 0.03,
    "tau": 0.9,
    "trial_s": GOAL_SECONDS,
    "saved": 3.0,
    "regret": 0.01,
}
Section = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extent:
    """How much each section measures."""

    tasks: int = 1000  # most tasks of the A/A section, and of a model in the graph section
    again: int = 30  # measurements of the same kernel
    candidates: int = MOST  # most candidates of a task in the model
    rounds_in_model: int = 20
    trials: int = 64


WHOLE, QUICK = Extent(), Extent(tasks=6, again=3, candidates=3, rounds_in_model=5, trials=16)


def of_aa(plans: Mapping[str, ModelPlan], measurer: LocalMeasurer, extent: Extent) -> Section:
    """Compares two copies of every task's default schedule, as in a final race."""
    every = {t.workload.key: t.workload for plan in plans.values() for t in plan.tasks}
    tasks = dict(islice(every.items(), extent.tasks))
    pairs: list[AAPair] = []
    for n, workload in enumerate(tasks.values()):
        pair = aa_pair(measurer, workload, safe_default(workload, measurer.target))
        if SHORTEST_S <= pair.seconds <= LONGEST_S:
            pairs.append(pair)
        claim = ", CLAIMED" if pair.claimed else ""
        say(f"  {n + 1} of {len(tasks)}: {pair.kernel}, {pair.ratio.middle - 1:+.2%}{claim}")
    if not pairs:
        raise MeasureError(
            "no kernel of these models takes 10 to 3,000 us.", fix="Name others with --models."
        )
    apart = [abs(p.ratio.middle - 1) for p in pairs]
    return {
        "pairs": len(pairs),
        "samples": FINAL_SAMPLES[1],
        "claimed": sum(p.claimed for p in pairs) / len(pairs),
        "within_1_percent": sum(a < 0.01 for a in apart) / len(pairs),
        "median_apart": median(apart),
        "largest_apart": max(apart),
        "told_from": told_from(pairs),
        "rows": [
            {"kernel": p.kernel, "us": p.seconds * 1e6, "ratio": p.ratio.middle,
             "bounds": [p.ratio.lower, p.ratio.upper], "claimed": p.claimed}
            for p in pairs
        ],
    }  # fmt: skip


def of_repeat(measurer: LocalMeasurer, extent: Extent) -> Section:
    """Measures the same artifacts again and again, in turns: the medians, and their ratios to the reference's
    median."""
    kernels = sample_kernels()
    found: dict[str, list[tuple[float, float]]] = {w.name: [] for w in kernels}
    traces = {w.name: safe_default(w, measurer.target) for w in kernels}
    for n in range(extent.again):
        for w in kernels:
            (result,) = measurer.measure(w, [traces[w.name]])
            if not result.ok:
                raise MeasureError(f"{w.name} cannot be measured: {result.error}")
            seconds = median(result.seconds)
            beside = median(s / r for s, r in zip(result.seconds, result.reference_seconds, strict=True))
            found[w.name].append((seconds, beside))
        say(f"  {n + 1} of {extent.again}")
    rows = [
        {"kernel": name, "us": median(s for s, _ in values) * 1e6,
         "variation": variation([s for s, _ in values]), "normalised": variation([b for _, b in values])}
        for name, values in found.items()
    ]  # fmt: skip
    return {
        "times": extent.again,
        "variation": fmean(r["variation"] for r in rows),
        "normalised": fmean(r["normalised"] for r in rows),
        "worst": max(r["variation"] for r in rows),
        "worst_normalised": max(r["normalised"] for r in rows),
        "rows": rows,
    }


def of_graph(plans: Mapping[str, ModelPlan], log: str, target: Target, extent: Extent) -> Section:
    """The agreement with the model, and replays of races, task by task."""
    rows: list[Section] = []
    for name, plan in plans.items():
        with connect(log, readonly=True) as store:
            found = (
                (t.workload.key, candidates(store, t.workload, plan, extent.candidates)) for t in plan.tasks
            )
            sets = dict(islice((f for f in found if len(f[1]) > 2), extent.tasks))
        if not sets:
            say(f"  {name}: the log has no trials of it")
            continue
        say(f"  {name}: {len(sets)} tasks, {sum(map(len, sets.values()))} candidates")
        tasks = [t for t in plan.tasks if t.workload.key in sets]
        here: dict[Residency, dict[str, Samples]] = {}
        for residency, rounds in ROUNDS.items():
            options = MeasureOptions(residency=residency, racing=False)
            with LocalMeasurer(target, options, numerics=algorithm_tolerance) as measurer:
                here[residency] = {
                    t.workload.key: measured(measurer, t.workload, sets[t.workload.key], rounds)
                    for t in tasks
                }
        there = in_model(plan, sets, extent.rounds_in_model, say)
        for t in tasks:
            tables = {residency: found[t.workload.key] for residency, found in here.items()}
            rows.append(_row(name, t.name, tables, there[t.workload.key]))
    return _summary(rows)


def _row(model: str, task: str, here: Mapping[Residency, Samples], there: Mapping[int, Paired]) -> Section:
    row: Section = {"model": model, "task": task, "candidates": len(here["graph"])}
    row["us"] = min(map(median, here["graph"].values())) * 1e6
    for residency, table in here.items():
        row[residency] = {by: astuple(agreement(table, there, faster)) for by, faster in ORDERS.items()}
    table = list(here["graph"].values())
    ways = {
        "fixed": fixed,
        "search": partial(raced, wanted=MeasureOptions().repeat),
        "final": partial(raced, wanted=FINAL_SAMPLES[1], sure=True),
    }
    for way, rule in ways.items():
        done = replay(table, rule, MeasureOptions().min_seconds)
        row[way] = {"spent_s": done.spent_s, "regret": done.regret, "samples": done.samples}
    return row


def _summary(rows: list[Section]) -> Section:
    def tau(residency: Residency, by: str, model: str) -> float | None:
        mine = (Agreement(*r[residency][by]) for r in rows if model in ("", r["model"]))
        return sum(mine, start=Agreement()).tau

    found: Section = {"rows": rows, "tau": {}, "ways": {}, "tasks": len(rows)}
    for model in ("", *dict.fromkeys(r["model"] for r in rows)):
        found["tau"][model or "all"] = {r: {by: tau(r, by, model) for by in ORDERS} for r in ROUNDS}
    for way in ("fixed", "search", "final") if rows else ():
        regrets = sorted(r[way]["regret"] for r in rows)
        found["ways"][way] = {
            "spent_s": sum(r[way]["spent_s"] for r in rows),
            "saved": sum(r["fixed"]["spent_s"] for r in rows) / sum(r[way]["spent_s"] for r in rows),
            "mean_regret": fmean(regrets),
            "p95_regret": regrets[int(0.95 * (len(regrets) - 1))],
        }
    return found


# -- text --------------------------------------------------------------------------------------------------


def page(data: Mapping[str, Any]) -> Iterator[str]:
    m = data["machine"]
    yield from paragraphs("# Does the measurer tell the truth?")
    yield f"{m['cpu']}, {m['cores']} cores, {data['threads']} threads. `python benchmarks/measurement.py`."
    for name in SECTIONS:
        if section := data["sections"].get(name):
            yield ""
            yield from PAGES[name](section)
            yield (
                f"{section['when'][:10]}, in {section['wall_s']:.0f} s, source {section['source']}; "
                f"other programs used {section['others']:.2f} cores meanwhile."
            )


def _aa_page(s: Section) -> Iterable[str]:
    yield from paragraphs("## A/A: equal kernels")
    yield from paragraphs(
        f"{s['pairs']} kernels of 10 to 3,000 us, each raced against its copy with {s['samples']} samples. "
        f"A race claims a difference from {LEAST_GAIN:.1%} on if its bounds say so."
    )
    yield from grid(
        ("", "measured", "asked"),
        [
            ("pairs of which a difference is claimed", f"{s['claimed']:.1%}", f"≤ {ASKED['claimed']:.0%}"),
            ("pairs that agree within 1 %", f"{s['within_1_percent']:.0%}", ""),
            ("difference, median; largest", f"{s['median_apart']:.2%}; {s['largest_apart']:.1%}", ""),
            ("differences that 95 % of the pairs would have shown", f"from {s['told_from']:.1%} on", ""),
        ],
    )


def _repeat_page(s: Section) -> Iterable[str]:
    yield from paragraphs(f"## The same kernel {s['times']} times in one process")
    rows = [
        (r["kernel"], figure(r["us"]), f"{r['variation']:.1%}", f"{r['normalised']:.1%}") for r in s["rows"]
    ]
    rows.append(
        ("mean", "", f"{s['variation']:.1%}", f"{s['normalised']:.1%} (asked ≤ {ASKED['variation']:.0%})")
    )
    yield from grid(("", "us", "coefficient of variation", "of the time over the reference kernel's"), rows)


def _graph_page(s: Section) -> Iterable[str]:
    yield from paragraphs("## The tuner's timing against the model's")
    yield from paragraphs(
        f"{s['tasks']} tasks, candidates of a tuning log within 3 times the best. Kendall's tau of all pairs "
        "by medians, and tau-b by bounds: pairs that a side's bounds do not tell apart are its ties."
    )
    rows = [(name, *(_tau(t[r][by]) for r in ROUNDS for by in ORDERS)) for name, t in s["tau"].items()]
    tunes = f"as it tunes, by medians (asked ≥ {ASKED['tau']})"
    yield from grid(("", tunes, "by bounds", "everything hot, by medians", "by bounds"), rows)
    yield from paragraphs("## Racing")
    yield from paragraphs(
        f"The same samples, replayed: the first {SEEN} of {ROUNDS['graph']} rounds are seen, the others say "
        f"what was best. Fixed: {FIXED} samples of each. Asked: {ASKED['saved']:.0f} times less at a mean "
        f"regret of {ASKED['regret']:.0%}."
    )
    names = {
        "fixed": f"{FIXED} of each",
        "search": "race, as in a batch of the search",
        "final": "race, as at the end of a run",
    }
    ways = [
        (
            names[w],
            f"{r['spent_s']:.2f}",
            f"{r['saved']:.1f} ×",
            f"{r['mean_regret']:.2%}",
            f"{r['p95_regret']:.1%}",
        )
        for w, r in s["ways"].items()
    ]
    yield from grid(("", "device seconds", "less", "regret, mean", "95th percentile"), ways)


def _trial_page(s: Section) -> Iterable[str]:
    yield from paragraphs("## A trial, all in")
    rows = [(name, f"{s[name] * 1e3:.0f} ms") for name in ("build", "check", "sample", "other")]
    rows.append(
        ("all", f"**{s['seconds_per_trial'] * 1e3:.0f} ms** (asked ≤ {ASKED['trial_s'] * 1e3:.0f} ms)")
    )
    yield from grid((f"{s['trials']} trials of {s['workload']}", "a trial"), rows)


PAGES = {"aa": _aa_page, "repeat": _repeat_page, "graph": _graph_page, "trial": _trial_page}


def _tau(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--models", default=",".join(NETWORKS), help="of the sections aa and graph")
    parser.add_argument("--log", help="a tuning log of these models on this machine, for the section graph")
    parser.add_argument("--quick", action="store_true", help="little of everything: does it work?")
    parser.add_argument("--threads", type=int, default=0, help="of a kernel; 0: all cores")
    parser.add_argument("--json", type=Path, help="default: results/measurement.json; none with --quick")
    asked = parser.parse_args()
    only = asked.only.split(",")
    if unknown := sorted(set(only) - set(SECTIONS)):
        parser.error(f"no section is called {unknown[0]!r}; there are {', '.join(SECTIONS)}.")
    if "graph" in only and not asked.log:
        parser.error("the section graph needs --log FILE; without one: --only aa,repeat,trial.")
    target = host().with_threads(asked.threads) if asked.threads else host()
    path = asked.json or (None if asked.quick else RESULTS)
    data = json.loads(path.read_text()) if path is not None and path.exists() else {}
    known = data.get("sections", {}) if data.get("machine") == machine() else {}
    data = {"machine": machine(), "threads": target.num_cores, "sections": known}
    try:
        for name in filter(only.__contains__, SECTIONS):
            say(name)
            data["sections"][name] = timed(partial(section, name, asked, target))
            if path is not None:
                write(path, data)
    except (AutotensorError, StoreError) as error:
        parser.exit(1, f"{error}\n")
    print("\n".join(page(data)))


def section(name: str, asked: argparse.Namespace, target: Target) -> Section:
    extent = QUICK if asked.quick else WHOLE
    if name == "trial":
        return throughput(target, extent.trials)
    if name == "repeat":
        with LocalMeasurer(target, MeasureOptions(racing=False), numerics=algorithm_tolerance) as measurer:
            return of_repeat(measurer, extent)
    plans = {m: plan_model(MODELS.get(m).build(), target) for m in asked.models.split(",")}
    if name == "graph":
        return of_graph(plans, asked.log, target, extent)
    with LocalMeasurer(target) as measurer:
        return of_aa(plans, measurer, extent)


def timed(work: Callable[[], Section]) -> Section:
    """The section with its date, its duration, and how many cores other programs used."""
    before, began = cpu_times(), time.perf_counter()
    found = work()
    others = others_cores(before, cpu_times())
    made = {"when": time.strftime("%F %T"), "source": source_hash(), "others": others}
    return {**found, **made, "wall_s": time.perf_counter() - began}


def write(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")
    path.with_suffix(".md").write_text("\n".join(page(data)) + "\n")


if __name__ == "__main__":
    main()
