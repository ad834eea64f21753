"""The launcher in native code: fork-join, barrier, own thread pool; written once as LLVM IR, compiled in
milliseconds.

Read `_LAUNCHER` from the top: the structures first, then heavy regions (sharing.py), then `launch`, which
Python calls, then one region function per provider, then the barrier, then the pool. It is plain text and not
built with IRBuilder because nothing in it varies but the spin-loop hint of the processor.

Context, which every kernel gets (offsets in bytes; also the constants below):

      0  ptr  barrier      void (ptr ctx, i32 tid, i32 nthreads)
      8  ptr  fork_join    void (ptr ctx, ptr fn, ptr args, i32 nthreads): runs fn in a region of its own
     16  ptr  provider     launcher's own, as are all others but `take`
     24  ptr  fn
     32  ptr  args
     40  i32  spin         turns to spin before yielding the core
     48  ptr  take         i32 (ptr ctx, i32 tid, i32 nthreads, i32 parts): the next part to do, -1: all are
                           taken
     56  ptr  lines        of `take`, one for each thread asked for; null: regions are not shared
     64  i64  counter      threads that have arrived; alone on its cache line
    128  i64  generation   barriers completed; alone on its cache line, all waiting threads read it
    192  i32  unfinished   threads of the pool that still run this region; alone on its cache line
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from autotensor.runtime import sharing

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
%pool = type { i32, [60 x i8], [0 x %worker] }
%worker = type { i32, i32, i32, i32, ptr, [40 x i8], [64 x i8], [128 x i8] }
;                0    1    2    3    4               6          7
;                state     nthreads  ctx             mutex      condition
;                     asleep    tid
; state: 0 idle, 1 taken by a caller, 2 has work

declare i32 @sched_yield()
declare i32 @usleep(i32)
declare i32 @llvm.smin.i32(i32, i32)
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
  %spin = select i1 %crowded, i32 50, i32 4000
  %p5 = getelementptr %ctx, ptr %c, i32 0, i32 5
  store i32 %spin, ptr %p5
  %alone = icmp sle i32 %n, 1
  %theirs = load ptr, ptr %provider
  %region = select i1 %alone, ptr @serial_region, ptr %theirs
  br label %loop
loop:
  %i = phi i64 [0, %begin], [%i1, %loop]
  call void @reset(ptr %space, i32 %n_lines)
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

; The pool: take those workers that are idle now, at most n - 1, and make a team with them.
define void @pool_region(ptr %c, i32 %n) {
entry:
  %team = alloca [256 x i32]
  %p2 = getelementptr %ctx, ptr %c, i32 0, i32 2
  %provider = load ptr, ptr %p2
  %pp = getelementptr %provider, ptr %provider, i32 0, i32 4
  %pool = load ptr, ptr %pp
  %size = load i32, ptr %pool
  %others = sub i32 %n, 1
  br label %take
take:
  %k = phi i32 [0, %entry], [%k1, %taken]
  %got = phi i32 [0, %entry], [%got1, %taken]
  %left = icmp slt i32 %k, %size
  %want = icmp slt i32 %got, %others
  %go = and i1 %left, %want
  br i1 %go, label %try, label %start
try:
  %w = getelementptr %pool, ptr %pool, i32 0, i32 2, i32 %k
  %swap = cmpxchg ptr %w, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  %slot = getelementptr [256 x i32], ptr %team, i32 0, i32 %got
  store i32 %k, ptr %slot
  br label %taken
taken:
  %one = zext i1 %won to i32
  %got1 = add i32 %got, %one
  %k1 = add i32 %k, 1
  br label %take
start:
  %total = add i32 %got, 1
  %p11 = getelementptr %ctx, ptr %c, i32 0, i32 11
  store atomic i32 %got, ptr %p11 release, align 4
  br label %give
give:
  %g = phi i32 [0, %start], [%g1, %given]
  %all = icmp sge i32 %g, %got
  br i1 %all, label %own, label %next
next:
  %sg = getelementptr [256 x i32], ptr %team, i32 0, i32 %g
  %kg = load i32, ptr %sg
  %wg = getelementptr %pool, ptr %pool, i32 0, i32 2, i32 %kg
  %tid = add i32 %g, 1
  %w2 = getelementptr %worker, ptr %wg, i32 0, i32 2
  store i32 %total, ptr %w2
  %w3 = getelementptr %worker, ptr %wg, i32 0, i32 3
  store i32 %tid, ptr %w3
  %w4 = getelementptr %worker, ptr %wg, i32 0, i32 4
  store ptr %c, ptr %w4
  ; seq_cst on both sides: either the worker sees its work or we see that it sleeps.
  store atomic i32 2, ptr %wg seq_cst, align 4
  %w1 = getelementptr %worker, ptr %wg, i32 0, i32 1
  %asleep = load atomic i32, ptr %w1 seq_cst, align 4
  %wake = icmp ne i32 %asleep, 0
  br i1 %wake, label %signal, label %given
signal:
  %mutex = getelementptr %worker, ptr %wg, i32 0, i32 6
  %cond = getelementptr %worker, ptr %wg, i32 0, i32 7
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  %r1 = call i32 @pthread_cond_signal(ptr %cond)
  %r2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %given
given:
  %g1 = add i32 %g, 1
  br label %give
own:
  call void @call_fn(ptr %c, i32 0, i32 %total)
  %p5 = getelementptr %ctx, ptr %c, i32 0, i32 5
  %spin = load i32, ptr %p5
  br label %join
join:
  %turn = phi i32 [0, %own], [%turn1, %again]
  %unfinished = load atomic i32, ptr %p11 acquire, align 4
  %finished = icmp eq i32 %unfinished, 0
  br i1 %finished, label %done, label %wait
wait:
  %long = icmp eq i32 %turn, 4000
  br i1 %long, label %nap, label %pause
nap:
  ; A worker that was woken may stand on our own core's queue, and yielding leaves both there. Who sleeps,
  ; wakes on a core that is free.
  %r3 = call i32 @usleep(i32 1)
  br label %again
pause:
  %r4 = call i32 @pause_or_yield(i32 %turn, i32 %spin)
  br label %again
again:
  %next_turn = add i32 %turn, 1
  %turn1 = call i32 @llvm.smin.i32(i32 %next_turn, i32 5000)
  br label %join
done:
  ret void
}

; --- waiting ----------------------------------------------------------------------------------------------

define internal i32 @pause_or_yield(i32 %turn, i32 %spin) {
  %early = icmp slt i32 %turn, %spin
  br i1 %early, label %pause, label %yield
pause:
  call void @relax()
  %next = add i32 %turn, 1
  ret i32 %next
yield:
  %r = call i32 @sched_yield()
  ret i32 %turn
}

; All threads of a team meet. The last to arrive empties the counter, then opens the gate by ending the
; generation; it cannot end before this thread has arrived, so reading it first is safe.
define void @barrier(ptr %c, i32 %tid, i32 %n) {
entry:
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
  %p5 = getelementptr %ctx, ptr %c, i32 0, i32 5
  %spin = load i32, ptr %p5
  br label %check
check:
  %turn = phi i32 [0, %await], [%turn1, %wait]
  %now = load atomic i64, ptr %generation acquire, align 8
  %closed = icmp eq i64 %now, %mine
  br i1 %closed, label %wait, label %done
wait:
  %turn1 = call i32 @pause_or_yield(i32 %turn, i32 %spin)
  br label %check
done:
  ret void
}

; --- the pool's workers: detached threads that never end --------------------------------------------------

; Gives the number of workers that could be started; `pool` is zeroed memory for `wanted` of them.
define i32 @start_pool(ptr %pool, i32 %wanted) {
entry:
  %thread = alloca i64
  br label %loop
loop:
  %k = phi i32 [0, %entry], [%k1, %started]
  %more = icmp slt i32 %k, %wanted
  br i1 %more, label %make, label %done
make:
  %w = getelementptr %pool, ptr %pool, i32 0, i32 2, i32 %k
  %mutex = getelementptr %worker, ptr %w, i32 0, i32 6
  %cond = getelementptr %worker, ptr %w, i32 0, i32 7
  %r0 = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %r1 = call i32 @pthread_cond_init(ptr %cond, ptr null)
  %r2 = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker_loop, ptr %w)
  %ok = icmp eq i32 %r2, 0
  br i1 %ok, label %started, label %done
started:
  %t = load i64, ptr %thread
  %r3 = call i32 @pthread_detach(i64 %t)
  %k1 = add i32 %k, 1
  br label %loop
done:
  store i32 %k, ptr %pool
  ret i32 %k
}

define internal ptr @worker_loop(ptr %w) {
entry:
  %asleep = getelementptr %worker, ptr %w, i32 0, i32 1
  %mutex = getelementptr %worker, ptr %w, i32 0, i32 6
  %cond = getelementptr %worker, ptr %w, i32 0, i32 7
  br label %idle
idle:
  %turn = phi i32 [0, %entry], [%turn1, %pause], [0, %finish]
  %state = load atomic i32, ptr %w acquire, align 4
  %ready = icmp eq i32 %state, 2
  br i1 %ready, label %work, label %patience
patience:
  ; A caller who does something else meanwhile is often back within milliseconds, and to wake a sleeper takes
  ; 50 to 300 us (a virtual machine). Others may have the core before that.
  %awake = icmp slt i32 %turn, PATIENCE
  br i1 %awake, label %pause, label %sleep
pause:
  %turn1 = add i32 %turn, 1
  %r5 = call i32 @pause_or_yield(i32 %turn, i32 4000)
  br label %idle
sleep:
  %r0 = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 1, ptr %asleep seq_cst, align 4
  br label %dream
dream:
  %again = load atomic i32, ptr %w seq_cst, align 4
  %called = icmp eq i32 %again, 2
  br i1 %called, label %wake, label %wait
wait:
  %r1 = call i32 @pthread_cond_wait(ptr %cond, ptr %mutex)
  br label %dream
wake:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  %r2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %work
work:
  %p2 = getelementptr %worker, ptr %w, i32 0, i32 2
  %n = load i32, ptr %p2
  %p3 = getelementptr %worker, ptr %w, i32 0, i32 3
  %tid = load i32, ptr %p3
  %p4 = getelementptr %worker, ptr %w, i32 0, i32 4
  %c = load ptr, ptr %p4
  call void @call_fn(ptr %c, i32 %tid, i32 %n)
  br label %finish
finish:
  ; First idle, then finished: the same caller's next region must find this worker free. The context may
  ; vanish at once after the second, so nothing of it is touched again.
  store atomic i32 0, ptr %w release, align 4
  %p11 = getelementptr %ctx, ptr %c, i32 0, i32 11
  %left = atomicrmw sub ptr %p11, i32 1 release
  br label %idle
}
"""

_HINTS = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": 'call void asm sideeffect "yield", ""()',
    "arm64": 'call void asm sideeffect "yield", ""()',
}

WORKER_BYTES = 256
POOL_HEADER_BYTES = 64
PATIENCE = 30_000  # turns of an idle worker before it sleeps: 4,000 spinning, then with the core on offer
MOST_WORKERS = 256  # size of the team list in `pool_region`


def launcher_ir(machine: str) -> str:
    """The launcher's LLVM IR for a processor family, as `platform.machine()` names it."""
    hint = _HINTS.get(machine.lower(), "")
    text = _LAUNCHER.replace("RELAX", hint).replace("SHARING\n", sharing.TEXT)
    text = text.replace("MOST_THREADS", str(sharing.MOST_THREADS)).replace("PATIENCE", str(PATIENCE))
    return text if "sse2" in hint else text.replace("declare void @llvm.x86.sse2.pause()\n", "")


@cache
def launcher() -> dict[str, int]:
    """Addresses of the launcher's functions, compiled on first use."""
    names = ("launch", "serial_region", "openmp_region", "pool_region", "start_pool", "barrier")
    return compiled(launcher_ir(platform.machine()), names)


def compiled(text: str, names: tuple[str, ...]) -> dict[str, int]:
    """Addresses of functions of some LLVM IR, for the life of the process."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # opt=0 compiles in 4 ms, opt=1 in 14; regions and barriers take as long either way.
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, codemodel="jitdefault")
    engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    addresses = {name: int(engine.get_function_address(name)) for name in names}
    # Threads of the pool run this code until the process ends, so its memory must outlive the interpreter.
    engine.detach()
    return addresses
