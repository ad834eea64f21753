"""Heavy regions: each thread takes the next part when it is free. This is a part of the launcher
(launcher.py).

    part     0 1 2 3 4 5 6 7 | 8 9 …         thread 0 owns 0 to 7, thread 1 8 to 15
             0 0 0 0 0 0 0 0   1 1 … 0 0     thread 1 was slow: thread 0 took the last two parts of thread 1

Thread t of n owns the parts k of a region with parts*t/n <= k < parts*(t+1)/n. This is its static share, so
that the next layer finds this thread's results in its cache. The thread takes its parts from the front. When
none is left, it takes parts that other threads have not begun, from the end of their shares. So a core that
is slow for a moment (a neighbour's load) delays the region by at most one part. A kernel calls `take` until
it returns -1.

All threads of a team come to the same regions in the same order, but not at once. A range contains the turn
that it belongs to; a range of turn 0 is empty. No thread leaves a region before all of its parts are taken.
So if a range is not of this turn, there are two cases. It may be empty and of the turn before. Then its
thread has not arrived yet, and the range stands for that thread's whole share. Others may take parts from
this share. Or the range is of a later turn. Then its share was taken and its owner has moved on. Turns only
grow, so an exchange that succeeds has seen the newest range.
"""

from __future__ import annotations

from autotensor.runtime.native.assembler import Struct

MOST_THREADS = 256  # most threads of a team that shares parts; their `LINE`s are on the stack of `launch`
MOST_PARTS = (1 << 16) - 1  # most parts of a region: a range holds 16 bits for it

# One for each thread, alone on its cache line. range: turn << 32 | first part not taken << 16 | end. turn:
# the shared region that this thread is in, 1 for the first of a launch
LINE = Struct("i64 range · i32 turn · align 64")

TEXT = r"""
define internal void @reset(ptr %lines, i32 %n) {
  for i32 %t = 0 .. %n {
    %line = line.at(%lines, i32 %t)
    store 0, line.range(%line)
    store 1, line.turn(%line)
  }
  ret void
}

define internal i32 @take(ptr %c, i32 %tid, i32 %n, i32 %parts) {
  %lines = load context.lines(%c)
  %mine = line.at(%lines, i32 %tid)
  %turn = load line.turn(%mine)
  %before = sub i32 %turn, 1
  for i32 %k = 0 .. %n {                                       ; k = 0 is this thread, 1 the one after it
    %far = add i32 %tid, %k
    %over = icmp sge i32 %far, %n
    %round = sub i32 %far, %n
    %t = select i1 %over, i32 %round, i32 %far
    %line = line.at(%lines, i32 %t)
    loop {
      %range = load atomic line.range(%line) acquire
      %range1 = lshr i64 %range, 32
      %at = trunc i64 %range1 to i32
      %range2 = lshr i64 %range, 16
      %range3 = trunc i64 %range2 to i32
      %begun_lo = and i32 %range3, 65535
      %range4 = trunc i64 %range to i32
      %begun_hi = and i32 %range4, 65535
      %here = icmp eq i32 %at, %turn
      %empty = icmp sge i32 %begun_lo, %begun_hi
      %last_turn = icmp eq i32 %at, %before
      %fresh = and i1 %last_turn, %empty
      %open = or i1 %here, %fresh
      %f0 = mul i32 %parts, %t
      %fresh_lo = udiv i32 %f0, %n
      %f1 = add i32 %f0, %parts
      %fresh_hi = udiv i32 %f1, %n
      %lo = select i1 %here, i32 %begun_lo, i32 %fresh_lo
      %hi = select i1 %here, i32 %begun_hi, i32 %fresh_hi
      %some = icmp slt i32 %lo, %hi
      %go = and i1 %open, %some
      unless %go break
      %own = icmp eq i32 %k, 0
      %lo1 = add i32 %lo, 1
      %hi1 = sub i32 %hi, 1
      %new_lo = select i1 %own, i32 %lo1, i32 %lo
      %new_hi = select i1 %own, i32 %hi, i32 %hi1
      %part = select i1 %own, i32 %lo, i32 %hi1
      %turn64 = zext i32 %turn to i64
      %lo64 = zext i32 %new_lo to i64
      %hi64 = zext i32 %new_hi to i64
      %w0 = shl i64 %turn64, 32
      %w1 = shl i64 %lo64, 16
      %w2 = or i64 %w0, %w1
      %word = or i64 %w2, %hi64
      %won = exchange line.range(%line), %range, %word
      if %won ret i32 %part
    }
  }
  %turn1 = add i32 %turn, 1
  store %turn1, line.turn(%mine)
  ret i32 -1
}
"""
