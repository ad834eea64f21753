"""The interpreter, which defines the loop IR. Start reading at `interpreter.py`."""
