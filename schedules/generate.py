"""Sketches of a whole computation: rules applied stage by stage, from the last to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import chain, islice
from math import inf
from traceback import extract_tb

import numpy as np

from autotensor.base import log, switches
from autotensor.base.errors import ScheduleError
from autotensor.base.plugins import plugin
from autotensor.base.target import Target
from autotensor.schedule.loop_picture import picture
from autotensor.schedule.primitives.cache import CacheWrite
from autotensor.schedule.primitives.compute_at import ComputeAt, Inline
from autotensor.schedule.primitives.layout import Layout
from autotensor.schedule.primitives.mark import Parallel
from autotensor.schedule.primitives.store_at import StoreAt
from autotensor.schedule.sketch import Hole, Sketch
from autotensor.schedule.state import At, Inlined, Ref, Root, Stage, State
from autotensor.schedule.step import Step, refs
from autotensor.schedule.trace import Trace
from autotensor.te.dag import ComputeDAG
from schedules import algorithms as _algorithms  # noqa: F401  # registers them
from schedules.kit.stage_analysis import untouched
from schedules.prior.predict import predict
from schedules.prior.rates import Rates
from schedules.registry import OUTSIDE, Extension, SketchRule, bring, in_order
from schedules.rules import RULES

MAX_SKETCHES = 64  # most sketches of one computation; long chains with many alternatives would have more
# A structure comes before the one that the rules prefer if the prior estimates that it is this many times as
# fast. In 700 drawn programs, structures with estimates of 1.1 to 1.25 were 0.8 to 2.1 times as fast, and
# those with higher estimates 1.0 to 1.8 (Xeon, one core, 2026-11).
SURE = 1.25
MOST_WEIGHED = 4  # most answers for one stage that are compared
KEPT = 128  # number of computations whose sketches are remembered; a large model has fifty


@dataclass(frozen=True, slots=True)
class _Partial:
    """A sketch under construction. Stages in `done` need no rule; stages in `waiting` come last."""

    sketch: Sketch
    state: State
    done: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    stays: frozenset[str] = frozenset()  # stages that are not inlined
    inside: tuple[ComputeAt, ...] = ()  # places for stages that no rule has decided yet
    choices: tuple[int, ...] = ()  # index of each extension that was taken; small indices are preferred

    def is_open(self, place: ComputeAt) -> bool:
        """Whether the stage must still be moved to this place."""
        return isinstance(self.state.stage(place.stage).place, Root)

    @property
    def seen(self) -> State:
        """The state that rules read: stages without a decision are at root, wherever they will be
        computed."""
        state = self.state
        for p in self.inside:
            stage = state.stage(p.stage)
            if p.stage not in self.done and isinstance(stage.place, At) and not stage.touched:
                state = state.with_stage(replace(stage, place=Root()))
        return state


@dataclass(frozen=True, slots=True)
class _Answer:
    """One extension that a rule returned for a stage."""

    reached: _Partial
    weighed: bool = False  # whether the prior compares it with the other answers
    # set if this answer stands for the answers of the later rules
    stage: str = ""
    last_call: bool = False
    onward: tuple[SketchRule, ...] | None = None

    def expanded(self, target: Target) -> Iterator[_Answer]:
        """The answers of the later rules, for which this answer stands."""
        assert self.onward is not None
        stage = self.reached.seen.stage(self.stage)
        return _answers(self.reached, stage, target, self.last_call, self.onward)

    def partials(self, target: Target) -> Iterator[_Partial]:
        """All partial sketches that follow from this answer, in the rules' order."""
        if self.onward is None:
            yield self.reached
            return
        for answer in self.expanded(target):
            yield from answer.partials(target)


Weigh = Callable[[Sketch], float]  # seconds of a finished sketch


def generate(dag: ComputeDAG, target: Target) -> tuple[Sketch, ...]:
    """All sketches that the rules make for a computation: first the preferred one, then the others in the
    rules' order. The result is never empty.

    If the blocks of a GPU target are iterations on a processor's cores, the sketches are that processor's.
    The sketches of the last computations are kept, because tuning a model needs them four times for each
    task. A warning says so if a rule of another package leaves a single schedule where others were possible.
    """
    target, tried = target.processor(), rules()
    made = _generated(dag, target, tried)
    if OUTSIDE and _schedules(made) == 1:
        _warn_of_one(dag, target, tried, made[0].made_by)
    return made


def _schedules(sketches: Sequence[Sketch]) -> int:
    return sum(s.size for s in sketches)


def _warn_of_one(
    dag: ComputeDAG, target: Target, tried: tuple[SketchRule, ...], made_by: Sequence[str]
) -> None:
    """Warns if rules of other packages are the reason why there is nothing to search."""
    outside = [r for r in tried if r.name in OUTSIDE and r.name in made_by]
    without = _schedules(_generated(dag, target, tuple(r for r in tried if r not in outside)))
    if outside and without > 1:
        names = " and ".join(map(described, outside))
        _warn_once(
            f"Sketch rule {names} leaves one schedule of {', '.join(s.name for s in dag.stages)}, so nothing "
            f"can be searched; the other rules have {without:,}. Give it a Hole or a second Extension."
        )


def preferred(dag: ComputeDAG, target: Target, without: frozenset[str] = frozenset()) -> Sketch:
    """The first sketch of `generate`, made alone: the rules' first choices, except where the prior prefers
    another choice. without: names of rules that are left out."""
    return _preferred(dag, target.processor(), tuple(r for r in rules() if r.name not in without))


def is_one_nest(dag: ComputeDAG, target: Target) -> bool:
    """Whether the preferred sketch computes all stages except constants inside the loops of one stage."""
    state = structure(preferred(dag, target), dag)
    roots = [s.name for s in state.stages if isinstance(s.place, Root)]
    return len(set(roots) - state.constant_stages()) == 1


def rules() -> tuple[SketchRule, ...]:
    """All sketch rules in their order. Raises the same ScheduleErrors as `bring` and `in_order`."""
    bring()
    return in_order(RULES, tuple(OUTSIDE.values()))


def outside_rules(dag: ComputeDAG, target: Target) -> tuple[SketchRule, ...]:
    """The rules of other packages that made the default schedule."""
    if not OUTSIDE or plugin(target.kind) is not None:
        return ()
    made_by = preferred(dag, target).made_by
    return tuple(r for name, r in OUTSIDE.items() if name in made_by)


def brought(target: Target) -> tuple[str, ...]:
    """The names of other packages' rules for this target, sorted."""
    return tuple(sorted(r.name for r in rules() if r.name in OUTSIDE and target.kind in r.devices))


@lru_cache(maxsize=KEPT)
def _preferred(dag: ComputeDAG, target: Target, rules: tuple[SketchRule, ...]) -> Sketch:
    weigh = partial(_seconds, dag, target) if target.kind == "llvm" else None
    sketch = _finished(_Partial(Sketch(), State.initial(dag)), target, rules, weigh).sketch
    log.at(
        6, lambda: f"rules for {', '.join(s.name for s in dag.stages)}: {', '.join(sketch.made_by) or 'none'}"
    )
    return sketch


def _finished(
    current: _Partial, target: Target, rules: tuple[SketchRule, ...], weigh: Weigh | None = None
) -> _Partial:
    """Decides the remaining stages by the rules' first answers, or by answers that `weigh` prefers."""
    while True:
        stage, last_call = _next_stage(current)
        if stage is None:
            return current
        answers = _answers(current, stage, target, last_call, rules)
        current = _first(next(answers), answers, target, rules, weigh)


def _first(
    first: _Answer,
    others: Iterator[_Answer],
    target: Target,
    rules: tuple[SketchRule, ...],
    weigh: Weigh | None,
) -> _Partial:
    """The partial sketch after the first answer, or after one that `weigh` finds better."""
    if weigh is not None and first.weighed:
        every = list(islice(chain([first], others), MOST_WEIGHED))
        first = _best(every, target, rules, weigh) if len(every) > 1 else first
    if first.onward is None:
        return first.reached
    onward = first.expanded(target)
    return _first(next(onward), onward, target, rules, weigh)


def _best(answers: Sequence[_Answer], target: Target, rules: tuple[SketchRule, ...], weigh: Weigh) -> _Answer:
    """The answer that seems fastest, if it is better by at least SURE; otherwise the first answer. The
    remaining stages of each get the rules' first answers."""
    reached = (_first(a, iter(()), target, rules, None) for a in answers)
    seconds = [weigh(_finished(p, target, rules).sketch) for p in reached]
    best = min(seconds)
    return answers[seconds.index(best)] if SURE * best < seconds[0] else answers[0]


@lru_cache(maxsize=KEPT)
def _seconds(dag: ComputeDAG, target: Target, sketch: Sketch) -> float:
    return seconds_of(dag, target, (sketch,))[0]


def seconds_of(dag: ComputeDAG, target: Target, sketches: Sequence[Sketch]) -> list[float]:
    """The prior's seconds for sketches of the same steps with their default decisions; infinite if the loops
    cannot be made."""
    made = [{Ref(h.name, n): v for h in s.holes for n, v in enumerate(h.default)} for s in sketches]
    values = {ref: np.array([one[ref] for one in made]) for ref in made[0]}
    rates = replace(Rates.guess(target), warm_weights=True)
    try:
        seconds, _ = predict(picture(structure(sketches[0], dag), values, len(made)), target, rates)
    except ScheduleError:
        return [inf] * len(made)
    return [float(s) for s in seconds]


@lru_cache(maxsize=KEPT)
def _generated(dag: ComputeDAG, target: Target, rules: tuple[SketchRule, ...]) -> tuple[Sketch, ...]:
    waiting = [_Partial(Sketch(), State.initial(dag))]
    finished: list[_Partial] = []
    while waiting:
        current = waiting.pop(0)
        stage, last_call = _next_stage(current)
        if stage is None:
            finished.append(current)
            continue
        waiting = [*waiting, *_expand(current, stage, target, last_call, rules)][:MAX_SKETCHES]
    ordered = sorted(finished, key=lambda p: p.choices)  # some partial sketches took more steps than others
    first = _preferred(dag, target, rules)
    return tuple(dict.fromkeys((first, *(p.sketch for p in ordered))))


def _next_stage(current: _Partial) -> tuple[Stage | None, bool]:
    """The last stage that no rule has decided; after these, stages that waited and have no steps yet
    (True)."""
    state = current.seen
    open_ = [
        s for s in reversed(state.stages) if s.name not in current.done and not isinstance(s.place, Inlined)
    ]
    fresh = next((s for s in open_ if s.name not in current.waiting), None)
    if fresh is not None:
        return fresh, False
    return next((s for s in open_ if untouched(s) and not state.attached(s.name)), None), True


def _expand(
    current: _Partial,
    stage: Stage,
    target: Target,
    last_call: bool,
    rules: tuple[SketchRule, ...],
) -> Iterator[_Partial]:
    """The partial sketches by the first rule that has answers for a stage, in the rule's order."""
    for answer in _answers(current, stage, target, last_call, rules):
        yield from answer.partials(target)


def _answers(
    current: _Partial,
    stage: Stage,
    target: Target,
    last_call: bool,
    rules: tuple[SketchRule, ...],
) -> Iterator[_Answer]:
    """The answers of the first rule that has answers for a stage, in the rule's order."""
    done, seen = current.done | {stage.name}, current.seen
    if any(place.stage == stage.name for place in current.inside):
        target = target.with_threads(1)
    for at, rule in enumerate(rules):
        if target.kind not in rule.devices or 0 in (a.extent for a in stage.op.axes):
            continue
        if rule.name == "inline" and stage.name in current.stays:
            continue
        found = _applicable(rule, current, seen, stage, target)
        first = next(found, None)
        if first is None or (last_call and first[0].defer):
            continue
        if first[0].defer:
            yield _Answer(replace(current, waiting=current.waiting | {stage.name}))
            return
        for n, (e, state) in enumerate(chain([first], found)):
            here = replace(
                current,
                sketch=current.sketch.extended(e.steps, e.holes, rule.name) if e.steps else current.sketch,
                state=state,
                stays=current.stays | set(e.stays),
                inside=(*current.inside, *e.inside),
                choices=(*current.choices, n),
            )
            if e.onward:
                yield _Answer(here, rule.weighed, stage.name, last_call, rules[at + 1 :])
            else:
                decided = (done | set(e.done)) - set(e.stays) - set(e.again)
                yield _Answer(replace(here, done=decided), rule.weighed)
        return
    yield _Answer(replace(current, done=done))


def _applicable(
    rule: SketchRule, current: _Partial, seen: State, stage: Stage, target: Target
) -> Iterator[tuple[Extension, State]]:
    """The rule's extensions, each with the resulting state. seen: `current.seen`.

    If a rule raises, or its steps cannot be applied, the rule has no further answers for the stage: a default
    always exists, and a rule only makes it faster. With AUTOTENSOR_STRICT=1, the error is raised.
    """
    try:
        for e in rule.expand(seen, stage, target):
            _check_holes(e, current.sketch.holes, rule.name)
            placed = _placed(e, stage.name, current)
            if placed is not None:
                yield placed, _applied(current.state, placed.steps)
    except Exception as error:
        if switches.strict():
            raise
        _warn_once(
            f"Sketch rule {described(rule, error)} fails on stage {stage.name!r} and is left out "
            f"({type(error).__name__}: {error}); the kernel may be slower."
            + ("" if rule.name in OUTSIDE else " Please report this.")
        )


_warn_once = lru_cache(maxsize=256)(log.warn)  # rules run for the default and again for the sketches


def described(rule: SketchRule, error: BaseException | None = None) -> str:
    """The rule's name and, for a rule of another package, the file and line: of the error, if the rule raised
    it, else of the rule."""
    code = getattr(rule.expand, "__code__", None)
    if code is None or rule.name not in OUTSIDE:
        return rule.name
    frames = extract_tb(error.__traceback__) if error is not None else ()
    lines = [f.lineno for f in frames if f.filename == code.co_filename]
    return f"{rule.name} ({code.co_filename}:{lines[-1] if lines else code.co_firstlineno})"


def _check_holes(e: Extension, known: tuple[Hole, ...], rule: str) -> None:
    """Raises ScheduleError for a step whose hole is not among the extension's holes and the holes before."""
    declared = {h.name for h in (*known, *e.holes)}
    for step in e.steps:
        for ref in refs(step):
            if ref.hole not in declared:
                raise ScheduleError(
                    f"rule {rule!r}: {type(step).__name__} mentions the undeclared hole {ref.hole!r}.",
                    fix="Give the Hole to the Extension: Extension(steps, holes).",
                )


def _placed(e: Extension, stage: str, current: _Partial) -> Extension | None:
    """The extension with its stages at the given places, unless the extension has its own places for them.

    Their readers are put there before. Loops at these places run on one core. The result is None if stages
    would slide along such loops, because stages slide only along loops at root.
    """
    own = {s.stage for s in e.steps if isinstance(s, ComputeAt | Inline)}
    decided = {*e.done, *(() if e.onward else (stage,))} - own
    mine = [p for p in current.inside if p.stage in decided]
    if not mine or not e.steps:
        return e
    if any(isinstance(s, StoreAt) for s in e.steps):
        return None
    steps: list[Step] = [s for s in e.steps if not isinstance(s, Parallel)]
    for p in filter(current.is_open, mine):  # producers first: their readers' steps are put before theirs
        # before the stage's loops, but after steps that make new stages of it and need it at root
        its = (n for n, s in enumerate(steps) if _of(s) == p.stage and not isinstance(s, CacheWrite))
        steps.insert(next(its, len(steps)), p)
    return replace(e, steps=(*_readers({p.stage for p in mine}, current), *steps))


def _readers(stages: set[str], current: _Partial) -> Iterator[ComputeAt]:
    """The steps that put readers of these stages at their given places, if no rule has decided the readers
    yet."""
    waiting: list[ComputeAt] = []
    for p in filter(current.is_open, current.inside):  # producers first
        producers = map(current.state.producer, current.state.stage(p.stage).op.reads())
        if p.stage not in stages and any(s is not None and s.name in stages for s in producers):
            stages = {*stages, p.stage}
            waiting.append(p)
    yield from reversed(waiting)


def _of(step: Step) -> str:
    """The stage that a step changes; for a layout, the tensor."""
    return str(getattr(step, fields(step)[0].name))


def structure(sketch: Sketch, dag: ComputeDAG) -> State:
    """The loops of a sketch whose holes are open. Packing with an open width is left out."""
    return _applied(State.initial(dag), sketch.steps)


def _applied(state: State, steps: tuple[Step, ...]) -> State:
    for step in steps:
        if isinstance(step, Layout) and refs(step):
            continue
        state = step.apply(state)
    return state


def default_trace(dag: ComputeDAG, target: Target, without: frozenset[str] = frozenset()) -> Trace:
    """The schedule without any measurement: the first sketch with its rules' own choices. A plug-in's target
    has its own rule. without: names of rules that are left out."""
    brought = plugin(target.kind)
    if brought is not None:
        made: Trace = Trace() if brought.default is None else brought.default(dag, target)
        return made
    sketch = preferred(dag, target, without)
    return sketch.fill(sketch.defaults())
