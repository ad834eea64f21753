"""The document of `why.py` about a schedule, as text."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, prod
from typing import Any

from autotensor.base.counted import counted
from autotensor.cli.explaining.task_trials import decisions_text
from autotensor.cli.output import paragraph, say, table
from autotensor.insight.trace_steps import Line, compact
from autotensor.insight.units import amount, gflops, micros, percent, size

SURE = 1.645  # standard deviations that hold 90 % of a normal distribution
TOP = 6  # features of the model that are shown
OPERANDS = 4  # most columns for operands of a stage; if there are more, the smallest operands share one
MOST_STEPS = 6  # steps of a sketch that are shown
OTHERS = "others"
LEFT_OUT = "left out"  # the ablation's word for a step that is left out


def print_schedule(d: Mapping[str, Any]) -> None:
    paragraph(f"{d['name']} ({d['key'][:12]}, {d['target']}): {d['origin']}")
    for note in d["notes"]:
        paragraph(f"Note: {note}")
    if d["trial"] is not None:
        _print_trial(d)
    _head("Computes")
    for line in d["te"].splitlines():
        say(f"  {line}", hang=4)
    if d["costs"] is not None:
        _print_costs(d)
        _print_loops(d["loops"])
    _print_shared_memory(d["shared_memory"])
    _print_model(d["model"])
    if d["trial"] is not None:
        _print_assembly(d["trial"])
    if "steps" in d:
        _print_steps(d["steps"])
    if "ablation" in d:
        _print_ablation(d["ablation"])


def _head(text: str) -> None:
    say()
    say(text)


def _print_trial(d: Mapping[str, Any]) -> None:
    t, best = d["trial"], d["best"]
    line = f"{t['status']}, made by {t['made_by'] or 'an unknown part'}"
    if t["median_s"] is not None:
        line += f", {micros(t['median_s'])} us" + ("" if t["verified"] else " (unverified)")
        if best is not None and best["trial"] == t["trial"]:
            line += ", the fastest in the log"
        elif best is not None and best["median_s"]:
            ratio = t["median_s"] / best["median_s"]
            line += f", {ratio:.2f} times the time of the fastest (trial {best['trial']})"
    paragraph(line)
    if t["error"]:
        paragraph(f"error: {t['error'].splitlines()[0]}")
    if d["sketch"] is not None:
        paragraph(_sketch_text(d["sketch"]))
    paragraph(f"decisions: {decisions_text(t['decisions']) or 'none'}")


def _sketch_text(k: Mapping[str, Any]) -> str:
    """
    >>> _sketch_text({"number": 2, "of": 4, "rules": ["tile_cpu"], "other_steps": ['s["t0"].unroll("i0")']})
    'sketch 2 of 4, by the rules tile_cpu; steps that sketch 1 lacks: s["t0"].unroll("i0")'
    """
    text = f"sketch {k['number']} of {k['of']}, by the rules {', '.join(k['rules']) or 'of another version'}"
    steps = k["other_steps"]
    if not steps:
        return text
    more = f" and {len(steps) - MOST_STEPS} more" if len(steps) > MOST_STEPS else ""
    return f"{text}; steps that sketch 1 lacks: {', '.join(steps[:MOST_STEPS])}{more}"


def _print_costs(d: Mapping[str, Any]) -> None:
    c, seconds = d["costs"], d["costs"]["measured_s"]
    _head("Time, us")
    rows = [("predicted by the prior", micros(c["predicted_s"]), _times(seconds, c["predicted_s"]))]
    if d["trial"] is not None and d["trial"]["predicted_s"] is not None:
        before = d["trial"]["predicted_s"]
        rows.append(("predicted when it was chosen", micros(before), _times(seconds, before)))
    rows.append((f"bound by {c['bound_by']}", micros(c["bound_s"]), _times(seconds, c["bound_s"])))
    if seconds is not None:
        rows.insert(0, ("measured", micros(seconds), ""))
    for what, us, share in rows:
        say(f"  {what:<30}{us:>9}{share}")
    if c["of_peak"] is not None:
        fewer = f"; {d['algorithm']} needs fewer operations than this counts" if d["algorithm"] else ""
        paragraph(
            f"  {gflops(c['flops'], seconds)} GFLOP/s, {percent(c['of_peak'])} of the measured peak, "
            f"{c['peak'] / 1e9:.0f} GFLOP/s of {c['threads']} thread{'s' * (c['threads'] != 1)}{fewer}",
        )
    if counted_apart := _counted_apart(c):
        paragraph(f"  {counted_apart}")
    _head("The prior's parts of the time, us")
    behind = [f"behind L{n}" for n in range(1, 1 + len(c["stages"][0]["behind_s"]))]
    table(
        ("stage", "computing", *behind, "launch", "imbalance", "total"),
        [
            (s["stage"], micros(s["computing_s"]), *(micros(b) for b in s["behind_s"]), micros(s["launch_s"]),
             f"{s['imbalance']:.2f}", micros(s["total_s"]))
            for s in c["stages"]
        ],
    )  # fmt: skip
    if len(c["stages"]) > 1:
        paragraph("(small stages inside others overlap with them; totals do not add up)")


def _counted_apart(c: Mapping[str, Any]) -> str:
    """Says so if bound and share of peak count different operations; "" if they count the same.

    >>> _counted_apart({"bound_by": "operations", "bound_operations": 1e6, "flops": 4e6})
    "The bound counts 0.25 times the formula's operations, as a sketch with another algorithm needs no more."
    """
    if c["bound_by"] != "operations" or c["bound_operations"] >= c["flops"]:
        return ""
    share = c["bound_operations"] / c["flops"]
    peak = " GFLOP/s and the share of peak count all of them." if c.get("of_peak") is not None else ""
    return (
        f"The bound counts {share:.2g} times the formula's operations, as a sketch with another algorithm "
        f"needs no more.{peak}"
    )


def _print_shared_memory(found: list[dict[str, Any]]) -> None:
    if not found:
        return
    _head("Shared memory, trips of a warp")
    table(
        ("access", "each", "needed", "ways", "times"),
        [
            (
                f"{'store' if t['writes'] else 'load'} {t['buffer']}",
                f"{t['trips']:.3g}",
                f"{t['least']:.3g}",
                f"{t['ways']:.3g}",
                t["times"],
            )
            for t in found
        ],
    )


def _times(seconds: float | None, other: float) -> str:
    return "" if seconds is None or not other else f"   measured is {seconds / other:.2f} times that"


def _print_loops(found: Mapping[str, Any]) -> None:
    names, keep = _shown(found)
    _head(f"Loops of {found['stage']}, the stage with most operations; bytes that one run of a loop touches")
    rows = []
    for loop in found["loops"]:
        whose = "" if loop["stage"] == found["stage"] else f"{loop['stage']}:"
        rows.append(
            (whose + loop["loop"], loop["extent"] or "", loop["mark"], amount(loop["runs"]),
             *(size(b) for b in keep(loop["bytes"])), loop["fits"])
        )  # fmt: skip
    table(("loop", "extent", "", "runs", *names, "fits"), rows)
    _head("Contents of each cache, and bytes loaded into it (xN: uses of each byte)")
    rows = []
    for c in found["caches"]:
        uses = [b * r for b, r in zip(c["brought"], c["reuse"], strict=True)]
        brought = keep(c["brought"])
        cells = [
            f"{size(b)} (x{amount(u / b)})" if b else "-" for b, u in zip(brought, keep(uses), strict=True)
        ]
        rows.append((c["cache"], f"one run of {c['keeps']}", *cells))
    table(("cache", "keeps", *names), rows)


def _shown(found: Mapping[str, Any]) -> tuple[list[str], Any]:
    """The names of the columns for operands, and a function from all operands' values to these columns."""
    names = list(found["operands"])
    if len(names) <= OPERANDS:
        return names, list
    totals = found["loops"][0]["bytes"]
    first = sorted(sorted(range(len(names)), key=lambda n: -totals[n])[: OPERANDS - 1])
    rest = [n for n in range(len(names)) if n not in first]
    return (
        [*(names[n] for n in first), OTHERS],
        lambda row: [*(row[n] for n in first), sum(row[n] for n in rest)],
    )


def _print_model(m: Any) -> None:
    _head("The cost model's correction of the prior")
    if isinstance(m, str):
        paragraph(f"Nothing: {m}")
        return
    paragraph(
        f"Fitted to {counted(m['rows'], 'trial')} of {counted(m['tasks'], 'task')}, it predicts "
        f"{micros(m['predicted_s'])} us (90 % sure: "
        f"within a factor of {exp(SURE * m['spread']):.2f}). That is the prior's {micros(m['prior_s'])} us "
        f"x {m['task_factor']:.2f} in this task, and by feature:"
    )
    shown = m["contributions"][:TOP]
    rest = prod(c["factor"] for c in m["contributions"][TOP:])
    rows = [(c["feature"], f"{c['value']:.4g}", f"x {c['factor']:.3f}") for c in shown]
    table(("feature", "value", "time"), [*rows, ("all others", "", f"x {rest:.3f}")])
    paragraph("(values of sizes and times are logarithms to base 2)")


def _print_assembly(t: Mapping[str, Any]) -> None:
    facts = t["assembly"]
    if not facts:
        return
    _head("Machine code of the innermost loops")
    words = {
        "carried": "vectors carried from one iteration to the next through the stack",
        "spills": "vector moves to or from the stack",
        "fma": "fused multiply-adds",
        "loads": "other instructions that read or write memory",
        "loops": "innermost loops",
        "longest_loop": "instructions in the longest",
    }
    for name, about in words.items():
        if name in facts:
            say(f"  {facts[name]:>6}  {about}")


def _print_steps(steps: list[Mapping[str, Any]]) -> None:
    _head("Step by step; > marks the lines that a step changed")
    for n, s in enumerate(steps):
        say(f"{n:>3}  {s['call'] or 'the loops as written'}", hang=9)
        if s["note"]:
            paragraph(f"     {s['note']}")
            continue
        lines = [Line(text, new) for text, new in zip(s["nest"].splitlines(), s["new"], strict=True)]
        for line in lines if n == 0 else compact(tuple(lines)) if any(s["new"]) else ():
            say(f"     {'>' if line.new else ' '} {line.text}" if line.text else "", hang=6)


def _print_ablation(a: Mapping[str, Any]) -> None:
    _head("Without each step, measured side by side")
    if a["whole_s"] is None:
        paragraph(f"The schedule itself has no time: {a['status']}, {a['error'] or 'no text'}")
    else:
        say(f"  the whole schedule: {micros(a['whole_s'])} us")
    done = sorted((w for w in a["without"] if w["ratio"] is not None), key=lambda w: -w["ratio"])
    if done:
        rows = [(f"{'~' if w['same'] else 'x'} {w['ratio']:.2f}", _numbers(w), _instead(w)) for w in done]
        table(("time", "step", "without it"), rows)
        paragraph("(x: times the time of the whole schedule; ~: the same, within the noise)")
    for w in a["without"]:
        if w["ratio"] is None:
            why = w["reason"].splitlines()[0]
            status = "" if w["status"] == "NO_SCHEDULE" else f"{w['status']}, "
            paragraph(f"not measured: step {_numbers(w)}, {_instead(w)}: {status}{why}")


def _numbers(w: Mapping[str, Any]) -> str:
    return ",".join(map(str, w["steps"]))


def _instead(w: Mapping[str, Any]) -> str:
    """The call that is left out, or the call with its other argument."""
    if w["how"] in ("", LEFT_OUT):
        return "; ".join(w["calls"])
    return w["how"] if "=" in w["how"] else f"{'; '.join(w['calls'])} with {w['how']}"
