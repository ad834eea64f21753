"""Steps: one recorded application of a primitive each.

A step is a frozen dataclass of its arguments; `apply` is a pure function from `State` to `State`. The
decorator files the class in STEPS under its name, which is also its tag in JSON. There are no handles: stages
and axes are named.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from autotensor.base.errors import ScheduleError
from autotensor.schedule.state import Ref, State


class Step(Protocol):
    """What every primitive's dataclass offers."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def apply(self, state: State) -> State: ...

    def call(self) -> str:
        """The call a person would write, on a schedule named `s`."""
        ...


STEPS: dict[str, type] = {}

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True)
def step(cls: C) -> C:
    """Makes the class a frozen dataclass and files it in STEPS."""
    made: Any = dataclasses.dataclass(frozen=True, slots=True)(cls)
    STEPS[made.__name__] = made
    return made  # type: ignore[no-any-return]


def to_json(s: Step) -> list[Any]:
    """`[name, argument, …]`; holes become {"hole": …}."""
    return [type(s).__name__, *(_plain(getattr(s, f.name)) for f in dataclasses.fields(s))]


def from_json(data: Any) -> Step:
    """The step of a JSON list. Raises ScheduleError for an unknown step or arguments that do not fit."""
    if not isinstance(data, list) or not data or data[0] not in STEPS:
        raise ScheduleError(
            f"step {data[0] if isinstance(data, list) and data else data!r} is unknown to this version.",
            fix=f"Known: {', '.join(sorted(STEPS))}.",
        )
    cls = STEPS[data[0]]
    fields = dataclasses.fields(cls)
    if len(data) - 1 != len(fields):
        raise ScheduleError(f"step {data[0]} takes {len(fields)} arguments, got {len(data) - 1}.")
    made: Step = cls(*(_frozen(v) for v in data[1:]))
    for f in fields:
        _check(data[0], f, getattr(made, f.name))
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
    if isinstance(value, dict):
        return Ref(str(value["hole"]), int(value["index"]))
    return value


_ANNOTATIONS: dict[str, Callable[[Any], bool]] = {
    "str": lambda v: isinstance(v, str),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "Size": lambda v: isinstance(v, Ref) or (isinstance(v, int) and not isinstance(v, bool) and v > 0),
    "Size | None": lambda v: v is None or _ANNOTATIONS["Size"](v),
    "tuple[str, ...]": lambda v: isinstance(v, tuple) and all(isinstance(x, str) for x in v),
    "tuple[Size, ...]": lambda v: isinstance(v, tuple) and all(_ANNOTATIONS["Size"](x) for x in v),
    "tuple[tuple[int, Size], ...]": lambda v: (
        isinstance(v, tuple)
        and all(
            isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], int) and _ANNOTATIONS["Size"](x[1])
            for x in v
        )
    ),
}


def _check(name: str, field: dataclasses.Field[Any], value: Any) -> None:
    test = _ANNOTATIONS[str(field.type)]
    if not test(value):
        raise ScheduleError(
            f"step {name}: argument {field.name!r} is {value!r}, which is not a {field.type}."
        )


def refs(s: Step) -> tuple[Ref, ...]:
    """Holes that the step mentions."""
    found: list[Ref] = []

    def visit(value: Any) -> None:
        if isinstance(value, Ref):
            found.append(value)
        elif isinstance(value, tuple):
            for v in value:
                visit(v)

    for f in dataclasses.fields(s):
        visit(getattr(s, f.name))
    return tuple(found)


def fill(s: Step, values: Mapping[str, tuple[int, ...]]) -> Step:
    """The step with its holes replaced by decided numbers."""

    def visit(value: Any) -> Any:
        if isinstance(value, Ref):
            return values[value.hole][value.index]
        if isinstance(value, tuple):
            return tuple(visit(v) for v in value)
        return value

    if not refs(s):
        return s
    return type(s)(*(visit(getattr(s, f.name)) for f in dataclasses.fields(s)))


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def rename(s: Step, names: Mapping[str, str]) -> Step:
    """The step in other names: base names inside derived ones (`(y.0*x)`, `A.local:C`) are mapped too.

    names: stages and tensors by name, axes as `stage.axis`. The step's `stage` argument says whose axes it
    names.
    """
    owner = str(getattr(s, "host", None) or getattr(s, "stage", ""))
    return type(s)(*(_rename(f.name, getattr(s, f.name), owner, names) for f in dataclasses.fields(s)))


def _rename(field: str, value: Any, owner: str, names: Mapping[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_rename(field, v, owner, names) for v in value)
    if not isinstance(value, str) or field in ("scope", "key", "value", "order", "thread", "algorithm"):
        return value
    if field in ("axis", "axes", "outer", "inner"):
        return rename_axis(value, owner, names)
    return rename_stage(value, names)


def rename_stage(name: str, names: Mapping[str, str]) -> str:
    """`A.local:C` under the map: every base word but the derived suffixes."""
    parts = re.split(r"([.:])", name)
    return "".join(
        names.get(p, p) if _WORD.fullmatch(p) and (n == 0 or parts[n - 1] == ":") else p
        for n, p in enumerate(parts)
    )


def rename_axis(name: str, stage: str, names: Mapping[str, str]) -> str:
    """`(y.0*x)` of `stage` under the map.

    Axes of `C.local` and `C.rf` are those of C; copies (`A.local:C`) and packed tensors have axes of their
    own, the same under all names.
    """
    if ":" in stage or ".packed" in stage:
        return name
    origin = stage.partition(".")[0]
    return _WORD.sub(lambda m: names.get(f"{origin}.{m[0]}", m[0]), name)
