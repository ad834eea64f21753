"""The meaning and unit of each column of a tuning log: `autotensor db schema`, and docs/tuning-log.md.

    described() ──▶ Described("trial", "median_s", "s", "median of the samples; …"), …

Columns that refer to other tables are described by their foreign keys, those that many tables have by
`EVERYWHERE`. Units: s, FLOP, B; 1 for counts; JSON, UTC (an instant as ISO 8601 text), yes/no; none
for text.
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
    "boot_id": ("", "changes with every start of the computer, so that a process number means something"),
    "decisions": ("JSON", "what the holes of its sketch are filled with, by name"),
    "trace": ("", "the schedule as JSON text; NULL where sketch and decisions give it"),
    "user_name": ("", "who gave the command"),
    "command": ("", "the command line, without passwords"),
    "version": ("", "version of the package"),
    "commit_sha": ("", "commit of the checkout, or of the URL that it was installed from; '' if not known"),
    "dirty": ("yes/no", "whether the checkout had changes that no commit holds"),
    "made_by": ("", "who proposed it: default, shipped, drafted, bred, descent, …"),
    "predicted": ("s", "time as predicted before it was measured; NULL: it was not"),
    "status": ("", "what became of it: see Statuses"),
    "signature": ("", "first line of the error, its numbers as #"),
    "max_error": ("", "largest difference from the reference, in the unit of `tolerance`; NULL: not finite"),
    "tolerance": ("", "largest difference that is allowed"),
    "seeds": ("JSON", "seeds of the inputs that it was checked with"),
    "verdict": ("yes/no", "whether the answer was right; NULL: never checked"),
    "default_s": ("s", "the default's time in the same race"),
}

# what is said here goes before EVERYWHERE and before foreign keys
MEANINGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "apply_event": {
        "used_by": ("", "the file or library that it was built into"),
        "applied": ("UTC", "when"),
    },
    "calibration": {
        "name": ("", "which rate: clock, flops.t2, bandwidth.memory.t2, region.t2, …"),
        "value": ("`unit`", "how much"),
        "unit": ("", "of the value"),
        "samples": ("JSON", "what the value was taken from"),
        "measured": ("UTC", "when; the latest of a name counts"),
    },
    "code": {
        "key": ("", "hash of the other columns"),
        "sources": ("", "hash of the source files"),
    },
    "environment": {
        "key": ("", "hash of the versions"),
        "versions": ("JSON", "versions of whatever shapes code and timings"),
    },
    "host": {
        "uuid": ("", "hash of the computer's own id"),
        "name": ("", "its name in the network"),
        "seen": ("UTC", "when it measured last"),
    },
    "intent": {
        "worker_pid": ("", "process that launched it"),
        "started": ("UTC", "when it was launched last"),
        "attempts": ("1", "how often it was launched"),
    },
    "log": {
        "uuid": ("", "this log's own name, by which merges know it"),
        "created": ("UTC", "when it was made"),
    },
    "machine": {
        "fingerprint": ("", "hash of the columns that make times comparable"),
        "cpu_model": ("", "name of the processor"),
        "features": ("JSON", "its usable features"),
        "cores": ("1", "cores"),
        "caches": ("JSON", "bytes of the caches, innermost first"),
        "device": ("", "the accelerator; 'cpu' or '' for none"),
        "driver": ("", "version of the accelerator's driver"),
        "extra": ("JSON", "whatever else is known"),
        "memory": ("B", "memory of the accelerator, of the host where there is none; 0: not known"),
    },
    "merged": {
        "source": ("", "uuid of another log"),
        "last_id": ("", "trials of it up to this row number are here"),
        "mark": ("", "that trial, to tell whether the log is still the one that it was"),
        "at": ("UTC", "when it was merged last"),
    },
    "opening": {
        "pid": ("", "process"),
        "started": ("UTC", "when"),
    },
    "parent": {
        "number": ("1", "first parent 0, second 1"),
        "trace_hash": ("", "the parent's schedule"),
        "workload_id": ("", "→ workload, of a parent of another computation; NULL: the child's own"),
        "how": ("", "mutated, crossed, neighbour, transplanted, refitted; '' if not known"),
    },
    "round": {
        "number": ("1", "which batch of this task in this session, from 0"),
        "notes": ("JSON", "what resuming needs"),
        "started": ("UTC", "when it was launched"),
    },
    "run": {
        "key": ("", "hash of what was asked: tasks, target, options, seed"),
        "model": ("", "name of the model; '' for a computation of its own"),
        "model_hash": ("", "hash of the graph with its constants"),
        "tasks": ("JSON", "workload, target, weight and name of each task"),
        "tags": ("JSON", "whatever was said of it"),
        "note": ("", "whatever was said of it, in words"),
    },
    "session": {
        "uuid": ("", "its name in every log"),
        "kind": ("", "search, race (of kernels alone), model (in their model), end (of whole models)"),
        "of_id": ("", "→ session, the search whose trials met in a race"),
        "seed": ("", "as decimal text"),
        "options": ("JSON", "options that may change what is found; of kind end: how it ended"),
        "started": ("UTC", "when it was made"),
        "ended": ("UTC", "when it ended last; NULL: it runs, or was killed"),
        "stop_reason": ("", "why"),
        "owner": ("", "process that works on it; '' for nobody"),
        "lease_until": ("UTC", "the owner is taken for dead from then on"),
    },
    "sketch": {
        "hash": ("", "of the structure"),
        "text": ("", "the trace with holes; NULL: only the hash is known"),
    },
    "standing": {
        "race_id": ("", "→ session, the last race"),
        "raced": ("UTC", "when that race began"),
        "trial_id": ("", "→ trial, who won; NULL: nobody said so"),
        "seconds": ("s", "the winner's median in the race"),
        "updated": ("UTC", "when it was decided"),
    },
    "target": {
        "key": ("", "target, vector width, threads, numerics, in words"),
        "text": ("JSON", "all of it"),
    },
    "task_count": {
        "n": ("1", "trials of this task on this machine that ended so"),
        "example": ("", "→ trial, the first of them"),
    },
    "trial": {
        "round": ("1", "its batch; NULL in races"),
        "median_s": ("s", "median of the samples; NULL unless the status is OK"),
        "residency": ("", "what the samples found in the caches: hot, graph, model"),
        "samples": (
            "JSON",
            "[seconds, seconds of the reference beside it or null, residency if another] each",
        ),
        "conditions": ("", "alone, beside (others worked meanwhile), same_code; NULL: not recorded"),
        "note": ("", "what else is to be said about the measurement"),
        "metrics": ("JSON", "what was measured beside seconds, by name"),
        "numerics": ("", "class of its arithmetic, where it is not the target's own"),
        "extents": ("JSON", "of the workload's symbols, as measured"),
        "build_s": ("s", "lowering and compiling"),
        "error": ("", "full text of the failure"),
        "error_signature": ("", "its first line, numbers as #; '' without"),
        "assembly": ("JSON", "counts of its machine code: carried, spills, stack, fma, …"),
        "source_sha": ("", "hash of its object code"),
        "created": ("UTC", "when it was measured"),
    },
    "tuning_db_version": {"version_num": ("", "version of these tables")},
    "workload": {
        "key": ("", "hash of the text"),
        "name": ("", "as people call it"),
        "text": ("JSON", "the computation in canonical names"),
        "flops": ("FLOP", "operations of one call"),
        "symbols": ("JSON", "extents that are known at run time only, with their bounds"),
    },
}
VIEWS: Mapping[str, Mapping[str, tuple[str, str] | None]] = {  # None: as EVERYWHERE says
    "v_best": {
        "workload": None, "name": ("", "of the workload"), "target": None, "machine": None, "trial": None,
        "trace_hash": None, "median_s": ("s", "its time in the last race"),
        "gflops": ("GFLOP/s", "the workload's operations by that time"), "default_s": None,
        "updated": ("UTC", "when that was decided"),
    },
    "v_progress": {
        "session": None, "workload": None, "target": None, "trial": None,
        "created": ("UTC", "when it was measured"), "status": None, "median_s": ("s", "its time"),
        "predicted": None, "number": ("1", "which trial of this task in this session, from 1"),
        "best_s": ("s", "the best verified time up to it"),
    },
    "v_failures": {
        "workload": None, "target": None, "machine": None, "status": None, "signature": None,
        "failures": ("1", "trials that ended so"), "example": ("", "row number of the first"),
    },
    "v_runs": {
        "run": ("", "key of the run"), "model": ("", "its model"), "session": None,
        "kind": ("", "search, race, model, end"), "machine": None,
        "host": ("", "the computer, at the last start"), "user_name": None, "command": None, "version": None,
        "commit_sha": None, "dirty": None, "started": ("UTC", "when the session was made"),
        "ended": ("UTC", "when it ended last; NULL: it runs, or was killed"), "stop_reason": ("", "why"),
    },
    "v_lineage": {
        "trial": None, "trace_hash": None, "made_by": None, "parent": ("", "the parent's schedule, a hash"),
        "how": ("", "what was done to it"), "parent_workload": ("", "key of the parent's workload"),
    },
    "sample": {
        "trial_id": None, "number": ("1", "in order, from 0"), "seconds": ("s", "of one call"),
        "residency": ("", "what it found in the caches"),
        "reference_s": ("s", "the reference kernel's, beside it; NULL: not taken"),
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
    """The reference: a table for each table and view.

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
