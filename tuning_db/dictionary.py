"""The meaning and unit of each column of a tuning log: `autotensor db schema`, and docs/tuning-log.md.

    described() ──▶ Described("trial", "median_s", "s", "median of the samples; …"), …

The description of a column that refers to another table follows from its foreign key. `EVERYWHERE` describes
columns that many tables have. Units: s, FLOP, B; 1 for counts; JSON, UTC (a time as ISO 8601 text), yes/no;
empty for text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuning_db import models as m


@dataclass(frozen=True, slots=True)
class Described:
    """One column of a table or view."""

    table: str
    column: str
    unit: str
    meaning: str


EVERYWHERE: Mapping[str, tuple[str, str]] = {
    "id": ("", "row number, of this log only"),
    "workload": ("", "key of the workload"),
    "target": ("", "key of the target"),
    "machine": ("", "fingerprint of the machine"),
    "session": ("", "uuid of the session"),
    "trial": ("", "row number of the trial"),
    "trial_id": ("", "row number of the trial"),
    "trace_hash": ("", "hash of the schedule: equal ones are the same schedule"),
    "boot_id": ("", "changes with every start of the computer: process numbers are unique within one start"),
    "decisions": ("JSON", "values for the holes of its sketch, by name"),
    "trace": ("", "the schedule as JSON text; NULL if sketch and decisions determine it"),
    "user_name": ("", "user who ran the command"),
    "command": ("", "the command line, without passwords"),
    "version": ("", "version of the package"),
    "commit_sha": ("", "commit of the checkout, or of the URL from which it was installed; '' if not known"),
    "dirty": ("yes/no", "whether the checkout had uncommitted changes"),
    "made_by": ("", "how it was proposed: default, shipped, drafted, bred, descent, …"),
    "predicted": ("s", "time that was predicted before the measurement; NULL: not predicted"),
    "status": ("", "outcome of the trial: see Statuses"),
    "signature": ("", "first line of the error; every number in it is replaced by #"),
    "max_error": ("", "largest difference from the reference, in the unit of `tolerance`; NULL: not finite"),
    "tolerance": ("", "largest allowed difference"),
    "seeds": ("JSON", "seeds of the inputs for the check"),
    "verdict": ("yes/no", "whether the result was correct; NULL: never checked"),
    "default_s": ("s", "time of the default schedule in the same race"),
}

# these descriptions override EVERYWHERE and foreign keys
MEANINGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "apply_event": {
        "used_by": ("", "the file or library into which it was built"),
        "applied": ("UTC", "when it was built in"),
    },
    "calibration": {
        "name": ("", "name of the rate: clock, flops.t2, bandwidth.memory.t2, region.t2, …"),
        "value": ("`unit`", "value of the rate"),
        "unit": ("", "unit of the value"),
        "samples": ("JSON", "measurements from which the value was computed"),
        "measured": ("UTC", "when it was measured; the latest value of a name counts"),
    },
    "code": {
        "key": ("", "hash of the other columns"),
        "sources": ("", "hash of the source files"),
    },
    "environment": {
        "key": ("", "hash of the versions"),
        "versions": ("JSON", "versions of the software that affects code and timings"),
    },
    "host": {
        "uuid": ("", "hash of the computer's own id"),
        "name": ("", "its name in the network"),
        "seen": ("UTC", "time of its last measurement"),
    },
    "intent": {
        "worker_pid": ("", "process that launched the trial"),
        "started": ("UTC", "time of the last launch"),
        "attempts": ("1", "number of launches"),
    },
    "log": {
        "uuid": ("", "identifies this log in merges"),
        "created": ("UTC", "when the log was made"),
    },
    "machine": {
        "fingerprint": ("", "hash of the columns that make times comparable"),
        "cpu_model": ("", "name of the processor"),
        "features": ("JSON", "features that can be used"),
        "cores": ("1", "number of cores"),
        "caches": ("JSON", "bytes of each cache, from the innermost to the outermost"),
        "device": ("", "the accelerator; 'cpu' or '' for none"),
        "driver": ("", "version of the accelerator's driver"),
        "extra": ("JSON", "other properties"),
        "memory": ("B", "memory of the accelerator, or of the host if there is none; 0: not known"),
    },
    "merged": {
        "source": ("", "uuid of another log"),
        "last_id": ("", "trials of the other log up to this row number are in this log"),
        "mark": ("", "trace and time of that trial, to check that the other log is still the same"),
        "at": ("UTC", "time of the last merge"),
    },
    "opening": {
        "pid": ("", "number of the process"),
        "started": ("UTC", "when the process began the session or continued it"),
    },
    "parent": {
        "number": ("1", "first parent 0, second 1"),
        "trace_hash": ("", "the parent's schedule"),
        "workload_id": ("", "→ workload of the parent; NULL: the same as the child's"),
        "how": ("", "mutated, crossed, neighbour, transplanted, refitted; '' if not known"),
    },
    "round": {
        "number": ("1", "number of the batch of this task in this session, from 0"),
        "notes": ("JSON", "in a task's last round, `ended`: why the task got no more trials"),
        "started": ("UTC", "when it was launched"),
    },
    "run": {
        "key": ("", "hash of tasks, target, options and seed"),
        "model": ("", "name of the model; '' for a single computation"),
        "model_hash": ("", "hash of the graph with its constants"),
        "tasks": ("JSON", "workload, target, weight and name of each task"),
        "tags": ("JSON", "tags, by name"),
        "note": ("", "a note, free text"),
    },
    "session": {
        "uuid": ("", "the same in every log"),
        "kind": (
            "",
            "search, or a race: race (of single kernels), model (kernels in their model), end (whole models)",
        ),
        "of_id": ("", "→ session: the search whose trials were raced"),
        "seed": ("", "seed of the random numbers, as decimal text"),
        "options": ("JSON", "options that may change the result; for kind end: the result of the race"),
        "started": ("UTC", "when it was made"),
        "ended": ("UTC", "when it ended last; NULL: it runs, or was killed"),
        "stop_reason": ("", "why it ended"),
        "owner": ("", "process that works on the session; '' for none"),
        "lease_until": ("UTC", "after this time, the owner counts as dead"),
    },
    "sketch": {
        "hash": ("", "hash of the structure"),
        "text": ("", "the trace with holes; NULL: only the hash is known"),
    },
    "standing": {
        "race_id": ("", "→ session: the last race"),
        "raced": ("UTC", "when the last race began"),
        "trial_id": ("", "→ trial: the winner; NULL: not recorded"),
        "seconds": ("s", "the winner's median in the race"),
        "updated": ("UTC", "when the winner was decided"),
    },
    "target": {
        "key": ("", "target, vector width, threads and numerics, as text"),
        "text": ("JSON", "the whole target"),
    },
    "task_count": {
        "n": ("1", "number of trials of this task on this machine with this status"),
        "example": ("", "→ trial: the first of them"),
    },
    "trial": {
        "round": ("1", "number of its batch; NULL in races"),
        "median_s": ("s", "median of the samples; NULL unless the status is OK"),
        "residency": ("", "state of the caches before a sample: hot, graph, model"),
        "samples": (
            "JSON",
            "for each sample: [its seconds, the reference's seconds or null, the residency if it differs]",
        ),
        "conditions": ("", "alone, beside (other processes worked, too), same_code; NULL: not recorded"),
        "note": ("", "a remark about the measurement"),
        "metrics": ("JSON", "other measured values, by name"),
        "numerics": ("", "class of its arithmetic, if it differs from the target's"),
        "extents": ("JSON", "extents of the workload's symbols in the measurement"),
        "build_s": ("s", "time of lowering and compiling"),
        "error": ("", "full text of the failure"),
        "error_signature": (
            "",
            "first line of the error; every number in it is replaced by #; '' if there is no error",
        ),
        "assembly": ("JSON", "counts from its machine code: carried, spills, stack, fma, …"),
        "source_sha": ("", "hash of its object code"),
        "created": ("UTC", "when it was measured"),
    },
    "tuning_db_version": {"version_num": ("", "version of these tables")},
    "workload": {
        "key": ("", "hash of the text"),
        "name": ("", "readable name"),
        "text": ("JSON", "the computation in canonical names"),
        "flops": ("FLOP", "operations of one call"),
        "symbols": ("JSON", "extents that each call chooses, and their bounds"),
    },
}
VIEWS: Mapping[str, Mapping[str, tuple[str, str] | None]] = {  # None: the description of EVERYWHERE
    "v_best": {
        "workload": None, "name": ("", "name of the workload"), "target": None, "machine": None,
        "trial": None, "trace_hash": None, "median_s": ("s", "time in the last race"),
        "gflops": ("GFLOP/s", "the workload's operations, divided by that time"), "default_s": None,
        "updated": ("UTC", "when the winner was decided"),
    },
    "v_progress": {
        "session": None, "workload": None, "target": None, "trial": None,
        "created": ("UTC", "when it was measured"), "status": None, "median_s": ("s", "time of the trial"),
        "predicted": None, "number": ("1", "number of the trial for this task in this session, from 1"),
        "best_s": ("s", "the best verified time up to this trial"),
    },
    "v_failures": {
        "workload": None, "target": None, "machine": None, "status": None, "signature": None,
        "failures": ("1", "number of trials with this status and error"),
        "example": ("", "row number of the first of them"),
    },
    "v_runs": {
        "run": ("", "key of the run"), "model": ("", "name of the model"), "session": None,
        "kind": ("", "search, race, model, end"), "machine": None,
        "host": ("", "the computer of the last start"), "user_name": None, "command": None, "version": None,
        "commit_sha": None, "dirty": None, "started": ("UTC", "when the session was made"),
        "ended": ("UTC", "when it ended last; NULL: it runs, or was killed"),
        "stop_reason": ("", "why it ended"),
    },
    "v_lineage": {
        "trial": None, "trace_hash": None, "made_by": None, "parent": ("", "hash of the parent's schedule"),
        "how": ("", "change made to the parent"), "parent_workload": ("", "key of the parent's workload"),
    },
    "sample": {
        "trial_id": None, "number": ("1", "number of the sample, from 0"),
        "seconds": ("s", "time of one call"),
        "residency": ("", "state of the caches before the sample"),
        "reference_s": ("s", "time of the reference kernel next to the sample; NULL: not measured"),
    },
    "verification": {
        "trial_id": None, "max_error": None, "tolerance": None, "seeds": None, "verdict": None,
    },
}  # fmt: skip


def described() -> tuple[Described, ...]:
    """Every column of every table, then of every view."""
    return (*_of_tables(), *_of_views())


def _of_tables() -> Iterator[Described]:
    for name, table in sorted(m.Base.metadata.tables.items()):
        for column in table.columns:
            refers_to = next(
                (f"→ {key.column.table.name}" for key in column.foreign_keys if key.column.name == "id"), ""
            )
            said = MEANINGS.get(name, {}).get(column.name)
            unit, meaning = said or (("", refers_to) if refers_to else EVERYWHERE[column.name])
            yield Described(name, column.name, unit, meaning)


def _of_views() -> Iterator[Described]:
    for name, columns in VIEWS.items():
        for column, said in columns.items():
            yield Described(name, column, *(said or EVERYWHERE[column]))


def markdown() -> str:
    """The reference as Markdown: one table for each table and view.

    >>> print(*markdown().splitlines()[:3], sep="\\n")
    | `apply_event` | Unit | |
    |---|---|---|
    | `id` | | row number, of this log only |
    """
    lines: list[str] = []
    for n, d in enumerate(found := described()):
        if n == 0 or found[n - 1].table != d.table:
            lines += [*[""] * bool(lines), f"| `{d.table}` | Unit | |", "|---|---|---|"]
        lines.append(f"| `{d.column}` |{f' {d.unit}' if d.unit else ''} | {d.meaning} |")
    return "\n".join(lines) + "\n"
