"""Writing a compiled function as a C library; start reading here.

    Artifact ──▶ NAME.h            what C sees (header.py)
             ──▶ NAME.o            kernels + entry, launcher and pool, functions of the header: one object
             ──▶ NAME.weights      bound constants, mapped when the program runs (weights_file.py)
             ──▶ NAME_example.c    a program to begin with
             ──▶ libNAME.so        where a linker is found (shared_object.py)

The kernels are the objects of the artifact itself, so that C gets the same bits. The launcher and the pool
are made from the same text as those that Python calls. Only `interface.py` is written for C, and it is LLVM
IR too, so no compiler is needed.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import llvmlite.binding as llvm

from autotensor.base.errors import ArtifactError, InputError, TargetError
from autotensor.base.target import Target
from autotensor.codegen.library.header import example, header, made_from
from autotensor.codegen.library.interface import exported, interface_ir
from autotensor.codegen.library.shared_object import link_shared
from autotensor.codegen.library.shared_threads import shared_symbol
from autotensor.codegen.library.tables import Weights
from autotensor.codegen.library.weights_file import weights_of, write_weights
from autotensor.codegen.llvm.build import build
from autotensor.runtime.arrays import Array
from autotensor.runtime.files.artifact import OPEN_SHAPES, Artifact
from autotensor.runtime.files.atomic_write import replacing
from autotensor.runtime.linking.merged_object import merged_object
from autotensor.runtime.native.launcher import launcher_ir
from autotensor.runtime.open_artifact import ready

# names like pthread_create belong to libc, and the pool calls them
_IDENTIFIER = re.compile(r"(?!pthread\Z)[A-Za-z_]\w*", re.ASCII)
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Library:
    """The files of a C library."""

    header: Path
    object: Path
    example: Path
    weights: Path | None  # None: the function has no weights
    shared: Path | None  # None: there is no linker, and `note` says so
    note: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the library has."""
        found = (self.header, self.object, self.weights, self.shared, self.example)
        return tuple(path for path in found if path is not None)


def write_library(artifact: Artifact, folder: str | Path, name: str = "") -> Library:
    """Writes a compiled function as a C library into a folder, which is created if it does not exist.

    name: the prefix of the library's functions and files; the artifact's name if it is empty. Existing files
    are replaced, each in one step.
    Raises InputError if the name is not valid in C or the folder cannot be written, and TargetError for a
    function of a device. Raises ArtifactError if constants have no values, or if only code of another machine
    could prepare them.
    """
    name, place = name or artifact.name, Path(folder)
    if OPEN_SHAPES in artifact.meta:
        raise InputError(
            f"a C library takes one set of shapes; {artifact.name} has open extents.",
            fix="Compile it for one set of shapes.",
        )
    triple = check_library(artifact.target, place, name)
    artifact = ready(artifact)
    values = _values(artifact)
    weights = weights_of(values)
    file = place / f"{name}.weights" if values else None
    shown = file.name if file else ""
    library = Library(place / f"{name}.h", place / f"{name}.o", place / f"{name}_example.c", file, None, "")
    if file:
        write_weights(file, weights, values)
    texts = {
        library.header: header(artifact, name, triple, shown),
        library.example: example(name, shown),
    }
    contents = {path: text.encode() for path, text in texts.items()}
    for path, data in (contents | {library.object: _object(artifact, name, triple, weights)}).items():
        with replacing(path) as out:
            out.write(data)
    shared, note = link_shared(library.object, place / f"lib{name}.so", triple)
    return replace(library, shared=shared, note=note)


def _object(artifact: Artifact, name: str, triple: str, weights: Weights) -> bytes:
    """One object with everything. It exports only the functions of the header and the state of the
    threads."""
    machine = triple.partition("-")[0]
    anywhere = replace(artifact.target, triple=triple, arch="", features="")  # any CPU of the family
    own = build(interface_ir(artifact, name, weights, machine), anywhere).object
    launcher = build(launcher_ir(machine, "linux"), anywhere, opt=0).object
    seen = (*exported(name).values(), shared_symbol(machine))
    return merged_object(artifact.name, (*artifact.objects, launcher, own), seen)


def check_library(target: Target, folder: Path, name: str) -> str:
    """Creates the folder. Returns the triple of a library of this name and target.

    Raises InputError if the library cannot be written to the folder, TargetError for a target without C
    libraries.
    """
    if target.kind != "llvm":
        raise TargetError(
            f"target {target.kind!r} cannot become a C library; only code for processors can.",
            fix="Compile for a processor: --target llvm, or target='llvm'.",
        )
    triple = str(target.triple or llvm.get_process_triple())
    if "linux" not in triple:
        raise TargetError(
            f"C libraries are written for Linux (ELF); this target is {triple}.",
            fix="Compile on a Linux machine, or give an .atm file that was compiled on one.",
        )
    if not _IDENTIFIER.fullmatch(name) or len(name) > _LONGEST_NAME:
        fixed = re.sub(r"\W", "_", name, flags=re.ASCII)[:_LONGEST_NAME] or "model"
        fixed = f"_{fixed}" if fixed[0].isdigit() or fixed == name else fixed
        raise InputError(
            f"{name[:_LONGEST_NAME]!r} cannot begin the names of C functions.",
            fix=f"Give a name of letters, digits and underscores: --name {fixed}, or name={fixed!r}.",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror or error}.",
            fix="Choose a place that you may write.",
        ) from error
    return triple


def check_replaced(folder: Path, name: str, model: str) -> None:
    """Raises InputError if the library would replace files other than an earlier library of this model."""
    endings = (f"{name}.h", f"{name}.o", f"{name}.weights", f"{name}_example.c", f"lib{name}.so")
    there = [path for path in (folder / each for each in endings) if path.exists()]
    if there and not _is_of(folder / f"{name}.h", model):
        raise InputError(
            f"{there[0]} exists and does not belong to a C library of {model}.",
            fix="Name another folder with --out, or replace it by --force.",
        )


def _is_of(header: Path, model: str) -> bool:
    """Whether a header is that of a library of this model."""
    try:
        return f"{made_from(model)}, version ".encode() in header.read_bytes()
    except OSError:
        return False


def _values(artifact: Artifact) -> dict[str, Array]:
    """The weights that `entry` reads besides its arguments. Raises ArtifactError for a weight without a
    value."""
    read = [a.name for a in artifact.weights()]
    missing = [n for n in read if n not in artifact.values]
    free = [a.name for a in artifact.role("constant") if a.name not in artifact.values]
    if missing:
        names = ", ".join(free or missing)
        raise ArtifactError(
            f"{artifact.name}: the constants {names} have no values, and C cannot give them later.",
            fix="Bind them first: f.bind(W=w).",
        )
    return {name: artifact.values[name] for name in read}


__all__ = ["Library", "check_library", "check_replaced", "write_library"]
