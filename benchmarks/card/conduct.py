"""Runs stages in child processes with time limits. If a child fails, this is recorded for its current item.

    conduct(setting, journal, stages, limits)      continues the journal

Limits count a child's own time (own_time.py), so that a busy machine causes no failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from card.failures import HANG, KILLED, NOT_RUN, TIME_LIMIT
from card.journal import Journal
from card.own_time import OwnTime
from card.stages import Setting, Stage

ROOT = Path(__file__).parents[2]
LOOK_S = 0.05  # seconds between two looks at a child
SIMULATED = 20.0  # factor for a stage's limits if NumPy executes kernels
_NO_TIME = "its stage, or the whole, had no time left; its program shows it alone, perhaps right"
START_S = 60.0  # seconds that a child may take before its first item: imports, and the driver's start


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds for everything, a stage and an item. None: the limit of the stage itself."""

    whole_s: float
    stage_s: float | None = None
    item_s: float | None = None


def conduct(
    setting: Setting,
    journal: Journal,
    stages: Iterable[Stage],
    limits: Limits,
    environment: Mapping[str, str],
    only: tuple[str, ...] = (),
) -> None:
    """Runs the items that are left. only: "stage/item" of the items to run; () for all."""
    clock = OwnTime()
    for stage in stages:
        items = [
            i for i in stage.names(setting) if not only or f"{stage.name}/{i}" in only or stage.name == "card"
        ]
        if stage.name != "card" and _no_card(journal):
            _settle(journal, stage, items, NOT_RUN, "there is no card that fits: see stage card")
            continue
        patience = SIMULATED if setting.small else 1.0
        stage_s, item_s = limits.stage_s or stage.limit_s * patience, limits.item_s or stage.item_s * patience
        end = min(limits.whole_s, clock.look() + stage_s)
        while left := _left(journal, stage, items):
            if clock.look() >= end:
                _settle(journal, stage, left, TIME_LIMIT, _NO_TIME)
                break
            _child(setting, journal, stage, left, clock, end, environment, min(item_s, stage_s))


def _left(journal: Journal, stage: Stage, items: list[str]) -> list[str]:
    settled = journal.settled()
    return [i for i in items if (stage.name, i) not in settled]


def _no_card(journal: Journal) -> bool:
    return journal.settled().get(("card", "card"), {}).get("status") == "failed"


def _settle(journal: Journal, stage: Stage, items: list[str], kind: str, what: str) -> None:
    for item in _left(journal, stage, items):
        journal.note(stage=stage.name, item=item, status="failed", kind=kind, what=what)


def _child(
    setting: Setting,
    journal: Journal,
    stage: Stage,
    items: list[str],
    clock: OwnTime,
    end: float,
    environment: Mapping[str, str],
    item_s: float,
) -> None:
    """Runs items in one child until it ends. An item that the child has begun and not ended is recorded as
    failed."""
    command = [sys.executable, "-m", "card.child", str(journal.file), stage.name, setting.target]
    command += ["1" if setting.small else "0", str(setting.trials)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment}, cwd=ROOT
    )
    assert child.stdin is not None
    assert child.stderr is not None
    os.set_blocking(child.stderr.fileno(), False)
    said = b""
    try:
        child.stdin.write("".join(f"{i}\n" for i in [*items, ""]).encode())
        child.stdin.flush()
    except BrokenPipeError:
        pass  # the child has already ended; the code below records how
    seen, since, verdict = -1, clock.look(), ""
    while child.poll() is None and not verdict:
        time.sleep(LOOK_S)
        said = (said + (child.stderr.read() or b""))[-2000:]
        now, count = clock.look(child.pid), journal.file.stat().st_size if journal.file.exists() else 0
        if count != seen:
            seen, since = count, now
        began = journal.begun(stage.name)
        if now - since > (item_s if began else START_S):
            verdict = HANG
        elif now > end:
            verdict = TIME_LIMIT
    if verdict:
        child.kill()
    code = child.wait()
    said = (said + (child.stderr.read() or b""))[-2000:]
    child.stdin.close()
    child.stderr.close()
    open_item = journal.begun(stage.name)
    if open_item is None and _left(journal, stage, items) == items:
        open_item = items[0]  # the child has begun no item; the next child would not begin one, either
    if open_item is not None:
        kind = verdict or (KILLED if code < 0 else "child ended")
        words = (
            f"ended with {code}"
            if not verdict
            else f"nothing was heard for {item_s:g} s, or its stage's time is up"
        )
        journal.note(
            stage=stage.name,
            item=open_item,
            status="failed",
            kind=kind,
            what=words,
            trace=said.decode(errors="replace").splitlines()[-12:],
            **({"limit_s": item_s} if verdict else {}),
        )
