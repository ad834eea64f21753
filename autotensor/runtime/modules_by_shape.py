"""Several modules as one function: the shapes of the inputs select the module that is called.

    f = ByShape([model_for_1, model_for_8])
    f(x)                     x: [1, …] ──▶ the first, [8, …] ──▶ the second, any other shape is an error
    f.save("model.atm")      both; weights that both use are stored once

The other members (`args`, `signature`, `time`, `source`) are those of the first module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from autotensor.base.errors import ArgumentError
from autotensor.runtime.arrays import Array
from autotensor.runtime.files import artifact_file as artifacts
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.function import Store
from autotensor.runtime.module import Module
from autotensor.runtime.open_module import OpenModule
from autotensor.runtime.signature import Signature

Shapes = tuple[tuple[int, ...], ...]


class ByShape(Module):
    """See the module's docstring."""

    def __init__(self, modules: Sequence[Module]) -> None:
        """Raises ArgumentError if modules differ in more than their shapes, or if two have equal shapes."""
        self._members: Mapping[Shapes, Module] = _by_shapes(modules)
        first = modules[0]
        self._key = ""
        self._start(first.artifact, first._loaded, first._values, first.threads, first._provider_name)

    @property
    def modules(self) -> tuple[Module, ...]:
        """The modules in the order in which they were given."""
        return tuple(self._members.values())

    def __call__(self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array) -> Any:
        """Runs the module with these shapes. If there is none, raises ArgumentError with all shapes."""
        names = [a.name for a in self.signature.inputs]
        given = {**dict(zip(names, arrays, strict=False)), **named}
        if any(n not in given for n in names):
            return super().__call__(*arrays, out=out, **named)  # its error says what is missing
        found = tuple(tuple(getattr(given[n], "shape", ())) for n in names)
        member = self._members.get(found) or self._made_for(names, found)
        return member(*arrays, out=out, **named)

    def _made_for(self, names: Sequence[str], found: Shapes) -> Module:
        """Raises the error for shapes that no module takes."""
        known = "; ".join(_text(names, shapes) for shapes in self._members)
        raise ArgumentError(
            f"{self.name} is not compiled for {_text(names, found)}.", fix=f"Its shapes are: {known}."
        )

    @property
    def threads(self) -> int:
        """The largest number of threads of one call, for every module."""
        return self._threads

    @threads.setter
    def threads(self, count: int) -> None:
        Module.threads.fset(self, count)  # type: ignore[attr-defined]
        for m in self._members.values():
            m.threads = count

    def bind(self, **constants: Array) -> ByShape:
        return ByShape([m.bind(**constants) for m in self.modules])

    def save(self, path: str | Path, store: Store | None = None) -> None:
        """Writes all modules to one `.atm` file, atomically. store: as for one function."""
        artifacts.save_all(path, self._bound(store))

    def _bound(self, store: Store | None = None) -> tuple[Artifact, ...]:
        return tuple(a for m in self.modules for a in m._bound(store))

    def _with(self, values: dict[str, Array]) -> ByShape:
        """A copy: the values belong to the single modules, and `bind` gives these new ones."""
        return ByShape([copy(m) for m in self.modules])

    def __repr__(self) -> str:
        return f"<ByShape {self.name}: {'; '.join(str(m.signature) for m in self.modules)}>"


def _by_shapes(modules: Sequence[Module]) -> dict[Shapes, Module]:
    if not modules:
        raise ArgumentError("by_shape: there are no modules.")
    found: dict[Shapes, Module] = {}
    form = _form(modules[0].signature)
    for m in modules:
        if isinstance(m, ByShape):
            raise ArgumentError(
                "by_shape: a module of several shapes is among the modules.", fix="Give its .modules."
            )
        if isinstance(m, OpenModule):
            raise ArgumentError(
                f"by_shape: {m.name} takes a range of shapes by itself.",
                fix="Call it as it is, or build one function for each shape.",
            )
        if _form(m.signature) != form:
            raise ArgumentError(
                f"by_shape: {m.name} takes and gives {m.signature}, the first {modules[0].signature}.",
                fix="Names and types must be the same, and their number; shapes may differ.",
            )
        shapes = tuple(a.shape for a in m.signature.inputs)
        if shapes in found:
            raise ArgumentError(f"by_shape: two modules take the same shapes, {m.signature}.")
        found[shapes] = m
    return found


def _form(signature: Signature) -> Any:
    """The part of a signature that all modules must share."""
    return [[(a.name, a.dtype, len(a.shape)) for a in part] for part in (signature.inputs, signature.outputs)]


def _text(names: Sequence[str], shapes: Shapes) -> str:
    return ", ".join(f"{n} {list(s)}" for n, s in zip(names, shapes, strict=True))
