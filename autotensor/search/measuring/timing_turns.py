"""Turns: waiting for others on this machine who time or compile, for as long as that is worth it.

    turns = Turns(left_s)
    with turns.timing() as alone: …       no other process times or compiles; False: they never stopped
    with turns.compiling() as alone: …    no other process times

Times that others disturb are rough, but a run that waits for its whole deadline has none at all. So a run
with a deadline waits for WAIT_SHARE of it in all, one without for `lock.MOST_WAIT_S` at a time; then it goes
on at the same time. Whoever holds the lock may have been stopped, and never give it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from autotensor.base import log
from autotensor.runtime.timing_lock import MOST_WAIT_S, BusyError, compiling, timing_lock
from autotensor.search.measuring.measure_request import OutOfTime

WAIT_SHARE = 0.25  # of a deadline: two runs that take turns wait for half of it, but each works meanwhile
QUIETLY_S = 10.0  # of one wait, before it is worth saying

Lock = Callable[[float | None], AbstractContextManager[None]]


class Turns:
    """The waits of one run, and what is left of its patience."""

    def __init__(self, left_s: Callable[[], float] = lambda: float("inf")) -> None:
        """left_s: seconds until the deadline of the run; the present value is the run's whole time."""
        self._left_s = left_s
        self._budget_s = WAIT_SHARE * max(0.0, left_s())
        self.waited_s = 0.0
        self._said = False  # that times are rough: once is enough

    @contextmanager
    def timing(self, beside: bool = False) -> Iterator[bool]:
        """Inside the block no other process times or compiles, if it gives True; beside: except on spare
        cores.

        Raises OutOfTime if the deadline came while others held the lock.
        """
        with self._turn(partial(timing_lock, beside=beside), "timing") as alone:
            yield alone

    @contextmanager
    def compiling(self, spare: bool = False) -> Iterator[bool]:
        """The same, but others may compile, too; spare: and time, on other cores."""
        with self._turn(partial(compiling, spare=spare), "compiling") as alone:
            yield alone

    @contextmanager
    def _turn(self, lock: Lock, what: str) -> Iterator[bool]:
        with ExitStack() as held:
            yield self._wait(held, lock, what)

    def _wait(self, held: ExitStack, lock: Lock, what: str) -> bool:
        """Whether the lock is held now."""
        patience_s = max(0.0, min(MOST_WAIT_S, self._budget_s - self.waited_s, self._left_s()))
        began = time.monotonic()
        try:
            try:
                held.enter_context(lock(min(QUIETLY_S, patience_s)))
            except BusyError as busy:
                if patience_s <= QUIETLY_S:
                    raise
                log.warn(f"{busy.what.partition(';')[0]}; waiting.")
                held.enter_context(lock(patience_s - QUIETLY_S))
        except BusyError as busy:
            if self._left_s() <= 0.0:
                raise OutOfTime(busy.what) from busy
            if not self._said:
                log.warn(f"{busy.what.partition(';')[0]}; {what} meanwhile: times are rough.")
            self._said = True
            return False
        finally:
            self.waited_s += time.monotonic() - began
        return True
