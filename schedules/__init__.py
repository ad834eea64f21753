"""The library of scheduling knowledge: generated sketches, records of processors, tuned schedules.

Mechanisms live in `autotensor.schedule` (singular); here is what is known about using them well.
"""

from __future__ import annotations
