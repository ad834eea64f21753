"""One file for several processors: of artifacts that differ only in their target, the best that runs here.

(x86-64-v3, x86-64-v4, aarch64)  on AVX2 ──▶ (x86-64-v3)          the widest vectors win, then most features
"""

from __future__ import annotations

from collections.abc import Sequence

from autotensor.base.errors import ArtifactError
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.linking.loader import fits_here


def best_here(artifacts: Sequence[Artifact], anew: bool = False) -> tuple[Artifact, ...]:
    """One artifact for each set of arguments, in order. An artifact without alternatives is returned without
    a check: if it cannot run here, opening it raises the error.

    anew: their code will be compiled again for this processor.
    Raises ArtifactError if there are alternatives and this processor can run none of them, unless `anew`.
    """
    groups: dict[tuple[ArgSpec, ...], list[Artifact]] = {}
    for artifact in artifacts:
        groups.setdefault(artifact.role("input", "output"), []).append(artifact)
    return tuple(_best(g, anew) for g in groups.values())


def _best(group: Sequence[Artifact], anew: bool) -> Artifact:
    if len(group) == 1:
        return group[0]
    fitting = [a for a in group if fits_here(a)]
    if not fitting and anew:
        return min(group, key=lambda a: a.target.vector_bytes)  # the vectors are divided if they are too long
    if not fitting:
        names = ", ".join(a.target.arch or a.target.triple for a in group)
        raise ArtifactError(
            f"{group[0].name} is compiled for {names}; this processor runs none of them.",
            fix="Name this processor, too, where it is compiled: --for …,NAME.",
        )
    return max(fitting, key=lambda a: (a.target.vector_bytes, len(a.needs)))


__all__ = ["best_here"]
