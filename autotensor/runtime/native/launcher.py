"""The launcher in native code: fork-join, barrier, own thread pool; written once as LLVM IR, compiled in
milliseconds.

Read `_LAUNCHER` from the top: the structures first, then heavy regions (sharing.py), then `launch`, which
Python calls, then one region function per provider, then waiting and the barrier; the pool is in pool.py. It
is plain text and not built with IRBuilder because nothing in it varies but the spin-loop hint of the
processor, and what only Linux has.

Context, which every kernel gets (offsets in bytes; also the constants below):

      0  ptr  barrier      void (ptr ctx, i32 tid, i32 nthreads)
      8  ptr  fork_join    void (ptr ctx, ptr fn, ptr args, i32 nthreads): runs fn in a region of its own
     16  ptr  provider     launcher's own, as are all others but `take`
     24  ptr  fn
     32  ptr  args
     40  i32  spin         nanoseconds that a thread spins for others before it sleeps
     48  ptr  take         i32 (ptr ctx, i32 tid, i32 nthreads, i32 parts): the next part to do, -1: all are
                           taken
     56  ptr  lines        of `take`, one for each thread asked for; null: regions are not shared
     64  i64  counter      threads that have arrived; alone on its cache line
    128  i64  generation   barriers completed; alone on its cache line, all waiting threads read it
    192  i32  unfinished   threads of the pool that still run this region; alone on its cache line
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from autotensor.runtime.linking.linker import link
from autotensor.runtime.native import affinity, pool, sharing

CONTEXT_BYTES = 256
BARRIER_OFFSET = 0
FORK_JOIN_OFFSET = 8
TAKE_OFFSET = 48
LINES_OFFSET = 56
COUNTER_OFFSET = 64
GENERATION_OFFSET = 128

_LAUNCHER = r"""
%ctx = type { ptr, ptr, ptr, ptr, ptr, i32, { ptr, ptr }, i64, [56 x i8], i64, [56 x i8], i32, [60 x i8] }
;             0    1    2    3    4    5    6             7    8          9    10         11   12
;             barrier   provider  args spin take, lines   counter         generation       unfinished
;                  fork_join fn

%provider = type { ptr, ptr, ptr, ptr, ptr, i32, i32 }
;                  0    1    2    3    4    5    6
;                  region    thread_num    pool cores
;                       parallel  num_threads    busy: threads now in regions, of all callers

SHARING
declare i32 @clock_gettime(i32, ptr)
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
declare void @llvm.x86.sse2.pause()

define internal void @relax() alwaysinline {
  RELAX
  ret void
}

; --- what Python calls: `count` regions one after another, each with at most `n` threads ------------------

define void @launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 %count) {
entry:
  %c = alloca %ctx, align 64
  store ptr @barrier, ptr %c
  %p1 = getelementptr %ctx, ptr %c, i32 0, i32 1
  store ptr @fork_join, ptr %p1
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  store ptr %provider, ptr %p2
  %p3 = getelementptr %ctx, ptr %c, i32 0, i32 3
  store ptr %fn, ptr %p3
  %p4 = getelementptr %ctx, ptr %c, i32 0, i32 4
  store ptr %args, ptr %p4
  %p7 = getelementptr %ctx, ptr %c, i32 0, i32 7
  store i64 0, ptr %p7
  %p9 = getelementptr %ctx, ptr %c, i32 0, i32 9
  store i64 0, ptr %p9
  %p11 = getelementptr %ctx, ptr %c, i32 0, i32 11
  store i32 0, ptr %p11
  ; A team of one has nobody to share with; of more than MOST_THREADS, it keeps its even shares.
  %several = icmp sgt i32 %n, 1
  %few = icmp sle i32 %n, MOST_THREADS
  %sharing = and i1 %several, %few
  %n_lines = select i1 %sharing, i32 %n, i32 0
  %space = alloca %line, i32 %n_lines, align 64
  %lines = select i1 %sharing, ptr %space, ptr null
  %p60 = getelementptr %ctx, ptr %c, i32 0, i32 6, i32 0
  store ptr @take, ptr %p60
  %p61 = getelementptr %ctx, ptr %c, i32 0, i32 6, i32 1
  store ptr %lines, ptr %p61
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %begin, label %done
begin:
  ; When more threads are busy than there are cores, spinning only keeps others from their work.
  %pbusy = getelementptr %provider, ptr %provider, i32 0, i32 6
  %before = atomicrmw add ptr %pbusy, i32 %n seq_cst
  %busy = add i32 %before, %n
  %pcores = getelementptr %provider, ptr %provider, i32 0, i32 5
  %cores = load i32, ptr %pcores
  %crowded = icmp sgt i32 %busy, %cores
  %spin = select i1 %crowded, i32 LEAST_SPIN_NS, i32 SPIN_NS
  %p5 = getelementptr %ctx, ptr %c, i32 0, i32 5
  %alone = icmp sle i32 %n, 1
  %theirs = load ptr, ptr %provider
  %region = select i1 %alone, ptr @serial_region, ptr %theirs
  br label %loop
loop:
  %i = phi i64 [0, %begin], [%i1, %loop]
  call void @reset(ptr %space, i32 %n_lines)
  store atomic i32 %spin, ptr %p5 monotonic, align 8
  call void %region(ptr %c, i32 %n)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %loop, label %end
end:
  %after = atomicrmw sub ptr %pbusy, i32 %n seq_cst
  br label %done
done:
  ret void
}

define internal void @fork_join(ptr %c, ptr %fn, ptr %args, i32 %n) {
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  %provider = load ptr, ptr %p2
  call void @launch(ptr %provider, ptr %fn, ptr %args, i32 %n, i64 1)
  ret void
}

define internal void @call_fn(ptr %c, i32 %tid, i32 %n) alwaysinline {
  %p3 = getelementptr %ctx, ptr %c, i32 0, i32 3
  %fn = load ptr, ptr %p3
  %p4 = getelementptr %ctx, ptr %c, i32 0, i32 4
  %args = load ptr, ptr %p4
  call void %fn(ptr %c, ptr %args, i32 %tid, i32 %n)
  ret void
}

; --- regions ----------------------------------------------------------------------------------------------

define void @serial_region(ptr %c, i32 %n) {
  call void @call_fn(ptr %c, i32 0, i32 1)
  ret void
}

define void @openmp_region(ptr %c, i32 %n) {
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  %provider = load ptr, ptr %p2
  %pp = getelementptr %provider, ptr %provider, i32 0, i32 1
  %parallel = load ptr, ptr %pp
  call void %parallel(ptr @openmp_body, ptr %c, i32 %n, i32 0)
  ret void
}

define internal void @openmp_body(ptr %c) {
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  %provider = load ptr, ptr %p2
  %pt = getelementptr %provider, ptr %provider, i32 0, i32 2
  %thread_num = load ptr, ptr %pt
  %pn = getelementptr %provider, ptr %provider, i32 0, i32 3
  %num_threads = load ptr, ptr %pn
  ; The runtime may give fewer threads than were asked for: its word counts.
  %tid = call i32 %thread_num()
  %got = call i32 %num_threads()
  call void @call_fn(ptr %c, i32 %tid, i32 %got)
  ret void
}

; --- waiting ----------------------------------------------------------------------------------------------

define internal i64 @clock() {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 MONOTONIC, ptr %time)
  %seconds = load i64, ptr %time
  %p1 = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1
  %ns = load i64, ptr %p1
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %ns
  ret i64 %now
}

; Of a thread that waits for its team. It begins zeroed.
%waiting = type { i64, i32 }
;                 0    1: turns
;                 since, 0: the clock has not been read yet

; One turn of waiting. After a while the thread sleeps: if the system keeps another one from running, yielding
; would leave that where it is, but it gets the core of who sleeps. Where that happened once it will again, so
; the region's next waits sleep sooner: else 50 kernels, each of which waits that long, take tens of
; milliseconds.
define internal void @pause_or_nap(ptr %c, ptr %waiting) {
entry:
  call void @relax()
  %pturn = getelementptr %waiting, ptr %waiting, i32 0, i32 1
  %turn = load i32, ptr %pturn
  %turn1 = add i32 %turn, 1
  store i32 %turn1, ptr %pturn
  %some = and i32 %turn1, 63
  %look = icmp eq i32 %some, 0
  br i1 %look, label %clock, label %done
clock:
  %now = call i64 @clock()
  %since = load i64, ptr %waiting
  %first = icmp eq i64 %since, 0
  br i1 %first, label %begin, label %compare
begin:
  store i64 %now, ptr %waiting
  ret void
compare:
  %p5 = getelementptr %ctx, ptr %c, i32 0, i32 5
  %spin = load atomic i32, ptr %p5 monotonic, align 8
  %spin64 = zext i32 %spin to i64
  %waited = sub i64 %now, %since
  %long = icmp sgt i64 %waited, %spin64
  br i1 %long, label %nap, label %done
nap:
  %quarter = lshr i32 %spin, 2
  %shorter = call i32 @llvm.smax.i32(i32 %quarter, i32 LEAST_SPIN_NS)
  store atomic i32 %shorter, ptr %p5 monotonic, align 8
  %r = call i32 @usleep(i32 1)
  store i32 63, ptr %pturn                                     ; looks at the clock again in the next turn
  br label %done
done:
  ret void
}

; All threads of a team meet. The last to arrive empties the counter, then opens the gate by ending the
; generation; it cannot end before this thread has arrived, so reading it first is safe.
define void @barrier(ptr %c, i32 %tid, i32 %n) {
entry:
  %waiting = alloca %waiting
  %alone = icmp sle i32 %n, 1
  br i1 %alone, label %done, label %meet
meet:
  %counter = getelementptr %ctx, ptr %c, i32 0, i32 7
  %generation = getelementptr %ctx, ptr %c, i32 0, i32 9
  %mine = load atomic i64, ptr %generation acquire, align 8
  %before = atomicrmw add ptr %counter, i64 1 acq_rel
  %arrived = add i64 %before, 1
  %n64 = sext i32 %n to i64
  %last = icmp eq i64 %arrived, %n64
  br i1 %last, label %open, label %await
open:
  store atomic i64 0, ptr %counter monotonic, align 8
  %next = add i64 %mine, 1
  store atomic i64 %next, ptr %generation release, align 8
  ret void
await:
  store %waiting zeroinitializer, ptr %waiting
  br label %check
check:
  %now = load atomic i64, ptr %generation acquire, align 8
  %closed = icmp eq i64 %now, %mine
  br i1 %closed, label %wait, label %done
wait:
  call void @pause_or_nap(ptr %c, ptr %waiting)
  br label %check
done:
  ret void
}

POOL
"""

_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": 'call void asm sideeffect "yield", ""()',
    "arm64": 'call void asm sideeffect "yield", ""()',
}

_NUMBERS = {
    "MOST_THREADS": sharing.MOST_THREADS,
    # Of one who waits for its team: a share that comes late on a core that is just slow, and no tick of 4 ms.
    "SPIN_NS": 1_000_000,
    "LEAST_SPIN_NS": 5_000,  # with more threads than cores, or where a thread was kept from running
    "MONOTONIC": 6 if sys.platform == "darwin" else 1,
    **pool.NUMBERS,
}


def launcher_ir(machine: str, system: str = sys.platform) -> str:
    """The launcher's LLVM IR for a processor family and a system, as `platform.machine()` and `sys.platform`
    name them."""
    hint = _HINTS.get(machine.lower(), "")
    text = _LAUNCHER.replace("RELAX", hint).replace("SHARING\n", sharing.TEXT)
    text = text.replace("POOL\n", pool.TEXT + affinity.text(system))
    text = re.sub(rf"\b({'|'.join(_NUMBERS)})\b", lambda name: str(_NUMBERS[name[0]]), text)
    return text if "sse2" in hint else text.replace("declare void @llvm.x86.sse2.pause()\n", "")


@cache
def launcher() -> Mapping[str, int]:
    """Addresses of the launcher's functions, compiled on first use."""
    names = ("launch", "serial_region", "openmp_region", "pool_region", "start_pool", "barrier")
    return compiled(launcher_ir(platform.machine()), names)


def compiled(text: str, names: tuple[str, ...]) -> Mapping[str, int]:
    """Addresses of functions of some LLVM IR, for the life of the process: threads of the pool run them until
    it ends."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # some processors' hints are written as assembly
    # opt=0 compiles in 4 ms, opt=1 in 14; regions and barriers take as long either way.
    machine: Any = llvm.Target.from_default_triple().create_target_machine(
        opt=0, reloc="pic", codemodel="small"
    )
    code = machine.emit_object(llvm.parse_assembly(text, context=llvm.create_context()))
    return link("autotensor's own code", (code,), names).keep_for_ever().addresses
