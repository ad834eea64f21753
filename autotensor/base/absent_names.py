"""Errors for names of other systems that autotensor lacks: they say what to write instead.

at.nd                       ──▶  at.nd does not exist in autotensor; pass NumPy arrays: f(a, b, c).
from autotensor import nd   ──▶  the same sentence, as an ImportError
import autotensor.nd        ──▶  the same sentence, as a ModuleNotFoundError
at.buld                     ──▶  module 'autotensor' has no attribute 'buld'. Did you mean: 'build'?
at.tune(…, trails=8)        ──▶  at.tune takes no argument 'trails'. Did you mean 'trials'?
s[C].split()                ──▶  s[C].split: missing a required argument: 'axis'. It takes axis, factor, …
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, isfunction, signature
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from autotensor.base.errors import InputError
from autotensor.base.registry import suggest

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


class WrongArguments(InputError, TypeError):
    """A function was called with an argument name that it does not take, or with too many or too few."""


def takes_its_names(where: str, instead: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: a call with other arguments than the function takes raises an error with advice.

    where: the function as users write it. instead: name in another system → what to write in autotensor.

    >>> takes_its_names("at.f", {"n_trial": "Write trials=N."})(lambda trials=1: None)(n_trial=3)
    Traceback (most recent call last):
    autotensor.base.absent_names.WrongArguments: at.f takes no argument 'n_trial'. Write trials=N.
    """

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        @wraps(fn)
        def checked(*args: P.args, **given: P.kwargs) -> R:
            try:
                return fn(*args, **given)
            except TypeError:
                wrong = _misfit(fn, where, instead, args, given)
                if wrong is None:
                    raise
                raise wrong from None

        return checked

    return decorate


def methods_take_their_names(where: str, instead: Mapping[str, str]) -> Callable[[C], C]:
    """The same for all public methods of a class. where: an object of the class as users write it."""

    def decorate(cls: C) -> C:
        for name, fn in list(vars(cls).items()):
            if isfunction(fn) and not name.startswith("_"):
                setattr(cls, name, takes_its_names(f"{where}.{name}", instead)(fn))
        return cls

    return decorate


def _misfit(
    fn: Callable[..., Any],
    where: str,
    instead: Mapping[str, str],
    args: tuple[Any, ...],
    given: Mapping[str, Any],
) -> WrongArguments | None:
    """The error for arguments that the function does not take; None if it takes them."""
    taken = signature(fn)
    first: list[str] = []
    by_name: list[str] = []
    for p in taken.parameters.values():
        (by_name if p.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD) else first).append(p.name)
    words = tuple(n for n in (*first, *by_name) if n != "self")
    try:
        taken.bind(*args, **given)
        return None
    except TypeError as error:
        reason = str(error)
    for name in given:
        if name not in words:
            return WrongArguments(
                f"{where} takes no argument {name!r}.", fix=instead.get(name) or suggest(name, words)
            )
    others = ", ".join(n for n in first if n != "self") or "nothing"
    return WrongArguments(
        f"{where}: {reason}.",
        fix=f"It takes {others}{'; by name only: ' * bool(by_name)}{', '.join(by_name)}.",
    )


def absent(where: str, name: str, owner: object, instead: Mapping[str, str]) -> AttributeError | ImportError:
    """The error of `owner.name`, to be raised by the `__getattr__` that calls this function.

    where: the owner as users write it. instead: name in another system → what to write in autotensor.

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


def advice(package: str, where: str, instead: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: names, and modules inside it, that only another system has."""
    sys.meta_path.append(AbsentModules(package, where, instead))

    def __getattr__(name: str) -> Any:
        raise absent(where, name, sys.modules[package], instead)

    return __getattr__


class AbsentModules:
    """The last finder of imports: it gives advice for modules of a package that do not exist."""

    def __init__(self, package: str, where: str, instead: Mapping[str, str]) -> None:
        self.package, self.where, self.instead = package, where, instead

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError with the advice; gives None, "not found", for all other modules."""
        inside = fullname.removeprefix(f"{self.package}.")
        name = inside.partition(".")[0]
        if inside != fullname and name in self.instead:
            raise ModuleNotFoundError(_sentence(self.where, name, self.instead), name=fullname)


def _sentence(where: str, name: str, instead: Mapping[str, str]) -> str:
    return f"{where}.{name} does not exist in autotensor; {instead[name]}."
