"""A Door finds objects of one kind by name: our own, and those that other packages bring by entry points.

    MODELS = Door("cost model", "autotensor.cost_models", callable, {"prior": "autotensor…:PriorModel"})

    [project.entry-points."autotensor.cost_models"]        in the other package's pyproject.toml
    ridge = "their_module:Ridge"

    MODELS.get("ridge")   ──▶   their_module.Ridge
    MODELS.get("rigde")   ──▶   InputError: cost model 'rigde' is unknown. Did you mean 'ridge'? Known: …

Nothing is imported before its first use. An object that is given in place of a name passes the same check.
`inside` is a block that runs a part, and names the part if it raises an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from autotensor.base.errors import AutotensorError, InputError
from autotensor.base.registry import suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Door(Generic[T]):
    """One kind of objects that have names."""

    kind: str  # the name of the kind, for messages
    group: str  # the group of entry points
    fits: Callable[[Any], bool]  # whether an object is of this kind
    own: Mapping[str, str] = field(default_factory=dict)  # this package's objects: name → "module:attribute"
    error: type[AutotensorError] = InputError
    form: str = ""  # a sentence that says what an object of this kind is

    def names(self) -> tuple[str, ...]:
        """All names, sorted; nothing is imported."""
        return tuple(sorted({*self.own, *self._entries().names}))

    def modules(self) -> tuple[str, ...]:
        """Names of the modules of other packages that bring such objects; nothing is imported."""
        return tuple(sorted({e.module for e in self._entries()}))

    def known(self, what: str | T) -> None:
        """Raises the door's error for an unknown name, or an object of another kind; imports nothing."""
        if not isinstance(what, str):
            self._checked(what, f"{what!r} is")
        elif what not in self.own and what not in self._entries().names:
            raise self.error(f"{self.kind} {what!r} is unknown.", fix=suggest(what, self.names()))

    def get(self, what: str | T) -> T:
        """The object with a name; an object is returned as it is. Raises as `known` and `find` do."""
        self.known(what)
        thing = self.find(what) if isinstance(what, str) else what
        assert thing is not None
        return thing

    def find(self, name: str) -> T | None:
        """The object with a name; None if the name is unknown.

        Raises the door's error when packages disagree about the name, and for an entry point that cannot be
        loaded or gives an object of another kind.
        """
        if name in self.own:
            module, _, attribute = self.own[name].partition(":")
            ours: T = getattr(importlib.import_module(module), attribute)
            return ours
        entries = {e.value: e for e in self._entries().select(name=name)}
        if not entries:
            return None
        place = f"entry point {name!r} of {self.group}"
        if len(entries) > 1:
            raise self.error(f"{place} is given twice: {', '.join(entries)}.", fix="Uninstall one of them.")
        (entry,) = entries.values()
        try:
            thing = entry.load()
        except Exception as error:  # other packages may raise anything
            raise self.error(
                f"{place} cannot be loaded ({type(error).__name__}: {error}).",
                fix="Repair or uninstall the package.",
            ) from error
        return self._checked(thing, f"{place} gives {thing!r},")

    def _checked(self, thing: Any, said: str) -> T:
        if not self.fits(thing):
            raise self.error(
                f"{said} not a {self.kind}.", fix=f"{self.form} docs/extend.md shows one.".lstrip()
            )
        checked: T = thing
        return checked

    def _entries(self) -> EntryPoints:
        from importlib.metadata import entry_points  # imports a dozen modules that nothing else needs

        return entry_points(group=self.group)


def name_of(what: object) -> str:
    """The name of an object, which may itself be given as a name. Objects with one name count as the same.

    Raises InputError for an object without a name of its own.
    """
    if isinstance(what, str):
        return what
    name = getattr(what, "__qualname__", "<lambda>")
    if name.endswith("<lambda>"):
        raise InputError(f"{what!r} has no name.", fix="Write it with `def` or `class`.")
    return f"{what.__module__}:{name}"


@contextmanager
def inside(kind: str, part: str | object, work: str) -> Iterator[None]:
    """A block that runs a part: its class or function, or a name.

    Raises InputError, from the error, if a part of another package raises an error. The mistake should not
    look like a mistake of the search.
    """
    try:
        yield
    except AutotensorError:
        raise
    except Exception as error:  # other packages may raise anything
        module = getattr(part, "__module__", "")
        if not isinstance(part, str) and module.partition(".")[0] in ("autotensor", "schedules"):
            raise
        raise InputError(
            f"{kind} {name_of(part)!r} fails {work} ({type(error).__name__}: {error}{_line(error, module)}).",
            fix="docs/extend.md shows one.",
        ) from error


def _line(error: Exception, module: str) -> str:
    """The last line of the part's module that the error passed; "" if the part was called in a wrong way."""
    file = getattr(sys.modules.get(module), "__file__", None)
    lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == file]
    return f", {file}:{lines[-1]}" if lines else ""


__all__ = ["Door", "inside", "name_of"]
