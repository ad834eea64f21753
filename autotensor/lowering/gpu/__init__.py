"""Passes for GPU targets: `vthread`, `unify`, `barriers`, `narrow`; `check` proves, `launch` counts."""
