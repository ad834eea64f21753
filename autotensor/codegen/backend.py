"""Backends: one way to compile a program for each kind of target.

    compile(program, parse("llvm"), name="matmul") ──▶ Artifact

A function registers itself with `@backend("kind")`; the modules with autotensor's own backends are imported
at the first look-up. A target of a plug-in brings its own backend (`base/plugins.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, TypeVar

from autotensor.base.errors import CodegenError
from autotensor.base.plugins import plugin
from autotensor.base.target import Target
from autotensor.ir.func import Program
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.files.object_cache import ObjectCache


class Backend(Protocol):
    """Compiles a program to native code. With `asm` the artifact's texts include the assembly."""

    def __call__(
        self,
        program: Program,
        target: Target,
        *,
        name: str,
        asm: bool = False,
        cache: ObjectCache | None = None,
    ) -> Artifact: ...


BACKENDS: dict[str, Backend] = {}
B = TypeVar("B", bound=Backend)

OURS = ("autotensor.codegen.llvm.backend", "autotensor.codegen.c.opencl", "autotensor.codegen.c.cuda")


def backend(kind: str) -> Callable[[B], B]:
    """Registers a function as the backend of one kind of target."""

    def register(fn: B) -> B:
        BACKENDS[kind] = fn
        return fn

    return register


def compile(
    program: Program, target: Target, *, name: str, asm: bool = False, cache: ObjectCache | None = None
) -> Artifact:
    """The program compiled for its target. Raises CodegenError when that is impossible.

    asm: keep the assembly among the texts. cache: where to look for and keep objects.
    """
    found = BACKENDS.get(target.kind)
    if found is None:
        _import_all()
        found = BACKENDS.get(target.kind)
    if found is None and (brought := plugin(target.kind)) is not None:
        found = brought.compile
    if found is None:
        raise CodegenError(
            f"no backend compiles for {target.kind!r}.", fix=f"There are: {', '.join(sorted(BACKENDS))}."
        )
    return found(program, target, name=name, asm=asm, cache=cache)


@lru_cache(maxsize=1)
def _import_all() -> None:
    for module in OURS:
        importlib.import_module(module)
