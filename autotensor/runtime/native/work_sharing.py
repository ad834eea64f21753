"""Heavy regions, whose parts threads take as they come to them; a piece of the launcher (launcher.py).

    part     0 1 2 3 4 5 6 7 | 8 9 …         thread 0 owns 0 to 7, thread 1 8 to 15
             0 0 0 0 0 0 0 0   1 1 … 0 0     thread 1 was slow: 0 took the last two of its parts

Thread t of n owns the parts k of a region with parts*t/n <= k < parts*(t+1)/n, its static share, so that the
next layer finds this thread's results in its cache. It takes them from the front; when none is left, it takes
from the end of the parts that others have not begun. So a core that is slow just now (a neighbour's load)
delays the region by a part at most. A kernel calls `take` until it says -1.

All threads of a team come to the same regions in the same order, but not at once. A range tells the turn
that it is of; it is empty at turn 0. No thread leaves a region of which a part is not taken, so a range that
is not of this turn is either empty and of the turn before, and then stands for the whole share of a thread
that has not come here yet: others may take from that, too; or newer: that share was taken and its owner went
on. Turns only grow, so an exchange that succeeds has seen the newest range.
"""

from __future__ import annotations

from autotensor.runtime.native.assembler import Struct

MOST_THREADS = 256  # of a team that shares; their `LINE`s are on the stack of `launch`
MOST_PARTS = (1 << 16) - 1  # of a region: half a word of a range

# One for each thread, alone on its cache line. range: turn << 32 | first part not taken << 16 | end.
# turn: the shared region that this thread is at, 1 for the first of a launch
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
