"""Sketches of a whole computation: rules applied stage by stage, from the last to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import chain, islice
from math import inf

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
from autotensor.schedule.sketch import Sketch
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

MAX_SKETCHES = 64  # sketches of one computation; chains of stages with many alternatives are cut here
# times as fast a structure must seem by the prior to come before the one that the rules prefer: those that
# seemed 1.1 to 1.25 times as fast in 700 drawn programs were 0.8 to 2.1 times as fast, others 1.0 to 1.8
# (Xeon, one core, 2026-11)
SURE = 1.25
MOST_WEIGHED = 4  # answers for one stage
KEPT = 128  # computations whose sketches are remembered; a large model has fifty


@dataclass(frozen=True, slots=True)
class _Partial:
    """A sketch under construction; stages in `done` need no rule, those in `waiting` come last."""

    sketch: Sketch
    state: State
    done: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    stays: frozenset[str] = frozenset()  # stages that are not inlined
    inside: tuple[ComputeAt, ...] = ()  # where stages are to go that no rule has decided
    choices: tuple[int, ...] = ()  # the number of each extension taken: small ones are preferred

    def is_open(self, place: ComputeAt) -> bool:
        """Whether the stage is still to go there."""
        return isinstance(self.state.stage(place.stage).place, Root)

    @property
    def seen(self) -> State:
        """The state as rules see it: stages that they have not decided are at root, wherever they will go."""
        state = self.state
        for p in self.inside:
            stage = state.stage(p.stage)
            if p.stage not in self.done and isinstance(stage.place, At) and not stage.touched:
                state = state.with_stage(replace(stage, place=Root()))
        return state


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer of a rule for a stage."""

    reached: _Partial
    weighed: bool = False  # whether it is weighed against the other answers
    # set where this answer stands for the answers of the rules behind
    stage: str = ""
    last_call: bool = False
    onward: tuple[SketchRule, ...] | None = None

    def expanded(self, target: Target) -> Iterator[_Answer]:
        """The answers of the rules behind."""
        assert self.onward is not None
        stage = self.reached.seen.stage(self.stage)
        return _answers(self.reached, stage, target, self.last_call, self.onward)

    def partials(self, target: Target) -> Iterator[_Partial]:
        """All that becomes of it, in the rules' order."""
        if self.onward is None:
            yield self.reached
            return
        for answer in self.expanded(target):
            yield from answer.partials(target)


Weigh = Callable[[Sketch], float]  # seconds of a finished sketch


def generate(dag: ComputeDAG, target: Target) -> tuple[Sketch, ...]:
    """All sketches that the rules make for a computation, first the preferred one, then the others in the
    rules' order. Never empty.

    Where a GPU target's blocks are iterations on a processor's cores, they are that processor's sketches.
    Those of the last computations are kept: tuning a model needs them four times for each of its tasks.
    """
    return _generated(dag, target.processor(), rules())


def preferred(dag: ComputeDAG, target: Target) -> Sketch:
    """The first sketch of `generate`, made alone: the rules' first choices, but where others weigh less."""
    return _preferred(dag, target.processor(), rules())


def is_one_nest(dag: ComputeDAG, target: Target) -> bool:
    """Whether the preferred sketch computes everything inside one stage's loops, constants aside."""
    state = structure(preferred(dag, target), dag)
    roots = [s.name for s in state.stages if isinstance(s.place, Root)]
    return len(set(roots) - state.constant_stages()) == 1


def rules() -> tuple[SketchRule, ...]:
    """All sketch rules in their order. Raises ScheduleError as `bring` and `in_order` do."""
    bring()
    return in_order(RULES, tuple(OUTSIDE.values()))


@lru_cache(maxsize=KEPT)
def _preferred(dag: ComputeDAG, target: Target, rules: tuple[SketchRule, ...]) -> Sketch:
    weigh = partial(_seconds, dag, target) if target.kind == "llvm" else None
    return _finished(_Partial(Sketch(), State.initial(dag)), target, rules, weigh).sketch


def _finished(
    current: _Partial, target: Target, rules: tuple[SketchRule, ...], weigh: Weigh | None = None
) -> _Partial:
    """Decides what is left by the rules' first answers, or by others that weigh less."""
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
    """The partial sketch after the first answer, or one that is weighed to be better."""
    if weigh is not None and first.weighed:
        every = list(islice(chain([first], others), MOST_WEIGHED))
        first = _best(every, target, rules, weigh) if len(every) > 1 else first
    if first.onward is None:
        return first.reached
    onward = first.expanded(target)
    return _first(next(onward), onward, target, rules, weigh)


def _best(answers: Sequence[_Answer], target: Target, rules: tuple[SketchRule, ...], weigh: Weigh) -> _Answer:
    """The answer that seems fastest, if it is so for sure; else the first. Each with the rules' first answers
    for the rest."""
    reached = (_first(a, iter(()), target, rules, None) for a in answers)
    seconds = [weigh(_finished(p, target, rules).sketch) for p in reached]
    best = min(seconds)
    return answers[seconds.index(best)] if SURE * best < seconds[0] else answers[0]


@lru_cache(maxsize=KEPT)
def _seconds(dag: ComputeDAG, target: Target, sketch: Sketch) -> float:
    """Seconds of a sketch as its rules fill it, by the prior; infinite where it has no such loops."""
    values = {Ref(h.name, n): value for h in sketch.holes for n, value in enumerate(h.default)}
    rates = replace(Rates.guess(target), warm_weights=True)
    try:
        seconds, _ = predict(picture(structure(sketch, dag), values), target, rates)
    except ScheduleError:
        return inf
    return float(seconds[0])


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
    ordered = sorted(finished, key=lambda p: p.choices)  # some took more steps than others
    first = _preferred(dag, target, rules)
    return tuple(dict.fromkeys((first, *(p.sketch for p in ordered))))


def _next_stage(current: _Partial) -> tuple[Stage | None, bool]:
    """The last stage that no rule has decided; then those that waited and are still untouched (True)."""
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
    """The extensions of the first rule that answers for a stage, in its order, as a generator."""
    for answer in _answers(current, stage, target, last_call, rules):
        yield from answer.partials(target)


def _answers(
    current: _Partial,
    stage: Stage,
    target: Target,
    last_call: bool,
    rules: tuple[SketchRule, ...],
) -> Iterator[_Answer]:
    """The answers of the first rule that has any for a stage, in its order, as a generator."""
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

    A rule that raises, or whose steps cannot be applied, answers no more: a default always runs, and a rule
    only makes it faster. AUTOTENSOR_STRICT=1 raises instead.
    """
    try:
        for e in rule.expand(seen, stage, target):
            placed = _placed(e, stage.name, current)
            if placed is not None:
                yield placed, _applied(current.state, placed.steps)
    except Exception as error:
        if switches.strict():
            raise
        log.warn(
            f"Sketch rule {rule.name} fails on stage {stage.name!r} and is left out "
            f"({type(error).__name__}: {error}); the kernel may be slower. Please report this."
        )


def _placed(e: Extension, stage: str, current: _Partial) -> Extension | None:
    """The extension with its stages at their given places, unless it has places of its own for them.

    Their readers are there before. Loops in there run on one core. None where it has stages slide along
    their loops, which only loops at root can have.
    """
    own = {s.stage for s in e.steps if isinstance(s, ComputeAt | Inline)}
    decided = {*e.done, *(() if e.onward else (stage,))} - own
    mine = [p for p in current.inside if p.stage in decided]
    if not mine or not e.steps:
        return e
    if any(isinstance(s, StoreAt) for s in e.steps):
        return None
    steps: list[Step] = [s for s in e.steps if not isinstance(s, Parallel)]
    for p in filter(current.is_open, mine):  # producers first: their readers' steps are put in front
        # before its loops, but behind steps that make stages of a stage and need it at root
        its = (n for n, s in enumerate(steps) if _of(s) == p.stage and not isinstance(s, CacheWrite))
        steps.insert(next(its, len(steps)), p)
    return replace(e, steps=(*_readers({p.stage for p in mine}, current), *steps))


def _readers(stages: set[str], current: _Partial) -> Iterator[ComputeAt]:
    """Steps that put readers of stages where they are to go, if they are not there: whose turn is to come."""
    waiting: list[ComputeAt] = []
    for p in filter(current.is_open, current.inside):  # producers first
        producers = map(current.state.producer, current.state.stage(p.stage).op.reads())
        if p.stage not in stages and any(s is not None and s.name in stages for s in producers):
            stages = {*stages, p.stage}
            waiting.append(p)
    yield from reversed(waiting)


def _of(step: Step) -> str:
    """The stage that a step is about; of a layout, the tensor."""
    return str(getattr(step, fields(step)[0].name))


def structure(sketch: Sketch, dag: ComputeDAG) -> State:
    """The loops of a sketch with its holes open. Repacking with an open width is left out."""
    return _applied(State.initial(dag), sketch.steps)


def _applied(state: State, steps: tuple[Step, ...]) -> State:
    for step in steps:
        if isinstance(step, Layout) and refs(step):
            continue
        state = step.apply(state)
    return state


def default_trace(dag: ComputeDAG, target: Target) -> Trace:
    """The schedule without any measurement: the first sketch with its rules' own choices; a plug-in's target
    has a rule of its own."""
    brought = plugin(target.kind)
    if brought is not None:
        made: Trace = Trace() if brought.default is None else brought.default(dag, target)
        return made
    sketch = preferred(dag, target)
    return sketch.fill(sketch.defaults())
