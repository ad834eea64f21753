"""Schedules as data: axes, steps, traces, states, sketches, extents, regions. Start at `trace.py`."""

from __future__ import annotations

from autotensor.schedule import primitives as primitives
from autotensor.schedule.schedule import AxisRef, Schedule, StageRef, create_schedule
from autotensor.schedule.state import Ref, State
from autotensor.schedule.trace import Trace

__all__ = ["AxisRef", "Ref", "Schedule", "StageRef", "State", "Trace", "create_schedule"]
