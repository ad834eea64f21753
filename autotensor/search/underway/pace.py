"""The duration of batches, measured during the run, so that the next batch ends before the deadline.

    pace.count(first=True, trials=8, seconds=4.1)
    pace.fitting(first=False, left_s=2.0, wanted=8) ──▶ 6

A task's first batch takes longer: its reference is compiled and run, and child processes may have to start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TRIAL_S = 0.2  # seconds of one trial, until a trial was measured here
FIRST_S = 2.0  # extra seconds of a task's first batch: half a second for each child, and the reference
CAUTION = 1.25  # factor on the expected time: batches differ, and a late end is worse than an early one
FORGET = 0.7  # weight of earlier batches when a new one is counted, because tasks differ


@dataclass(slots=True)
class Pace:
    """The expected seconds of a trial, and the extra seconds of a task's first batch."""

    trial_s: float = TRIAL_S
    first_s: float = FIRST_S
    known: bool = field(default=False)  # whether a batch was counted that is not a task's first
    first_known: bool = field(default=False)  # whether a first batch was counted

    def count(self, *, first: bool, trials: int, seconds: float) -> None:
        """Records the duration of a batch."""
        if first:
            new = max(0.0, seconds - trials * self.trial_s)
            self.first_s = FORGET * self.first_s + (1.0 - FORGET) * new if self.first_known else new
            self.first_known = True
        elif trials:
            new = seconds / trials
            self.trial_s = FORGET * self.trial_s + (1.0 - FORGET) * new if self.known else new
            self.known = True

    def seconds(self, *, first: bool, trials: int) -> float:
        """The expected seconds of a batch, times CAUTION."""
        return CAUTION * (trials * self.trial_s + (self.first_s if first else 0.0))

    def fitting(self, *, first: bool, left_s: float, wanted: int) -> int:
        """The number of trials, at most `wanted`, whose batch ends in time; 0 if not even one fits."""
        if left_s == float("inf"):
            return wanted
        room = left_s / CAUTION - (self.first_s if first else 0.0)
        return max(0, min(wanted, int(room / self.trial_s)))
