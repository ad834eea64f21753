"""The functions of a C library, as native code: create, run, destroy, descriptions of inputs and outputs,
error texts.

    handle ─▶ weights (mapped) · idle blocks        block = slots for all arguments · workspaces of one call

Any number of threads may call a handle at once: each call takes a block from the handle's list, or makes one,
and puts it back. Libraries differ only in tables of constants: the checks of every argument of a call
(CHECK), the location of every other slot of the entry (LIES), names and shapes. Each status code stands for
one fixed sentence, so no thread has to keep its last error.
"""

from __future__ import annotations

from autotensor.base.granted.tile_permission import PRODUCTS
from autotensor.codegen.library import shared_threads
from autotensor.codegen.library.processor_check import processor_check
from autotensor.codegen.library.tables import (
    BLOCK,
    CODES,
    CODES_EACH,
    FIRST_CODE,
    Weights,
    arrays,
    checks,
    constant,
    inside_functions,
    places_of,
    sentences_of,
    table,
    texts,
)
from autotensor.runtime.files.artifact import Artifact
from autotensor.runtime.native.assembler import Struct, assemble
from autotensor.runtime.native.launcher import PROVIDER

FUNCTIONS = ("create", "run", "destroy", "input", "output", "error")

_HANDLE = Struct("[64] mutex · ptr idle · ptr weights · i32 threads · i64 block_bytes")
# the checks of an argument
_CHECK = Struct("i64 slot · i64 bytes · i64 beyond · ptr inside · i64 least · i64 most")
_LIES = Struct("i64 slot · i64 of_block · i64 offset · i64 of_thread")  # in the weights, or in a block
_ARRAY = Struct("ptr name · ptr dtype · i32 rank · ptr shape · i64 bytes")  # autotensor_array of the header
_HUGE_FROM = 4 << 20  # least bytes for huge pages, as in NumPy

_TEXT = r"""
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i32 @open(ptr, i32, ...)
declare i32 @close(i32)
declare i64 @lseek(i32, i64, i32)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @memcmp(ptr, ptr, i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_destroy(ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare void @launch(ptr, ptr, ptr, i32, i64)
declare void @ENTRY(ptr, ptr, i32, i32)

define i32 @CREATE(ptr %result, ptr %path, i32 %asked) {
  %mapped = alloca ptr
  if eq ptr %result, null ret i32 NULL_POINTER
  store ptr null, ptr %result
  if slt i32 %asked, 0 ret i32 BAD_THREADS
  if sgt i32 %asked, MOST_TEAM ret i32 BAD_THREADS
  %fits = call i1 @processor_fits()
  unless %fits ret i32 BAD_PROCESSOR
  %allowed = call i1 @may_use_tiles()
  unless %allowed ret i32 NO_TILES
  %wrong = call i32 @map_weights(ptr %path, ptr %mapped)
  if ne i32 %wrong, 0 ret i32 %wrong
  %weights = load ptr, ptr %mapped
  %handle = call ptr @calloc(i64 1, i64 HANDLE_BYTES)
  if eq ptr %handle, null {
    %r0 = call i32 @munmap(ptr %weights, i64 WEIGHTS_BYTES)
    ret i32 NO_MEMORY
  }
  %usable = call i32 @usable_cores()
  %few = call i32 @llvm.smin.i32(i32 %usable, i32 MOST_TEAM)
  %by_itself = icmp eq i32 %asked, 0
  %threads = select i1 %by_itself, i32 %few, i32 %asked
  %wide = zext i32 %threads to i64
  %own = mul i64 %wide, BYTES_EACH
  %all = add i64 %own, BYTES_SHARED
  %r1 = call i32 @pthread_mutex_init(handle.mutex(%handle), ptr null)
  store %weights, handle.weights(%handle)
  store %threads, handle.threads(%handle)
  store %all, handle.block_bytes(%handle)
  %team = call i32 @team(ptr %handle)
  if sgt i32 %team, 1 call void @need_threads(i32 %team)
  store ptr %handle, ptr %result
  ret i32 0
}

; Threads of a region.
define internal i32 @team(ptr %handle) {
  %threads = load handle.threads(%handle)
  %team = select i1 ALONE, i32 1, i32 %threads
  ret i32 %team
}

define internal i32 @map_weights(ptr %path, ptr %result) {
  store ptr null, ptr %result
  if eq i64 WEIGHTS_BYTES, 0 ret i32 0
  if eq ptr %path, null ret i32 NO_FILE
  %file = call i32 (ptr, i32, ...) @open(ptr %path, i32 READ_CLOEXEC)
  if slt i32 %file, 0 ret i32 NO_FILE
  %size = call i64 @lseek(i32 %file, i64 0, i32 SEEK_END)
  if ne i64 %size, WEIGHTS_BYTES {
    %r0 = call i32 @close(i32 %file)
    ret i32 OTHER_WEIGHTS
  }
  %at = call ptr @mmap(ptr null, i64 %size, i32 READ, i32 PRIVATE, i32 %file, i64 0)
  %r1 = call i32 @close(i32 %file)
  %where = ptrtoint ptr %at to i64
  if eq i64 %where, -1 ret i32 NO_MEMORY
  %differs = call i32 @memcmp(ptr %at, ptr @weights.head, i64 HEAD_BYTES)
  if ne i32 %differs, 0 {
    %r2 = call i32 @munmap(ptr %at, i64 %size)
    ret i32 OTHER_WEIGHTS
  }
  store ptr %at, ptr %result
  ret i32 0
}

define i32 @RUN(ptr %handle, ptr %inputs, ptr %outputs) {
  if eq ptr %handle, null ret i32 NULL_POINTER
  %block = call ptr @take_block(ptr %handle)
  if eq ptr %block, null ret i32 NO_MEMORY
  %slots = getelementptr i8, ptr %block, i64 BLOCK_HEAD
  %wrong = call i32 @place(ptr %slots, ptr %inputs, ptr %outputs)
  if eq i32 %wrong, 0 {
    %team = call i32 @team(ptr %handle)
    if sgt i32 %team, 1 call void @need_threads(i32 %team)      ; a forked child has none
    call void @launch(ptr @SHARED, ptr @ENTRY, ptr %slots, i32 %team, i64 1)
  }
  call void @give_block(ptr %handle, ptr %block)
  ret i32 %wrong
}

; Writes the addresses of all arguments into the slots; gives the code of the first that does not fit.
define internal i32 @place(ptr %slots, ptr %inputs, ptr %outputs) {
  %checks = getelementptr i8, ptr @checks, i64 0
  for i64 %n = 0 .. ARGUMENTS, i64 %code = FIRST_CODE {
    %output = icmp sge i64 %n, INPUTS
    %arrays = select i1 %output, ptr %outputs, ptr %inputs
    if eq ptr %arrays, null ret i32 NULL_POINTER
    %before = select i1 %output, i64 INPUTS, i64 0
    %k = sub i64 %n, %before
    %a = load ptr.at(%arrays, i64 %k)
    %short = trunc i64 %code to i32
    if eq ptr %a, null ret i32 %short
    %check = check.at(%checks, i64 %n)
    %start = ptrtoint ptr %a to i64
    %beyond = load check.beyond(%check)
    %low = and i64 %start, %beyond
    %misaligned = add i32 %short, 1
    if ne i64 %low, 0 ret i32 %misaligned
    %bytes = load check.bytes(%check)
    %stop = add i64 %start, %bytes
    %inside = load check.inside(%check)
    if ne ptr %inside, null {
      %least = load check.least(%check)
      %most = load check.most(%check)
      %right = call i1 %inside(i64 %start, i64 %stop, i64 %least, i64 %most)
      %outside = add i32 %short, 2
      unless %right ret i32 %outside
    }
    %others = select i1 %output, i64 %n, i64 0                  ; an output overlaps none before it
    for i64 %m = 0 .. %others {
      %other = check.at(%checks, i64 %m)
      %slot = load check.slot(%other)
      %itsstart = load i64.at(%slots, i64 %slot)
      %itsbytes = load check.bytes(%other)
      %itsstop = add i64 %itsstart, %itsbytes
      %first = icmp ult i64 %start, %itsstop
      %second = icmp ult i64 %itsstart, %stop
      %both = and i1 %first, %second
      %overlaps = add i32 %short, 3
      if %both ret i32 %overlaps
    }
    %own = load check.slot(%check)
    store %start, i64.at(%slots, i64 %own)
    %next_code = add i64 %code, CODES_EACH
  } next %next_code
  ret i32 0
}

; The last block that was given back, which is in the caches still; or a new one; null if there is no memory.
define internal ptr @take_block(ptr %handle) {
  %mutex = handle.mutex(%handle)
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %idle = load handle.idle(%handle)
  if ne ptr %idle, null {
    %after = load block.next(%idle)
    store %after, handle.idle(%handle)
  }
  %r1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  if ne ptr %idle, null ret ptr %idle
  %bytes = load handle.block_bytes(%handle)
  %block = call ptr @mmap(ptr null, i64 %bytes, i32 READ_WRITE, i32 PRIVATE_ANONYMOUS, i32 -1, i64 0)
  %where = ptrtoint ptr %block to i64
  if eq i64 %where, -1 ret ptr null
  if sge i64 %bytes, HUGE_FROM {
    %r2 = call i32 @madvise(ptr %block, i64 %bytes, i32 HUGE_PAGES)
  }
  %weights = load handle.weights(%handle)
  %threads = load handle.threads(%handle)
  %wide = zext i32 %threads to i64
  %slots = getelementptr i8, ptr %block, i64 BLOCK_HEAD
  %table = getelementptr i8, ptr @lies, i64 0
  for i64 %n = 0 .. PLACES {
    %lies = lies.at(%table, i64 %n)
    %of_block = load lies.of_block(%lies)
    %ours = icmp ne i64 %of_block, 0
    %base = select i1 %ours, ptr %block, ptr %weights
    %offset = load lies.offset(%lies)
    %each = load lies.of_thread(%lies)
    %more = mul i64 %each, %wide
    %at = add i64 %offset, %more
    %address = getelementptr i8, ptr %base, i64 %at
    %slot = load lies.slot(%lies)
    store %address, ptr.at(%slots, i64 %slot)
  }
  ret ptr %block
}

define internal void @give_block(ptr %handle, ptr %block) {
  %mutex = handle.mutex(%handle)
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %idle = load handle.idle(%handle)
  store %idle, block.next(%block)
  store %block, handle.idle(%handle)
  %r1 = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define void @DESTROY(ptr %handle) {
  if eq ptr %handle, null ret void
  %bytes = load handle.block_bytes(%handle)
  %first = load handle.idle(%handle)
  loop ptr %block = %first {
    if eq ptr %block, null break
    %after = load block.next(%block)
    %r0 = call i32 @munmap(ptr %block, i64 %bytes)
  } next %after
  %weights = load handle.weights(%handle)
  if ne ptr %weights, null {
    %r1 = call i32 @munmap(ptr %weights, i64 WEIGHTS_BYTES)
  }
  %r2 = call i32 @pthread_mutex_destroy(handle.mutex(%handle))
  call void @free(ptr %handle)
  ret void
}

define ptr @INPUT(i32 %n) {
  if uge i32 %n, INPUTS ret ptr null
  %table = getelementptr i8, ptr @arrays, i64 0
  %array = array.at(%table, i32 %n)
  ret ptr %array
}

define ptr @OUTPUT(i32 %n) {
  if uge i32 %n, OUTPUTS ret ptr null
  %k = add i32 %n, INPUTS
  %table = getelementptr i8, ptr @arrays, i64 0
  %array = array.at(%table, i32 %k)
  ret ptr %array
}

define ptr @ERROR(i32 %code) {
  if uge i32 %code, CODES ret ptr @unknown
  %texts = getelementptr i8, ptr @texts, i64 0
  %text = load ptr.at(%texts, i32 %code)
  ret ptr %text
}
"""

_NUMBERS = {
    **shared_threads.NUMBERS,
    "READ_CLOEXEC": 0o2000000,  # Linux's numbers, on x86-64 and aarch64
    "SEEK_END": 2,
    "READ": 1,
    "PRIVATE": 2,
    "HUGE_PAGES": 14,
    "HANDLE_BYTES": _HANDLE.bytes,
    "BLOCK_HEAD": BLOCK.bytes,
    "HUGE_FROM": _HUGE_FROM,
    "FIRST_CODE": FIRST_CODE,
    "CODES_EACH": CODES_EACH,
}
_TILES = """
declare i64 @syscall(i64, ...)
define internal i1 @may_use_tiles() {
  %r = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)     ; base/granted/tile_permission.py
  %given = icmp eq i64 %r, 0
  ret i1 %given
}
"""
_NO_TILES = "define internal i1 @may_use_tiles() {\n  ret i1 true\n}\n"


def exported(name: str) -> dict[str, str]:
    """The library's functions by their tasks.

    >>> exported("mlp")["run"]
    'mlp_run'
    """
    return {what: f"{name}_{what}" for what in FUNCTIONS}


def interface_ir(artifact: Artifact, name: str, weights: Weights, machine: str) -> str:
    """LLVM IR of all functions of the library except the kernels and the launcher."""
    places, shared, each = places_of(artifact, weights)
    inputs, outputs = artifact.role("input"), artifact.role("output")
    arguments = (*inputs, *outputs)
    sentences = sentences_of(artifact)
    constants: dict[str, int | str] = {
        **_NUMBERS,
        **{code: n for n, code in enumerate(CODES, start=1)},
        **{what.upper(): symbol for what, symbol in exported(name).items()},
        "ENTRY": artifact.entry,
        "SHARED": shared_threads.shared_symbol(machine),
        "WEIGHTS_BYTES": weights.bytes,
        "HEAD_BYTES": len(weights.head),
        "BYTES_SHARED": shared,
        "BYTES_EACH": each,
        "ALONE": "true" if artifact.meta.get("alone") else "false",
        "INPUTS": len(inputs),
        "OUTPUTS": len(outputs),
        "ARGUMENTS": len(arguments),
        "PLACES": len(places),
        "CODES": len(sentences),
    }
    structs = {
        "provider": PROVIDER,
        "state": shared_threads.STATE,
        "handle": _HANDLE,
        "block": BLOCK,
        "check": _CHECK,
        "lies": _LIES,
        "array": _ARRAY,
    }
    tiles = _TILES if not PRODUCTS.isdisjoint(artifact.needs) else _NO_TILES
    text = processor_check(machine, artifact.needs) + tiles + shared_threads.TEXT + _TEXT
    return "\n".join(
        [
            assemble(text, structs, constants),
            *inside_functions(artifact),
            shared_threads.shared_state(machine),
            f"@weights.head = internal constant {constant(weights.head)}",
            table("checks", "{ i64, i64, i64, ptr, i64, i64 }", checks(artifact)),
            table("lies", "{ i64, i64, i64, i64 }", places),
            *arrays(arguments),
            *texts(sentences),
        ]
    )


__all__ = ["FUNCTIONS", "exported", "interface_ir"]
