"""Names that are looked for and not here: the error that says what to write instead.

at.nd         ──▶  at.nd does not exist in autotensor; NumPy arrays are passed as they are: f(a, b, c).
from autotensor import nd  ──▶  the same sentence, as an ImportError.
at.buld       ──▶  module 'autotensor' has no attribute 'buld'. Did you mean: 'build'?   (by Python)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType


def absent(where: str, name: str, owner: object, instead: Mapping[str, str]) -> AttributeError | ImportError:
    """The error of `owner.name`, to be raised by the `__getattr__` that calls this.

    where: how a person writes the owner. instead: names that other systems have → what to write here.

    >>> str(absent("te", "var", None, {"var": "write n = 1024"}))
    'te.var does not exist in autotensor; write n = 1024.'
    """
    if name in instead:
        sentence = f"{where}.{name} does not exist in autotensor; {instead[name]}."
        # `from autotensor import nd` makes "cannot import name" of an AttributeError.
        imported = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
        return ImportError(sentence, name=name) if imported else AttributeError(sentence)
    if isinstance(owner, ModuleType):
        kind = f"module {owner.__name__!r}"
    else:
        kind = f"{type(owner).__name__!r} object"
    return AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=owner)
