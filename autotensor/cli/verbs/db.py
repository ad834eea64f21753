"""`autotensor db VERB`: reads, merges and checks tuning logs; exports and lists the shipped schedules."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from autotensor.base.counted import counted
from autotensor.base.errors import InputError
from autotensor.cli.options import AsCsv, AsJson, Db, Force, TargetText, Threads, example, new_app, target_of
from autotensor.cli.output import IN_USE, put_json, say, table
from autotensor.cli.questions import comparing, history, lineage, runs, schema, sql, upkeep
from autotensor.cli.questions.answers import put_answer
from autotensor.cli.questions.reading import reading
from autotensor.insight.units import gflops, micros

FASTEST = (
    "us, fastest trial: the least time of all searches and races on any machine, which was partly lucky. "
    "`autotensor db best` has the schedules in use here, and their times in the last race."
)

app = new_app("Look into a tuning log; export, import, merge, check it.")
app.add_typer(runs.app)
app.add_typer(lineage.app)
app.add_typer(history.app)
app.add_typer(comparing.app)
app.add_typer(schema.app)
app.add_typer(upkeep.app)
app.add_typer(sql.app)


@app.command("path", epilog=example("autotensor db path"))
def path(db: Db = None, json: AsJson = False) -> None:
    """Print the place of the tuning log."""
    from autotensor.api.log import log_name

    place = log_name(db)
    if json:
        put_json({"path": place, "exists": Path(place).exists() if "://" not in place else None})
    else:
        say(place)


@app.command("list", epilog=example("autotensor db list", "autotensor db list --db other.db --json"))
def list_(db: Db = None, json: AsJson = False) -> None:
    """List workloads, their trials, and the machines that measured them."""
    with reading(db) as store:
        counts: dict[str, Counter[str]] = {}
        machines: Counter[str] = Counter()
        for n in store.task_counts():
            counts.setdefault(n.workload, Counter())[n.status.value] += n.count
            machines[n.machine] += n.count
        best: dict[str, float] = {}
        for leader in store.leaders():
            best[leader.workload] = min(leader.seconds, best.get(leader.workload, leader.seconds))
        workloads, known, sessions = store.workloads(), store.machines(), len(store.sessions())
    found: list[dict[str, Any]] = [
        {
            "key": w.key,
            "name": w.name,
            "flops": w.flops,
            "trials": sum(counts.get(w.key, Counter()).values()),
            "statuses": dict(counts.get(w.key, {})),
            "best_s": best.get(w.key),
        }
        for w in workloads
    ]
    hosts: list[dict[str, Any]] = [
        {"fingerprint": m.fingerprint, "cpu": m.cpu_model, "trials": machines[m.fingerprint]} for m in known
    ]
    if json:
        put_json({"workloads": found, "machines": hosts, "sessions": sessions})
        return
    rows_ = [
        (w["key"][:12], w["name"], f"{w['flops'] / 1e6:.2f}", w["trials"],
         _failed(w["statuses"]), micros(w["best_s"]))
        for w in found
    ]  # fmt: skip
    table(("key", "workload", "MFLOP", "trials", "failed", "us, fastest trial"), rows_)
    say()
    say(FASTEST)
    for h in hosts:
        say(f"{counted(h['trials'], 'trial')} on {h['cpu']} ({h['fingerprint'][:12]})")
    say(f"{sessions} sessions")


def _failed(statuses: Any) -> int:
    return sum(n for status, n in statuses.items() if status != "OK")


@app.command("machines", epilog=example("autotensor db machines", "autotensor db machines --csv"))
def machines(db: Db = None, json: AsJson = False, csv: AsCsv = False) -> None:
    """List the machines in the log, the trials of each, and how many failed."""
    with reading(db) as store:
        counts: dict[str, Counter[str]] = {m.fingerprint: Counter() for m in store.machines()}
        for n in store.task_counts():
            counts[n.machine][n.status.value] += n.count
        rows = [
            (
                m.fingerprint,
                m.cpu_model,
                m.cores,
                counts[m.fingerprint].total(),
                _failed(counts[m.fingerprint]),
            )
            for m in store.machines()
        ]
    put_answer(("fingerprint", "cpu", "cores", "trials", "failed"), rows, json, csv)


@app.command("best", epilog=example("autotensor db best", "autotensor db best --json"))
def best(db: Db = None, json: AsJson = False) -> None:
    """Print the schedule that is used here for each workload: the winner of its last race.

    A workload without a race uses the fastest trial that surely beats the default. A whole model whose
    winners together were slower than its defaults keeps the defaults.
    """
    from autotensor.base.target import Target
    from autotensor.resolve import all_in_use
    from autotensor.runtime.place import here

    with reading(db) as store:
        # a card of this machine has a fingerprint of its own
        machines = {here(Target.from_json(t.text)).fingerprint for t in store.targets()}
        workloads = {w.key: w for w in store.workloads()}
        found: list[dict[str, Any]] = [
            {
                "trial": r.id,
                "name": workloads[r.workload].name,
                "key": r.workload,
                "target": r.target,
                "median_s": r.median_s,
                "flops": workloads[r.workload].flops,
                "made_by": r.made_by,
            }
            for machine in sorted(machines)
            for r in all_in_use(store, machine)
        ]
    if json:
        put_json(found)
        return
    rows = [
        (f["trial"], f["name"], micros(f["median_s"]), gflops(f["flops"], f["median_s"]), f["made_by"],
         f["target"])
        for f in found
    ]  # fmt: skip
    table(("trial", "workload", "us in use", "GFLOP/s", "made by", "target"), rows)
    if rows:
        say(IN_USE)


@app.command("failures", epilog=example("autotensor db failures", "autotensor show 17 --as trace"))
def failures(db: Db = None, json: AsJson = False) -> None:
    """Print failed trials, grouped by status and error.

    The most frequent come first.
    """
    with reading(db) as store:
        groups = store.failures()
    found = [
        {"count": g.count, "status": g.status.value, "error": g.signature, "trial": g.example} for g in groups
    ]
    if json:
        put_json(found)
        return
    heads = ("count", "status", "trial", "error")
    table(heads, [[f[head] for head in heads] for f in found])


File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of JSON lines.")]


class Format(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


@app.command(
    "export", epilog=example("autotensor db export trials.jsonl", "autotensor db export trials.parquet")
)
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write.")],
    format: Annotated[
        Format | None,
        typer.Option("--format", help="Default: by the file's ending, else jsonl.", show_default=False),
    ] = None,
    table_: Annotated[
        str,
        typer.Option("--table", metavar="NAME", help="With csv and parquet: trials, features, sessions, …"),
    ] = "trials",
    db: Db = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Write a log to a file.

    jsonl holds everything, and `db import` reads it. csv and parquet hold one table, for data frames. An
    earlier export is replaced, another file only with --force, the log itself never.
    """
    from autotensor.cli.output_files import check_output, files_of_log
    from autotensor.cli.questions.exports import kind_of
    from autotensor.runtime.files.atomic_write import replacing

    ending = file.suffix.removeprefix(".").lower()
    chosen = format or (Format(ending) if ending in list(Format) else Format.JSONL)
    check_output(file, kind_of(chosen.value), force, files_of_log(db))
    if chosen is Format.JSONL:
        from tuning_db.exchange.transfer import export_jsonl

        with reading(db) as store, replacing(file) as out:
            rows, left_out = export_jsonl(store, out), Counter[str]()
    else:
        from autotensor.api.log_handle import log
        from tuning_db.exchange.frames import export_frame

        with reading(db), log(db) as handle:
            found = handle.frame(table_)
            with replacing(file) as out:
                rows, left_out = export_frame(found, out, chosen.value), found.left_out
    what = "trials" if chosen is Format.JSONL or table_ == "trials" else "rows"
    if json:
        put_json({"file": str(file), what: rows, "left_out": left_out})
        return
    say(f"{file}: {rows} {what}.")
    if left_out:
        reasons = "; ".join(f"{n}: {reason}" for reason, n in left_out.most_common())
        say(f"{counted(left_out.total(), 'trial')} left out: {reasons}.")


@app.command("import", epilog=example("autotensor db import trials.jsonl"))
def import_(file: File, db: Db = None, json: AsJson = False) -> None:
    """Add a file of JSON lines to a log. Trials that the log already has are unchanged."""
    from autotensor.api.log import open_log
    from tuning_db.exchange.transfer import import_jsonl

    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}.")
    with open_log(db) as store:
        done = import_jsonl(store, file)
    put_json({"new": done.new, "known": done.known}) if json else say(_transferred(done))


@app.command("merge", epilog=example("autotensor db merge colleague.db", "autotensor db merge a.db b.db"))
def merge(
    others: Annotated[list[str], typer.Argument(metavar="FILE|URL", help="The logs to add.")],
    db: Db = None,
    json: AsJson = False,
) -> None:
    """Add other logs to a log. Trials keep the machine that measured them.

    All logs are opened before the first is read, so a wrong name changes nothing.
    """
    from autotensor.api.log import open_log
    from tuning_db.exchange import transfer

    with ExitStack() as opened:
        sources = [opened.enter_context(reading(other)) for other in dict.fromkeys(others)]
        store = opened.enter_context(open_log(db))
        done = [(source.place, transfer.merge(store, source)) for source in sources]
    if json:
        put_json({"new": sum(d.new for _, d in done), "known": sum(d.known for _, d in done)})
        return
    for place, d in done:
        say(f"{place}: {_transferred(d)}" if len(done) > 1 else _transferred(d))


def _transferred(done: Any) -> str:
    if not (done.new or done.known):
        return "no trials that an earlier merge has not read."
    return f"{counted(done.new, 'new trial')}, {done.known} known already."


@app.command("check", epilog=example("autotensor db check", "autotensor db check --db old.db"))
def check(db: Db = None, json: AsJson = False) -> None:
    """Look for damage in a log. The whole log is read; the exit code is 1 if it is damaged."""
    with reading(db) as store:
        report = store.check()
        place = store.place
    if json:
        document = {"log": place, "schema_version": report.schema_version, "trials": report.trials}
        put_json({**document, "problems": list(report.problems)})
    else:
        counts = f"{counted(report.trials, 'trial')}, {counted(len(report.problems), 'problem')}"
        say(f"{place}: schema version {report.schema_version}, {counts}.")
        for problem in report.problems:
            say(f"  {problem}")
    if not report.ok:
        raise typer.Exit(1)


@app.command("upgrade", epilog=example("autotensor db upgrade --db old.db"))
def upgrade(db: Db = None, json: AsJson = False) -> None:
    """Convert an older log to this version; a backup is kept next to it."""
    from autotensor.api.log import default_log, open_log

    place = default_log() if db is None else db
    if "://" not in place and not Path(place).exists():
        raise InputError(f"there is no tuning log at {place}.")
    with open_log(db) as store:
        version = store.check().schema_version
        place = store.place
    put_json({"log": place, "schema_version": version}) if json else say(
        f"{place}: schema version {version}."
    )


@app.command(
    "export-tuned",
    epilog=example(
        "autotensor db export-tuned --to schedules/tuned", "autotensor db export-tuned a.db b.db --to tuned"
    ),
)
def export_tuned(
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Folder of the files.")],
    logs: Annotated[
        list[str] | None, typer.Argument(metavar="LOG", help="Logs to read. Default: the user's own.")
    ] = None,
    cost_model: Annotated[
        bool, typer.Option("--cost-model", help="Also fit the cost models that ship with them.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Add a log's winners to the tuned schedules that ship with autotensor.

    Each class of machines has a file; each workload and target has a line. A winner is added if it is
    surely faster than its default. If a task has two winners, the winner with the larger gain is kept.
    """
    from autotensor.api import shipping

    for log in logs or [None]:  # type: ignore[list-item]
        with reading(log):
            pass  # raises for a log that is missing, before anything is written
    done: list[shipping.Exported] = []
    models: list[Path] = []
    for log in logs or [None]:  # type: ignore[list-item]  # None is the user's own
        with reading(log) as store:
            done += shipping.export_tuned(store, to)
            models += shipping.export_cost_model(store, to) if cost_model else []
    if json:
        files = [{"file": str(e.path), "new": e.new, "kept": e.kept, "dropped": e.dropped} for e in done]
        put_json({"schedules": files, "cost_models": [str(m) for m in models]})
        return
    for e in done:
        say(f"{e.path}: {e.new} new, {e.kept} as before, {e.dropped} dropped.")
    for model in models:
        say(f"{model}: {model.stat().st_size >> 10} KiB.")
    if not done:
        say("No winner in it beats its default, so there are no schedules to export.")


@app.command("shipped", epilog=example("autotensor db shipped", "autotensor db shipped --json"))
def shipped(target: TargetText = None, threads: Threads = None, json: AsJson = False) -> None:
    """List the tuned schedules that ship with autotensor, and how they are used on this machine.

    exact: used without tuning. compatible: a tuning run measures them first. refused: never used.
    AUTOTENSOR_NO_SHIPPED=1 ignores all of them.
    """
    from autotensor.base import switches
    from schedules.shipped import cost_model, inventory

    chosen = target_of(target, threads)
    found = inventory(chosen)
    learned = cost_model(chosen)
    if json:
        shelves = [
            {"class": i.name, "cpu": i.machine.cpu_model, "cores": i.machine.cores, "target": i.target,
             "schedules": i.count, "fit": i.verdict.fit.value, "reason": i.verdict.reason}
            for i in found
        ]  # fmt: skip
        used = not switches.no_shipped()
        put_json({"classes": shelves, "cost_model": learned and str(learned), "used": used})
        return
    if not found:
        say("This version ships no schedules.")
        return
    rows = [
        (i.machine.cpu_model, i.machine.cores, i.target, i.count, i.verdict.fit.value, i.verdict.reason)
        for i in found
    ]
    table(("machine", "cores", "target", "schedules", "fit", "because"), rows)
    say()
    say(f"Cost model: {learned.parent.name if learned else 'none that fits'}.")
    if switches.no_shipped():
        say("AUTOTENSOR_NO_SHIPPED is set, so none of these is used.")
