"""The library of scheduling knowledge: generated sketches, records of processors, tuned schedules.

`autotensor.schedule` (singular) has the mechanisms; this package has the knowledge how to use them well.
"""

from __future__ import annotations
