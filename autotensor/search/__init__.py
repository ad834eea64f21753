"""Finding schedules: tasks, a run and its loop, journal, events, effort, races, reports, shipped knowledge.

Start reading at `tuner.py` (one task, ask and tell), then `loop.py` (a whole run).
"""

from __future__ import annotations
