"""The library of scheduling knowledge: sketch rules, templates, tuned traces.

Mechanisms live in `autotensor.schedule` (singular); here is what is known about using them well.
"""

from __future__ import annotations
