"""Names of loops as people write them: `yo`, `yi` for the halves of `y`, with the stage only if needed."""

from __future__ import annotations

from collections import Counter

from autotensor.schedule.extents import leaf_var
from autotensor.schedule.state import Fuse, Split, Stage, State


def display_names(state: State) -> dict[str, str]:
    """The printed name of each loop variable of the state. No two variables have the same name."""
    pretty = {s.name: _stage_names(s) for s in state.live()}
    counts = Counter(short for names in pretty.values() for short in set(names.values()))
    taken = {b.name for b in (*state.dag.inputs, *(b for s in state.stages for b in s.op.buffers))}
    out: dict[str, str] = {}
    for stage, names in pretty.items():
        for axis, short in names.items():
            unique = counts[short] == 1 and short not in taken
            out[leaf_var(stage, axis).name] = short if unique else f"{plain(stage)}_{short}"
    return out if len(set(out.values())) == len(out) else {}


def plain(name: str) -> str:
    """A derived name, changed into an identifier."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name).strip("_")


def _stage_names(stage: Stage) -> dict[str, str]:
    """Short names of all axes of a stage that may become variables."""
    names = {a.name: a.name for a in stage.op.all_axes}
    for relation in stage.relations:
        match relation:
            case Split(parent, children, _, _) if len(children) == 2:
                base = names[parent]
                names[children[0]], names[children[1]] = f"{base}o", f"{base}i"
            case Split(parent, children, _, _):
                names.update({c: f"{names[parent]}{n}" for n, c in enumerate(children)})
            case Fuse(a, b, fused):
                names[fused] = f"{names[a]}_{names[b]}"
    if len(set(names.values())) != len(names):
        return {n: plain(n) for n in names}
    return {n: plain(short) for n, short in names.items()}
