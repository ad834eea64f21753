"""From LLVM text to object bytes: the target machine, the passes, the object and on request the assembly.

    text ──parse, passes──▶ module ──generate code──▶ object
                                   └─generate code──▶ listing ──assemble──▶ object      asm=True

Code is generated only once, because this takes most of the time: with asm=True the object is assembled from
the listing. The bytes of its code are the same.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from autotensor.base import fork_locks
from autotensor.base.errors import CodegenError, TargetError
from autotensor.base.processor_features import FAMILIES, NOT_64_BITS, advice, family_of
from autotensor.base.target import Target, switched
from autotensor.codegen.llvm.build_child import build_apart
from autotensor.codegen.llvm.single_lane_stores import STORES, scalar_stores

# target machines are shared, and LLVM compiles under one lock in llvmlite anyway
_LOCK = fork_locks.safe(threading.Lock())


@dataclass(frozen=True, slots=True)
class Built:
    """The result of compiling one module."""

    object: bytes
    asm: str | None
    seconds: tuple[float, float, float]  # parse, optimise, emit


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()


@lru_cache(maxsize=1)
def _initialize_all() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


# A function with the ingredients of kernels: vectors, a call, floating point.
_SAMPLE = """
declare float @expf(float)
define void @sample(ptr %p, i64 %n) {
  %v = load <4 x float>, ptr %p, align 4
  %w = fmul <4 x float> %v, %v
  store <4 x float> %w, ptr %p, align 4
  %x = load float, ptr %p
  %y = call float @expf(float %x)
  store float %y, ptr %p
  ret void
}
"""


def _unknown_processor(arch: str, triple: str) -> TargetError:
    sentence = f"LLVM has no processor {arch!r} for {triple}."
    return TargetError(sentence, fix=advice(sentence, family_of(triple), arch))


@lru_cache(maxsize=64)
def _check_target(triple: str, arch: str, features: str) -> None:
    """Raises TargetError for a target that LLVM cannot compile for. With some such targets, LLVM would end
    the process; others it ignores with a warning. So a child process tries every target that is neither this
    machine nor well known."""
    family = FAMILIES.get(triple.partition("-")[0])
    if features == "" and family and arch in family.known:
        return
    is_host = triple == llvm.get_process_triple() and arch == llvm.get_host_cpu_name()
    if is_host and features in ("", llvm.get_host_cpu_features().flatten()):
        return
    try:
        _, said = build_apart(_SAMPLE, triple, arch, features)
    except CodegenError as error:
        if NOT_64_BITS in error.what:
            raise _unknown_processor(arch, triple) from error
        with_features = f" with features {features!r}" if 0 < len(features) < 80 else ""
        raise TargetError(
            f"there is no code for processor {arch!r}{with_features} of {triple}: {error.what}",
            fix=advice(error.what, family_of(triple), arch),
        ) from error
    if "is not a recognized processor" in said:
        raise _unknown_processor(arch, triple)
    unknown = re.search(r"'(.*)' is not a recognized feature", said)
    if unknown:
        sentence = f"LLVM has no feature {unknown[1]!r} of {arch!r} for {triple}."
        raise TargetError(sentence, fix=advice(sentence, family_of(triple), arch))


def machine(triple: str, arch: str, features: str, opt: int = 3) -> Any:
    """LLVM's target machine, for a target that LLVM can compile for. Raises TargetError for others."""
    _target(triple)
    _check_target(triple or str(llvm.get_process_triple()), arch, features)
    return target_machine(triple, arch, features, opt)


@lru_cache(maxsize=8)
def target_machine(triple: str, arch: str, features: str, opt: int) -> Any:
    """LLVM's target machine; position-independent, so that objects can be linked as well as loaded."""
    found = _target(triple)
    return found.create_target_machine(cpu=arch, features=features, opt=opt, reloc="pic", codemodel="small")


def _target(triple: str) -> Any:
    """Raises CodegenError for a triple that LLVM has no code generator for."""
    _initialize()
    if triple and triple != llvm.get_process_triple():
        _initialize_all()
    try:
        return llvm.Target.from_triple(triple) if triple else llvm.Target.from_default_triple()
    except RuntimeError as error:
        raise CodegenError(f"LLVM has no code generator for {triple!r}: {error}.") from error


def build(text: str, target: Target, *, lean: bool = False, asm: bool = False, opt: int = 3) -> Built:
    """Object bytes of a module.

    lean: run only the passes that a register-tiled kernel needs. opt: the level of code generation, 0 to 3; 0
    and 1 run no passes. Raises CodegenError when LLVM rejects the text, which is a bug of the emitter.
    """
    tm = machine(target.triple, target.arch, switched(target), opt)
    with _LOCK:
        return build_with(tm, text, lean=lean, asm=asm, opt=opt)


def build_with(tm: Any, text: str, *, lean: bool = False, asm: bool = False, opt: int = 3) -> Built:
    """Like `build`, but for a target machine object `tm`. Only one thread at a time may call this."""
    started = time.perf_counter()
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM rejects the generated code: {error}", context=lambda: text) from error
    module.triple = tm.triple
    module.data_layout = str(tm.target_data)
    parsed = time.perf_counter()
    if opt > 1:
        _optimise(module, tm, lean)
        module = _with_scalar_stores(module, text)
    optimised = time.perf_counter()
    listing = tm.emit_assembly(module) if asm and _assembles(tm.triple) else None
    data = tm.emit_object(module) if listing is None else assemble(listing, tm)
    emitted = time.perf_counter()
    if asm and listing is None:
        listing = tm.emit_assembly(module)
    return Built(data, listing, (parsed - started, optimised - parsed, emitted - optimised))


def _with_scalar_stores(module: Any, text: str) -> Any:
    """The module without masked stores of one lane. text: what the module was parsed from."""
    if STORES not in text:
        return module
    before = str(module)
    after = scalar_stores(before)
    return module if after == before else llvm.parse_assembly(after, context=llvm.create_context())


def _assembles(triple: str) -> bool:
    """Whether there is an assembler for this triple: llvmlite includes only the assembler of this machine's
    own processor family."""
    return triple.partition("-")[0] == str(llvm.get_process_triple()).partition("-")[0]


def assemble(listing: str, tm: Any) -> bytes:
    """The object of a listing, made from a module with nothing else in it. LLVM generates no code a second
    time, so this takes a tenth of the time."""
    escaped = listing.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
    module = llvm.parse_assembly(f'module asm "{escaped}"\n', context=llvm.create_context())
    module.triple, module.data_layout = tm.triple, str(tm.target_data)
    data: bytes = tm.emit_object(module)
    return data


def _optimise(module: Any, tm: Any, lean: bool) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # schedules do all this explicitly; LLVM's own passes would undo register tiles and double the compile
    # time
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(tm, options)
    if lean:
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()  # for the functions of arithmetic/helpers.py
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)
    # This frees 75 kB, which llvmlite 0.50 never frees: a `ModulePassManager` finds ObjectRef's empty
    # `_dispose` first.
    NewPassManager._dispose(manager)
    manager.detach()
