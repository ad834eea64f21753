"""Checks the description of a compiled function before it is used.

A sealed file is unchanged since it was written, but anybody can write one. So the facts that the runtime
relies on are checked here: types of values, names that must exist, and offsets that must be inside their
memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from autotensor.base.dtype import dtype_of
from autotensor.base.errors import ArtifactError
from autotensor.base.target import Target
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.launches import DEVICE_KINDS, launches

MOST_BYTES = 1 << 47  # largest argument in bytes: no process can address more
MOST_AXES = 32  # most axes of an array in any version of NumPy
MOST_THREADS = 1 << 16
MOST_SHARED = 1 << 30  # most bytes of shared memory: no device has that much
_KINDS: Mapping[str, Any] = {
    "name": str,
    "target": dict,
    "entry": str,
    "prepare": str | None,
    "args": list,
    "needs": list,
    "objects": list,
    "texts": dict,
    "values": dict,
    "meta": dict,
}


def check_head(head: Any) -> None:
    """Raises ArtifactError unless a description has all its parts, each of the right kind."""
    _want(head, dict, "it")
    for name, kind in _KINDS.items():
        if name not in head:
            raise ArtifactError(f"it has no {name!r}")
        _want(head[name], kind, repr(name))
    if not head["entry"]:
        raise ArtifactError("its 'entry' has no name")
    for name in ("needs", "objects"):
        for each in head[name]:
            _want(each, str, f"an element of {name!r}")
    for name in ("texts", "values"):
        for each in head[name].values():
            _want(each, str, f"an element of {name!r}")
    for arg in head["args"]:
        _want(arg, dict, "an argument")
        if set(arg) - {"per_thread"} != {"name", "role", "shape", "dtype"}:
            raise ArtifactError(f"an argument has the parts {', '.join(sorted(map(str, arg)))}")
        _want(arg["shape"], list, "a shape")
        if len(arg["shape"]) > MOST_AXES:
            raise ArtifactError(f"an argument has {len(arg['shape'])} axes")
        for n in arg["shape"]:
            _want(n, int, "an extent")
            if not 0 <= n <= MOST_BYTES:
                raise ArtifactError(f"an extent is {_short(n)}")
        for name in ("name", "role", "dtype"):
            _want(arg[name], str, f"{name!r} of an argument")
        _want(arg.get("per_thread", False), bool, "'per_thread'")
    _check_target(head["target"])


def _check_target(target: Mapping[str, Any]) -> None:
    kinds = {"str": str, "int": int, "bool": bool}
    for f in fields(Target):
        if f.name in target:
            kind = kinds.get(str(f.type), list if str(f.type).startswith("tuple") else None)
            if kind is not None:
                _want(target[f.name], kind, f"{f.name!r} of its target")
    cores = target.get("num_cores", 1)
    if not 0 < cores <= MOST_THREADS:
        raise ArtifactError(f"its target has {cores} cores")


def check_meta(artifact: Artifact) -> None:
    """Raises ArtifactError, or another error, if the entries of `meta` that the runtime reads do not fit the
    arguments."""
    meta, specs = artifact.meta, {a.name: a for a in artifact.args}
    for a in artifact.args:
        if a.bytes > MOST_BYTES:
            raise ArtifactError(f"argument {a} has {a.bytes} bytes")
    unmade = [a for a in artifact.role("prepared") if a.name not in artifact.values]
    if unmade and not artifact.prepare and artifact.target.kind == "llvm":
        raise ArtifactError(f"it has no value for {unmade[0]}, and no function that prepares it")
    free = [a for a in artifact.role("constant") if a.name not in artifact.values]
    if unmade and free and "kernels" in meta:
        raise ArtifactError(f"it is a model and has no value for {free[0]}")
    kept = meta.get("entry_constants", [])
    _want(kept, list | None, "'entry_constants'")
    for name in kept or ():
        if name not in specs or specs[name].role != "constant":
            raise ArtifactError(f"'entry_constants' names {name!r}, which is not one of its constants")
    _check_ranges(meta.get("index_ranges", {}), specs)
    _want(meta.get("alone", False), bool, "'alone'")
    _want(meta.get("reread", []), list, "'reread'")
    by = meta.get("prepared_by")
    if by is not None:
        _want(by, dict, "'prepared_by'")
        _want(by.get("code"), str, "'code' of 'prepared_by'")
        _want(by.get("reads"), list, "'reads' of 'prepared_by'")
        if not all(isinstance(name, str) and name in specs for name in by["reads"]):
            raise ArtifactError("'prepared_by' reads a name that is not one of its arguments")
    _check_kernels(meta, artifact.args)
    if artifact.target.kind in DEVICE_KINDS:
        for data in artifact.objects:
            data.decode()  # source code, or assembly for a virtual machine (PTX)
        for spec in (*launches(artifact, "prepare"), *launches(artifact, "run")):
            for n, offset in spec.args:
                if not (0 <= n < len(artifact.args) and 0 <= offset <= artifact.args[n].bytes):
                    raise ArtifactError(
                        f"kernel {spec.kernel!r} has an argument at {(n, offset)}, outside of all"
                    )
            if not (
                0 <= spec.object < len(artifact.objects) and 0 <= spec.dynamic_shared_bytes <= MOST_SHARED
            ):
                raise ArtifactError(f"kernel {spec.kernel!r} needs more than any device has")


def _check_ranges(ranges: Any, specs: Mapping[str, ArgSpec]) -> None:
    _want(ranges, dict, "'index_ranges'")
    for name, found in ranges.items():
        if name not in specs or specs[name].role not in ("input", "constant"):
            raise ArtifactError(f"'index_ranges' names {name!r}, which is not one of its inputs")
        _want(found, list | tuple, "an index range")
        if len(found) != 2 or not all(type(n) is int for n in found):
            raise ArtifactError(f"the indices {name!r} range over {found!r}")
        if dtype_of(specs[name].dtype).kind not in ("int", "uint"):
            raise ArtifactError(f"the indices {name!r} are {specs[name].dtype}")


def _check_kernels(meta: Mapping[str, Any], args: tuple[ArgSpec, ...]) -> None:
    """Checks that the arguments of every kernel of a linked model are inside the model's arguments."""
    kernels, programs = meta.get("kernels", []), meta.get("programs", {})
    _want(kernels, list, "'kernels'")
    _want(programs, dict, "'programs'")
    for k in kernels:
        _want(k, dict, "a kernel")
        _want(k.get("symbol"), str, "'symbol' of a kernel")
        _want(k.get("name"), str, "'name' of a kernel")
        _want(k.get("slots"), list, "'slots' of a kernel")
        # "args": those of one call, if the kernel has run-time extents
        inner = k.get("args", programs.get(k["symbol"], {}).get("args", []) if programs else [])
        for n, slot in enumerate(k["slots"]):
            if not isinstance(slot, list) or len(slot) != 2 or not all(type(x) is int for x in slot):
                raise ArtifactError(f"kernel {k['name']!r} has its argument at {slot!r}")
            arg, offset = slot
            if not 0 <= arg < len(args) or not 0 <= offset <= args[arg].bytes:
                raise ArtifactError(f"kernel {k['name']!r} has argument {n} at {slot}, outside its memory")
            if n < len(inner) and not _fits(inner[n], offset, args[arg]):
                raise ArtifactError(f"kernel {k['name']!r} has argument {n} at {slot}, beyond the end of it")


def _fits(inner: Mapping[str, Any], offset: int, outer: ArgSpec) -> bool:
    """Whether a kernel's argument ends inside the model's argument. Constants that were prepared have no
    position, so they always fit."""
    if inner["role"] == "constant" or inner.get("per_thread"):
        return True
    size = dtype_of(inner["dtype"]).bytes
    for n in inner["shape"]:
        size *= n
    return offset + size <= outer.bytes


def _want(value: Any, kind: Any, what: str) -> None:
    is_bool = isinstance(value, bool) and kind is int
    if is_bool or not isinstance(value, kind):
        raise ArtifactError(f"{what} is {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) > MOST_BYTES:
        return f"a number of {value.bit_length()} bits"
    text = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."


__all__ = ["check_head", "check_meta"]
