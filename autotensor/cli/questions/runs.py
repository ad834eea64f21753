"""`autotensor db runs` and `db run KEY`: the tuning runs, and the sessions of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotensor.base.errors import InputError
from autotensor.cli.options import AsCsv, AsJson, Db, example, new_app
from autotensor.cli.output import say
from autotensor.cli.questions.answers import minute, put_answer, short, whole
from autotensor.cli.questions.reading import reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuning_db.records import Run, Session

app = new_app()

# by their kind: sessions with a key of their own instead of a run's
RACES_OF_MODELS = {"model": "race inside a model", "end": "race of whole models"}

RUNS = ("run", "model", "tasks", "sessions", "trials", "started", "stop_reason", "what")
SHOWN = {
    "run": short("run"),
    "what": whole("what"),
    **{head: whole(head) for head in RUNS[2:5]},
    "started": minute("started"),
    "stopped because": whole("stop_reason"),
}
MOST_NAMES = 2  # of a run's tasks
SESSIONS = (
    "session", "kind", "machine", "started", "ended", "trials", "ok", "stop_reason",
    "host", "user_name", "version", "commit_sha", "command",
)  # fmt: skip


@app.command("runs", epilog=example("autotensor db runs", "autotensor db runs resnet50 --json"))
def runs(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="Only runs of this model.")] = None,
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the tuning runs: model, tasks, trials, when each began, why its last session ended.

    The newest run comes last. Races inside a model and between whole models belong to no run of their own;
    only --json and --csv list them.
    """
    from autotensor.api.log_names import check_known

    with reading(db) as store:
        known = {r.key: r for r in store.runs()}
        of_run: dict[str, list[Session]] = {}  # in order of their first sessions
        for s in store.sessions():
            of_run.setdefault(s.run_key, []).append(s)
        rows = [
            (
                key,
                known[key].model,
                len(known[key].tasks),
                len(sessions),
                sum(store.count(session=s.id) for s in sessions),
                sessions[0].started.isoformat(),
                sessions[-1].stop_reason,
                _what(known[key], sessions),
            )
            for key, sessions in of_run.items()
            if model in (None, known[key].model) and (json or csv or not _inner(sessions))
        ]
        if not rows:
            check_known(store, model=model)
    put_answer(RUNS, rows, json, csv, SHOWN)


def _inner(sessions: Sequence[Session]) -> bool:
    """Whether these sessions are races that ended a run, and not a run."""
    return all(s.kind.value in RACES_OF_MODELS for s in sessions)


def _what(run: Run, sessions: Sequence[Session]) -> str:
    """The model, the first tasks of a run without a model, or the kind of a race."""
    if _inner(sessions):
        return RACES_OF_MODELS[sessions[0].kind.value]
    names = [str(t.get("name") or str(t["workload"])[:12]) for t in run.tasks]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return run.model or ", ".join([*names[:MOST_NAMES], *more])


@app.command("run", epilog=example("autotensor db run 3f9a", "autotensor db run 3f9a --csv"))
def run(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A run's key, or its first digits.")],
    db: Db = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """List the sessions of a run: searches and races, their host and code, and why they ended.

    Host, user, code and command are those of the last process that worked on a session. The lines below the
    table say why the tasks of the last search got no more trials.
    """
    from autotensor.search.task_ends import ended_tasks, task_ends
    from tuning_db.records import Status

    with reading(db) as store:
        wanted = _named(key, store.runs())
        hosts = {h.uuid: h.name for h in store.hosts()}
        codes = {c.key: c for c in store.codes()}
        rows: list[tuple[object, ...]] = []
        for s in store.sessions():
            if s.run_key != wanted.key:
                continue
            trials, ok = store.count(session=s.id), store.count(session=s.id, status=Status.OK)
            row = (
                s.id, s.kind.value, s.machine, s.started.isoformat(), s.ended and s.ended.isoformat(),
                trials, ok, s.stop_reason,
            )  # fmt: skip
            who: tuple[str | None, ...] = (None,) * 5
            for o in store.openings(s.id)[-1:]:
                code = codes[o.code]
                who = (hosts[o.host], o.user_name, code.version, code.commit_sha, o.command)
            rows.append((*row, *who))
        last = store.find_session(wanted.key)
        ends = task_ends(store, last.id).values() if last is not None else ()
    put_answer(SESSIONS, rows, json, csv)
    if ends and not (json or csv):
        say()
        for line in ended_tasks(list(ends), len(wanted.tasks)):
            say(line)


def _named(key: str, known: Sequence[Run]) -> Run:
    """The run whose key begins with `key`. Raises InputError for none, or several."""
    found = [r for r in known if r.key == key] or [r for r in known if r.key.startswith(key)]
    if len(found) == 1:
        return found[0]
    said = f"{len(found)} runs have keys that begin" if found else "no run has a key that begins"
    raise InputError(f"{said} with {key!r}.", fix="`autotensor db runs` lists them.")
