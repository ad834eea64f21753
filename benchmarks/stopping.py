"""When may a task stop? The rules replayed on long histories of a tuning log.

    python benchmarks/stopping.py --log tuning.db [--budget 64] [--fewest 64] [--json FILE]

Every history is told to today's tuner batch by batch. After each batch a rule may say that less than 2 % is
left. It was right if the best of the *whole* history is less than 2 % faster; what it saves is counted
against the fixed budget, a task on which it says nothing saving nothing. The best of many noisy medians was
lucky as well as fast, so that a rule seems wrong a little more often than it is.

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

from histories import History, Told, rates_in, read, retold

from autotensor.search.boosted import XGBModel
from autotensor.search.stopping import (
    QUIET_BATCHES,
    TAIL,
    UNLIKELY,
    WORTHWHILE,
    chance_of_more,
    confident,
    quiet_batches,
)
from tuning_db import connect

CHANCES = (0.05, 0.1, 0.2, 0.3, 0.5)
Rule = Callable[[Sequence[Told], float], bool]  # what was told so far, the best known → whether to stop


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
    "knows the future": lambda told, best: told[-1].best_s <= (1.0 + WORTHWHILE) * best,
}


def score(name: str, rule: Rule, histories: Sequence[tuple[float, Sequence[Told]]], budget: int) -> Score:
    """histories: the best known, and what was told after each batch."""
    spoke, right, saved, lost = 0, 0, 0.0, []
    for best, told in histories:
        ends = (n for n, t in enumerate(told, 1) if t.trials < budget and rule(told[:n], best))
        n = next(ends, None)
        if n is None:
            continue
        spoke += 1
        left = told[n - 1].best_s / best - 1.0
        right += left < WORTHWHILE
        lost.append(left)
        saved += 1.0 - told[n - 1].trials / budget
    count = max(1, len(histories))
    mean = sum(lost) / count
    return Score(name, spoke / count, right / max(1, spoke), saved / count, mean, max(lost, default=0.0))


def replayed(histories: Sequence[History], log: str) -> list[tuple[float, Sequence[Told]]]:
    """Runs one after the other, each with a model of its own, as a run on an empty log has."""
    out = []
    models: dict[str, XGBModel] = {}
    with connect(log, readonly=True) as store:
        for h in histories:
            model = models.setdefault(h.session, XGBModel())
            out.append((h.best_s, list(retold(h, model, rates_in(store, h)))))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True)
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
    found = [score(name, rule, told, asked.budget) for name, rule in RULES.items()]
    finds = sorted(h.finds for h in histories)
    print(f"{len(told)} histories of {min(h.trials for h in histories)} trials and more; "
          f"the best came at trial {finds[len(finds) // 2]} (median), {finds[-1]} (last)")  # fmt: skip
    print(f"{'rule':28} speaks  right  saved  mean loss  worst   (right: < 2 % left of the best known)")
    for s in found:
        print(f"{s.rule:28} {s.stopped:6.0%} {s.right:6.0%} {s.saved:6.0%} {s.lost:10.2%} {s.worst:6.1%}")
    if asked.json:
        constants = {"quiet_batches": QUIET_BATCHES, "tail": TAIL, "unlikely": UNLIKELY}
        report = {"histories": len(told), "budget": asked.budget, **constants}
        asked.json.write_text(json.dumps({**report, "rules": [asdict(s) for s in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
