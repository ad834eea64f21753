"""When may a task stop? The rules replayed on long histories of a tuning log.

    python benchmarks/stopping.py --log tuning.db [--again] [--budget 64] [--fewest 64] [--json FILE]

Every history is told to today's tuner batch by batch. After each batch a rule may say that less than 2 % is
left. It was right if what the *whole* history ended with is less than 2 % faster; what it saves is counted
against the fixed budget, a task on which it says nothing saving nothing.

The best of many noisy medians was lucky as well as fast: judged by the log's times a rule seems wrong far
more often than it is. --again times the best after every batch anew, side by side, about a second a history
on an idle machine, and judges by that; what rules are told stays as the log has it.

The table has the rule of the search for several numbers of quiet batches and several chances at which it
stops, its parts alone, and what a rule that knew the future would save. Long histories: tune with
`patience=False`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from replays.histories import History, Told, rates_in, read, retold

from autotensor.schedule.primitives.algorithm import algorithm_tolerance
from autotensor.schedule.trace import Trace
from autotensor.search.measuring.measurer import LocalMeasurer, MeasureOptions
from autotensor.search.propose.stopping import (
    QUIET_BATCHES,
    TAIL,
    UNLIKELY,
    WORTHWHILE,
    chance_of_more,
    confident,
    quiet_batches,
)
from autotensor.search.score.boosted.xgb_model import XGBModel
from tuning_db import connect
from tuning_db.records import TrialRecord

CHANCES = (0.05, 0.1, 0.2, 0.3, 0.5)
Rule = Callable[[Sequence[Told], float], bool]  # what was told so far, what is left → whether to stop
SAMPLES = 15  # of the best after each batch, when they are timed again


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history as it was told, and the truth about it."""

    told: Sequence[Told]  # after each batch
    left: Sequence[float]  # after each batch, by how much what the history ended with is faster


@dataclass(frozen=True, slots=True)
class Score:
    """A rule on all histories."""

    rule: str
    stopped: float  # share of tasks on which it spoke within the budget
    right: float  # of these, share with less than WORTHWHILE left
    saved: float  # share of the fixed budget, over all tasks
    lost: float  # mean relative time lost by stopping
    worst: float


def quiet(told: Sequence[Told], batches: int) -> bool:
    """Whether so many last batches brought nothing; the first batch brings everything."""
    return quiet_batches([t.gain for t in told]) >= batches


def crowded(told: Sequence[Told], chance: float) -> bool:
    """Whether the fastest leave less of a chance than this."""
    return bool(told[-1].told_s) and chance_of_more(told[-1].told_s) < chance


def of_the_search(told: Sequence[Told], _: float) -> bool:
    return bool(told[-1].told_s) and confident(chance_of_more(told[-1].told_s), [t.gain for t in told])


RULES: Mapping[str, Rule] = {
    "the search's": of_the_search,
    **{
        f"{n} quiet batches, chance {c:g}": lambda told, _, n=n, c=c: quiet(told, n) and crowded(told, c)
        for n in (2, 3, 4)
        for c in CHANCES
    },
    **{f"{n} quiet batches alone": lambda told, _, n=n: quiet(told, n) for n in (2, 3, 4, 5)},
    "knows the future": lambda _, left: left < WORTHWHILE,
}


def score(name: str, rule: Rule, histories: Sequence[Replayed], budget: int) -> Score:
    spoke, right, saved, lost = 0, 0, 0.0, []
    for h in histories:
        ends = (n for n, t in enumerate(h.told) if t.trials < budget and rule(h.told[: n + 1], h.left[n]))
        n = next(ends, None)
        if n is None:
            continue
        spoke += 1
        right += h.left[n] < WORTHWHILE
        lost.append(h.left[n])
        saved += 1.0 - h.told[n].trials / budget
    count = max(1, len(histories))
    mean = sum(lost) / count
    return Score(name, spoke / count, right / max(1, spoke), saved / count, mean, max(lost, default=0.0))


def replayed(histories: Sequence[History], log: str) -> list[Replayed]:
    """Runs one after the other, each with a model of its own, as a run on an empty log has."""
    out = []
    models: dict[str, XGBModel] = {}
    with connect(log, readonly=True) as store:
        for h in histories:
            model = models.setdefault(h.session, XGBModel())
            told = list(retold(h, model, rates_in(store, h)))
            out.append(Replayed(told, left_after([t.best_s for t in told])))
    return out


def left_after(best_s: Sequence[float]) -> list[float]:
    """What is left after each batch, from the times of the best after each.

    >>> left_after([3.0, 2.0, 2.0])
    [0.5, 0.0, 0.0]
    """
    return [s / best_s[-1] - 1.0 for s in best_s]


def timed_again(histories: Sequence[History], told: Sequence[Replayed]) -> list[Replayed]:
    """Judged by new times of the best after each batch; without the histories of which one does not run."""
    out = []
    for h, r in zip(histories, told, strict=True):
        if not any(map(timed, h.batches[0])):
            continue
        holders = holders_of(h)
        traces = {t.trace_hash: Trace.from_json(t.trace) for t in holders}
        with LocalMeasurer(
            h.task.target, MeasureOptions(racing=False), numerics=algorithm_tolerance
        ) as measurer:
            results = measurer.measure(h.task.workload, list(traces.values()), SAMPLES)
        if all(x.ok for x in results):
            seconds = {key: median(x.seconds) for key, x in zip(traces, results, strict=True)}
            out.append(Replayed(r.told, left_after([seconds[t.trace_hash] for t in holders])))
    return out


def timed(row: TrialRecord) -> bool:
    return row.verified and row.median_s is not None


def holders_of(h: History) -> list[TrialRecord]:
    """What was the best after each batch. The first has one: the default is in it."""
    out: list[TrialRecord] = []
    for batch in h.batches:
        rows = [*out[-1:], *filter(timed, batch)]
        out.append(min(rows, key=lambda r: r.median_s or 0.0))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--again", action="store_true", help="time the best after each batch anew")
    parser.add_argument("--budget", type=int, default=64, help="trials of a task that never stops early")
    parser.add_argument("--fewest", type=int, default=64, help="trials of a history that is long enough")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with connect(str(asked.log), readonly=True) as store:
        histories = read(store, asked.fewest)
    if not histories:
        raise SystemExit(
            f"{asked.log} has no task with {asked.fewest} trials in one run on this machine; tune with "
            "patience=False, or ask for shorter histories with --fewest."
        )
    told = replayed(histories, str(asked.log))
    if asked.again:
        told = timed_again(histories, told)
    found = [score(name, rule, told, asked.budget) for name, rule in RULES.items()]
    finds = sorted(h.finds for h in histories)
    print(f"{len(told)} histories of {min(h.trials for h in histories)} trials and more; "
          f"the best came at trial {finds[len(finds) // 2]} (median), {finds[-1]} (last)")  # fmt: skip
    print(f"{'rule':28} speaks  right  saved  mean loss  worst   (right: < 2 % left)")
    for s in found:
        print(f"{s.rule:28} {s.stopped:6.0%} {s.right:6.0%} {s.saved:6.0%} {s.lost:10.2%} {s.worst:6.1%}")
    if asked.json:
        constants = {"quiet_batches": QUIET_BATCHES, "tail": TAIL, "unlikely": UNLIKELY}
        report = {"histories": len(told), "budget": asked.budget, "timed again": asked.again, **constants}
        asked.json.write_text(json.dumps({**report, "rules": [asdict(s) for s in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
