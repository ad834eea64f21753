"""Races in the log: the contestants, and the session that holds their rows.

    trials ──contestants──▶ measured together ──▶ rows with this race's samples ──▶ a session of its own

Kernels race alone (`final_race.py`) or inside their model (`api/model_race.py`). `resolve` treats both kinds
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autotensor.search.machine.machine_entry import session_here
from tuning_db import SessionKind, TrialStore
from tuning_db.answers import distinct_traces
from tuning_db.records import Session, TrialRecord
from tuning_db.values import now


def contestants(rows: Sequence[TrialRecord], default_hash: str, most: int) -> tuple[TrialRecord, ...]:
    """At most `most` contestants: the first row, the default, then the other rows in order. Each trace comes
    once.

    The default comes early, so that every race includes it.
    """
    defaults = (r for r in rows if r.trace_hash == default_hash)
    return distinct_traces((*rows[:1], *defaults, *rows), most)


@dataclass(slots=True)
class Races:
    """The races of one run, in one session. `of`: the session whose trials are raced."""

    store: TrialStore
    machine: str  # fingerprint
    run_key: str
    kind: SessionKind
    of: str | None = None
    seed: int = 0
    session: Session | None = None

    def add(self, rows: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Stores the rows of a race. Returns the stored rows. Raises StoreError."""
        if self.session is None:
            self.session = session_here(
                self.store, self.machine, self.run_key, {}, self.seed, kind=self.kind, of=self.of
            )
        place, environment, created = self.session.id, self.session.environment, now()
        raced = tuple(
            replace(r, session=place, environment=environment, round=None, created=created, id=None)
            for r in rows
        )
        self.store.add_trials(raced)
        return raced

    def end(self, reason: str) -> None:
        """Ends the session after the last race."""
        if self.session is not None:
            self.store.end_session(self.session.id, reason)


__all__ = ["Races", "contestants"]
