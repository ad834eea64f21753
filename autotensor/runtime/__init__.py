"""Compiled functions: modules, arguments, arrays, signatures; opened, timed, saved. Start at `module.py`."""
