"""The constants of a linked model: all constants that its kernels read, as given or prepared, each once.

    groups + artifacts ──▶ constants_of ──▶ ModelConstants ──▶ prepared_values: the arrays that calls read

Equal arrays are one value. If several groups prepare equal constants in the same way, only one group does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotensor.base.errors import GraphError
from autotensor.base.names import free_name
from autotensor.codegen.llvm.preparing import preparing_here
from autotensor.graph.groups import Group
from autotensor.graph.ir import Array, Constant, GraphNode
from autotensor.graph.storage import storage
from autotensor.runtime.files.artifact import EXTENTS, ArgSpec, Artifact
from autotensor.runtime.open_artifact import open_artifact


def values_of(group: Group) -> dict[str, GraphNode]:
    """The value of every argument, by the argument's name."""
    return dict(zip(group.arg_names, (*group.inputs, *(storage(o) for o in group.outputs)), strict=True))


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """The constants that the model's kernels read, as given or prepared, under the model's own names."""

    values: Mapping[str, Array]  # as given, each once
    prepared: tuple[ArgSpec, ...]
    names: tuple[Mapping[str, str], ...]  # by group: argument name → the model's name
    preparing: tuple[int, ...]  # the groups whose prepare functions make all prepared arrays
    # constants that kernels read, without those that only prepare functions read
    entry_constants: tuple[str, ...]

    def with_told(self, numbers: Sequence[int]) -> ModelConstants:
        """The constants with the numbers that a call passes, which are those for the greatest extents."""
        told = {EXTENTS: np.array(numbers, np.int64)}
        return replace(self, values={**self.values, **told}, entry_constants=(*self.entry_constants, EXTENTS))


def constants_of(
    groups: Sequence[Group], artifacts: Sequence[Artifact], reserved: Set[str]
) -> ModelConstants:
    """The constants that the groups' programs take. reserved: names that the model already uses.

    Raises GraphError for an argument that must be a constant but is not.
    """
    values: dict[str, Array] = {}
    prepared: dict[str, ArgSpec] = {}
    by_digest: dict[str, str] = {}
    made: dict[tuple[Any, ...], Mapping[str, str]] = {}  # prepare function and constants → results
    # (name, shape, type) → the value that one step of preparing passes to the next
    passed: dict[tuple[Any, ...], str] = {}
    names: list[dict[str, str]] = []
    preparing: list[int] = []
    kept: dict[str, None] = {}
    for n, (group, artifact) in enumerate(zip(groups, artifacts, strict=True)):
        found: dict[str, str] = {}
        nodes = _constant_nodes(group, artifact)
        for arg, node in nodes.items():
            digest = node.data.digest
            if digest not in by_digest:
                by_digest[digest] = free_name(f"const.{node.name or arg}", {*values, *prepared, *reserved})
                values[by_digest[digest]] = node.array
            found[arg] = by_digest[digest]
        kept |= dict.fromkeys(found[arg] for arg in artifact.entry_constants() if arg != EXTENTS)
        if specs := artifact.role("prepared"):
            code, reads = artifact.prepared_by()
            once = passed_on(artifact)
            key = (code or artifact.objects, tuple(once), tuple(nodes[arg].data.digest for arg in reads))
            if key not in made:
                preparing.append(n)
                made[key] = {}
                for spec in specs:
                    alike = spec.name, spec.shape, spec.dtype
                    name = passed.get(alike, "") if spec.name in once else ""
                    if not name:
                        name = free_name(_prepared_name(nodes, spec.name), {*values, *prepared, *reserved})
                        prepared[name] = replace(spec, name=name)
                        if spec.name in once:
                            passed[alike] = name
                    made[key] = {**made[key], spec.name: name}
            found |= made[key]
        names.append(found)
    return ModelConstants(values, tuple(prepared.values()), tuple(names), tuple(preparing), tuple(kept))


def passed_on(artifact: Artifact) -> list[str]:
    """Prepared arrays that are read only while preparing: the next step of preparing may overwrite them."""
    return artifact.meta.get("passed", [])  # type: ignore[no-any-return]


def _constant_nodes(group: Group, artifact: Artifact) -> dict[str, Constant]:
    """The constants that the group's program takes, by the names of its arguments."""
    bound = values_of(group)
    found = {}
    for spec in artifact.role("constant"):
        if spec.name == EXTENTS:
            continue
        node = bound[spec.name]
        if not isinstance(node, Constant):
            raise GraphError(
                f"group {group.name!r}: argument {spec.name!r} must be a constant, it is {node!r}."
            )
        found[spec.name] = node
    return found


def prepared_values(
    groups: Sequence[Group], artifacts: Sequence[Artifact], constants: ModelConstants
) -> dict[str, Array]:
    """The constants that calls read, under the model's names. This machine prepares them for any target."""
    values = {name: constants.values[name] for name in constants.entry_constants}
    for n in constants.preparing:
        artifact, names = artifacts[n], constants.names[n]
        shapes = {a.name: a.shape for a in artifact.role("constant")}
        given = {a: x.array.reshape(shapes[a]) for a, x in _constant_nodes(groups[n], artifact).items()}
        made = open_artifact(preparing_here(artifact)).bind(**given)._values
        values |= {names[a.name]: made[a.name] for a in artifact.role("prepared")}
    return values


def _prepared_name(nodes: Mapping[str, Constant], arg: str) -> str:
    """A readable name: that of the constant to which the prepared array belongs, else the argument's."""
    node = nodes.get(arg.partition(".")[0])
    return f"prepared.{node.name}" if node is not None and node.name else f"prepared.{arg}"
