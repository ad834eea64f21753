"""`autotensor db compare` and `regressions`: two runs, sessions, commits or machines; `db commits`: all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app, share_of
from autotensor.cli.questions.answers import minute, put_answer, short, whole
from autotensor.cli.questions.reading import reading
from autotensor.insight.units import micros

if TYPE_CHECKING:
    from autotensor.api.log_comparison import TaskComparison
    from tuning_db.records import Opening

app = new_app()

HEADS = (
    "workload", "name", "target", "machine", "trial_a", "trial_b", "seconds_a", "seconds_b", "ratio", "lower",
    "upper", "same_schedule", "verdict",
)  # fmt: skip
SHOWN = {
    "task": lambda row: row["name"][:24],
    "machine": lambda row: row["machine"][:8],
    "us": lambda row: micros(row["seconds_a"]),
    "then us": lambda row: micros(row["seconds_b"]),
    "ratio": lambda row: f"{row['ratio']:.3f}",
    "surely": lambda row: "" if row["upper"] is None else f"{row['lower']:.3f}…{row['upper']:.3f}",
    "verdict": whole("verdict"),
}
COMMITS = ("commit", "version", "dirty", "sessions", "first", "last")

A = typer.Argument(metavar="A", help="A run, session, commit or machine, or its first characters.")
B = typer.Argument(metavar="B", help="Another one, compared with A.")
AtLeast = Annotated[
    str, typer.Option("--at-least", metavar="SHARE", help="Smaller ones are even: 0.5% or 0.005.")
]


@app.command(
    "compare", epilog=example("autotensor db compare 1f0c 77ab", "autotensor db compare v0.1 v0.2 --csv")
)
def compare(
    a: Annotated[str, A],
    b: Annotated[str, B],
    at_least: AtLeast = "0.5%",
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compare two runs, sessions, commits or machines, task by task.

    Each side is represented by the fastest trial of its last race, or of its search if it has no race. The
    verdict uses all samples of both trials; it is "unsure" if the confidence bounds allow several verdicts.
    """
    from autotensor.api import log_comparison

    with reading(db) as store:
        found = log_comparison.compare(store, a, b, share_of(at_least, "'--at-least'"))
    put_answer(HEADS, rows_of(found), json, csv, SHOWN)


@app.command(
    "regressions",
    epilog=example("autotensor db regressions", "autotensor db regressions 1f0c 77ab --at-least 2%"),
)
def regressions(
    a: Annotated[str | None, A] = None,
    b: Annotated[str | None, B] = None,
    at_least: AtLeast = "0.5%",
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List tasks that are surely slower in B than in A; the exit code is 1 if there are any.

    A and B are runs, sessions, commits or machines. Without them, the newest commit is compared with the
    one before it.
    """
    from autotensor.api import log_comparison

    with reading(db) as store:
        found = log_comparison.regressions(store, a, b, share_of(at_least, "'--at-least'"))
    put_answer(HEADS, rows_of(found), json, csv, SHOWN)
    if found:
        raise typer.Exit(1)


def rows_of(found: Sequence[TaskComparison]) -> list[tuple[object, ...]]:
    """A row for each task, without bounds if there are too few samples."""
    return [
        (
            c.workload, c.name, c.target, c.second.machine, c.first.id, c.second.id, c.first.median_s,
            c.second.median_s, c.ratio.middle, *_bounds(c), c.same_schedule, c.verdict.value,
        )
        for c in found
    ]  # fmt: skip


def _bounds(c: TaskComparison) -> tuple[float | None, float | None]:
    return (c.ratio.lower, c.ratio.upper) if c.ratio.upper < float("inf") else (None, None)


@app.command("commits", epilog=example("autotensor db commits", "autotensor db commits --json"))
def commits(db: Db = None, json: AsJson = False, csv: AsCsv = False) -> None:
    """List the versions of the code that measured, in the order in which they first appear in the log.

    A checkout with uncommitted changes is listed by a hash instead of the commit.
    """
    with reading(db) as store:
        codes = store.codes()
        of_code: dict[str, list[Opening]] = {c.key: [] for c in codes}
        for o in store.openings():  # oldest first
            of_code[o.code].append(o)
    rows = [
        (
            c.label, c.version, c.dirty, len({o.session for o in of_code[c.key]}),
            *(of_code[c.key][n].started.isoformat() if of_code[c.key] else None for n in (0, -1)),
        )
        for c in codes
    ]  # fmt: skip
    shown = {"commit": short("commit")} | {h: whole(h) for h in COMMITS[1:4]}
    put_answer(COMMITS, rows, json, csv, shown | {h: minute(h) for h in COMMITS[4:]})
