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
    name = data[0] if isinstance(data, list) and data else data
    if not isinstance(name, str) or name not in STEPS or not isinstance(data, list):
        raise ScheduleError(
            f"step {name!r} is unknown to this version.", fix=f"Known: {', '.join(sorted(STEPS))}."
        )
    cls = STEPS[name]
    fields = dataclasses.fields(cls)
    if len(data) - 1 != len(fields):
        raise ScheduleError(f"step {name!r} takes {len(fields)} arguments, got {len(data) - 1}.")
    made: Step = cls(*(_frozen(v) for v in data[1:]))
    for f in fields:
        _check(name, f, getattr(made, f.name))
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


def _is_tuple(v: Any, test: Callable[[Any], bool]) -> bool:
    return isinstance(v, tuple) and all(test(x) for x in v)


# annotation of a step's field → what its values are, in words and as a test
_ARGUMENTS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", _is_text),
    "int": ("a whole number", _is_int),
    "Size": ("a positive whole number or a hole", _is_size),
    "Size | None": ("a positive whole number, a hole or null", lambda v: v is None or _is_size(v)),
    "tuple[str, ...]": ("a list of texts", lambda v: _is_tuple(v, _is_text)),
    "tuple[Size, ...]": ("a list of positive whole numbers or holes", lambda v: _is_tuple(v, _is_size)),
    "tuple[tuple[int, Size], ...]": (
        "a list of pairs: a dimension, and a positive whole number or a hole",
        lambda v: _is_tuple(
            v, lambda x: isinstance(x, tuple) and len(x) == 2 and _is_int(x[0]) and _is_size(x[1])
        ),
    ),
}


def _check(name: str, field: dataclasses.Field[Any], value: Any) -> None:
    words, test = _ARGUMENTS[str(field.type)]
    if not test(value):
        raise ScheduleError(
            f"step {name!r}: argument {field.name!r} is {_plain(value)!r}; it must be {words}."
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
    return type(s)(*(visit(getattr(s, f.name)) for f in dataclasses.fields(s)))


def quoted(names: tuple[str, ...]) -> str:
    """Names as arguments of a call: `"y.0", "x"`."""
    return ", ".join(f'"{n}"' for n in names)


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
