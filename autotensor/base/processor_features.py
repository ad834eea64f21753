"""The features of a processor that is known by its name only: from LLVM's own tables, never from this
machine.

llvmlite has no function that lists the features of a name. LLVM's inliner shows them: it moves a function
into another one only if the processor of that has all features which the first may use.

    all()  of the processor ──calls──▶ f0() which may use avx2        its store is in all() now: it has avx2
                                       f1() which may use avx512f     still called: it lacks avx512f

Names that are not well known are looked up in a child, because LLVM ends the process at some.
Source: LLVM, `X86TTIImpl::areInlineCompatible`, and those of AArch64 and RISC-V.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

from autotensor.base.python_path import python_path


@dataclass(frozen=True, slots=True)
class Family:
    """Processors of one instruction set."""

    triple: str  # of Linux
    plain: str  # LLVM's name of the least of them
    asked: tuple[str, ...]  # features, in LLVM's names
    without: str = ""  # what LLVM gives the least one, though others lack it
    names: str = "$^"  # of its processors, as an expression; what no family claims is x86-64
    known: tuple[str, ...] = ()  # names at which LLVM does not end the process


FAMILIES = {
    "x86_64": Family(
        "x86_64-unknown-linux-gnu",
        "x86-64",
        (
            *("sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "avxvnni"),
            *("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512vnni", "avx512bf16"),
            *("avx512fp16", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"),
            *("amx-tile", "amx-int8", "amx-bf16"),
        ),
        known=(
            *("", "generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "haswell", "skylake-avx512"),
            *("cascadelake", "icelake-server", "sapphirerapids", "znver2", "znver3", "znver4", "znver5"),
        ),
    ),
    "aarch64": Family(
        "aarch64-unknown-linux-gnu",
        "generic",
        ("neon", "fullfp16", "dotprod", "bf16", "i8mm", "sve", "sve2"),
        without="-ete,-trbe,",
        names="cortex-|neoverse-|apple-|ampere|a64fx|grace|oryon",
        known=("", "generic", "neoverse-n1", "neoverse-v1", "neoverse-n2", "neoverse-v2", "apple-m1"),
    ),
    "riscv64": Family(
        "riscv64-unknown-linux-gnu", "generic-rv64", ("v",), names="generic-rv|sifive-|spacemit-"
    ),
    "wasm32": Family("wasm32-unknown-unknown", "generic", ("simd128",)),
}
_SPELLINGS = {"arm64": "aarch64", "amd64": "x86_64"}  # Apple's and Windows' names


def family_of(triple: str) -> str:
    """The instruction set of a triple.

    >>> family_of("arm64-apple-darwin")
    'aarch64'
    """
    first = triple.partition("-")[0]
    return _SPELLINGS.get(first, first)


def family_named(cpu: str) -> str:
    """The instruction set of a processor's name.

    >>> family_named("neoverse-n1"), family_named("znver4")
    ('aarch64', 'x86_64')
    """
    return next((name for name, f in FAMILIES.items() if re.match(f.names, cpu)), "x86_64")


def vector_limits(features: frozenset[str]) -> tuple[int, int]:
    """Bytes of a vector register, and how many there are. For vectors of any length the least one is taken
    (SVE, RISC-V's V: 16 bytes), because kernels are written for one length.

    >>> vector_limits(frozenset({"avx", "avx2"}))
    (32, 16)
    """
    if "avx512f" in features:
        return 64, 32
    if features & {"avx", "avx2"}:
        return 32, 16
    return 16, 32 if features & {"neon", "v"} else 16


@lru_cache(maxsize=64)
def features_named(family: str, cpu: str) -> frozenset[str]:
    """Those of `Family.asked` that a processor has; none of an instruction set that is not in the table, or
    of a name that LLVM does not have (compiling for it is refused)."""
    if family not in FAMILIES:
        return frozenset()
    if cpu in (*FAMILIES[family].known, FAMILIES[family].plain):
        return _asked(family, cpu)
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()", family, cpu]
    places = {**os.environ, "PYTHONPATH": python_path()}
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=places)
    return frozenset(said.stdout.split()) if said.returncode == 0 else frozenset()


def _asked(family: str, cpu: str) -> frozenset[str]:
    import llvmlite.binding as llvm

    known = FAMILIES[family]
    llvm.initialize_all_targets()
    machine = llvm.Target.from_triple(known.triple).create_target_machine()
    module = llvm.parse_assembly(_question(known, cpu), context=llvm.create_context())
    module.triple, module.data_layout = known.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    body = str(module.get_function("all"))
    return frozenset(known.asked[int(n)] for n in re.findall(r"store volatile i32 (\d+),", body))


def _question(family: Family, cpu: str) -> str:
    """A function of the processor, and one for each feature that it calls; see this module's picture."""
    calls = "".join(f"  call void @f{n}(ptr %p)\n" for n in range(len(family.asked)))
    features = "".join(
        f"define internal void @f{n}(ptr %p) #{n + 1} {{\n  store volatile i32 {n}, ptr %p\n  ret void\n}}\n"
        f'attributes #{n + 1} = {{ "tune-cpu"="{cpu}" "target-features"="{family.without}+{name}" }}\n'
        for n, name in enumerate(family.asked)
    )
    processor = f'attributes #0 = {{ "target-cpu"="{cpu}" }}\n'
    return f"define void @all(ptr %p) #0 {{\n{calls}  ret void\n}}\n{processor}{features}"


def main() -> None:
    """Prints what a processor has, for a process that does not want to end with this one."""
    print(*_asked(sys.argv[1], sys.argv[2]))


__all__ = ["FAMILIES", "Family", "family_named", "family_of", "features_named", "vector_limits"]
