"""How well cost models predict networks that they have never seen. The measurements are replayed from a
tuning log.

    python benchmarks/cost_model.py --log tuning.db [--online] [--acquisition] [--json FILE]
    python benchmarks/cost_model.py --log programs.db --folds 5    a log of logs/program_log.py
    python benchmarks/cost_model.py --log programs.db --classes    the same log, by class of program

A network is one run of the tuner (such as `at.tune_model`). All its workloads are held out together, and also
the rows of the same workloads in other runs. With --folds or --classes, many networks are held out at a time.
For each task with at least eight measured candidates, these figures are printed:

    spearman, pairs     predicted against measured order
    recall              share of the fastest 1 % (at least one) among the 16 predicted fastest; for pools of
                        at least 32
    regret              how much slower than the pool's best the best of the first 1, 4, 8, 16 is
    error, inside       median size of the error, and share inside the 90 % interval, after the task's level
                        is subtracted

--online: as in a search, the model is trained on the other networks and a task's first batches, and predicts
the task's other candidates. --acquisition: batches of eight are drawn from the measured candidates of a task,
by expected improvement or only by the mean. It counts the trials until a candidate is within 1 % and 5 % of
the best.

A model has chosen the candidates in a search's log. All of them are promising, so their order is harder to
predict than an order over the whole space. `autotensor tune MODEL --cost-model random` logs pools that no
model chose. The measured order is not certain, either: 22 tasks that two runs of a log had measured (nine
common candidates each, two busy cores, 2026-11) have a rank correlation of 0.63 between the runs. A perfect
model would score about the square root of this, 0.79.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from contests.markdown import grid
from contests.results import machine
from replays.model_rows import TaskRows, load, load_table, save_table
from replays.model_scores import Scores, mean_scores, scores
from replays.model_variants import VARIANTS

from autotensor.search.propose.acquisition import expected_improvement
from autotensor.search.score.boosted.xgb_model import XGBModel
from autotensor.search.score.cost_model import CostModel, Floats, Prediction
from tuning_db import connect

FEWEST = 8  # least measured candidates of a task that is scored
BATCH = 8
BATCHES = (1, 2, 4)  # how many batches of the task itself the model has seen
LONG = 24  # least measured candidates of a task on which policies are replayed
WITHIN = (0.01, 0.05)
FAMILY_SHARE = 3

PartOf = Callable[[str], str]  # network → the part to which it belongs
# prediction, best so far → scores; the least score comes first
Policy = Callable[[Prediction, float], Floats]

POLICIES: Mapping[str, Policy] = {
    "mean": lambda p, best: p.mean,
    "mean × P(valid)": lambda p, best: p.mean - np.log(np.maximum(p.valid, 1e-6)),
    "expected improvement": lambda p, best: -expected_improvement(p, best),
}


@dataclass(frozen=True, slots=True)
class ScoredTask:
    """The scores of one model on one task."""

    model: str
    network: str
    task: str
    trials: int
    batches: int  # batches of the task itself that the model had seen
    scores: Scores


def held_out(tasks: Sequence[TaskRows], part_of: PartOf) -> list[tuple[list[TaskRows], list[TaskRows]]]:
    """For each part of the networks, its tasks, and the tasks of the other parts without its workloads."""
    out = []
    parts = {t.network: part_of(t.network) for t in tasks}
    for part in dict.fromkeys(parts.values()):
        held = [t for t in tasks if parts[t.network] == part]
        keys = {t.group for t in held}
        out.append((held, [t for t in tasks if parts[t.network] != part and t.group not in keys]))
    return out


def part_in(tasks: Sequence[TaskRows], folds: int, classes: bool) -> PartOf:
    """The parts: each network alone, or so many folds, or one part for each class of programs. The class is
    the first word of a network's first task."""
    first = {t.network: t.name for t in reversed(tasks)}
    if classes:
        return lambda network: first[network].split()[0]
    number = {network: n for n, network in enumerate(first)}
    return lambda network: str(number[network] % folds) if folds else network


def taught(make: Callable[[], CostModel], tasks: Sequence[TaskRows]) -> CostModel:
    model = make()
    for t in tasks:
        model.learn(t.features, t.prior, t.seconds, t.group)
    return model


def cold(
    name: str, make: Callable[[], CostModel], tasks: Sequence[TaskRows], part_of: PartOf
) -> list[ScoredTask]:
    """The scores on networks that the model has never seen."""
    found = []
    for held, rest in held_out(tasks, part_of):
        model = taught(make, rest)
        for t in held:
            ok = t.worked
            if ok.sum() >= FEWEST:
                p = model.predict(t.features[ok], t.prior[ok], t.group)
                found.append(ScoredTask(name, t.network, t.name, int(ok.sum()), 0, scores(p, t.seconds[ok])))
    return found


def online(
    name: str, make: Callable[[], CostModel], tasks: Sequence[TaskRows], part_of: PartOf, batches: int
) -> list[ScoredTask]:
    """The scores on a task's other candidates, after its first batches."""
    found = []
    for held, rest in held_out(tasks, part_of):
        for t in held:
            seen = t.rounds < batches
            ok = t.worked & ~seen
            if not seen.any() or ok.sum() < FEWEST:
                continue
            model = taught(make, rest)
            for n in range(batches):
                now = t.rounds == n
                model.learn(t.features[now], t.prior[now], t.seconds[now], t.group)
            p = model.predict(t.features[ok], t.prior[ok], t.group)
            found.append(
                ScoredTask(name, t.network, t.name, int(ok.sum()), batches, scores(p, t.seconds[ok]))
            )
    return found


def trials_to(t: TaskRows, model: CostModel, policy: Policy) -> list[int]:
    """The trials until a candidate is within WITHIN of the pool's best, if a policy draws batches from the
    pool."""
    best, goal = float("inf"), [(1.0 + w) * np.nanmin(t.seconds) for w in WITHIN]
    left, seen = list(range(len(t.seconds))), 0
    found = [0] * len(goal)
    while left and not all(found):
        wanted = policy(model.predict(t.features[left], t.prior[left], t.group), best)
        batch = _diverse([left[int(n)] for n in np.argsort(wanted, kind="stable")], t)
        for n in batch:
            seen += 1
            best = min(best, t.seconds[n]) if t.worked[n] else best
            found = [f or (seen if best <= g else 0) for f, g in zip(found, goal, strict=True)]
        model.learn(t.features[batch], t.prior[batch], t.seconds[batch], t.group)
        left = [n for n in left if n not in batch]
    return found


def _diverse(ranking: Sequence[int], t: TaskRows) -> list[int]:
    """The first candidates of the ranking, at most a third of them from one family. Places that stay free go
    to the next candidates."""
    out: list[int] = []
    for n in ranking:
        same = sum(t.families[m] == t.families[n] for m in out)
        if len(out) < BATCH and same < max(1, BATCH // FAMILY_SHARE):
            out.append(n)
    return (out + [n for n in ranking if n not in out])[:BATCH]


def acquisition(tasks: Sequence[TaskRows], part_of: PartOf) -> dict[str, dict[str, Any]]:
    """The results of policies with autotensor's model, which is trained on the other networks."""
    found: dict[str, list[list[int]]] = {name: [] for name in POLICIES}
    for held, rest in held_out(tasks, part_of):
        before = taught(XGBModel, rest)
        start = before.ensemble() if isinstance(before, XGBModel) else None
        for t in held:
            if t.worked.sum() >= LONG:
                for name, policy in POLICIES.items():
                    found[name].append(trials_to(t, XGBModel(start=start), policy))
    return {
        name: {
            "tasks": len(rows),
            **{
                f"within {w:.0%}": {"mean": float(np.mean(c)), "median": median(c), "worst": max(c)}
                for w, c in zip(WITHIN, zip(*rows, strict=True), strict=True)
            },
        }
        for name, rows in found.items()
        if rows
    }


def speed(tasks: Sequence[TaskRows]) -> dict[str, float]:
    """The CPU seconds of a fit to all rows, and the candidates that are predicted per second."""
    model = taught(XGBModel, tasks)
    probe = max(tasks, key=lambda t: len(t.seconds))
    t0 = time.process_time()
    model.predict(probe.features, probe.prior, probe.group)
    t1 = time.process_time()
    times = -(-1024 // len(probe.seconds))
    x, prior = np.tile(probe.features, (times, 1)), np.tile(probe.prior, times)
    t2 = time.process_time()
    model.predict(x, prior, probe.group)
    t3 = time.process_time()
    return {
        "rows": float(sum(len(t.seconds) for t in tasks)),
        "refit_s": t1 - t0,
        "candidates_per_s": len(prior) / (t3 - t2),
    }


def table(rows: Sequence[ScoredTask]) -> str:
    """Markdown: one line per model and number of batches seen, means over tasks."""
    names = list(mean_scores([rows[0].scores])) if rows else []
    lines = []
    for key in dict.fromkeys((r.model, r.batches) for r in rows):
        mine = [r.scores for r in rows if (r.model, r.batches) == key]
        means = mean_scores(mine)
        cells = [f"{v:.1%}" if n.startswith("regret") else f"{v:.3f}" for n, v in means.items()]
        lines.append((*key, len(mine), *cells))
    return "\n".join(grid(("model", "batches seen", "tasks", *names), lines)).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True, help="a tuning log, or a table of one: *.npz")
    parser.add_argument("--table", type=Path, help="keep the log's rows as a table: *.npz")
    parser.add_argument("--online", action="store_true")
    parser.add_argument("--acquisition", action="store_true")
    parser.add_argument("--folds", type=int, default=0, help="parts of networks; 0: each by itself")
    parser.add_argument("--classes", action="store_true", help="parts are classes of programs")
    parser.add_argument("--models", default=",".join(VARIANTS), help=f"of {', '.join(VARIANTS)}")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    names = asked.models.split(",")
    if unknown := sorted(set(names) - set(VARIANTS)):
        parser.error(f"no model is called {unknown[0]!r}; there are {', '.join(VARIANTS)}.")
    if asked.log.suffix == ".npz":
        tasks = load_table(asked.log)
    else:
        with connect(str(asked.log), readonly=True) as store:
            tasks = load(store)
    if asked.table:
        save_table(tasks, asked.table)
    trials = sum(len(t.seconds) for t in tasks)
    failed = sum(int((~t.worked).sum()) for t in tasks)
    part_of = part_in(tasks, asked.folds, asked.classes)
    count, parts = len({t.network for t in tasks}), len(held_out(tasks, part_of))
    print(
        f"{trials} trials, {failed} of them failed, of {len(tasks)} tasks in {count} networks, {parts} parts"
    )
    if parts < 2:
        raise SystemExit("a log of two networks is needed, for one is held out; tune another model.")
    rows: list[ScoredTask] = []
    for name in names:
        rows += cold(name, VARIANTS[name], tasks, part_of)
        for batches in BATCHES if asked.online else ():
            rows += online(name, VARIANTS[name], tasks, part_of, batches)
    print(table(rows))
    report: dict[str, Any] = {"speed": speed(tasks)}
    print(", ".join(f"{k} {v:.3g}" for k, v in report["speed"].items()))
    if asked.acquisition:
        report["acquisition"] = acquisition(tasks, part_of)
        for name, found in report["acquisition"].items():
            print(f"{name}: {json.dumps(found)}")
    if asked.json:
        everything = {"machine": machine(), **report, "rows": [asdict(r) for r in rows]}
        asked.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
