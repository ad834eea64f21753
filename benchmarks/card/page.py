"""The report: all facts as JSON, and one page of HTML without further files."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from card.failures import NOT_RUN, repro_of
from card.journal import Journal
from card.machine import what_to_do
from card.stages import STAGES, Setting

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse; margin: .5rem 0 }
td { border: 1px solid #ccc; padding: .15rem .5rem; text-align: left }
pre { background: #f6f6f6; padding: .6rem; overflow: auto }
.bad { color: #a00 }
.good { color: #070 }
"""


def report(
    journal: Journal, setting: Setting, planted: str | None, note: str, here: Mapping[str, Any]
) -> dict[str, Any]:
    """Stages with their rows, failures with their repros. planted: see `repro`; here: see machine.py."""
    settled = journal.settled()
    stages: dict[str, Any] = {}
    failures = []
    for (stage, item), entry in settled.items():
        found = stages.setdefault(stage, {"right": 0, "failed": 0, "rows": {}})
        if entry["status"] == "ok":
            found["right"] += 1
            found["rows"][item] = entry["row"]
            continue
        found["failed"] += 1
        shown = repro_of(entry, setting, planted)
        failures.append({**{k: v for k, v in entry.items() if k != "status"}, "repro": shown})
    card = stages.get("card", {}).get("rows", {}).get("card")
    order = {name: n for n, name in enumerate(STAGES)}
    return {
        "note": note,
        "target": setting.target,
        "card": card,
        "here": here,
        "to_do": [] if card else what_to_do(here),
        "stages": dict(sorted(stages.items(), key=lambda s: order[s[0]])),
        "failures": failures,
    }


def page(result: Mapping[str, Any]) -> str:
    """The report as a page of HTML."""
    out = [f"<!doctype html><meta charset=utf-8><title>autotensor on a card</title><style>{_STYLE}</style>"]
    out += [
        "<h1>autotensor on a card</h1>",
        f"<p>{_text(result['note'])} Target: {_text(result['target'])}.</p>",
    ]
    if result["card"]:
        out.append(_table([[k, v] for k, v in result["card"].items()]))
    if result["to_do"]:
        steps = "".join(f"<li>{_text(step)}" for step in result["to_do"])
        out.append(f"<h2>What to do</h2><ul>{steps}</ul>")
    out += ["<h2>What is on this machine</h2>", _table([[k, v] for k, v in result["here"].items()])]
    counts = [[name, s["right"], s["failed"]] for name, s in result["stages"].items()]
    out += ["<h2>Stages</h2>", _table([["stage", "right", "failed"], *counts])]
    shown = [f for f in result["failures"] if f["kind"] != NOT_RUN]
    if shown:
        out.append(
            "<h2>Failures</h2><p>Each program runs one item. Please send this page, or the JSON, back.</p>"
        )
    if len(shown) < len(result["failures"]):
        out.append(
            f"<p>{len(result['failures']) - len(shown)} items were not run: there is no card that fits.</p>"
        )
    for f in shown:
        head = f"<h3 class=bad>{_text(f['stage'])}/{_text(f['item'])}: {_text(f['kind'])}</h3>"
        trace = "\n".join(f.get("trace", ()))
        out.append(f"{head}<p>{_text(f['what'])}</p><pre>{_text(f['repro'])}</pre>")
        out += [f"<details><summary>trace</summary><pre>{_text(trace)}</pre></details>"] if trace else []
    out += [] if result["failures"] else ["<p class=good>Nothing failed.</p>"]
    for name, stage in result["stages"].items():
        if name != "card" and stage["rows"]:
            keys = list(dict.fromkeys(k for row in stage["rows"].values() for k in row))
            rows = [[item, *(row.get(k, "") for k in keys)] for item, row in stage["rows"].items()]
            out += [f"<h2>{_text(name)}</h2>", _table([["item", *keys], *rows])]
    return "\n".join(out) + "\n"


def _table(rows: list[list[Any]]) -> str:
    lines = ("".join(f"<td>{_text(_short(c))}" for c in row) for row in rows)
    return "<table>" + "".join(f"<tr>{line}" for line in lines) + "</table>"


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def _text(value: Any) -> str:
    return html.escape(str(value))
