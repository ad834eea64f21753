"""The threads of C libraries, as native code. A process has one pool, which the first caller starts.

    first call of two threads or more ──▶ owner: 0 ──▶ -pid ──▶ pid      its threads run
    after fork, in the child              owner: the parent's pid ──▶ -pid ──▶ pid, with a pool of its own

The state is one weak symbol, named by a hash of the launcher's code. So all libraries of a program that equal
versions of autotensor have written share one pool and its count of busy threads. The launcher and the pool
are those that Python calls (runtime/native).
"""

from __future__ import annotations

import hashlib

from autotensor.base.target import TEAM_FROM
from autotensor.runtime.native.assembler import Struct
from autotensor.runtime.native.launcher import PROVIDER, launcher_ir
from autotensor.runtime.native.pool import MOST_WORKERS, POOL, WORKER

# owner: the process that has the pool; see above
STATE = Struct(f"[{PROVIDER.bytes}] provider · i32 owner · align 64")

NUMBERS: dict[str, int | str] = {
    "MOST_WORKERS": MOST_WORKERS,
    "MOST_TEAM": MOST_WORKERS + 1,
    "POOL_BYTES": POOL.bytes,
    "WORKER_BYTES": WORKER.bytes,
    "READ_WRITE": 3,
    "PRIVATE_ANONYMOUS": 0x22,
    "ROUNDING": repr(1.0 - TEAM_FROM),
}

TEXT = r"""
declare i32 @getpid()
declare i32 @usleep(i32)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i64 @llvm.ctpop.i64(i64)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare ptr @fopen(ptr, ptr)
declare i32 @fscanf(ptr, ptr, ...)
declare i32 @fclose(ptr)
declare i32 @start_pool(ptr, i32)
declare void @pool_region(ptr, i32)

@quota.path = private constant [23 x i8] c"/sys/fs/cgroup/cpu.max\00"
@quota.mode = private constant [3 x i8] c"re\00"
@quota.form = private constant [8 x i8] c"%ld %ld\00"

; Cores that this process may run on, and has time for: affinity, and the quota of its control group.
define internal i32 @usable_cores() {
  %set = alloca [16 x i64]
  store [16 x i64] zeroinitializer, ptr %set
  %r = call i32 @sched_getaffinity(i32 0, i64 128, ptr %set)
  for i32 %w = 0 .. 16, i64 %sum = 0 {
    %word = load i64.at(%set, i32 %w)
    %bits = call i64 @llvm.ctpop.i64(i64 %word)
    %more = add i64 %sum, %bits
  } next %more
  %allowed = trunc i64 %sum to i32
  %quota = call i32 @quota()
  %fewer = call i32 @llvm.smin.i32(i32 %allowed, i32 %quota)
  %cores = call i32 @llvm.smax.i32(i32 %fewer, i32 1)
  ret i32 %cores
}

; Threads that are fastest under the quota (base/target.py: whole_cores); many where there is none.
define internal i32 @quota() {
  %time = alloca i64
  %period = alloca i64
  %file = call ptr @fopen(ptr @quota.path, ptr @quota.mode)
  if eq ptr %file, null ret i32 MOST_TEAM
  %read = call i32 (ptr, ptr, ...) @fscanf(ptr %file, ptr @quota.form, ptr %time, ptr %period)
  %r = call i32 @fclose(ptr %file)
  if ne i32 %read, 2 ret i32 MOST_TEAM
  %t = load i64, ptr %time
  %p = load i64, ptr %period
  if sle i64 %p, 0 ret i32 MOST_TEAM
  %td = sitofp i64 %t to double
  %pd = sitofp i64 %p to double
  %share = fdiv double %td, %pd
  %up = fadd double %share, ROUNDING
  %capped = call double @llvm.minnum.f64(double %up, double 1.0e6)
  %whole = fptosi double %capped to i32
  ret i32 %whole
}
declare double @llvm.minnum.f64(double, double)

; Afterwards this process has threads; `team` are requested at once.
define internal void @need_threads(i32 %team) {
  %shared = getelementptr i8, ptr @SHARED, i64 0
  %me = call i32 @getpid()
  %starting = sub i32 0, %me
  loop {
    %owner = load atomic state.owner(%shared) acquire
    if eq i32 %owner, %me ret void
    if ne i32 %owner, %starting {
      %ours = exchange state.owner(%shared), %owner, %starting
      if %ours {
        if ne i32 %owner, 0 store 0, provider.busy(%shared)    ; of threads that the parent had
        call void @begin_threads(ptr %shared, i32 %team)
        store atomic %me, state.owner(%shared) release
        ret void
      }
    }
    %r = call i32 @usleep(i32 10)
  }
}

define internal void @begin_threads(ptr %shared, i32 %team) {
  %cores = call i32 @usable_cores()
  %most = call i32 @llvm.smax.i32(i32 %cores, i32 %team)
  %others = sub i32 %most, 1
  %few = call i32 @llvm.smin.i32(i32 %others, i32 MOST_WORKERS)
  %workers = call i32 @llvm.smax.i32(i32 %few, i32 1)
  store %cores, provider.cores(%shared)
  store @serial_region, provider.region(%shared)
  %each = zext i32 %workers to i64
  %all = mul i64 %each, WORKER_BYTES
  %bytes = add i64 %all, POOL_BYTES
  %pool = call ptr @mmap(ptr null, i64 %bytes, i32 READ_WRITE, i32 PRIVATE_ANONYMOUS, i32 -1, i64 0)
  %where = ptrtoint ptr %pool to i64
  if eq i64 %where, -1 ret void
  store %pool, provider.pool(%shared)
  %started = call i32 @start_pool(ptr %shared, i32 %workers)
  store @pool_region, provider.region(%shared)
  ret void
}
declare void @serial_region(ptr, i32)
"""


def shared_symbol(machine: str) -> str:
    """The name of the symbol of the state that libraries share."""
    code = launcher_ir(machine, "linux") + TEXT + repr((STATE.offset, sorted(NUMBERS.items())))
    return f"autotensor_threads_{hashlib.sha256(code.encode()).hexdigest()[:16]}"


def shared_state(machine: str) -> str:
    """The definition of the shared state, in LLVM IR."""
    return f"@{shared_symbol(machine)} = weak global [{STATE.bytes} x i8] zeroinitializer, align 64\n"


__all__ = ["NUMBERS", "STATE", "TEXT", "shared_state", "shared_symbol"]
