"""The tuning log: workloads, targets, machines, sessions and every trial ever measured, in one SQL database.

    with tuning_db.connect("log.db") as log:
        log.best(workload_key, target_key, fingerprint)

Self-contained: it handles strings, numbers and times, and imports nothing of autotensor. Start reading at
`contract.py` (the verbs), then `records.py` (what goes in and out) and `answers.py` (what else comes out).
Importing this package loads no database library; `connect` does.
"""

from __future__ import annotations

from os import PathLike

from tuning_db.answers import (
    By,
    Chapter,
    CheckReport,
    Claim,
    FailureGroup,
    ForeignTrial,
    Leader,
    Progress,
    Pruned,
    TaskCount,
)
from tuning_db.contract import TrialStore
from tuning_db.errors import StoreError
from tuning_db.records import (
    RACES,
    Application,
    Calibration,
    Code,
    Conditions,
    Environment,
    Host,
    Intent,
    Machine,
    Opening,
    Parent,
    Round,
    Run,
    Sample,
    Session,
    SessionKind,
    Sketch,
    Standing,
    Status,
    TargetRecord,
    TrialRecord,
    Verification,
    Workload,
    environment_key,
)
from tuning_db.values import error_signature

__all__ = [
    "RACES",
    "Application",
    "By",
    "Calibration",
    "Chapter",
    "CheckReport",
    "Claim",
    "Code",
    "Conditions",
    "Environment",
    "FailureGroup",
    "ForeignTrial",
    "Host",
    "Intent",
    "Leader",
    "Machine",
    "Opening",
    "Parent",
    "Progress",
    "Pruned",
    "Round",
    "Run",
    "Sample",
    "Session",
    "SessionKind",
    "Sketch",
    "Standing",
    "Status",
    "StoreError",
    "TargetRecord",
    "TaskCount",
    "TrialRecord",
    "TrialStore",
    "Verification",
    "Workload",
    "connect",
    "environment_key",
    "error_signature",
]


def connect(url_or_path: str | PathLike[str], readonly: bool = False) -> TrialStore:
    """The tuning log at a path or URL (`log.db`, `sqlite:///log.db`, `postgresql+psycopg://…`, `:memory:`).

    A log that does not exist is created. An older log is backed up next to itself and upgraded. If `readonly`
    is true, neither happens. `:memory:` keeps nothing when it is closed.

    Raises StoreError if the file is not a tuning log, is damaged, was written by a newer version or cannot
    be written. The file is then not changed.
    """
    from tuning_db.store import SqlStore

    return SqlStore(url_or_path, readonly=readonly)
