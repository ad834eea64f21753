"""From object files to addresses: is this machine able to run them, are all symbols there, then link and
load.

Everything that LLVM would answer with an abort or the processor with an illegal instruction is checked here
first and said in one sentence.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from autotensor.base.errors import ArtifactError
from autotensor.runtime.artifact import Artifact
from autotensor.runtime.elf import read_symbols


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Code in memory; the addresses are good for as long as this object lives."""

    entry: int
    prepare: int  # 0: none
    engine: Any


def check_host(artifact: Artifact) -> None:
    """Raise ArtifactError unless this machine can run the artifact's code."""
    if artifact.target.kind != "llvm":
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.kind!r}; only code for CPUs is loaded here."
        )
    if artifact.target.triple and _family(artifact.target.triple) != _family(_host_triple()):
        raise ArtifactError(
            f"{artifact.name} is compiled for {artifact.target.triple}, this machine is {_host_triple()}.",
            fix="Load it with recompile=True, or build it for this machine.",
        )
    has = _host_features()
    missing = [name for name in (n.lstrip("+") for n in artifact.needs) if not has.get(name, False)]
    if missing:
        raise ArtifactError(
            f"{artifact.name} needs the CPU features {', '.join(missing)}, which this processor lacks.",
            fix="Load it with recompile=True, or build it for this machine.",
        )


def load(artifact: Artifact) -> Loaded:
    """Link the objects of `artifact` into this process. Raises ArtifactError if they cannot be."""
    import llvmlite.binding as llvm

    check_host(artifact)
    _check_symbols(artifact)
    engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    try:
        for data in artifact.objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
    except RuntimeError as error:
        raise ArtifactError(f"{artifact.name}: its object code cannot be loaded: {error}.") from error
    return Loaded(
        entry=_address(engine, artifact, artifact.entry),
        prepare=_address(engine, artifact, artifact.prepare) if artifact.prepare else 0,
        engine=engine,
    )


def _address(engine: Any, artifact: Artifact, symbol: str) -> int:
    found = int(engine.get_function_address(symbol))
    if not found:
        raise ArtifactError(f"{artifact.name} has no function {symbol!r} in its object code.")
    return found


def _check_symbols(artifact: Artifact) -> None:
    """Raise ArtifactError for damaged objects, objects of another processor, and symbols that nobody
    defines."""
    defined: set[str] = set()
    wanted: set[str] = set()
    for data in artifact.objects:
        try:
            symbols = read_symbols(data)
        except ValueError as error:
            raise ArtifactError(f"{artifact.name}: one of its object files is {error}.") from error
        if symbols is None:
            return  # not ELF: LLVM has the say
        if symbols.machine and symbols.machine != _family(_host_triple())[0]:
            raise ArtifactError(
                f"{artifact.name} holds code for {symbols.machine}, this machine is {_host_triple()}.",
                fix="Load it with recompile=True, or build it for this machine.",
            )
        defined |= symbols.defined
        wanted |= symbols.undefined
    for symbol in (artifact.entry, artifact.prepare):
        if symbol and symbol not in defined:
            raise ArtifactError(f"{artifact.name} has no function {symbol!r} in its object code.")
    missing = sorted(name for name in wanted - defined if not _in_process(name))
    if missing:
        raise ArtifactError(f"{artifact.name} calls {', '.join(missing)}, which no library here defines.")


_LINKER_MADE = frozenset({"_GLOBAL_OFFSET_TABLE_"})


def _in_process(name: str) -> bool:
    import llvmlite.binding as llvm

    if name in _LINKER_MADE or llvm.address_of_symbol(name):
        return True
    _load_libm()
    return bool(llvm.address_of_symbol(name))


@cache
def _load_libm() -> None:
    """Make the mathematical functions visible where the interpreter itself was not linked with them."""
    import llvmlite.binding as llvm

    for name in ("libm.so.6", "libm.so", "libm.dylib"):
        with suppress(RuntimeError):
            llvm.load_library_permanently(name)
            return


def _machine() -> Any:
    """A new target machine each time: the engine takes it and frees it with itself."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(opt=1, codemodel="jitdefault")


@cache
def _host_features() -> dict[str, bool]:
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


@cache
def _host_triple() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple())


def _family(triple: str) -> tuple[str, str]:
    """Processor family and system of a triple; vendor and library do not matter.

    >>> _family("x86_64-pc-linux-gnu") == _family("x86_64-unknown-linux-gnu")
    True
    """
    parts = triple.split("-")
    cpu = {"arm64": "aarch64", "amd64": "x86_64"}.get(parts[0], parts[0])
    systems = ("linux", "darwin", "macos", "windows", "freebsd")
    system = next((s for s in systems if any(p.startswith(s) for p in parts[1:])), "")
    return cpu, "darwin" if system == "macos" else system
