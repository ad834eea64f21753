"""Names of other systems that autotensor lacks: errors that say what to write instead.

at.nd                       ──▶  at.nd does not exist in autotensor; pass NumPy arrays: f(a, b, c).
from autotensor import nd   ──▶  the same sentence, as an ImportError
import autotensor.nd        ──▶  the same sentence, as a ModuleNotFoundError
at.buld                     ──▶  module 'autotensor' has no attribute 'buld'. Did you mean: 'build'?
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def absent(where: str, name: str, owner: object, instead: Mapping[str, str]) -> AttributeError | ImportError:
    """The error of `owner.name`, to be raised by the `__getattr__` that calls this.

    where: the owner as users write it. instead: name in another system → what to write here.

    >>> str(absent("te", "var", None, {"var": "write n = 1024"}))
    'te.var does not exist in autotensor; write n = 1024.'
    """
    if name in instead:
        sentence = _sentence(where, name, instead)
        # `from autotensor import nd` would turn an AttributeError into "cannot import name"
        imported = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
        return ImportError(sentence, name=name) if imported else AttributeError(sentence)
    if isinstance(owner, ModuleType):
        kind = f"module {owner.__name__!r}"
    else:
        kind = f"{type(owner).__name__!r} object"
    return AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=owner)


class AbsentModules:
    """The last finder of imports: gives the advice for modules of a package that do not exist."""

    def __init__(self, package: str, where: str, instead: Mapping[str, str]) -> None:
        self.package, self.where, self.instead = package, where, instead

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError with the advice; gives None, "not found", for all other modules."""
        package, _, inside = fullname.partition(".")
        name = inside.partition(".")[0]
        if package == self.package and name in self.instead:
            raise ModuleNotFoundError(_sentence(self.where, name, self.instead), name=fullname)


def _sentence(where: str, name: str, instead: Mapping[str, str]) -> str:
    return f"{where}.{name} does not exist in autotensor; {instead[name]}."
