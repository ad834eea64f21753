"""When may tuning of a task stop? Stopping rules are replayed on long histories of a tuning log.

    python benchmarks/stopping.py --log tuning.db [--again] [--budget 128] [--further 512] [--json FILE]

Today's tuner gets every history batch by batch. After each batch a rule may say that less than 2 % is left to
gain. The rule was right if the best after --further more trials is less than 2 % faster than the best so far.
Its savings are a share of the fixed budget. A task on which the rule does not stop saves nothing. Only long
histories count: those with the budget and as many further trials, and those that measured a whole space.

The best of many noisy medians is partly luck. So by the log's times, a rule seems wrong far more often than
it is. --again times the best after every batch again, side by side, and judges by these times. This takes a
few seconds for each history on an idle machine. The rules still get the log's times.

The table has the search's rule, with several numbers of quiet batches and several chances, the parts of this
rule alone, and the savings of a rule that could see the future. For long histories, tune with
`patience=False`.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from replays.histories import History, Told, read, retold

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
from autotensor.search.score.cost_model import PriorModel
from schedules.generate import generate
from schedules.prior.rates import Rates
from tuning_db import connect
from tuning_db.records import TrialRecord

CHANCES = (0.05, 0.1, 0.2, 0.3, 0.5)
Rule = Callable[[Sequence[Told], float], bool]  # results so far, gain that is left → whether to stop
SAMPLES = 15  # samples of the best after each batch, with --again


@dataclass(frozen=True, slots=True)
class Replayed:
    """A history as the rules get it, and the truth about it."""

    told: Sequence[Told]  # the state after each batch
    left: Sequence[float]  # after each batch, how much faster the history's last best is


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a rule over all histories."""

    rule: str
    stopped: float  # share of tasks on which the rule stopped within the budget
    right: float  # share of these tasks with less than WORTHWHILE left
    saved: float  # saved share of the fixed budget, over all tasks
    lost: float  # mean relative time lost by stopping
    worst: float


def quiet(told: Sequence[Told], batches: int) -> bool:
    """Whether the last `batches` batches gained nothing. The first batch always counts as a gain."""
    return quiet_batches([t.gain for t in told]) >= batches


def crowded(told: Sequence[Told], chance: float) -> bool:
    """Whether the estimated chance of a further gain, from the fastest times, is below `chance`."""
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


def replayed(histories: Sequence[History], further: int) -> list[Replayed]:
    """The histories in a tuner with guessed rates that learns nothing, because no rule uses the model."""
    out = []
    for h in histories:
        told = list(retold(h, PriorModel(), Rates.guess(h.task.target)))
        out.append(Replayed(told, left_after([t.best_s for t in told], trials_of(told), further)))
    return out


def trials_of(told: Sequence[Told]) -> list[int]:
    return [t.trials for t in told]


def left_after(best_s: Sequence[float], trials: Sequence[int], further: int) -> list[float]:
    """The gain that is left after each batch: how much faster the best is after `further` more trials.
    best_s: the best time after each batch.

    >>> left_after([3.0, 2.0, 1.0], [8, 16, 24], 8), left_after([3.0, 2.0, 1.0], [8, 16, 24], 512)
    ([0.5, 1.0, 0.0], [2.0, 1.0, 0.0])
    """
    ends = [bisect_right(trials, t + further) - 1 for t in trials]
    return [s / best_s[end] - 1.0 for s, end in zip(best_s, ends, strict=True)]


def timed_again(histories: Sequence[History], told: Sequence[Replayed], further: int) -> list[Replayed]:
    """The histories with the truth from new times of the best after each batch. A history is left out if one
    of its best does not run."""
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
            best_s = [seconds[t.trace_hash] for t in holders]
            out.append(Replayed(r.told, left_after(best_s, trials_of(r.told), further)))
    return out


def timed(row: TrialRecord) -> bool:
    return row.verified and row.median_s is not None


def holders_of(h: History) -> list[TrialRecord]:
    """The best trial after each batch. The first batch has one, because it includes the default."""
    out: list[TrialRecord] = []
    for batch in h.batches:
        rows = [*out[-1:], *filter(timed, batch)]
        out.append(min(rows, key=lambda r: r.median_s or 0.0))
    return out


def is_long(h: History, fewest: int) -> bool:
    """Whether a history has at least `fewest` trials, or measured a whole space."""
    space = sum(s.size for s in generate(h.task.workload.dag, h.task.target))
    return h.trials >= fewest or sum(map(len, h.batches)) >= space


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True, nargs="+")
    parser.add_argument("--again", action="store_true", help="time the best after each batch anew")
    parser.add_argument("--budget", type=int, default=128, help="trials of a task that never stops early")
    parser.add_argument("--further", type=int, default=512, help="trials that tell what was left")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    histories, told = [], []
    for log in map(str, asked.log):
        with connect(log, readonly=True) as store:
            found = [h for h in read(store) if is_long(h, asked.budget + asked.further)]
        histories += found
        told += replayed(found, asked.further)
    if not histories:
        raise SystemExit(
            f"No task has {asked.budget + asked.further} trials in one run on this machine; tune with "
            "patience=False, or ask for shorter histories with --budget and --further."
        )
    if asked.again:
        told = timed_again(histories, told, asked.further)
    scores = [score(name, rule, told, asked.budget) for name, rule in RULES.items()]
    finds = sorted(h.finds for h in histories)
    print(f"{len(told)} histories of {min(h.trials for h in histories)} trials and more; "
          f"the best came at trial {finds[len(finds) // 2]} (median), {finds[-1]} (last)")  # fmt: skip
    print(f"{'rule':28} speaks  right  saved  mean loss  worst   (right: < 2 % left)")
    for s in scores:
        print(f"{s.rule:28} {s.stopped:6.0%} {s.right:6.0%} {s.saved:6.0%} {s.lost:10.2%} {s.worst:6.1%}")
    if asked.json:
        constants = {"quiet_batches": QUIET_BATCHES, "tail": TAIL, "unlikely": UNLIKELY}
        lengths = {"budget": asked.budget, "further": asked.further}
        report = {"histories": len(told), **lengths, "timed again": asked.again, **constants}
        asked.json.write_text(json.dumps({**report, "rules": [asdict(s) for s in scores]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
