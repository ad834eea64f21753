"""`autotensor fleet`: starts a worker that measures for other machines; lists and checks workers."""

from __future__ import annotations

import os
import platform
import sys
from typing import Annotated, Any

import typer

from autotensor.base.python_path import python_path
from autotensor.cli.options import AsJson, Threads, example, new_app
from autotensor.cli.output import put_json, say, table, tell

app = new_app("Measure on several machines, by dask.distributed (pip install 'autotensor[cluster]').")
CHECK_S = 4.0  # duration of the races of equal kernels
MOST_CLAIMED = 0.2  # share of equal pairs for which a worker may claim a difference

Address = Annotated[
    str, typer.Argument(metavar="URL", help="The scheduler: tls://HOST:8786, or a plain one on localhost.")
]


@app.command(epilog=example("autotensor fleet worker tls://scheduler:8786 --threads 8"))
def worker(
    scheduler: Address,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Unique among workers. Default: host and process.")
    ] = None,
    threads: Threads = None,
    check: Annotated[
        bool, typer.Option(help="Race equal kernels first; a machine that claims differences may not join.")
    ] = True,
) -> None:
    """Measure for a fleet until stopped. The worker determines the class of its machine itself."""
    from autotensor.base.errors import InputError
    from autotensor.search.fleet.addresses import checked_address
    from autotensor.search.fleet.dask_engine import DaskEngine
    from autotensor.search.fleet.engine import own_tag
    from autotensor.search.fleet.machine_class import EXCLUSIVE, class_here
    from autotensor.search.fleet.on_worker import THREADS, check_equal_kernels

    address = checked_address(scheduler)
    DaskEngine(address).close()  # raises if no scheduler answers: dask's own error would be long
    mine, called = class_here(threads), name or f"{platform.node() or 'host'}-{os.getpid()}"
    if check:
        tell(f"Equal kernels are raced for {CHECK_S:.0f} s and more, to see whether this machine is quiet.")
        pairs, claimed, told = check_equal_kernels(mine.target, CHECK_S)
        if claimed > MOST_CLAIMED * pairs:
            raise InputError(
                f"this machine claims differences between equal kernels ({claimed} of {pairs} pairs), so it "
                "cannot join.",
                fix="Other programs may disturb it: see autotensor doctor --aa.",
            )
        tell(f"Equal kernels: {claimed} of {pairs} told apart; differences show from {told:.1%} on.")
    tell(f"Worker {called} of class {mine}.")
    os.environ[THREADS] = str(mine.target.num_cores)
    os.environ["PYTHONPATH"] = python_path()
    tags = f"{EXCLUSIVE}=1 {mine.tag}=1 {own_tag(called)}=1"
    words = ["--nworkers", "1", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
    words += ["--name", called, "--resources", tags]
    words += ["--host", "127.0.0.1"] if address.startswith("tcp:") else []
    program = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", address, *words]
    os.execv(program[0], program)


@app.command(epilog=example("autotensor fleet status tls://scheduler:8786"))
def status(scheduler: Address, json: AsJson = False) -> None:
    """List the workers: machines, classes, versions of the code."""
    from autotensor.api.fleet import Fleet

    with Fleet(scheduler) as fleet:
        rows = [_row(w, c, who, fleet.engine.workers().get(w, ())) for w, (c, who) in _workers(fleet)]
    if json:
        put_json(rows)
    elif not rows:
        say("No workers.")
    else:
        table(tuple(rows[0]), [tuple(r.values()) for r in rows])


@app.command(epilog=example("autotensor fleet check tls://scheduler:8786"))
def check(scheduler: Address, json: AsJson = False) -> None:
    """Race equal kernels on every worker; print the smallest visible difference and false claims."""
    from autotensor.api.fleet import Fleet
    from autotensor.search.fleet.engine import own_tag
    from autotensor.search.fleet.on_worker import check_equal_kernels

    with Fleet(scheduler) as fleet:
        asked = {
            w: fleet.engine.submit(check_equal_kernels, c.target, CHECK_S, tag=own_tag(w))
            for w, (c, _) in _workers(fleet)
            if own_tag(w) in fleet.engine.workers().get(w, ())
        }
        found = {w: a.result()[1] for w, a in asked.items()}
    rows = [
        {
            "worker": w,
            "pairs": pairs,
            "told_apart": claimed,
            "sees_from": told,
            "good": claimed <= MOST_CLAIMED * pairs,
        }
        for w, (pairs, claimed, told) in found.items()
    ]
    if json:
        return put_json(rows)
    for r in rows:
        verdict = "good" if r["good"] else "BAD: it tells equal kernels apart"
        say(f"{r['worker']}: {verdict}; {r['told_apart']} of {r['pairs']} pairs, sees {r['sees_from']:.1%}")


def _workers(fleet: Any) -> list[Any]:
    return sorted(fleet.engine.described().items(), key=lambda item: str(item[0]))


def _row(name: str, machine_class: Any, who: Any, tags: Any) -> dict[str, Any]:
    return {
        "worker": name,
        "host": who.host.name,
        "class": machine_class.tag,
        "state": "measures" if machine_class.tag in tags else "quarantine, or wrongly tagged",
        "processor": machine_class.machine.cpu_model,
        "threads": machine_class.target.num_cores,
        "version": who.code.version,
        "code": machine_class.code[:8],
    }
