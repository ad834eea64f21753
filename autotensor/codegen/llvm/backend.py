"""The CPU backend: Program → LLVM → native objects. Start reading here.

    Program ─▶ kernel texts (kernel, parts, expr, memory, shuffles, intrinsics)
            ─▶ entries around them (entry) ─▶ passes and object bytes (build)
            ─▶ CompiledProgram, Artifact

Symbols are named by content, so that objects of many programs can be linked into one model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from autotensor.base.errors import CodegenError
from autotensor.base.target import Target, features_of
from autotensor.codegen.backend import backend
from autotensor.codegen.dot_instructions import DOTS
from autotensor.codegen.llvm.build import build
from autotensor.codegen.llvm.denormals import KEPT, flushing
from autotensor.codegen.llvm.kernel import KernelText, kernel_text
from autotensor.codegen.llvm.kernel_entry import BARRIER, Call, entry_text, plan_text, shared_text
from autotensor.codegen.llvm.lanes import byte_tables
from autotensor.codegen.llvm.memory import ALIGNMENT
from autotensor.codegen.reread import reread
from autotensor.ir.expr import Dot, Expr
from autotensor.ir.func import Buffer, PrimFunc, Program, Role, Scope
from autotensor.ir.stmt import Alloc, For, ForKind, Store
from autotensor.ir.visit import collect, loads
from autotensor.runtime.files.artifact import ArgSpec, Artifact
from autotensor.runtime.files.artifact_binding import bound
from autotensor.runtime.files.object_cache import ObjectCache, object_key

WORKSPACE = "workspace.per_thread"  # name of the extra argument
# bytes between two threads' parts of the workspace, unless a kernel needs more. Kernels with the same stride
# share the workspace in a model: the part that one kernel has written is in the core's own cache when the
# next kernel writes it (with this, 17 windows in front of products were 1.1 x as fast, Xeon, 2026-11).
# Untouched parts take addresses, but no memory
ONE_STRIDE = 1 << 20
# processors whose masked loads take longer than a few narrower loads: 10 cycles (Zen 1, 2026-12)
SLOW_MASKS = frozenset({"znver1"})
ABI_ALIGNMENT = 16  # alignment of the stack at a function's entry, in bytes
_RUN, _PREPARE = "ENTRY.run", "ENTRY.prepare"  # stand-ins until the text is hashed

# CPU features that LLVM uses for our code. On a CPU without one of them, an object may have illegal
# instructions.
_NEEDS = (
    *("sse4.1", "sse4.2", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "avxvnni", "amx-tile"),
    *("avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512vnni", "avx512bf16", "avx512fp16"),
    *("avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq"),
    *("neon", "fullfp16", "bf16", "dotprod", "sve", "sve2"),
)


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """Native code of one program; `run` and `prepare` are entry symbols of the common ABI."""

    object: bytes
    run: str | None
    prepare: str | None
    per_thread_bytes: int  # bytes for each thread of the extra last argument; 0: there is no such argument
    texts: dict[str, str]  # "llvm", and with `asm` "asm"
    seconds: tuple[float, float, float]  # parse, optimise, emit


def compile_kernels(
    program: Program,
    target: Target,
    prefix: str = "at",
    *,
    asm: bool = False,
    cache: ObjectCache | None = None,
) -> CompiledProgram:
    """Compile both parts of a program into one object whose symbols start with `prefix` and end with a
    content hash.

    asm: keep the assembly too. Compiling then takes 1.5 times as long, and the cache is not used.
    """
    text, per_thread_bytes = module_text(program, target)
    lean = all(_few_passes_suffice(k) for k in program.run)
    digest = object_key(text, *signature(target), str(lean))[:20]
    stem = re.sub(r"\W+", "_", prefix)
    told = (argument_specs(program, per_thread_bytes), kept_constants(program), program.index_ranges)
    run = bound(f"{stem}_run_{digest}", "run", *told) if program.run else None
    prepare = bound(f"{stem}_prepare_{digest}", "prepare", *told) if program.prepare else None
    text = text.replace(f"@{_RUN}(", f"@{run}(").replace(f"@{_PREPARE}(", f"@{prepare}(")
    key = object_key(text, *signature(target), str(lean))
    found = cache.get(key) if cache is not None and not asm else None
    if found is not None:
        return CompiledProgram(found, run, prepare, per_thread_bytes, {"llvm": text}, (0.0, 0.0, 0.0))
    built = build(text, target, lean=lean, asm=asm)
    if cache is not None:
        cache.put(key, built.object)
    texts = {"llvm": text} if built.asm is None else {"llvm": text, "asm": built.asm}
    return CompiledProgram(built.object, run, prepare, per_thread_bytes, texts, built.seconds)


def emit_plan(name: str, calls: Sequence[Call], n_args: int, target: Target) -> bytes:
    """An object with one entry `name`, which runs `calls` in order. Threads meet before each call with
    `barrier`."""
    return build(plan_text(name, calls, n_args), target, opt=0).object


def signature(target: Target) -> tuple[str, ...]:
    """The facts on which an object depends, besides its text."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return (version, target.triple, target.arch, target.features, str(target.vector_bytes))


def needs(target: Target) -> tuple[str, ...]:
    """The CPU features that code for `target` may use."""
    features = features_of(target)
    return tuple(n for n in _NEEDS if n in features)


def _needs_of_dots(program: Program) -> list[str]:
    """The features that a program's dot instructions need, even if its target does not list them."""
    kernels = (*program.prepare, *program.run)
    return [n for f in kernels for dot in collect(f.body, Dot) for n in DOTS.get(dot.instruction).needs]


@backend("llvm")
def compile_program(
    program: Program, target: Target, *, name: str, asm: bool = False, cache: ObjectCache | None = None
) -> Artifact:
    """Compiles a program for a CPU."""
    compiled = compile_kernels(program, target, name, asm=asm, cache=cache)
    if compiled.run is None:
        raise CodegenError(f"program {name!r} has no kernel to run.")
    return Artifact(
        name=name,
        target=target,
        entry=compiled.run,
        prepare=compiled.prepare,
        args=argument_specs(program, compiled.per_thread_bytes),
        objects=(compiled.object,),
        needs=tuple(dict.fromkeys((*needs(target), *_needs_of_dots(program)))),
        texts={**program.texts, **compiled.texts},
        meta={
            "entry_constants": kept_constants(program),
            "prepared_by": _prepared_by(program),
            **({"passed": passed} if (passed := passed_arrays(program)) else {}),
            "alone": not any(_is_shared(f) for f in program.run),
            "reread": reread(program),
            **({"overlapping": sorted(program.overlapping)} if program.overlapping else {}),
        },
    )


def argument_specs(program: Program, per_thread_bytes: int) -> tuple[ArgSpec, ...]:
    """The arguments of an entry of the program, in order."""
    args = [ArgSpec(b.name, role.value, b.shape, str(b.dtype)) for b, role in program.args]
    if per_thread_bytes:
        args.append(ArgSpec(WORKSPACE, "workspace", (per_thread_bytes,), "uint8", per_thread=True))
    return tuple(args)


def kept_constants(program: Program) -> list[str]:
    """The constants that run kernels read; the other constants are read only by prepare kernels."""
    read = {b for k in program.run for b in k.params}
    return [b.name for b, role in program.args if role is Role.CONSTANT and b in read]


def passed_arrays(program: Program) -> list[str]:
    """The prepared arrays that only prepare kernels read."""
    read = {b for k in program.run for b in k.params}
    return [b.name for b in program.buffers(Role.PREPARED) if b not in read]


def _prepared_by(program: Program) -> dict[str, Any]:
    """A hash of the code that prepares constants. Programs with the same such code have the same hash."""
    constants = program.buffers(Role.CONSTANT)
    reads = [b.name for b in constants if any(b in f.params for f in program.prepare)]
    roles = [(b.name, role.value, b.shape, str(b.dtype)) for b, role in program.args]
    prepared = [r for r in roles if r[1] in ("constant", "prepared")]
    return {"code": object_key(repr(prepared), *map(str, program.prepare)), "reads": reads}


def _is_shared(func: PrimFunc) -> bool:
    """Whether several threads share the work of a kernel."""
    return any(loop.kind is ForKind.PARALLEL for loop in collect(func.body, For))


def module_text(program: Program, target: Target) -> tuple[str, int]:
    """The program as one LLVM module, and the bytes of per-thread workspace; entries have stand-in names."""
    slots = {b: k for k, (b, _) in enumerate(program.args)}
    parts = {
        _PREPARE: _part(program, program.prepare, "prepare", target),
        _RUN: _part(program, program.run, "run", target),
    }
    kernels = [k for part in parts.values() for k in part]
    per_thread = max((k.per_thread_bytes for k in kernels), default=0)
    if per_thread:
        per_thread = max(-(-per_thread // ALIGNMENT) * ALIGNMENT, ONE_STRIDE)
    workspace = (len(slots), per_thread) if per_thread else None
    declared = {name: line for k in kernels for name, line in k.declared.items()}
    flush = flushing(target)
    around = {_PREPARE: KEPT, _RUN: flush}
    text = "\n".join(
        [
            *sorted(declared.values()),
            *flush.declared,
            *(k.text for k in kernels),
            *(shared_text(k, k.heavy) for k in kernels if k.heavy is not None),
            *(entry_text(name, part, slots, workspace, around[name]) for name, part in parts.items() if part),
            BARRIER,
            f"attributes #0 = {{ {_attributes(target)} }}",
            "attributes #1 = { nounwind }",
            "",
        ]
    )
    return text, per_thread


def _part(program: Program, funcs: Sequence[PrimFunc], part: str, target: Target) -> list[KernelText]:
    slots = {b for b, _ in program.args}
    aligned = frozenset(program.buffers(Role.PREPARED, Role.WORKSPACE))
    overlapping = frozenset(b for b in slots if b.name in program.overlapping)
    texts = []
    features = needs(target)
    ldexp = "avx512f" in features  # vscalefps
    registers = "v" if ldexp else "x" if "avx" in features else ""
    mask_lanes = 64 if "avx512bw" in features else 16 if "avx512f" in features else 0
    for k, func in enumerate(funcs):
        missing = [b.name for b in func.params if b not in slots]
        if missing:
            raise CodegenError(
                f"kernel {func.name!r} has parameters that the program lacks: {', '.join(missing)}."
            )
        name = f"{part}.{k}.{re.sub(r'[^A-Za-z0-9_.]+', '_', func.name)}"
        texts.append(
            kernel_text(
                func,
                name,
                aligned,
                ldexp=ldexp,
                permutes_bytes=byte_tables.FEATURE in features,
                registers=registers,
                mask_lanes=mask_lanes,
                slow_masks=target.arch in SLOW_MASKS,
                overlapping=overlapping,
            )
        )
    return texts


def _attributes(target: Target) -> str:
    """Attributes of kernels. No CPU names: the text must stay valid for another machine.

    no-builtins: LLVM does not turn loops into memcpy. stackrealign: each spilled register lies in one cache
    line. Without stackrealign, spilling 28 sums every 256 steps takes 5 % of the time, with it 1 % (Xeon,
    2026-11).
    """
    marks = ["nounwind", "noinline", '"no-builtins"']
    if target.vector_bytes > ABI_ALIGNMENT:
        marks.append('"stackrealign"')
    if target.vector_bytes == 64:
        marks += ['"prefer-vector-width"="512"', '"min-legal-vector-width"="512"']
    return " ".join(marks)


def _few_passes_suffice(func: PrimFunc) -> bool:
    """Whether a kernel accumulates in registers and never in memory.

    The full pipeline would also promote accumulators from memory to registers. Index arithmetic is already
    outside the loops. Without the full pipeline a 14x32 micro-kernel compiles in 8 ms instead of 15, to code
    of the same speed (Zen 4, LLVM 22).
    """
    in_memory = (s for s in collect(func.body, Store) if s.buffer.scope is not Scope.REGISTER)
    return any(a.buffer.scope is Scope.REGISTER for a in collect(func.body, Alloc)) and not any(
        s.buffer in _loaded(s.value) for s in in_memory
    )


def _loaded(e: Expr) -> set[Buffer]:
    return {load.buffer for load in loads(e)}


__all__ = [
    "Call",
    "CompiledProgram",
    "compile_kernels",
    "compile_program",
    "emit_plan",
    "module_text",
    "needs",
]
