"""Compiled functions: loading, calling, timing, saving them. Start reading at `module.py`."""
