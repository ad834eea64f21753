"""Finding schedules: tasks, candidates, cost models, measuring, and the loop that ties them together.

Start reading at `tuner.py` (one task, ask and tell), then `loop.py` (a whole run).
"""

from __future__ import annotations
