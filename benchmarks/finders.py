"""Which kind of proposal finds the winners? From a log, the trials of each kind, and the tasks whose best it
found.

    python benchmarks/finders.py --log tuning.db [--json FILE]

`made_by` of a trial says where its candidate came from: the default, the log (`log`: this workload in another
run, `transfer`: another workload), the shipped schedules, drafts of the prior ranked by the model
(`drafted`), steps from the best (`descent`), evolution (`bred`, for sketches of the general rules only), or
chance.
The kind that first measured the best of a task's run wins the task. `close` counts trials within 1 % of the
best.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from replays.histories import History, read

from autotensor.search.propose.tuner import is_general
from schedules.generate import generate
from tuning_db import connect
from tuning_db.records import TrialRecord

CLOSE = 1.01


def winner(h: History) -> TrialRecord:
    times = [r for batch in h.batches for r in batch if r.verified and r.median_s is not None]
    return min(times, key=lambda r: (r.median_s or 0.0, r.id or 0))


def by_general_rules(h: History, row: TrialRecord) -> bool:
    """Whether only general rules made the row's sketch, and no rule for a special kind of computation."""
    sketches = generate(h.task.workload.dag, h.task.target)
    return any(s.hash == row.sketch_hash and is_general(s) for s in sketches)


def count(histories: Sequence[History]) -> dict[str, dict[str, int]]:
    trials: Counter[str] = Counter()
    close: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for h in histories:
        best = winner(h)
        won[best.made_by] += 1
        for row in (r for batch in h.batches for r in batch):
            trials[row.made_by] += 1
            close[row.made_by] += row.median_s is not None and row.median_s <= CLOSE * (best.median_s or 0.0)
    return {name: {"trials": n, "close": close[name], "won": won[name]} for name, n in trials.most_common()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with connect(str(asked.log), readonly=True) as store:
        histories = read(store)
    found = count(histories)
    general = [h.task.label for h in histories if by_general_rules(h, winner(h))]
    print(f"{len(histories)} tasks of {len({h.session for h in histories})} runs")
    print(f"{'made by':12} trials   within 1 %   tasks won")
    for name, n in found.items():
        print(f"{name:12} {n['trials']:6} {n['close']:12} {n['won']:11}")
    print(f"won by sketches of the general rules: {len(general)} ({', '.join(general[:8])})")
    if asked.json:
        report = {"tasks": len(histories), "made_by": found, "general": general}
        asked.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
