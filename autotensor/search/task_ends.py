"""Why each task of a session got no more trials, as the log keeps it: in the notes of the task's last round.

The session's own `stop_reason` says only why the whole run ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autotensor.base.counted import counted
from tuning_db import TrialStore

NOTE = "ended"  # the entry in a round's notes


def note_task_ends(store: TrialStore, session: str, reasons: Mapping[str, str]) -> None:
    """Writes the reasons, by the workload's key, to the last round of each task."""
    last = {r.workload: r for r in store.rounds(session) if r.workload in reasons}
    store.put_rounds([replace(r, notes={**r.notes, NOTE: reasons[key]}) for key, r in last.items()])


def task_ends(store: TrialStore, session: str) -> dict[str, str]:
    """The reasons by the workload's key; without tasks that never ended, or whose log keeps no reasons."""
    last = {r.workload: r for r in store.rounds(session)}
    return {key: str(r.notes[NOTE]) for key, r in last.items() if NOTE in r.notes}


def ended_tasks(reasons: Sequence[str], tasks: int) -> list[str]:
    """One line for each reason, the most frequent first. tasks: the number of all tasks.

    >>> ended_tasks(["all trials are spent", "all trials are spent"], 3)
    ['2 of 3 tasks: all trials are spent.']
    """
    return [f"{n} of {counted(tasks, 'task')}: {reason}." for reason, n in Counter(reasons).most_common()]
