"""The library of scheduling knowledge: generated sketches, records of processors, tuned schedules.

Mechanisms live in `autotensor.schedule` (singular); this package holds the knowledge how to use them well.
"""

from __future__ import annotations
