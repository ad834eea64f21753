"""Sketch rules: expert knowledge that turns a stage into partial sketches.

A rule looks at one stage of a partly scheduled state. It returns extensions, or nothing if it does not apply.
Rules are tried in the order of a table (`RULES` of schedules/rules); the first rule that returns extensions
decides the stage. A rule may be a generator, because a default schedule takes only the first extension.

A rule of another package names the rule before or after which it comes. Its position does not depend on the
order of imports: two rules for the same position are an error.

    @sketch_rule("mine", before="tile_cpu")      … axis_last, mine, tile_cpu …
    [project.entry-points."autotensor.rules"]    for a package: the function is found before rules run
    mine = "their_module:mine"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from autotensor.base.doors import Door
from autotensor.base.errors import ScheduleError
from autotensor.base.registry import suggest
from autotensor.base.target import GPU_KINDS, Target
from autotensor.schedule.primitives.compute_at import ComputeAt
from autotensor.schedule.sketch import Hole
from autotensor.schedule.state import Stage, State
from autotensor.schedule.step import Step


@dataclass(frozen=True, slots=True)
class Extension:
    """Steps and holes to append; `done` are the stages that need no further rule.

    `defer`: the rules look at the stage again after all other stages are done, if it has no steps yet.
    `stays`: stages that keep their own loops, so no rule may inline them. `onward`: after the steps, this
    extension stands for the extensions of the later rules. `again`: stages that the steps have made anew;
    they go through all rules. `inside`: puts stages into loops of this stage; the rules then give them loops
    for one core.
    """

    steps: tuple[Step, ...] = ()
    holes: tuple[Hole, ...] = ()
    done: tuple[str, ...] = ()
    defer: bool = False
    stays: tuple[str, ...] = ()
    onward: bool = False
    again: tuple[str, ...] = ()
    inside: tuple[ComputeAt, ...] = ()


def in_turn(ways: Sequence[Expand], state: State, stage: Stage, target: Target) -> Iterator[Extension]:
    """The extensions of the first way that has any, as if each way were a rule: `onward` alone stands for the
    extensions of the ways after it, and then for those of the rules."""
    for n, way in enumerate(ways, 1):
        found = iter(way(state, stage, target))
        first = next(found, None)
        if first is None:
            continue
        for e in chain([first], found):
            rest = in_turn(ways[n:], state, stage, target) if e.onward and not e.steps else iter(())
            yield next(rest, e)
            yield from rest
        return


CPU, GPU = ("llvm", "interp"), GPU_KINDS
ANY = (*CPU, *GPU)

Expand = Callable[[State, Stage, Target], Iterable[Extension]]


@dataclass(frozen=True, slots=True)
class SketchRule:
    """A named rule."""

    name: str
    expand: Expand
    devices: tuple[str, ...] = CPU  # kinds of targets of the rule
    # For a rule of another package: the rule comes directly after the rule `after`, or directly before the
    # rule `before`. With both, it comes directly before the one and somewhere after the other.
    after: str = ""
    before: str = ""
    weighed: bool = False  # the prior compares the answers by their whole sketches, and may put another first


OUTSIDE: dict[str, SketchRule] = {}  # rules of other packages, which are not in the table
BROUGHT: Door[Expand] = Door(
    "function under @sketch_rule",
    "autotensor.rules",
    lambda thing: any(thing is rule.expand for rule in OUTSIDE.values()),
    error=ScheduleError,
)


def sketch_rule(
    name: str, *, after: str = "", before: str = "", devices: tuple[str, ...] = CPU
) -> Callable[[Expand], Expand]:
    """Registers the decorated function as a sketch rule for these kinds of targets, before or after another
    rule.

    Raises ScheduleError if no other rule is named, or if another function has this name.
    """
    if not after and not before:
        raise ScheduleError(
            f"sketch rule {name!r} does not say where it comes.",
            fix="Give after= or before= another's name.",
        )

    def register(fn: Expand) -> Expand:
        known = OUTSIDE.get(name)
        if known is not None and _origin(known.expand) != _origin(fn):
            raise ScheduleError(f"sketch rule {name!r} is registered twice.", fix="Take another name.")
        OUTSIDE[name] = SketchRule(name, fn, devices, after, before)
        return fn

    return register


@lru_cache(maxsize=1)
def bring() -> None:
    """Imports the rules of installed packages, once. Raises ScheduleError for an entry point that is not a
    rule."""
    for name in BROUGHT.names():
        BROUGHT.get(name)


def _origin(fn: Expand) -> tuple[str, str]:
    return fn.__module__, fn.__qualname__


@lru_cache(maxsize=16)
def in_order(table: tuple[SketchRule, ...], outside: tuple[SketchRule, ...]) -> tuple[SketchRule, ...]:
    """The rules of the table and those of other packages in one order, which does not depend on the order of
    registration.

    Raises ScheduleError for an unknown neighbour, for two rules at one position, and for circles.
    """
    placed = list(table)
    waiting = sorted(outside, key=lambda r: r.name)
    known = tuple(r.name for r in (*table, *outside))
    taken: dict[tuple[str, str], str] = {}
    for rule in waiting:
        if known.count(rule.name) > 1:
            raise ScheduleError(
                f"sketch rule {rule.name!r} is in the table already.", fix="Take another name."
            )
        for other in (rule.after, rule.before):
            if other and other not in known:
                raise ScheduleError(
                    f"sketch rule {rule.name!r} is placed next to {other!r}, which is unknown.",
                    fix=suggest(other, known),
                )
        place = ("before", rule.before) if rule.before else ("after", rule.after)
        first = taken.setdefault(place, rule.name)
        if first != rule.name:
            raise ScheduleError(
                f"sketch rules {first!r} and {rule.name!r} both stand right {place[0]} {place[1]!r}.",
                fix=f"Say which is first: before={rule.name!r} for {first!r}, or the other way round.",
            )
    while waiting:
        names = [r.name for r in placed]
        ready = next((r for r in waiting if (r.before or r.after) in names), None)
        if ready is None:
            circle = ", ".join(repr(r.name) for r in waiting)
            raise ScheduleError(
                f"sketch rules {circle} only refer to each other.",
                fix="Place one of them next to a rule of schedules/rules.",
            )
        at = names.index(ready.before) if ready.before else names.index(ready.after) + 1
        placed.insert(at, ready)
        waiting.remove(ready)
    names = [r.name for r in placed]
    for rule in outside:
        if rule.after and rule.before and names.index(rule.after) > names.index(rule.name):
            raise ScheduleError(
                f"sketch rule {rule.name!r} cannot stand after {rule.after!r} and before {rule.before!r}, "
                "which come in the other order."
            )
    return tuple(placed)
