"""Steps: each one records that a primitive was applied.

A step is a frozen dataclass of its arguments, and `apply` is a pure function from `State` to `State`. The
decorator registers the class in STEPS under its name, which is also its tag in JSON. There are no handles:
stages and axes are named. An argument's type says what kind of name it is (KINDS). A `StageName` or an
`AxisName` changes when the DAG has other names; a `Word` does not. An axis belongs to the last stage that is
named before it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, dataclass_transform, get_type_hints

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import Ref, Size, State


class Step(Protocol):
    """The methods of every primitive's dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def apply(self, state: State) -> State: ...

    def call(self) -> str:
        """The call that a person would write, for a schedule named `s`."""
        ...


StageName = Annotated[str, "a stage or a tensor"]
AxisName = Annotated[str, "a loop of the stage named last before it"]
Word = Annotated[str, "what is not a name: a scope, an instruction, …"]
Steps = Annotated[str, "the JSON of other steps for the same DAG"]

STEPS: dict[str, type] = {}

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True)
def step(cls: C) -> C:
    """Makes the class a frozen dataclass, and registers it in STEPS. Raises ScheduleError as `kinds` does."""
    made: Any = dataclasses.dataclass(frozen=True, slots=True)(cls)
    kinds(made)
    STEPS[made.__name__] = made
    return made  # type: ignore[no-any-return]


def to_json(s: Step) -> list[Any]:
    """`[name, argument, …]`. A hole becomes {"hole": …}."""
    return [type(s).__name__, *(_plain(getattr(s, name)) for name in _arguments(type(s)))]


@cache
def _arguments(cls: type[Step]) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls))


def from_json(data: Any) -> Step:
    """The step of a JSON list. Raises ScheduleError for an unknown step, or arguments that do not fit."""
    name = data[0] if isinstance(data, list) and data else data
    if not isinstance(name, str) or name not in STEPS or not isinstance(data, list):
        raise ScheduleError(
            f"step {name!r} is unknown to this version.", fix=f"Known: {', '.join(sorted(STEPS))}."
        )
    cls = STEPS[name]
    taken = kinds(cls)
    if len(data) - 1 != len(taken):
        raise ScheduleError(f"step {name!r} takes {len(taken)} arguments, got {len(data) - 1}.")
    made: Step = cls(*(_frozen(v) for v in data[1:]))
    for argument, kind in taken.items():
        value = getattr(made, argument)
        if not kind.test(value):
            raise ScheduleError(
                f"step {name!r}: argument {argument!r} is {_plain(value)!r}; it must be {kind.words}."
            )
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Ref):
        return {"hole": value.hole, "index": value.index}
    return value


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    if isinstance(value, dict) and set(value) == {"hole", "index"} and _is_int(value["index"]):
        return Ref(str(value["hole"]), value["index"])
    return value


def _is_text(v: Any) -> bool:
    return isinstance(v, str)


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def _is_size(v: Any) -> bool:
    return isinstance(v, Ref) or (_is_int(v) and v > 0)


Names = Mapping[str, str]  # stages and tensors by name, axes by `stage.axis`


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """The kind of an argument of a step: its description in words, its test, and its renaming."""

    words: str
    test: Callable[[Any], bool]
    rename: Callable[[Any, str, Names], Any] = lambda value, stage, names: (
        value
    )  # `stage`: the stage whose axes the value names


def _each(words: str, kind: Kind) -> Kind:
    """Any number of arguments of a kind."""
    return Kind(
        words,
        lambda v: isinstance(v, tuple) and all(map(kind.test, v)),
        lambda v, stage, names: tuple(kind.rename(x, stage, names) for x in v),
    )


_STAGE = Kind("a text", _is_text, lambda v, stage, names: rename_stage(v, names))
_AXIS = Kind("a text", _is_text, lambda v, stage, names: rename_axis(v, stage, names))
_SIZE = Kind("a positive whole number or a hole", _is_size)
_TILE = Kind("", lambda v: isinstance(v, tuple) and len(v) == 2 and _is_int(v[0]) and _is_size(v[1]))

_STEPS = Kind("the JSON of steps", _is_text, lambda v, stage, names: _renamed_steps(v, names))

KINDS: dict[Any, Kind] = {  # by the annotation of a step's field
    StageName: _STAGE,
    AxisName: _AXIS,
    Word: Kind("a text", _is_text),
    Steps: _STEPS,
    int: Kind("a whole number", _is_int),
    Size: _SIZE,
    Size | None: Kind("a positive whole number, a hole or null", lambda v: v is None or _is_size(v)),
    tuple[StageName, ...]: _each("a list of texts", _STAGE),
    tuple[AxisName, ...]: _each("a list of texts", _AXIS),
    tuple[Size, ...]: _each("a list of positive whole numbers or holes", _SIZE),
    tuple[tuple[int, Size], ...]: _each(
        "a list of pairs: a dimension, and a positive whole number or a hole", _TILE
    ),
}


@lru_cache(maxsize=256)
def kinds(cls: type) -> Mapping[str, Kind]:
    """The kinds of a step's arguments, in order.

    Raises ScheduleError for an argument of another type, and if the first argument is not a stage or tensor.
    """
    types = get_type_hints(cls, include_extras=True)
    known = {f.name: KINDS.get(types[f.name]) for f in dataclasses.fields(cls)}
    found = {name: kind for name, kind in known.items() if kind is not None}
    if strange := known.keys() - found.keys():
        raise ScheduleError(
            f"step {cls.__name__!r}: the type of argument {min(strange)!r} does not say what it is.",
            fix="Take StageName, AxisName, Word, int, Size or a tuple as in KINDS of schedule/step.py.",
        )
    if next(iter(found.values()), None) is not _STAGE:
        raise ScheduleError(
            f"step {cls.__name__!r}: its first argument is not a StageName.",
            fix="Begin with the stage, or the tensor, that the step is about.",
        )
    return found


def refs(s: Step) -> tuple[Ref, ...]:
    """The holes that the step mentions."""
    found: list[Ref] = []

    def visit(value: Any) -> None:
        if isinstance(value, Ref):
            found.append(value)
        elif isinstance(value, tuple):
            for v in value:
                visit(v)

    for name in _arguments(type(s)):
        visit(getattr(s, name))
    return tuple(found)


def fill(s: Step, values: Mapping[str, tuple[int, ...]]) -> Step:
    """The step with its holes replaced by decided numbers."""

    def visit(value: Any) -> Any:
        if isinstance(value, Ref):
            if value.hole not in values:
                raise ScheduleError(
                    f"hole {value.hole!r} is not decided.", fix=f"Decided: {', '.join(values)}."
                )
            return values[value.hole][value.index]
        if isinstance(value, tuple):
            return tuple(visit(v) for v in value)
        return value

    if not refs(s):
        return s
    return type(s)(*(visit(getattr(s, name)) for name in _arguments(type(s))))


def quoted(names: tuple[str, ...]) -> str:
    """Names, as arguments of a call: `"y.0", "x"`."""
    return ", ".join(f'"{n}"' for n in names)


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def rename(s: Step, names: Names) -> Step:
    """The step with other names. Names inside derived names (`(y.0*x)`, `A.local:C`) are mapped, too."""
    stage, values = "", []
    for argument, kind in kinds(type(s)).items():
        value = getattr(s, argument)
        values.append(kind.rename(value, stage, names))
        if kind is _STAGE:
            stage = value
    return type(s)(*values)


def steps_text(steps: Iterable[Step]) -> str:
    """Steps as the argument of a step."""
    return json.dumps([to_json(s) for s in steps], separators=(",", ":"))


def steps_of(text: str) -> tuple[Step, ...]:
    """The steps of such an argument. Raises ScheduleError for other text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ScheduleError(f"{text[:40]!r} is not the JSON of steps.") from e
    if not isinstance(data, list):
        raise ScheduleError(f"{text[:40]!r} is not the JSON of steps.")
    return tuple(map(from_json, data))


def _renamed_steps(text: str, names: Names) -> str:
    return steps_text(rename(s, names) for s in steps_of(text))


def rename_stage(name: str, names: Names) -> str:
    """`A.local:C` under the map. Every word is mapped except derived suffixes."""
    parts = re.split(r"([.:])", name)
    return "".join(
        names.get(p, p) if _WORD.fullmatch(p) and (n == 0 or parts[n - 1] == ":") else p
        for n, p in enumerate(parts)
    )


def rename_axis(name: str, stage: str, names: Names) -> str:
    """`(y.0*x)` of `stage`, under the map.

    `C.local` and `C.rf` have the axes of C. Copies (`A.local:C`) and packed tensors have axes of their own,
    which are the same under all names.
    """
    if ":" in stage or ".packed" in stage:
        return name
    origin = stage.partition(".")[0]
    return _WORD.sub(lambda m: names.get(f"{origin}.{m[0]}", m[0]), name)
