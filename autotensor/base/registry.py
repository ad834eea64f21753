"""Registry: named things that register themselves where they are defined.

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

MANY = 16  # names: more are not listed behind a guess


class Registry(Generic[T]):
    """Name → thing, in sorted order of names; a name is given once."""

    def __init__(self, kind: str) -> None:
        self.kind = kind  # what the things are, for messages
        self._things: dict[str, T] = {}

    def register(self, name: str) -> Callable[[U], U]:
        """Decorator that files what it decorates under `name` and returns it."""

        def file(thing: U) -> U:
            self.add(name, thing)  # type: ignore[arg-type]  # U is T; two variables keep its exact type
            return thing

        return file

    def add(self, name: str, thing: T) -> T:
        """File `thing` under `name`. Raises InputError if the name is taken by another."""
        if name in self._things and self._things[name] is not thing:
            raise InputError(f"{self.kind} {name!r} is registered twice.")
        self._things[name] = thing
        return thing

    def get(self, name: str) -> T:
        """The thing of that name. Raises InputError with the nearest name."""
        if name in self._things:
            return self._things[name]
        raise InputError(f"{self.kind} {name!r} is unknown.", fix=suggest(name, self.names()))

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._things))

    def items(self) -> tuple[tuple[str, T], ...]:
        return tuple((name, self._things[name]) for name in self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._things)


def suggest(name: str, known: tuple[str, ...]) -> str:
    """The sentence that helps after a wrong name: the nearest one, and all unless they would hide it.

    >>> suggest("rleu", ("gelu", "relu"))
    "Did you mean 'relu'? Known: gelu, relu."
    >>> suggest("mm77", tuple(f"m{n}" for n in range(70, 90)))
    "Did you mean 'm77'?"
    """
    near = nearest(name, known)
    return near.rstrip() if near and len(known) > MANY else f"{near}Known: {', '.join(known) or 'none'}."


def nearest(name: str, known: tuple[str, ...]) -> str:
    """The question alone, for where there are too many to list; "" if none is near."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {found[0]!r}? " if found else ""
