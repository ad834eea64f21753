"""Registry: named objects that are registered where they are defined.

OPERATORS: Registry[Operator] = Registry("operator")

@OPERATORS.register("relu")
def relu(…): …

OPERATORS.get("rleu")   ──▶  InputError: operator 'rleu' is unknown. Did you mean 'relu'? Known: …
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from autotensor.base.errors import InputError

T = TypeVar("T")
U = TypeVar("U")

MANY = 16  # if there are more names than this, they are not listed after a guess


class Registry(Generic[T]):
    """Name → object, in sorted order of names. Each name may be registered only once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # the kind of the objects, for messages
        self._things: dict[str, T] = {}

    def register(self, name: str) -> Callable[[U], U]:
        """A decorator that registers the decorated object under `name` and returns the object."""

        def file(thing: U) -> U:
            self.add(name, thing)  # type: ignore[arg-type]  # U is T; two variables keep its exact type
            return thing

        return file

    def add(self, name: str, thing: T) -> T:
        """Registers `thing` under `name`. Raises InputError if another object has this name."""
        if name in self._things and self._things[name] is not thing:
            raise InputError(f"{self.kind} {name!r} is registered twice.")
        self._things[name] = thing
        return thing

    def get(self, name: str) -> T:
        """The object with that name. Raises InputError with the nearest name."""
        if name in self._things:
            return self._things[name]
        raise InputError(f"{self.kind} {name!r} is unknown.", fix=suggest(name, self.names()))

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._things))

    def items(self) -> tuple[tuple[str, T], ...]:
        return tuple((name, self._things[name]) for name in self.names())

    def __repr__(self) -> str:
        return f"<Registry: {len(self)} of kind {self.kind!r}>"

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._things)


def suggest(name: str, known: tuple[str, ...]) -> str:
    """Advice after a wrong name: the nearest name, then all names if there are not too many.

    >>> suggest("rleu", ("gelu", "relu"))
    "Did you mean 'relu'? Known: gelu, relu."
    >>> suggest("mm77", tuple(f"m{n}" for n in range(70, 90)))
    "Did you mean 'm77'?"
    """
    near = nearest(name, known)
    return near.rstrip() if near and len(known) > MANY else f"{near}Known: {', '.join(known) or 'none'}."


def nearest(name: str, known: tuple[str, ...]) -> str:
    """The question with the nearest name, without a list of names; "" if no name is near. Capitals and small
    letters count as the same.

    >>> nearest("ok", ("OK", "CRASHED"))
    "Did you mean 'OK'? "
    """
    plain = {k.casefold(): k for k in reversed(known)}  # of names that differ only in case, the first
    found = difflib.get_close_matches(name.casefold(), plain, n=1)
    return f"Did you mean {plain[found[0]]!r}? " if found else ""
