"""Schedules: how to carry a computation out, as data. Start at `trace.py`, `state.py`, then one primitive."""

from __future__ import annotations

from autotensor.schedule import primitives as primitives
from autotensor.schedule.schedule import AxisRef, Schedule, StageRef, create_schedule
from autotensor.schedule.state import Ref, State
from autotensor.schedule.trace import Trace

__all__ = ["AxisRef", "Ref", "Schedule", "StageRef", "State", "Trace", "create_schedule"]
