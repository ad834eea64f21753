"""The interpreter, which defines the loop IR, in Python: memory, ranges. Start at `interpreter.py`."""
