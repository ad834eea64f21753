"""The CPU backend: functions as LLVM IR, built to objects, and their assembly. Start at `backend.py`."""
