"""The CPU backend, in LLVM IR: entries, memory, streams, shuffles; builds and assembly. See `backend.py`."""
