"""From an artifact to addresses: a check that this machine can run the code, then linking.

A missing feature of the processor is an error here. Without the check, it would end the process by an illegal
instruction.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from autotensor.base.errors import ArtifactError
from autotensor.base.granted.tile_permission import PRODUCTS, may_use_tiles
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.linking.linker import Code, host_machine, link


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Code in memory. The addresses are valid as long as this object lives."""

    entry: int
    prepare: int  # 0: the artifact has none
    code: Code


def check_host(artifact: Artifact) -> None:
    """Raises ArtifactError unless this machine can run the artifact's code."""
    if artifact.target.kind != "llvm":
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.kind!r}; only code for CPUs is loaded here."
        )
    here = (host_machine(), platform.system().lower())
    if artifact.target.triple and _family(artifact.target.triple) != here:
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.triple}, this machine is {'-'.join(here)}.",
            fix=_anew(artifact, "build it for this machine."),
        )
    has = _host_features() if artifact.needs else {}
    missing = [name for name in (n.lstrip("+") for n in artifact.needs) if not has.get(name, False)]
    if missing:
        raise ArtifactError(
            f"{artifact.name} needs the CPU features {', '.join(missing)}, which this processor lacks.",
            fix=_anew(artifact, "build it for this machine."),
        )
    if not PRODUCTS.isdisjoint(artifact.needs) and not may_use_tiles():
        raise ArtifactError(
            f"{artifact.name} uses AMX's tiles, which the system does not let this process have.",
            fix=_anew(artifact, "build it without them."),
        )


def _anew(artifact: Artifact, otherwise: str) -> str:
    """Advice for code that this machine cannot run. Whole models keep no text to compile again."""
    if "llvm" not in artifact.texts:
        return otherwise.capitalize()
    return f"at.load(path, recompile=True) compiles it anew; or {otherwise}"


def fits_here(artifact: Artifact) -> bool:
    """Whether this machine can run the artifact's code."""
    try:
        check_host(artifact)
    except ArtifactError:
        return False
    return True


def load(artifact: Artifact, more: Sequence[str] = ()) -> Loaded:
    """Links the objects of `artifact` into this process. Raises ArtifactError if they cannot be linked.

    more: further functions, besides the artifact's entries, whose addresses `code` should have.
    """
    check_host(artifact)
    wanted = [name for name in (artifact.entry, artifact.prepare, *more) if name]
    code = link(artifact.name, artifact.objects, wanted)
    prepare = code.addresses[artifact.prepare] if artifact.prepare else 0
    return Loaded(code.addresses[artifact.entry], prepare, code)


@cache
def _host_features() -> dict[str, bool]:
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


def _family(triple: str) -> tuple[str, str]:
    """Processor family and system of a triple; vendor and C library do not matter.

    >>> _family("x86_64-pc-linux-gnu") == _family("x86_64-unknown-linux-gnu")
    True
    """
    parts = triple.split("-")
    cpu = {"arm64": "aarch64", "amd64": "x86_64"}.get(parts[0], parts[0])
    systems = ("linux", "darwin", "macos", "windows", "freebsd")
    system = next((s for s in systems if any(p.startswith(s) for p in parts[1:])), "")
    return cpu, "darwin" if system == "macos" else system
