"""The features of a processor that is known by its name only: from LLVM's own tables, never from this
machine.

llvmlite has no function that lists the features of a name. LLVM's inliner shows them: it inlines a function
only if the processor of the caller has all features that the function may use.

    all()  of the processor ──calls──▶ f0() which may use avx2        now inlined: the processor has avx2
                                       f1() which may use avx512f     still called: it lacks avx512f

Names that are not well known are looked up in a child, because LLVM ends the process for some names.
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
from autotensor.base.registry import nearest


@dataclass(frozen=True, slots=True)
class Family:
    """Processors of one instruction set."""

    triple: str  # the triple for Linux
    plain: str  # LLVM's name of the processor with the fewest features
    asked: tuple[str, ...]  # the features to look for, in LLVM's names
    without: str = ""  # features of LLVM's plain processor that other processors may lack
    names: str = "$^"  # a regular expression for names of its processors; all other names are x86-64
    known: tuple[str, ...] = ()  # names for which LLVM does not end the process


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
NOT_64_BITS = "64-bit code requested"  # LLVM's complaint about an x86 processor that it does not have
NAME_ONE = "Use -mcpu=native for this machine, or a name like haswell, znver4 or x86-64-v3."
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
    """The bytes of a vector register, and the number of registers. If the length is not fixed (SVE, RISC-V's
    V), the least length is taken, 16 bytes, because kernels are written for one length.

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
    """The features in `Family.asked` that a processor has. There are none for an instruction set that is not
    in the table, and none for a name that LLVM does not have (`objection` says so, and compiling for it
    raises an error)."""
    if family not in FAMILIES:
        return frozenset()
    if cpu in (*FAMILIES[family].known, FAMILIES[family].plain):
        return _asked(family, cpu)
    return _by_a_child(family, cpu, "")[0]


def objection(family: str, triple: str, cpu: str, features: str = "") -> str:
    """A sentence about a processor, a feature or a triple that LLVM does not have; "" if LLVM has all three.

    LLVM itself warns, ignores the name and compiles for the least processor of the family.

    >>> objection("x86_64", "x86_64-unknown-linux-gnu", "znver4", "+avx2,-fma")
    ''
    """
    if family not in FAMILIES:
        return _no_generator(triple)
    known = FAMILIES[family]
    stated = {f[1:] for f in features.split(",") if f}
    usual = cpu in (*known.known, known.plain)
    if usual and stated <= {*known.asked, *_detected()}:
        return ""
    _, said = _by_a_child(family, cpu, features)
    if "is not a recognized processor" in said or NOT_64_BITS in said:
        return f"LLVM has no processor {cpu!r} for {triple}."
    unknown = re.search(r"'[+-]?(.*?)' is not a recognized feature", said)
    return f"LLVM has no feature {unknown[1]!r} of {cpu!r} for {triple}." if unknown else ""


def advice(sentence: str, family: str, cpu: str) -> str:
    """Advice after a sentence of `objection`: the nearest name that LLVM has.

    >>> advice("LLVM has no processor 'zen4' for x86_64.", "x86_64", "zen4").partition("? ")[0]
    "Did you mean 'znver4'"
    >>> advice("LLVM has no feature 'avx21' of 'znver4'.", "x86_64", "znver4")
    "Did you mean 'avx2'?"
    """
    processors, features = _named(family)
    if feature := re.search(r"no feature '(.*?)'", sentence):
        return nearest(feature[1], features).rstrip()
    return nearest(cpu, processors) + NAME_ONE if "no code generator" not in sentence else ""


@lru_cache(maxsize=8)
def _named(family: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """LLVM's names of the processors and features of an instruction set; none for other instruction sets."""
    if family not in FAMILIES:
        return (), ()
    _, said = _by_a_child(family, "help", "")
    processors, _, features = said.partition("Available features")
    return tuple(_names(processors)), tuple(_names(features))


def _names(listed: str) -> list[str]:
    return re.findall(r"^  (\S+) +- ", listed, re.MULTILINE)


def _no_generator(triple: str) -> str:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(triple)
    except RuntimeError:
        return f"LLVM has no code generator for {triple!r}."
    return ""


@lru_cache(maxsize=1)
def _detected() -> frozenset[str]:
    """Names of features that LLVM looks for on this machine."""
    import llvmlite.binding as llvm

    return frozenset(llvm.get_host_cpu_features())


@lru_cache(maxsize=64)
def _by_a_child(family: str, cpu: str, features: str) -> tuple[frozenset[str], str]:
    """The features of a processor, found by a child (none if LLVM ended it), and LLVM's warnings."""
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()", family, cpu, features]
    places = {**os.environ, "PYTHONPATH": python_path()}
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=places)
    found = frozenset(said.stdout.split()) if said.returncode == 0 else frozenset[str]()
    return found, said.stderr


def _asked(family: str, cpu: str, features: str = "") -> frozenset[str]:
    import llvmlite.binding as llvm

    known = FAMILIES[family]
    llvm.initialize_all_targets()
    machine = llvm.Target.from_triple(known.triple).create_target_machine(cpu=cpu, features=features)
    module = llvm.parse_assembly(_question(known, cpu), context=llvm.create_context())
    module.triple, module.data_layout = known.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    body = str(module.get_function("all"))
    return frozenset(known.asked[int(n)] for n in re.findall(r"store volatile i32 (\d+),", body))


def _question(family: Family, cpu: str) -> str:
    """The LLVM text of the picture in this module's docstring: a function of the processor, which calls one
    function for each feature."""
    calls = "".join(f"  call void @f{n}(ptr %p)\n" for n in range(len(family.asked)))
    features = "".join(
        f"define internal void @f{n}(ptr %p) #{n + 1} {{\n  store volatile i32 {n}, ptr %p\n  ret void\n}}\n"
        f'attributes #{n + 1} = {{ "tune-cpu"="{cpu}" "target-features"="{family.without}+{name}" }}\n'
        for n, name in enumerate(family.asked)
    )
    processor = f'attributes #0 = {{ "target-cpu"="{cpu}" }}\n'
    return f"define void @all(ptr %p) #0 {{\n{calls}  ret void\n}}\n{processor}{features}"


def main() -> None:
    """Prints a processor's features. A parent runs this as a child, because LLVM may end the process."""
    print(*_asked(*sys.argv[1:4]))


__all__ = [
    "FAMILIES",
    "NOT_64_BITS",
    "Family",
    "advice",
    "family_named",
    "family_of",
    "features_named",
    "objection",
    "vector_limits",
]
