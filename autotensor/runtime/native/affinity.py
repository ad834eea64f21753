"""Chooses the cores of the pool's workers, if the system allows it (Linux); a part of the pool (pool.py).

note_home(worker)    before it sleeps: notes the cores that it may run on
send_away(worker)    before it is woken: binds it to these cores, without the core of the thread that wakes it
come_home(worker)    once it is awake: allows all of these cores again
"""

from __future__ import annotations

# If a call fails (no core is left, or there are more than 1024), nothing is bound.
_LINUX = r"""
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)

define internal void @note_home(ptr %w) {
  %r = call i32 @sched_getaffinity(i32 0, i64 128, worker.home(%w))
  ret void
}

define internal void @come_home(ptr %w) {
  %r = call i32 @sched_setaffinity(i32 0, i64 128, worker.home(%w))
  ret void
}

; The worker will run on its cores other than that of the thread that calls this.
define internal void @send_away(ptr %w) {
  %cores = alloca [16 x i64]
  %cpu = call i32 @sched_getcpu()
  if uge i32 %cpu, 1024 ret void
  %home = worker.home(%w)
  %all = load [16 x i64], ptr %home
  store [16 x i64] %all, ptr %cores
  %word = lshr i32 %cpu, 6
  %at = i64.at(%cores, i32 %word)
  %bit = and i32 %cpu, 63
  %bit64 = zext i32 %bit to i64
  %own = shl i64 1, %bit64
  %others = xor i64 %own, -1
  %before = load i64, ptr %at
  %after = and i64 %before, %others
  store i64 %after, ptr %at
  %thread = load worker.thread(%w)
  %r = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %cores)
  ret void
}
"""

_NOWHERE = """
define internal void @note_home(ptr %w) {
  ret void
}
define internal void @come_home(ptr %w) {
  ret void
}
define internal void @send_away(ptr %w) {
  ret void
}
"""


def text(system: str) -> str:
    """The text of the three functions for `assemble`. `system` is named as in `sys.platform`."""
    return _LINUX if system == "linux" else _NOWHERE
