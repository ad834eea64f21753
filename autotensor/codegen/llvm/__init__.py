"""The CPU backend: programs as LLVM IR, compiled to objects. Start reading at `backend.py`."""
