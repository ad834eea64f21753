"""The launcher in native code: fork-join, barrier and a thread pool of our own. It is written once as LLVM
IR, and compiles in milliseconds.

The structures come first. Then come `launch`, which Python calls, one region function per provider, waiting,
and the barrier. Heavy regions are in work_sharing.py, and the pool is in pool.py. assembler.py explains how
to read the text. Only the processor's spin-loop hint and the parts for Linux vary.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from autotensor.runtime.linking.linker import link
from autotensor.runtime.native import affinity, pool, work_sharing
from autotensor.runtime.native.assembler import Struct, assemble

# The context that every kernel gets. The first two fields and `take` are for the kernel; the others belong to
# the launcher.
CONTEXT = Struct("""
    ptr barrier        ; void (ptr ctx, i32 tid, i32 nthreads)
    ptr fork_join      ; void (ptr ctx, ptr fn, ptr args, i32 nthreads): runs fn in a region of its own
    ptr provider
    ptr fn
    ptr args
    i32 spin           ; nanoseconds that a thread spins for others before it sleeps
    ptr take           ; i32 (ptr ctx, i32 tid, i32 nthreads, i32 parts): the next part to do, or -1
    ptr lines          ; of `take`, one for each requested thread; null: regions are not shared
    i64 counter        ; threads that have arrived; alone on its cache line, as are the next two
    align 64
    i64 generation     ; barriers completed; all waiting threads read it
    align 64
    i32 unfinished     ; threads of the pool that still run this region
    align 64
""")

PROVIDER = Struct("""
    ptr region
    ptr parallel
    ptr thread_num
    ptr num_threads
    ptr pool
    i32 cores
    i32 busy           ; threads now in regions, of all callers
""")

# state of a waiting thread; since = 0: it has not read the clock yet
_WAITING = Struct("i64 since · i32 turns · align 8")

_STRUCTS = {
    "context": CONTEXT,
    "provider": PROVIDER,
    "waiting": _WAITING,
    "pool": pool.POOL,
    "worker": pool.WORKER,
    "line": work_sharing.LINE,
}

CLOCK = r"""
declare i32 @clock_gettime(i32, ptr)

define internal i64 @clock() {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time
  %ns = load i64.at(%time, i32 1)
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %ns
  ret i64 %now
}
"""

_LAUNCHER = r"""
declare i32 @usleep(i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)

define internal void @relax() alwaysinline {
  RELAX
  ret void
}

; --- what Python calls: `count` regions one after another, each with at most `n` threads ------------------

define void @launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 %count) {
  %c = alloca context, align 64
  store @barrier, context.barrier(%c)
  store @fork_join, context.fork_join(%c)
  store %provider, context.provider(%c)
  store %fn, context.fn(%c)
  store %args, context.args(%c)
  store 0, context.counter(%c)
  store 0, context.generation(%c)
  store 0, context.unfinished(%c)
  ; A team of one thread has no other to share with. A team of more than MOST_THREADS keeps its even shares.
  %several = icmp sgt i32 %n, 1
  %few = icmp sle i32 %n, MOST_THREADS
  %sharing = and i1 %several, %few
  %n_lines = select i1 %sharing, i32 %n, i32 0
  %space = alloca line, i32 %n_lines, align 64
  %lines = select i1 %sharing, ptr %space, ptr null
  store @take, context.take(%c)
  store %lines, context.lines(%c)
  if sle i64 %count, 0 ret void
  ; When more threads are busy than there are cores, spinning only keeps others from their work.
  %busy.at = provider.busy(%provider)
  %before = atomicrmw add ptr %busy.at, i32 %n seq_cst
  %busy = add i32 %before, %n
  %cores = load provider.cores(%provider)
  %crowded = icmp sgt i32 %busy, %cores
  %spin = select i1 %crowded, i32 LEAST_SPIN_NS, i32 SPIN_NS
  %alone = icmp sle i32 %n, 1
  %theirs = load provider.region(%provider)
  %region = select i1 %alone, ptr @serial_region, ptr %theirs
  loop i64 %i = 0 {
    call void @reset(ptr %space, i32 %n_lines)
    store atomic %spin, context.spin(%c) monotonic
    call void %region(ptr %c, i32 %n)
    %i1 = add i64 %i, 1
    if sge i64 %i1, %count break
  } next %i1
  %after = atomicrmw sub ptr %busy.at, i32 %n seq_cst
  ret void
}

define internal void @fork_join(ptr %c, ptr %fn, ptr %args, i32 %n) {
  %provider = load context.provider(%c)
  call void @launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 1)
  ret void
}

define internal void @call_fn(ptr %c, i32 %tid, i32 %n) alwaysinline {
  %fn = load context.fn(%c)
  %args = load context.args(%c)
  call void %fn(ptr %c, ptr %args, i32 %tid, i32 %n)
  ret void
}

; --- regions ----------------------------------------------------------------------------------------------

define void @serial_region(ptr %c, i32 %n) {
  call void @call_fn(ptr %c, i32 0, i32 1)
  ret void
}

define void @openmp_region(ptr %c, i32 %n) {
  %provider = load context.provider(%c)
  %parallel = load provider.parallel(%provider)
  call void %parallel(ptr @openmp_body, ptr %c, i32 %n, i32 0)
  ret void
}

define internal void @openmp_body(ptr %c) {
  %provider = load context.provider(%c)
  %thread_num = load provider.thread_num(%provider)
  %num_threads = load provider.num_threads(%provider)
  ; The runtime may give fewer threads than were requested: its number counts.
  %tid = call i32 %thread_num()
  %got = call i32 %num_threads()
  call void @call_fn(ptr %c, i32 %tid, i32 %got)
  ret void
}

; --- waiting ----------------------------------------------------------------------------------------------

; One turn of waiting. After a while the thread sleeps: if the system keeps another one from running, yielding
; would leave that where it is, but it gets the core of who sleeps. Where that happened once it will again, so
; the region's next waits sleep sooner: else 50 kernels, each of which waits that long, take tens of
; milliseconds.
define internal void @pause_or_nap(ptr %c, ptr %waiting) {
  call void @relax()
  %turn = load waiting.turns(%waiting)
  %turn1 = add i32 %turn, 1
  store %turn1, waiting.turns(%waiting)
  %some = and i32 %turn1, 63
  if ne i32 %some, 0 ret void
  %now = call i64 @clock()
  %since = load waiting.since(%waiting)
  if eq i64 %since, 0 {
    store %now, waiting.since(%waiting)
    ret void
  }
  %spin = load atomic context.spin(%c) monotonic
  %spin64 = zext i32 %spin to i64
  %waited = sub i64 %now, %since
  if sgt i64 %waited, %spin64 {
    %quarter = lshr i32 %spin, 2
    %shorter = call i32 @llvm.smax.i32(i32 %quarter, i32 LEAST_SPIN_NS)
    store atomic %shorter, context.spin(%c) monotonic
    %r = call i32 @usleep(i32 1)
    store 63, waiting.turns(%waiting)                          ; looks at the clock again in the next turn
  }
  ret void
}

; All threads of a team meet. The last to arrive empties the counter, then opens the gate by ending the
; generation; it cannot end before this thread has arrived, so reading it first is safe.
define void @barrier(ptr %c, i32 %tid, i32 %n) {
  %waiting = alloca waiting, align 8
  if sle i32 %n, 1 ret void
  %mine = load atomic context.generation(%c) acquire
  %before = atomicrmw add context.counter(%c), 1 acq_rel
  %arrived = add i64 %before, 1
  %n64 = sext i32 %n to i64
  if eq i64 %arrived, %n64 {
    store atomic 0, context.counter(%c) monotonic
    %next = add i64 %mine, 1
    store atomic %next, context.generation(%c) release
    ret void
  }
  store 0, waiting.since(%waiting)
  store 0, waiting.turns(%waiting)
  loop {
    %now = load atomic context.generation(%c) acquire
    if ne i64 %now, %mine break
    call void @pause_or_nap(ptr %c, ptr %waiting)
  }
  ret void
}
"""

_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",  # yield
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

NUMBERS = {
    "MOST_THREADS": work_sharing.MOST_THREADS,
    # A thread that waits for its team spins while a core is slow for a moment, but not for a tick of 4 ms.
    "SPIN_NS": 1_000_000,
    "LEAST_SPIN_NS": 5_000,  # with more threads than cores, or when a thread was kept from running
    **pool.NUMBERS,
}


def launcher_ir(machine: str, system: str = sys.platform) -> str:
    """The launcher's LLVM IR for a processor family and a system, which are named as by `platform.machine()`
    and `sys.platform`."""
    hint = _HINTS.get(machine.lower(), "")
    declared = f"{hint.replace('call', 'declare').replace('i32 1', 'i32')}\n"
    text = declared + CLOCK + work_sharing.TEXT + _LAUNCHER + pool.TEXT + affinity.text(system)
    return assemble(text, _STRUCTS, {**NUMBERS, "MONOTONIC": monotonic(system), "RELAX": hint})


def monotonic(system: str) -> int:
    """The number of the clock that `CLOCK` reads. It is the clock of Python's `perf_counter`."""
    return 6 if system == "darwin" else 1


@cache
def launcher() -> Mapping[str, int]:
    """Addresses of the launcher's functions, which are compiled on first use."""
    names = ("launch", "serial_region", "openmp_region", "pool_region", "start_pool", "barrier")
    return compiled(launcher_ir(platform.machine()), names)


def compiled(text: str, names: tuple[str, ...], *, vectors: bool = False) -> Mapping[str, int]:
    """Addresses of functions of some LLVM IR. They stay valid until the process ends, because threads of the
    pool run the functions until then. vectors: use all instructions of this processor, and optimise so that
    loops keep values in registers."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # some processors' hints are written in assembly
    # opt=0 compiles in 4 ms, opt=1 in 14; regions and barriers are equally fast with both.
    here = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()) if vectors else ()
    machine: Any = llvm.Target.from_default_triple().create_target_machine(
        *here, opt=1 if vectors else 0, reloc="pic", codemodel="small"
    )
    code = machine.emit_object(llvm.parse_assembly(text, context=llvm.create_context()))
    return link("autotensor's own code", (code,), names).keep_for_ever().addresses
