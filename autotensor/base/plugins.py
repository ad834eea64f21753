"""Targets that other packages bring: each is a record of functions, found by the name of its kind.

    register(TargetPlugin("toy", target=…, compile=…, open=…))        in your own program
    [project.entry-points."autotensor.targets"]                       in a package's pyproject.toml
    toy = "toy_accelerator:PLUGIN"

`parse("toy -pads=2")` finds unknown kinds by this module, and code generation, the opening of artifacts,
`tensorize` and the choice of a default schedule find them in the same way. `vdlc` comes with the package, and
is found like the plug-ins of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotensor.base.doors import Door
from autotensor.base.errors import TargetError

OWN = ("llvm", "cuda", "opencl", "interp")  # kinds of this package: entry points are not searched for them


@dataclass(frozen=True, slots=True)
class TargetPlugin:
    """Everything that the package needs of a kind of device. Comments name the types of higher layers."""

    kind: str
    target: Callable[[Sequence[str]], Any]  # options ("-name=value", …) → Target
    compile: Callable[..., Any]  # (Program, Target, *, name, asm, cache) → Artifact: a `codegen.Backend`
    open: Callable[[Any, int | None], Any]  # (Artifact, threads) → runtime.Hosted, or a similar object
    passes: frozenset[str] = frozenset({"simplify nest"})  # names of the lowering passes that run
    # the primitives that it supports: "parallel", "vectorize", "unroll", "bind", "shared memory", "store_at"
    honours: frozenset[str] = frozenset()
    intrinsics: Mapping[str, Any] = field(default_factory=dict)  # name → codegen.declared_intrinsics.Declared
    default: Callable[[Any, Any], Any] | None = None  # (ComputeDAG, Target) → Trace; None: the plain loops


_REGISTERED: dict[str, TargetPlugin] = {}
PLUGINS: Door[TargetPlugin] = Door(
    "TargetPlugin",
    "autotensor.targets",
    lambda thing: isinstance(thing, TargetPlugin),
    {"vdlc": "autotensor.vdlc:PLUGIN"},  # our own target is found without metadata
    TargetError,
)


def register(plugin: TargetPlugin) -> TargetPlugin:
    """Makes a kind of target known. Raises TargetError when another plug-in has that name."""
    if plugin.kind in OWN or _REGISTERED.setdefault(plugin.kind, plugin) is not plugin:
        raise TargetError(f"target kind {plugin.kind!r} is registered twice.", fix="Take another name.")
    return plugin


def plugin(kind: str) -> TargetPlugin | None:
    """The plug-in of a kind: registered, shipped, or an entry point. Raises TargetError when the entry point
    gives something else."""
    if kind in OWN:
        return None
    if kind in _REGISTERED:
        return _REGISTERED[kind]
    found = PLUGINS.find(kind)
    if found is not None and found.kind != kind:
        raise TargetError(f"entry point {kind!r} of {PLUGINS.group} gives a plug-in of kind {found.kind!r}.")
    return found and register(found)


def known_kinds() -> tuple[str, ...]:
    """All kinds that plug-ins bring, sorted; none is imported."""
    return tuple(sorted({*_REGISTERED, *PLUGINS.names()}))
